//! The names that a Rust file uses: every `use` (groups opened) and every `a::b` in its code,
//! resolved as far as one file allows.
//!
//! `crate`, `self` and `super` become their crate and module; an imported or renamed name becomes
//! its original. So a rule can say `tokio::time` once and catch every spelling of it. It must not
//! know any rule.

use crate::tidy::source::{Source, Token, is_word};
use std::collections::{BTreeMap, BTreeSet};

/// A name used on a line, from its crate down. A glob ends in `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    pub line: usize,
    pub segments: Vec<String>,
    /// True if it is in a `use`.
    pub import: bool,
}

impl Path {
    pub fn starts(&self, prefix: &[&str]) -> bool {
        self.segments.len() >= prefix.len()
            && self.segments.iter().zip(prefix).all(|(have, want)| have == want)
    }

    /// True if this names `wanted` or something below it, or is a glob that brings it in.
    pub fn reaches(&self, wanted: &str) -> bool {
        let wanted: Vec<&str> = wanted.split("::").collect();
        let globs = self.segments.split_last().filter(|(last, _)| *last == "*");
        self.starts(&wanted)
            || globs.is_some_and(|(_, parents)| {
                parents.len() < wanted.len() && parents.iter().zip(&wanted).all(|(have, want)| have == want)
            })
    }

    pub fn text(&self) -> String {
        self.segments.join("::")
    }
}

/// Every path of the file, resolved.
pub fn paths(source: &Source) -> Vec<Path> {
    let mut scan = Scan::new(source);
    scan.run(&source.tokens);
    scan.resolved()
}

struct Scan {
    /// The crate and module of the file itself.
    file: Vec<String>,
    /// Modules opened with a brace around the present token: name, and the brace depth outside.
    inline: Vec<(String, usize)>,
    depth: usize,
    found: Vec<Path>,
    /// The meanings of each imported name; several if scopes of the file differ.
    imported: BTreeMap<String, BTreeSet<Vec<String>>>,
    /// Child modules: their names win over crates of the same name.
    children: BTreeSet<String>,
}

impl Scan {
    fn new(source: &Source) -> Scan {
        let path = source.path.trim_end_matches(".rs");
        let (name, rest) = match (path.strip_prefix("src/"), path.strip_prefix("simulation/src/")) {
            (Some(rest), _) => ("onceway", rest),
            (None, Some(rest)) => ("simulation", rest),
            (None, None) => ("test", ""),
        };
        let modules = rest.split('/').filter(|part| !matches!(*part, "" | "mod" | "lib" | "main"));
        let file = std::iter::once(name).chain(modules).map(String::from).collect();
        Scan {
            file,
            inline: Vec::new(),
            depth: 0,
            found: Vec::new(),
            imported: BTreeMap::new(),
            children: BTreeSet::new(),
        }
    }

    fn run(&mut self, tokens: &[Token]) {
        let text = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
        let mut at = 0;
        while at < tokens.len() {
            let before = if at == 0 { "" } else { text(at - 1) };
            let is_field = before == "." && (at < 2 || text(at - 2) != ".");
            match text(at) {
                "{" => self.depth += 1,
                "}" => {
                    self.depth = self.depth.saturating_sub(1);
                    self.inline.retain(|(_, outside)| *outside < self.depth);
                }
                "mod" if is_word(text(at + 1)) && text(at + 2) == "{" => {
                    self.inline.push((text(at + 1).to_string(), self.depth));
                    self.children.insert(text(at + 1).to_string());
                    at += 1;
                }
                "mod" if is_word(text(at + 1)) => {
                    self.children.insert(text(at + 1).to_string());
                    at += 1;
                }
                "extern" if text(at + 1) == "crate" => at = self.tree(tokens, at + 2, Vec::new()) - 1,
                "use" if text(at + 1) != "<" => at = self.tree(tokens, at + 1, Vec::new()) - 1,
                word if is_word(word) && !is_field && before != "::" || word == "::" && before != ">" => {
                    at = self.inline_path(tokens, at) - 1;
                }
                _ => {}
            }
            at += 1;
        }
    }

    /// Reads one branch of a `use`; returns the place after it.
    fn tree(&mut self, tokens: &[Token], mut at: usize, mut prefix: Vec<String>) -> usize {
        while let Some(Token { line, text }) = tokens.get(at) {
            match text.as_str() {
                "{" => {
                    at += 1;
                    while tokens.get(at).is_some_and(|token| token.text != "}") {
                        let next = self.tree(tokens, at, prefix.clone());
                        at = next + usize::from(tokens.get(next).is_some_and(|token| token.text == ","));
                    }
                    return at + 1;
                }
                "::" => at += 1,
                word if word == "*" || is_word(word) => {
                    if word != "self" || prefix.is_empty() {
                        prefix.push(word.to_string());
                    }
                    at += 1;
                    let follows =
                        |offset: usize| tokens.get(at + offset).map_or("", |token| token.text.as_str());
                    if follows(0) == "::" {
                        continue;
                    }
                    let renamed = (follows(0) == "as").then(|| follows(1).to_string());
                    at += if renamed.is_some() { 2 } else { 0 };
                    self.import(*line, prefix, renamed);
                    return at;
                }
                // Not a tree (a macro's `$name`, a broken file): step over it, so that the scan
                // always moves on.
                _ => return at + 1,
            }
        }
        at
    }

    fn import(&mut self, line: usize, path: Vec<String>, renamed: Option<String>) {
        let segments = self.anchored(path);
        let name = renamed.or_else(|| segments.last().cloned()).unwrap_or_default();
        if name != "*" && name != "_" {
            self.imported.entry(name).or_default().insert(segments.clone());
        }
        self.found.push(Path { line, segments, import: true });
    }

    fn inline_path(&mut self, tokens: &[Token], start: usize) -> usize {
        let mut at = start + usize::from(tokens[start].text == "::");
        let mut segments = Vec::new();
        while let Some(word) = tokens.get(at).filter(|token| is_word(&token.text)) {
            segments.push(word.text.clone());
            at += 1;
            let goes_on = tokens.get(at).is_some_and(|token| token.text == "::")
                && tokens.get(at + 1).is_some_and(|token| is_word(&token.text));
            if !goes_on {
                break;
            }
            at += 1;
        }
        let is_receiver = segments.len() == 1 && matches!(segments[0].as_str(), "self" | "super" | "crate");
        if !segments.is_empty() && !is_receiver {
            let segments = self.anchored(segments);
            self.found.push(Path { line: tokens[start].line, segments, import: false });
        }
        at.max(start + 1)
    }

    /// Replaces a leading `crate`, `self` or chain of `super` by its meaning here.
    fn anchored(&self, path: Vec<String>) -> Vec<String> {
        let here = || self.file.iter().cloned().chain(self.inline.iter().map(|(name, _)| name.clone()));
        let supers =
            path.iter().skip_while(|word| *word == "self").take_while(|word| *word == "super").count();
        match path[0].as_str() {
            "crate" => self.file[..1].iter().cloned().chain(path.into_iter().skip(1)).collect(),
            "self" | "super" => {
                let skipped = supers + usize::from(path[0] == "self");
                let mut base: Vec<String> = here().collect();
                base.truncate(base.len().saturating_sub(supers).max(1));
                base.into_iter().chain(path.into_iter().skip(skipped)).collect()
            }
            _ => path,
        }
    }

    fn resolved(self) -> Vec<Path> {
        let mut all = Vec::new();
        for path in &self.found {
            let mut open = vec![path.segments.clone()];
            // A name may stand for a name that was itself imported; three steps are more than
            // anybody writes.
            for _ in 0..3 {
                open = open.into_iter().flat_map(|segments| self.step(segments, path.import)).collect();
            }
            let is_lone_word = |segments: &Vec<String>| !path.import && segments.len() == 1;
            open.retain(|segments| !is_lone_word(segments));
            open.dedup();
            all.extend(open.into_iter().map(|segments| Path {
                line: path.line,
                segments,
                import: path.import,
            }));
        }
        all
    }

    fn step(&self, segments: Vec<String>, import: bool) -> Vec<Vec<String>> {
        let first = &segments[0];
        match self.imported.get(first) {
            Some(meanings)
                if !meanings.iter().any(|meaning| meaning[0] == *first || import && *meaning == segments) =>
            {
                meanings.iter().map(|meaning| [meaning.as_slice(), &segments[1..]].concat()).collect()
            }
            None if self.children.contains(first) => vec![[self.file.as_slice(), &segments].concat()],
            Some(_) | None => vec![segments],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(path: &str, text: &str) -> Vec<String> {
        paths(&Source::new(path, text)).iter().map(Path::text).collect()
    }

    #[test]
    fn groups_are_opened_and_renamed_names_followed() {
        let text = "use crate::{a, b::{self, c as d}, e::*};\nfn f() { d::x(); b::y::<u8>(); }";
        let expected = [
            "onceway::a",
            "onceway::b",
            "onceway::b::c",
            "onceway::e::*",
            "onceway::b::c::x",
            "onceway::b::y",
        ];
        assert_eq!(texts("src/gateway/forged.rs", text), expected);
        assert_eq!(
            texts("src/x.rs", "use tokio as t;\nuse t::time;\nfn f() { time::sleep(); }")[1..],
            ["tokio::time", "tokio::time::sleep"]
        );
    }

    #[test]
    fn relative_paths_are_anchored() {
        assert_eq!(
            texts("src/gateway/a/b.rs", "use super::super::super::server::X;"),
            ["onceway::server::X"]
        );
        assert_eq!(texts("src/gateway/mod.rs", "use super::server::X;"), ["onceway::server::X"]);
        assert_eq!(
            texts("src/gateway/a.rs", "mod tests { use super::super::b; } use super::c;"),
            ["onceway::gateway::b", "onceway::gateway::c"]
        );
        assert_eq!(texts("simulation/src/a.rs", "fn f() { crate::b::c() }"), ["simulation::b::c"]);
    }

    #[test]
    fn children_win_over_crates_and_fields_are_no_paths() {
        assert_eq!(
            texts("src/server/mod.rs", "mod http;\nfn f() { http::g() }"),
            ["onceway::server::http::g"]
        );
        assert_eq!(
            texts("src/a.rs", "use std::mem;\nfn f() { x.mem; 0..mem::size() }"),
            ["std::mem", "std::mem::size"]
        );
        assert_eq!(
            texts("src/a.rs", "fn f() -> impl A + use<'a> { ::tokio::spawn(<T as B>::C) }"),
            ["tokio::spawn"]
        );
    }

    #[test]
    fn globs_reach_what_they_bring_in() {
        let source = Source::new("src/a.rs", "use std::time::*;");
        let found = paths(&source);
        assert!(found[0].reaches("std::time::Instant") && !found[0].reaches("std::collections"));
    }
}
