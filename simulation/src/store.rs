//! The port to one region's store: the fate of a statement on its way, and the caller's knowledge
//! afterwards.
//!
//! [`crate::table`] executes the statements, [`crate::cluster`] holds the switches. It must not
//! execute a statement twice.

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

/// The effect of a statement. Only after a write can a lost reply leave anything unknown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    Reads,
    Writes,
    /// A write after which its sender may die.
    At(Point),
}

/// A statement whose effect comes after its sender gave up.
pub(crate) type Ghost = Box<dyn FnOnce(&mut Table) + Send>;

/// Sends a statement that writes. What is named in brackets it is given by reference, and is copied
/// where it is executed late.
macro_rules! writes {
    ($store:expr, $effect:expr, [$($given:ident),*], |$table:ident| $statement:expr) => {{
        let late = || -> $crate::store::Ghost {
            $(let $given = $given.to_owned();)*
            Box::new(move |$table: &mut $crate::table::Table| {
                $(let $given = &$given;)*
                let _nobody_waits = $statement;
            })
        };
        $store.write($effect, |$table| $statement, late)
    }};
}
pub(crate) use writes;

impl SimStore {
    pub(crate) fn new(cluster: Cluster, region: RegionName) -> Self {
        Self { cluster, region, process: Process::default() }
    }

    /// The same store, as this process reaches it.
    pub(crate) fn of(self, process: &Process) -> Self {
        Self { process: process.clone(), ..self }
    }

    /// A statement that reads. It is never executed later than its sender waits.
    pub(crate) async fn call<T>(&self, statement: impl FnOnce(&mut Table) -> T) -> Result<T, StoreError> {
        self.process.runs().await;
        let replied = self.send(Effect::Reads, statement, None::<fn() -> Ghost>).await;
        self.process.runs().await;
        replied
    }

    /// A statement that writes, and how it does so after its sender gave up.
    pub(crate) async fn write<T>(
        &self,
        effect: Effect,
        statement: impl FnOnce(&mut Table) -> T,
        late: impl FnOnce() -> Ghost,
    ) -> Result<T, StoreError> {
        self.process.runs().await;
        let replied = self.send(effect, statement, Some(late)).await;
        self.process.runs().await;
        replied
    }

    /// Sends a statement. It is executed even if its sender dies meanwhile.
    async fn send<T>(
        &self,
        effect: Effect,
        statement: impl FnOnce(&mut Table) -> T,
        late: Option<impl FnOnce() -> Ghost>,
    ) -> Result<T, StoreError> {
        let (_, latency) = self.cluster.manners(&self.region);
        pause(latency / 2).await;
        let (mode, _) = self.cluster.manners(&self.region);
        match mode {
            StoreMode::Late { bound, after } if late.is_some() && self.cluster.is_late(&self.region) => {
                if let Some(late) = late {
                    self.haunt(late(), bound + after);
                }
                Err(silent(effect, bound).await)
            }
            StoreMode::Up | StoreMode::Late { .. } => {
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

impl SimStore {
    /// A statement that the server comes to after this time, whether or not anybody waits for it
    /// still. A server that ended meanwhile never does.
    fn haunt(&self, ghost: Ghost, after: Duration) {
        let (cluster, region) = (self.cluster.clone(), self.region.clone());
        let server = cluster.server(&region);
        tokio::spawn(async move {
            pause(after).await;
            if cluster.server(&region).is_some_and(|now| Some(now) == server) {
                cluster.execute(&region, ghost);
            }
        });
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
        // No attempt is sent under a hold of zero: the claim stands in for another region's
        // attempt.
        let effect = if ask.hold.is_zero() { Effect::At(Point::StandIn) } else { Effect::Writes };
        let replied = writes!(self, effect, [ask], |table| table.claim(ask)).await;
        pause(later).await;
        self.process.runs().await;
        replied
    }

    async fn settle(&self, attempt: &Attempt, answer: &Answer) -> Result<Written, StoreError> {
        writes!(self, Effect::At(Point::Settle), [attempt, answer], |table| table.settle(attempt, answer))
            .await
    }

    async fn release(&self, attempt: &Attempt) -> Result<Written, StoreError> {
        writes!(self, Effect::At(Point::Release), [attempt], |table| table.release(attempt)).await
    }

    async fn doubt(&self, attempt: &Attempt, status: Option<u16>) -> Result<Written, StoreError> {
        writes!(self, Effect::At(Point::Doubt), [attempt], |table| table.doubt(attempt, status)).await
    }

    async fn look_up(&self, ids: &[KeyId]) -> Result<Vec<Vec<Row>>, StoreError> {
        self.call(|table| ids.iter().map(|id| table.read(id)).collect()).await
    }

    async fn gate(&self) -> Result<Gate, StoreError> {
        self.call(|table| table.gate()).await
    }

    async fn approve(&self, version: GateVersion, boot: &Boot) -> Result<Written, StoreError> {
        writes!(self, Effect::At(Point::Gate), [boot], |table| table.approve(version, boot)).await
    }
}

impl Replica for SimStore {
    async fn beat(&self) -> Result<Option<Beat>, StoreError> {
        writes!(self, Effect::Writes, [], |table| table.beat()).await
    }

    async fn heartbeats(&self) -> Result<Vec<Heartbeat>, StoreError> {
        self.call(|table| table.heartbeats()).await
    }

    async fn remember(&self, memory: &[PeerMemory]) -> Result<(), StoreError> {
        writes!(self, Effect::At(Point::Remember), [memory], |table| table.remember(memory)).await
    }

    async fn recall(&self) -> Result<Vec<PeerMemory>, StoreError> {
        self.call(|table| table.recall()).await
    }

    async fn subscriptions(&self) -> Result<Vec<Subscription>, StoreError> {
        self.call(|_| ()).await?;
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
        writes!(self, Effect::Writes, [ask, request], |table| table.accept(ask, request, keep)).await
    }

    async fn take(
        &self,
        nonce: Nonce,
        most: usize,
        away: Duration,
        may: Option<MayForget>,
        turns: Option<&Turns>,
    ) -> Result<Vec<Job>, StoreError> {
        let named = turns.cloned();
        let late = move || -> Ghost {
            Box::new(move |table| drop(table.take(nonce, most, away, may, named.as_ref())))
        };
        self.write(Effect::At(Point::Take), |table| table.take(nonce, most, away, may, turns), late).await
    }

    async fn finish(&self, taken: &Taken) -> Result<Written, StoreError> {
        writes!(self, Effect::At(Point::Job), [taken], |table| table.finish(taken)).await
    }

    async fn put_off(
        &self,
        taken: &Taken,
        after: Duration,
        counted: bool,
        trouble: &str,
    ) -> Result<Written, StoreError> {
        writes!(self, Effect::At(Point::Job), [taken, trouble], |table| table
            .put_off(taken, after, counted, trouble))
        .await
    }

    async fn bury(&self, taken: &Taken, trouble: &str) -> Result<Written, StoreError> {
        writes!(self, Effect::At(Point::Job), [taken, trouble], |table| table.bury(taken, trouble)).await
    }

    async fn erase(&self, may: MayForget) -> Result<u64, StoreError> {
        writes!(self, Effect::At(Point::Reap), [], |table| table.erase(may)).await
    }

    async fn job(&self, id: &KeyId) -> Result<Option<JobRow>, StoreError> {
        self.call(|table| table.job(id)).await
    }

    async fn jobs(&self, state: Option<JobState>, most: usize) -> Result<Vec<JobRow>, StoreError> {
        self.call(|table| table.jobs(state, most)).await
    }

    async fn load(&self) -> Result<JobLoad, StoreError> {
        self.call(|table| table.load()).await
    }

    async fn revive(&self, id: &KeyId, act: &Act) -> Result<Acted, StoreError> {
        writes!(self, Effect::Writes, [id, act], |table| table.revive(id, act)).await
    }

    async fn discard(&self, id: &KeyId, act: &Act) -> Result<Acted, StoreError> {
        writes!(self, Effect::Writes, [id, act], |table| table.discard(id, act)).await
    }
}

impl Upkeep for SimStore {
    async fn reap(&self, may: MayForget, most: u32) -> Result<Reaped, StoreError> {
        writes!(self, Effect::At(Point::Reap), [], |table| table.reap(may, most)).await
    }

    async fn claims(
        &self,
        after: Option<Place>,
        older: Duration,
        most: u32,
    ) -> Result<ClaimPage, StoreError> {
        self.call(|table| table.claims(after, older, most)).await
    }

    async fn doubts(&self, after: Option<&KeyId>, most: u32) -> Result<Vec<ListedDoubt>, StoreError> {
        self.call(|table| table.doubts(after, most)).await
    }

    async fn foreign(&self, after: Option<&KeyId>, most: u32) -> Result<ForeignPage, StoreError> {
        self.call(|table| table.foreign(after, most)).await
    }

    async fn enlist(&self, ids: &[KeyId]) -> Result<(), StoreError> {
        writes!(self, Effect::At(Point::List), [ids], |table| table.enlist(ids)).await
    }

    async fn delist(&self, ids: &[KeyId]) -> Result<(), StoreError> {
        writes!(self, Effect::At(Point::List), [ids], |table| table.delist(ids)).await
    }

    async fn unlist(&self) -> Result<u64, StoreError> {
        writes!(self, Effect::At(Point::List), [], |table| table.unlist()).await
    }

    async fn rule(&self, attempt: &Attempt, act: &upkeep::Act) -> Result<Written, StoreError> {
        writes!(self, Effect::At(Point::Rule), [attempt, act], |table| table.rule(attempt, act)).await
    }

    async fn stand_in(
        &self,
        ask: &ClaimAsk,
        ruling: &Ruling,
        by: Option<Who<'_>>,
        not_before: Date,
    ) -> Result<Written, StoreError> {
        let late = || -> Ghost {
            let (ask, ruling) = (ask.clone(), ruling.clone());
            let by = by.map(|who| (who.actor.to_owned(), who.reason.to_owned()));
            Box::new(move |table| {
                let by = by.as_ref().map(|(actor, reason)| Who { actor, reason });
                table.stand_in(&ask, &ruling, by, not_before);
            })
        };
        self.write(Effect::At(Point::StandIn), |table| table.stand_in(ask, ruling, by, not_before), late)
            .await
    }

    async fn observed(&self) -> Result<(u64, Observed, Date), StoreError> {
        self.call(|table| table.observed()).await
    }

    async fn observe(&self, version: u64, observed: &Observed) -> Result<Written, StoreError> {
        writes!(self, Effect::At(Point::Observe), [observed], |table| table.observe(version, observed)).await
    }

    async fn live_keys(
        &self,
        tenant: &Tenant,
        after: Option<&Key>,
        most: u32,
    ) -> Result<KeyStretch, StoreError> {
        self.call(|table| table.live_keys(tenant, after, most)).await
    }

    async fn note(&self, kind: &str, reason: &str) -> Result<(), StoreError> {
        writes!(self, Effect::At(Point::Journal), [kind, reason], |table| table.note(kind, reason)).await
    }

    async fn noted(&self, kind: &str) -> Result<Option<Duration>, StoreError> {
        self.call(|table| table.noted(kind)).await
    }

    async fn journal(&self, id: &KeyId) -> Result<Vec<Entry>, StoreError> {
        self.call(|table| table.journal(id)).await
    }
}
