//! A witness's promises on disk: each write is whole, and no other content is taken for them.
//!
//! `tests/suites/witness.rs` kills real processes.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::protocol::examples::name;
use crate::protocol::register::Ballot;

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

fn opened(path: &Path) -> Result<Opened, String> {
    AcceptorFile::open(path, &name("w"), AcceptorId(8)).map_err(|error| error.to_string())
}

fn open(path: &Path) -> Result<AcceptorFile, String> {
    opened(path).map(|opened| opened.file)
}

#[tokio::test]
async fn a_witness_keeps_its_state_over_a_restart() {
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
async fn two_writes_on_one_version_lose_one() {
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
    // A folder in the place of the new file: the write fails before anything is replaced.
    fs::create_dir(beside(&path, ".new")).unwrap();
    assert!(matches!(file.set_acceptor(0, &promised(1)).await, Err(StoreError::Definite(_))));
    assert_eq!(file.acceptor().await, Ok((0, Acceptor::made(AcceptorId(7)))));
    fs::remove_dir(beside(&path, ".new")).unwrap();
    assert_eq!(file.set_acceptor(0, &promised(1)).await, Ok(Written::Done));
}

#[test]
fn a_half_written_file_is_ignored_after_a_crash() {
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
fn the_lock_ends_with_its_user_despite_copies() {
    let (_folder, path) = made();
    let opened = opened(&path).unwrap();
    // As a child process has one, from its fork until it runs its own program.
    let copy = opened.file.0.try_lock().unwrap().lock.0.try_clone().unwrap();
    drop(opened);
    open(&path).unwrap();
    drop(copy);
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
    let other = AcceptorFile::open(&path, &name("v"), AcceptorId(8)).unwrap_err().to_string();
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

/// The ways in which a file is put back, each with the folder of the witness and that of the copy.
/// Hard links and renames keep the very file of then.
fn put_back(way: &str, folder: &Path, copy: &Path) {
    let (path, kept) = (folder.join("witness"), copy.join("witness"));
    match way {
        "written over" => drop(fs::copy(kept, path).unwrap()),
        "put in its place" => {
            fs::copy(kept, folder.join("other")).unwrap();
            fs::rename(folder.join("other"), path).unwrap();
        }
        "linked" => fs::rename(copy.join("linked"), path).unwrap(),
        "with its lock, written over" => {
            fs::copy(kept, path).unwrap();
            fs::copy(copy.join("witness.lock"), folder.join("witness.lock")).unwrap();
        }
        "the whole folder" => {
            fs::rename(folder, copy.with_extension("old")).unwrap();
            fs::rename(copy, folder).unwrap();
        }
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_file_that_was_put_back_holds_another_acceptor() {
    for way in
        ["written over", "put in its place", "linked", "with its lock, written over", "the whole folder"]
    {
        let outer = tempfile::tempdir().unwrap();
        let (folder, copy) = (outer.path().join("kept"), outer.path().join("copy"));
        for made in [&folder, &copy] {
            fs::create_dir(made).unwrap();
        }
        let path = folder.join("witness");
        AcceptorFile::create(&path, &name("w"), AcceptorId(7)).unwrap();
        let file = open(&path).unwrap();
        file.set_acceptor(0, &promised(1)).await.unwrap();
        for file in ["witness", "witness.lock"] {
            fs::copy(folder.join(file), copy.join(file)).unwrap();
        }
        fs::hard_link(&path, copy.join("linked")).unwrap();
        file.set_acceptor(1, &promised(2)).await.unwrap();
        drop(file);
        put_back(way, &folder, &copy);
        let begun = opened(&path).unwrap();
        assert_eq!((begun.held.clone(), begun.is_anew), (Acceptor::made(AcceptorId(8)), true), "{way}");
        assert_eq!(begun.file.acceptor().await, Ok((2, begun.held)), "{way}");
        drop(begun.file);
        let again = AcceptorFile::open(&path, &name("w"), AcceptorId(9)).unwrap();
        let held = (again.held.id, again.is_anew);
        assert_eq!(held, (AcceptorId(8), false), "{way}: from then on it is the last");
    }
}

#[tokio::test]
async fn possibly_outdated_files_get_a_new_acceptor() {
    for says in ["", "another start of the machine"] {
        let (_folder, path) = made();
        open(&path).unwrap().set_acceptor(0, &promised(1)).await.unwrap();
        let lock = beside(&path, ".lock");
        let mark = fs::read_to_string(&lock).unwrap();
        let boot = mark.split(' ').next().unwrap().to_owned();
        fs::write(&lock, if says.is_empty() { String::new() } else { mark.replace(&boot, says) }).unwrap();
        let begun = opened(&path).unwrap();
        assert_eq!((begun.held, begun.is_anew), (Acceptor::made(AcceptorId(8)), true), "{says}");
    }
}
