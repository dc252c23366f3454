//! One gateway of one region: its parts, its making and its end, and its knowledge of its store and
//! of its peers, which the heartbeat and the pings write.
//!
//! Requests and loops are `impl Gateway` where they belong: none is here.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{Notify, watch};

use crate::gateway::authority::state::{Authority, Wakes};
use crate::gateway::limits::concurrency::Concurrency;
use crate::gateway::reloadable::{ConfigStatus, Live, Reload};
use crate::gateway::request::attach::Attached;
use crate::gateway::settings::{Fixed, Settings, Timings};
use crate::gateway::shadow::memory::Shadow;
use crate::gateway::telemetry::coverage::{Coverage, Report};
use crate::gateway::telemetry::lag_history::LagHistory;
use crate::gateway::telemetry::metrics::{self, observe};
use crate::gateway::upkeep::hearing::Hearing;
use crate::gateway::upkeep::key_habits::Generators;
use crate::gateway::upkeep::looks::Looks;
use crate::gateway::upkeep::workers::Workers;
use crate::ports::peers::Pong;
use crate::ports::store::{PeerMemory, StoreError};
use crate::ports::{Clock, KeyStore, Ports};
use crate::protocol::key::KeyId;
use crate::protocol::lag::LagMeter;
use crate::protocol::plant::{Check, is_disabled};
use crate::protocol::record::{Reading, Row, resolve};
use crate::protocol::region::{Origin, RegionName};
use crate::protocol::snapshot::{Site, StoreHealth};
use crate::protocol::time::Moment;
use crate::protocol::view::View;

/// One gateway of one region.
pub struct Gateway<P: Ports> {
    pub(super) ports: Arc<P>,
    pub(super) settings: Fixed,
    /// Settings that can be replaced at run time: each request reads them once.
    pub(super) live: ArcSwap<Live>,
    pub(super) config: ArcSwap<ConfigStatus>,
    pub(super) authority: Arc<Authority>,
    pub(super) origin: Origin,
    pub(super) attached: Arc<Attached>,
    pub(super) jobs: Workers,
    pub(super) coverage: Coverage,
    pub(super) begun: Moment,
    /// Shadow mode: requests pass through; decisions are only counted.
    pub(super) shadow: Option<Arc<Shadow>>,
    pub(super) generators: Generators,
    pub(super) health: Mutex<Health>,
    pub(super) hearing: Hearing,
    pub(super) looks: Mutex<Looks>,
    /// Keys on the region's list of doubts, as the sweep counted last.
    pub(super) doubted: Mutex<Option<u64>>,
    pub(super) crowd: Arc<Concurrency>,
    pub(super) passes: metrics::Passed,
    /// All that a stop waits for.
    pub(super) in_flight: AtomicUsize,
    /// The requests among it, which status and metrics show.
    pub(super) requests: AtomicUsize,
    pub(super) requests_shown: ::metrics::Gauge,
    pub(super) idle: Notify,
    pub(super) stopping: AtomicBool,
    pub(super) died: watch::Sender<Option<&'static str>>,
}

/// Reason why a gateway in shadow mode runs no keys.
pub(super) const SHADOWED: &str = "shadow mode: everything passes, nothing is decided";

/// Error: the gateway's region is not in the ring.
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
        let peers = others.map(|name| (name.clone(), Peer::default())).collect();
        metrics::prepare(&settings.me, &settings.live.routes, settings.shadow, &view);
        let closed = if settings.shadow { SHADOWED } else { "starting" };
        let shadow = settings.shadow.then(|| Arc::new(Shadow::new()));
        let ports = Arc::new(ports);
        let since = ports.clock().now();
        let live = Live::of(settings.live, &ports);
        let (drift, speaks) = (settings.drift, settings.speaks);
        let site = Site { me: origin.clone(), lease: settings.failover.lease, drift, speaks };
        let store = StoreHealth::Closed { why: closed.to_owned(), since };
        let authority = Arc::new(Authority::new(site, Arc::new(view), store, ports.dice()));
        Ok(Arc::new(Self {
            begun: ports.clock().now(),
            ports,
            live: ArcSwap::from_pointee(live),
            config: ArcSwap::default(),
            settings: Fixed {
                me: settings.me,
                drift,
                skew: settings.skew,
                seals_requests: settings.seals_requests,
                timings: settings.timings,
                failover: settings.failover,
                upstream_health: settings.upstream_health,
                speaks,
            },
            authority,
            origin,
            attached: Arc::default(),
            jobs: Workers::default(),
            coverage: Coverage::default(),
            shadow,
            generators: Generators::default(),
            health: Mutex::new(Health { beat: None, went_back: false, peers, remembered: None }),
            hearing: Hearing::default(),
            looks: Mutex::default(),
            doubted: Mutex::default(),
            crowd: Arc::default(),
            passes: metrics::Passed::default(),
            in_flight: AtomicUsize::new(0),
            requests: AtomicUsize::new(0),
            requests_shown: metrics::in_flight(),
            idle: Notify::new(),
            stopping: AtomicBool::new(false),
            died: watch::Sender::new(None),
        }))
    }

    /// Reports the state-changing requests that this gateway has seen, and if a key protected them.
    pub fn coverage(&self) -> Report {
        let (seen, full) = self.coverage.seen();
        let seconds = self.now().since(self.begun).as_secs();
        Report { region: self.settings.me.to_string(), seconds, full, seen }
    }

    /// Goes by these settings from the next request on; requests that have begun keep the old ones.
    pub fn reload(&self, reload: Reload) {
        metrics::prepare_routes(&reload.routes);
        let restart = reload.restart.clone();
        self.live.store(Arc::new(self.live.load().next(reload, &self.ports)));
        self.loaded(restart);
        // Last: with this count, a reader sees all of the new settings.
        metrics::count_by(observe::CONFIG_RELOADS, "result", "ok");
    }

    /// Notes that the files were read and are running, except for settings that wait for a restart.
    pub fn loaded(&self, restart: Vec<String>) {
        let now = self.ports.clock().date();
        metrics::set(observe::CONFIG_LOADED, now.as_millis() as f64 / 1_000.0);
        metrics::tell(observe::CONFIG_CURRENT, restart.is_empty());
        let (loaded_ms, current) = (Some(now.as_millis()), restart.is_empty());
        self.config.store(Arc::new(ConfigStatus { loaded_ms, current, restart, ..ConfigStatus::default() }));
    }

    /// Notes that the files are wrong: the running settings stay.
    pub fn reload_failed(&self, problems: Vec<String>) {
        metrics::tell(observe::CONFIG_CURRENT, false);
        let before = (**self.config.load()).clone();
        self.config.store(Arc::new(ConfigStatus { current: false, problems, ..before }));
        metrics::count_by(observe::CONFIG_RELOADS, "result", "failed");
    }

    pub(super) fn live(&self) -> Arc<Live> {
        self.live.load_full()
    }

    /// Refuses new keyed requests, and waits. Returns how many still run after `within`.
    pub async fn stop(&self, within: Duration) -> usize {
        self.stopping.store(true, Ordering::SeqCst);
        let until = self.now() + within;
        let all_ended = async {
            loop {
                let idle = self.idle.notified();
                if self.in_flight.load(Ordering::SeqCst) == 0 {
                    return;
                }
                idle.await;
            }
        };
        self.before(until, all_ended).await;
        self.in_flight.load(Ordering::SeqCst)
    }

    /// The result of this work, if it is there before that moment.
    pub(super) async fn before<T>(&self, until: Moment, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = work => Some(done),
            () = self.ports.clock().sleep_until(until) => None,
        }
    }

    /// Sleeps without keeping the gateway alive: a loop must not hold it while it waits.
    pub(super) async fn rest(self: Arc<Self>, until: Moment) {
        let ports = self.ports.clone();
        drop(self);
        ports.clock().sleep_until(until).await;
    }

    /// Like [`Gateway::rest`], but ends early if the loop is woken.
    pub(super) async fn rest_or(self: Arc<Self>, wake: fn(&Wakes) -> &Notify, until: Moment) {
        let (authority, ports) = (self.authority.clone(), self.ports.clone());
        drop(self);
        tokio::select! {
            biased;
            () = wake(&authority.wakes).notified() => {}
            () = ports.clock().sleep_until(until) => {}
        }
    }

    pub(super) fn now(&self) -> Moment {
        self.ports.clock().now()
    }

    pub(super) fn store(&self) -> &P::Store {
        self.ports.store()
    }

    pub(super) fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the rows of a key, by what this gateway knows of other regions.
    pub(super) fn read(&self, rows: Vec<Row>) -> Reading {
        resolve(rows, &self.snapshot().reader(self.now()))
    }

    pub(super) async fn rows(&self, id: &KeyId) -> Result<Vec<Row>, StoreError> {
        let mut found = self.store().look_up(std::slice::from_ref(id)).await?;
        Ok(found.pop().unwrap_or_default())
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }
}

pub(super) struct InFlight<P: Ports> {
    gateway: Arc<Gateway<P>>,
    is_look: bool,
}

impl<P: Ports> InFlight<P> {
    pub(super) fn begin(gateway: Arc<Gateway<P>>) -> Self {
        let mut begun = Self::look(gateway);
        begun.is_look = false;
        begun.gateway.requests.fetch_add(1, Ordering::SeqCst);
        begun.gateway.requests_shown.increment(1.0);
        begun
    }

    /// A look for due jobs. It is not shown, as no request may be behind it.
    pub(super) fn look(gateway: Arc<Gateway<P>>) -> Self {
        gateway.in_flight.fetch_add(1, Ordering::SeqCst);
        Self { gateway, is_look: true }
    }
}

impl<P: Ports> Drop for InFlight<P> {
    fn drop(&mut self) {
        if !self.is_look {
            self.gateway.requests.fetch_sub(1, Ordering::SeqCst);
            self.gateway.requests_shown.decrement(1.0);
        }
        if self.gateway.in_flight.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.gateway.idle.notify_waiters();
        }
    }
}

/// This gateway's knowledge of its own heartbeat and its peers.
pub(super) struct Health {
    pub(super) beat: Option<(u64, Moment)>,
    /// True once the store was found to be an old copy, for good: its counts would catch up.
    pub(super) went_back: bool,
    pub(super) peers: BTreeMap<RegionName, Peer>,
    /// This store's memory of others as the process began, and the moment of the read. No window
    /// begins before that (docs/protocol.md#rule-31).
    pub(super) remembered: Option<Remembered>,
}

type Remembered = (BTreeMap<Origin, PeerMemory>, Moment);

#[derive(Default)]
pub(super) struct Peer {
    /// Arrival of its last pong.
    pub(super) heard: Option<Moment>,
    /// Moment when the ping of its last pong was sent.
    pub(super) asked: Option<Moment>,
    pub(super) round_trip: Option<Duration>,
    pub(super) pong: Option<Pong>,
    /// Its store in the view: the next fields are about that one.
    pub(super) origin: Option<Origin>,
    /// The heartbeat up to which its rows are here; `None` until the store was read.
    pub(super) applied: Option<u64>,
    /// Its highest heartbeat that was ever seen here, with its rows or ahead of them.
    pub(super) announced: Option<u64>,
    pub(super) lag: LagMeter,
    pub(super) trail: LagHistory,
    /// True if it speaks no version that this process speaks.
    pub(super) foreign: bool,
    pub(super) trouble: Option<String>,
}

impl Peer {
    /// Follows its store in the view: what is known of another one is dropped, what was remembered
    /// of this one counts.
    pub(super) fn follow(&mut self, origin: Origin, remembered: Option<&Remembered>) {
        if self.origin.as_ref() == Some(&origin) {
            return;
        }
        (self.applied, self.announced, self.lag) = (None, None, LagMeter::default());
        if let Some((memory, read)) = remembered
            && let Some(past) = memory.get(&origin).filter(|_| !is_disabled(Check::LagRemembered))
        {
            // The peer was seen once; the store says how far its rows are here now.
            self.announced = Some(past.applied);
            past.lag.into_iter().for_each(|lag| self.lag.restore(lag, *read));
        }
        self.origin = Some(origin);
    }

    /// True if the peer was silent for so long that it counts as not reachable.
    pub(super) fn is_silent(&self, now: Moment, timings: &Timings) -> bool {
        let allowed = timings.silent_after + timings.ping + self.round_trip.unwrap_or_default();
        self.heard.is_none_or(|heard| now.since(heard) > allowed)
    }
}
