//! One region of a deployment on one machine: its Postgres, its gateway, and what can be done to them.
//!
//! Neighbours: `deployment` holds three, `control` takes them apart. A region's sample upstream is not part of it: a provider is
//! somebody else's machine, and does not die with the region. It must not know what the gateway does.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::Signal;
use serde::Serialize;
use tokio::net::TcpStream;

use super::client::Ask;
use super::cluster::Cluster;
use super::ports::RegionPorts;
use super::process::{Launch, Process, State};
use super::wait;
use crate::protocol::region::RegionName;

/// How long a gateway may take until all its listeners accept connections.
const GATEWAY_STARTS_WITHIN: Duration = Duration::from_secs(20);
/// How long an orderly stop of one part may take before it is killed.
const STOP_WITHIN: Duration = Duration::from_secs(8);

/// What a control is meant for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Gateway and Postgres.
    Both,
    /// The gateway only.
    Gateway,
    /// Postgres only.
    Postgres,
}

/// What can be done to a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// SIGKILL.
    Kill,
    /// An orderly stop.
    Stop,
    /// Start what does not run, resume what is paused.
    Start,
    /// SIGSTOP.
    Pause,
    /// SIGCONT.
    Resume,
}

/// One region.
pub struct Region {
    /// Its name.
    pub name: RegionName,
    /// Its ports.
    pub ports: RegionPorts,
    /// Its Postgres.
    pub cluster: Cluster,
    launch: Launch,
    gateway: Mutex<Option<Arc<Process>>>,
    /// The protocol versions that its next gateway is told to speak; all that it can, if `None`.
    speaks: Mutex<Option<String>>,
    /// One control at a time, so that a start does not meet a kill half way.
    busy: tokio::sync::Mutex<()>,
}

/// A region as shown to people outside.
#[derive(Clone, Debug, Serialize)]
pub struct Shown {
    /// Name.
    pub name: String,
    /// Public listener.
    pub public: String,
    /// Admin listener.
    pub admin: String,
    /// Sample upstream.
    pub upstream: String,
    /// Postgres, as its superuser.
    pub postgres: String,
    /// The gateway's process, while it lives.
    pub gateway_pid: Option<u32>,
    /// The postmaster's process, while it lives.
    pub postgres_pid: Option<u32>,
    /// running, paused or down.
    pub gateway: &'static str,
    /// running, paused or down.
    pub postgres_state: &'static str,
    /// running if both are, paused if either is paused, else down.
    pub state: &'static str,
}

impl Region {
    /// A region whose parts are not started.
    pub fn new(name: RegionName, ports: RegionPorts, cluster: Cluster, launch: Launch) -> Self {
        let (gateway, speaks, busy) = Default::default();
        Self { name, ports, cluster, launch, gateway, speaks, busy }
    }

    /// Does `action` to `part`. Starting is idempotent and returns when the started parts accept connections.
    pub async fn act(&self, action: Action, part: Part) -> Result<()> {
        let _one_at_a_time = self.busy.lock().await;
        let (gateway, postgres) = (part != Part::Postgres, part != Part::Gateway);
        match action {
            Action::Start => {
                if postgres {
                    self.cluster.start().await?;
                }
                if gateway {
                    self.start_gateway().await?;
                }
            }
            Action::Kill => {
                if gateway && let Some(process) = self.process() {
                    process.kill().await?;
                }
                if postgres {
                    self.cluster.kill().await?;
                }
            }
            Action::Stop => {
                if gateway && let Some(process) = self.process() {
                    process.stop(Signal::TERM, STOP_WITHIN).await?;
                }
                if postgres {
                    self.cluster.stop(STOP_WITHIN).await?;
                }
            }
            Action::Pause => {
                if gateway {
                    self.process().context("this gateway does not run and cannot be paused")?.pause().await?;
                }
                if postgres {
                    self.cluster.pause().await?;
                }
            }
            Action::Resume => {
                if postgres {
                    self.cluster.resume().await?;
                }
                if gateway && let Some(process) = self.process() {
                    process.resume().await?;
                }
            }
        }
        Ok(())
    }

    async fn start_gateway(&self) -> Result<()> {
        let process = match self.process() {
            Some(process) => {
                process.resume().await?;
                process
            }
            None => {
                let mut launch = self.launch.clone();
                let speaks = self.speaks.lock().unwrap_or_else(PoisonError::into_inner).clone();
                launch.args.extend(speaks.map(|speaks| format!("--speaks={speaks}").into()));
                let process = Arc::new(Process::spawn(&launch)?);
                *self.gateway.lock().unwrap_or_else(PoisonError::into_inner) = Some(process.clone());
                process
            }
        };
        let ports = [self.ports.public, self.ports.admin, self.ports.peer];
        let accepting = async || {
            if let State::Exited { how } = process.state() {
                anyhow::bail!(
                    "the gateway of {} ended while starting ({how}): {}",
                    self.name,
                    process.log_tail()
                );
            }
            for port in ports {
                if TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_err() {
                    return Ok(None);
                }
            }
            Ok(Some(()))
        };
        wait::for_some(&format!("the gateway of {} to listen", self.name), GATEWAY_STARTS_WITHIN, accepting)
            .await
    }

    /// Has the gateways that are started from now on speak these protocol versions only, such as `1-1`; all, if `None`.
    pub fn speak(&self, versions: Option<&str>) {
        *self.speaks.lock().unwrap_or_else(PoisonError::into_inner) = versions.map(str::to_owned);
    }

    /// Founds the deployment's register from here, as a user would; does nothing if it is founded.
    pub async fn found(&self, within: Duration) -> Result<()> {
        let founded = async || {
            let status = Ask::get(format!("{}/v1/status", self.admin())).send(Duration::from_secs(2)).await;
            if status.is_ok_and(|status| status.json()["authority"]["founded"] == true) {
                return Ok(Some(()));
            }
            let told = self.run(&["init"]).await?;
            let said = String::from_utf8_lossy(&told.stderr).into_owned();
            match told.status.code() {
                Some(0) => Ok(Some(())),
                // Not yet: somebody is not up.
                Some(3) => Ok(None),
                _ => anyhow::bail!("`onceway init` failed: {said}"),
            }
        };
        wait::for_some("the register to be founded", within, founded).await
    }

    /// Runs the program with this region's file: `onceway WORDS --config FILE`.
    pub async fn run(&self, words: &[&str]) -> Result<std::process::Output> {
        let mut command = tokio::process::Command::new(&self.launch.program);
        let config = self.launch.args.iter().skip_while(|arg| *arg != "--config");
        command.args(words).args(config).current_dir(&self.launch.cwd).kill_on_drop(true);
        command.output().await.with_context(|| format!("cannot run `onceway {}`", words.join(" ")))
    }

    /// Runs the program as an operator who asks this region's gateway: `onceway WORDS --admin URL`.
    pub async fn operate(&self, words: &[&str]) -> Result<std::process::Output> {
        let mut command = tokio::process::Command::new(&self.launch.program);
        command.args(words).args(["--admin", &self.admin()]).current_dir(&self.launch.cwd).kill_on_drop(true);
        command.output().await.with_context(|| format!("cannot run `onceway {}`", words.join(" ")))
    }

    /// The gateway's process, while it lives.
    pub fn process(&self) -> Option<Arc<Process>> {
        let gateway = self.gateway.lock().unwrap_or_else(PoisonError::into_inner);
        gateway.clone().filter(|process| !matches!(process.state(), State::Exited { .. }))
    }

    /// Where the gateway writes its log.
    pub fn gateway_log(&self) -> &PathBuf {
        &self.launch.log
    }

    /// The address of the gateway's public listener.
    pub fn public(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports.public)
    }

    /// The address of the gateway's admin listener.
    pub fn admin(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports.admin)
    }

    /// The region as shown to people outside.
    pub fn show(&self) -> Shown {
        let process = self.process();
        let gateway = word(process.as_ref().map(|process| process.state()));
        let postgres = word(self.cluster.state());
        let state = match (gateway, postgres) {
            ("running", "running") => "running",
            ("paused", _) | (_, "paused") => "paused",
            _ => "down",
        };
        Shown {
            name: self.name.to_string(),
            public: self.public(),
            admin: self.admin(),
            upstream: format!("http://127.0.0.1:{}", self.ports.upstream),
            postgres: self.cluster.url(super::files::DATABASE),
            gateway_pid: process.map(|process| process.pid()),
            postgres_pid: self.cluster.pid(),
            gateway,
            postgres_state: postgres,
            state,
        }
    }
}

fn word(state: Option<State>) -> &'static str {
    match state {
        Some(State::Running) => "running",
        Some(State::Paused) => "paused",
        Some(State::Exited { .. }) | None => "down",
    }
}
