//! The janitor: a helper process that cleans up after a killed supervisor. It reads a pipe, whose
//! other end only the supervisor holds; an end without the line `bye` means its death.
//! It must not touch a process outside of the deployment's folder, or one that is neither this
//! program nor a Postgres nor what runs one. It must outlive Ctrl-C.

use std::io::BufRead;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

use super::{patroni, proctable, scratch, shared_memory};

/// The hidden subcommand `onceway janitor DIR [--delete]` must call [`run_janitor`].
pub const SUBCOMMAND: &str = "janitor";
pub const DELETE_FLAG: &str = "--delete";

const KILL_BOUND: Duration = Duration::from_secs(30);
const BYE_BOUND: Duration = Duration::from_secs(5);

/// The supervisor's end of the pipe. Dropping it without [`Janitor::dismiss`] starts the cleanup,
/// as the supervisor's death would.
#[derive(Debug)]
pub struct Janitor {
    child: Child,
}

impl Janitor {
    /// Starts `program janitor DIR [--delete]`, inside a tokio runtime with I/O enabled.
    pub fn spawn(program: &Path, dir: &Path, delete: bool) -> Result<Janitor> {
        let mut command = Command::new(program);
        command.arg(SUBCOMMAND).arg(dir).args(delete.then_some(DELETE_FLAG));
        Janitor::launch(command)
    }

    fn launch(mut command: Command) -> Result<Janitor> {
        // A process group of its own and no output: neither Ctrl-C nor a closed terminal can end it
        // early. Its working directory is outside of the folder that it empties.
        command.process_group(0).current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Janitor { child: command.spawn().context("cannot start the janitor process")? })
    }

    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Tells the janitor that all is cleaned up, and waits until it has left (five seconds).
    pub async fn dismiss(mut self) -> Result<()> {
        let mut pipe = self.child.stdin.take().context("the janitor has no pipe")?;
        pipe.write_all(b"bye\n").await.context("the janitor is gone")?;
        drop(pipe);
        let status = timeout(BYE_BOUND, self.child.wait()).await.context("the janitor does not leave")??;
        ensure!(status.success(), "the janitor failed ({status})");
        Ok(())
    }
}

/// Waits on stdin for `bye`. After an end without it, kills every process of this program, of
/// Postgres or of its Patroni that works in `dir`. Releases their shared memory, and deletes `dir`
/// if `delete` (only one of [`scratch::create`]). Errors when something survives.
pub fn run_janitor(dir: &Path, delete: bool) -> Result<()> {
    let dir = dir.canonicalize().with_context(|| format!("no folder {}", dir.display()))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    // Holding these streams replaces the signals' default action, which would end this process.
    let _deaf_to = {
        let _inside = runtime.enter();
        [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, signal(SignalKind::hangup())?]
    };
    if said_bye() {
        return Ok(());
    }
    let ourselves = std::env::current_exe().context("cannot tell our own executable")?;
    let is_ours = |exe: &Path| exe == ourselves || proctable::is_postgres(exe) || patroni::is_part(exe);
    let killed = proctable::kill_all_under(&dir, &is_ours, KILL_BOUND);
    shared_memory::release_all_under(&dir);
    let deleted = if delete { scratch::delete(&dir) } else { Ok(()) };
    killed.and(deleted)
}

/// True for the line `bye`, false for the end of the pipe, or one that cannot be read.
fn said_bye() -> bool {
    std::io::stdin().lock().lines().map_while(Result::ok).any(|line| line == "bye")
}

#[cfg(test)]
mod tests {
    use rustix::process::Pid;

    use super::*;
    use crate::wait;

    const BOUND: Duration = Duration::from_secs(30);
    const ROLE: &str = "ONCEWAY_TEST_ROLE";
    const DIR: &str = "ONCEWAY_TEST_DIR";

    /// This test executable plays the onceway binary, with a role in the environment.
    fn myself(role: &str, dir: &Path) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["janitor::tests::play_a_role", "--exact", "--nocapture"]).env(ROLE, role).env(DIR, dir);
        command
    }

    #[test]
    fn play_a_role() {
        let role = std::env::var(ROLE).unwrap_or_default();
        let dir = std::env::var(DIR).unwrap_or_default();
        match role.as_str() {
            "janitor" => run_janitor(Path::new(&dir), true).unwrap(),
            "gateway" => assert!(!said_bye(), "runs until its pipe ends or it is killed"),
            _ => assert!(role.is_empty(), "an unknown role {role}"),
        }
    }

    fn gateway(dir: &Path) -> Child {
        let mut command = myself("gateway", dir);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).current_dir(dir);
        command.kill_on_drop(true).spawn().unwrap()
    }

    #[tokio::test]
    async fn the_end_of_the_pipe_cleans_up_and_spares_others() {
        let dir = scratch::create("onceway-test").unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let mut inside = gateway(&dir);
        // `wait` would close the pipe, and so end the child before the janitor does.
        let _open = inside.stdin.take();
        let mut outside = gateway(elsewhere.path());
        let mut foreign =
            Command::new("sleep").arg("600").current_dir(&dir).kill_on_drop(true).spawn().unwrap();
        let janitor = Janitor::launch(myself("janitor", &dir)).unwrap();
        let pid = Pid::from_raw(i32::try_from(janitor.pid().unwrap()).unwrap()).unwrap();

        // The mask in /proc shows that the janitor catches the terminal's signals.
        let deaf = async || Ok(catches(pid, &[1, 2, 15]).then_some(()));
        wait::for_some("the janitor to catch signals", BOUND, deaf).await.unwrap();
        use rustix::process::Signal;
        for deaf_to in [Signal::INT, Signal::TERM, Signal::HUP] {
            proctable::signal(pid, deaf_to);
        }
        drop(janitor);
        let status = timeout(BOUND, inside.wait()).await.unwrap().unwrap();
        assert!(status.to_string().contains("signal: 9"), "{status}");
        let gone = async || Ok((!dir.exists()).then_some(()));
        wait::for_some("the folder to go", BOUND, gone).await.unwrap();
        assert!(outside.try_wait().unwrap().is_none() && foreign.try_wait().unwrap().is_none());
        foreign.kill().await.unwrap();
        outside.kill().await.unwrap();
    }

    fn catches(pid: Pid, signals: &[u32]) -> bool {
        let status = procfs::process::Process::new(pid.as_raw_pid()).and_then(|process| process.status());
        status.is_ok_and(|of| signals.iter().all(|signal| of.sigcgt & (1 << (signal - 1)) != 0))
    }

    #[tokio::test]
    async fn a_dismissed_janitor_touches_nothing() {
        let dir = scratch::create("onceway-test").unwrap();
        let mut inside = gateway(&dir);
        Janitor::launch(myself("janitor", &dir)).unwrap().dismiss().await.unwrap();
        assert!(dir.exists() && inside.try_wait().unwrap().is_none());
        inside.kill().await.unwrap();
        scratch::delete(&dir).unwrap();
    }
}
