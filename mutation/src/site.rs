//! Sites: places where a mutant differs from the original, and the edits that let it be chosen.
//!
//! An edit never moves a line, so the compiler's line numbers are the original's. This file must
//! not parse anything: `rust` and `sql` find the sites.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

/// A mutant of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Number of the mutant, from 1.
    pub number: u32,
    /// The file, relative to the tree.
    pub file: String,
    /// The first and the last line, from 1.
    pub lines: (usize, usize),
    /// The first line's text, trimmed.
    pub text: String,
    /// Original and replacement: `a < b -> true`.
    pub change: String,
    /// Index, from 0, among the file's sites with the same line text and the same change.
    pub nth: u32,
    /// Edits that write the choice into the file.
    pub edits: Vec<Edit>,
}

/// A change of the text at a range of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    pub at: Range<usize>,
    pub kind: Kind,
    pub text: String,
}

/// Order of edits at the same byte: closing, replacing, opening. An enclosing site opens before an
/// enclosed one and closes after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Close,
    Replace,
    Open,
}

impl Site {
    /// Name of the site that stays the same over runs, and while lines move.
    pub fn identity(&self) -> String {
        format!("{} | {} | {} | {}", self.file, self.text, self.change, self.nth)
    }
}

/// Two edits that enclose a range.
pub fn around(range: &Range<usize>, before: &str, after: &str) -> Vec<Edit> {
    vec![
        Edit { at: range.start..range.start, kind: Kind::Open, text: before.to_owned() },
        Edit { at: range.end..range.end, kind: Kind::Close, text: after.to_owned() },
    ]
}

/// Sites of one file that are found so far.
pub struct Found<'a> {
    pub file: &'a str,
    pub source: &'a str,
    pub sites: Vec<Site>,
    first: u32,
    alike: BTreeMap<(String, String), u32>,
}

impl<'a> Found<'a> {
    /// No sites yet. The first one gets the number `first`.
    pub fn new(file: &'a str, source: &'a str, first: u32) -> Self {
        Self { file, source, sites: Vec::new(), first, alike: BTreeMap::new() }
    }

    /// Adds the site `original -> instead` over a range. Its number is passed to `edits`.
    pub fn add(&mut self, range: &Range<usize>, instead: &str, edits: impl FnOnce(u32) -> Vec<Edit>) {
        let number = self.first + u32::try_from(self.sites.len()).expect("few sites");
        let line = |at: usize| self.source[..at].matches('\n').count() + 1;
        let lines = (line(range.start), line(range.end));
        let text = self.source.lines().nth(lines.0 - 1).unwrap_or("").trim().to_owned();
        let change = format!("{} -> {instead}", short(&self.source[range.clone()]));
        let nth = self.alike.entry((text.clone(), change.clone())).or_default();
        let site =
            Site { number, file: self.file.to_owned(), lines, text, change, nth: *nth, edits: edits(number) };
        *nth += 1;
        self.sites.push(site);
    }
}

/// The text as one line of at most 70 characters, `…` not counted.
fn short(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(70) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// The file with the edits of these sites. The sites are in the order in which they were found: an
/// enclosing site before the enclosed ones.
pub fn edited(source: &str, sites: &[&Site]) -> String {
    let mut edits: Vec<(usize, Kind, Reverse<usize>, usize, &Edit)> = Vec::new();
    for (order, site) in sites.iter().enumerate() {
        for edit in &site.edits {
            let inner_first = if edit.kind == Kind::Close { order } else { 0 };
            edits.push((edit.at.start, edit.kind, Reverse(inner_first), order, edit));
        }
    }
    edits.sort_by_key(|(start, kind, close, open, _)| (*start, *kind, *close, *open));
    let mut out = String::with_capacity(source.len() * 2);
    let mut at = 0;
    for (start, .., edit) in edits {
        out.push_str(&source[at..start]);
        out.push_str(&edit.text);
        // A replaced range keeps its line breaks.
        let lost = source[edit.at.clone()].matches('\n').count();
        out.push_str(&"\n".repeat(lost.saturating_sub(edit.text.matches('\n').count())));
        at = edit.at.end;
    }
    out + &source[at..]
}
