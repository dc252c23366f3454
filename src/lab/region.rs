//! One region of a deployment on one machine: its Postgres, its gateway or several that share it
//! behind one address, and the controls of both. Its sample upstream is not part of it: a provider
//! is another company's machine, and does not die with the region.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::balancer::{self, Readiness};
use super::cluster::Cluster;
use super::gateway::{Action, Gateway, STOP_WITHIN, word};
use super::ports::{RegionPorts, local};
use super::process::{Launch, Process};
use super::{status, wait};
use onceway_protocol::region::RegionName;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    Both,
    /// The gateway, or all of them if the region has several.
    Gateway,
    Postgres,
}

pub struct Region {
    pub name: RegionName,
    pub ports: RegionPorts,
    pub cluster: Cluster,
    /// Its gateways; at least one.
    pub gateways: Vec<Arc<Gateway>>,
    _address: Option<(Readiness, [JoinSet<()>; 3])>,
    launch: Launch,
    /// One control at a time, so that a start does not meet an unfinished kill.
    busy: tokio::sync::Mutex<()>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Shown {
    pub name: String,
    pub public: String,
    pub admin: String,
    pub upstream: String,
    /// Postgres, as its superuser.
    pub postgres: String,
    pub gateway_pid: Option<u32>,
    pub postgres_pid: Option<u32>,
    pub gateway: &'static str,
    pub postgres_state: &'static str,
    /// running if both are, paused if either is paused, else down.
    pub state: &'static str,
}

impl Region {
    /// A region of one gateway, whose parts are not started.
    pub fn new(name: RegionName, ports: RegionPorts, cluster: Cluster, launch: Launch) -> Self {
        let gateways = vec![Arc::new(Gateway::new(ports, launch.clone()))];
        let busy = tokio::sync::Mutex::default();
        Self { name, ports, cluster, gateways, _address: None, launch, busy }
    }

    /// Makes these gateways share the store behind the region's address, in place of its one.
    pub async fn share(mut self, gateways: Vec<Arc<Gateway>>) -> Result<Self> {
        let ready = gateways.iter().map(|gateway| format!("{}/readyz", gateway.admin()));
        let readiness = Readiness::watch(ready, false);
        let balancer = async |of: fn(&RegionPorts) -> u16| {
            let at = |gateway: &Arc<Gateway>| local(of(&gateway.ports));
            balancer::start(of(&self.ports), gateways.iter().map(at).collect(), &readiness).await
        };
        let balancers = [
            balancer(|ports| ports.public).await?,
            balancer(|ports| ports.admin).await?,
            balancer(|ports| ports.peer).await?,
        ];
        self._address = Some((readiness, balancers));
        self.gateways = gateways;
        Ok(self)
    }

    /// Starting is idempotent and returns when the started parts accept connections.
    pub async fn act(&self, action: Action, part: Part) -> Result<()> {
        let _one_at_a_time = self.busy.lock().await;
        let (gateways, postgres) = (part != Part::Postgres, part != Part::Gateway);
        // A start begins with Postgres; an end ends with it.
        if postgres {
            match action {
                Action::Start => self.cluster.start().await?,
                Action::Resume => self.cluster.resume().await?,
                Action::Kill | Action::Stop | Action::Pause => {}
            }
        }
        let mut acting = JoinSet::new();
        for gateway in self.gateways.iter().filter(|_| gateways) {
            let gateway = gateway.clone();
            acting.spawn(async move { gateway.act(action).await });
        }
        while let Some(done) = acting.join_next().await {
            done?.with_context(|| self.name.to_string())?;
        }
        if postgres {
            match action {
                Action::Kill => self.cluster.kill().await?,
                Action::Stop => self.cluster.stop(STOP_WITHIN).await?,
                Action::Pause => self.cluster.pause().await?,
                Action::Start | Action::Resume => {}
            }
        }
        Ok(())
    }

    /// Does `action` to one of its gateways, by number, and leaves the others alone.
    pub async fn act_on(&self, number: usize, action: Action) -> Result<()> {
        let _one_at_a_time = self.busy.lock().await;
        let gateway = self.gateways.get(number).context("no gateway of this number")?;
        gateway.act(action).await.with_context(|| self.name.to_string())
    }

    /// Limits the gateways' next processes to these protocol versions, such as `1-2`.
    pub fn speak(&self, versions: Option<&str>) {
        self.gateways.iter().for_each(|gateway| gateway.speak(versions));
    }

    /// Founds the deployment's register from here, as a user would; does nothing if it is founded.
    pub async fn found(&self, within: Duration) -> Result<()> {
        let founded = async || {
            if status(&self.admin(), Duration::from_secs(2)).await["authority"]["founded"] == true {
                return Ok(Some(()));
            }
            // Not yet: some region is not up.
            self.tried(&["init"], "`onceway init` failed").await
        };
        wait::for_some("the register to be founded", within, founded).await
    }

    pub fn program(&self) -> &Path {
        &self.launch.program
    }

    /// Makes the schema of its store, with what other regions copy from it and it from them.
    pub async fn provision(&self, within: Duration) -> Result<()> {
        // Not yet: the store of another region is not there.
        let provisioned = async || self.tried(&["store", "init"], "`onceway store init`").await;
        wait::for_some(&format!("the store of {}", self.name), within, provisioned).await
    }

    /// Runs the program as [`Region::run`] does. Exit code 3 says that it is not possible yet.
    async fn tried(&self, words: &[&str], what: &str) -> Result<Option<()>> {
        let ended = self.run(words).await?;
        match ended.status.code() {
            Some(0) => Ok(Some(())),
            Some(3) => Ok(None),
            _ => bail!("{what}: {}", String::from_utf8_lossy(&ended.stderr)),
        }
    }

    /// Runs the program with this region's file: `onceway WORDS --config FILE`.
    pub async fn run(&self, words: &[&str]) -> Result<Output> {
        self.output(words, self.launch.args.iter().skip_while(|arg| *arg != "--config")).await
    }

    /// Runs the program as an operator with this region's gateway: `onceway WORDS --admin URL`.
    pub async fn operate(&self, words: &[&str]) -> Result<Output> {
        self.output(words, ["--admin", &self.admin()]).await
    }

    async fn output<S: AsRef<OsStr>>(
        &self,
        words: &[&str],
        more: impl IntoIterator<Item = S>,
    ) -> Result<Output> {
        let mut command = tokio::process::Command::new(&self.launch.program);
        command.args(words).args(more).current_dir(&self.launch.cwd).kill_on_drop(true);
        command.output().await.with_context(|| format!("cannot run `onceway {}`", words.join(" ")))
    }

    pub fn process(&self) -> Option<Arc<Process>> {
        self.gateways.first()?.process()
    }

    pub fn gateway_log(&self) -> &PathBuf {
        self.gateways.first().map_or(&self.launch.log, |first| first.log())
    }

    pub fn public(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports.public)
    }

    pub fn admin(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports.admin)
    }

    pub fn show(&self) -> Shown {
        let process = self.process();
        let gateway = self.gateways.first().map_or("down", |first| first.word());
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
