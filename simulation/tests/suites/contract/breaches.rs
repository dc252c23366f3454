//! The contract's suites and the recorded histories can fail: they notice a port that breaks one
//! promise, and stores that replicate differently from Postgres.
//!
//! The message must name the clause that promises the broken behaviour.

use std::panic::{AssertUnwindSafe, catch_unwind};

use http::HeaderMap;
use onceway::ports::jobs::{self, Acted, Job, JobLoad, JobRow, StoredRequest, Taken, Turns};
use onceway::ports::peers::PeerError;
use onceway::ports::store::{Gate, *};
use onceway::ports::upkeep::{
    self, ClaimPage, Entry, ForeignPage, KeyStretch, ListedDoubt, Place, Reaped, Ruling, Who,
};
use onceway::ports::upstream::{Probe, ProbeReply, Send as Sent, SendError};
use onceway::ports::{Authority, Peers, Upstream};
use onceway::protocol::authority::GateState;
use onceway::protocol::job::JobState;
use onceway::protocol::observed::Passed;
use onceway::protocol::time::Date;
use onceway_lab::contract;
use onceway_lab::contract::replication::ReplicationBench;
use simulation::peers::SimPeers;
use simulation::upstream::SimUpstream;

use crate::contract::benches::{Link, Service, Stores, Three};
use crate::shared::*;

/// The result of a run that found no broken promise: questions have no headers that could be lost.
const NOTHING: &str = "nothing was noticed";

fn panic_message(run: impl FnOnce()) -> String {
    let Err(panic) = catch_unwind(AssertUnwindSafe(run)) else { return NOTHING.to_owned() };
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bend {
    ClaimsPassTheGate,
    ClaimsAreNotRecognized,
    WhoFindsWins,
    LostIsDone,
    DoubtsForget,
    ForeignRowsAreHidden,
    AnyVersionIsApproved,
    BeatsAreOldOnes,
    NothingIsRecalled,
    AnyGateIsSet,
    AnyAcceptorIsSet,
    ViewsAreReversed,
}

/// A side of the contract that breaks one promise.
struct Bent<T, B> {
    inner: T,
    bend: B,
}

macro_rules! handed_on {
    ($($call:ident($($name:ident: $kind:ty),*) -> $reply:ty;)*) => {
        $(fn $call(&self, $($name: $kind),*) -> impl Future<Output = $reply> + Send {
            self.inner.$call($($name),*)
        })*
    };
}

impl KeyStore for Bent<SimStore, Bend> {
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

impl Replica for Bent<SimStore, Bend> {
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

impl Acceptors for Bent<SimStore, Bend> {
    async fn set_acceptor(&self, version: u64, acceptor: &Acceptor) -> Result<Written, StoreError> {
        let now = self.inner.acceptor().await?.0;
        self.inner
            .set_acceptor(if self.bend == Bend::AnyAcceptorIsSet { now } else { version }, acceptor)
            .await
    }

    handed_on! { acceptor() -> Result<(u64, Acceptor), StoreError>; }
}

impl Authority for Bent<SimStore, Bend> {
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

impl Upkeep for Bent<SimStore, Bend> {
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

impl Jobs for Bent<SimStore, Bend> {
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    MadeAgain,
    UnknownIsNotSent,
    HeadersAreLost,
    Endless,
    /// The check if a request may still be sent is left out.
    NotAsked,
}

impl Call {
    fn within(self, within: Duration) -> Duration {
        if self == Self::Endless { within + ms(3_600_000) } else { within }
    }

    fn lose_one(self, headers: &mut HeaderMap) {
        if self == Self::HeadersAreLost {
            headers.keys().next().cloned().map(|name| headers.remove(name));
        }
    }
}

impl Bent<SimPeers, Call> {
    fn bent<T>(&self, reply: Result<T, PeerError>) -> Result<T, PeerError> {
        match reply {
            Err(PeerError::Unknown(why)) if self.bend == Call::UnknownIsNotSent => {
                Err(PeerError::NotSent(why))
            }
            reply => reply,
        }
    }
}

impl Peers for Bent<SimPeers, Call> {
    async fn forward(&self, to: &RegionName, mut forward: Forward) -> Result<ForwardReply, PeerError> {
        self.bend.lose_one(&mut forward.headers);
        match self.inner.forward(to, forward.clone()).await {
            Err(PeerError::Unknown(_)) if self.bend == Call::MadeAgain => {
                self.inner.forward(to, forward).await
            }
            reply => self.bent(reply),
        }
    }

    async fn ping(&self, to: &RegionName, within: Duration) -> Result<Pong, PeerError> {
        self.inner.ping(to, self.bend.within(within)).await
    }

    async fn ask(
        &self,
        to: &RegionName,
        question: Question,
        within: Duration,
    ) -> Result<PeerReply, PeerError> {
        match self.inner.ask(to, question.clone(), self.bend.within(within)).await {
            Err(PeerError::Unknown(_)) if self.bend == Call::MadeAgain => {
                self.inner.ask(to, question, within).await
            }
            reply => self.bent(reply),
        }
    }
}

impl Upstream for Bent<SimUpstream, Call> {
    async fn send(
        &self,
        mut send: Sent,
        within: Duration,
        may_send: impl Fn() -> bool + Send + Sync,
    ) -> Result<Response<Body>, SendError> {
        self.bend.lose_one(&mut send.headers);
        let may_send = || self.bend == Call::NotAsked || may_send();
        match self.inner.send(send.clone(), self.bend.within(within), may_send).await {
            Err(SendError::Unknown(_)) if self.bend == Call::MadeAgain => {
                self.inner.send(send, within, may_send).await
            }
            Err(SendError::Unknown(why)) if self.bend == Call::UnknownIsNotSent => {
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
        self.inner.pass(upstream, request, self.bend.within(within)).await
    }

    handed_on! {
        probe(probe: Probe, within: Duration, limit: usize) -> ProbeReply;
        check(path: &Uri, within: Duration) -> Result<(), String>;
    }
}

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

/// Acts on a link that are left out in a turn.
macro_rules! left_out {
    ($($turn:ident: $($act:ident),*;)*) => {
        $($(async fn $act(&self, from: usize, to: usize) -> Result<(), String> {
            if self.bend == Turn::$turn { Ok(()) } else { self.inner.$act(from, to).await }
        })*)*
    };
}

impl ReplicationBench for Bent<Three, Turn> {
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
        if self.bend == Turn::CrashesForget {
            self.inner.forget(region);
        }
        self.inner.crash(region).await
    }

    async fn claim_unheard(
        &self,
        region: usize,
        ask: &ClaimAsk,
    ) -> Result<Result<ClaimReply, StoreError>, String> {
        match self.bend {
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
        let suite = async {
            match bend {
                Bend::BeatsAreOldOnes | Bend::NothingIsRecalled => contract::replica::suite(&bent()).await,
                Bend::AnyGateIsSet | Bend::AnyAcceptorIsSet | Bend::ViewsAreReversed => {
                    contract::authority::suite(&bent()).await;
                }
                _ => contract::store::suite(&bent()).await,
            }
        };
        let received = panic_message(|| play(suite));
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
        let peers = || Link::new(|inner| Bent { inner, bend: call });
        let upstream = || Service::new(|inner| Bent { inner, bend: call });
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
        let three = Bent { inner: Three::new(), bend: turn };
        let played = play(async { contract::replication::all(&three, &|_| {}).await }).unwrap();
        let mut lines = played.lines().zip(recorded.lines());
        let (played, recorded) =
            lines.find(|(played, recorded)| played != recorded).expect("it goes as it was recorded");
        assert!(recorded.contains(step), "{turn:?}: recorded: {recorded}\nplayed: {played}");
    }
}
