//! Reader of TOML tables, value by value: it keeps every problem with its file and line.
//!
//! The other files name the keys. A key that no reader asked for is unknown. A section repeats no
//! value in a message; the functions of `plain` do, if the value is no secret.

use std::cell::RefCell;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::plain::kind;
pub use super::plain::{Reads, flag, hundredths, list, number, size, some, text, time, word};
pub use super::problems::{At, Located, Problem, Problems};
use super::problems::{Need, Surroundings, Weight, nearest};

/// A file's text.
#[derive(Debug)]
pub struct Source {
    path: Arc<Path>,
    text: String,
}

impl Source {
    /// Reads the file. If it cannot be read, that is a problem of `wanted_by`. Blocks.
    pub fn read(path: &Path, wanted_by: &At, problems: &Problems) -> Option<Self> {
        problems.looks_at(path);
        match std::fs::read_to_string(path) {
            Ok(text) => Some(Self { path: path.into(), text }),
            Err(error) => {
                problems.add(wanted_by, format!("cannot read {}: {error}", path.display()));
                None
            }
        }
    }

    /// Reads the file by `read`. Blocks.
    pub(super) fn read_by<T>(
        file: &Located<PathBuf>,
        problems: &Problems,
        read: impl FnOnce(&Self, &Problems) -> Option<T>,
    ) -> Option<T> {
        read(&Self::read(&file.value, &file.at, problems)?, problems)
    }

    /// Takes a text that was read already, or was made from one. Its problems name that file.
    pub fn of(path: &Path, text: String) -> Self {
        Self { path: path.into(), text }
    }

    /// The file that problems name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Parses the text. Text that is not TOML is reported, and nothing of it is read.
    pub fn parse<'a>(&'a self, problems: &Problems) -> Option<Spanned<DeTable<'a>>> {
        let (document, errors) = DeTable::parse_recoverable(&self.text);
        for error in &errors {
            let at = self.at(error.span().map_or(0, |span| span.start));
            problems.add(&at, format!("not TOML: {}", error.message()));
        }
        errors.is_empty().then_some(document)
    }

    fn at(&self, offset: usize) -> At {
        let before = &self.text.as_bytes()[..offset.min(self.text.len())];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        At { file: self.path.clone(), line, key: None }
    }
}

/// Reads a file that a user named.
pub(super) fn named<T>(
    path: &Path,
    read: impl FnOnce(&Source, &Problems) -> Option<T>,
) -> impl FnOnce(&Problems) -> Option<T> {
    move |problems| read(&Source::read(path, &At::file(path), problems)?, problems)
}

/// The surroundings of files that name nothing outside of themselves.
const NOTHING: Surroundings<'static> = Surroundings { environment: &|_| None, need: Need::Serve };

/// One table being read. Its end reports keys that were not asked for.
pub struct Section<'a> {
    source: &'a Source,
    pub(super) problems: &'a Problems,
    pub(super) surroundings: Surroundings<'a>,
    table: &'a DeTable<'a>,
    at: At,
    /// Name in messages: `[listen]`, route `"charges"`; empty at the top.
    name: String,
    asked: RefCell<Vec<&'static str>>,
    /// Keys that are no settings, and that have a message of their own.
    refused: RefCell<Vec<&'static str>>,
}

impl<'a> Section<'a> {
    /// The whole document.
    pub fn top(source: &'a Source, document: &'a Spanned<DeTable<'a>>, problems: &'a Problems) -> Self {
        Self {
            source,
            problems,
            surroundings: NOTHING,
            table: document.get_ref(),
            at: At { file: source.path.clone(), line: 1, key: None },
            name: String::new(),
            asked: RefCell::default(),
            refused: RefCell::default(),
        }
    }

    /// The same, where the named things are looked for in these surroundings.
    pub(super) fn within(mut self, surroundings: Surroundings<'a>) -> Self {
        self.surroundings = surroundings;
        self
    }

    /// The table under a key of this one.
    fn below(&self, table: &'a DeTable<'a>, at: At, name: String) -> Section<'a> {
        let (asked, refused) = (RefCell::default(), RefCell::default());
        Section { table, at, name, asked, refused, ..*self }
    }

    /// Gives the section its own name for messages, once it is known.
    pub fn rename(&mut self, name: String) {
        self.name = name;
    }

    /// Place where the section begins.
    pub fn at(&self) -> &At {
        &self.at
    }

    /// The section's name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reports a problem of the section as a whole.
    pub fn fail(&self, text: impl fmt::Display) {
        self.problems.add(&self.at, self.said(text));
    }

    /// Reports a problem of one key, at its line if it is written.
    pub fn fail_at(&self, key: &'static str, text: impl fmt::Display) {
        self.problems.add(&self.at_key(key), self.said(text));
    }

    /// Like [`Section::fail_at`], for what may be no error.
    pub(super) fn note_at(&self, weight: Weight, key: &'static str, text: impl fmt::Display) {
        self.problems.note(weight, &self.at_key(key), self.said(text));
    }

    /// Reports this key if it is written: it is no setting, and `text` says what to write.
    pub fn refuse(&self, key: &'static str, text: impl fmt::Display) {
        self.refused.borrow_mut().push(key);
        if self.stands(key) {
            self.fail_at(key, text);
        }
    }

    /// Place of the key; the section's place, with the key's name, if it is not written.
    pub fn at_key(&self, key: &'static str) -> At {
        let found = self.table.get_key_value(key);
        let at = found.map_or_else(|| self.at.clone(), |(key, _)| self.source.at(key.span().start));
        at.of(&self.at, key)
    }

    /// Place of an entry of the table.
    fn at_entry(&self, span: Range<usize>, key: &str) -> At {
        self.source.at(span.start).of(&self.at, key)
    }

    /// True if the key is written, with any value. Does not count as asking for it.
    pub fn stands(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// True if the key is written. Counts as asking for it.
    pub fn has(&self, key: &'static str) -> bool {
        self.asked.borrow_mut().push(key);
        self.table.contains_key(key)
    }

    /// True if the key is written with a text: for tables that have a short form.
    pub fn is_text(&self, key: &'static str) -> bool {
        self.has(key) && matches!(self.table.get(key).map(Spanned::get_ref), Some(DeValue::String(_)))
    }

    /// The key's value, if it is written and valid. A value that `read` refuses is reported.
    pub fn optional<T>(&self, key: &'static str, read: impl Reads<T>) -> Option<T> {
        self.located(key, read).map(|located| located.value)
    }

    /// Like [`Section::optional`], with the place.
    pub fn located<T>(&self, key: &'static str, read: impl Reads<T>) -> Option<Located<T>> {
        self.asked.borrow_mut().push(key);
        let value = self.table.get(key)?;
        match read(value.get_ref()) {
            Ok(value) => Some(Located { at: self.at_key(key), value }),
            Err(why) => {
                self.fail_at(key, format!("{key}: {why}"));
                None
            }
        }
    }

    /// The span of time here, from `least` milliseconds to `most` seconds; else `usual`.
    pub(super) fn span(&self, key: &'static str, least: u64, most: u64, usual: Duration) -> Duration {
        let (least, most) = (Duration::from_millis(least), Duration::from_secs(most));
        self.optional(key, |value| time(value, least, most)).unwrap_or(usual)
    }

    /// True if the key is written as true; false if it is absent or wrong.
    pub(super) fn flag(&self, key: &'static str) -> bool {
        self.optional(key, flag).unwrap_or(false)
    }

    /// The key's value. If it is absent, `advice` says what to write.
    pub fn required<T>(&self, key: &'static str, advice: &str, read: impl Reads<T>) -> Option<T> {
        self.required_located(key, advice, read).map(|located| located.value)
    }

    /// Like [`Section::required`], with the place.
    pub fn required_located<T>(
        &self,
        key: &'static str,
        advice: &str,
        read: impl Reads<T>,
    ) -> Option<Located<T>> {
        if !self.has(key) {
            self.fail_at(key, format!("{key} is missing: {advice}"));
        }
        self.located(key, read)
    }

    /// A path, relative to the file that names it.
    pub(super) fn path(&self, value: &DeValue<'_>) -> Result<PathBuf, String> {
        text(value).map(|text| self.source.path.parent().unwrap_or(Path::new("")).join(text))
    }

    /// A path under this key of a file that other code reads later. In a check it must exist.
    pub(super) fn later(&self, key: &'static str) -> Option<PathBuf> {
        let path = self.optional(key, |value| self.path(value))?;
        self.reads_later(key, &path);
        Some(path)
    }

    /// Like [`Section::later`], for a key that must be written: `advice` says what to write.
    pub(super) fn required_later(&self, key: &'static str, advice: &str) -> Option<PathBuf> {
        let path = self.required(key, advice, |value| self.path(value))?;
        self.reads_later(key, &path);
        Some(path)
    }

    /// Notes a file of this key that other code reads later. In a check it must exist.
    pub(super) fn reads_later(&self, key: &'static str, path: &Path) {
        self.problems.looks_at(path);
        if self.surroundings.need.checks()
            && let Err(error) = std::fs::read(path)
        {
            self.note_at(Weight::Missing, key, format!("{key}: cannot read {}: {error}", path.display()));
        }
    }

    /// The table under this key, which messages call `[listen]` or `[listen.tls]`.
    pub fn table(&self, key: &'static str) -> Option<Section<'a>> {
        self.asked.borrow_mut().push(key);
        match table(self.table.get(key)?.get_ref(), key) {
            Ok(table) => Some(self.below(table, self.at_key(key), self.name_below(key))),
            Err(why) => {
                self.fail_at(key, why);
                None
            }
        }
    }

    fn name_below(&self, key: &str) -> String {
        self.name.strip_suffix(']').map_or_else(|| format!("[{key}]"), |name| format!("{name}.{key}]"))
    }

    /// The result of `read` for a table that may be absent. `None` if it is there and wrong.
    pub(super) fn if_there<T>(
        &self,
        key: &'static str,
        read: impl FnOnce(Section<'a>) -> Option<T>,
    ) -> Option<Option<T>> {
        if !self.has(key) {
            return Some(None);
        }
        self.table(key).and_then(read).map(Some)
    }

    /// A table that must exist. If it is absent, `advice` says what to write.
    pub(super) fn needed(&self, key: &'static str, advice: &str) -> Option<Section<'a>> {
        if !self.has(key) {
            self.fail(format!("[{key}] is missing: {advice}"));
        }
        self.table(key)
    }

    /// The tables of the array under this key: `[[key]]`.
    pub fn tables(&self, key: &'static str) -> Vec<Section<'a>> {
        self.asked.borrow_mut().push(key);
        let Some(value) = self.table.get(key) else { return Vec::new() };
        let DeValue::Array(items) = value.get_ref() else {
            self.fail_at(key, format!("{key} must be a list of tables: write [[{key}]]"));
            return Vec::new();
        };
        let section = |item: &'a Spanned<DeValue<'a>>| {
            let (at, name) = (self.at_entry(item.span(), key), format!("[[{key}]]"));
            let table = table(item.get_ref(), &name).map_err(|why| self.problems.add(&at, why)).ok()?;
            Some(self.below(table, at, name))
        };
        items.iter().filter_map(section).collect()
    }

    /// All entries with any keys: the key and its place, and the value unless `read` refuses it.
    pub(super) fn entries<T>(
        &self,
        read: impl Fn(&str, &DeValue<'_>) -> Result<T, String>,
    ) -> Vec<(String, At, Option<T>)> {
        let entry = |(name, at, value): (&str, At, &DeValue<'_>)| {
            let read = read(name, value);
            let value = read.map_err(|why| self.problems.add(&at, self.said(format!("{name}: {why}"))));
            (name.to_owned(), at, value.ok())
        };
        self.named().map(entry).collect()
    }

    /// Name, place and value of each entry, for tables whose keys are names.
    fn named(&self) -> impl Iterator<Item = (&'a str, At, &'a DeValue<'a>)> {
        self.table.iter().map(|(key, value)| {
            let name: &str = key.get_ref();
            (name, self.at_entry(key.span(), name), value.get_ref())
        })
    }

    /// The tables below this one, whose keys are names.
    pub(super) fn named_tables(&self) -> Vec<(&'a str, Section<'a>)> {
        let section = |(name, at, value): (&'a str, At, &'a DeValue<'a>)| {
            let table = table(value, name).map_err(|why| self.problems.add(&at, self.said(why))).ok()?;
            Some((name, self.below(table, at, self.name_below(name))))
        };
        self.named().filter_map(section).collect()
    }

    /// Ends the reading, where problems of another file or their sum come next.
    pub fn finish(self) {
        drop(self);
    }

    fn said(&self, text: impl fmt::Display) -> String {
        if self.name.is_empty() { text.to_string() } else { format!("{}: {text}", self.name) }
    }
}

impl Drop for Section<'_> {
    /// Reports every key that no reader asked for, with the nearest known one. Keys of a table of
    /// which nothing was asked are names, or were not read.
    fn drop(&mut self) {
        let asked = self.asked.borrow();
        for (key, _) in self.table.iter().filter(|_| !asked.is_empty()) {
            let key_text: &str = key.get_ref();
            if asked.contains(&key_text) || self.refused.borrow().contains(&key_text) {
                continue;
            }
            let advice = match nearest(key_text, &asked) {
                Some(near) => format!("did you mean {near:?}?"),
                None => {
                    let mut known = asked.clone();
                    known.sort_unstable();
                    known.dedup();
                    format!("known here are {}", known.join(", "))
                }
            };
            let at = self.at_entry(key.span(), key_text);
            self.problems.add(&at, self.said(format!("unknown key {key_text:?}: {advice}")));
        }
    }
}

/// The table that a value is; `name` stands for the value in the message.
fn table<'a>(value: &'a DeValue<'a>, name: &str) -> Result<&'a DeTable<'a>, String> {
    match value {
        DeValue::Table(table) => Ok(table),
        other => Err(format!("{name} must be a table, not {}", kind(other))),
    }
}
