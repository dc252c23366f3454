//! The file of a witness: its acceptor, replaced whole by each write.
//!
//! A write goes to a file beside it, which is synced and renamed over it. After a crash the file is
//! the old one or the new one. A locked file says which was written last ([`mark_of`]): a file that
//! was put back from a copy is another one (docs/protocol.md#rule-14). A missing or damaged file is
//! never made anew in silence: a witness that forgot its promises could let two views be agreed on.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use rustix::fs::{FlockOperation, flock};
use tokio::sync::Mutex;

use super::views::from_text;
use crate::ports::Acceptors;
use crate::ports::store::{StoreError, Written};
use crate::protocol::digest::digest;
use crate::protocol::region::RegionName;
use crate::protocol::register::Acceptor;
use crate::protocol::view::AcceptorId;

/// First line of every such file.
const FORMAT: &str = "onceway witness 1";

/// Reason why a witness's file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// Does not exist.
    #[error(
        "{0}: there is no such file. A new witness gets its file once, by `onceway witness --config FILE --init`. If this witness had \
         one before, it is lost with the promises in it: make a new one with --init, and never put an old copy back"
    )]
    Missing(PathBuf),
    /// Already exists, and was to be made.
    #[error("{0}: the file is there already. It holds promises to the regions, so it is never overwritten")]
    Exists(PathBuf),
    /// Another process uses it.
    #[error("{0}: another process uses this file")]
    InUse(PathBuf),
    /// Its content was not written by a witness, or was damaged since.
    #[error(
        "{0}: the file is damaged ({1}). This witness cannot vote: make a new one with another file and --init, and never put an old \
         copy back"
    )]
    Damaged(PathBuf, &'static str),
    /// Belongs to another witness: the one that the file names, and the one that opens it.
    #[error("{0}: the file is of witness {1}, not of {2}")]
    OfAnother(PathBuf, RegionName, RegionName),
    /// The operating system refuses.
    #[error("{0}: {1}")]
    Io(PathBuf, std::io::Error),
}

/// An acceptor in a file of its own.
#[derive(Clone, Debug)]
pub struct AcceptorFile(Arc<Mutex<Kept>>);

#[derive(Debug)]
struct Lock(File);

impl Drop for Lock {
    /// Ends the lock, also while a child process has a copy of the descriptor.
    fn drop(&mut self) {
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// A witness's file, as a process begins with it.
#[derive(Debug)]
pub struct Opened {
    /// The file.
    pub file: AcceptorFile,
    /// The acceptor that it holds now.
    pub held: Acceptor,
    /// True if the file may not be the last one that was written, so that it holds a new acceptor.
    pub is_anew: bool,
}

#[derive(Debug)]
struct Kept {
    me: RegionName,
    path: PathBuf,
    /// Held for as long as the process uses the file. It says which file was written last.
    lock: Lock,
    version: u64,
    acceptor: Acceptor,
    /// Set when the content on disk is no longer known. Nothing is promised from then on.
    broken: Option<String>,
}

impl Kept {
    fn usable(&self) -> Result<(), StoreError> {
        self.broken.clone().map_or(Ok(()), |why| Err(StoreError::Definite(why)))
    }

    fn write(&mut self, version: u64, acceptor: Acceptor) -> Result<Written, StoreError> {
        self.usable()?;
        if self.version != version {
            return Ok(Written::Lost);
        }
        let shown = self.path.display();
        let definite = |error: std::io::Error| StoreError::Definite(format!("{shown}: {error}"));
        let text = spell(&self.me, version + 1, &acceptor).map_err(StoreError::Definite)?;
        replace(&self.lock, &self.path, &text).map_err(definite)?;
        if let Err(error) = sync_folder(&self.path) {
            let why =
                format!("{shown}: what stands on disk is not known ({error}): start this witness again");
            self.broken = Some(why.clone());
            return Err(StoreError::Unknown(why));
        }
        (self.version, self.acceptor) = (version + 1, acceptor);
        Ok(Written::Done)
    }
}

impl AcceptorFile {
    /// Path at which the file of a new witness would be made. Changes nothing. Blocks. Fails with
    /// `Exists` or `Io`, also if its folder does not exist.
    pub fn vacant(path: &Path) -> Result<PathBuf, FileError> {
        let path = resolved(path)?;
        if is_there(&path)? { Err(FileError::Exists(path)) } else { Ok(path) }
    }

    /// Makes the file of a new witness, whose acceptor is empty. Blocks. Fails with `Exists`,
    /// `InUse` or `Io`.
    pub fn create(path: &Path, me: &RegionName, id: AcceptorId) -> Result<(), FileError> {
        let lock = lock(&resolved(path)?)?;
        let path = Self::vacant(path)?;
        let io = |cause| FileError::Io(path.clone(), cause);
        let text = spell(me, 0, &Acceptor::made(id)).map_err(|why| io(std::io::Error::other(why)))?;
        replace(&lock, &path, &text).and_then(|()| sync_folder(&path)).map_err(io)
    }

    /// Opens the file of a witness and locks it. If it cannot be shown to be the last that was
    /// written, the acceptor `anew` takes the place of the one in it. Blocks. Fails with all of
    /// [`FileError`] but `Exists`.
    pub fn open(path: &Path, me: &RegionName, anew: AcceptorId) -> Result<Opened, FileError> {
        let path = resolved(path)?;
        if !is_there(&path)? {
            return Err(FileError::Missing(path));
        }
        let lock = lock(&path)?;
        let (mut found, mut text) = (File::open(&path).map_err(|cause| io(&path, cause))?, Vec::new());
        found.read_to_end(&mut text).map_err(|cause| io(&path, cause))?;
        let damaged = |what| FileError::Damaged(path.clone(), what);
        let (owner, version, acceptor) = read(&text).map_err(damaged)?;
        if owner != *me {
            return Err(FileError::OfAnother(path, owner, me.clone()));
        }
        let is_last = mark_of(&found, str::from_utf8(&text).unwrap_or_default())
            .is_some_and(|mark| fs::read(beside(&path, ".lock")).is_ok_and(|last| last == mark.as_bytes()));
        let held = acceptor.after_start(is_last, anew);
        let is_anew = held.id != acceptor.id;
        let mut kept = Kept { me: owner, path, lock, version, acceptor, broken: None };
        if is_anew {
            let written = kept.write(version, held.clone());
            written.map_err(|error| io(&kept.path, std::io::Error::other(error.to_string())))?;
        }
        Ok(Opened { file: Self(Arc::new(Mutex::new(kept))), held, is_anew })
    }
}

impl Acceptors for AcceptorFile {
    async fn acceptor(&self) -> Result<(u64, Acceptor), StoreError> {
        let kept = self.0.lock().await;
        kept.usable()?;
        Ok((kept.version, kept.acceptor.clone()))
    }

    async fn set_acceptor(&self, version: u64, acceptor: &Acceptor) -> Result<Written, StoreError> {
        let (kept, acceptor) = (self.0.clone(), acceptor.clone());
        // A caller who gives up does not stop the write, nor does it make the next one overtake it:
        // the lock is held inside.
        let write = move || kept.blocking_lock().write(version, acceptor);
        let written = tokio::task::spawn_blocking(write).await;
        written.unwrap_or_else(|error| Err(StoreError::Unknown(error.to_string())))
    }
}

fn io(path: &Path, cause: std::io::Error) -> FileError {
    FileError::Io(path.to_owned(), cause)
}

fn is_there(path: &Path) -> Result<bool, FileError> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(cause) => Err(io(path, cause)),
    }
}

/// The path with its folder resolved, so that two spellings of it meet at one lock.
fn resolved(path: &Path) -> Result<PathBuf, FileError> {
    let name = path
        .file_name()
        .ok_or_else(|| io(path, std::io::Error::new(ErrorKind::InvalidInput, "name a file, not a folder")))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // The first write would replace a link, and leave the file that it named behind.
    fs::canonicalize(path)
        .or_else(|_| fs::canonicalize(folder).map(|folder| folder.join(name)))
        .map_err(|cause| io(folder, cause))
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Locks a file beside the witness's file, which each write replaces.
fn lock(path: &Path) -> Result<Lock, FileError> {
    let place = beside(path, ".lock");
    let opened = File::options().create(true).truncate(false).write(true).mode(0o600).open(&place);
    let lock = opened.map_err(|cause| io(&place, cause))?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Lock(lock)),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(FileError::InUse(path.to_owned())),
        Err(error) => Err(io(&place, error.into())),
    }
}

/// The mark of the last file, for the file of the lock: the start of the machine, the file's number
/// and birth on its disk, and its last line. A copy has another number, whatever tool made it. An
/// older text has another last line. A whole disk that was put back is seen by another start of the
/// machine. `None` if the system does not tell all of these: then each start is a new acceptor.
fn mark_of(file: &File, text: &str) -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let about = file.metadata().ok()?;
    let born = about.created().ok()?.duration_since(UNIX_EPOCH).ok()?.as_nanos();
    let last = text.lines().next_back()?;
    Some(format!("{} {} {born} {last}\n", boot.trim(), about.ino()))
}

/// Notes that this is the last file. It need not be synced: what a crash of the machine takes with
/// it was of another start. If it cannot be written the next start finds another mark, and is a new
/// voter.
fn mark(Lock(lock): &Lock, written: &File, text: &str) {
    let mark = mark_of(written, text).unwrap_or_default();
    let noted = lock.set_len(0).and_then(|()| lock.write_all_at(mark.as_bytes(), 0));
    if mark.is_empty() || noted.is_err() {
        tracing::warn!(
            error = noted.err().map(|error| error.to_string()),
            "it cannot be noted which file was written last (a file system that tells no birth times?): each start is a new voter"
        );
    }
}

/// Writes the file beside, synced, and puts it in its place.
fn replace(lock: &Lock, path: &Path, text: &str) -> std::io::Result<()> {
    let new = beside(path, ".new");
    let mut file = File::options().create(true).truncate(true).write(true).mode(0o600).open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(new, path)?;
    mark(lock, &file, text);
    Ok(())
}

fn sync_folder(path: &Path) -> std::io::Result<()> {
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}

/// Writes the content: five lines, the last of which is a digest of the others.
fn spell(me: &RegionName, version: u64, acceptor: &Acceptor) -> Result<String, String> {
    let acceptor = serde_json::to_string(acceptor).map_err(|error| error.to_string())?;
    let body = format!("{FORMAT}\nname {me}\nversion {version}\n{acceptor}\n");
    Ok(format!("{body}{}", seal(&body)))
}

fn seal(body: &str) -> String {
    format!("digest {}\n", digest("onceway/witness-file/1", &[body.as_bytes()]))
}

fn read(bytes: &[u8]) -> Result<(RegionName, u64, Acceptor), &'static str> {
    let text = str::from_utf8(bytes).map_err(|_| "it is no text")?;
    if !text.starts_with(FORMAT) {
        return Err("it is no witness's file, or of another version of onceway");
    }
    let body = text.rfind("digest ").map(|at| &text[..at]).ok_or("it is cut off")?;
    if text[body.len()..] != seal(body) {
        return Err("its digest is not that of its text");
    }
    let mut lines = body.lines();
    let mut after = |word: &str| lines.next().and_then(|line| line.strip_prefix(word));
    after(FORMAT).filter(|rest| rest.is_empty()).ok_or("it is of another version of onceway")?;
    let me = after("name ").and_then(|name| RegionName::parse(name).ok()).ok_or("it names no witness")?;
    let version = after("version ").and_then(|number| number.parse().ok()).ok_or("it has no version")?;
    let acceptor = after("").ok_or("it holds no acceptor")?;
    Ok((me, version, from_text(acceptor)?))
}

#[cfg(test)]
mod tests;
