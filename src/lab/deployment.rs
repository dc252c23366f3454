//! A whole deployment on one machine: three regions, their Postgres, links and sample upstreams,
//! from empty folder to serving.
//!
//! Everything that it starts ends with it, even if the supervisor is killed: the janitor sees to
//! that.

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
use super::ports::{FleetPorts, GatewayPorts, RegionPorts, free_run, local};
use super::process::Launch;
use super::region::{Part, Region};
use super::upstream::{Endpoint, Upstream};
use super::{scratch, status, wait};
use onceway_protocol::region::RegionName;

/// The regions of the demo, in the order of their ports.
pub const REGIONS: [&str; 3] = ["us-east", "eu-west", "ap-south"];

/// The additional region that [`Deployment::start_with_spare`] prepares.
pub const SPARE: &str = "sa-east";

const SERVES_WITHIN: Duration = Duration::from_secs(120);
/// Time limit of the founding: all regions must have seen each other first.
const FOUNDED_WITHIN: Duration = Duration::from_secs(40);
/// Time limit for an upstream's running calls when everything ends.
const UPSTREAM_ENDS_WITHIN: Duration = Duration::from_millis(200);

#[derive(Clone, Debug)]
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
}

pub struct Deployment {
    pub regions: Vec<Region>,
    /// Machines for one more region: ports, links, an upstream and certificates. Nothing runs, and
    /// no file of the other regions names it.
    pub spare: Option<Region>,
    pub links: Links,
    pub ledger: Arc<Ledger>,
    pub ports: FleetPorts,
    /// Each region's endpoints of its sample upstream behind TLS, by region number.
    pub endpoints: Vec<[Endpoint; 2]>,
    upstreams: Vec<Upstream>,
    dir: PathBuf,
    scratch: bool,
    janitor: Janitor,
}

impl Deployment {
    /// Starts everything, and returns when every region serves and every replication has caught up.
    /// `progress` receives each step, in words.
    pub async fn start(options: &Options, progress: &(dyn Fn(&str) + Sync)) -> Result<Deployment> {
        Deployment::launch(options, None, &[], progress).await
    }

    /// Does the same with several gateways per region. `gateways` has their number by region;
    /// regions beyond the list have one. They share the region's store behind its one address.
    pub async fn start_shared(
        options: &Options,
        gateways: &[usize],
        progress: &(dyn Fn(&str) + Sync),
    ) -> Result<Deployment> {
        Deployment::launch(options, None, gateways, progress).await
    }

    /// Does the same, and prepares machines for one more region, which is not a member yet.
    pub async fn start_with_spare(options: &Options, progress: &(dyn Fn(&str) + Sync)) -> Result<Deployment> {
        Deployment::launch(options, Some(SPARE), &[], progress).await
    }

    async fn launch(
        options: &Options,
        spare: Option<&str>,
        gateways: &[usize],
        progress: &(dyn Fn(&str) + Sync),
    ) -> Result<Deployment> {
        let names =
            REGIONS.into_iter().chain(spare).map(|name| RegionName::parse(name).context("a region's name"));
        let all = names.collect::<Result<Vec<RegionName>>>()?;
        let names = &all[..REGIONS.len()];
        let ports = FleetPorts::lay_out_shared(options.port_base, all.len(), gateways)?;
        ports.check_free(&all.iter().map(ToString::to_string).collect::<Vec<_>>())?;
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
        let links = Links::start(&endpoints(&ports)).await?;
        let made = async {
            for (a, b) in (0..all.len()).flat_map(|a| (a + 1..all.len()).map(move |b| (a, b))) {
                links.set_rtt(a, b, options.rtt, false)?;
            }
            let stamp = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
            let ledger = Ledger::create(&dir.join(format!("ledger-{stamp}.jsonl")))?;
            let (mut upstreams, mut endpoints) = (Vec::new(), Vec::new());
            let acceptor = files::certify_provider(&options.program, &dir)?;
            for (name, ports) in all.iter().zip(&ports.regions) {
                let upstream = Upstream::start(name.as_str(), local(ports.upstream), ledger.clone()).await?;
                let first = free_run(2)?;
                let pair = [first, first + 1].map(|port| upstream.endpoint(local(port), acceptor.clone()));
                for endpoint in &pair {
                    endpoint.open().await?;
                }
                upstreams.push(upstream);
                endpoints.push(pair);
            }
            files::write_shared(&dir, names)?;
            files::certify(&options.program, &dir, "certificates", &all)?;
            let routes = options.routes.clone().unwrap_or_else(files::routes_to_provider);
            files::write(&dir, "routes.toml", &routes)?;
            if let Some(failover) = &options.failover {
                files::write(&dir, "ring.toml", &files::ring(names, &[1; 3], failover))?;
            }
            let mut regions = Vec::new();
            for number in 0..all.len() {
                let members: Vec<usize> = (0..names.len()).collect();
                let files = write_files(&dir, &all, &ports, (&links, &endpoints[number]), number, &members)?;
                regions.push(region(&all[number], &ports, number, &files, &dir, &binaries, options).await?);
            }
            let spare = regions.split_off(names.len()).pop();
            anyhow::Ok((ledger, upstreams, endpoints, regions, spare))
        };
        // On an error the janitor is dropped, and cleans up.
        let (ledger, upstreams, endpoints, regions, spare) = made.await?;
        let deployment =
            Deployment { regions, spare, links, ledger, ports, endpoints, upstreams, dir, scratch, janitor };
        if let Err(error) = deployment.bring_up(progress).await {
            let error = error.context(format!("logs were in {}", deployment.dir.display()));
            deployment.shut_down().await?;
            return Err(error);
        }
        Ok(deployment)
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
        let first = self.regions.first().context("a deployment has regions")?;
        first.found(FOUNDED_WITHIN).await?;
        self.each(async |region| region.serves().await).await
    }

    /// Does the same work with every region at once.
    async fn each(&self, work: impl AsyncFn(&Region) -> Result<()>) -> Result<()> {
        let [one, two, three] = &self.regions[..] else { bail!("a deployment has three regions") };
        tokio::try_join!(work(one), work(two), work(three))?;
        Ok(())
    }

    pub fn all(&self) -> impl Iterator<Item = &Region> {
        self.regions.iter().chain(&self.spare)
    }

    /// Writes the file of region `mine` anew, for these regions, by number. The spare is last.
    pub fn write_file(&self, mine: usize, members: &[usize]) -> Result<()> {
        let names: Vec<RegionName> = self.all().map(|region| region.name.clone()).collect();
        let endpoints = self.endpoints.get(mine).context("a region of this deployment")?;
        write_files(&self.dir, &names, &self.ports, (&self.links, endpoints), mine, members).map(drop)
    }

    /// Makes a region's sample upstream fail its health checks (`sick`) or pass them.
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
    /// Waits until each gateway of this region runs keys, reaches its peers and has measured its
    /// lag behind each.
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

fn endpoints(ports: &FleetPorts) -> Vec<Endpoints> {
    let of = |ports: &RegionPorts| Endpoints { peer: local(ports.peer), replication: local(ports.postgres) };
    ports.regions.iter().map(of).collect()
}

/// Writes the file of one region, with its peers and their addresses. If the region has several
/// gateways, writes a file for each. Returns the files that gateways are started with.
fn write_files(
    dir: &Path,
    names: &[RegionName],
    ports: &FleetPorts,
    (links, endpoints): (&Links, &[Endpoint; 2]),
    mine: usize,
    members: &[usize],
) -> Result<Vec<PathBuf>> {
    let (mut peers, mut publishers) = (Vec::new(), Vec::new());
    for other in members.iter().copied().filter(|other| *other != mine) {
        peers.push((names[other].clone(), links.address(mine, other, LinkKind::Peer)?));
        publishers.push((names[other].clone(), links.address(mine, other, LinkKind::Replication)?));
    }
    let endpoints = endpoints.iter().map(Endpoint::address).collect();
    let (name, ports_of) = (&names[mine], ports.regions[mine]);
    let mut file = RegionFile { name, ports: ports_of, peers, publishers, endpoints };
    let one = files::write_region(dir, &file)?;
    let mut several = Vec::new();
    for (number, own) in ports.gateways[mine].iter().enumerate() {
        file.ports = file.ports.with_listeners(*own);
        several.push(files::write_as(dir, &format!("{name}-{}", number + 1), &file)?);
    }
    Ok(if several.is_empty() { vec![one] } else { several })
}

async fn region(
    name: &RegionName,
    ports: &FleetPorts,
    number: usize,
    files: &[PathBuf],
    dir: &Path,
    binaries: &Binaries,
    options: &Options,
) -> Result<Region> {
    let own = ports.regions[number];
    let home = dir.join(name.as_str());
    fs::create_dir_all(&home).with_context(|| format!("cannot make folder {}", home.display()))?;
    let cluster = Cluster::create(binaries, &home.join("postgres"), own.postgres, &[]).await?;
    let launch = |file: &Path, log: String| Launch {
        program: options.program.clone(),
        args: vec![OsString::from("serve"), OsString::from("--config"), file.into()],
        env: Vec::new(),
        cwd: home.clone(),
        log: home.join(log),
        account: None,
    };
    // Commands get the region's file, which names the address that everybody knows.
    let file = dir.join(format!("{name}.toml"));
    let region = Region::new(name.clone(), own, cluster, launch(&file, "gateway.log".to_owned()));
    let listeners = &ports.gateways[number];
    if listeners.is_empty() {
        return Ok(region);
    }
    let gateway = |(at, (own, file)): (usize, (&GatewayPorts, &PathBuf))| {
        Arc::new(Gateway::new(*own, launch(file, format!("gateway-{}.log", at + 1))))
    };
    region.share(listeners.iter().zip(files).enumerate().map(gateway).collect()).await
}
