//! The reference files in `config/` as one source for people: purpose and default of each key.
//!
//! The valid values of a key come from the readers that gateways use. `cli::check` shows it.

use std::path::Path;

use super::problems::{Need, Surroundings, nearest};
use super::reader::{Problem, Problems, Source};
use super::{admin, credentials, region, ring, routes, witness};

/// The reference files: name, text.
pub const FILES: [(&str, &str); 6] = [
    ("ring.toml", include_str!("../../config/ring.toml")),
    ("routes.toml", include_str!("../../config/routes.toml")),
    ("us-east.toml", include_str!("../../config/us-east.toml")),
    ("credentials.toml", include_str!("../../config/credentials.toml")),
    ("operators.toml", include_str!("../../config/operators.toml")),
    ("witness.toml", include_str!("../../config/witness.toml")),
];

/// Tables whose keys are names of regions.
const BY_REGION: [&str; 3] = ["peer.addresses", "upstream.elsewhere", "provision.publishers"];

/// One key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Reference file of the key.
    pub file: &'static str,
    /// The key with its tables, such as `failover.lease`. A name in it is `REGION` or `NAME`.
    pub path: String,
    /// Value in the file, as written.
    pub value: String,
    /// Behaviour without the key.
    pub default: Default,
    /// Purpose and bounds of the key.
    pub why: String,
    /// Line of the key in the file, from 0.
    pub line: usize,
    /// Line of its table, from 0, if that is commented out.
    pub table_line: Option<usize>,
    /// True if the line is commented out.
    pub commented: bool,
}

/// Behaviour without a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Default {
    /// The value in the file applies.
    Value,
    /// The file says it in words.
    Words(String),
    /// None: the key must be written, or has no effect.
    None,
    /// The file does not say it, which a test refuses.
    Unsaid,
}

impl Entry {
    /// The behaviour without the key, as written or in words, if there is a default.
    pub fn shown_default(&self) -> Option<&str> {
        match &self.default {
            Default::Value => Some(&self.value),
            Default::Words(words) => Some(words),
            Default::None | Default::Unsaid => None,
        }
    }

    /// The key without its tables.
    pub fn key(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or(&self.path)
    }
}

/// Every key of every reference file, in order, each at its first place.
pub fn entries() -> Vec<Entry> {
    FILES.iter().flat_map(|(file, text)| read(file, text)).collect()
}

/// Finds the keys that a user means: the whole path, its end, or a table with all its keys. The
/// error is the nearest path or key, if one is near.
pub fn find(wanted: &str) -> Result<Vec<Entry>, Option<String>> {
    let all = entries();
    let (end, table) = (format!(".{wanted}"), format!("{wanted}."));
    let is_meant =
        |entry: &&Entry| entry.path == wanted || entry.path.ends_with(&end) || entry.path.starts_with(&table);
    let found: Vec<Entry> = all.iter().filter(is_meant).cloned().collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let whole: Vec<&str> = all.iter().map(|entry| entry.path.as_str()).collect();
    let keys: Vec<&str> = all.iter().map(Entry::key).collect();
    let near = nearest(wanted, &whole).or_else(|| nearest(wanted, &keys));
    Err(near.map(str::to_owned))
}

/// A line of a reference file that assigns a value; it may be commented out.
struct Assignment<'a> {
    key: &'a str,
    value: &'a str,
    trailing: &'a str,
    commented: bool,
}

/// Reads one file.
pub fn read(file: &'static str, text: &str) -> Vec<Entry> {
    let (mut entries, mut table, mut table_line) = (Vec::<Entry>::new(), String::new(), None);
    let mut of_table = String::new();
    let mut block: Vec<&str> = Vec::new();
    for (line, written) in text.lines().enumerate() {
        if let Some((name, commented)) = header(written) {
            (table, table_line) = (name, commented.then_some(line));
            of_table = std::mem::take(&mut block).join(" ");
            continue;
        }
        if let Some(Assignment { key, value, trailing, commented }) = assignment(written) {
            let by_region = BY_REGION.contains(&table.as_str());
            let key = if by_region { "REGION" } else { key };
            let path = if table.is_empty() { key.to_owned() } else { format!("{table}.{key}") };
            let own = block.join(" ");
            let default = match (by_region, default(trailing, &format!("{own} {trailing}"))) {
                (true, _) => Default::None,
                // The statement of a table about all its keys.
                (false, Default::Unsaid) if of_table.contains("No defaults.") => Default::None,
                (false, said) => said,
            };
            // The table has the purpose if keys are names of regions, or if it has a single key.
            let why = match (by_region, own.is_empty()) {
                (true, _) => format!("{of_table} {own}").trim().to_owned(),
                (false, true) => of_table.clone(),
                (false, false) => own,
            };
            block.clear();
            if entries.iter().all(|entry| entry.path != path) {
                let value = value.to_owned();
                entries.push(Entry { file, path, value, default, why, line, table_line, commented });
            }
            continue;
        }
        match written.strip_prefix('#') {
            Some(comment) => block.push(comment.trim()),
            None => {
                block.clear();
                // A commented table ends with its lines.
                if table_line.is_some() {
                    (table, table_line) = (String::new(), None);
                }
            }
        }
    }
    entries
}

/// The table that a line begins, and whether it is commented out.
fn header(line: &str) -> Option<(String, bool)> {
    let bare = bare(line);
    let inner = bare.strip_prefix("[[").and_then(|rest| rest.split_once("]]"));
    let (name, rest) = inner.or_else(|| bare.strip_prefix('[').and_then(|rest| rest.split_once(']')))?;
    let is_name =
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || b"._".contains(&byte));
    (is_name && (rest.is_empty() || rest.trim_start().starts_with('#')))
        .then(|| (name.replace("upstreams.stripe", "upstreams.NAME"), bare != line))
}

fn assignment(line: &str) -> Option<Assignment<'_>> {
    let bare = bare(line);
    let (key, rest) = bare.split_once(" = ")?;
    let is_key = key.starts_with(|c: char| c.is_ascii_lowercase())
        && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    // Prose is not TOML.
    if !is_key || bare.parse::<toml::Table>().is_err() {
        return None;
    }
    let (value, trailing) = match comment_at(rest) {
        Some(at) => (rest[..at].trim_end(), rest[at + 1..].trim()),
        None => (rest.trim_end(), ""),
    };
    Some(Assignment { key, value, trailing, commented: bare != line })
}

/// Position at which the comment of a value begins.
fn comment_at(rest: &str) -> Option<usize> {
    let mut quoted = false;
    rest.char_indices().find_map(|(at, char)| {
        quoted ^= char == '"';
        (char == '#' && !quoted).then_some(at)
    })
}

/// Reads the default from the comments. Behind a value nothing else may stand.
fn default(trailing: &str, why: &str) -> Default {
    if let Some(rest) = trailing.strip_prefix("default")
        && !rest.starts_with(':')
    {
        return Default::Value;
    }
    let lower = why.to_ascii_lowercase();
    if lower.contains("no default") {
        return Default::None;
    }
    let Some(at) = lower.find("default: ").map(|at| at + "default: ".len()) else { return Default::Unsaid };
    let words = &why[at..];
    let end = words.find(['.', ';', ',']).unwrap_or(words.len());
    Default::Words(words[..end].trim().to_owned())
}

/// Valid values of a key, as its reader refuses a table there; `None` if it takes one.
pub fn must_be(entry: &Entry) -> Option<String> {
    let (_, text) = FILES.iter().find(|(file, _)| *file == entry.file)?;
    let said = problems(entry.file, &with(text, entry, "{}"));
    let marks = [format!("{}: must be ", entry.key()), ": must be ".to_owned()];
    let of_line = said.iter().filter(|problem| problem.line == entry.line + 1);
    of_line
        .flat_map(|problem| marks.iter().map(move |mark| problem.text.split_once(mark.as_str())))
        .flatten()
        .next()
        .map(|(_, words)| words.replace(", not a table", ""))
}

/// True if the reader reports the key's absence when all others are written.
pub fn is_required(entry: &Entry) -> bool {
    let Some((_, text)) = FILES.iter().find(|(file, _)| *file == entry.file) else { return false };
    // A false default would be found by the test that leaves its key out.
    if entry.shown_default().is_some() {
        return false;
    }
    let missed = format!("{} is missing: ", entry.key());
    let said = problems(entry.file, &without(text, entry));
    said.iter()
        .any(|problem| problem.text.starts_with(&missed) || problem.text.contains(&format!(": {missed}")))
}

/// The file without a key. If its table is commented out, all other keys of the table are written.
fn without(text: &str, entry: &Entry) -> String {
    let from = entry.table_line.unwrap_or(usize::MAX);
    let end = text.lines().enumerate().skip(from).find(|(_, line)| !line.starts_with('#'));
    let table = from..end.map_or(usize::MAX, |(number, _)| number);
    by_line(text, |number, line| match number {
        _ if number == entry.line => String::new(),
        _ if table.contains(&number) && (header(line).is_some() || assignment(line).is_some()) => {
            bare(line).to_owned()
        }
        _ => line.to_owned(),
    })
}

/// The file with another value at a key, which is no longer commented out.
pub fn with(text: &str, entry: &Entry, value: &str) -> String {
    by_line(text, |number, line| match number {
        _ if number == entry.line => {
            let key = bare(line).split(" = ").next().unwrap_or_default();
            format!("{key} = {value}")
        }
        _ if Some(number) == entry.table_line => bare(line).to_owned(),
        _ => line.to_owned(),
    })
}

/// The text with each line changed, by its number from 0.
fn by_line(text: &str, change: impl Fn(usize, &str) -> String) -> String {
    text.lines().enumerate().map(|(number, line)| change(number, line) + "\n").collect()
}

/// The line without the mark of a comment.
fn bare(line: &str) -> &str {
    line.strip_prefix("# ").unwrap_or(line)
}

/// Problems that the reader of a file finds in a text.
pub fn problems(file: &str, text: &str) -> Vec<Problem> {
    let (source, problems) = (Source::of(Path::new(file), text.to_owned()), Problems::default());
    let surroundings = Surroundings { environment: &|_| None, need: Need::Command };
    match file {
        "ring.toml" => drop(ring::read(&source, &problems)),
        "routes.toml" => drop(routes::read(&source, &problems)),
        "credentials.toml" => drop(credentials::read(&source, false, &problems)),
        "operators.toml" => drop(admin::named(&source, &problems)),
        "witness.toml" => drop(witness::read(&source, surroundings, &problems)),
        _ => drop(region::read(&source, surroundings, &problems)),
    }
    problems.into_sorted()
}
