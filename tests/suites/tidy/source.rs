//! One file of the tree as the house rules see it: its raw text, and for Rust its words without
//! comments and literals.
//!
//! It is a scanner, not a parser: it trusts that the compiler accepts the file, and errs on the
//! side of seeing too much. `paths` resolves imports on top of the words. It must not know any
//! rule: each rule names its own forbidden words and places.

use std::ops::RangeInclusive;

/// One word or mark of Rust code: an identifier, a number, `::`, one other character, or `"` for
/// any literal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// Counted from 1.
    pub line: usize,
    pub text: String,
}

/// A file, and the result of scanning it. `tokens`, `literals` and `tests` are empty unless the
/// path ends in `.rs`.
pub struct Source {
    /// Relative to the top of the tree, with `/`.
    pub path: String,
    pub raw: String,
    pub tokens: Vec<Token>,
    /// The inside of every string literal, with the line it begins on.
    pub literals: Vec<(usize, String)>,
    /// The lines of every item under `#[cfg(test)]`.
    tests: Vec<RangeInclusive<usize>>,
}

impl Source {
    pub fn new(path: &str, raw: &str) -> Source {
        let (code, literals) = if path.ends_with(".rs") { strip(raw) } else { (String::new(), Vec::new()) };
        let tokens = tokens(&code);
        let tests = test_items(&tokens);
        Source { path: path.to_string(), raw: raw.to_string(), tokens, literals, tests }
    }

    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// True if the file is in one of these places: folders end in `/`, files are named in full.
    pub fn within(&self, places: &[&str]) -> bool {
        places.iter().any(|place| self.path == *place || place.ends_with('/') && self.path.starts_with(place))
    }

    /// The room of a file in `src/`: the folder or file directly below it.
    pub fn room(&self) -> Option<&str> {
        let rest = self.path.strip_prefix("src/")?;
        rest.split('/').next().map(|first| first.trim_end_matches(".rs"))
    }

    /// True if this line is test code: a file of tests, or an item under `#[cfg(test)]`.
    pub fn is_test(&self, line: usize) -> bool {
        let file = self.path.starts_with("tests/") || self.path.contains("/tests/");
        file || self.path.ends_with("/tests.rs") || self.tests.iter().any(|item| item.contains(&line))
    }

    /// The lines on which these tokens follow each other.
    pub fn sequence<'a>(&'a self, wanted: &'a [&'a str]) -> impl Iterator<Item = usize> + 'a {
        let matches = move |seen: &&[Token]| seen.iter().zip(wanted).all(|(token, text)| token.text == *text);
        self.tokens.windows(wanted.len()).filter(matches).map(|seen| seen[0].line)
    }

    /// Every function with a body: its name, the line of its `fn`, the line of its closing brace.
    pub fn functions(&self) -> Vec<(&str, usize, usize)> {
        let starts = (0..self.tokens.len()).filter(|&at| self.tokens[at].text == "fn");
        let spans = starts.filter_map(|at| {
            let name = self.tokens.get(at + 1).filter(|name| name.text != "(")?;
            let (_, close) = body(&self.tokens, at)?;
            Some((name.text.as_str(), self.tokens[at].line, self.tokens[close].line))
        });
        spans.collect()
    }
}

pub fn is_word(text: &str) -> bool {
    text.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

/// Blanks comments and literals (newlines stay, so lines keep their numbers) and returns the string
/// literals.
fn strip(raw: &str) -> (String, Vec<(usize, String)>) {
    let bytes = raw.as_bytes();
    let mut code = bytes.to_vec();
    let mut literals = Vec::new();
    let (mut at, mut line) = (0, 1);
    while at < bytes.len() {
        let rest = &raw[at..];
        let end = if rest.starts_with("//") {
            at + rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            at + block_comment(rest)
        } else if let Some((open, length)) =
            string_literal(rest, at.checked_sub(1).map(|before| bytes[before]))
        {
            literals.push((line, rest[open..length].trim_end_matches(['#', '"']).to_string()));
            at + length
        } else if let Some(length) = char_literal(rest) {
            at + length
        } else {
            let step = rest.chars().next().map_or(1, char::len_utf8);
            line += usize::from(rest.starts_with('\n'));
            at += step;
            continue;
        };
        line += raw[at..end].matches('\n').count();
        let is_comment = rest.starts_with('/');
        code[at..end].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
        if !is_comment {
            code[end - 1] = b'"';
        }
        at = end;
    }
    (String::from_utf8_lossy(&code).into_owned(), literals)
}

/// The length of the block comment that `rest` opens with; they nest.
fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        let pair = rest.as_bytes().get(at..at + 2);
        depth = match pair {
            Some(b"/*") => depth + 1,
            Some(b"*/") => depth - 1,
            Some(_) | None => {
                at += 1;
                continue;
            }
        };
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

/// The begin of the string literal's inside, and its whole length, if `rest` opens with one.
fn string_literal(rest: &str, before: Option<u8>) -> Option<(usize, usize)> {
    let in_word = before.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let prefixes: &[&str] = if in_word { &[""] } else { &["br", "cr", "r", "b", "c", ""] };
    for prefix in prefixes {
        let Some(tail) = rest.strip_prefix(prefix) else { continue };
        let is_raw = prefix.ends_with('r');
        let hashes = if is_raw { tail.len() - tail.trim_start_matches('#').len() } else { 0 };
        let open = prefix.len() + hashes + 1;
        if tail.as_bytes().get(hashes) != Some(&b'"') {
            continue;
        }
        if is_raw {
            let close = format!("\"{}", "#".repeat(hashes));
            let length = rest[open..].find(&close).map_or(rest.len(), |inside| open + inside + close.len());
            return Some((open, length));
        }
        let mut escaped = false;
        for (inside, byte) in rest.bytes().enumerate().skip(open) {
            if byte == b'"' && !escaped {
                return Some((open, inside + 1));
            }
            escaped = byte == b'\\' && !escaped;
        }
        return Some((open, rest.len()));
    }
    None
}

/// The length of the character literal `rest` opens with; a lifetime is none.
fn char_literal(rest: &str) -> Option<usize> {
    let tail = rest.strip_prefix('\'')?;
    if tail.starts_with('\\') {
        return tail.get(2..)?.find('\'').map(|close| close + 4);
    }
    let inside = tail.chars().next()?.len_utf8();
    (tail.as_bytes().get(inside) == Some(&b'\'')).then_some(inside + 2)
}

fn tokens(code: &str) -> Vec<Token> {
    let mut found = Vec::new();
    for (number, text) in code.lines().enumerate() {
        let mut rest = text.trim_start();
        while let Some(first) = rest.chars().next() {
            let length = if rest.starts_with("::") {
                2
            } else if first.is_alphanumeric() || first == '_' {
                rest.find(|next: char| !next.is_alphanumeric() && next != '_').unwrap_or(rest.len())
            } else {
                first.len_utf8()
            };
            found.push(Token { line: number + 1, text: rest[..length].to_string() });
            rest = rest[length..].trim_start();
        }
    }
    found
}

/// The opening and closing brace of the item that begins at `start`; none for an item that ends in
/// `;`.
fn body(tokens: &[Token], start: usize) -> Option<(usize, usize)> {
    let (mut inner, mut braces, mut open) = (0_i32, 0_i32, None);
    for (at, token) in tokens.iter().enumerate().skip(start) {
        match (token.text.as_str(), open) {
            ("(" | "[", None) => inner += 1,
            (")" | "]", None) => inner -= 1,
            (";", None) if inner == 0 => return None,
            ("{", None) if inner == 0 => (open, braces) = (Some(at), 1),
            ("{", Some(_)) => braces += 1,
            ("}", Some(first)) => {
                braces -= 1;
                if braces == 0 {
                    return Some((first, at));
                }
            }
            (_, _) => {}
        }
    }
    None
}

fn test_items(tokens: &[Token]) -> Vec<RangeInclusive<usize>> {
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
    let mut items = Vec::new();
    for at in 0..tokens.len() {
        if text(at) != "#" || text(at + 1) != "[" || text(at + 2) != "cfg" {
            continue;
        }
        let inside = tokens[at..].iter().take_while(|token| token.text != "]");
        let attribute: Vec<&str> = inside.map(|token| token.text.as_str()).collect();
        if attribute.contains(&"test") && !attribute.contains(&"not") {
            let end = body(tokens, at).map_or(tokens[at].line, |(_, close)| tokens[close].line);
            items.push(tokens[at].line..=end);
        }
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        Source::new("src/forged.rs", text).tokens.into_iter().map(|token| token.text).collect()
    }

    #[test]
    fn comments_and_literals_are_blanked() {
        assert_eq!(words("a // hidden\nb"), ["a", "b"]);
        assert_eq!(words("a /* hidden /* deeper */ hidden */ b"), ["a", "b"]);
        assert_eq!(words("/// hidden\n//! hidden\na"), ["a"]);
        assert_eq!(words(r##"a "hid\"den" b"##), ["a", "\"", "b"]);
        assert_eq!(words(r##"a "hidden\\" b"##), ["a", "\"", "b"]);
        assert_eq!(words(r###"a r#"hid"den"# b br"hidden\" c"###), ["a", "\"", "b", "\"", "c"]);
        assert_eq!(words("a \"// no comment\" b"), ["a", "\"", "b"]);
        assert_eq!(words("a \"/* no comment\" b // \"no string\nc"), ["a", "\"", "b", "c"]);
        assert_eq!(
            words("a '\"' b '\\'' c 'é' d b'\"' e"),
            ["a", "\"", "b", "\"", "c", "\"", "d", "b", "\"", "e"]
        );
    }

    #[test]
    fn lifetimes_and_raw_names_are_not_literals() {
        assert_eq!(words("&'a str; 'b'; r#fn"), ["&", "'", "a", "str", ";", "\"", ";", "r", "#", "fn"]);
        assert_eq!(words("f<'a, 'b>(x)"), ["f", "<", "'", "a", ",", "'", "b", ">", "(", "x", ")"]);
    }

    #[test]
    fn lines_survive_blanking() {
        let source = Source::new("src/forged.rs", "/* 1\n2 */ a\n\"3\n4\" b\nr#\"5\n6\"# c\n// 7\nd");
        let lines: Vec<(&str, usize)> = source.tokens.iter().map(|t| (t.text.as_str(), t.line)).collect();
        assert_eq!(lines, [("a", 2), ("\"", 4), ("b", 4), ("\"", 6), ("c", 6), ("d", 8)]);
        assert_eq!(source.literals, [(3, "3\n4".to_string()), (5, "5\n6".to_string())]);
    }

    #[test]
    fn functions_have_names_and_ends() {
        let text = "fn one() -> [u8; 2] {\n  if x { \"}\" }\n}\ntrait T { fn none(&self); }\nlet p: fn(u8);\nfn two() {}";
        let source = Source::new("src/forged.rs", text);
        assert_eq!(source.functions(), [("one", 1, 3), ("two", 6, 6)]);
    }

    #[test]
    fn test_code_is_known() {
        let text =
            "fn a() {}\n#[cfg(test)]\nmod tests {\n  fn b() {}\n}\nfn c() {}\n#[cfg(not(test))]\nfn d() {}";
        let source = Source::new("src/gateway/forged.rs", text);
        let lines: Vec<usize> = (1..=8).filter(|line| source.is_test(*line)).collect();
        assert_eq!(lines, [2, 3, 4, 5]);
        assert!(
            Source::new("tests/forged.rs", text).is_test(1)
                && Source::new("simulation/tests/x.rs", text).is_test(1)
        );
    }
}
