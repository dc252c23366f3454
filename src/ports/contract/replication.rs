//! Random histories of three stores that follow one another: what each call replied, what arrived where, and what a crash left, line by
//! line. Recorded from three real ones, and replayed elsewhere.
//!
//! Neighbours: [`super::history`] does the same with one store, [`super::store`] has what calls look like. Every link is cut but
//! while a history waits for what one region has committed to arrive at another, so that lines are the same in every run. It must not say
//! what a reply should have been: the recorded one does.

use std::future::Future;

use crate::ports::store::{Attempt, ClaimAsk, ClaimReply};
use crate::ports::{KeyStore, Replica};
use crate::protocol::key::{Key, KeyId, Tenant};
use crate::protocol::record::Row;
use crate::protocol::region::Origin;

use super::history::{Draw, standing_on, told};
use super::store::{answer, asked, opened};

/// How many regions.
pub const REGIONS: usize = 3;
/// Keys of one history: few, so that regions meet.
const KEYS: u64 = 3;
/// Steps of one history.
const STEPS: u32 = 60;
/// How many histories are recorded.
const HISTORIES: u64 = 4;

/// Three stores that follow one another, and the environment that their histories need. Regions are numbers below [`REGIONS`].
pub trait ReplicationBench: Sync {
    /// One of the stores.
    type Store: KeyStore + Replica;

    /// A region's store.
    fn store(&self, region: usize) -> &Self::Store;

    /// The origin under which it writes.
    fn origin(&self, region: usize) -> Origin;

    /// A tenant that no other run uses; the same one for the same name.
    fn tenant(&self, name: &str) -> Tenant;

    /// Cuts the way on which commits of `from` come to `to`: what is on it does not arrive, and is sent again once it is mended.
    fn cut(&self, from: usize, to: usize) -> impl Future<Output = ()> + Send;

    /// Mends that way.
    fn mend(&self, from: usize, to: usize) -> impl Future<Output = ()> + Send;

    /// Returns once the store of `to` shows this heartbeat of `from`, or a later one.
    fn shows(&self, to: usize, from: usize, heartbeat: u64) -> impl Future<Output = ()> + Send;

    /// Ends a store's server without warning, and starts it again: same data, a new boot. Returns when it answers.
    fn crash(&self, region: usize) -> impl Future<Output = ()> + Send;
}

/// One history on its way.
struct History<'a, B> {
    bench: &'a B,
    draw: Draw,
    keys: Vec<KeyId>,
    /// By region and key: the attempt that was won there last.
    won: Vec<Vec<Option<Attempt>>>,
    nonce: u128,
}

/// All histories that were recorded, as one text: compared on the simulated side, and on the real one, which also records it.
pub async fn all<B: ReplicationBench>(bench: &B) -> String {
    for (from, to) in links() {
        bench.cut(from, to).await;
    }
    let mut text = String::new();
    for seed in 0..HISTORIES {
        text.push_str(&format!("history {seed}\n"));
        let mut history = History::new(bench, seed);
        for step in 0..STEPS {
            let line = history.step().await;
            text.push_str(&format!("{step:>2} {line}\n"));
        }
        text.push_str(&history.end().await);
    }
    text
}

fn links() -> impl Iterator<Item = (usize, usize)> {
    (0..REGIONS).flat_map(|from| (0..REGIONS).filter(move |to| *to != from).map(move |to| (from, to)))
}

impl<'a, B: ReplicationBench> History<'a, B> {
    fn new(bench: &'a B, seed: u64) -> Self {
        let key = |number| {
            let key = Key::parse(&format!("history-{seed}-{number}")).expect("bench: this is a key");
            KeyId::new(bench.tenant("replication"), key)
        };
        let won = vec![vec![None; KEYS as usize]; REGIONS];
        Self {
            bench,
            draw: Draw(seed),
            keys: (0..KEYS).map(key).collect(),
            won,
            nonce: u128::from(seed) << 32,
        }
    }

    fn region(&mut self) -> usize {
        self.draw.below(REGIONS as u64) as usize
    }

    /// One step, drawn.
    async fn step(&mut self) -> String {
        let (kind, region, key) = (self.draw.below(40), self.region(), self.draw.below(KEYS) as usize);
        match kind {
            0..3 => self.claims(region, key, false).await,
            3..13 => self.claims(region, key, true).await,
            13..22 => self.ends(region, key).await,
            22..24 => {
                self.crash(region).await;
                format!("{} crashes; {}", name(region), self.everything(region).await)
            }
            24..29 => format!("{} has {}", name(region), self.everything(region).await),
            _ => {
                let to = (region + 1 + self.draw.below(REGIONS as u64 - 1) as usize) % REGIONS;
                // Now and then one of the two crashes while commits are on their way.
                let crashes = [None, None, None, Some(region), Some(to)][self.draw.below(5) as usize];
                self.arrives(region, to, crashes).await
            }
        }
    }

    /// What every region has once everything has arrived everywhere.
    async fn end(&mut self) -> String {
        for (from, to) in links() {
            self.arrives(from, to, None).await;
        }
        let mut text = String::new();
        for region in 0..REGIONS {
            text.push_str(&format!("in the end {} has {}\n", name(region), self.everything(region).await));
        }
        text
    }

    async fn claims(&mut self, region: usize, key: usize, over: bool) -> String {
        let store = self.bench.store(region);
        self.nonce += 1;
        let mut ask = asked(&self.keys[key], self.nonce, opened(store).await.version);
        if over {
            let rows = store.look_up(std::slice::from_ref(&ask.id)).await.expect("store: look_up failed");
            ask.basis = standing_on(&rows.concat(), &self.bench.origin(region));
        }
        let ClaimAsk { id, nonce, .. } = ask.clone();
        let reply = match store.claim(&ask).await.expect("store: claim failed") {
            ClaimReply::Won { token, .. } => {
                self.won[region][key] = Some(Attempt { id, token, nonce });
                format!("won {token}")
            }
            ClaimReply::Found(rows) => format!("found {}", self.shown(&rows)),
            ClaimReply::GateMoved => "the gate moved".to_owned(),
        };
        let what = if over { "over what it sees" } else { "as absent" };
        format!("{} claims key {key} {what}: {reply}", name(region))
    }

    async fn ends(&mut self, region: usize, key: usize) -> String {
        let how = self.draw.below(3);
        let Some(attempt) = &self.won[region][key] else {
            return format!("{} has won no key {key}", name(region));
        };
        let store = self.bench.store(region);
        let (what, written) = match how {
            0 => ("settles", store.settle(attempt, &answer()).await),
            1 => ("releases", store.release(attempt).await),
            _ => ("doubts", store.doubt(attempt, None).await),
        };
        let written = written.expect("store: the end of an attempt failed");
        format!("{} {what} key {key} {}: {written:?}", name(region), attempt.token)
    }

    /// All that `from` has committed arrives at `to`; what `to` has then.
    async fn arrives(&mut self, from: usize, to: usize, crashes: Option<usize>) -> String {
        let bench = self.bench;
        bench.mend(from, to).await;
        if let Some(region) = crashes {
            self.crash(region).await;
        }
        opened(bench.store(from)).await;
        let beat = bench.store(from).beat().await.expect("store: beat failed");
        let heartbeat = beat.expect("store: an open gate must let a heartbeat be written").seq;
        bench.shows(to, from, heartbeat).await;
        bench.cut(from, to).await;
        let crashed = crashes.map(|region| format!(", {} crashes", name(region))).unwrap_or_default();
        format!("{} to {}{crashed}; {}", name(from), name(to), self.everything(to).await)
    }

    /// What a store has applied of another's it may lose by a crash, and be sent again, where nothing of its own was committed since (a subscription
    /// commits without waiting for the disk): how much is chance. So a heartbeat of its own goes before.
    async fn crash(&mut self, region: usize) {
        let store = self.bench.store(region);
        opened(store).await;
        store.beat().await.expect("store: beat failed");
        self.bench.crash(region).await;
        opened(store).await;
    }

    /// All rows of the history's keys in a region, and which heartbeat of whom it has seen.
    async fn everything(&self, region: usize) -> String {
        let store = self.bench.store(region);
        let found = store.look_up(&self.keys).await.expect("store: look_up failed");
        let keys = found.iter().enumerate().map(|(key, rows)| format!("key {key} {}", self.shown(rows)));
        let heard = store.heartbeats().await.expect("store: heartbeats failed");
        let mut heard: Vec<_> = heard.iter().map(|beat| (self.number(&beat.origin), beat.seq)).collect();
        heard.sort_unstable();
        let heard: Vec<_> = heard.iter().map(|(region, seq)| format!("{region}:{seq}")).collect();
        format!("{}; heartbeats {}", keys.collect::<Vec<_>>().join("; "), heard.join(" "))
    }

    /// Rows with the region of each, in order of it.
    fn shown(&self, rows: &[Row]) -> String {
        let mut all: Vec<_> =
            rows.iter().map(|row| format!("{} {}", self.number(&row.origin), told(row))).collect();
        all.sort_unstable();
        if all.is_empty() { "nothing".to_owned() } else { all.join(", ") }
    }

    fn number(&self, origin: &Origin) -> &'static str {
        (0..REGIONS).find(|region| self.bench.origin(*region) == *origin).map_or("?", name)
    }
}

fn name(region: usize) -> &'static str {
    ["a", "b", "c"].get(region).copied().unwrap_or("?")
}
