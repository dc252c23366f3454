//! Reader of TOML tables, value by value: it keeps every problem with its file and line instead of
//! stopping at the first.
//!
//! `ring`, `routes`, `region` and `credentials` name the keys and read their values. A key that no
//! reader asked for is unknown. This file must not know any key itself, and must never repeat a
//! value in a message. The reading functions do, if the value is no secret.

use std::cell::RefCell;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::nearest::nearest;
pub use super::problems::{At, Located, Problem, Problems};
use super::span;

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
        At {
            file: self.path.clone(),
            line: 1 + before.iter().filter(|byte| **byte == b'\n').count(),
            key: None,
        }
    }
}

/// One table being read. [`Section::finish`] reports keys that were not asked for.
pub struct Section<'a> {
    source: &'a Source,
    problems: &'a Problems,
    table: &'a DeTable<'a>,
    at: At,
    /// Name in messages: `[listen]`, `route "charges"`; empty at the top.
    name: String,
    asked: RefCell<Vec<&'static str>>,
    /// Keys that are no settings, and that have a message of their own.
    refused: RefCell<Vec<&'static str>>,
}

impl<'a> Section<'a> {
    /// The whole document.
    pub fn top(source: &'a Source, document: &'a Spanned<DeTable<'a>>, problems: &'a Problems) -> Self {
        let at = At { file: source.path.clone(), line: 1, key: None };
        Self {
            source,
            problems,
            table: document.get_ref(),
            at,
            name: String::new(),
            asked: RefCell::default(),
            refused: RefCell::default(),
        }
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

    /// Notes a file that a key names and that is about to be read, now or later.
    pub fn looks_at(&self, path: &Path) {
        self.problems.looks_at(path);
    }

    /// Reports that a thing that a key names is not on this machine, at its line.
    pub fn miss_at(&self, key: &'static str, text: impl fmt::Display) {
        self.problems.miss(&self.at_key(key), self.said(text));
    }

    /// Reports that everybody knows the value of a key, at its line.
    pub fn warn_at(&self, key: &'static str, text: impl fmt::Display) {
        self.problems.warn(&self.at_key(key), self.said(text));
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
    pub fn optional<T>(
        &self,
        key: &'static str,
        read: impl FnOnce(&DeValue<'_>) -> Result<T, String>,
    ) -> Option<T> {
        self.located(key, read).map(|located| located.value)
    }

    /// Like [`Section::optional`], with the place.
    pub fn located<T>(
        &self,
        key: &'static str,
        read: impl FnOnce(&DeValue<'_>) -> Result<T, String>,
    ) -> Option<Located<T>> {
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

    /// The key's value. If it is absent, `advice` says what to write.
    pub fn required<T>(
        &self,
        key: &'static str,
        advice: &str,
        read: impl FnOnce(&DeValue<'_>) -> Result<T, String>,
    ) -> Option<T> {
        self.required_located(key, advice, read).map(|located| located.value)
    }

    /// Like [`Section::required`], with the place.
    pub fn required_located<T>(
        &self,
        key: &'static str,
        advice: &str,
        read: impl FnOnce(&DeValue<'_>) -> Result<T, String>,
    ) -> Option<Located<T>> {
        if !self.has(key) {
            self.fail_at(key, format!("{key} is missing: {advice}"));
        }
        self.located(key, read)
    }

    /// The table under this key.
    pub fn table(&self, key: &'static str) -> Option<Section<'a>> {
        self.asked.borrow_mut().push(key);
        let value = self.table.get(key)?;
        match value.get_ref() {
            DeValue::Table(table) => Some(self.below(table, self.at_key(key), format!("[{key}]"))),
            other => {
                self.fail_at(key, format!("{key} must be a table, not {}", kind(other)));
                None
            }
        }
    }

    /// The tables of the array under this key: `[[key]]`.
    pub fn tables(&self, key: &'static str) -> Vec<Section<'a>> {
        self.asked.borrow_mut().push(key);
        let Some(value) = self.table.get(key) else { return Vec::new() };
        let DeValue::Array(items) = value.get_ref() else {
            self.fail_at(key, format!("{key} must be a list of tables: write [[{key}]]"));
            return Vec::new();
        };
        let mut sections = Vec::new();
        for item in items.iter() {
            let at = self.source.at(item.span().start).of(&self.at, key);
            match item.get_ref() {
                DeValue::Table(table) => sections.push(self.below(table, at, format!("[[{key}]]"))),
                other => self.problems.add(&at, format!("[[{key}]] must be a table, not {}", kind(other))),
            }
        }
        sections
    }

    /// All entries with any keys: for tables whose keys are names. Counts as asking for all of
    /// them.
    pub fn entries<T>(&self, read: impl Fn(&str, &DeValue<'_>) -> Result<T, String>) -> Vec<Located<T>> {
        let mut all = Vec::new();
        for (key, value) in self.table.iter() {
            let at = self.source.at(key.span().start).of(&self.at, key.get_ref());
            match read(key.get_ref(), value.get_ref()) {
                Ok(value) => all.push(Located { at, value }),
                Err(why) => self.problems.add(&at, self.said(format!("{}: {why}", key.get_ref()))),
            }
        }
        all
    }

    /// The tables below this one, whose keys are names. Counts as asking for all of them.
    pub fn named_tables(&self) -> Vec<(String, Section<'a>)> {
        let mut all = Vec::new();
        for (key, value) in self.table.iter() {
            let name: &str = key.get_ref();
            let at = self.source.at(key.span().start).of(&self.at, name);
            match value.get_ref() {
                DeValue::Table(table) => all.push((name.to_owned(), self.below(table, at, name.to_owned()))),
                other => {
                    self.problems.add(&at, self.said(format!("{name} must be a table, not {}", kind(other))))
                }
            }
        }
        all
    }

    /// All keys that are written.
    pub fn keys(&self) -> Vec<String> {
        self.table.keys().map(|key| key.get_ref().to_string()).collect()
    }

    /// Reports every key that no reader asked for, with the nearest known one.
    pub fn finish(self) {
        let asked = self.asked.borrow();
        for (key, _) in self.table.iter() {
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
            let at = self.source.at(key.span().start).of(&self.at, key_text);
            self.problems.add(&at, self.said(format!("unknown key {key_text:?}: {advice}")));
        }
    }

    fn below(&self, table: &'a DeTable<'a>, at: At, name: String) -> Section<'a> {
        let (source, problems) = (self.source, self.problems);
        Section { source, problems, table, at, name, asked: RefCell::default(), refused: RefCell::default() }
    }

    fn said(&self, text: impl fmt::Display) -> String {
        if self.name.is_empty() { text.to_string() } else { format!("{}: {text}", self.name) }
    }
}

/// A section that must exist.
pub(super) fn needed<'a>(top: &Section<'a>, name: &'static str, advice: &str) -> Option<Section<'a>> {
    if !top.has(name) {
        top.fail(format!("[{name}] is missing: {advice}"));
    }
    top.table(name)
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a decimal number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// Reads a text.
pub fn text(value: &DeValue<'_>) -> Result<String, String> {
    match value.as_str() {
        Some("") => Err("must not be empty".to_owned()),
        Some(text) => Ok(text.to_owned()),
        None => Err(format!("must be a text in quotes, not {}", kind(value))),
    }
}

/// Reads `true` or `false`.
pub fn flag(value: &DeValue<'_>) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| format!("must be true or false, not {}", kind(value)))
}

/// Reads a whole number from `least` to `most`. The message does not repeat the number: it may be
/// the seed.
pub fn number(value: &DeValue<'_>, least: u64, most: u64) -> Result<u64, String> {
    let range = match most {
        u64::MAX => format!("must be a whole number from {least} to 2^64 - 1"),
        most => format!("must be a whole number from {least} to {most}"),
    };
    let DeValue::Integer(integer) = value else { return Err(format!("{range}, not {}", kind(value))) };
    match u64::from_str_radix(integer.as_str(), integer.radix()) {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        Ok(_) | Err(_) => Err(range),
    }
}

/// Reads a number from 0 to `most` with at most two decimals, in hundredths.
pub fn hundredths(value: &DeValue<'_>, most: u32) -> Result<u32, String> {
    let range = format!("must be a number from 0 to {most} with at most two decimals, such as 2 or 2.5");
    let (whole, decimals) = match value {
        DeValue::Integer(_) => {
            let whole = number(value, 0, most.into()).map_err(|_| range)?;
            return Ok(whole as u32 * 100);
        }
        DeValue::Float(float) => float.as_str().split_once('.').ok_or(&range)?,
        other => return Err(format!("{range}, not {}", kind(other))),
    };
    let digits =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    let (Some(whole), Some(part)): (Option<u32>, Option<u32>) = (digits(whole), digits(decimals)) else {
        return Err(range);
    };
    let part = match decimals.len() {
        1 => part * 10,
        2 => part,
        _ => return Err(range),
    };
    match whole.checked_mul(100).and_then(|whole| whole.checked_add(part)) {
        Some(all) if all <= most * 100 => Ok(all),
        Some(_) | None => Err(range),
    }
}

/// Reads a span of time between two others.
pub fn time(value: &DeValue<'_>, least: Duration, most: Duration) -> Result<Duration, String> {
    between(value, "a span of time", (least, most), span::parse, span::show)
}

/// Reads a size in bytes between two others.
pub fn size(value: &DeValue<'_>, least: usize, most: usize) -> Result<usize, String> {
    between(value, "a size", (least, most), span::parse_size, span::show_size)
}

fn between<T: PartialOrd + Copy>(
    value: &DeValue<'_>,
    what: &str,
    (least, most): (T, T),
    parse: fn(&str) -> Result<T, String>,
    show: fn(T) -> String,
) -> Result<T, String> {
    let (lowest, highest) = (show(least), show(most));
    let Some(text) = value.as_str() else {
        let other = kind(value);
        return Err(format!("must be {what} in quotes, from {lowest:?} to {highest:?}, not {other}"));
    };
    let found = parse(text)?;
    if found < least || found > most {
        return Err(format!("{text:?} is out of range: use {lowest:?} to {highest:?}"));
    }
    Ok(found)
}

/// Reads a list. `item` reads each item.
pub fn list<T>(
    value: &DeValue<'_>,
    item: impl Fn(&DeValue<'_>) -> Result<T, String>,
) -> Result<Vec<T>, String> {
    let Some(items) = value.as_array() else { return Err(format!("must be a list, not {}", kind(value))) };
    items.iter().map(|one| item(one.get_ref())).collect()
}

/// Reads one of a few words, each with its meaning.
pub fn word<T: Copy>(value: &DeValue<'_>, words: &[(&str, T)]) -> Result<T, String> {
    let known: Vec<String> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
    let known = known.join(" or ");
    let Some(text) = value.as_str() else { return Err(format!("must be {known}, not {}", kind(value))) };
    let found = words.iter().find(|(word, _)| *word == text);
    found.map(|(_, meaning)| *meaning).ok_or_else(|| format!("must be {known}, not {text:?}"))
}
