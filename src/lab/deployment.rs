//! A whole deployment on one machine: three regions, their Postgres, links and sample upstreams,
//! from empty folder to serving. Everything that it starts ends with it, even if the supervisor is
//! killed: the janitor sees to that.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use tokio::task::JoinSet;

use super::binaries::Binaries;
use super::cluster::Cluster;
use super::files::{self, RegionFile};
use super::gateway::{Action, Gateway};
use super::janitor::Janitor;
use super::ledger::Ledger;
use super::links::{Endpoints, LinkKind, Links};
use super::ports::{FleetPorts, RegionPorts, free_run, local};
use super::process::Launch;
use super::region::{Part, Region};
use super::upstream::Upstream;
use super::{scratch, status, wait};
use onceway_protocol::region::RegionName;

/// The regions of the demo, in the order of their ports.
pub const REGIONS: [&str; 3] = ["us-east", "eu-west", "ap-south"];

pub const SPARE: &str = "sa-east";

const SERVES_WITHIN: Duration = Duration::from_secs(120);
/// Time limit of the founding: all regions must have seen each other first.
const FOUNDED_WITHIN: Duration = Duration::from_secs(40);
const UPSTREAM_ENDS_WITHIN: Duration = Duration::from_millis(200);

#[derive(Clone, Debug, Default)]
pub struct Options {
    pub program: PathBuf,
    /// First port; see the demo's contract.
    pub port_base: u16,
    /// Folder of the data; if `None`, a scratch folder that is deleted at the end.
    pub data: Option<PathBuf>,
    pub rtt: Duration,
    pub routes: Option<String>,
    /// Text of the ring file about failover, with the table's head; the demo's rules if `None`.
    pub failover: Option<String>,
    /// Number of gateways by region; regions beyond the list have one. Several share the region's
    /// store behind its one address.
    pub gateways: Vec<usize>,
    /// Prepares machines for one more region, [`SPARE`], which is not a member yet.
    pub spare: bool,
}

pub struct Deployment {
    /// All regions, the spare last.
    names: Vec<RegionName>,
    pub regions: Vec<Region>,
    /// Machines for one more region: ports, links, an upstream and certificates. Nothing runs, and
    /// no file of the other regions names it.
    pub spare: Option<Region>,
    pub links: Links,
    pub ledger: Arc<Ledger>,
    pub ports: FleetPorts,
    /// Each region's endpoints of its sample upstream behind TLS, by region number.
    pub endpoints: Vec<[Upstream; 2]>,
    upstreams: Vec<Upstream>,
    dir: PathBuf,
    scratch: bool,
    janitor: Janitor,
}

impl Deployment {
    /// Starts everything, until every region serves. `progress` receives each step, in words.
    pub async fn start(options: &Options, progress: &(dyn Fn(&str) + Sync)) -> Result<Deployment> {
        let names = REGIONS.into_iter().chain(options.spare.then_some(SPARE));
        let names = names.map(|name| RegionName::parse(name).context("a region's name"));
        let names = names.collect::<Result<Vec<RegionName>>>()?;
        let ports = FleetPorts::lay_out_shared(options.port_base, names.len(), &options.gateways)?;
        ports.check_free(&names.iter().map(ToString::to_string).collect::<Vec<_>>())?;
        progress("looking for Postgres");
        let binaries = tokio::task::spawn_blocking(Binaries::find_or_install).await??;
        let (dir, scratch) = match &options.data {
            Some(dir) => {
                fs::create_dir_all(dir).with_context(|| format!("cannot make folder {}", dir.display()))?;
                (dir.canonicalize()?, false)
            }
            None => (scratch::create("onceway-demo")?, true),
        };
        let janitor = Janitor::spawn(&options.program, &dir, scratch)?;
        let ends = |of: &RegionPorts| Endpoints { peer: local(of.peer), replication: local(of.postgres) };
        let links = Links::start(&ports.regions.iter().map(ends).collect::<Vec<_>>()).await?;
        let stamp = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let ledger = Ledger::create(&dir.join(format!("ledger-{stamp}.jsonl")))?;
        let mut deployment = Deployment {
            names,
            regions: Vec::new(),
            spare: None,
            links,
            ledger,
            ports,
            endpoints: Vec::new(),
            upstreams: Vec::new(),
            dir,
            scratch,
            janitor,
        };
        // On an error the janitor is dropped, and cleans up.
        deployment.make(options, &binaries).await?;
        if let Err(error) = deployment.bring_up(progress).await {
            let error = error.context(format!("logs were in {}", deployment.dir.display()));
            deployment.shut_down().await?;
            return Err(error);
        }
        Ok(deployment)
    }

    async fn make(&mut self, options: &Options, binaries: &Binaries) -> Result<()> {
        let all = self.names.len();
        for (a, b) in (0..all).flat_map(|a| (a + 1..all).map(move |b| (a, b))) {
            self.links.set_rtt(a, b, options.rtt, false)?;
        }
        let acceptor = files::certify_provider(&options.program, &self.dir)?;
        for (name, ports) in self.names.iter().zip(&self.ports.regions) {
            let upstream = Upstream::start(name.as_str(), local(ports.upstream), self.ledger.clone()).await?;
            let first = free_run(2)?;
            let pair = [first, first + 1].map(|port| upstream.endpoint(local(port), acceptor.clone()));
            for endpoint in &pair {
                endpoint.open().await?;
            }
            self.upstreams.push(upstream);
            self.endpoints.push(pair);
        }
        let members: Vec<usize> = (0..REGIONS.len()).collect();
        let names = &self.names[..members.len()];
        files::write_shared(&self.dir, names)?;
        files::certify(&options.program, &self.dir, "certificates", &self.names)?;
        let routes = options.routes.clone().unwrap_or_else(files::routes_to_provider);
        files::write(&self.dir, "routes.toml", &routes)?;
        if let Some(failover) = &options.failover {
            files::write(&self.dir, "ring.toml", &files::ring(names, &[1; 3], failover))?;
        }
        for number in 0..all {
            let files = self.write_file(number, &members)?;
            let region = self.make_region(number, &files, binaries, &options.program).await?;
            self.regions.push(region);
        }
        self.spare = self.regions.split_off(members.len()).pop();
        Ok(())
    }

    async fn bring_up(&self, progress: &(dyn Fn(&str) + Sync)) -> Result<()> {
        progress("starting a private Postgres per region");
        self.each(async |region| {
            region.cluster.start().await?;
            region.cluster.create_database(files::DATABASE).await
        })
        .await?;
        progress("provisioning schema, publications and subscriptions");
        self.each(async |region| region.provision(SERVES_WITHIN).await).await?;
        progress("starting a gateway per region");
        self.each(async |region| region.act(Action::Start, Part::Gateway).await).await?;
        progress("founding the register");
        self.regions.first().context("a deployment has regions")?.found(FOUNDED_WITHIN).await?;
        self.each(async |region| region.serves().await).await
    }

    async fn each(&self, work: impl AsyncFn(&Region) -> Result<()>) -> Result<()> {
        let [one, two, three] = &self.regions[..] else { bail!("a deployment has three regions") };
        tokio::try_join!(work(one), work(two), work(three))?;
        Ok(())
    }

    pub fn all(&self) -> impl Iterator<Item = &Region> {
        self.regions.iter().chain(&self.spare)
    }

    /// Writes the file of region `mine` anew, for these regions, by number. The spare is last. If
    /// the region has several gateways, writes a file for each. Returns the files that gateways are
    /// started with.
    pub fn write_file(&self, mine: usize, members: &[usize]) -> Result<Vec<PathBuf>> {
        let (mut peers, mut publishers) = (Vec::new(), Vec::new());
        for other in members.iter().copied().filter(|other| *other != mine) {
            let name = &self.names[other];
            peers.push((name.clone(), self.links.address(mine, other, LinkKind::Peer)?));
            publishers.push((name.clone(), self.links.address(mine, other, LinkKind::Replication)?));
        }
        let endpoints = self.endpoints[mine].iter().map(Upstream::address).collect();
        let (name, ports) = (&self.names[mine], self.ports.regions[mine]);
        let mut file = RegionFile { name, ports, peers, publishers, endpoints };
        let one = files::write_region(&self.dir, &file)?;
        let mut several = Vec::new();
        for (number, own) in self.ports.gateways[mine].iter().enumerate() {
            file.ports = *own;
            several.push(files::write_as(&self.dir, &format!("{name}-{}", number + 1), &file)?);
        }
        Ok(if several.is_empty() { vec![one] } else { several })
    }

    async fn make_region(
        &self,
        number: usize,
        files: &[PathBuf],
        binaries: &Binaries,
        program: &Path,
    ) -> Result<Region> {
        let (name, own) = (&self.names[number], self.ports.regions[number]);
        let home = self.dir.join(name.as_str());
        fs::create_dir_all(&home).with_context(|| format!("cannot make folder {}", home.display()))?;
        let cluster = Cluster::create(binaries, &home.join("postgres"), own.postgres, &[]).await?;
        let launch = |file: &Path, log: String| Launch {
            program: program.to_owned(),
            args: vec![OsString::from("serve"), OsString::from("--config"), file.into()],
            env: Vec::new(),
            cwd: home.clone(),
            log: home.join(log),
            account: None,
        };
        // Commands get the region's file, which names the address that everybody knows.
        let file = self.dir.join(format!("{name}.toml"));
        let region = Region::new(name.clone(), own, cluster, launch(&file, "gateway.log".to_owned()));
        let listeners = &self.ports.gateways[number];
        if listeners.is_empty() {
            return Ok(region);
        }
        let gateway = |(at, (own, file)): (usize, (&RegionPorts, &PathBuf))| {
            Arc::new(Gateway::new(*own, launch(file, format!("gateway-{}.log", at + 1))))
        };
        region.share(listeners.iter().zip(files).enumerate().map(gateway).collect()).await
    }

    pub fn set_sick(&self, number: usize, sick: bool) {
        if let Some(upstream) = self.upstreams.get(number) {
            upstream.set_sick(sick);
        }
    }

    /// Folder of its files; each region's own lie in a folder of the region's name.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn number(&self, name: &str) -> Option<usize> {
        self.regions.iter().position(|region| region.name.as_str() == name)
    }

    pub fn region(&self, name: &str) -> Option<&Region> {
        self.regions.iter().find(|region| region.name.as_str() == name)
    }

    /// Ends everything in any state, and deletes the scratch folder. Takes a few seconds at most.
    pub async fn shut_down(self) -> Result<()> {
        let keep = !self.scratch;
        let mut ending = JoinSet::new();
        for region in self.regions.into_iter().chain(self.spare) {
            ending.spawn(async move {
                if keep {
                    region.act(Action::Resume, Part::Both).await?;
                    region.act(Action::Stop, Part::Both).await
                } else {
                    region.act(Action::Kill, Part::Both).await
                }
            });
        }
        let mut trouble = Ok(());
        while let Some(ended) = ending.join_next().await {
            trouble = trouble.and(ended?);
        }
        for upstream in self.upstreams {
            upstream.stop(UPSTREAM_ENDS_WITHIN).await;
        }
        drop(self.ledger);
        if self.scratch {
            tokio::task::spawn_blocking(move || scratch::delete(&self.dir)).await??;
        }
        self.janitor.dismiss().await?;
        trouble
    }
}

impl Region {
    /// Waits until each gateway runs keys, reaches its peers and has measured its lag behind them.
    pub async fn serves(&self) -> Result<()> {
        for gateway in &self.gateways {
            let serving = async || {
                let status = status(&gateway.admin(), Duration::from_secs(2)).await;
                let peers = status["peers"].as_object().cloned().unwrap_or_default();
                let caught_up = peers.values().all(|peer| peer["up"] == true && peer["lag_ms"].is_number());
                let replicated = status["subscriptions"].as_array().cloned().unwrap_or_default();
                let ready = replicated.iter().all(|one| one["ready"] == true);
                let serves = status["readiness"]["serves"] == true;
                Ok((serves && caught_up && ready && !peers.is_empty()).then_some(()))
            };
            wait::for_some(&format!("{} to serve", self.name), SERVES_WITHIN, serving).await?;
        }
        Ok(())
    }
}
