//! The gateway: the path of a request, and the loops beside it, over ports.
//!
//! `protocol` decides, `ports` perform, `server` feeds requests in. The life of a request reads top
//! to bottom in [`request`]. This folder must not touch sockets, SQL or clocks except through
//! ports. It must not decide the meaning of rows (`protocol::decide` does), and knows statuses in
//! [`reply`] only.

pub mod authority;
pub mod credentials;
pub mod limits;
pub mod operator;
pub mod policy;
mod race;
pub mod reloadable;
pub mod request;
pub mod shadow;
pub mod telemetry;
pub mod upkeep;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{Notify, watch};

use crate::ports::peers::Pong;
use crate::ports::store::{Gate, PeerMemory};
use crate::ports::{Clock, Ports};
use crate::protocol::digest::Digest32;
use crate::protocol::lag::LagMeter;
use crate::protocol::lease::Lease;
use crate::protocol::plant::{Plant, removed};
use crate::protocol::region::{Origin, RegionName};
use crate::protocol::time::{Drift, Moment};
use crate::protocol::versions::Versions;
use crate::protocol::view::View;
use credentials::Credentials;
use limits::concurrency::{Concurrency, MostAtOnce};
use limits::quota::Quota;
pub use operator::acts::Refusal;
use policy::route::{Policy, Routes};
use reloadable::{ConfigStatus, Live};
use request::attach::Attached;
pub use request::problems::CODES as PROBLEM_CODES;
use shadow::Shadow;
use telemetry::coverage::{Coverage, Report};
use upkeep::jobs::Workers;

/// Settings that a gateway gets before it starts.
pub struct Settings {
    /// The region it serves in.
    pub me: RegionName,
    /// The generation of its store, as its region file says.
    pub generation: u32,
    /// Routes: requests that need a key, and how each is performed.
    pub routes: Routes,
    /// Credentials at the start; [`Gateway::reload`] brings later ones.
    pub credentials: Arc<Credentials>,
    /// Bounds on clock errors.
    pub drift: Drift,
    /// Time for which an answer is stored beyond its promised retention.
    pub skew: Duration,
    /// True if stored requests are sealed, so that clients' credentials may be stored with them.
    pub seals_requests: bool,
    /// Periods and time limits.
    pub timings: Timings,
    /// Limits of each tenant at this gateway: keys started per time, and keys stored. `None` is no
    /// limit.
    pub quota: Option<Quota>,
    /// Requests that it has at once, at most.
    pub most_at_once: MostAtOnce,
    /// Shadow mode: requests pass through, and decisions are only counted. Neither store nor peers
    /// are asked.
    pub shadow: bool,
    /// Failover settings.
    pub failover: authority::Failover,
    /// Check of this region's upstream; `None` without a check.
    pub upstream_health: Option<authority::upstream::UpstreamHealth>,
    /// Digest of the settings that all regions must share.
    pub shared: Digest32,
    /// Versions of the protocol between regions that this process speaks.
    pub speaks: Versions,
}

/// Periods and bounds of one gateway.
#[derive(Clone, Copy, Debug)]
pub struct Timings {
    /// Pause between two heartbeats.
    pub heartbeat: Duration,
    /// Pause between two pings to a peer.
    pub ping: Duration,
    /// Silence after which a peer counts as not reachable.
    pub silent_after: Duration,
    /// Pause between two looks at the copies of other regions' heartbeats.
    pub poll: Duration,
    /// Pause between two looks at records that duplicates wait for.
    pub attach_poll: Duration,
    /// Time limit for a client to send its body.
    pub body_within: Duration,
    /// Time limit for claiming a key, repeats included.
    pub claim_within: Duration,
    /// Time that an answer may take to be stored. After that the client gets `outcome-unknown`.
    pub settle_within: Duration,
    /// Time limit for a question to the upstream's status address.
    pub probe_within: Duration,
    /// Pause between two looks for jobs that are due.
    pub jobs_poll: Duration,
    /// Pause between two sweeps for abandoned claims and keys in doubt.
    pub sweep: Duration,
    /// Pause between two looks of the reaper while little is due.
    pub reap: Duration,
    /// Pause between two batches of the reaper while much is due, at least.
    pub reap_pause: Duration,
}

/// Settings that stay as they are until the process ends.
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
    /// Time that an answer to a request under this policy may take at the owner.
    fn patience(&self, policy: &Policy) -> Duration {
        let timings = &self.timings;
        policy.wait
            + timings.claim_within
            + request::escrow::bound(policy)
            + policy.upstream_timeout.max(timings.probe_within)
            + timings.settle_within
    }
}

/// One gateway of one region.
pub struct Gateway<P: Ports> {
    ports: Arc<P>,
    settings: Fixed,
    /// Settings that can be replaced at run time: each request reads them once.
    live: ArcSwap<Live<P>>,
    /// Result of the last reading of the files.
    config: ArcSwap<ConfigStatus>,
    authority: Arc<authority::Authority>,
    origin: Origin,
    attached: Arc<Attached>,
    jobs: Workers,
    coverage: Coverage,
    begun: Moment,
    /// Shadow mode: requests pass through; decisions are only counted.
    shadow: Option<Arc<Shadow>>,
    generators: upkeep::key_habits::Generators,
    /// Each claim reads it; the heartbeat replaces it whole. So no request takes a lock.
    store: ArcSwap<StoreHealth>,
    health: Mutex<Health>,
    hearing: upkeep::hearing::Hearing,
    looks: Mutex<upkeep::doubles::Looks>,
    /// Keys on the region's list of doubts, as the sweep counted last.
    doubted: Mutex<Option<u64>>,
    crowd: Arc<Concurrency>,
    passes: telemetry::metrics::Passed,
    /// All that a stop waits for.
    in_flight: AtomicUsize,
    /// The requests among it, which status and metrics show.
    requests: AtomicUsize,
    requests_shown: ::metrics::Gauge,
    idle: Notify,
    stopping: AtomicBool,
    /// The loop that died, if one did.
    died: watch::Sender<Option<&'static str>>,
}

/// This gateway's knowledge of its own heartbeat and its peers.
struct Health {
    beat: Option<(u64, Moment)>,
    /// True once the store was found to be an old copy, for the life of this process: its counts
    /// run on and would catch up.
    went_back: bool,
    peers: BTreeMap<RegionName, Peer>,
    /// Memory of other stores that this region's store had when this process began, and the moment
    /// when it was read. No window begins before that (docs/protocol.md#rule-31).
    remembered: Option<(BTreeMap<Origin, PeerMemory>, Moment)>,
}

/// State of the store: can keys be run here?
#[derive(Clone, Debug)]
enum StoreHealth {
    /// Claims pass, as far as is known.
    Open(Gate),
    /// No claim passes.
    Closed {
        /// The reason, for status and logs.
        why: String,
        /// Moment since which no claim passes, for any reason.
        since: Moment,
    },
}

struct Peer {
    /// Arrival of its last pong.
    heard: Option<Moment>,
    /// Moment when the ping of its last pong was sent.
    asked: Option<Moment>,
    round_trip: Option<Duration>,
    pong: Option<Pong>,
    /// Its store in the view. The next fields are about that store; a replaced one is followed
    /// anew.
    origin: Option<Origin>,
    /// The heartbeat up to which its rows are in this region's store; `None` until the store was
    /// read.
    applied: Option<u64>,
    /// Its highest heartbeat that a ping reported or that was ever seen here, with its rows or
    /// ahead of them.
    told: Option<u64>,
    lag: LagMeter,
    trail: telemetry::lag_history::LagHistory,
    /// True once it was asked, with any result.
    tried: bool,
    /// True if it speaks no version that this process speaks.
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
            trail: telemetry::lag_history::LagHistory::default(),
            tried: false,
            foreign: false,
            trouble: None,
        }
    }

    /// Follows its store in the view. Knowledge about another store is dropped; what was remembered
    /// of this one counts.
    fn follow(&mut self, origin: Origin, remembered: Option<&(BTreeMap<Origin, PeerMemory>, Moment)>) {
        if self.origin.as_ref() == Some(&origin) {
            return;
        }
        (self.applied, self.told, self.lag) = (None, None, LagMeter::new(LAG_PERIOD));
        if let Some((memory, read)) = remembered
            && let Some(past) = memory.get(&origin).filter(|_| !removed(Plant::LagRemembered))
        {
            // The peer was seen once; the store says how far its rows are here now.
            self.told = Some(past.applied);
            past.lag.into_iter().for_each(|lag| self.lag.restore(lag, *read));
        }
        self.origin = Some(origin);
    }

    /// True if the peer was silent for so long that it counts as not reachable.
    fn is_silent(&self, now: Moment, timings: &Timings) -> bool {
        let allowed = timings.silent_after + timings.ping + self.round_trip.unwrap_or_default();
        self.heard.is_none_or(|heard| now.since(heard) > allowed)
    }
}

/// The trailing period over which the largest lag is kept.
const LAG_PERIOD: Duration = Duration::from_secs(600);

/// Reason why a gateway in shadow mode runs no keys.
const SHADOWED: &str = "shadow mode: everything passes, nothing is decided";

/// Error: the gateway's region is not in the ring.
#[derive(Debug, thiserror::Error)]
#[error("region {0} is not in the ring: add it to ring.toml (weight 0 for an edge), or name another region")]
pub struct NotInRing(RegionName);

impl<P: Ports> Gateway<P> {
    /// Creates a gateway that has done nothing yet.
    pub fn new(ports: P, settings: Settings, view: View) -> Result<Arc<Self>, NotInRing> {
        if view.standing(&settings.me).is_none() {
            return Err(NotInRing(settings.me));
        }
        let origin = Origin { region: settings.me.clone(), generation: settings.generation };
        let others = view.members().keys().filter(|name| **name != settings.me);
        let peers = others.map(|name| (name.clone(), Peer::unknown())).collect();
        telemetry::metrics::prepare(&settings, &view);
        upkeep::hearing::prepare();
        let proposer = authority::proposer(ports.dice());
        let lease = Lease::new(settings.failover.lease, settings.drift);
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
            generators: upkeep::key_habits::Generators::new(),
            store: ArcSwap::from_pointee(StoreHealth::Closed { why: closed.to_owned(), since }),
            health: Mutex::new(Health { beat: None, went_back: false, peers, remembered: None }),
            hearing: upkeep::hearing::Hearing::default(),
            looks: Mutex::default(),
            doubted: Mutex::default(),
            crowd: Arc::default(),
            passes: telemetry::metrics::Passed::default(),
            in_flight: AtomicUsize::new(0),
            requests: AtomicUsize::new(0),
            requests_shown: telemetry::metrics::in_flight(),
            idle: Notify::new(),
            stopping: AtomicBool::new(false),
            died: watch::Sender::new(None),
        }))
    }

    /// Starts the loops beside requests. They end when `stop` has returned and the gateway is
    /// dropped. In shadow mode none is started. If spans are exported, `job` begins the span of
    /// each run of a job.
    pub fn start(self: &Arc<Self>, job: Option<telemetry::spans::Begin>) {
        if self.shadow.is_some() {
            return;
        }
        upkeep::heartbeat::start(self);
        authority::start(self);
        request::follow::start_poller(self);
        upkeep::jobs::start(self, job);
        upkeep::reaper::start(self);
        operator::audit::start(self);
        upkeep::doubles::start(self);
        upkeep::sweep::start(self);
    }

    /// Reports the state-changing requests that this gateway has seen, and if a key protected them.
    pub fn coverage(&self) -> Report {
        let (seen, full) = self.coverage.seen();
        let seconds = self.ports.clock().now().since(self.begun).as_secs();
        Report { region: self.settings.me.to_string(), seconds, full, seen }
    }

    /// Refuses new keyed requests and waits until running ones have ended, at most `within`.
    /// Returns the number of requests that are left.
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

    /// Sleeps without keeping the gateway alive: a loop must not hold it while it waits.
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

    /// Typical duration of an attempt on this route, as observed.
    fn typical(&self, route: &str) -> Option<Duration> {
        self.live.load().typical(route)
    }

    /// Adds one observation of the upstream's latency.
    fn observe_upstream(&self, ask: &request::admit::Ask, started: Moment) {
        let took = self.ports.clock().now().since(started);
        telemetry::metrics::upstream(&ask.route, took);
        self.live.load().took(&ask.route, took);
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }
}
