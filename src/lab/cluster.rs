//! One private Postgres, the key store of one region of a fleet: made, started, killed, paused,
//! deleted. It listens on loopback TCP only and trusts every client: for one machine and test data.
//! The server is a child of this process, so that a killed one is reaped at once and can start
//! again. No setting here lets a key into the log.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::process::Signal;
use tokio::process::Command;
use tokio::time::timeout;
use tokio_postgres::NoTls;

use super::account::Account;
use super::binaries::Binaries;
use super::process::{Launch, Process, State};
use super::{lock, proctable, shared_memory, template, wait};

/// The superuser of every private cluster; no password.
pub const SUPERUSER: &str = "postgres";
const START_BOUND: Duration = Duration::from_secs(60);
const TRY_BOUND: Duration = Duration::from_secs(5);
const STRAY_BOUND: Duration = Duration::from_secs(10);
const SETTINGS_FILE: &str = "onceway.conf";

/// Settings of a server for tests and demos. The log never contains a statement, its parameters or
/// a DETAIL line. `syncfs` is one call: one for each file would take seconds on a busy disk.
const SETTINGS: [(&str, &str); 33] = [
    ("listen_addresses", "127.0.0.1"),
    ("unix_socket_directories", ""),
    ("wal_level", "logical"),
    ("fsync", "on"),
    ("recovery_init_sync_method", "syncfs"),
    ("max_wal_senders", "20"),
    ("max_replication_slots", "20"),
    ("max_logical_replication_workers", "16"),
    ("max_worker_processes", "24"),
    ("wal_retrieve_retry_interval", "200ms"),
    ("wal_sender_timeout", "10s"),
    ("wal_receiver_timeout", "10s"),
    ("wal_writer_delay", "10ms"),
    ("max_slot_wal_keep_size", "4GB"),
    ("jit", "off"),
    ("shared_buffers", "64MB"),
    ("max_connections", "200"),
    ("dynamic_shared_memory_type", "mmap"),
    ("timezone", "UTC"),
    ("log_timezone", "UTC"),
    ("logging_collector", "off"),
    ("log_destination", "stderr"),
    ("log_line_prefix", "%m [%p] "),
    ("log_min_messages", "warning"),
    ("log_min_error_statement", "panic"),
    ("log_error_verbosity", "terse"),
    ("log_statement", "none"),
    ("log_duration", "off"),
    ("log_min_duration_statement", "-1"),
    ("log_parameter_max_length", "0"),
    ("log_parameter_max_length_on_error", "0"),
    ("log_checkpoints", "off"),
    ("log_autovacuum_min_duration", "-1"),
];

/// A private Postgres. Dropping it kills every process of it (blocking); its files stay.
#[derive(Debug)]
pub struct Cluster {
    binaries: Binaries,
    dir: PathBuf,
    port: u16,
    account: Option<Account>,
    server: Mutex<Option<Arc<Process>>>,
    /// One start at a time: Postgres refuses two servers on one folder, and that would look like a
    /// failure.
    starting: tokio::sync::Mutex<()>,
}

impl Cluster {
    /// Makes the data folder in `dir` unless it exists, as a copy of the user's template if there
    /// is one. `settings` (name, value) override the default ones. Starts nothing. Errors name the
    /// folder or show the output of `initdb`.
    pub async fn create(
        binaries: &Binaries,
        dir: &Path,
        port: u16,
        settings: &[(&str, &str)],
    ) -> Result<Cluster> {
        let account = Account::for_postgres()?;
        fs::create_dir_all(dir).with_context(|| format!("cannot make folder {}", dir.display()))?;
        let dir = dir.canonicalize()?;
        if let Some(account) = &account {
            account.check_can_reach(&dir)?;
        }
        Account::own(account.as_ref(), &dir)?;
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755))?;
        let cluster = Cluster {
            binaries: binaries.clone(),
            dir,
            port,
            account,
            server: Mutex::default(),
            starting: tokio::sync::Mutex::default(),
        };
        if !cluster.data().join("PG_VERSION").exists() {
            cluster.copy_or_make().await?;
        }
        cluster.write_settings(settings)?;
        Ok(cluster)
    }

    async fn copy_or_make(&self) -> Result<()> {
        let Some(place) = template::place(&self.binaries, self.account.as_ref()) else {
            return self.initdb().await;
        };
        let fresh = self.unfinished()?;
        let (from, binaries, account) = (place.clone(), self.binaries.clone(), self.account.clone());
        let make = move || template::make(&from, &fresh, &binaries, account.as_ref());
        if tokio::task::spawn_blocking(make).await? {
            return self.finish();
        }
        self.initdb().await?;
        let data = self.data();
        tokio::task::spawn_blocking(move || template::keep(&data, &place)).await?;
        Ok(())
    }

    /// The data folder's name until it is whole. Removes what an earlier try left there.
    fn unfinished(&self) -> Result<PathBuf> {
        let fresh = self.dir.join("data.new");
        if fresh.exists() {
            remove(&fresh)?;
        }
        Ok(fresh)
    }

    fn finish(&self) -> Result<()> {
        let fresh = self.dir.join("data.new");
        fs::rename(&fresh, self.data()).with_context(|| format!("cannot rename {}", fresh.display()))
    }

    async fn initdb(&self) -> Result<()> {
        let fresh = self.unfinished()?;
        let program = self.binaries.program("initdb");
        let mut command = Command::new(&program);
        let options = "-A trust --no-sync --no-instructions -E UTF8 --locale=C";
        command.args(options.split(' ')).args(["-U", SUPERUSER, "-D"]).arg(&fresh);
        command.current_dir(&self.dir).kill_on_drop(true);
        if let Some(account) = &self.account {
            command.uid(account.uid).gid(account.gid);
        }
        let output = command.output().await;
        let output = output.with_context(|| format!("cannot run {}", program.display()))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "initdb failed in {}: {}", self.dir.display(), said.trim());
        let main_file = fresh.join("postgresql.conf");
        let text = fs::read_to_string(&main_file)?;
        fs::write(&main_file, format!("{text}\ninclude '{SETTINGS_FILE}'\n"))?;
        self.finish()
    }

    /// Deletes the data folder of a stopped cluster and makes an empty one, with a system
    /// identifier of its own: it is another store.
    pub async fn make_anew(&self) -> Result<()> {
        remove(&self.data())?;
        self.initdb().await?;
        self.write_settings(&[])
    }

    fn write_settings(&self, settings: &[(&str, &str)]) -> Result<()> {
        let mut text = format!(
            "# Written by onceway at each start of the deployment: changes here are lost.\nport = {}\n",
            self.port
        );
        for (name, value) in SETTINGS.iter().chain(settings) {
            writeln!(text, "{name} = '{}'", value.replace('\'', "''"))?;
        }
        let path = self.data().join(SETTINGS_FILE);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Account::own(self.account.as_ref(), &path)
    }

    /// Starts the server, or resumes a paused one, and waits until it accepts connections. Errors
    /// carry the tail of its log. Takes at most about a minute.
    pub async fn start(&self) -> Result<()> {
        let _one_at_a_time = self.starting.lock().await;
        let server = match self.server() {
            Some(server) if server.lives() => {
                server.resume().await?;
                server
            }
            _ => self.spawn().await?,
        };
        let trouble = Mutex::new(String::new());
        let note = |what| *lock(&trouble) = what;
        let answering = async || {
            // A foreign listener may accept the connection and never answer. A server that ended is
            // not worth a wait.
            let tried = tokio::select! {
                biased;
                how = server.exited() => Err(anyhow!("{how}")),
                tried = timeout(TRY_BOUND, self.answers()) => tried.context("no word from the server").flatten(),
            };
            let Err(error) = tried else { return Ok(Some(())) };
            if let State::Exited { how } = server.state() {
                note(how);
                bail!("Postgres on port {} ended while starting", self.port);
            }
            note(format!("{error:#}"));
            Ok(None)
        };
        let what = format!("Postgres on port {} to answer", self.port);
        wait::for_some(&what, START_BOUND, answering).await.map_err(|error| {
            let trouble = lock(&trouble);
            anyhow!("{error} ({trouble}): {}", server.log_tail())
        })
    }

    async fn spawn(&self) -> Result<Arc<Process>> {
        // Backends of a killed server may take a moment to notice. A new server must not meet them.
        self.kill_strays().await?;
        let pid_file = self.data().join("postmaster.pid");
        if pid_file.exists() {
            // The old process is over. But its number may by now belong to another process, and
            // that would prevent the start.
            shared_memory::release(&self.data());
            fs::remove_file(&pid_file).with_context(|| format!("cannot remove {}", pid_file.display()))?;
        }
        let server = Arc::new(Process::spawn(&Launch {
            program: self.binaries.postgres(),
            args: vec!["-D".into(), self.data().into()],
            // Subscriptions look in `HOME` for certificates, and the account may not be allowed to
            // read this process's home.
            env: vec![("HOME".into(), self.data().into())],
            cwd: self.data(),
            log: self.dir.join("postgres.log"),
            account: self.account.clone(),
        })?);
        *lock(&self.server) = Some(server.clone());
        Ok(server)
    }

    /// Asks for the data folder, because another server may listen on the port.
    async fn answers(&self) -> Result<()> {
        let client = self.connect(SUPERUSER).await?;
        let theirs: String = client.query_one("show data_directory", &[]).await?.try_get(0)?;
        ensure!(
            Path::new(&theirs) == self.data(),
            "port {} belongs to another Postgres, in {theirs}",
            self.port
        );
        Ok(())
    }

    /// Connects as superuser, in a task that ends when the client is dropped.
    pub async fn connect(&self, database: &str) -> Result<tokio_postgres::Client> {
        connect(self.port, database).await
    }

    pub fn url(&self, database: &str) -> String {
        format!("postgres://{SUPERUSER}@127.0.0.1:{}/{database}", self.port)
    }

    pub async fn create_database(&self, name: &str) -> Result<()> {
        let client = self.connect(SUPERUSER).await?;
        if client.query_opt("select 1 from pg_database where datname = $1", &[&name]).await?.is_none() {
            client.batch_execute(&format!("create database \"{}\"", name.replace('"', "\"\""))).await?;
        }
        Ok(())
    }

    /// Shuts down in order (SIGINT) within `bound`, else kills. With a frozen link the order may
    /// wait for a subscriber until `wal_sender_timeout`.
    pub async fn stop(&self, bound: Duration) -> Result<()> {
        if let Some(server) = self.server() {
            server.stop(Signal::INT, bound).await?;
        }
        self.kill_strays().await
    }

    /// Kills all of it, as if the host had died. On return every process is gone and reaped.
    pub async fn kill(&self) -> Result<()> {
        if let Some(server) = self.server() {
            server.kill().await?;
        }
        self.kill_strays().await
    }

    async fn kill_strays(&self) -> Result<()> {
        let data = self.data();
        tokio::task::spawn_blocking(move || kill_all_in(&data)).await?
    }

    /// Sends SIGSTOP, until all of it has stopped. Error if the server does not run.
    pub async fn pause(&self) -> Result<()> {
        self.server().context("this Postgres does not run and cannot be paused")?.pause().await
    }

    pub async fn resume(&self) -> Result<()> {
        match self.server() {
            Some(server) => server.resume().await,
            None => Ok(()),
        }
    }

    pub fn pid(&self) -> Option<u32> {
        self.server().filter(|server| server.lives()).map(|server| server.pid())
    }

    pub fn state(&self) -> Option<State> {
        self.server().map(|server| server.state())
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    fn server(&self) -> Option<Arc<Process>> {
        lock(&self.server).clone()
    }

    /// The data folder. Copy it only while the server does not run.
    pub fn data(&self) -> PathBuf {
        self.dir.join("data")
    }
}

fn remove(folder: &Path) -> Result<()> {
    fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))
}

/// Kills every Postgres that works in this folder. Blocks.
pub(super) fn kill_all_in(data: &Path) -> Result<()> {
    proctable::kill_all_under(data, &proctable::is_postgres, STRAY_BOUND)
}

pub(super) async fn connect(port: u16, database: &str) -> Result<tokio_postgres::Client> {
    let mut config = tokio_postgres::Config::new();
    config.host("127.0.0.1").port(port).user(SUPERUSER).dbname(database);
    let (client, connection) = config.connect_timeout(Duration::from_secs(2)).connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.server.get_mut().unwrap_or_else(PoisonError::into_inner).take());
        let data = self.data();
        let _ = kill_all_in(&data);
        shared_memory::release(&data);
    }
}

#[cfg(test)]
#[path = "cluster_tests.rs"]
mod tests;
