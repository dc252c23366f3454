//! Measures the effect of the reaper on production traffic. `cargo bench --bench reaper` runs it.
//!
//! The bench claims and settles through the store port against a private Postgres, in turns with
//! the reaper off and on. With it on, 100,000 rows are due. The turns run at saturation and at half
//! of that rate. The bench prints both and their ratio. It paces batches as `gateway::reaper` does
//! (500 rows, a pause of four times a batch's duration). Only the figures of one run are
//! comparable. It must not assert anything: on a busy machine the result would be wrong.

#![allow(clippy::disallowed_methods, reason = "it measures real time")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use onceway::adapters::postgres::PgStore;
use onceway::fleet::cluster::Cluster;
use onceway::ports::contract::by;
use onceway::ports::store::{Attempt, ClaimReply, GateVersion};
use onceway::ports::{KeyStore, Upkeep};
use onceway::protocol::record::{Answer, AnswerBody};
use onceway::protocol::time::Date;

/// Clients at a time; each claims and settles one key after the other.
const CLIENTS: usize = 16;
const TURN: Duration = Duration::from_secs(5);
const TURNS: usize = 3;
/// Rows that are due when a turn with the reaper begins.
const DUE: i32 = 100_000;
const BATCH: u32 = 500;
/// Results of the clients of one turn.
#[derive(Default)]
struct Seen {
    took: Vec<Duration>,
    over: Duration,
}

impl Seen {
    fn quantile(&self, part: f64) -> f64 {
        let at = ((self.took.len() as f64 * part) as usize).min(self.took.len().saturating_sub(1));
        self.took.get(at).map_or(f64::NAN, |took| took.as_secs_f64() * 1_000.0)
    }

    fn rate(&self) -> f64 {
        self.took.len() as f64 / self.over.as_secs_f64()
    }
}

fn main() -> Result<()> {
    tokio::runtime::Runtime::new()?.block_on(run())
}

async fn run() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let cluster = support::started(dir.path()).await?;
    let store = support::opened(&cluster, &["there#1"], CLIENTS).await?;
    let gate = store.gate().await?.version;
    println!(
        "claim + settle, {CLIENTS} clients, {TURNS} turns of {TURN:?} each, in turns; {DUE} rows due at the start of a turn\n"
    );
    // Caches, plans, and the file's growth: unmeasured.
    let bench = Bench { store, gate, reaped: Arc::default() };
    make_due(&cluster, 0).await?;
    bench.turn(true, None).await?;
    let most = bench.compare("saturation: each client as fast as it can", &cluster, 1, None).await?;
    let pace = Duration::from_secs_f64(CLIENTS as f64 / (most / 2.0));
    bench
        .compare("half load: half of that rate, waits counted from the time due", &cluster, 2, Some(pace))
        .await?;
    cluster.kill().await?;
    Ok(())
}

/// Makes settled rows with a body of 1 kB whose life is over.
async fn make_due(cluster: &Cluster, turn: usize) -> Result<()> {
    let client = cluster.connect(support::DATABASE).await?;
    let sql = format!(
        "insert into onceway.records (tenant, key, origin, state, epoch, attempt, nonce, fp_raw, request_id, held_at, hold, \
             expires_at, due_at, answer_status, answer_headers, answer_body, answer_length, settled_at) \
         select 'due', convert_to('{turn}-' || n, 'UTF8'), 'here#1', 4, 1, 1, gen_random_uuid(), sha256(''), gen_random_uuid(), \
             now() - interval '1 day' + n * interval '1 microsecond', interval '30 seconds', now() - interval '1 hour', \
             now() - interval '1 hour', 201, '\\x01', decode(repeat(md5(n::text), 32), 'hex') || decode(repeat(md5(n::text), 32), 'hex'), \
             1024, now() - interval '1 day' from generate_series(1, {DUE}) n"
    );
    client.batch_execute(&sql).await?;
    // One at a time: several statements would share a transaction, and neither of these may run in
    // one.
    client.batch_execute("vacuum analyze onceway.records").await?;
    client.batch_execute("checkpoint").await?;
    Ok(())
}

struct Bench {
    store: Arc<PgStore>,
    gate: GateVersion,
    reaped: Arc<AtomicU64>,
}

impl Bench {
    /// Runs turns without and with the reaper, one after the other, and prints the results. Returns
    /// the rate without it, in cycles per second.
    async fn compare(
        &self,
        load: &str,
        cluster: &Cluster,
        round: usize,
        pace: Option<Duration>,
    ) -> Result<f64> {
        let (mut without, mut with) = (Seen::default(), Seen::default());
        self.reaped.store(0, Ordering::Relaxed);
        for turn in 0..TURNS {
            for on in [false, true] {
                if on {
                    make_due(cluster, round * TURNS + turn).await?;
                }
                let seen = if on { &mut with } else { &mut without };
                seen.took.extend(self.turn(on, pace).await?);
                seen.over += TURN;
            }
        }
        without.took.sort();
        with.took.sort();
        println!("{load}\n             reaper off   reaper on   on/off");
        for (name, off, on) in [
            ("p50 ms", without.quantile(0.5), with.quantile(0.5)),
            ("p99 ms", without.quantile(0.99), with.quantile(0.99)),
            ("cycles/s", without.rate(), with.rate()),
        ] {
            println!("{name:<12} {off:>10.2}  {on:>10.2}  {:>7.2}", on / off);
        }
        let rate = self.reaped.load(Ordering::Relaxed) as f64 / with.over.as_secs_f64();
        println!("rows reaped meanwhile: {rate:.0}/s\n");
        Ok(without.rate())
    }

    /// Runs one turn of all clients, with or without the reaper. Returns the duration of each claim
    /// and its settlement together, from the moment it was due.
    async fn turn(&self, on: bool, pace: Option<Duration>) -> Result<Vec<Duration>> {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let begins = Instant::now();
        let stop = Arc::new(AtomicBool::new(false));
        let reaper = on.then(|| tokio::spawn(reap(self.store.clone(), stop.clone(), self.reaped.clone())));
        let mut clients = Vec::new();
        for client in 0..CLIENTS {
            let (store, gate) = (self.store.clone(), self.gate);
            clients.push(tokio::spawn(async move {
                let mut took = Vec::new();
                // Spread, so that the clients do not all begin at once.
                let mut due = begins + pace.unwrap_or_default().mul_f64(client as f64 / CLIENTS as f64);
                while Instant::now() < begins + TURN {
                    match pace {
                        Some(pace) => {
                            tokio::time::sleep_until(due.into()).await;
                            cycle(&store, gate, NUMBER.fetch_add(1, Ordering::Relaxed)).await?;
                            took.push(due.elapsed());
                            due += pace;
                        }
                        None => {
                            let due = Instant::now();
                            cycle(&store, gate, NUMBER.fetch_add(1, Ordering::Relaxed)).await?;
                            took.push(due.elapsed());
                        }
                    }
                }
                anyhow::Ok(took)
            }));
        }
        let mut all = Vec::new();
        for client in clients {
            all.extend(client.await??);
        }
        stop.store(true, Ordering::Relaxed);
        if let Some(reaper) = reaper {
            reaper.await??;
        }
        Ok(all)
    }
}

async fn reap(store: Arc<PgStore>, stop: Arc<AtomicBool>, reaped: Arc<AtomicU64>) -> Result<()> {
    while !stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let batch = store.reap(by(Date(i64::MAX / 2_000_000)), BATCH).await?;
        reaped.fetch_add(batch.seen(), Ordering::Relaxed);
        tokio::time::sleep((begun.elapsed() * 4).max(Duration::from_millis(20))).await;
    }
    Ok(())
}

async fn cycle(store: &PgStore, gate: GateVersion, number: u64) -> Result<()> {
    let ask = support::asked(number, gate)?;
    let ClaimReply::Won { token, .. } = store.claim(&ask).await? else { bail!("a fresh key was not won") };
    let attempt = Attempt { id: ask.id, token, nonce: ask.nonce };
    let body = AnswerBody::Kept(vec![b'x'; 1_024]);
    store.settle(&attempt, &Answer { status: 201, headers: Vec::new(), body }).await?;
    Ok(())
}
