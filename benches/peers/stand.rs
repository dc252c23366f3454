//! Everything that a run needs: the programs, one region with its Postgres, and nginx.
//!
//! One gateway runs at a time, in the form that a row asks for. A janitor cleans up after a run
//! that was killed.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use onceway::adapters::issue::generate;
use onceway::adapters::postgres::provision::{self, MIGRATIONS, Plan, Role};
use onceway::protocol::region::{Origin, RegionName};
use onceway_client::Ask;
use onceway_lab::binaries::Binaries;
use onceway_lab::cluster::Cluster;
use onceway_lab::gateway::Action;
use onceway_lab::gateway::Gateway;
use onceway_lab::janitor::Janitor;
use onceway_lab::ports::{FleetPorts, free_run};
use onceway_lab::process::Launch;
use onceway_lab::region::{Part, Region};
use onceway_lab::{files, scratch, wait};

use super::nginx::Nginx;

const PATIENCE: Duration = Duration::from_secs(60);
/// The database of pgbench's tables.
pub const NAIVE: &str = "naive";
const ROUTES: &str = "[[route]]\nname = \"charges\"\nmethods = [\"POST\"]\npath = \"/v1/charges\"\nkey = \"required\"\nrecovery = \"rerun\"\n\n\
     [[route]]\nname = \"blobs\"\nmethods = [\"POST\"]\npath = \"/v1/blobs\"\nkey = \"off\"\n";
const SECURE_ROUTES: &str = "\n[[route]]\nname = \"secure-charges\"\nmethods = [\"POST\"]\npath = \"/v2/charges\"\nkey = \"required\"\nrecovery = \"rerun\"\nupstream = \"secure\"\n\n\
     [[route]]\nname = \"secure-blobs\"\nmethods = [\"POST\"]\npath = \"/v2/blobs\"\nkey = \"off\"\nupstream = \"secure\"\n";
const LIMITS: &str = "\n[listen.limits]\nconnections_per_ip = 10000\n";
const TABLES: &str = "\
    create table idem (key text primary key, fp bytea, token int8, state int2 default 0, \
        created timestamptz default now(), status int4, body bytea) with (fillfactor = 50);\
    create table looked (like idem including all);\
    insert into looked select 'seed-' || n, sha256(''), 1, 1, now(), 200, convert_to(repeat(md5(n::text), 32), 'UTF8') \
        from generate_series(1, 10000) n;";

/// The programs.
pub struct Tools {
    pub gateway: PathBuf,
    pub nginx: PathBuf,
    pub wrk: PathBuf,
    pub pgbench: PathBuf,
    postgres: Binaries,
}

impl Tools {
    /// Finds all of them. The error says in one line what to install.
    pub fn find(gateway: PathBuf) -> Result<Tools> {
        let postgres = Binaries::find()?;
        let pgbench = postgres.postgres().with_file_name("pgbench");
        let wanted = ["nginx", "wrk", "taskset", "setpriv"];
        let missing = |name: &&str| installed(name).is_none();
        let mut missing: Vec<&str> = wanted.into_iter().filter(missing).collect();
        missing.extend((!pgbench.is_file()).then_some("pgbench"));
        let install =
            "`apt-get install nginx-light wrk util-linux postgresql` has all, or your system's packages";
        ensure!(missing.is_empty(), "{} not found: {install}", missing.join(", "));
        let [nginx, wrk] = ["nginx", "wrk"].map(|name| installed(name).unwrap_or_default());
        Ok(Tools { gateway: gateway.canonicalize().context("the gateway")?, nginx, wrk, pgbench, postgres })
    }
}

fn installed(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(system).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// The form of a gateway: its threads and its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One worker thread, warnings only.
    Quiet,
    /// One worker thread, the default log.
    Logged,
    /// As it comes: a thread for each core, the default log.
    Usual,
}

/// The ports of the two nginx processes.
#[derive(Clone, Copy)]
pub struct NginxPorts {
    pub direct: u16,
    pub quiet: u16,
    pub logged: u16,
    /// The upstream over TLS, and the proxy in front of that.
    pub secure_direct: u16,
    pub secure: u16,
}

pub struct Stand {
    pub tools: Tools,
    pub region: Region,
    pub upstream: Nginx,
    pub proxy: Nginx,
    pub nginx_ports: NginxPorts,
    pub dir: PathBuf,
    replica_port: u16,
    /// The gateway that runs.
    gateway: Option<(Form, Gateway)>,
    launch: Launch,
    janitor: Janitor,
}

impl Stand {
    /// Starts it. `secure`: the gateway knows the upstream over TLS, too, which older builds
    /// cannot.
    pub async fn start(tools: Tools, secure: bool) -> Result<Stand> {
        raise_descriptors();
        let dir = scratch::create("onceway-peers")?;
        let janitor = Janitor::spawn(&tools.gateway, &dir, true)?;
        let port = free_run(16)?;
        let ports = FleetPorts::lay_out(port, 1)?.regions[0];
        let nginx_ports = NginxPorts {
            direct: ports.upstream,
            quiet: port + 11,
            logged: port + 12,
            secure_direct: port + 14,
            secure: port + 15,
        };
        let me = origin("here")?;
        certify(&dir.join("certs"), std::slice::from_ref(&me.region))?;
        let upstream = Nginx::upstream(&tools, &dir, [nginx_ports.direct, nginx_ports.secure_direct])?;
        let proxy = Nginx::proxy(&tools, &dir, nginx_ports)?;
        let cluster = store(&tools, &dir, ports.postgres, &me).await?;
        let name = me.region;
        let names = std::slice::from_ref(&name);
        files::write_shared(&dir, names)?;
        certify(&dir.join("certificates"), names)?;
        let secured = format!(
            "\n[upstreams.secure]\naddresses = [\"https://127.0.0.1:{}\"]\n\
             [upstreams.secure.tls]\nca = \"certs/ca.pem\"\nserver_name = \"here.onceway\"\n",
            nginx_ports.secure_direct
        );
        let (routes, lines) = if secure { (SECURE_ROUTES, &*secured) } else { ("", "") };
        files::write(&dir, "routes.toml", &format!("{ROUTES}{routes}"))?;
        let file = files::RegionFile {
            name: &name,
            ports,
            peers: Vec::new(),
            publishers: Vec::new(),
            endpoints: Vec::new(),
        };
        let file = files::write_region(&dir, &file)?;
        fs::write(&file, fs::read_to_string(&file)? + LIMITS + lines)?;
        let launch = Launch {
            program: tools.gateway.clone(),
            args: vec![OsString::from("serve"), OsString::from("--config"), file.into_os_string()],
            env: Vec::new(),
            cwd: dir.clone(),
            log: dir.join("gateway.log"),
            account: None,
        };
        let region = Region::new(name, ports, cluster, launch.clone());
        region.act(Action::Start, Part::Gateway).await?;
        region.found(PATIENCE).await?;
        serves(&region.admin()).await?;
        region.act(Action::Stop, Part::Gateway).await?;
        let (replica_port, gateway) = (port + 13, None);
        Ok(Stand { tools, region, upstream, proxy, nginx_ports, dir, replica_port, gateway, launch, janitor })
    }

    /// Makes a gateway of this form run, alone, and returns its pid. `anew`: with a new process.
    pub async fn gateway(&mut self, form: Form, anew: bool) -> Result<u32> {
        if let Some((_, old)) = self.gateway.take_if(|(runs, _)| anew || *runs != form) {
            old.act(Action::Stop).await?;
        }
        let gateway = match &self.gateway {
            Some((_, gateway)) => gateway,
            None => {
                let mut launch = self.launch.clone();
                let level = if form == Form::Quiet { "warn" } else { "" };
                launch.env.push(("ONCEWAY_LOG".into(), level.into()));
                if form != Form::Usual {
                    launch.env.push(("TOKIO_WORKER_THREADS".into(), "1".into()));
                }
                let gateway = Gateway::new(self.region.ports, launch);
                gateway.act(Action::Start).await?;
                &self.gateway.insert((form, gateway)).1
            }
        };
        serves(&gateway.admin()).await?;
        Ok(gateway.process().context("the gateway is over")?.pid())
    }

    /// A second region's store, which follows this one. Returned once it has all rows.
    pub async fn replica(&self) -> Result<Cluster> {
        let [here, there] = ["here", "there"].map(origin);
        let (here, there) = (here?, there?);
        let both = vec![here.clone(), there.clone()];
        let cluster = cluster(&self.tools, &self.dir.join("replica"), self.replica_port).await?;
        let own = plan(&here, both.clone(), &self.region.cluster, Vec::new())?;
        let publisher = files::conninfo(([127, 0, 0, 1], self.region.ports.postgres).into());
        let plan = plan(&there, both, &cluster, vec![(here, publisher)])?;
        ensure!(provision::init(&own).await?.is_complete(), "the store is not complete");
        let copied = async || Ok(provision::init(&plan).await?.is_complete().then_some(()));
        wait::for_some("the replica to have all rows", PATIENCE, copied).await?;
        Ok(cluster)
    }

    /// Waits until the replica has applied all that stands here. Only this store is asked.
    pub async fn replicated(&self) -> Result<()> {
        let store = self.region.cluster.connect(files::DATABASE).await?;
        let end: String = store.query_one("select pg_current_wal_lsn()::text", &[]).await?.try_get(0)?;
        let applied = "select from pg_stat_replication where replay_lsn >= $1::text::pg_lsn";
        let applied = async || Ok(store.query_opt(applied, &[&end]).await?.map(drop));
        wait::for_some("the replica to have applied all", PATIENCE, applied).await
    }

    /// Machine and store, in a few words.
    pub fn describe(&self) -> String {
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let parent = self.dir.parent().unwrap_or(&self.dir).display();
        format!("{cores} cores, Postgres {} in `{parent}`", self.tools.postgres.major())
    }

    /// The statement that counts syncs of the write-ahead log and keys.
    pub fn syncs_and_keys(&self) -> &'static str {
        if self.tools.postgres.major() < 18 {
            "select wal_sync, (select count(*) from onceway.records) from pg_stat_wal"
        } else {
            "select (select sum(fsyncs)::int8 from pg_stat_io where object = 'wal'), count(*) from onceway.records"
        }
    }

    /// Ends everything and deletes its files.
    pub async fn end(self) -> Result<()> {
        drop((self.gateway, self.upstream, self.proxy));
        self.region.act(Action::Kill, Part::Both).await?;
        let dir = self.dir;
        tokio::task::spawn_blocking(move || scratch::delete(&dir)).await??;
        self.janitor.dismiss().await
    }
}

fn certify(folder: &Path, names: &[RegionName]) -> Result<()> {
    fs::create_dir_all(folder)?;
    Ok(generate(names)?.write(folder)?)
}

/// Waits until the gateway of this admin address runs keys.
async fn serves(admin: &str) -> Result<()> {
    let url = format!("{admin}/readyz");
    let ready = async || {
        let ready = Ask::get(&url).send(Duration::from_secs(2)).await;
        Ok(ready.is_ok_and(|ready| ready.json()["serves"] == true).then_some(()))
    };
    wait::for_some("the gateway to serve", PATIENCE, ready).await
}

async fn cluster(tools: &Tools, dir: &Path, port: u16) -> Result<Cluster> {
    let settings = [("shared_buffers", "512MB"), ("max_wal_size", "4GB")];
    let cluster = Cluster::create(&tools.postgres, dir, port, &settings).await?;
    cluster.start().await?;
    cluster.create_database(files::DATABASE).await?;
    Ok(cluster)
}

fn origin(name: &str) -> Result<Origin> {
    Ok(Origin { region: RegionName::parse(name).ok().context("a region's name")?, generation: 1 })
}

async fn store(tools: &Tools, dir: &Path, port: u16, me: &Origin) -> Result<Cluster> {
    let cluster = cluster(tools, &dir.join("postgres"), port).await?;
    cluster.create_database(NAIVE).await?;
    cluster.connect(NAIVE).await?.batch_execute(TABLES).await?;
    let plan = plan(me, vec![me.clone()], &cluster, Vec::new())?;
    ensure!(provision::init(&plan).await?.is_complete(), "the store is not complete");
    Ok(cluster)
}

/// The plan of a store in a private Postgres, as one of `all`, which follows those of `subscribe`.
fn plan(me: &Origin, all: Vec<Origin>, cluster: &Cluster, subscribe: Vec<(Origin, String)>) -> Result<Plan> {
    let role = |name: &str| Role { name: name.to_owned(), password: None };
    Ok(Plan {
        me: me.clone(),
        all,
        deployment: files::DEPLOYMENT.to_owned(),
        gateway_role: role(files::GATEWAY_ROLE),
        replication_role: Some(role(files::REPLICATION_ROLE)),
        admin: cluster.url(files::DATABASE).parse()?,
        subscribe,
        publishers_ca: None,
        migrations: MIGRATIONS,
    })
}

/// Lets a process and all its threads run on these CPUs only.
pub fn pin(pid: u32, cpus: &str) -> Result<()> {
    let mut command = Command::new("taskset");
    command.args(["-a", "-c", "-p", cpus, &pid.to_string()]).stdout(Stdio::null());
    ensure!(command.status().context("cannot run taskset")?.success(), "cannot pin process {pid}");
    Ok(())
}

/// The CPUs that this process may use: all as one list, the first and the last.
pub fn cpus() -> Result<[String; 3]> {
    let status = fs::read_to_string("/proc/self/status")?;
    let all = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let all = all.context("no list of CPUs")?.trim().to_owned();
    let numbers: Vec<&str> = all.split([',', '-']).collect();
    let end = |number: Option<&&str>| number.map_or_else(String::new, ToString::to_string);
    Ok([all.clone(), end(numbers.first()), end(numbers.last())])
}

/// Allows as many open files as this process may have: each idle connection is one.
fn raise_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}
