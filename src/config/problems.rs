//! What is wrong with configuration files, each at its file and line; and what they name that this machine does not have.
//!
//! Neighbours: `reader` and the rooms that read files add problems, `mod` decides which of them are errors. It must not read a file, and
//! shows every problem in one line.

use std::cell::RefCell;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::stamp::{Stamp, Watched};

/// One thing that is wrong: where, what, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Which file.
    pub file: PathBuf,
    /// Which line, from 1; 0 if the file as a whole is meant.
    pub line: usize,
    /// Which key with its tables, such as `failover.lease`; `None` if it is of no single key.
    pub key: Option<Arc<str>>,
    /// What is wrong and what to do, in one line.
    pub text: String,
}

impl Problem {
    fn at(at: &At, text: impl Into<String>) -> Self {
        let (file, key) = (at.file.to_path_buf(), at.key.clone());
        Self { file, line: at.line, key, text: one_line(&text.into()) }
    }

    /// The problem as one line that begins with its place; `kind` says how bad it is.
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

/// The text with its control characters written out: a value that is repeated, such as the path of a file, may hold any.
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

/// All that was found, in order.
#[derive(Debug, Default)]
pub struct Found {
    /// What is wrong with the files.
    pub wrong: Vec<Problem>,
    /// What they name and this machine does not have: on another one they may be right. And what is right, and should not stay.
    pub missing: Vec<Problem>,
    /// What is right, and means more than its writer may know.
    pub advice: Vec<Problem>,
}

impl Problems {
    /// Adds one.
    pub fn add(&self, at: &At, text: impl Into<String>) {
        self.wrong.borrow_mut().push(Problem::at(at, text));
    }

    /// Adds something that a file names and this machine does not have. Whoever needs it must refuse to go on.
    pub fn miss(&self, at: &At, text: impl Into<String>) {
        self.missing.borrow_mut().push(Problem::at(at, text));
    }

    /// Adds a value that everybody knows. It serves all the same; only [`Problems::into_found`] tells of it.
    pub fn warn(&self, at: &At, text: impl Into<String>) {
        self.known.borrow_mut().push(Problem::at(at, text));
    }

    /// Adds advice about a value that may be meant. Nobody refuses it; only [`Problems::into_found`]
    /// tells of it.
    pub fn advise(&self, at: &At, text: impl Into<String>) {
        self.advice.borrow_mut().push(Problem::at(at, text));
    }

    /// A file is about to be read: whoever watches has to know, whatever comes of it.
    pub fn looks_at(&self, path: &Path) {
        self.looked_at.borrow_mut().push((path.to_owned(), Stamp::of(path)));
    }

    /// The files that were looked at, as they were then.
    pub fn looked_at(&self) -> Watched {
        Watched::of(self.looked_at.borrow().clone())
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.wrong.borrow().len() + self.missing.borrow().len()
    }

    /// All of them, by file in the order of first mention, then by line.
    pub fn into_sorted(self) -> Vec<Problem> {
        let (mut all, missing) = (self.wrong.into_inner(), self.missing.into_inner());
        all.extend(missing);
        sorted(all)
    }

    /// The same, with what is missing apart.
    pub fn into_found(self) -> Found {
        let mut missing = self.missing.into_inner();
        missing.extend(self.known.into_inner());
        Found {
            wrong: sorted(self.wrong.into_inner()),
            missing: sorted(missing),
            advice: sorted(self.advice.into_inner()),
        }
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
    /// Which file.
    pub file: Arc<Path>,
    /// Which line, from 1; 0 if the file as a whole is meant.
    pub line: usize,
    /// Which key with its tables; `None` if no single one is meant.
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

/// A value and where it was written.
#[derive(Clone, Debug)]
pub struct Located<T> {
    /// Where.
    pub at: At,
    /// What.
    pub value: T,
}
