//! What tells a changed file from the one that was read.
//!
//! Neighbours: `credentials` compares them. It must not read a file's text, nor take a file that is not there for unchanged.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A file as the system describes it: which one, how long, when written. `None`: it was not there, or not to be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp(Option<(u64, u64, u64, i64, i64)>);

impl Stamp {
    /// The file's stamp, through links. Take it before the file is read: a change in between is then seen later. Blocks.
    pub fn of(path: &Path) -> Self {
        let facts =
            |file: std::fs::Metadata| (file.dev(), file.ino(), file.size(), file.mtime(), file.mtime_nsec());
        Self(std::fs::metadata(path).ok().map(facts))
    }
}
