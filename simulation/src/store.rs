//! The port to one region's store: the fate of a statement on its way, and the caller's knowledge
//! afterwards.
//!
//! [`crate::table`] executes the statements, [`crate::cluster`] holds the switches.

use std::sync::Arc;
use std::time::Duration;

use onceway::ports::audit::{Begin, Counted, Double, Finding, History, HistoryRow, Of, RunAtRisk, Stretch};
use onceway::ports::authority::{CopiedRow, Latest, Lodged, Lodging};
use onceway::ports::jobs::{Act, Acted, Job, JobLoad, JobRow, StoredRequest, Taken, Turns};
use onceway::ports::store::{
    Attempt, Beat, Boot, ClaimAsk, ClaimReply, Gate, GateVersion, Heartbeat, PeerMemory, StoreError,
    Subscription, Unclear, Written,
};
use onceway::ports::upkeep::{
    self, ClaimPage, Entry, ForeignPage, KeyStretch, ListedDoubt, Place, Reaped, Ruling, Who,
};
use onceway::ports::{Acceptors, Audit, Authority, Escrows, Imports, Jobs, KeyStore, Replica, Upkeep};
use onceway::protocol::authority::GateState;
use onceway::protocol::double::Trace;
use onceway::protocol::job::JobState;
use onceway::protocol::key::{Key, KeyId, Tenant};
use onceway::protocol::observed::Passed;
use onceway::protocol::record::{Answer, Nonce, Recovery, RequestId, Row};
use onceway::protocol::region::{Origin, RegionName};
use onceway::protocol::register::Acceptor;
use onceway::protocol::view::View;

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
enum Effect {
    Reads,
    Writes,
    /// A write after which its sender may die.
    At(Point),
}

/// A statement whose effect comes after its sender gave up.
type Ghost = Box<dyn FnOnce(&mut Table) + Send>;

/// Sends a statement that writes. It gets copies of the values in brackets if it is executed late.
macro_rules! writes {
    ($store:expr, $effect:expr, [$($given:ident),*], |$table:ident| $statement:expr) => {{
        let late = || -> Ghost {
            $(let $given = $given.to_owned();)*
            Box::new(move |$table: &mut Table| {
                $(let $given = &$given;)*
                let _nobody_waits = $statement;
            })
        };
        $store.write($effect, |$table| $statement, late)
    }};
}

/// Calls of a port, each of which is the statement of the same name. Of those that write it says
/// the effect, and what they are given by reference.
macro_rules! statements {
    (
        $(reads $read:ident($($asked:ident: $kind:ty),*) -> $reply:ty;)*
        $(writes($effect:expr, [$($given:ident),*]) $write:ident($($received:ident: $sort:ty),*) -> $result:ty;)*
    ) => {
        $(async fn $read(&self, $($asked: $kind),*) -> Result<$reply, StoreError> {
            self.call(|table| table.$read($($asked),*)).await
        })*
        $(async fn $write(&self, $($received: $sort),*) -> Result<$result, StoreError> {
            writes!(self, $effect, [$($given),*], |table| table.$write($($received),*)).await
        })*
    };
}

impl Cluster {
    /// The port to a region's store.
    pub fn store(&self, region: &RegionName) -> SimStore {
        SimStore { cluster: self.clone(), region: region.clone(), process: Process::default() }
    }
}

impl SimStore {
    /// The same store, as this process reaches it.
    pub(crate) fn of(self, process: &Process) -> Self {
        Self { process: process.clone(), ..self }
    }

    /// A statement that reads. It is never executed later than its sender waits.
    async fn call<T>(&self, statement: impl FnOnce(&mut Table) -> T) -> Result<T, StoreError> {
        self.process.runs().await;
        let replied = self.send(Effect::Reads, statement, None::<fn() -> Ghost>).await;
        self.process.runs().await;
        replied
    }

    /// A statement that writes, and how it does so after its sender gave up.
    async fn write<T>(
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
        // No attempt is sent under a hold of zero: it stands in for another region's attempt.
        let effect = if ask.terms.hold.is_zero() { Effect::At(Point::StandIn) } else { Effect::Writes };
        let replied = writes!(self, effect, [ask], |table| table.claim(ask)).await;
        pause(later).await;
        self.process.runs().await;
        replied
    }

    async fn doubt(&self, attempt: &Attempt, answer: Option<Unclear>) -> Result<Written, StoreError> {
        let (again, said) = (attempt.clone(), answer.clone());
        let late = || -> Ghost { Box::new(move |table| _ = table.doubt(&again, said)) };
        self.write(Effect::At(Point::Doubt), |table| table.doubt(attempt, answer), late).await
    }

    async fn look_up(&self, ids: &[KeyId]) -> Result<Vec<Vec<Row>>, StoreError> {
        self.call(|table| ids.iter().map(|id| table.read(id)).collect()).await
    }

    statements! {
        reads gate() -> Gate;
        writes(Effect::At(Point::Settle), [attempt, answer])
            settle(attempt: &Attempt, answer: &Answer) -> Written;
        writes(Effect::At(Point::Release), [attempt]) release(attempt: &Attempt) -> Written;
        writes(Effect::At(Point::Gate), [boot]) approve(version: GateVersion, boot: &Boot) -> Written;
    }
}

impl Replica for SimStore {
    async fn subscriptions(&self) -> Result<Vec<Subscription>, StoreError> {
        self.call(|_| ()).await?;
        Ok(self.cluster.subscriptions(&self.region))
    }

    statements! {
        reads heartbeats() -> Vec<Heartbeat>;
        reads recall() -> Vec<PeerMemory>;
        writes(Effect::Writes, []) beat(passed: Option<Passed>) -> Option<Beat>;
        writes(Effect::At(Point::Remember), [memory]) remember(memory: &[PeerMemory]) -> ();
    }
}

impl Jobs for SimStore {
    async fn take(
        &self,
        nonce: Nonce,
        most: usize,
        away: Duration,
        turns: Option<&Turns>,
    ) -> Result<Vec<Job>, StoreError> {
        let named = turns.cloned();
        let late =
            move || -> Ghost { Box::new(move |table| drop(table.take(nonce, most, away, named.as_ref()))) };
        self.write(Effect::At(Point::Take), |table| table.take(nonce, most, away, turns), late).await
    }

    statements! {
        reads job(id: &KeyId) -> Option<JobRow>;
        reads jobs(state: Option<JobState>, most: usize) -> Vec<JobRow>;
        reads load() -> JobLoad;
        writes(Effect::Writes, [ask, request])
            accept(ask: &ClaimAsk, request: &StoredRequest, keep: Duration) -> ClaimReply;
        writes(Effect::At(Point::Job), [taken]) finish(taken: &Taken) -> Written;
        writes(Effect::At(Point::Job), [taken, trouble])
            put_off(taken: &Taken, after: Duration, counted: bool, trouble: &str) -> Written;
        writes(Effect::At(Point::Job), [taken, trouble]) bury(taken: &Taken, trouble: &str) -> Written;
        writes(Effect::At(Point::Reap), []) erase() -> u64;
        writes(Effect::Writes, [id, act]) revive(id: &KeyId, act: &Act) -> Acted;
        writes(Effect::Writes, [id, act]) discard(id: &KeyId, act: &Act) -> Acted;
    }
}

impl Upkeep for SimStore {
    async fn change_rule(
        &self,
        attempts: &[Attempt],
        rule: Recovery,
        by: Who<'_>,
    ) -> Result<u64, StoreError> {
        let late = || -> Ghost {
            let attempts = attempts.to_vec();
            let (actor, reason) = (by.actor.to_owned(), by.reason.to_owned());
            Box::new(move |table| {
                table.change_rule(&attempts, rule, Who { actor: &actor, reason: &reason });
            })
        };
        self.write(Effect::At(Point::Rule), |table| table.change_rule(attempts, rule, by), late).await
    }

    async fn stand_in(
        &self,
        ask: &ClaimAsk,
        ruling: &Ruling,
        by: Option<Who<'_>>,
    ) -> Result<Written, StoreError> {
        let late = || -> Ghost {
            let (ask, ruling) = (ask.clone(), ruling.clone());
            let by = by.map(|who| (who.actor.to_owned(), who.reason.to_owned()));
            Box::new(move |table| {
                let by = by.as_ref().map(|(actor, reason)| Who { actor, reason });
                table.stand_in(&ask, &ruling, by);
            })
        };
        self.write(Effect::At(Point::StandIn), |table| table.stand_in(ask, ruling, by), late).await
    }

    statements! {
        reads claims(after: Option<Place>, older: Duration, most: u32) -> ClaimPage;
        reads doubts(after: Option<&KeyId>, most: u32) -> Vec<ListedDoubt>;
        reads excerpt(id: &KeyId) -> Option<String>;
        reads foreign(after: Option<&KeyId>, most: u32) -> ForeignPage;
        reads live_keys(tenant: &Tenant, after: Option<&Key>, most: u32) -> KeyStretch;
        reads journal(id: &KeyId) -> Vec<Entry>;
        writes(Effect::At(Point::Reap), []) reap(most: u32, away: Option<u64>) -> Reaped;
        writes(Effect::At(Point::List), [ids]) enlist(ids: &[KeyId]) -> ();
        writes(Effect::At(Point::List), [ids]) delist(ids: &[KeyId]) -> ();
        writes(Effect::At(Point::List), []) unlist() -> u64;
        writes(Effect::At(Point::Rule), [attempt, act]) rule(attempt: &Attempt, act: &upkeep::Act) -> Written;
        writes(Effect::At(Point::Journal), [kind, reason]) note(kind: &str, reason: &str) -> ();
    }
}

impl Acceptors for SimStore {
    statements! {
        reads acceptor() -> (u64, Acceptor);
        writes(Effect::At(Point::Acceptor), [acceptor])
            set_acceptor(version: u64, acceptor: &Acceptor) -> Written;
    }
}

impl Authority for SimStore {
    statements! {
        reads views() -> Vec<(Arc<View>, Duration)>;
        writes(Effect::At(Point::Gate), [state]) set_gate(version: GateVersion, state: &GateState) -> Written;
        writes(Effect::At(Point::Views), [views]) keep_views(views: &[Arc<View>]) -> ();
    }
}

impl Escrows for SimStore {
    async fn convert(&self, origin: &Origin, most: u32) -> Result<u64, StoreError> {
        let converted =
            writes!(self, Effect::At(Point::Convert), [origin], |table| table.convert(origin, most)).await?;
        converted.ok_or_else(unapproved)
    }

    statements! {
        writes(Effect::Writes, [lodging])
            lodge(lodging: &Lodging, gate: GateVersion) -> Lodged;
        writes(Effect::At(Point::Void), [origin, attempt]) void(origin: &Origin, attempt: &Attempt) -> ();
        writes(Effect::At(Point::Void), [origin, attempt, answer])
            lodge_answer(origin: &Origin, attempt: &Attempt, answer: &Answer) -> Written;
        writes(Effect::At(Point::Reap), []) reap_escrows(most: u32) -> u64;
    }
}

impl Imports for SimStore {
    async fn import(&self, origin: &Origin, rows: &[CopiedRow]) -> Result<(), StoreError> {
        if *origin == self.call(|table| table.origin().clone()).await? {
            return Err(StoreError::Definite("the own rows are written by claims only".to_owned()));
        }
        let imported = writes!(self, Effect::At(Point::Import), [origin, rows], |table| table
            .import(origin, rows))
        .await?;
        imported.ok_or_else(unapproved)
    }

    async fn restore(&self, rows: &[CopiedRow]) -> Result<Written, StoreError> {
        let origin = self.call(|table| table.origin().clone()).await?;
        if rows.iter().any(|copied| copied.row.origin != origin) {
            return Err(StoreError::Definite("a row is of another origin".to_owned()));
        }
        writes!(self, Effect::At(Point::Import), [rows], |table| table.restore(rows)).await
    }

    statements! {
        reads rows_of(origin: &Origin, after: Option<&KeyId>, most: u32) -> Vec<CopiedRow>;
        reads latest_of(origin: &Origin, from: u64, most: u32) -> Latest;
        writes(Effect::At(Point::Reap), []) reap_imports(most: u32) -> u64;
    }
}

fn unapproved() -> StoreError {
    StoreError::Definite("the running boot is not approved".to_owned())
}

impl Audit for SimStore {
    async fn traces(&self, ids: &[KeyId]) -> Result<Vec<Vec<Trace>>, StoreError> {
        self.call(|table| ids.iter().map(|id| table.traces(id)).collect()).await
    }

    statements! {
        reads runs_at_risk(after: Option<&KeyId>, most: u32) -> Vec<RunAtRisk>;
        reads stretch(of: Of, after: Option<&KeyId>, most: u32) -> Stretch;
        reads doubles() -> Counted;
        reads rows_of_key(id: &KeyId) -> Vec<HistoryRow>;
        reads findings(after: Option<Place>, back: Duration, most: u32) -> Vec<Finding>;
        reads histories(begin: Begin<'_>, most: u32) -> Vec<History>;
        writes(Effect::At(Point::Journal), [found]) journal_doubles(found: &[Double]) -> Vec<bool>;
        writes(Effect::At(Point::Journal), [attempt, answer])
            late(attempt: &Attempt, request_id: Option<RequestId>, answer: &Answer) -> bool;
    }
}
