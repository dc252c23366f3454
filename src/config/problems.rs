//! Problems of configuration files, and the surroundings in which files are read.
//!
//! Each problem is one line, at its file and line. `mod` decides which ones are errors.

use std::cell::RefCell;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::stamp::{Stamp, Watched};

/// Looks up an environment variable. Tests need not touch the process's own.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Surroundings of the files that are read: the things that they name are looked for here.
#[derive(Clone, Copy)]
pub(super) struct Surroundings<'a> {
    pub environment: Environment<'a>,
    pub need: Need,
}

/// Purpose for which the named things are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// A process that serves. Things that only `onceway store` needs are not looked for.
    Serve,
    /// A command that asks a running gateway or makes its store. Things that only a serving process
    /// needs are not looked for either.
    Command,
    /// A check for a machine that only serves: as [`Need::All`], without the things that only
    /// `onceway store` needs.
    Gateway,
    /// A check: everything is looked for, and every named file must exist.
    All,
}

impl Need {
    /// True if named things must exist here and be right.
    pub(super) fn checks(self) -> bool {
        matches!(self, Need::Gateway | Need::All)
    }
}

/// One problem: its place, the fault, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1; 0 for the file as a whole.
    pub line: usize,
    /// The key with its tables, such as `failover.lease`; `None` if it is of no single key.
    pub key: Option<Arc<str>>,
    /// The fault and what to do, in one line.
    pub text: String,
}

/// All errors of some files; at least one problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Errors(pub Vec<Problem>);

impl fmt::Display for Errors {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        out.write_str(&lines.join("\n"))
    }
}

/// Reads a value, which counts only without a problem, and notes the files that were looked at.
pub(super) fn judged<T>(read: impl FnOnce(&Problems) -> Option<T>) -> (Result<T, Errors>, Watched) {
    let problems = Problems::default();
    let value = read(&problems);
    let watched = problems.looked_at();
    match (value, problems.into_sorted()) {
        (Some(value), none) if none.is_empty() => (Ok(value), watched),
        (_, some) => (Err(Errors(some)), watched),
    }
}

/// Result of a check of a file.
#[derive(Debug)]
pub struct Checked<T> {
    /// Value of the file, if it has no errors.
    pub value: Option<T>,
    /// Errors of the file.
    pub wrong: Vec<Problem>,
    /// Secrets and files that are not on this machine, and values that everybody knows.
    pub missing: Vec<Problem>,
    /// Valid settings with an effect that their author may not expect.
    pub advice: Vec<Problem>,
}

/// Reads a value for a check, which tells the kinds of problems apart.
pub(super) fn checked<T>(read: impl FnOnce(&Problems) -> Option<T>) -> Checked<T> {
    let problems = Problems::default();
    let value = read(&problems);
    let Problems { wrong, missing, known, advice, looked_at: _ } = problems;
    let (wrong, missing) = (sorted(wrong.into_inner()), [missing.into_inner(), known.into_inner()].concat());
    let (value, advice) = (value.filter(|_| wrong.is_empty()), sorted(advice.into_inner()));
    Checked { value, wrong, missing: sorted(missing), advice }
}

impl Problem {
    fn at(at: &At, text: impl ToString) -> Self {
        let (file, key) = (at.file.to_path_buf(), at.key.clone());
        Self { file, line: at.line, key, text: one_line(&text.to_string()) }
    }

    /// Writes the problem as one line that begins with its place; `kind` says how bad it is.
    pub fn line(&self, kind: &str) -> String {
        match self.line {
            0 => format!("{}: {kind}{}", self.file.display(), self.text),
            line => format!("{}:{line}: {kind}{}", self.file.display(), self.text),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.line(""))
    }
}

/// The text with its control characters escaped: the path of a file may hold any.
fn one_line(text: &str) -> String {
    let shown = |char: char| {
        if char.is_control() { char.escape_default().to_string() } else { char.to_string() }
    };
    text.chars().map(shown).collect()
}

/// The problems found so far.
#[derive(Debug, Default)]
pub struct Problems {
    wrong: RefCell<Vec<Problem>>,
    missing: RefCell<Vec<Problem>>,
    known: RefCell<Vec<Problem>>,
    advice: RefCell<Vec<Problem>>,
    looked_at: RefCell<Vec<(PathBuf, Stamp)>>,
}

impl Problems {
    /// Adds an error.
    pub fn add(&self, at: &At, text: impl ToString) {
        self.wrong.borrow_mut().push(Problem::at(at, text));
    }

    /// Adds a named thing that this machine does not have. Code that needs it must refuse to go on.
    pub fn miss(&self, at: &At, text: impl ToString) {
        self.missing.borrow_mut().push(Problem::at(at, text));
    }

    /// Adds a value that everybody knows. Only [`checked`] reports it.
    pub fn warn(&self, at: &At, text: impl ToString) {
        self.known.borrow_mut().push(Problem::at(at, text));
    }

    /// Adds advice about a value that may be meant. Only [`checked`] reports it.
    pub fn advise(&self, at: &At, text: impl ToString) {
        self.advice.borrow_mut().push(Problem::at(at, text));
    }

    /// Notes a file that is about to be read, so that it is watched even if reading fails.
    pub fn looks_at(&self, path: &Path) {
        self.looked_at.borrow_mut().push((path.to_owned(), Stamp::of(path)));
    }

    /// The files that were looked at, with their state then.
    pub fn looked_at(&self) -> Watched {
        Watched::of(self.looked_at.borrow().clone())
    }

    /// Number of errors and missing things.
    pub fn count(&self) -> usize {
        self.wrong.borrow().len() + self.missing.borrow().len()
    }

    /// All of them, by file in the order of first mention, then by line.
    pub fn into_sorted(self) -> Vec<Problem> {
        sorted([self.wrong.into_inner(), self.missing.into_inner()].concat())
    }
}

fn sorted(mut all: Vec<Problem>) -> Vec<Problem> {
    let mut files: Vec<PathBuf> = Vec::new();
    for problem in &all {
        if !files.contains(&problem.file) {
            files.push(problem.file.clone());
        }
    }
    all.sort_by_key(|problem| (files.iter().position(|file| *file == problem.file), problem.line));
    all
}

/// A place in a file.
#[derive(Clone, Debug)]
pub struct At {
    /// The file.
    pub file: Arc<Path>,
    /// The line, from 1; 0 for the file as a whole.
    pub line: usize,
    /// The key with its tables; `None` if it is no single key.
    pub key: Option<Arc<str>>,
}

impl At {
    /// The file as a whole.
    pub fn file(path: &Path) -> Self {
        Self { file: path.into(), line: 0, key: None }
    }

    /// The same place, of the key `key` in this table.
    pub(super) fn of(self, table: &Self, key: &str) -> Self {
        let key = match &table.key {
            Some(table) => format!("{table}.{key}"),
            None => key.to_owned(),
        };
        Self { key: Some(one_line(&key).into()), ..self }
    }
}

/// A value and its place.
#[derive(Clone, Debug)]
pub struct Located<T> {
    /// Place.
    pub at: At,
    /// Value.
    pub value: T,
}

/// The known word nearest to `word`, if so few edits make it that it may be a slip.
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let scored = known.iter().map(|candidate| (edits(word, candidate), *candidate));
    let (edits, candidate) = scored.min()?;
    // A third of the letters: "recovry" is a slip, "foo" is another word.
    (edits <= (word.len().max(candidate.len()) / 3).max(1)).then_some(candidate)
}

/// Number of letters to change. `-` and `_` are one letter, and case is ignored.
fn edits(left: &str, right: &str) -> usize {
    let letters = |text: &str| text.replace('-', "_").to_ascii_lowercase();
    strsim::osa_distance(&letters(left), &letters(right))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_found_and_other_words_are_not() {
        let known = ["recovery", "retention", "hold", "wait", "max_attempts"];
        for (word, found) in [
            ("recovry", Some("recovery")),
            ("max-attempts", Some("max_attempts")),
            ("Hold", Some("hold")),
            ("retension", Some("retention")),
            ("watt", Some("wait")),
            ("hlod", Some("hold")),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, &known), found, "{word}");
        }
    }
}
