//! The rules on prose: how wide a line is, and how long a sentence.
//!
//! They hold mechanically what can be held so of "plain English": comments in Rust, and documents.
//! A reader still has to judge if a sentence is true and names its things. This file must not look
//! at code or at string literals: those have other readers.

use crate::tidy::{Rule, Source};

const COLUMNS: usize = 100;
const WORDS: usize = 25;
/// A line of a comment or of a document: its number, the marks before the prose, and the prose.
struct Line<'a> {
    number: usize,
    /// `//`, `///`, `//!`; nothing in a document.
    mark: &'a str,
    text: &'a str,
    columns: usize,
}

/// The lines of prose, in blocks that follow one another without a break.
fn blocks(source: &Source) -> Vec<Vec<Line<'_>>> {
    let mut blocks = vec![Vec::new()];
    let mut fenced = false;
    for (index, raw) in source.raw.lines().enumerate() {
        let line = if source.is_rust() { comment(raw) } else { Some(("", raw)) };
        let Some((mark, text)) = line else {
            blocks.push(Vec::new());
            continue;
        };
        let fence = text.trim_start().starts_with("```");
        fenced ^= fence;
        let other =
            blocks.last().and_then(|block: &Vec<Line>| block.last()).is_some_and(|line| line.mark != mark);
        if other || fence || fenced || text.trim().is_empty() || begins_anew(text) {
            blocks.push(Vec::new());
        }
        if !(fence || fenced || text.trim().is_empty()) {
            let columns = raw.chars().count();
            blocks.last_mut().expect("one is there").push(Line { number: index + 1, mark, text, columns });
        }
    }
    blocks.retain(|block| !block.is_empty());
    blocks
}

/// The mark and the text of a line that is a comment and nothing else.
fn comment(raw: &str) -> Option<(&str, &str)> {
    let line = raw.trim_start();
    let mark = ["///", "//!", "//"].into_iter().find(|mark| line.starts_with(mark))?;
    Some((mark, line[mark.len()..].trim_start()))
}

/// Says that a line begins a paragraph of its own: a heading, a row, an item of a list.
fn begins_anew(text: &str) -> bool {
    let text = text.trim_start();
    let numbered = text.split_once(". ").is_some_and(|(number, _)| number.parse::<u8>().is_ok());
    numbered || ["#", "|", "- ", "* ", "> "].iter().any(|sign| text.starts_with(sign))
}

/// Says that a line has a reason to be wide: a row of a table, a heading, or one long address.
fn is_whole(text: &str) -> bool {
    let text = text.trim_start();
    let longest = text.split(' ').map(|word| word.chars().count()).max().unwrap_or_default();
    text.starts_with('|') || text.starts_with('#') || longest > COLUMNS / 2
}

fn is_prose(source: &Source) -> bool {
    source.is_rust() || source.path.ends_with(".md")
}

/// The text without the targets of its links, which no reader sees.
fn read_aloud(text: &str) -> String {
    let mut rest = text;
    let mut seen = String::new();
    while let Some((before, after)) = rest.split_once("](") {
        seen.push_str(before);
        seen.push(']');
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    seen + rest
}

/// The sentences of a block that are too long: the line each begins on, and its words.
fn long_sentences(block: &[Line]) -> Vec<(usize, usize)> {
    let lines = block.iter().filter(|line| !line.text.trim_start().starts_with(['|', '#']));
    let text: Vec<(usize, String)> = lines.map(|line| (line.number, read_aloud(line.text))).collect();
    let words =
        text.iter().flat_map(|(number, text)| text.split_whitespace().map(move |word| (*number, word)));
    let mut found = Vec::new();
    let (mut first, mut count) = (0, 0);
    for (number, word) in words.chain([(0, ".")]) {
        if count == 0 {
            first = number;
        }
        count += usize::from(word.contains(char::is_alphanumeric));
        let bare = word.trim_end_matches([')', ']', '"', '*', '_', '`']);
        if bare.ends_with(['.', '!', '?', ':', ';']) {
            if count > WORDS {
                found.push((first, count));
            }
            count = 0;
        }
    }
    found
}

pub const WIDTH: Rule = Rule {
    reason: "A line of a comment or of a document has at most 100 columns, so that two files stand side by side. Tables, \
             headings and long addresses may be wider.",
    check: |source| {
        if !is_prose(source) {
            return Vec::new();
        }
        let blocks = blocks(source);
        let wide = blocks.iter().flatten().filter(|line| line.columns > COLUMNS && !is_whole(line.text));
        wide.map(|line| (line.number, format!("{} columns", line.columns))).collect()
    },
    forged: || {
        let long = "word ".repeat(25);
        vec![
            (
                "src/a.rs",
                format!(
                    "/// {long} //~\nfn f() {{}} // {long}\n/// | {long} |\n//   {} //~",
                    "a b ".repeat(26)
                ),
            ),
            ("src/b.rs", format!("/// ```\n/// {long}\n/// ```\nlet a = \"{long}\";")),
            (
                "docs/a.md",
                format!(
                    "{long} //~\n\n| {long} |\n\n```sh\n{long}\n```\n\n# {long}\n<https://{}>",
                    "a".repeat(90)
                ),
            ),
            ("config/a.toml", format!("# {long}")),
        ]
    },
};

pub const SENTENCES: Rule = Rule {
    reason: "A sentence has at most 25 words: one thought. A second condition is a second sentence, a list or a table. \
             A colon and a semicolon end one, too.",
    check: |source| {
        if !is_prose(source) {
            return Vec::new();
        }
        let found = blocks(source).iter().flat_map(|block| long_sentences(block)).collect::<Vec<_>>();
        found.into_iter().map(|(line, words)| (line, format!("a sentence of {words} words"))).collect()
    },
    forged: || {
        let words = |count: usize| vec!["word"; count].join(" ");
        vec![
            ("src/a.rs", format!("//! {} //~\n//! {}.\nfn f() {{}}", words(13), words(13))),
            (
                "src/a.rs",
                format!("//! {}.\n//! {}: {}\n//\n// {}\n", words(20), words(5), words(25), words(2)),
            ),
            (
                "src/b.rs",
                format!("/// - {}\n/// - {} //~\n/// {}\n/// {}", words(24), words(20), words(2), words(9)),
            ),
            ("docs/a.md", format!("{} [a](b c d e f g h) {} //~\n{}", words(10), words(10), words(5))),
            ("docs/b.md", format!("{} [a](b c d e f g h) {}", words(12), words(12))),
            ("docs/c.md", format!("| {} | {} |", words(20), words(20))),
        ]
    },
};
