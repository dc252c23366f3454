//! The port to one region's store: a statement's fate on its way, and its caller's knowledge.
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
use crate::process::{Point, Process};
use crate::table::Table;

/// A region's store, as its gateways reach it.
#[derive(Clone, Debug)]
pub struct SimStore {
    cluster: Cluster,
    region: RegionName,
    process: Process,
}

type Replied<T> = Result<T, StoreError>;

/// A statement whose effect comes after its sender gave up.
type Ghost = Box<dyn FnOnce(&mut Table) + Send>;

/// Sends a statement that writes, and after which its sender may die if it has a point. It gets
/// copies of the values in brackets if it is executed late.
macro_rules! writes {
    ($store:expr, $point:expr, [$($given:ident),*], |$table:ident| $statement:expr) => {{
        let late = || -> Ghost {
            $(let $given = $given.to_owned();)*
            Box::new(move |$table: &mut Table| {
                $(let $given = &$given;)*
                let _nobody_waits = $statement;
            })
        };
        $store.call($point, |$table| $statement, Some(late))
    }};
}

/// Calls of a port, each of which is the statement of the same name. Of those that write it says
/// the point, and what they are given by reference.
macro_rules! statements {
    (
        $(reads $read:ident($($asked:ident: $kind:ty),*) -> $reply:ty;)*
        $(writes($point:expr, [$($given:ident),*]) $write:ident($($received:ident: $sort:ty),*) -> $result:ty;)*
    ) => {
        $(async fn $read(&self, $($asked: $kind),*) -> Replied<$reply> {
            self.read(|table| table.$read($($asked),*)).await
        })*
        $(async fn $write(&self, $($received: $sort),*) -> Replied<$result> {
            writes!(self, $point, [$($given),*], |table| table.$write($($received),*)).await
        })*
    };
}

impl Cluster {
    pub fn store(&self, region: &RegionName) -> SimStore {
        SimStore { cluster: self.clone(), region: region.clone(), process: Process::default() }
    }
}

impl SimStore {
    pub(crate) fn of(self, process: &Process) -> Self {
        Self { process: process.clone(), ..self }
    }

    /// A statement that reads. It is never executed later than its sender waits.
    async fn read<T>(&self, statement: impl FnOnce(&mut Table) -> T) -> Replied<T> {
        self.call(None, statement, None::<fn() -> Ghost>).await
    }

    /// A statement, which is executed even if its sender dies meanwhile; `late` says how it writes
    /// after its sender gave up, if it writes. Only after a write can a lost reply leave anything
    /// unknown.
    async fn call<T>(
        &self,
        point: Option<Point>,
        statement: impl FnOnce(&mut Table) -> T,
        late: Option<impl FnOnce() -> Ghost>,
    ) -> Replied<T> {
        self.process.runs().await;
        let sent = async {
            let (_, latency) = self.cluster.manners(&self.region);
            pause(latency / 2).await;
            let (mode, _) = self.cluster.manners(&self.region);
            let unheard = if late.is_some() { StoreError::Unknown } else { StoreError::Definite };
            let bound = match mode {
                StoreMode::Late { bound, after } if late.is_some() && self.cluster.is_late(&self.region) => {
                    late.into_iter().for_each(|late| self.haunt(late(), bound + after));
                    bound
                }
                StoreMode::Up | StoreMode::Late { .. } => {
                    let reply = self.cluster.execute(&self.region, statement);
                    point.into_iter().for_each(|point| self.process.passed(point));
                    pause(latency / 2).await;
                    return Ok(reply);
                }
                StoreMode::Refuse => return Err(StoreError::Definite("connection refused".to_owned())),
                StoreMode::Stall(bound) => bound,
                StoreMode::LoseReplies(bound) => {
                    self.cluster.execute(&self.region, statement);
                    bound
                }
            };
            pause(bound).await;
            Err(unheard(format!("no reply for {bound:?}")))
        };
        let replied = sent.await;
        self.process.runs().await;
        replied
    }

    /// A statement that the server comes to after this time, unless it ended meanwhile.
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

impl KeyStore for SimStore {
    async fn claim(&self, ask: &ClaimAsk) -> Replied<ClaimReply> {
        let later = self.cluster.confirms(&self.region);
        // No attempt is sent under a hold of zero: it stands in for another region's attempt.
        let point = ask.terms.hold.is_zero().then_some(Point::StandIn);
        let replied = writes!(self, point, [ask], |table| table.claim(ask)).await;
        pause(later).await;
        self.process.runs().await;
        replied
    }

    async fn doubt(&self, attempt: &Attempt, answer: Option<Unclear>) -> Replied<Written> {
        let answer = &answer;
        writes!(self, Some(Point::Doubt), [attempt, answer], |table| table.doubt(attempt, answer.clone()))
            .await
    }

    async fn look_up(&self, ids: &[KeyId]) -> Replied<Vec<Vec<Row>>> {
        self.read(|table| ids.iter().map(|id| table.read(id)).collect()).await
    }

    statements! {
        reads gate() -> Gate;
        writes(Some(Point::Settle), [attempt, answer])
            settle(attempt: &Attempt, answer: &Answer) -> Written;
        writes(Some(Point::Release), [attempt]) release(attempt: &Attempt) -> Written;
        writes(Some(Point::Gate), [boot]) approve(version: GateVersion, boot: &Boot) -> Written;
    }
}

impl Replica for SimStore {
    async fn subscriptions(&self) -> Replied<Vec<Subscription>> {
        self.read(|_| ()).await?;
        Ok(self.cluster.subscriptions(&self.region))
    }

    statements! {
        reads heartbeats() -> Vec<Heartbeat>;
        reads recall() -> Vec<PeerMemory>;
        writes(None, []) beat(passed: Option<Passed>) -> Option<Beat>;
        writes(Some(Point::Remember), [memory]) remember(memory: &[PeerMemory]) -> ();
    }
}

impl Jobs for SimStore {
    async fn take(
        &self,
        nonce: Nonce,
        most: usize,
        away: Duration,
        turns: Option<&Turns>,
    ) -> Replied<Vec<Job>> {
        let turns = &turns.cloned();
        writes!(self, Some(Point::Take), [turns], |table| table.take(nonce, most, away, turns.as_ref())).await
    }

    statements! {
        reads job(id: &KeyId) -> Option<JobRow>;
        reads jobs(state: Option<JobState>, most: usize) -> Vec<JobRow>;
        reads load() -> JobLoad;
        writes(None, [ask, request])
            accept(ask: &ClaimAsk, request: &StoredRequest, keep: Duration) -> ClaimReply;
        writes(Some(Point::Job), [taken]) finish(taken: &Taken) -> Written;
        writes(Some(Point::Job), [taken, trouble])
            put_off(taken: &Taken, after: Duration, counted: bool, trouble: &str) -> Written;
        writes(Some(Point::Job), [taken, trouble]) bury(taken: &Taken, trouble: &str) -> Written;
        writes(Some(Point::Reap), []) erase() -> u64;
        writes(None, [id, act]) revive(id: &KeyId, act: &Act) -> Acted;
        writes(None, [id, act]) discard(id: &KeyId, act: &Act) -> Acted;
    }
}

impl Upkeep for SimStore {
    async fn change_rule(&self, attempts: &[Attempt], rule: Recovery, by: Who<'_>) -> Replied<u64> {
        let Who { actor, reason } = by;
        writes!(self, Some(Point::Rule), [attempts, actor, reason], |table| {
            table.change_rule(attempts, rule, Who { actor, reason })
        })
        .await
    }

    async fn stand_in(&self, ask: &ClaimAsk, ruling: &Ruling, by: Option<Who<'_>>) -> Replied<Written> {
        let by = &by.map(|who| (who.actor.to_owned(), who.reason.to_owned()));
        writes!(self, Some(Point::StandIn), [ask, ruling, by], |table| {
            table.stand_in(ask, ruling, by.as_ref().map(|(actor, reason)| Who { actor, reason }))
        })
        .await
    }

    statements! {
        reads claims(after: Option<Place>, older: Duration, most: u32) -> ClaimPage;
        reads doubts(after: Option<&KeyId>, most: u32) -> Vec<ListedDoubt>;
        reads excerpt(id: &KeyId) -> Option<String>;
        reads foreign(after: Option<&KeyId>, most: u32) -> ForeignPage;
        reads live_keys(tenant: &Tenant, after: Option<&Key>, most: u32) -> KeyStretch;
        reads journal(id: &KeyId) -> Vec<Entry>;
        writes(Some(Point::Reap), []) reap(most: u32, away: Option<u64>) -> Reaped;
        writes(Some(Point::List), [ids]) enlist(ids: &[KeyId]) -> ();
        writes(Some(Point::List), [ids]) delist(ids: &[KeyId]) -> ();
        writes(Some(Point::List), []) unlist() -> u64;
        writes(Some(Point::Rule), [attempt, act]) rule(attempt: &Attempt, act: &upkeep::Act) -> Written;
        writes(Some(Point::Journal), [kind, reason]) note(kind: &str, reason: &str) -> ();
    }
}

impl Acceptors for SimStore {
    statements! {
        reads acceptor() -> (u64, Acceptor);
        writes(Some(Point::Acceptor), [acceptor])
            set_acceptor(version: u64, acceptor: &Acceptor) -> Written;
    }
}

impl Authority for SimStore {
    statements! {
        reads views() -> Vec<(Arc<View>, Duration)>;
        writes(Some(Point::Gate), [state]) set_gate(version: GateVersion, state: &GateState) -> Written;
        writes(Some(Point::Views), [views]) keep_views(views: &[Arc<View>]) -> ();
    }
}

impl Escrows for SimStore {
    async fn convert(&self, origin: &Origin, most: u32) -> Replied<u64> {
        let converted =
            writes!(self, Some(Point::Convert), [origin], |table| table.convert(origin, most)).await?;
        converted.ok_or_else(unapproved)
    }

    statements! {
        writes(None, [lodging])
            lodge(lodging: &Lodging, gate: GateVersion) -> Lodged;
        writes(Some(Point::Void), [origin, attempt]) void(origin: &Origin, attempt: &Attempt) -> ();
        writes(Some(Point::Void), [origin, attempt, answer])
            lodge_answer(origin: &Origin, attempt: &Attempt, answer: &Answer) -> Written;
        writes(Some(Point::Reap), []) reap_escrows(most: u32) -> u64;
    }
}

impl Imports for SimStore {
    async fn import(&self, origin: &Origin, rows: &[CopiedRow]) -> Replied<()> {
        if *origin == self.read(|table| table.origin().clone()).await? {
            return Err(StoreError::Definite("the own rows are written by claims only".to_owned()));
        }
        let imported =
            writes!(self, Some(Point::Import), [origin, rows], |table| table.import(origin, rows)).await?;
        imported.ok_or_else(unapproved)
    }

    async fn restore(&self, rows: &[CopiedRow]) -> Replied<Written> {
        let origin = self.read(|table| table.origin().clone()).await?;
        if rows.iter().any(|copied| copied.row.origin != origin) {
            return Err(StoreError::Definite("a row is of another origin".to_owned()));
        }
        writes!(self, Some(Point::Import), [rows], |table| table.restore(rows)).await
    }

    statements! {
        reads rows_of(origin: &Origin, after: Option<&KeyId>, most: u32) -> Vec<CopiedRow>;
        reads latest_of(origin: &Origin, from: u64, most: u32) -> Latest;
        writes(Some(Point::Reap), []) reap_imports(most: u32) -> u64;
    }
}

fn unapproved() -> StoreError {
    StoreError::Definite("the running boot is not approved".to_owned())
}

impl Audit for SimStore {
    async fn traces(&self, ids: &[KeyId]) -> Replied<Vec<Vec<Trace>>> {
        self.read(|table| ids.iter().map(|id| table.traces(id)).collect()).await
    }

    statements! {
        reads runs_at_risk(after: Option<&KeyId>, most: u32) -> Vec<RunAtRisk>;
        reads stretch(of: Of, after: Option<&KeyId>, most: u32) -> Stretch;
        reads doubles() -> Counted;
        reads rows_of_key(id: &KeyId) -> Vec<HistoryRow>;
        reads findings(after: Option<Place>, back: Duration, most: u32) -> Vec<Finding>;
        reads histories(begin: Begin<'_>, most: u32) -> Vec<History>;
        writes(Some(Point::Journal), [found]) journal_doubles(found: &[Double]) -> Vec<bool>;
        writes(Some(Point::Journal), [attempt, answer])
            late(attempt: &Attempt, request_id: Option<RequestId>, answer: &Answer) -> bool;
    }
}
