//! One gateway process of a region: its addresses, start, stop, pause and death. A `region` holds
//! one gateway, or several that share its Postgres behind a `balancer`.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use serde::Deserialize;
use tokio::net::TcpStream;

use super::ports::{RegionPorts, local};
use super::process::{Launch, Process, State};
use super::{lock, wait};

const STARTS_WITHIN: Duration = Duration::from_secs(20);
/// Time limit of an orderly stop of one part of a region; then the part is killed.
pub(super) const STOP_WITHIN: Duration = Duration::from_secs(8);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// SIGKILL.
    Kill,
    Stop,
    /// Starts a part that does not run, resumes a paused one.
    Start,
    /// SIGSTOP.
    Pause,
    /// SIGCONT.
    Resume,
}

pub struct Gateway {
    /// Its region's ports, with its own listeners.
    pub ports: RegionPorts,
    launch: Launch,
    process: Mutex<Option<Arc<Process>>>,
    /// Protocol versions for the next process; all that it can speak, if `None`.
    speaks: Mutex<Option<String>>,
}

impl Gateway {
    pub fn new(ports: RegionPorts, launch: Launch) -> Self {
        Self { ports, launch, process: Mutex::default(), speaks: Mutex::default() }
    }

    /// Limits the next process to these protocol versions, such as `1-2`; no limit if `None`.
    pub fn speak(&self, versions: Option<&str>) {
        *lock(&self.speaks) = versions.map(str::to_owned);
    }

    pub fn log(&self) -> &PathBuf {
        &self.launch.log
    }

    pub fn public(&self) -> String {
        format!("http://{}", local(self.ports.public))
    }

    pub fn admin(&self) -> String {
        format!("http://{}", local(self.ports.admin))
    }

    pub fn process(&self) -> Option<Arc<Process>> {
        lock(&self.process).clone().filter(|process| process.lives())
    }

    /// Performs the action; a start returns when all listeners accept connections. If the gateway
    /// does not run, only a pause is an error.
    pub async fn act(&self, action: Action) -> Result<()> {
        match (action, self.process()) {
            (Action::Start, process) => self.start(process).await,
            (Action::Kill, Some(process)) => process.kill().await,
            (Action::Stop, Some(process)) => process.stop(Signal::TERM, STOP_WITHIN).await.map(drop),
            (Action::Pause, Some(process)) => process.pause().await,
            (Action::Resume, Some(process)) => process.resume().await,
            (Action::Pause, None) => bail!("this gateway does not run and cannot be paused"),
            (Action::Kill | Action::Stop | Action::Resume, None) => Ok(()),
        }
    }

    async fn start(&self, runs: Option<Arc<Process>>) -> Result<()> {
        let process = match runs {
            Some(process) => {
                process.resume().await?;
                process
            }
            None => {
                let mut launch = self.launch.clone();
                let speaks = lock(&self.speaks).clone();
                launch.args.extend(speaks.map(|speaks| format!("--speaks={speaks}").into()));
                let process = Arc::new(Process::spawn(&launch)?);
                *lock(&self.process) = Some(process.clone());
                process
            }
        };
        let RegionPorts { public, admin, peer, .. } = self.ports;
        let accepting = async || {
            if let State::Exited { how } = process.state() {
                bail!("it ended while starting ({how}): {}", process.log_tail());
            }
            for port in [public, admin, peer] {
                if TcpStream::connect(local(port)).await.is_err() {
                    return Ok(None);
                }
            }
            Ok(Some(()))
        };
        let here = self.launch.cwd.display();
        wait::for_some(&format!("the gateway in {here} to listen"), STARTS_WITHIN, accepting)
            .await
            .with_context(|| format!("the gateway with log {}", self.launch.log.display()))
    }

    pub fn word(&self) -> &'static str {
        word(self.process().map(|process| process.state()))
    }
}

pub(super) fn word(state: Option<State>) -> &'static str {
    match state {
        Some(State::Running) => "running",
        Some(State::Paused) => "paused",
        Some(State::Exited { .. }) | None => "down",
    }
}
