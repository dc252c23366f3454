//! Problems of configuration files, and the surroundings in which files are read. Stamps tell a
//! changed file from the one that was read.
//!
//! Each problem is one line, at its file and line. `mod` decides which ones are errors.

use std::cell::RefCell;
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
    let watched = Watched(problems.looked_at.borrow().clone());
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
    let [wrong, missing, advice] =
        [&[Weight::Wrong][..], &[Weight::Missing, Weight::Known], &[Weight::Advice]]
            .map(|of| problems.sorted(of));
    Checked { value: value.filter(|_| wrong.is_empty()), wrong, missing, advice }
}

impl Problem {
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
    all: RefCell<Vec<(Weight, Problem)>>,
    looked_at: RefCell<Vec<(PathBuf, Stamp)>>,
}

/// Only [`checked`] reports what is known, and advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weight {
    Wrong,
    /// A named thing that this machine does not have. Code that needs it must refuse to go on.
    Missing,
    /// A value that everybody knows.
    Known,
    /// Advice about a value that may be meant.
    Advice,
}

impl Problems {
    /// Adds an error.
    pub fn add(&self, at: &At, text: impl ToString) {
        self.note(Weight::Wrong, at, text);
    }

    pub(super) fn note(&self, weight: Weight, at: &At, text: impl ToString) {
        let (file, line, key) = (at.file.to_path_buf(), at.line, at.key.clone());
        let problem = Problem { file, line, key, text: one_line(&text.to_string()) };
        self.all.borrow_mut().push((weight, problem));
    }

    /// Notes a file that is about to be read, so that it is watched even if reading fails.
    pub(super) fn looks_at(&self, path: &Path) {
        self.looked_at.borrow_mut().push((path.to_owned(), Stamp::of(path)));
    }

    /// All errors and missing things, by file in the order of first mention, then by line.
    pub fn into_sorted(self) -> Vec<Problem> {
        self.sorted(&[Weight::Wrong, Weight::Missing])
    }

    pub(super) fn sorted(&self, weights: &[Weight]) -> Vec<Problem> {
        let all = self.all.borrow();
        let pairs = weights.iter().flat_map(|weight| all.iter().filter(move |(one, _)| one == weight));
        let mut found: Vec<Problem> = pairs.map(|(_, problem)| problem.clone()).collect();
        let files: Vec<PathBuf> = found.iter().map(|problem| problem.file.clone()).collect();
        found.sort_by_key(|problem| (files.iter().position(|file| *file == problem.file), problem.line));
        found
    }
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

/// A file's device, inode, size, time of writing and time of change. `None` if it was not there, or
/// could not be seen.
///
/// Tools that copy may keep the time of writing, and one digest is as long as another. But no tool
/// sets the time of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp(Option<([u64; 3], [i64; 4])>);

impl Stamp {
    /// The file's stamp, through links. Take it before the file is read. Blocks.
    fn of(path: &Path) -> Self {
        let facts = |file: std::fs::Metadata| {
            let times = [file.mtime(), file.mtime_nsec(), file.ctime(), file.ctime_nsec()];
            ([file.dev(), file.ino(), file.size()], times)
        };
        Self(std::fs::metadata(path).ok().map(facts))
    }
}

/// Files, with their stamps at the last look.
#[derive(Clone, Debug, Default)]
pub struct Watched(Vec<(PathBuf, Stamp)>);

impl Watched {
    /// True if any of the files has changed since the look. Blocks.
    pub fn has_changed(&self) -> bool {
        self.0.iter().any(|(path, stamp)| Stamp::of(path) != *stamp)
    }

    /// The same files as they are now. Blocks.
    pub fn again(&self) -> Self {
        Self(self.0.iter().map(|(path, _)| (path.clone(), Stamp::of(path))).collect())
    }

    /// Number of files.
    pub fn count(&self) -> usize {
        self.0.len()
    }
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
    use std::fs;
    use std::os::unix::fs::symlink;

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

    #[test]
    fn a_stamp_detects_files_of_equal_length_and_time() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("credentials.toml");
        fs::write(&file, "one").unwrap();
        let (before, written) = (Stamp::of(&file), fs::metadata(&file).unwrap().modified().unwrap());
        assert_eq!(before, Stamp::of(&file));
        // The system's clock for files ticks every few milliseconds. The file is written again
        // until the clock has ticked.
        while fs::metadata(&file).unwrap().modified().unwrap() == written {
            fs::write(&file, "two").unwrap();
        }
        fs::File::options().write(true).open(&file).unwrap().set_modified(written).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().modified().unwrap(), written);
        assert_ne!(before, Stamp::of(&file));
        fs::remove_file(&file).unwrap();
        assert_ne!(before, Stamp::of(&file));
    }

    #[test]
    fn a_link_that_turns_to_another_folder_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for version in ["v1", "v2"] {
            fs::create_dir(path(version)).unwrap();
            fs::write(path(version).join("credentials.toml"), version).unwrap();
        }
        symlink("v1", path("data")).unwrap();
        symlink("data/credentials.toml", path("credentials.toml")).unwrap();
        let before = Stamp::of(&path("credentials.toml"));
        symlink("v2", path("new")).unwrap();
        fs::rename(path("new"), path("data")).unwrap();
        assert_ne!(before, Stamp::of(&path("credentials.toml")));
    }
}
