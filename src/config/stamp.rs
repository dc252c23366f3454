//! Stamps of files, which tell a changed file from the one that was read. `problems` takes one
//! before each file is read. A missing file never counts as unchanged.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file's device, inode, size, time of writing and time of change. `None` if it was not there, or
/// could not be seen.
///
/// Tools that copy may keep the time of writing, and one digest is as long as another. But no tool
/// sets the time of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp(Option<([u64; 3], [i64; 4])>);

impl Stamp {
    /// The file's stamp, through links. Take it before the file is read. Blocks.
    pub fn of(path: &Path) -> Self {
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
    pub(super) fn of(files: Vec<(PathBuf, Stamp)>) -> Self {
        Self(files)
    }

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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

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
