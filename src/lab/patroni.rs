//! A region's Postgres under Patroni: a primary and a synchronous standby of two servers, one etcd,
//! and one address that follows the primary. Patroni alone decides who is the primary.
//!
//! It takes over the region's own server, and the last primary's folder becomes the region's again.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use tokio::task::JoinSet;

use super::account::Account;
use super::balancer::{self, Readiness};
use super::binaries::Binaries;
use super::cluster::{Cluster, SUPERUSER, connect, kill_all_in};
use super::ports::local;
use super::process::{Launch, Process, State};
use super::{ports, wait};
use onceway_client::Ask;

/// Time limit for a server to become the primary, or a standby to be copied and follow.
const READY_WITHIN: Duration = Duration::from_secs(90);
const LOOKS_WITHIN: Duration = Duration::from_secs(1);

/// A data folder. Dropping it kills the server that works there, and puts back the settings, which
/// Patroni keeps under another name.
struct Data(PathBuf);

impl Drop for Data {
    fn drop(&mut self) {
        let _ = kill_all_in(&self.0);
        let _ = fs::rename(self.0.join("postgresql.base.conf"), self.0.join("postgresql.conf"));
    }
}

/// One server, with its Patroni, which ends first: it would start the server again.
struct Node {
    name: &'static str,
    patroni: Process,
    data: Data,
    postgres: u16,
    rest: u16,
}

/// A primary and its standby. Dropping them ends everything of theirs.
pub struct Pair {
    primary: Node,
    standby: Node,
    _etcd: Process,
    _address: (Readiness, JoinSet<()>),
}

/// Checks that the programs are there. The error names what to type, in one line.
pub fn check() -> Result<()> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let is_on_path = |name: &str| std::env::split_paths(&folders).any(|folder| folder.join(name).is_file());
    let missing: Vec<&str> = ["patroni", "etcd"].into_iter().filter(|name| !is_on_path(name)).collect();
    ensure!(
        missing.is_empty(),
        "{} must be on PATH: type `sudo apt-get install patroni python3-etcd etcd-server`, or `pip install 'patroni[etcd3,psycopg3]'` and get etcd",
        missing.join(" and ")
    );
    let copies = Binaries::find()?.program("pg_basebackup");
    let copies_by = copies.display();
    ensure!(
        copies.is_file(),
        "{copies_by} is not there, by which Patroni makes a standby: take a whole Postgres"
    );
    Ok(())
}

/// True if an executable may be a part of a pair, beside Postgres.
pub(crate) fn is_part(exe: &Path) -> bool {
    let name = exe.file_name().unwrap_or_default().to_string_lossy();
    name == "etcd" || name.starts_with("python3")
}

impl Pair {
    /// Hands the stopped server of `cluster` to Patroni, adds a standby, and returns when every
    /// commit waits for the standby. The cluster's port is from now on the primary's address.
    pub async fn start(cluster: &Cluster) -> Result<Pair> {
        let data = cluster.data();
        let dir = data.with_file_name("patroni");
        // What an earlier pair left.
        if dir.exists() {
            fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))?;
        }
        let account = Account::for_postgres()?;
        fs::create_dir_all(&dir).with_context(|| format!("cannot make folder {}", dir.display()))?;
        Account::own(account.as_ref(), &dir)?;
        let first = ports::free_run(6)?;
        let etcd = launch("etcd", etcd(first), &dir, account.as_ref())?;
        let node = |name: &'static str, data: PathBuf, postgres: u16| -> Result<Node> {
            let file = dir.join(format!("{name}.yml"));
            fs::write(&file, config(name, &dir, &data, (postgres, first))?)
                .with_context(|| format!("cannot write {}", file.display()))?;
            let patroni = launch("patroni", vec![file.into()], &dir, account.as_ref())?;
            Ok(Node { name, patroni, data: Data(data), postgres, rest: postgres + 1 })
        };
        let primary = node("a", data, first + 2)?;
        primary.leads().await?;
        let standby = node("b", dir.join("data"), first + 4)?;
        let nodes = [&primary, &standby];
        let readiness = Readiness::watch(nodes.map(|node| format!("{}/primary", node.url())), true);
        let targets = nodes.map(|node| local(node.postgres));
        let balancer = balancer::start(cluster.port(), targets.to_vec(), &readiness).await?;
        let pair = Pair { primary, standby, _etcd: etcd, _address: (readiness, balancer) };
        let client = connect(pair.primary.postgres, SUPERUSER).await?;
        let waits = "select from pg_stat_replication where sync_state = 'sync' and state = 'streaming'";
        let synchronous = async || Ok(client.query_opt(waits, &[]).await?.map(drop));
        wait::for_some("a synchronous standby", READY_WITHIN, synchronous)
            .await
            .with_context(|| pair.standby.patroni.log_tail())?;
        Ok(pair)
    }

    /// Sends SIGKILL to the primary and its Patroni, as if their machine had died.
    pub async fn kill_primary(&self) -> Result<()> {
        self.primary.patroni.kill().await?;
        tokio::task::block_in_place(|| kill_all_in(&self.primary.data.0))
    }

    /// Reads from the standby, past the primary's address. Waits until it has replayed what it has.
    pub async fn at_rest(&self, database: &str) -> Result<tokio_postgres::Client> {
        let client = connect(self.standby.postgres, database).await?;
        let replayed = async || {
            let sql = "select where pg_is_in_recovery() and pg_last_wal_replay_lsn() >= pg_last_wal_receive_lsn() \
                          and not exists (select from pg_stat_wal_receiver)";
            Ok(client.query_opt(sql, &[]).await?.map(drop))
        };
        wait::for_some("the standby to replay what it has", READY_WITHIN, replayed).await?;
        Ok(client)
    }

    pub async fn promoted(&self) -> Result<()> {
        self.standby.leads().await
    }

    /// Ends Patroni. The last primary's folder becomes that of the cluster.
    pub async fn hand_back(self, cluster: &Cluster, is_promoted: bool) -> Result<()> {
        let Pair { primary, standby, _etcd, _address } = self;
        for Node { patroni, data, .. } in [&standby, &primary] {
            // Patroni stops its server in order, unless both are dead.
            patroni.stop(Signal::TERM, READY_WITHIN).await?;
            tokio::task::block_in_place(|| kill_all_in(&data.0))?;
        }
        if is_promoted {
            fs::remove_dir_all(cluster.data())?;
            fs::rename(&standby.data.0, cluster.data())
                .context("cannot move the promoted server's folder")?;
        }
        Ok(())
    }
}

impl Node {
    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.rest)
    }

    async fn leads(&self) -> Result<()> {
        let asked = Ask::get(format!("{}/primary", self.url()));
        let leads = async || {
            if let State::Exited { how } = self.patroni.state() {
                bail!("its Patroni ended: {how}");
            }
            Ok(asked.send(LOOKS_WITHIN).await.is_ok_and(|answer| answer.status == 200).then_some(()))
        };
        let waited = wait::for_some(&format!("server {} to lead", self.name), READY_WITHIN, leads).await;
        waited.with_context(|| self.patroni.log_tail())
    }
}

fn launch(program: &str, args: Vec<OsString>, dir: &Path, account: Option<&Account>) -> Result<Process> {
    Process::spawn(&Launch {
        program: program.into(),
        args,
        env: vec![("HOME".into(), dir.into())],
        cwd: dir.to_owned(),
        log: dir.with_file_name("patroni.log"),
        account: account.cloned(),
    })
}

fn etcd(first: u16) -> Vec<OsString> {
    let (clients, peers) = (format!("http://127.0.0.1:{first}"), format!("http://127.0.0.1:{}", first + 1));
    let args = [
        ("data-dir", "etcd"),
        ("listen-client-urls", &clients),
        ("advertise-client-urls", &clients),
        ("listen-peer-urls", &peers),
        ("initial-advertise-peer-urls", &peers),
        ("initial-cluster", &format!("default={peers}")),
    ];
    args.iter().map(|(name, value)| format!("--{name}={value}").into()).collect()
}

/// The file of a Patroni. Shorter spans are refused by newer ones; without `ignore_slots` Patroni
/// drops the slots of other regions.
fn config(name: &str, dir: &Path, data: &Path, (postgres, etcd): (u16, u16)) -> Result<String> {
    let programs = Binaries::find()?.postgres();
    let programs = programs.parent().context("a program is in a folder")?;
    Ok(format!(
        "\
scope: onceway
name: {name}
restapi: {{ listen: \"127.0.0.1:{rest}\", connect_address: \"127.0.0.1:{rest}\" }}
etcd3: {{ hosts: \"127.0.0.1:{etcd}\" }}
bootstrap:
  dcs:
    ttl: 20
    loop_wait: 1
    retry_timeout: 3
    synchronous_mode: true
    ignore_slots: [{{ type: logical, plugin: pgoutput }}]
    postgresql:
      parameters: {{ wal_level: logical, max_connections: 200, max_wal_senders: 20, max_replication_slots: 20, max_worker_processes: 24 }}
postgresql:
  listen: 127.0.0.1:{postgres}
  connect_address: 127.0.0.1:{postgres}
  data_dir: {data}
  bin_dir: {programs}
  pgpass: {dir}/{name}.pgpass
  authentication: {{ superuser: {{ username: {SUPERUSER} }}, replication: {{ username: {SUPERUSER} }} }}
  parameters: {{ unix_socket_directories: \"\" }}
",
        rest = postgres + 1,
        data = data.display(),
        programs = programs.display(),
        dir = dir.display(),
    ))
}
