//! The port to one region's store: what a statement suffers on its way, and what its caller can know afterwards.
//!
//! Neighbours: [`crate::table`] executes the statements, [`crate::cluster`] holds the switches. It must not execute a statement twice.

use std::time::Duration;

use onceway::ports::jobs::{Act, Acted, Job, JobLoad, JobRow, StoredRequest, Taken, Turns};
use onceway::ports::store::{
    Attempt, Beat, Boot, ClaimAsk, ClaimReply, Gate, GateVersion, Heartbeat, PeerMemory, StoreError,
    Subscription, Written,
};
use onceway::ports::upkeep::{
    self, ClaimPage, Entry, ForeignPage, KeyStretch, ListedDoubt, Place, Reaped, Ruling, Who,
};
use onceway::ports::{Jobs, KeyStore, Replica, Upkeep};
use onceway::protocol::forget::{MayForget, Observed};
use onceway::protocol::job::JobState;
use onceway::protocol::key::{Key, KeyId, Tenant};
use onceway::protocol::record::{Answer, Nonce, Row};
use onceway::protocol::region::RegionName;
use onceway::protocol::time::Date;

use crate::clock::pause;
use crate::cluster::{Cluster, StoreMode};
use crate::points::Point;
use crate::process::Process;
use crate::table::Table;

/// A region's store, as its gateways reach it.
#[derive(Clone, Debug)]
pub struct SimStore {
    cluster: Cluster,
    region: RegionName,
    process: Process,
}

/// Whether a statement can write: only then can a lost reply leave anything unknown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    Reads,
    Writes,
    /// It writes, and its sender may die right after it.
    At(Point),
}

impl SimStore {
    pub(crate) fn new(cluster: Cluster, region: RegionName) -> Self {
        Self { cluster, region, process: Process::default() }
    }

    /// The same store, as this process reaches it.
    pub(crate) fn of(self, process: &Process) -> Self {
        Self { process: process.clone(), ..self }
    }

    pub(crate) async fn call<T>(
        &self,
        effect: Effect,
        statement: impl FnOnce(&mut Table) -> T,
    ) -> Result<T, StoreError> {
        self.process.runs().await;
        let replied = self.send(effect, statement).await;
        self.process.runs().await;
        replied
    }

    /// A statement that is on its way is executed whether or not its sender lives to see it.
    async fn send<T>(
        &self,
        effect: Effect,
        statement: impl FnOnce(&mut Table) -> T,
    ) -> Result<T, StoreError> {
        let (_, latency) = self.cluster.manners(&self.region);
        pause(latency / 2).await;
        let (mode, _) = self.cluster.manners(&self.region);
        match mode {
            StoreMode::Up => {
                let reply = self.cluster.execute(&self.region, statement);
                if let Effect::At(point) = effect {
                    self.process.passed(point);
                }
                pause(latency / 2).await;
                Ok(reply)
            }
            StoreMode::Refuse => Err(StoreError::Definite("connection refused".to_owned())),
            StoreMode::Stall(bound) => Err(silent(effect, bound).await),
            StoreMode::LoseReplies(bound) => {
                self.cluster.execute(&self.region, statement);
                Err(silent(effect, bound).await)
            }
        }
    }
}

async fn silent(effect: Effect, bound: Duration) -> StoreError {
    pause(bound).await;
    let why = format!("no reply for {bound:?}");
    match effect {
        Effect::Reads => StoreError::Definite(why),
        Effect::Writes | Effect::At(_) => StoreError::Unknown(why),
    }
}

impl KeyStore for SimStore {
    async fn claim(&self, ask: &ClaimAsk) -> Result<ClaimReply, StoreError> {
        let later = self.cluster.confirms(&self.region);
        // A hold of nothing is never sent under: it stands in for another region's attempt.
        let effect = if ask.hold.is_zero() { Effect::At(Point::StandIn) } else { Effect::Writes };
        let replied = self.call(effect, |table| table.claim(ask)).await;
        pause(later).await;
        self.process.runs().await;
        replied
    }

    async fn settle(&self, attempt: &Attempt, answer: &Answer) -> Result<Written, StoreError> {
        self.call(Effect::At(Point::Settle), |table| table.settle(attempt, answer)).await
    }

    async fn release(&self, attempt: &Attempt) -> Result<Written, StoreError> {
        self.call(Effect::At(Point::Release), |table| table.release(attempt)).await
    }

    async fn doubt(&self, attempt: &Attempt, status: Option<u16>) -> Result<Written, StoreError> {
        self.call(Effect::At(Point::Doubt), |table| table.doubt(attempt, status)).await
    }

    async fn look_up(&self, ids: &[KeyId]) -> Result<Vec<Vec<Row>>, StoreError> {
        self.call(Effect::Reads, |table| ids.iter().map(|id| table.read(id)).collect()).await
    }

    async fn gate(&self) -> Result<Gate, StoreError> {
        self.call(Effect::Reads, |table| table.gate()).await
    }

    async fn approve(&self, version: GateVersion, boot: &Boot) -> Result<Written, StoreError> {
        self.call(Effect::At(Point::Gate), |table| table.approve(version, boot)).await
    }
}

impl Replica for SimStore {
    async fn beat(&self) -> Result<Option<Beat>, StoreError> {
        self.call(Effect::Writes, Table::beat).await
    }

    async fn heartbeats(&self) -> Result<Vec<Heartbeat>, StoreError> {
        self.call(Effect::Reads, |table| table.heartbeats()).await
    }

    async fn remember(&self, memory: &[PeerMemory]) -> Result<(), StoreError> {
        self.call(Effect::At(Point::Remember), |table| table.remember(memory)).await
    }

    async fn recall(&self) -> Result<Vec<PeerMemory>, StoreError> {
        self.call(Effect::Reads, |table| table.recall()).await
    }

    async fn subscriptions(&self) -> Result<Vec<Subscription>, StoreError> {
        self.call(Effect::Reads, |_| ()).await?;
        Ok(self.cluster.subscriptions(&self.region))
    }
}

impl Jobs for SimStore {
    async fn accept(
        &self,
        ask: &ClaimAsk,
        request: &StoredRequest,
        keep: Duration,
    ) -> Result<ClaimReply, StoreError> {
        self.call(Effect::Writes, |table| table.accept(ask, request, keep)).await
    }

    async fn take(
        &self,
        nonce: Nonce,
        most: usize,
        away: Duration,
        may: Option<MayForget>,
        turns: Option<&Turns>,
    ) -> Result<Vec<Job>, StoreError> {
        self.call(Effect::At(Point::Take), |table| table.take(nonce, most, away, may, turns)).await
    }

    async fn finish(&self, taken: &Taken) -> Result<Written, StoreError> {
        self.call(Effect::At(Point::Job), |table| table.finish(taken)).await
    }

    async fn put_off(
        &self,
        taken: &Taken,
        after: Duration,
        counted: bool,
        trouble: &str,
    ) -> Result<Written, StoreError> {
        self.call(Effect::At(Point::Job), |table| table.put_off(taken, after, counted, trouble)).await
    }

    async fn bury(&self, taken: &Taken, trouble: &str) -> Result<Written, StoreError> {
        self.call(Effect::At(Point::Job), |table| table.bury(taken, trouble)).await
    }

    async fn erase(&self, may: MayForget) -> Result<u64, StoreError> {
        self.call(Effect::At(Point::Reap), |table| table.erase(may)).await
    }

    async fn job(&self, id: &KeyId) -> Result<Option<JobRow>, StoreError> {
        self.call(Effect::Reads, |table| table.job(id)).await
    }

    async fn jobs(&self, state: Option<JobState>, most: usize) -> Result<Vec<JobRow>, StoreError> {
        self.call(Effect::Reads, |table| table.jobs(state, most)).await
    }

    async fn load(&self) -> Result<JobLoad, StoreError> {
        self.call(Effect::Reads, |table| table.load()).await
    }

    async fn revive(&self, id: &KeyId, act: &Act) -> Result<Acted, StoreError> {
        self.call(Effect::Writes, |table| table.revive(id, act)).await
    }

    async fn discard(&self, id: &KeyId, act: &Act) -> Result<Acted, StoreError> {
        self.call(Effect::Writes, |table| table.discard(id, act)).await
    }
}

impl Upkeep for SimStore {
    async fn reap(&self, may: MayForget, most: u32) -> Result<Reaped, StoreError> {
        self.call(Effect::At(Point::Reap), |table| table.reap(may, most)).await
    }

    async fn claims(
        &self,
        after: Option<Place>,
        older: Duration,
        most: u32,
    ) -> Result<ClaimPage, StoreError> {
        self.call(Effect::Reads, |table| table.claims(after, older, most)).await
    }

    async fn doubts(&self, after: Option<&KeyId>, most: u32) -> Result<Vec<ListedDoubt>, StoreError> {
        self.call(Effect::Reads, |table| table.doubts(after, most)).await
    }

    async fn foreign(&self, after: Option<&KeyId>, most: u32) -> Result<ForeignPage, StoreError> {
        self.call(Effect::Reads, |table| table.foreign(after, most)).await
    }

    async fn enlist(&self, ids: &[KeyId]) -> Result<(), StoreError> {
        self.call(Effect::At(Point::List), |table| table.enlist(ids)).await
    }

    async fn delist(&self, ids: &[KeyId]) -> Result<(), StoreError> {
        self.call(Effect::At(Point::List), |table| table.delist(ids)).await
    }

    async fn unlist(&self) -> Result<u64, StoreError> {
        self.call(Effect::At(Point::List), Table::unlist).await
    }

    async fn rule(&self, attempt: &Attempt, act: &upkeep::Act) -> Result<Written, StoreError> {
        self.call(Effect::At(Point::Rule), |table| table.rule(attempt, act)).await
    }

    async fn stand_in(
        &self,
        ask: &ClaimAsk,
        ruling: &Ruling,
        by: Option<Who<'_>>,
    ) -> Result<Written, StoreError> {
        self.call(Effect::At(Point::StandIn), |table| table.stand_in(ask, ruling, by)).await
    }

    async fn observed(&self) -> Result<(u64, Observed, Date), StoreError> {
        self.call(Effect::Reads, |table| table.observed()).await
    }

    async fn observe(&self, version: u64, observed: &Observed) -> Result<Written, StoreError> {
        self.call(Effect::At(Point::Observe), |table| table.observe(version, observed)).await
    }

    async fn live_keys(
        &self,
        tenant: &Tenant,
        after: Option<&Key>,
        most: u32,
    ) -> Result<KeyStretch, StoreError> {
        self.call(Effect::Reads, |table| table.live_keys(tenant, after, most)).await
    }

    async fn note(&self, kind: &str, reason: &str) -> Result<(), StoreError> {
        self.call(Effect::At(Point::Journal), |table| table.note(kind, reason)).await
    }

    async fn noted(&self, kind: &str) -> Result<Option<Duration>, StoreError> {
        self.call(Effect::Reads, |table| table.noted(kind)).await
    }

    async fn journal(&self, id: &KeyId) -> Result<Vec<Entry>, StoreError> {
        self.call(Effect::Reads, |table| table.journal(id)).await
    }
}
