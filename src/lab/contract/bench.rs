//! The bench of the store's clauses, and the calls that they share. A clause learns everything
//! through the port.

pub(super) use std::sync::Arc;
pub(super) use std::time::Duration;

pub(super) use super::together;
pub(super) use onceway_ports::authority::CopiedRow;
pub(super) use onceway_ports::store::Written::{self, Done, GateMoved, Lost};
pub(super) use onceway_ports::store::{
    Attempt, Beat, ClaimAsk, ClaimReply, Gate, GateVersion, Heartbeat, StoreError, Unclear,
};
pub(super) use onceway_ports::upkeep::{Entry, ListedDoubt, Place, Ruling, Who};
pub(super) use onceway_ports::{Acceptors, Audit, Authority, Imports, Jobs, KeyStore, Replica, Upkeep};
pub(super) use onceway_protocol::authority::GateState;
pub(super) use onceway_protocol::digest::{Digest32, digest};
pub(super) use onceway_protocol::fingerprint::{self, Fingerprint};
pub(super) use onceway_protocol::key::{Key, KeyId, Tenant};
pub(super) use onceway_protocol::lifetime::{Lifetime, Retention};
pub(super) use onceway_protocol::record::{
    Answer, AnswerBody, Basis, Nonce, Recovery, RequestId, Row, State, Token,
};
pub(super) use onceway_protocol::region::Origin;
pub(super) use onceway_protocol::time::Date;

use onceway_ports::audit::Counted;
use onceway_ports::store::Terms;

/// A hold that no clause outlives.
pub const LONG: Duration = Duration::from_secs(600);
/// A hold or a retention that a bench passes.
pub const SHORT: Duration = Duration::from_millis(400);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    Claimed,
    InDoubt,
    Released,
    Settled,
}

pub trait StoreBench: Sync {
    type Store: KeyStore + Replica + Upkeep + Jobs;

    fn store(&self) -> &Self::Store;

    fn origin(&self) -> Origin;

    /// Origins of other regions that it can remember; at least one.
    fn peers(&self) -> Vec<Origin>;

    /// A tenant that no other run uses; the same one for the same name.
    fn tenant(&self, name: &str) -> Tenant;

    /// Brings a row of the first peer for this key, of its first attempt, as replication would.
    /// Returns its token once a look-up shows it.
    fn arrives(&self, id: &KeyId, state: Foreign) -> impl Future<Output = Token> + Send;

    /// Brings the next heartbeat of the first peer, as replication would. Returns once it is shown.
    fn beats(&self) -> impl Future<Output = ()> + Send;

    /// Restarts the store's server: same data, a new boot that is not approved. Waits for it.
    fn restart(&self) -> impl Future<Output = ()> + Send;

    /// Passes time until holds and retentions of `span` that began before this call are over by the
    /// store's observed time.
    fn pass(&self, span: Duration) -> impl Future<Output = ()> + Send;
}

pub trait ImportBench: StoreBench<Store: Imports> {}

impl<B: StoreBench<Store: Imports>> ImportBench for B {}

pub trait AuditBench: ImportBench<Store: Audit> {}

impl<B: ImportBench<Store: Audit>> AuditBench for B {}

/// Calls on the bench's store, each of which must not fail.
macro_rules! calls {
    ($bench:ident: $($vis:vis $name:ident = $call:ident($($arg:ident: $kind:ty),*) -> $reply:ty;)*) => {
        $($vis async fn $name(bench: &impl $bench, $($arg: $kind),*) -> $reply {
            bench.store().$call($($arg),*).await.expect(concat!("store: ", stringify!($call), " failed"))
        })*
    };
}
pub(super) use calls;

calls! { StoreBench:
    pub(super) gate = gate() -> Gate;
    pub(super) claim = claim(ask: &ClaimAsk) -> ClaimReply;
    pub(super) settle = settle(attempt: &Attempt, answer: &Answer) -> Written;
    pub(super) release = release(attempt: &Attempt) -> Written;
    pub(super) look_up = look_up(ids: &[KeyId]) -> Vec<Vec<Row>>;
    pub(super) journal = journal(id: &KeyId) -> Vec<Entry>;
    pub(super) heartbeats = heartbeats() -> Vec<Heartbeat>;
}

calls! { AuditBench: pub(super) doubles = doubles() -> Counted; }

pub(super) async fn open(bench: &impl StoreBench) -> Gate {
    let closed = gate(bench).await;
    if closed.is_open() {
        return closed;
    }
    let approved = bench.store().approve(closed.version, &closed.running).await;
    assert_eq!(approved, Ok(Done), "store: the running boot at the gate's version must be approved");
    let open = gate(bench).await;
    assert!(open.is_open(), "store: an approved boot must open the gate");
    open
}

pub(super) async fn restart_and_approve(bench: &impl StoreBench) {
    bench.restart().await;
    open(bench).await;
}

/// A key that no other clause and no other run uses.
pub(super) fn id(bench: &impl StoreBench, name: &str) -> KeyId {
    KeyId::new(bench.tenant("contract"), Key::parse(name).expect("bench: a clause's name is a key"))
}

pub(super) fn fingerprint_of(body: &str) -> Fingerprint {
    Fingerprint { raw: fingerprint::raw("POST", "/contract", body.as_bytes()), canonical: None }
}

/// A claim of an absent key under the gate as it is, with a long hold.
pub(super) async fn asks(bench: &impl StoreBench, id: &KeyId, nonce: u128) -> ClaimAsk {
    asked(id, nonce, open(bench).await.version)
}

pub(super) async fn asks_on(bench: &impl StoreBench, id: &KeyId, nonce: u128, basis: Basis) -> ClaimAsk {
    ClaimAsk { basis, ..asks(bench, id, nonce).await }
}

/// A claim that replaces the own row as it is now, with a long hold.
pub(super) async fn asks_again(bench: &impl StoreBench, id: &KeyId, nonce: u128) -> ClaimAsk {
    asks_on(bench, id, nonce, known(&row(bench, id).await)).await
}

/// A claim of an absent key under this gate, with a long hold.
pub fn asked(id: &KeyId, nonce: u128, gate: GateVersion) -> ClaimAsk {
    let terms = Terms {
        nonce: Nonce(nonce),
        fingerprint: fingerprint_of("contract"),
        request_id: RequestId(nonce << 64 | 7),
        hold: LONG,
        settle_time: Duration::ZERO,
        recovery: Recovery::Rerun { max_attempts: 4 },
        lifetime: lived(LONG, Duration::ZERO),
        route: "contract".into(),
        path: "/v1/contract".to_owned(),
        principal: None,
    };
    ClaimAsk { id: id.clone(), gate, basis: Basis::Absent, risk: Vec::new(), terms }
}

/// A life of this length, stored longer by the skew, with a long tombstone.
pub(super) fn lived(promised: Duration, skew: Duration) -> Lifetime {
    Lifetime { retention: Retention::For(promised), skew, tombstone: LONG }
}

pub(super) fn known(row: &Row) -> Basis {
    Basis::Known { own: Some((row.token, row.nonce)), over: Vec::new(), attempt: row.token.attempt }
}

/// The basis of a claim that saw this attempt of the first peer, and no own row.
pub(super) fn over_theirs(bench: &impl StoreBench, theirs: Token) -> Basis {
    Basis::Known { own: None, over: vec![(bench.peers()[0].clone(), theirs)], attempt: theirs.attempt }
}

/// The attempt that this claim wins, and the end of its key's retention.
pub(super) async fn wins(bench: &impl StoreBench, ask: &ClaimAsk) -> (Attempt, Date) {
    match claim(bench, ask).await {
        ClaimReply::Won { token, expires, .. } => {
            (Attempt { id: ask.id.clone(), token, nonce: ask.terms.nonce }, expires)
        }
        ClaimReply::Found(rows) => panic!("store: this claim must win, but found {rows:?}"),
        ClaimReply::GateMoved => panic!("store: this claim must win, but the gate moved"),
    }
}

pub(super) async fn finds(bench: &impl StoreBench, ask: &ClaimAsk, why: &str) -> Row {
    match claim(bench, ask).await {
        ClaimReply::Found(rows) => only(rows),
        ClaimReply::Won { token, .. } => panic!("store: {why}, but the claim won under {token}"),
        ClaimReply::GateMoved => panic!("store: {why}, but the gate moved"),
    }
}

/// A fresh key, claimed under `nonce` with a long hold.
pub(super) async fn claimed(bench: &impl StoreBench, name: &str, nonce: u128) -> Attempt {
    wins(bench, &asks(bench, &id(bench, name), nonce).await).await.0
}

pub(super) async fn claimed_as(
    bench: &impl StoreBench,
    name: &str,
    nonce: u128,
    change: impl FnOnce(&mut ClaimAsk),
) -> Attempt {
    let mut ask = asks(bench, &id(bench, name), nonce).await;
    change(&mut ask);
    wins(bench, &ask).await.0
}

pub(super) async fn settled_key(bench: &impl StoreBench, name: &str, nonce: u128) -> Attempt {
    let attempt = claimed(bench, name, nonce).await;
    assert_eq!(settle(bench, &attempt, &answer()).await, Done);
    attempt
}

pub(super) async fn settled_for(bench: &impl StoreBench, name: &str, lifetime: Lifetime) -> (Attempt, Date) {
    let mut ask = asks(bench, &id(bench, name), 1).await;
    ask.terms.lifetime = lifetime;
    let (attempt, expires) = wins(bench, &ask).await;
    assert_eq!(settle(bench, &attempt, &answer()).await, Done);
    (attempt, expires)
}

pub(super) async fn released_key(bench: &impl StoreBench, name: &str, nonce: u128) -> Attempt {
    let attempt = claimed(bench, name, nonce).await;
    assert_eq!(release(bench, &attempt).await, Done);
    attempt
}

pub(super) async fn doubted_key(bench: &impl StoreBench, name: &str, status: Option<u16>) -> Attempt {
    let attempt = claimed(bench, name, 1).await;
    assert_eq!(doubt(bench, &attempt, status).await, Done);
    attempt
}

pub(super) async fn rows(bench: &impl StoreBench, id: &KeyId) -> Vec<Row> {
    let found = look_up(bench, std::slice::from_ref(id)).await;
    let [rows] = <[Vec<Row>; 1]>::try_from(found).expect("store: look_up of one id must give one vector");
    rows
}

pub(super) async fn row(bench: &impl StoreBench, id: &KeyId) -> Row {
    only(rows(bench, id).await)
}

/// The own row of a key of which other origins may have rows, too.
pub(super) async fn own(bench: &impl StoreBench, id: &KeyId) -> Row {
    let mine = bench.origin();
    let mut all = rows(bench, id).await.into_iter();
    all.find(|row| row.origin == mine).expect("store: the own row must stand")
}

pub(super) fn only(rows: Vec<Row>) -> Row {
    let [row] = <[Row; 1]>::try_from(rows)
        .unwrap_or_else(|rows| panic!("store: one row was expected, not {}", rows.len()));
    row
}

pub(super) fn is_claimed(row: &Row) -> bool {
    matches!(row.state, State::Claimed { .. })
}

pub(super) async fn is_settled(bench: &impl StoreBench, id: &KeyId) -> bool {
    matches!(row(bench, id).await.state, State::Settled { .. })
}

/// The own heartbeat; a store shows one.
pub(super) async fn own_heartbeat(bench: &impl StoreBench) -> Heartbeat {
    let mine = heartbeats(bench).await.into_iter().filter(|beat| beat.origin == bench.origin());
    let [own] = <[Heartbeat; 1]>::try_from(mine.collect::<Vec<_>>()).expect("replica: one own heartbeat");
    own
}

pub(super) async fn beats(bench: &impl StoreBench) -> Beat {
    let beat = bench.store().beat(None).await.expect("store: beat failed");
    beat.expect("replica: an open gate lets a heartbeat pass")
}

/// Puts an attempt in doubt; a status does not end it.
pub(super) async fn doubt(bench: &impl StoreBench, attempt: &Attempt, status: Option<u16>) -> Written {
    let answer = status.map(|status| Unclear { status, ends_attempt: false, excerpt: None });
    bench.store().doubt(attempt, answer).await.expect("store: doubt failed")
}

pub(super) fn answer() -> Answer {
    Answer {
        status: 201,
        headers: vec![("content-type".to_owned(), b"text/plain".to_vec())],
        body: AnswerBody::Kept(b"made".to_vec()),
    }
}

pub(super) async fn runs_at_risk(bench: &impl StoreBench, name: &str) -> Attempt {
    let risk = vec![bench.peers()[0].region.clone()];
    claimed_as(bench, name, 1, |ask| ask.risk = risk).await
}

pub(super) async fn listed(bench: &impl StoreBench, id: &KeyId) -> Option<ListedDoubt> {
    let all = bench.store().doubts(None, 100_000).await.expect("store: doubts failed");
    all.into_iter().find(|listed| listed.open.id == *id)
}

/// The attempts of the key's doubles in the journal.
pub(super) async fn journalled(bench: &impl StoreBench, id: &KeyId) -> Vec<Token> {
    let doubles = journal(bench, id).await.into_iter().filter(|entry| entry.kind == "double");
    doubles.filter_map(|entry| entry.token).collect()
}
