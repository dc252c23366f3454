//! The gateway: the choreography of a request, over ports.
//!
//! Neighbours: `protocol` decides, `ports` perform, `server` feeds requests in. The life of a request reads top to bottom in
//! [`request`]; what runs beside requests is in [`heartbeat`], [`jobs`], [`reaper`], [`sweep`] and [`doubles`]. It must not touch sockets, SQL or clocks (only through ports),
//! must not decide what rows mean (`protocol::decide` does), and knows statuses in [`reply`] only.

mod accept;
pub mod address;
mod admit;
mod applied;
mod attach;
pub mod audit;
pub mod authority;
pub mod canonical;
mod claim;
mod comb;
pub mod coverage;
pub mod credentials;
pub mod crowd;
pub mod doubles;
mod elsewhere;
mod ending;
mod entry;
mod escrow;
pub mod export;
mod forward;
mod gained;
mod generators;
pub mod hearing;
mod heartbeat;
mod jobs;
mod labels;
pub mod letters;
pub mod live;
mod live_keys;
mod metrics;
pub mod operator;
mod outcome;
mod pass;
pub mod percent;
pub mod problems;
pub mod publication;
pub mod quota;
mod race;
mod reaper;
mod recover;
pub mod reply;
mod request;
pub mod route;
pub mod shadow;
pub mod signature;
pub mod spans;
mod spelling;
mod stand_in;
pub mod status;
mod sweep;
pub mod trace;
pub mod trail;
mod trust;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::Notify;

use crate::ports::peers::Pong;
use crate::ports::store::Gate;
use crate::ports::{Clock, Ports};
use crate::protocol::digest::Digest32;
use crate::protocol::lag::LagMeter;
use crate::protocol::lease::Lease;
use crate::protocol::region::{Origin, RegionName};
use crate::protocol::suspect::ClockWatch;
use crate::protocol::time::{Drift, Moment};
use crate::protocol::versions::Versions;
use crate::protocol::view::View;
use attach::Attached;
use coverage::{Coverage, Report};
use credentials::Credentials;
use crowd::{Crowd, MostAtOnce};
use jobs::Workers;
use live::{ConfigStatus, Live};
use quota::Quota;
use route::{Policy, Routes};
use shadow::Shadow;

/// Everything a gateway is told before it starts.
pub struct Settings {
    /// The region it serves in.
    pub me: RegionName,
    /// Which build of its store this is, as its region file says.
    pub generation: u32,
    /// Which requests need a key, and how they are performed.
    pub routes: Routes,
    /// Who may ask at first; [`Gateway::reload`] brings what comes later.
    pub credentials: Arc<Credentials>,
    /// How wrong clocks may be.
    pub drift: Drift,
    /// How much longer than promised an answer is stored.
    pub skew: Duration,
    /// Stored requests are sealed, so clients' credentials may be stored with them.
    pub seals_requests: bool,
    /// How often, how long.
    pub timings: Timings,
    /// How fast each tenant may start keys at this gateway, and how many it may have; `None` is as fast, and as many, as it likes.
    pub quota: Option<Quota>,
    /// The most requests that it has at once.
    pub most_at_once: MostAtOnce,
    /// Everything passes to the upstream, and what would have been done is counted: neither store nor peers are asked.
    pub shadow: bool,
    /// How regions take over from one another.
    pub failover: authority::Failover,
    /// How this region's upstream is checked; `None` if it is not.
    pub upstream_health: Option<authority::upstream::UpstreamHealth>,
    /// Digest of the settings that all regions must share.
    pub shared: Digest32,
    /// The versions of what regions say to each other that it speaks.
    pub speaks: Versions,
}

/// Periods and bounds of one gateway.
#[derive(Clone, Copy, Debug)]
pub struct Timings {
    /// Between two heartbeats.
    pub heartbeat: Duration,
    /// Between two pings to a peer.
    pub ping: Duration,
    /// After how much silence a peer counts as not reachable.
    pub silent_after: Duration,
    /// Between two looks at the copies of other regions' heartbeats.
    pub poll: Duration,
    /// Between two looks at records that duplicates wait for.
    pub attach_poll: Duration,
    /// How long a client may take to send its body.
    pub body_within: Duration,
    /// What claiming a key may take at most, repeats included.
    pub claim_within: Duration,
    /// How long an answer waits to be stored before the client is told that its outcome is unknown.
    pub settle_within: Duration,
    /// How long a question to the upstream's status address may take.
    pub probe_within: Duration,
    /// Between two looks for jobs that are due.
    pub jobs_poll: Duration,
    /// Between two sweeps for abandoned claims and keys in doubt.
    pub sweep: Duration,
    /// Between two looks of the reaper while little is due.
    pub reap: Duration,
    /// Between two batches of the reaper while much is due, at least.
    pub reap_pause: Duration,
}

/// What of the settings stays as it is until the process ends.
struct Fixed {
    me: RegionName,
    drift: Drift,
    skew: Duration,
    seals_requests: bool,
    timings: Timings,
    failover: authority::Failover,
    upstream_health: Option<authority::upstream::UpstreamHealth>,
    speaks: Versions,
}

impl Fixed {
    /// How long an answer to a request under this policy may take at the owner.
    fn patience(&self, policy: &Policy) -> Duration {
        let timings = &self.timings;
        policy.wait
            + timings.claim_within
            + escrow::bound(policy)
            + policy.upstream_timeout.max(timings.probe_within)
            + timings.settle_within
    }
}

/// One gateway of one region.
pub struct Gateway<P: Ports> {
    ports: Arc<P>,
    settings: Fixed,
    /// What may be replaced while it runs: read once by every request.
    live: ArcSwap<Live<P>>,
    /// What became of the last reading of the files.
    config: ArcSwap<ConfigStatus>,
    authority: Arc<authority::Authority>,
    origin: Origin,
    attached: Arc<Attached>,
    jobs: Workers,
    coverage: Coverage,
    begun: Moment,
    /// There where everything passes and nothing is decided.
    shadow: Option<Arc<Shadow>>,
    generators: generators::Generators,
    /// Read by every claim, replaced whole by the heartbeat: no lock on the way of a request.
    store: ArcSwap<StoreHealth>,
    health: Mutex<Health>,
    clock_watch: Mutex<ClockWatch>,
    hearing: hearing::Hearing,
    looks: Mutex<doubles::Looks>,
    observing: Mutex<trust::Observing>,
    crowd: Arc<Crowd>,
    in_flight: AtomicUsize,
    idle: Notify,
    stopping: AtomicBool,
}

/// What this gateway knows of its own heartbeat and its peers.
struct Health {
    beat: Option<(u64, Moment)>,
    peers: BTreeMap<RegionName, Peer>,
    /// The lag of regions that are no peers any more, as it was remembered: a window behind one may still be to be measured.
    gone: BTreeMap<Origin, Duration>,
}

/// Whether keys can be run here.
#[derive(Clone, Debug)]
enum StoreHealth {
    /// Claims pass, as far as is known.
    Open(Gate),
    /// They do not.
    Closed {
        /// For status and logs.
        why: String,
        /// Since when they do not, for whatever reason.
        since: Moment,
    },
}

/// What is known of one peer.
struct Peer {
    /// When its last pong arrived.
    heard: Option<Moment>,
    /// When the ping of its last pong was sent.
    asked: Option<Moment>,
    round_trip: Option<Duration>,
    pong: Option<Pong>,
    /// Its store in the view, which what follows is about; a replaced one is followed anew.
    origin: Option<Origin>,
    /// Up to which of its heartbeats its rows are in this region's store; `None` until the store
    /// was read.
    applied: Option<u64>,
    /// Its highest heartbeat that a ping told of, or that was ever seen here, with its rows or
    /// ahead of them.
    told: Option<u64>,
    lag: LagMeter,
    /// What its lag was.
    trail: trail::Trail,
    /// It was asked at least once, whatever came of it.
    tried: bool,
    /// It speaks no version that this process speaks.
    foreign: bool,
    trouble: Option<String>,
}

impl Peer {
    fn unknown() -> Self {
        let lag = LagMeter::new(LAG_PERIOD);
        Self {
            heard: None,
            asked: None,
            round_trip: None,
            pong: None,
            origin: None,
            applied: None,
            told: None,
            lag,
            trail: trail::Trail::default(),
            tried: false,
            foreign: false,
            trouble: None,
        }
    }

    /// Its store in the view is this one: what was known of another says nothing.
    fn follow(&mut self, origin: Option<Origin>) {
        if self.origin != origin {
            (self.origin, self.applied, self.told) = (origin, None, None);
            self.lag = LagMeter::new(LAG_PERIOD);
        }
    }

    /// Whether it was not heard for so long that it counts as not reachable.
    fn is_silent(&self, now: Moment, timings: &Timings) -> bool {
        let allowed = timings.silent_after + timings.ping + self.round_trip.unwrap_or_default();
        self.heard.is_none_or(|heard| now.since(heard) > allowed)
    }
}

/// The trailing period over which the largest lag is kept.
const LAG_PERIOD: Duration = Duration::from_secs(600);

/// Why a gateway in shadow mode runs no keys.
const SHADOWED: &str = "shadow mode: everything passes, nothing is decided";

/// Why a gateway cannot be built.
#[derive(Debug, thiserror::Error)]
#[error("region {0} is not in the ring: add it to ring.toml (weight 0 for an edge), or name another region")]
pub struct NotInRing(RegionName);

impl<P: Ports> Gateway<P> {
    /// A gateway that has done nothing yet.
    pub fn new(ports: P, settings: Settings, view: View) -> Result<Arc<Self>, NotInRing> {
        if view.standing(&settings.me).is_none() {
            return Err(NotInRing(settings.me));
        }
        let origin = Origin { region: settings.me.clone(), generation: settings.generation };
        let others = view.members().keys().filter(|name| **name != settings.me);
        let peers = others.map(|name| (name.clone(), Peer::unknown())).collect();
        metrics::prepare(&settings, &view);
        hearing::prepare();
        let proposer = authority::proposer(ports.dice());
        let lease = Lease::new(settings.failover.lease, settings.drift);
        let clock_watch = Mutex::new(trust::watch(&settings));
        let closed = if settings.shadow { SHADOWED } else { "starting" };
        let shadow = settings.shadow.then(|| Arc::new(Shadow::new()));
        let ports = Arc::new(ports);
        let since = ports.clock().now();
        let live = Live::first(&settings, &ports);
        let Settings { me, drift, skew, seals_requests, timings, failover, upstream_health, speaks, .. } =
            settings;
        Ok(Arc::new(Self {
            begun: ports.clock().now(),
            ports,
            live: ArcSwap::from_pointee(live),
            config: ArcSwap::default(),
            settings: Fixed { me, drift, skew, seals_requests, timings, failover, upstream_health, speaks },
            authority: Arc::new(authority::Authority::new(Arc::new(view), lease, drift, proposer)),
            origin,
            attached: Arc::default(),
            jobs: Workers::default(),
            coverage: Coverage::default(),
            shadow,
            generators: generators::Generators::new(),
            store: ArcSwap::from_pointee(StoreHealth::Closed { why: closed.to_owned(), since }),
            health: Mutex::new(Health { beat: None, peers, gone: BTreeMap::new() }),
            clock_watch,
            hearing: hearing::Hearing::default(),
            looks: Mutex::default(),
            observing: Mutex::default(),
            crowd: Arc::default(),
            in_flight: AtomicUsize::new(0),
            idle: Notify::new(),
            stopping: AtomicBool::new(false),
        }))
    }

    /// Starts what runs beside requests. The tasks end when `stop` has returned and the gateway is dropped.
    /// In shadow mode nothing does. `job` begins the span of each run of a job, where spans are exported.
    pub fn start(self: &Arc<Self>, job: Option<spans::Begin>) {
        if self.shadow.is_some() {
            return;
        }
        heartbeat::start(self);
        authority::start(self);
        request::start_poller(self);
        jobs::start(self, job);
        reaper::start(self);
        audit::start(self);
        doubles::start(self);
        sweep::start(self);
    }

    /// Which state-changing requests this gateway has seen, and whether a key protected them.
    pub fn coverage(&self) -> Report {
        let (seen, full) = self.coverage.seen();
        let seconds = self.ports.clock().now().since(self.begun).as_secs();
        Report { region: self.settings.me.to_string(), seconds, full, seen }
    }

    /// Refuses new keyed requests and waits until those begun have ended, at most `within`. Returns how many are left.
    pub async fn stop(&self, within: Duration) -> usize {
        self.stopping.store(true, Ordering::SeqCst);
        let clock = self.ports.clock();
        let until = clock.now() + within;
        let all_ended = async {
            loop {
                let idle = self.idle.notified();
                if self.in_flight.load(Ordering::SeqCst) == 0 {
                    return;
                }
                idle.await;
            }
        };
        race::race(all_ended, clock.sleep_until(until)).await;
        self.in_flight.load(Ordering::SeqCst)
    }

    /// Sleeps without keeping the gateway: what runs beside requests must not hold it while it waits.
    async fn rest(self: Arc<Self>, until: Moment) {
        let ports = self.ports.clone();
        drop(self);
        ports.clock().sleep_until(until).await;
    }

    fn ports(&self) -> &P {
        &self.ports
    }

    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What an attempt on this route typically takes, as observed.
    fn typical(&self, route: &str) -> Option<Duration> {
        self.live.load().typical(route)
    }

    /// Takes one more observation of the upstream's latency in.
    fn observe_upstream(&self, ask: &admit::Ask, started: Moment) {
        let took = self.ports.clock().now().since(started);
        metrics::upstream(&ask.route, took);
        self.live.load().took(&ask.route, took);
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }
}
