//! The file of a witness: its acceptor, replaced whole by each write.
//!
//! Neighbours: `server::witness` serves from it, `cli::witness` makes it, `views` spells the acceptor. A write goes to a file beside it, which is
//! synced and renamed over it, and then the folder is synced: after a crash the file is the old one or the new one. A lock keeps a
//! second process out. A file that is missing or damaged is an error: it must never be made anew in silence, as a witness that forgot
//! its promises could let two views be agreed on.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FlockOperation, flock};
use tokio::sync::Mutex;

use super::views::Spelled;
use crate::ports::Acceptors;
use crate::ports::store::{StoreError, Written};
use crate::protocol::digest::digest;
use crate::protocol::region::RegionName;
use crate::protocol::register::Acceptor;
use crate::protocol::view::AcceptorId;

/// The first line of every such file.
const FORMAT: &str = "onceway witness 1";

/// Why a witness's file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It is not there.
    #[error(
        "{0}: there is no such file. A new witness gets its file once, by `onceway witness --config FILE --init`. If this witness had \
         one before, it is lost with the promises in it: make a new one with --init, and never put an old copy back"
    )]
    Missing(PathBuf),
    /// It is to be made and is there.
    #[error("{0}: the file is there already. It holds promises to the regions, so it is never overwritten")]
    Exists(PathBuf),
    /// Another process has it.
    #[error("{0}: another process uses this file")]
    InUse(PathBuf),
    /// It is not what was written.
    #[error(
        "{path}: the file is damaged ({what}). This witness cannot vote: make a new one with another file and --init, and never put an old \
         copy back"
    )]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// It is another witness's.
    #[error("{path}: the file is of witness {other}, not of {me}")]
    OfAnother {
        /// Which file.
        path: PathBuf,
        /// Whose it is.
        other: RegionName,
        /// Who asks.
        me: RegionName,
    },
    /// The system refuses.
    #[error("{path}: {cause}")]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
}

/// An acceptor in a file of its own.
#[derive(Clone, Debug)]
pub struct AcceptorFile(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    me: RegionName,
    path: PathBuf,
    kept: Mutex<Kept>,
    /// Held for as long as the process uses the file.
    _lock: File,
}

#[derive(Debug)]
struct Kept {
    version: u64,
    acceptor: Acceptor,
    /// What stands on disk is not known any more: nothing is promised from here on.
    broken: Option<String>,
}

impl AcceptorFile {
    /// Where the file of a new witness would be made. Changes nothing. Blocks.
    ///
    /// # Errors
    /// `Exists`; `Io`, also where its folder is not there.
    pub fn vacant(path: &Path) -> Result<PathBuf, FileError> {
        let path = resolved(path)?;
        match fs::symlink_metadata(&path) {
            Ok(_) => Err(FileError::Exists(path)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(path),
            Err(cause) => Err(FileError::Io { path, cause }),
        }
    }

    /// Makes the file of a new witness, which holds nothing. Blocks.
    ///
    /// # Errors
    /// `Exists`, `InUse` or `Io`.
    pub fn create(path: &Path, me: &RegionName, id: AcceptorId) -> Result<(), FileError> {
        let _lock = lock(&resolved(path)?)?;
        let path = Self::vacant(path)?;
        let text = spell(me, 0, &Acceptor::made(id)).map_err(|why| io(&path, std::io::Error::other(why)))?;
        put_beside(&path, &text).and_then(|()| put_in_place(&path)).map_err(|cause| io(&path, cause))?;
        sync_folder(&path).map_err(|cause| io(&path, cause))
    }

    /// Opens the file of a witness and locks it. Blocks.
    ///
    /// # Errors
    /// All of [`FileError`] but `Exists`.
    pub fn open(path: &Path, me: &RegionName) -> Result<Self, FileError> {
        let path = resolved(path)?;
        match fs::symlink_metadata(&path) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(FileError::Missing(path)),
            Err(cause) => return Err(FileError::Io { path, cause }),
        }
        let lock = lock(&path)?;
        let text = fs::read(&path).map_err(|cause| io(&path, cause))?;
        let damaged = |what| FileError::Damaged { path: path.clone(), what };
        let (owner, version, acceptor) = read(&text).map_err(damaged)?;
        if owner != *me {
            return Err(FileError::OfAnother { path, other: owner, me: me.clone() });
        }
        let kept = Mutex::new(Kept { version, acceptor, broken: None });
        Ok(Self(Arc::new(Inner { me: me.clone(), path, kept, _lock: lock })))
    }
}

impl Acceptors for AcceptorFile {
    async fn acceptor(&self) -> Result<(u64, Acceptor), StoreError> {
        let kept = self.0.kept.lock().await;
        match &kept.broken {
            None => Ok((kept.version, kept.acceptor.clone())),
            Some(why) => Err(StoreError::Definite(why.clone())),
        }
    }

    async fn set_acceptor(&self, version: u64, acceptor: &Acceptor) -> Result<Written, StoreError> {
        let (inner, acceptor) = (self.0.clone(), acceptor.clone());
        // A caller who gives up does not stop the write, nor does it make the next one overtake it: the lock is held inside.
        let written = tokio::task::spawn_blocking(move || inner.write(version, acceptor)).await;
        written.unwrap_or_else(|error| Err(StoreError::Unknown(error.to_string())))
    }
}

impl Inner {
    fn write(&self, version: u64, acceptor: Acceptor) -> Result<Written, StoreError> {
        let mut kept = self.kept.blocking_lock();
        if let Some(why) = &kept.broken {
            return Err(StoreError::Definite(why.clone()));
        }
        if kept.version != version {
            return Ok(Written::Lost);
        }
        let shown = self.path.display();
        let definite = |error: std::io::Error| StoreError::Definite(format!("{shown}: {error}"));
        let text = spell(&self.me, version + 1, &acceptor).map_err(StoreError::Definite)?;
        put_beside(&self.path, &text).map_err(definite)?;
        put_in_place(&self.path).map_err(definite)?;
        if let Err(error) = sync_folder(&self.path) {
            let why =
                format!("{shown}: what stands on disk is not known ({error}): start this witness again");
            kept.broken = Some(why.clone());
            return Err(StoreError::Unknown(why));
        }
        (kept.version, kept.acceptor) = (version + 1, acceptor);
        Ok(Written::Done)
    }
}

fn io(path: &Path, cause: std::io::Error) -> FileError {
    FileError::Io { path: path.to_owned(), cause }
}

/// The path with its folder made plain, so that two spellings of it meet at one lock.
fn resolved(path: &Path) -> Result<PathBuf, FileError> {
    let name = path
        .file_name()
        .ok_or_else(|| io(path, std::io::Error::new(ErrorKind::InvalidInput, "name a file, not a folder")))?;
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    };
    // A link would be replaced by the first write, and what it named left behind.
    match fs::canonicalize(path) {
        Ok(file) => Ok(file),
        Err(_) => fs::canonicalize(folder).map(|folder| folder.join(name)).map_err(|cause| io(folder, cause)),
    }
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Not the file itself: that is another one after each write.
fn lock(path: &Path) -> Result<File, FileError> {
    let place = beside(path, ".lock");
    let opened = File::options().create(true).truncate(false).write(true).mode(0o600).open(&place);
    let lock = opened.map_err(|cause| io(&place, cause))?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(FileError::InUse(path.to_owned())),
        Err(error) => Err(io(&place, error.into())),
    }
}

fn put_beside(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file =
        File::options().create(true).truncate(true).write(true).mode(0o600).open(beside(path, ".new"))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn put_in_place(path: &Path) -> std::io::Result<()> {
    fs::rename(beside(path, ".new"), path)
}

fn sync_folder(path: &Path) -> std::io::Result<()> {
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}

/// Five lines, the last of which vouches for the others.
fn spell(me: &RegionName, version: u64, acceptor: &Acceptor) -> Result<String, String> {
    let acceptor = acceptor.to_text().map_err(|error| error.to_string())?;
    let body = format!("{FORMAT}\nname {me}\nversion {version}\n{acceptor}\n");
    let seal = seal(&body);
    Ok(format!("{body}{seal}"))
}

/// The last line.
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
    let acceptor = Acceptor::from_text(acceptor).map_err(|error| error.0)?;
    Ok((me, version, acceptor))
}

#[cfg(test)]
mod tests;
