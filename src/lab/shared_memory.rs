//! Finds and removes the one System V shared memory segment that a killed Postgres leaves behind,
//! for a deployment that is thrown away. No segment goes that has an attached process, or that no
//! `postmaster.pid` of this deployment names. Blocks for small files and one short command.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::wait;

/// Time limit for a killed server's last process to detach from the segment. By then `/proc` no
/// longer shows that process.
const LET_GO_BOUND: Duration = Duration::from_secs(2);

/// Removes the segment that `data`'s left-over `postmaster.pid` names, once no process is attached.
/// No failure is an error: it is 56 bytes of untidiness. Blocks for at most two seconds.
pub fn release(data: &Path) {
    let Ok(pid_file) = fs::read_to_string(data.join("postmaster.pid")) else { return };
    let Some((key, id)) = named_segment(&pid_file) else { return };
    let mut use_of_it = Use::Gone;
    let waited = wait::blocking_until("a segment of shared memory to be let go", LET_GO_BOUND, || {
        let Ok(segments) = fs::read_to_string("/proc/sysvipc/shm") else { return true };
        use_of_it = use_of(&segments, key, id);
        use_of_it != Use::Attached
    });
    if waited.is_ok() && use_of_it == Use::Abandoned {
        let mut command = Command::new("ipcrm");
        command.args(["-m", &id.to_string()]).stdout(Stdio::null()).stderr(Stdio::null());
        let _ = command.status();
    }
}

/// Does the same as [`release`] for every Postgres data folder in `dir`, at most four levels down.
pub fn release_all_under(dir: &Path) {
    data_folders(dir, 4).iter().for_each(|data| release(data));
}

/// Postgres data folders in `dir` and below it, at most `depth` levels down.
fn data_folders(dir: &Path, depth: usize) -> Vec<PathBuf> {
    if dir.join("PG_VERSION").is_file() {
        return vec![dir.to_owned()];
    }
    let Ok(listing) = fs::read_dir(dir) else { return Vec::new() };
    let folders =
        listing.flatten().filter(|entry| depth > 0 && entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.flat_map(|folder| data_folders(&folder.path(), depth - 1)).collect()
}

/// Key and id of the segment: line 7, `LOCK_FILE_LINE_SHMEM_KEY` of Postgres' `miscadmin.h`.
fn named_segment(pid_file: &str) -> Option<(i64, i64)> {
    let mut words = pid_file.lines().nth(6)?.split_ascii_whitespace();
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Gone,
    Attached,
    Abandoned,
}

/// Finds a segment's use. Columns of `/proc/sysvipc/shm`: key shmid perms size cpid lpid nattch ...
fn use_of(segments: &str, key: i64, id: i64) -> Use {
    for line in segments.lines().skip(1) {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let number = |column: usize| words.get(column).and_then(|word| word.parse::<i64>().ok());
        if number(0) == Some(key) && number(1) == Some(id) {
            return if number(6) == Some(0) { Use::Abandoned } else { Use::Attached };
        }
    }
    Use::Gone
}

#[cfg(test)]
mod tests {
    use super::*;

    const PID_FILE: &str =
        "6011\n/tmp/d/data\n1795242000\n7405\n\n127.0.0.1\n  3298567    131074\nready   \n";
    const HEAD: &str = "       key      shmid perms                  size  cpid  lpid nattch   uid\n";

    #[test]
    fn only_our_own_abandoned_segment_is_removed() {
        let (key, id) = named_segment(PID_FILE).unwrap();
        assert_eq!((key, id), (3_298_567, 131_074));
        let line =
            |key: i64, id: i64, attached: u32| format!("{HEAD} {key} {id} 600 56 6011 6020 {attached} 101\n");
        assert_eq!(use_of(&line(key, id, 0), key, id), Use::Abandoned);
        assert_eq!(use_of(&line(key, id, 1), key, id), Use::Attached);
        assert_eq!(use_of(&line(key + 1, id, 0), key, id), Use::Gone, "another one with a recycled id");
        assert_eq!(use_of(HEAD, key, id), Use::Gone);
        assert_eq!(named_segment("6011\n/tmp/d/data\n"), None);
    }

    #[test]
    fn data_folders_are_found_by_their_version_file() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("us-east/postgres/data");
        fs::create_dir_all(data.join("base")).unwrap();
        fs::write(data.join("PG_VERSION"), "15\n").unwrap();
        assert_eq!(data_folders(dir.path(), 4), vec![data]);
    }
}
