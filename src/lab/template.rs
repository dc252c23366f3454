//! One empty data folder per user and Postgres, which private clusters are copied from: `initdb`
//! takes three times as long. Nothing here is needed: whoever gets no copy runs `initdb`.
//! It stands in the user's cache. A folder with the final name is always complete. Each copy gets a
//! system identifier of its own: by it Postgres names the slots of a subscription's first copy.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rand::TryRng;
use rand::rngs::SysRng;
use xxhash_rust::xxh3::xxh3_64;

use super::account::Account;
use super::binaries::Binaries;
use super::fetched;

/// After this time nobody is still writing an unfinished template.
const ABANDONED: Duration = Duration::from_secs(600);

/// The place of the template for these programs and this account; none without a cache folder.
pub fn place(binaries: &Binaries, account: Option<&Account>) -> Option<PathBuf> {
    let program = binaries.program("initdb");
    let made = fs::metadata(&program).ok()?;
    let uid = account.map(|account| account.uid);
    let which = format!("{} {} {} {uid:?}", program.display(), made.mtime(), made.size());
    Some(fetched::cache()?.join(format!("initdb-{}-{:016x}", binaries.major(), xxh3_64(which.as_bytes()))))
}

/// Copies the template, with another system identifier; true if all was done. Blocks.
pub fn make(template: &Path, data: &Path, binaries: &Binaries, account: Option<&Account>) -> bool {
    copy(template, data) && identify(data).is_some() && rewrite_wal(data, binaries, account)
}

/// Gives a data folder that no server has used another system identifier: the first eight bytes of
/// `pg_control`, whose checksum stands behind the last field.
fn identify(data: &Path) -> Option<()> {
    let file = data.join("global/pg_control");
    let mut control = fs::read(&file).ok()?;
    let sum_at = |at: &usize| control.get(*at..at + 4) == Some(&crc32c(&control[..*at]).to_ne_bytes()[..]);
    let at = (64..512).step_by(4).find(sum_at)?;
    SysRng.try_fill_bytes(control.get_mut(..8)?).ok()?;
    let sum = crc32c(&control[..at]).to_ne_bytes();
    control[at..at + 4].copy_from_slice(&sum);
    fs::write(&file, control).ok()
}

/// The write-ahead log states the identifier, too: `pg_resetwal` makes it anew.
fn rewrite_wal(data: &Path, binaries: &Binaries, account: Option<&Account>) -> bool {
    let mut command = Command::new(binaries.program("pg_resetwal"));
    command.arg("-D").arg(data).current_dir("/").stdout(Stdio::null()).stderr(Stdio::null());
    if let Some(account) = account {
        command.uid(account.uid).gid(account.gid);
    }
    command.status().is_ok_and(|status| status.success())
}

fn crc32c(bytes: &[u8]) -> u32 {
    let step = |sum: u32, _| if sum & 1 == 1 { (sum >> 1) ^ 0x82f6_3b78 } else { sum >> 1 };
    !bytes.iter().fold(!0, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), step))
}

/// Copies a folder with owners and rights. Returns true if all of it was copied.
fn copy(from: &Path, to: &Path) -> bool {
    let mut command = Command::new("cp");
    command.args(["-a", "--"]).arg(from).arg(to).stderr(Stdio::null());
    from.join("PG_VERSION").exists() && command.status().is_ok_and(|status| status.success())
}

/// Keeps a copy of a fresh data folder as the template, unless somebody else does.
pub fn keep(data: &Path, place: &Path) {
    let unfinished = place.with_extension("new");
    let age = fs::metadata(&unfinished).and_then(|made| made.modified()).ok();
    if age.and_then(|made| made.elapsed().ok()).is_some_and(|age| age > ABANDONED) {
        let _ = fs::remove_dir_all(&unfinished);
    }
    let parent = place.parent().is_some_and(|parent| fs::create_dir_all(parent).is_ok());
    if place.exists() || !parent || fs::create_dir(&unfinished).is_err() {
        return;
    }
    let kept = copy(data, &unfinished.join("data")) && fs::rename(unfinished.join("data"), place).is_ok();
    tracing::debug!(place = %place.display(), kept, "template of private clusters");
    let _ = fs::remove_dir_all(&unfinished);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_postgres() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn a_template_is_complete_or_absent() {
        let dir = tempfile::tempdir().unwrap();
        let (data, place) = (dir.path().join("data"), dir.path().join("cache/onceway/initdb"));
        fs::create_dir(&data).unwrap();
        keep(&data, &place);
        assert!(!place.exists(), "a folder without PG_VERSION is no data folder");
        fs::write(data.join("PG_VERSION"), "15").unwrap();
        keep(&data, &place);
        fs::write(data.join("PG_VERSION"), "16").unwrap();
        keep(&data, &place);
        assert_eq!(fs::read_to_string(place.join("PG_VERSION")).unwrap(), "15");
        assert_eq!(fs::read_dir(place.parent().unwrap()).unwrap().count(), 1, "nothing unfinished is left");
        let copied = dir.path().join("copied");
        assert!(copy(&place, &copied) && copied.join("PG_VERSION").exists());
        assert!(!copy(&dir.path().join("nowhere"), &dir.path().join("copied2")));
    }
}
