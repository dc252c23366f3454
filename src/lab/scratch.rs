//! Temporary folders of a deployment, with a mark that says "this one may be deleted whole".
//!
//! [`crate::janitor`] deletes nothing without the mark: never a folder that the user named.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rand::TryRng;
use rand::rngs::SysRng;

use super::wait;

const MARK: &str = ".onceway-scratch";
const DELETE_BOUND: Duration = Duration::from_secs(10);

/// Makes an empty folder for temporary files, with a random name and no symbolic link. Other
/// accounts may walk through it (Postgres may run under one), but not write to it. Blocks.
pub fn create(prefix: &str) -> Result<PathBuf> {
    let mut bytes = [0_u8; 16];
    SysRng.try_fill_bytes(&mut bytes).context("the system gives no random bytes")?;
    let name = format!("{prefix}-{}", uuid::Builder::from_random_bytes(bytes).into_uuid());
    let parent = std::env::temp_dir();
    let real = parent.canonicalize();
    let real = real.with_context(|| format!("no folder for temporary files at {}", parent.display()))?;
    let dir = real.join(name);
    fs::create_dir(&dir).with_context(|| format!("cannot make folder {}", dir.display()))?;
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755))?;
    fs::write(dir.join(MARK), "made by onceway; deleted with everything in it when its deployment ends\n")?;
    Ok(dir)
}

/// Deletes a folder made by [`create`]; no error if it is gone. Refuses one without the mark.
/// Blocks at most about ten seconds: a dying process may still put a file into it.
pub fn delete(dir: &Path) -> Result<()> {
    if !dir.exists() {
        return Ok(());
    }
    ensure!(dir.join(MARK).is_file(), "{} is not a temporary folder of onceway and stays", dir.display());
    let mut trouble = None;
    let deleted = wait::blocking_until("its last file to go", DELETE_BOUND, || {
        // The mark goes last: an interrupted deletion can be taken up again.
        match delete_contents(dir).and_then(|()| fs::remove_dir_all(dir)) {
            Ok(()) => true,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !dir.exists() => true,
            Err(busy) => {
                trouble = Some(busy);
                false
            }
        }
    });
    match (deleted, trouble) {
        (Err(_in_vain), Some(error)) => {
            Err(error).with_context(|| format!("cannot delete {}", dir.display()))
        }
        (outcome, _) => outcome,
    }
}

fn delete_contents(dir: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name() == MARK {
            continue;
        }
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scratch_folder_is_open_to_walk_and_goes_whole() {
        let dir = create("onceway-test").unwrap();
        assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o755);
        fs::create_dir_all(dir.join("a/b")).unwrap();
        fs::write(dir.join("a/b/c"), "x").unwrap();
        delete(&dir).unwrap();
        assert!(!dir.exists());
        delete(&dir).unwrap();
    }

    #[test]
    fn a_folder_without_the_mark_stays() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("precious"), "x").unwrap();
        assert!(delete(dir.path()).is_err());
        assert!(dir.path().join("precious").exists());
    }
}
