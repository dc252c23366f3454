//! Measures the time that a change of the gate waits for claims. `cargo bench --bench gate` runs
//! it.
//!
//! 64 clients claim one key after the other through the store port against a private Postgres.
//! Meanwhile the bench sets the gate's state again and again. It prints the durations of changes
//! and claims. `adapters/postgres/sql/0001_schema.sql` says which of the two waits for the other.
//! The bench must not pass if a change or a claim failed. Nor may it pass if a change took more
//! than 50 ms beyond the longest claim on its way at its start.

#![allow(clippy::disallowed_methods, reason = "it measures real time")]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use onceway::adapters::postgres::PgStore;
use onceway::ports::store::{ClaimReply, GateVersion, Written};
use onceway::ports::{Authority, KeyStore};
use onceway::protocol::authority::GateState;
use onceway::protocol::region::RegionName;
use onceway::protocol::ring::{PlaceBy, RegionSpec, Ring, RingSpec};
use onceway::protocol::view::{AcceptorId, View};

/// Clients at a time; each claims one key after the other.
const CLIENTS: usize = 64;
const TURN: Duration = Duration::from_secs(5);
const TURNS: usize = 3;
const PAUSE: Duration = Duration::from_millis(100);
/// Time that a change may take beyond the longest claim of its time.
const BEYOND: Duration = Duration::from_millis(50);
#[derive(Clone, Copy)]
struct Took {
    begun: Instant,
    took: Duration,
}

impl Took {
    fn since(begun: Instant) -> Took {
        Took { begun, took: begun.elapsed() }
    }

    fn is_before(&self, other: &Took) -> bool {
        self.begun < other.begun && other.begun < self.begun + self.took
    }
}

#[derive(Default)]
struct Seen {
    claims: Vec<Took>,
    changes: Vec<Took>,
    unclaimed: Vec<String>,
    unchanged: Vec<String>,
}

impl Seen {
    fn add(&mut self, other: Seen) {
        self.claims.extend(other.claims);
        self.changes.extend(other.changes);
        self.unclaimed.extend(other.unclaimed);
        self.unchanged.extend(other.unchanged);
    }
}

fn main() -> Result<()> {
    tokio::runtime::Runtime::new()?.block_on(run())
}

async fn run() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let cluster = support::started(dir.path()).await?;
    let store = support::opened(&cluster, &[], CLIENTS).await?;
    println!(
        "{CLIENTS} clients claim, {TURNS} turns of {TURN:?}; the gate is changed {PAUSE:?} after the last change"
    );
    // Caches, plans, and the file's growth: unmeasured.
    turn(&store).await?;
    let mut all = Seen::default();
    for _ in 0..TURNS {
        all.add(turn(&store).await?);
    }
    cluster.kill().await?;
    told(&all)
}

fn told(all: &Seen) -> Result<()> {
    println!("              number      p50 ms    p99 ms    max ms");
    for (name, took) in [("claims", &all.claims), ("changes", &all.changes)] {
        let mut sorted: Vec<Duration> = took.iter().map(|took| took.took).collect();
        sorted.sort();
        let at = |part: f64| {
            let at = ((sorted.len() as f64 * part) as usize).min(sorted.len().saturating_sub(1));
            sorted.get(at).map_or(f64::NAN, |took| took.as_secs_f64() * 1_000.0)
        };
        println!("{name:<10} {:>9} {:>11.2} {:>9.2} {:>9.2}", sorted.len(), at(0.5), at(0.99), at(1.0));
    }
    println!("claims/s: {:.0}", all.claims.len() as f64 / (TURN * TURNS as u32).as_secs_f64());
    let beyond = all.changes.iter().map(|change| {
        let longest = all.claims.iter().filter(|claim| claim.is_before(change)).map(|claim| claim.took).max();
        change.took.saturating_sub(longest.unwrap_or_default())
    });
    let beyond = beyond.max().context("the gate was never changed")?;
    println!(
        "beyond the longest claim that was on its way, at most: {:.2} ms",
        beyond.as_secs_f64() * 1_000.0
    );
    println!("failed: {} claims, {} changes", all.unclaimed.len(), all.unchanged.len());
    if let Some(why) = all.unchanged.iter().chain(&all.unclaimed).next() {
        bail!("{why}");
    }
    ensure!(beyond <= BEYOND, "a change took {beyond:?} longer than the longest claim that was on its way");
    Ok(())
}

/// Runs one turn of all clients, and changes the gate meanwhile.
async fn turn(store: &Arc<PgStore>) -> Result<Seen> {
    let ends = Instant::now() + TURN;
    let version = Arc::new(AtomicU64::new(store.gate().await?.version.0));
    let clients: Vec<_> =
        (0..CLIENTS).map(|_| tokio::spawn(claims(store.clone(), version.clone(), ends))).collect();
    let state = state()?;
    let mut seen = Seen::default();
    while Instant::now() < ends {
        tokio::time::sleep(PAUSE).await;
        let before = store.gate().await?.version;
        let begun = Instant::now();
        match store.set_gate(before, &state).await {
            Ok(Written::Done) => seen.changes.push(Took::since(begun)),
            other => seen.unchanged.push(format!("a change: {other:?} after {:?}", begun.elapsed())),
        }
        version.store(store.gate().await?.version.0, Ordering::SeqCst);
    }
    for client in clients {
        seen.add(client.await??);
    }
    Ok(seen)
}

/// Runs one client. A claim under a version that is over is no claim.
async fn claims(store: Arc<PgStore>, version: Arc<AtomicU64>, ends: Instant) -> Result<Seen> {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    let mut seen = Seen::default();
    while Instant::now() < ends {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let ask = support::asked(number, GateVersion(version.load(Ordering::SeqCst)))?;
        let begun = Instant::now();
        match store.claim(&ask).await {
            Ok(ClaimReply::Won { .. }) => seen.claims.push(Took::since(begun)),
            Ok(ClaimReply::GateMoved) => {}
            Ok(ClaimReply::Found(_)) => bail!("a fresh key was not won"),
            Err(error) => seen.unclaimed.push(format!("{error} after {:?}", begun.elapsed())),
        }
    }
    Ok(seen)
}

fn state() -> Result<GateState> {
    let name = RegionName::parse("here").ok().context("a region")?;
    let regions = vec![RegionSpec { name: name.clone(), weight: 1 }];
    let spec = RingSpec { seed: 1, place_by: PlaceBy::Key, regions, pins: Vec::new() };
    let ring = Arc::new(Ring::build(&spec).ok().context("a ring")?);
    let voters = BTreeMap::from([(name, AcceptorId(1))]);
    Ok(GateState::founded(Arc::new(View::founding(1, ring, BTreeMap::new(), voters))))
}
