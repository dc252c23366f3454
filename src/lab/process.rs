//! One child process of the supervisor, such as a gateway or a postmaster, in a process group of
//! its own: Ctrl-C reaches only the supervisor. It is reaped as soon as it exits. Signals go to the
//! whole tree below it. [`crate::janitor`] covers the death of the supervisor itself.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal};
use tokio::process::Command;
use tokio::sync::watch;
use tokio::time::timeout;

use super::account::Account;
use super::proctable::{self, Activity};

/// Only a process that waits for the disk needs more than a moment for a SIGKILL.
const KILL_BOUND: Duration = Duration::from_secs(10);
const PAUSE_BOUND: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub struct Launch {
    pub program: PathBuf,
    pub args: Vec<OsString>,
    /// Variables added to the inherited environment.
    pub env: Vec<(OsString, OsString)>,
    /// Working directory, in the deployment's folder: the janitor finds a process by it.
    pub cwd: PathBuf,
    /// File to which both output streams are appended.
    pub log: PathBuf,
    /// Account for the child, without supplementary groups; needs root.
    pub account: Option<Account>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    Running,
    /// Stopped by SIGSTOP, from this or from another process.
    Paused,
    /// Over and reaped.
    Exited {
        how: String,
    },
}

/// A started child. Dropping it kills it and everything below it (blocking for a few milliseconds).
#[derive(Debug)]
pub struct Process {
    pid: Pid,
    /// Cause of its end; none while it lives.
    ending: watch::Receiver<Option<String>>,
    log: PathBuf,
}

impl Process {
    /// Starts a child, inside a tokio runtime with I/O enabled. Errors name the program or file.
    pub fn spawn(launch: &Launch) -> Result<Process> {
        let log = OpenOptions::new().create(true).append(true).open(&launch.log);
        let log = log.with_context(|| format!("cannot open log file {}", launch.log.display()))?;
        let mut command = Command::new(&launch.program);
        command.args(&launch.args).envs(launch.env.iter().cloned()).current_dir(&launch.cwd);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0).kill_on_drop(true);
        if let Some(account) = &launch.account {
            command.uid(account.uid).gid(account.gid);
        }
        let child = command.spawn();
        let mut child = child.with_context(|| format!("cannot start {}", launch.program.display()))?;
        let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let pid = pid.context("a fresh child has no pid")?;
        let (tell, ending) = watch::channel(None);
        tokio::spawn(async move {
            let how = match child.wait().await {
                Ok(status) => status.to_string(),
                Err(error) => format!("cannot be waited for: {error}"),
            };
            tell.send_replace(Some(how));
        });
        Ok(Process { pid, ending, log: launch.log.clone() })
    }

    /// The process id. No process may have it any more once the state is `Exited`.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Current state, read from the kernel (one small read).
    pub fn state(&self) -> State {
        if let Some(how) = self.ending.borrow().clone() {
            return State::Exited { how };
        }
        match proctable::read(self.pid).map(|entry| entry.activity) {
            Some(Activity::Stopped) => State::Paused,
            Some(Activity::Alive) => State::Running,
            Some(Activity::Over) | None => State::Exited { how: "just ended".to_owned() },
        }
    }

    pub fn lives(&self) -> bool {
        !matches!(self.state(), State::Exited { .. })
    }

    fn is_reaped(&self) -> bool {
        self.ending.borrow().is_some()
    }

    /// Waits until the child is over and reaped; returns the cause of its end.
    pub async fn exited(&self) -> String {
        match self.ending.clone().wait_for(Option::is_some).await {
            Ok(how) => how.clone().unwrap_or_default(),
            Err(_runtime_gone) => "killed with the runtime".to_owned(),
        }
    }

    /// Sends SIGKILL to the whole tree, until the child is reaped. No error if it is over.
    pub async fn kill(&self) -> Result<()> {
        if self.is_reaped() {
            return Ok(());
        }
        let pid = self.pid;
        tokio::task::spawn_blocking(move || proctable::kill_tree(pid)).await?;
        match timeout(KILL_BOUND, self.exited()).await {
            Ok(_how) => Ok(()),
            Err(_elapsed) => bail!("process {} did not die within {KILL_BOUND:?} of SIGKILL", self.pid()),
        }
    }

    /// Asks the child to end with `signal`, and kills it after `bound`. A paused one is resumed
    /// first. Returns the cause of its end; no error if it is over already.
    pub async fn stop(&self, signal: Signal, bound: Duration) -> Result<String> {
        if !self.is_reaped() {
            proctable::signal(self.pid, signal);
            self.resume().await?;
            if timeout(bound, self.exited()).await.is_err() {
                self.kill().await?;
            }
        }
        Ok(self.exited().await)
    }

    /// Sends SIGSTOP to the whole tree; returns when all of it has stopped. Error if it is over.
    pub async fn pause(&self) -> Result<()> {
        if self.is_reaped() {
            bail!("process {} is over and cannot be paused", self.pid());
        }
        let pid = self.pid;
        tokio::task::spawn_blocking(move || proctable::stop_tree(pid, PAUSE_BOUND)).await?
    }

    /// Sends SIGCONT to the child and everything below it. No error if it runs or is over.
    pub async fn resume(&self) -> Result<()> {
        if !self.is_reaped() {
            let pid = self.pid;
            tokio::task::spawn_blocking(move || proctable::signal_tree(pid, Signal::CONT)).await?;
        }
        Ok(())
    }

    /// Sends SIGHUP to the child alone: a gateway reads its files again.
    pub fn hang_up(&self) {
        if !self.is_reaped() {
            proctable::signal(self.pid, Signal::HUP);
        }
    }

    pub fn log_tail(&self) -> String {
        tail(&self.log)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.is_reaped() {
            proctable::kill_tree(self.pid);
        }
    }
}

/// At most 2 kB, whole lines where possible. Empty if the file cannot be read. Blocks.
pub fn tail(path: &Path) -> String {
    const KEEP: u64 = 2048;
    let read = || -> std::io::Result<String> {
        let mut file = fs::File::open(path)?;
        file.seek(SeekFrom::Start(file.metadata()?.len().saturating_sub(KEEP)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    };
    read().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait;

    fn shell(dir: &Path, script: &str) -> Launch {
        Launch {
            program: "sh".into(),
            args: vec!["-c".into(), script.into()],
            env: vec![("GREETING".into(), "hello from a child".into())],
            cwd: dir.to_owned(),
            log: dir.join("child.log"),
            account: None,
        }
    }

    #[tokio::test]
    async fn a_child_that_ends_is_reaped_and_its_log_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let child = Process::spawn(&shell(dir.path(), "echo $GREETING; pwd >&2; exit 3")).unwrap();
        assert_eq!(child.exited().await, "exit status: 3");
        assert!(matches!(child.state(), State::Exited { .. }));
        let entry = proctable::read(child.pid);
        assert!(entry.is_none_or(|entry| entry.activity != Activity::Over), "a zombie was left");
        let log = child.log_tail();
        assert!(log.contains("hello from a child") && log.contains(dir.path().to_str().unwrap()), "{log}");
        assert!(child.pause().await.is_err());
        child.kill().await.unwrap();
    }

    #[tokio::test]
    async fn stop_asks_first_and_kills_after_the_bound() {
        let dir = tempfile::tempdir().unwrap();
        let ends = |script: &str| Process::spawn(&shell(dir.path(), script)).unwrap();
        let polite = ends("trap 'exit 7' TERM; echo ready; while :; do sleep 0.02; done");
        wait_for_log(&polite, "ready").await;
        polite.pause().await.unwrap();
        assert_eq!(polite.stop(Signal::TERM, Duration::from_secs(20)).await.unwrap(), "exit status: 7");

        let stubborn = ends("trap '' TERM; echo deaf; while :; do sleep 0.02; done");
        wait_for_log(&stubborn, "deaf").await;
        assert!(stubborn.stop(Signal::TERM, Duration::from_millis(50)).await.unwrap().contains("signal: 9"));
    }

    async fn wait_for_log(child: &Process, word: &str) {
        let seen = async || Ok(child.log_tail().contains(word).then_some(()));
        wait::for_some(word, Duration::from_secs(20), seen).await.unwrap();
    }

    #[tokio::test]
    async fn dropping_kills() {
        let dir = tempfile::tempdir().unwrap();
        let child = Process::spawn(&shell(dir.path(), "sleep 600")).unwrap();
        let mut ending = child.ending.clone();
        drop(child);
        let ended = timeout(Duration::from_secs(20), ending.wait_for(Option::is_some)).await.unwrap();
        assert!(ended.unwrap().as_ref().unwrap().contains("signal: 9"));
    }

    #[tokio::test]
    async fn a_program_that_is_not_there_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let launch = Launch { program: "/no/such/program".into(), ..shell(dir.path(), "") };
        assert!(Process::spawn(&launch).unwrap_err().to_string().contains("/no/such/program"));
    }
}
