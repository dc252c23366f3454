//! What a witness promised stands on disk, once, and nothing else is taken for it.
//!
//! Neighbour: `witness`; `tests/suites/witness.rs` kills real processes. It must not need a network.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::protocol::register::Ballot;

fn name(text: &str) -> RegionName {
    RegionName::parse(text).unwrap()
}

fn promised(counter: u64) -> Acceptor {
    let ballot = Ballot { counter, region: name("eu"), proposer: 1 };
    Acceptor { promised: Some(ballot), grants: BTreeMap::new(), ..Acceptor::made(AcceptorId(7)) }
}

fn made() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("witness");
    AcceptorFile::create(&path, &name("w"), AcceptorId(7)).unwrap();
    (folder, path)
}

fn open(path: &Path) -> Result<AcceptorFile, String> {
    AcceptorFile::open(path, &name("w")).map_err(|error| error.to_string())
}

#[tokio::test]
async fn what_was_written_is_there_after_a_new_start() {
    let (folder, path) = made();
    let file = open(&path).unwrap();
    assert_eq!(file.acceptor().await, Ok((0, Acceptor::made(AcceptorId(7)))));
    assert_eq!(file.set_acceptor(0, &promised(1)).await, Ok(Written::Done));
    assert_eq!(file.set_acceptor(1, &promised(2)).await, Ok(Written::Done));
    drop(file);
    assert_eq!(open(&path).unwrap().acceptor().await, Ok((2, promised(2))));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let mut left: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["witness", "witness.lock"]);
}

#[tokio::test]
async fn of_two_writes_on_one_version_one_is_lost() {
    let (_folder, path) = made();
    let file = open(&path).unwrap();
    let (one, two) = (promised(1), promised(2));
    let (one, two) = tokio::join!(file.set_acceptor(0, &one), file.set_acceptor(0, &two));
    let both = [one.unwrap(), two.unwrap()];
    assert!(both.contains(&Written::Done) && both.contains(&Written::Lost), "{both:?}");
    let (version, acceptor) = file.acceptor().await.unwrap();
    assert_eq!(version, 1);
    drop(file);
    assert_eq!(open(&path).unwrap().acceptor().await, Ok((1, acceptor)));
}

#[tokio::test]
async fn a_write_that_fails_changes_nothing() {
    let (_folder, path) = made();
    let file = open(&path).unwrap();
    // A folder in the way of the new file: the write fails before anything is replaced.
    fs::create_dir(beside(&path, ".new")).unwrap();
    assert!(matches!(file.set_acceptor(0, &promised(1)).await, Err(StoreError::Definite(_))));
    assert_eq!(file.acceptor().await, Ok((0, Acceptor::made(AcceptorId(7)))));
    fs::remove_dir(beside(&path, ".new")).unwrap();
    assert_eq!(file.set_acceptor(0, &promised(1)).await, Ok(Written::Done));
}

#[test]
fn what_a_crash_left_half_written_is_not_the_file() {
    let (_folder, path) = made();
    fs::write(beside(&path, ".new"), "onceway wit").unwrap();
    open(&path).unwrap();
}

#[test]
fn a_file_has_one_user() {
    let (folder, path) = made();
    let first = open(&path).unwrap();
    assert!(open(&path).unwrap_err().contains("another process uses this file"));
    let again = folder.path().join(".").join("witness");
    assert!(open(&again).unwrap_err().contains("another process uses this file"));
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert!(open(&link).unwrap_err().contains("another process uses this file"));
    drop(first);
    open(&path).unwrap();
}

#[test]
fn a_file_is_made_once_and_never_in_silence() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("witness");
    assert!(open(&path).unwrap_err().contains("--init"));
    assert!(!path.exists());
    AcceptorFile::create(&path, &name("w"), AcceptorId(7)).unwrap();
    let before = fs::read(&path).unwrap();
    let again = AcceptorFile::create(&path, &name("w"), AcceptorId(8)).unwrap_err();
    assert!(matches!(again, FileError::Exists(_)), "{again}");
    assert_eq!(fs::read(&path).unwrap(), before);
    let other = AcceptorFile::open(&path, &name("v")).unwrap_err().to_string();
    assert!(other.contains("is of witness w, not of v"), "{other}");
}

#[test]
fn a_damaged_file_is_refused_and_left_as_it_is() {
    let (_folder, path) = made();
    let good = fs::read_to_string(&path).unwrap();
    let mut damaged: Vec<Vec<u8>> = vec![
        Vec::new(),
        good.replace("version 0", "version 1").into(),
        good.replace("name w", "name v").into(),
        good.replace("witness 1", "witness 2").into(),
        good.replace("\"admitted\":false", "\"admitted\":true").into(),
        format!("{good}\n").into(),
        vec![0xff; 40],
    ];
    damaged.extend((0..good.len()).step_by(7).map(|cut| good.as_bytes()[..cut].to_vec()));
    for bytes in damaged {
        fs::write(&path, &bytes).unwrap();
        let why = open(&path).expect_err(&String::from_utf8_lossy(&bytes));
        assert!(why.contains("the file is damaged"), "{why}");
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }
    fs::write(&path, &good).unwrap();
    open(&path).unwrap();
}
