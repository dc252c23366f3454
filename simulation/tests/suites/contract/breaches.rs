//! The contract's suites and the recorded histories can fail: they notice a port that breaks one
//! promise, and stores that replicate differently from Postgres.
//!
//! `benches` plays the environment. A breach is one wrapped call or one wrong switch. The message
//! must name the clause that promises the broken behaviour.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Request, Response, Uri};
use onceway::ports::Body;
use onceway::ports::jobs::{self, Acted, Job, JobLoad, JobRow, StoredRequest, Taken, Turns};
use onceway::ports::peers::{Forward, ForwardReply, PeerError, PeerReply, Pong, Question};
use onceway::ports::store::*;
use onceway::ports::upkeep::{
    self, ClaimPage, Entry, ForeignPage, KeyStretch, ListedDoubt, Place, Reaped, Ruling, Who,
};
use onceway::ports::upstream::{Probe, ProbeReply, Send as Sent, SendError};
use onceway::ports::{Acceptors, Authority, Jobs, KeyStore, Peers, Replica, Upkeep, Upstream};
use onceway::protocol::authority::GateState;
use onceway::protocol::job::JobState;
use onceway::protocol::key::{Key, KeyId, Tenant};
use onceway::protocol::observed::Passed;
use onceway::protocol::record::{Answer, Nonce, Recovery, Row};
use onceway::protocol::region::{Origin, RegionName};
use onceway::protocol::register::Acceptor;
use onceway::protocol::time::Date;
use onceway::protocol::view::View;
use onceway_lab::contract;
use onceway_lab::contract::replication::ReplicationBench;
use simulation::peers::SimPeers;
use simulation::store::SimStore;
use simulation::upstream::SimUpstream;

use crate::contract::benches::{Link, Service, Stores, Three};
use crate::shared::play;

/// The result of a run that found no broken promise: questions have no headers that could be lost.
const NOTHING: &str = "nothing was noticed";

fn panic_message(run: impl FnOnce()) -> String {
    let Err(panic) = catch_unwind(AssertUnwindSafe(run)) else { return NOTHING.to_owned() };
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

/// The promises that a store breaks here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bend {
    /// A claim is written whatever the gate's version.
    ClaimsPassTheGate,
    /// A repeated claim is another one.
    ClaimsAreNotRecognized,
    /// A claim that finds rows gets the reply that it won.
    WhoFindsWins,
    /// A lost settlement is reported as done.
    LostIsDone,
    DoubtsForget,
    ForeignRowsAreHidden,
    AnyVersionIsApproved,
    /// Each heartbeat is reported as the one before it.
    BeatsAreOldOnes,
    NothingIsRecalled,
    AnyGateIsSet,
    AnyAcceptorIsSet,
    ViewsAreReversed,
}

/// A store that breaks one promise.
struct Bent {
    inner: SimStore,
    bend: Bend,
}

/// Calls that are passed on unchanged.
macro_rules! handed_on {
    ($($call:ident($($name:ident: $kind:ty),*) -> $reply:ty;)*) => {
        $(fn $call(&self, $($name: $kind),*) -> impl Future<Output = $reply> + Send {
            self.inner.$call($($name),*)
        })*
    };
}

impl KeyStore for Bent {
    async fn claim(&self, ask: &ClaimAsk) -> Result<ClaimReply, StoreError> {
        let mut ask = ask.clone();
        match self.bend {
            Bend::ClaimsPassTheGate => ask.gate = self.inner.gate().await?.version,
            Bend::ClaimsAreNotRecognized => {
                let rows = self.inner.look_up(std::slice::from_ref(&ask.id)).await?;
                ask.terms.nonce = Nonce(ask.terms.nonce.0 + ((rows.concat().len() as u128) << 90));
            }
            _ => {}
        }
        match self.inner.claim(&ask).await? {
            ClaimReply::Found(rows) if self.bend == Bend::WhoFindsWins => {
                Ok(ClaimReply::Won { token: rows[0].token, expires: Date(0) })
            }
            reply => Ok(reply),
        }
    }

    async fn settle(&self, attempt: &Attempt, answer: &Answer) -> Result<Written, StoreError> {
        match self.inner.settle(attempt, answer).await? {
            Written::Lost if self.bend == Bend::LostIsDone => Ok(Written::Done),
            written => Ok(written),
        }
    }

    async fn doubt(&self, attempt: &Attempt, answer: Option<Unclear>) -> Result<Written, StoreError> {
        self.inner.doubt(attempt, answer.filter(|_| self.bend != Bend::DoubtsForget)).await
    }

    async fn look_up(&self, ids: &[KeyId]) -> Result<Vec<Vec<Row>>, StoreError> {
        let mut found = self.inner.look_up(ids).await?;
        if self.bend == Bend::ForeignRowsAreHidden {
            let own = |row: &Row| row.origin.region.as_str() == "eu";
            found.iter_mut().for_each(|rows| rows.retain(own));
        }
        Ok(found)
    }

    async fn approve(&self, version: GateVersion, boot: &Boot) -> Result<Written, StoreError> {
        let now = self.inner.gate().await?.version;
        self.inner.approve(if self.bend == Bend::AnyVersionIsApproved { now } else { version }, boot).await
    }

    handed_on! {
        release(attempt: &Attempt) -> Result<Written, StoreError>;
        gate() -> Result<Gate, StoreError>;
    }
}

impl Replica for Bent {
    async fn beat(&self, passed: Option<Passed>) -> Result<Option<Beat>, StoreError> {
        let beat = self.inner.beat(passed).await?;
        Ok(beat.map(|beat| match self.bend {
            Bend::BeatsAreOldOnes => Beat { seq: beat.seq / 2, ..beat },
            _ => beat,
        }))
    }

    async fn recall(&self) -> Result<Vec<PeerMemory>, StoreError> {
        let memory = self.inner.recall().await?;
        Ok(if self.bend == Bend::NothingIsRecalled { Vec::new() } else { memory })
    }

    handed_on! {
        heartbeats() -> Result<Vec<Heartbeat>, StoreError>;
        remember(memory: &[PeerMemory]) -> Result<(), StoreError>;
        subscriptions() -> Result<Vec<Subscription>, StoreError>;
    }
}

impl Acceptors for Bent {
    async fn set_acceptor(&self, version: u64, acceptor: &Acceptor) -> Result<Written, StoreError> {
        let now = self.inner.acceptor().await?.0;
        self.inner
            .set_acceptor(if self.bend == Bend::AnyAcceptorIsSet { now } else { version }, acceptor)
            .await
    }

    handed_on! { acceptor() -> Result<(u64, Acceptor), StoreError>; }
}

impl Authority for Bent {
    async fn set_gate(&self, version: GateVersion, state: &GateState) -> Result<Written, StoreError> {
        let now = self.inner.gate().await?.version;
        self.inner.set_gate(if self.bend == Bend::AnyGateIsSet { now } else { version }, state).await
    }

    async fn views(&self) -> Result<Vec<(Arc<View>, Duration)>, StoreError> {
        let mut views = self.inner.views().await?;
        if self.bend == Bend::ViewsAreReversed {
            views.reverse();
        }
        Ok(views)
    }

    handed_on! { keep_views(views: &[Arc<View>]) -> Result<(), StoreError>; }
}

impl Upkeep for Bent {
    handed_on! {
        reap(most: u32, away: Option<u64>) -> Result<Reaped, StoreError>;
        claims(after: Option<Place>, older: Duration, most: u32) -> Result<ClaimPage, StoreError>;
        doubts(after: Option<&KeyId>, most: u32) -> Result<Vec<ListedDoubt>, StoreError>;
        excerpt(id: &KeyId) -> Result<Option<String>, StoreError>;
        foreign(after: Option<&KeyId>, most: u32) -> Result<ForeignPage, StoreError>;
        enlist(ids: &[KeyId]) -> Result<(), StoreError>;
        delist(ids: &[KeyId]) -> Result<(), StoreError>;
        unlist() -> Result<u64, StoreError>;
        rule(attempt: &Attempt, act: &upkeep::Act) -> Result<Written, StoreError>;
        change_rule(attempts: &[Attempt], rule: Recovery, by: Who<'_>) -> Result<u64, StoreError>;
        stand_in(ask: &ClaimAsk, ruling: &Ruling, by: Option<Who<'_>>) -> Result<Written, StoreError>;
        live_keys(tenant: &Tenant, after: Option<&Key>, most: u32) -> Result<KeyStretch, StoreError>;
        note(kind: &str, reason: &str) -> Result<(), StoreError>;
        journal(id: &KeyId) -> Result<Vec<Entry>, StoreError>;
    }
}

impl Jobs for Bent {
    handed_on! {
        accept(ask: &ClaimAsk, request: &StoredRequest, keep: Duration) -> Result<ClaimReply, StoreError>;
        take(nonce: Nonce, most: usize, away: Duration, turns: Option<&Turns>)
            -> Result<Vec<Job>, StoreError>;
        finish(taken: &Taken) -> Result<Written, StoreError>;
        put_off(taken: &Taken, after: Duration, counted: bool, trouble: &str) -> Result<Written, StoreError>;
        bury(taken: &Taken, trouble: &str) -> Result<Written, StoreError>;
        erase() -> Result<u64, StoreError>;
        job(id: &KeyId) -> Result<Option<JobRow>, StoreError>;
        jobs(state: Option<JobState>, most: usize) -> Result<Vec<JobRow>, StoreError>;
        load() -> Result<JobLoad, StoreError>;
        revive(id: &KeyId, act: &jobs::Act) -> Result<Acted, StoreError>;
        discard(id: &KeyId, act: &jobs::Act) -> Result<Acted, StoreError>;
    }
}

/// Promises of calls to peers and to the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    /// A call that is not known to have arrived is made again.
    MadeAgain,
    /// A call that may have arrived is reported as not sent.
    UnknownIsNotSent,
    HeadersAreLost,
    /// No bound is kept.
    Endless,
    /// The check if a request may still be sent is left out.
    NotAsked,
}

impl Call {
    fn within(self, within: Duration) -> Duration {
        if self == Self::Endless { within + Duration::from_secs(3600) } else { within }
    }

    fn lose_one(self, headers: &mut HeaderMap) {
        if self == Self::HeadersAreLost {
            let first = headers.keys().next().cloned();
            first.map(|name| headers.remove(name));
        }
    }
}

struct BentPeers(SimPeers, Call);

impl BentPeers {
    fn bent<T>(&self, reply: Result<T, PeerError>) -> Result<T, PeerError> {
        match reply {
            Err(PeerError::Unknown(why)) if self.1 == Call::UnknownIsNotSent => Err(PeerError::NotSent(why)),
            reply => reply,
        }
    }
}

impl Peers for BentPeers {
    async fn forward(&self, to: &RegionName, mut forward: Forward) -> Result<ForwardReply, PeerError> {
        self.1.lose_one(&mut forward.headers);
        match self.0.forward(to, forward.clone()).await {
            Err(PeerError::Unknown(_)) if self.1 == Call::MadeAgain => self.0.forward(to, forward).await,
            reply => self.bent(reply),
        }
    }

    async fn ping(&self, to: &RegionName, within: Duration) -> Result<Pong, PeerError> {
        self.0.ping(to, self.1.within(within)).await
    }

    async fn ask(
        &self,
        to: &RegionName,
        question: Question,
        within: Duration,
    ) -> Result<PeerReply, PeerError> {
        match self.0.ask(to, question.clone(), self.1.within(within)).await {
            Err(PeerError::Unknown(_)) if self.1 == Call::MadeAgain => self.0.ask(to, question, within).await,
            reply => self.bent(reply),
        }
    }
}

struct BentUpstream {
    inner: SimUpstream,
    call: Call,
}

impl Upstream for BentUpstream {
    async fn send(
        &self,
        mut send: Sent,
        within: Duration,
        may_send: impl Fn() -> bool + Send + Sync,
    ) -> Result<Response<Body>, SendError> {
        self.call.lose_one(&mut send.headers);
        let may_send = || self.call == Call::NotAsked || may_send();
        match self.inner.send(send.clone(), self.call.within(within), may_send).await {
            Err(SendError::Unknown(_)) if self.call == Call::MadeAgain => {
                self.inner.send(send, within, may_send).await
            }
            Err(SendError::Unknown(why)) if self.call == Call::UnknownIsNotSent => {
                Err(SendError::NotSent(why))
            }
            reply => reply,
        }
    }

    async fn pass(
        &self,
        upstream: Option<&str>,
        request: Request<Body>,
        within: Duration,
    ) -> Result<Response<Body>, SendError> {
        self.inner.pass(upstream, request, self.call.within(within)).await
    }

    handed_on! {
        probe(probe: Probe, within: Duration, limit: usize) -> ProbeReply;
        check(path: &Uri, within: Duration) -> Result<(), String>;
    }
}

/// The difference of stores that follow one another here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    CrashesForget,
    NothingIsHeldUp,
    SlotsRemember,
    UnheardIsUnwritten,
    UnheardHasFailed,
    /// A commit from before a cut arrives in spite of it.
    CutsLeak,
}

struct Turned {
    inner: Three,
    turn: Turn,
}

/// Acts on a link that are left out in a turn.
macro_rules! left_out {
    ($($turn:ident: $($act:ident),*;)*) => {
        $($(async fn $act(&self, from: usize, to: usize) -> Result<(), String> {
            if self.turn == Turn::$turn { Ok(()) } else { self.inner.$act(from, to).await }
        })*)*
    };
}

impl ReplicationBench for Turned {
    type Store = SimStore;

    fn store(&self, region: usize) -> &SimStore {
        self.inner.store(region)
    }

    fn origin(&self, region: usize) -> Origin {
        self.inner.origin(region)
    }

    handed_on! {
        mend(from: usize, to: usize) -> Result<(), String>;
        shows(to: usize, from: usize, beat: u64) -> Result<(), String>;
        sent(from: usize, to: usize) -> Result<(), String>;
        begin_reseed(from: usize, to: usize) -> Result<(), String>;
        copied(from: usize, to: usize) -> Result<(), String>;
    }

    left_out! {
        CutsLeak: cut;
        NothingIsHeldUp: stall, flow;
        SlotsRemember: lose_slot, reseed;
    }

    async fn crash(&self, region: usize) -> Result<(), String> {
        if self.turn == Turn::CrashesForget {
            self.inner.forget(region);
        }
        self.inner.crash(region).await
    }

    async fn claim_unheard(
        &self,
        region: usize,
        ask: &ClaimAsk,
    ) -> Result<Result<ClaimReply, StoreError>, String> {
        match self.turn {
            Turn::UnheardIsUnwritten => Ok(Err(StoreError::Unknown("not written".to_owned()))),
            Turn::UnheardHasFailed => {
                self.inner.claim_unheard(region, ask).await.map(|_| Err(StoreError::Definite(String::new())))
            }
            _ => self.inner.claim_unheard(region, ask).await,
        }
    }
}

#[test]
fn each_broken_store_promise_fails_its_own_clause() {
    let caught = [
        (Bend::ClaimsPassTheGate, "GateVersion(3) is not GateVersion(2)"),
        (Bend::ClaimsAreNotRecognized, "a repeated claim must answer as the first time"),
        (Bend::WhoFindsWins, "a claimed key must not be won again"),
        (Bend::LostIsDone, "a superseded attempt settled"),
        (Bend::DoubtsForget, "a doubt must keep the upstream's status"),
        (Bend::ForeignRowsAreHidden, "a claim must leave rows of other origins where they are"),
        (Bend::AnyVersionIsApproved, "store: approved at"),
        (Bend::BeatsAreOldOnes, "replica: beat 2 after 0 must be 2"),
        (Bend::NothingIsRecalled, "recalled something else than was remembered"),
        (Bend::AnyGateIsSet, "gate: written at an old version"),
        (Bend::AnyAcceptorIsSet, "acceptor: written at an old version"),
        (Bend::ViewsAreReversed, "views: oldest first"),
    ];
    for (bend, clause) in caught {
        let bent = || Stores::new(|inner| Bent { inner, bend });
        let received = panic_message(|| {
            play(async {
                match bend {
                    Bend::BeatsAreOldOnes | Bend::NothingIsRecalled => {
                        contract::replica::suite(&bent()).await
                    }
                    Bend::AnyGateIsSet | Bend::AnyAcceptorIsSet | Bend::ViewsAreReversed => {
                        contract::authority::suite(&bent()).await;
                    }
                    _ => contract::store::suite(&bent()).await,
                }
            });
        });
        assert!(received.contains(clause), "{bend:?}: {received}");
    }
}

#[test]
fn each_broken_call_promise_fails_its_own_clause() {
    let caught = [
        (Call::MadeAgain, "must arrive once", "must arrive once", "must arrive once"),
        (Call::UnknownIsNotSent, "it was read", "it was read", "it was read"),
        (Call::HeadersAreLost, "changed on the way", NOTHING, "must arrive whole"),
        (Call::Endless, "nothing came within", "nothing came within", "nothing came within"),
        (Call::NotAsked, NOTHING, NOTHING, "may not be sent any more"),
    ];
    for (call, forwards, questions, requests) in caught {
        let peers = || Link::new(|peers| BentPeers(peers, call));
        let upstream = || Service::new(|upstream| BentUpstream { inner: upstream, call });
        let by_peers = panic_message(|| play(async { contract::peers::suite(&peers()).await }));
        let by_asking = panic_message(|| play(async { contract::peers::asking(&peers()).await }));
        let by_upstream = panic_message(|| play(async { contract::upstream::suite(&upstream()).await }));
        assert!(by_peers.contains(forwards), "{call:?}: {by_peers}");
        assert!(by_asking.contains(questions), "{call:?}: {by_asking}");
        assert!(by_upstream.contains(requests), "{call:?}: {by_upstream}");
    }
}

#[test]
fn stores_that_follow_one_another_otherwise_do_not_go_as_recorded() {
    let turns = [
        (Turn::CrashesForget, "crashes"),
        (Turn::NothingIsHeldUp, "held up"),
        (Turn::SlotsRemember, "loses its slot there"),
        (Turn::UnheardIsUnwritten, "nobody knows"),
        (Turn::UnheardHasFailed, "nobody knows"),
        (Turn::CutsLeak, "b to a"),
    ];
    let recorded = include_str!("../../../histories/replication.txt");
    for (turn, step) in turns {
        let three = Turned { inner: Three::new(), turn };
        let played = play(async { contract::replication::all(&three, &|_| {}).await }).unwrap();
        let mut lines = played.lines().zip(recorded.lines());
        let (played, recorded) =
            lines.find(|(played, recorded)| played != recorded).expect("it goes as it was recorded");
        assert!(recorded.contains(step), "{turn:?}: recorded: {recorded}\nplayed: {played}");
    }
}
