//! Sites in SQL: conditions that decide nothing, boundaries that move, locks that are not taken.
//!
//! Marks are comments, so a marked statement keeps its meaning. `chosen::sql` chooses a mutant when
//! a statement is sent to the server. This file must not know the schema. It parses just enough SQL
//! to see where a condition begins and ends.

use std::ops::Range;

use crate::site::{Found, Site, around};

/// Words that end a condition.
const ENDS: [&str; 28] = [
    "and",
    "as",
    "asc",
    "cross",
    "do",
    "else",
    "end",
    "for",
    "from",
    "group",
    "having",
    "inner",
    "join",
    "left",
    "limit",
    "loop",
    "on",
    "or",
    "order",
    "returning",
    "select",
    "set",
    "then",
    "union",
    "using",
    "when",
    "where",
    "window",
];
/// Words before an `or` that belongs to no condition.
const WRITES: [&str; 5] = ["create", "delete", "insert", "truncate", "update"];
/// Locks of rows.
const LOCKS: [&[&str]; 4] =
    [&["for", "share"], &["for", "update"], &["for", "no", "key", "update"], &["for", "key", "share"]];

/// The sites of a file, numbered from `first`.
pub fn sites(file: &str, source: &str, first: u32) -> Vec<Site> {
    let tokens = tokens(source);
    let mut found = Found::new(file, source, first);
    for (at, instead) in conditions(source, &tokens) {
        add(&mut found, &at, instead);
    }
    for (index, token) in tokens.iter().enumerate() {
        let word = |ahead: usize| tokens.get(index + ahead).map_or("", |token| &source[token.clone()]);
        match word(0) {
            "<" => add(&mut found, token, "<="),
            "<=" => add(&mut found, token, "<"),
            ">" => add(&mut found, token, ">="),
            ">=" => add(&mut found, token, ">"),
            "greatest" => add(&mut found, token, "least"),
            "least" => add(&mut found, token, "greatest"),
            "desc" => add(&mut found, token, "asc"),
            "perform" => {
                let end = tokens[index..].iter().find(|end| &source[(*end).clone()] == ";");
                let end = end.map_or(source.len(), |end| end.start);
                add(&mut found, &(token.start..end), "null");
            }
            "for" => {
                let held =
                    |lock: &&&[&str]| lock.iter().enumerate().all(|(ahead, part)| word(ahead) == *part);
                if let Some(lock) = LOCKS.iter().find(held) {
                    add(&mut found, &(token.start..tokens[index + lock.len() - 1].end), "");
                }
            }
            _ => {}
        }
    }
    // Enclosing sites come first, as `edited` requires.
    let mut sites = found.sites;
    let extent = |site: &Site| (site.edits[0].at.start, usize::MAX - site.edits[1].at.end);
    sites.sort_by_key(extent);
    sites
}

fn add(found: &mut Found<'_>, at: &Range<usize>, instead: &str) {
    let told = if instead.is_empty() { "left out" } else { instead };
    found.add(at, told, |n| around(at, &format!("/*<{n}*/"), &format!("/*{n}>{instead}*/")));
}

/// Ranges of words, numbers, texts, parameters, operators and signs. Comments and the `$name$`
/// around bodies are no tokens.
fn tokens(source: &str) -> Vec<Range<usize>> {
    let mut all = Vec::new();
    let mut at = 0;
    while let Some(next) = source[at..].chars().next() {
        let rest = &source[at..];
        let run = |is: fn(char) -> bool| rest.find(|c| !is(c)).unwrap_or(rest.len());
        let length = if rest.starts_with("--") {
            rest.find('\n').unwrap_or(rest.len())
        } else if next == '$' && rest[1..].starts_with(|c: char| !c.is_ascii_digit()) {
            rest[1..].find('$').map_or(rest.len(), |end| end + 2)
        } else if next.is_whitespace() {
            next.len_utf8()
        } else {
            let length = if next == '\'' {
                rest[1..].find('\'').map_or(rest.len(), |end| end + 2)
            } else if next.is_alphanumeric() || "_{}$".contains(next) {
                run(|c| c.is_alphanumeric() || "_{}$.".contains(c))
            } else if "<>=-+*/|@!:".contains(next) {
                run(|c| "<>=-+*/|@!:".contains(c))
            } else {
                next.len_utf8()
            };
            all.push(at..at + length);
            length
        };
        at += length;
    }
    all
}

/// State of the parser at one depth of parentheses.
#[derive(Default)]
struct Depth {
    /// The token with which the operand begins, if an operand may stand here.
    begin: Option<usize>,
    /// Replacements with which the operand decides nothing. Empty until a word of a condition asks
    /// for one.
    instead: Vec<&'static str>,
    /// The next `and` belongs to `between`.
    between: bool,
}

/// Operands of conditions, each with its replacement.
fn conditions(source: &str, tokens: &[Range<usize>]) -> Vec<(Range<usize>, &'static str)> {
    let text = |index: usize| tokens.get(index).map_or("", |token| &source[token.clone()]);
    let mut found = Vec::new();
    let mut depths = vec![Depth::default()];
    // For each enclosing `case`: true if it has conditions, false if it compares with values.
    let mut cases: Vec<bool> = Vec::new();
    for index in 0..=tokens.len() {
        let (word, depth) = (text(index), depths.len() - 1);
        let before = if index == 0 { "" } else { text(index - 1) };
        if word == "(" {
            depths.push(Depth { begin: Some(index + 1), ..Depth::default() });
            continue;
        }
        let here = &mut depths[depth];
        // For example `create or replace`, `before update or delete`.
        if word == "or" && WRITES.contains(&before) {
            continue;
        }
        let ends = ENDS.contains(&word) || matches!(word, "" | ";" | "," | ")");
        if word == "between" {
            here.between = true;
        } else if word == "and" && here.between {
            here.between = false;
        } else if ends && !(word == "from" && before == "distinct") {
            let connects = word == "and" || word == "or";
            if connects && here.instead.is_empty() {
                here.instead = if word == "and" { vec!["true"] } else { vec!["false"] };
            }
            if let Some(begin) = here.begin.take()
                && begin < index
            {
                let at = tokens[begin].start..tokens[index - 1].end;
                let shown = if word == "or" { vec!["false"] } else { here.instead.clone() };
                found.extend(shown.into_iter().map(|instead| (at.clone(), instead)));
            }
            here.instead.clear();
            if connects {
                here.begin = Some(index + 1);
                here.instead = if word == "and" { vec!["true"] } else { vec!["false"] };
            }
        }
        let asks = match word {
            "where" | "having" => true,
            "on" => joined(tokens, source, index),
            "when" => cases.last().copied().unwrap_or(false),
            // Not `drop … if exists name`.
            "if" => before != "end" && (text(index + 1) != "exists" || text(index + 2) == "("),
            _ => false,
        };
        if asks {
            here.begin = Some(index + 1);
            here.instead = if matches!(word, "when" | "if") { vec!["true", "false"] } else { vec!["true"] };
        }
        match word {
            "case" => cases.push(text(index + 1) == "when"),
            "end" if !matches!(text(index + 1), "if" | "loop") => drop(cases.pop()),
            ")" if depth > 0 => drop(depths.pop()),
            _ => {}
        }
    }
    found
}

/// True if this `on` belongs to a `join`.
fn joined(tokens: &[Range<usize>], source: &str, on: usize) -> bool {
    let words = tokens[..on].iter().rev().map(|token| &source[token.clone()]);
    let mut words = words.take_while(|word| !matches!(*word, ";" | "on" | "where" | "into"));
    let next = tokens.get(on + 1).map_or("", |token| &source[token.clone()]);
    next != "conflict" && words.any(|word| word == "join")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chosen::replaced;
    use crate::site::edited;

    /// The statement of each mutant, without marks.
    fn mutants(source: &str) -> Vec<String> {
        let all = sites("a.sql", source, 1);
        let marked = edited(source, &all.iter().collect::<Vec<_>>());
        let mutant = |number| {
            all.iter().fold(replaced(&marked, number), |text, other| {
                let text = text.replace(&format!("/*<{}*/", other.number), "");
                let close = format!("/*{}>", other.number);
                match text.split_once(&close) {
                    Some((before, after)) => format!("{before}{}", after.split_once("*/").unwrap().1),
                    None => text,
                }
            })
        };
        (1..=u32::try_from(all.len()).unwrap()).map(mutant).collect()
    }

    #[test]
    fn a_conjunct_decides_nothing() {
        let source = "select 1 from a where b = 'x' and (c or d is null) order by e";
        let all = [
            "select 1 from a where true and (c or d is null) order by e",
            "select 1 from a where b = 'x' and true order by e",
            "select 1 from a where b = 'x' and (false or d is null) order by e",
            "select 1 from a where b = 'x' and (c or false) order by e",
        ];
        let mut found = mutants(source);
        let mut wanted = all.map(str::to_owned).to_vec();
        found.sort();
        wanted.sort();
        assert_eq!(found, wanted);
    }

    #[test]
    fn a_join_a_case_and_an_if_are_conditions() {
        assert_eq!(mutants("select from a join b on a.c = b.c"), ["select from a join b on true"]);
        let case = ["case when true then 1 end", "case when false then 1 end"];
        assert_eq!(mutants("case when a then 1 end"), case);
        assert_eq!(mutants("if not found then return; end if;").len(), 2);
        assert_eq!(mutants("where a is distinct from b"), ["where true"]);
    }

    #[test]
    fn boundaries_order_and_locks_are_changed() {
        assert_eq!(mutants("set a = b <= c"), ["set a = b < c"]);
        assert_eq!(mutants("order by a desc"), ["order by a asc"]);
        assert_eq!(mutants("select from a for share"), ["select from a "]);
        assert_eq!(mutants("greatest(a, b)"), ["least(a, b)"]);
        assert_eq!(mutants("perform pg_sleep(1);"), ["null;"]);
    }

    #[test]
    fn what_is_no_condition_is_left_alone() {
        for source in [
            "-- where a and b\nselect 1",
            "create or replace function f() returns int as $a$ select 1 $a$",
            "drop table if exists a",
            "insert into a values (1) on conflict do nothing",
            "case $1 when 4 then a end",
            "select a -> 'b and c', d ->> 'e' <> 'f'",
        ] {
            assert_eq!(mutants(source), [""; 0], "{source}");
        }
    }
}
