//! The promises of [`Acceptors`] and [`Authority`]. Each run of the suite needs a new bench, as a
//! register is founded once.

use std::collections::{BTreeMap, BTreeSet};

use super::bench::*;
use onceway_protocol::authority::Pending;
use onceway_protocol::register::{Accepted, Acceptor, Ballot, Grant, Relies};
use onceway_protocol::ring::Ring;
use onceway_protocol::ring_spec::{Pin, PlaceBy, RegionSpec, RingSpec};
use onceway_protocol::view::{AcceptorId, Content, Retired, View};

pub trait AuthorityBench: StoreBench<Store: Acceptors + Authority> {}

impl<B: StoreBench<Store: Acceptors + Authority>> AuthorityBench for B {}

pub async fn suite(bench: &impl AuthorityBench) {
    the_founding_needs_no_approved_boot_and_all_after_it_do(bench).await;
    an_acceptor_is_read_as_it_was_written(bench).await;
    concurrent_acceptor_writes_have_one_winner(bench).await;
    another_acceptor_is_not_written_over(bench).await;
    a_gates_state_is_read_as_it_was_written(bench).await;
    a_state_moves_version_epoch_heartbeat_and_views(bench).await;
    a_state_written_at_an_old_version_is_lost(bench).await;
    concurrent_gate_writes_have_one_winner(bench).await;
    an_epoch_never_goes_back(bench).await;
    no_state_passes_an_unapproved_boot(bench).await;
    no_claim_of_an_older_state_passes(bench).await;
    a_concurrent_claim_wins_before_the_state_or_never(bench).await;
    kept_views_stay(bench).await;
}

/// An acceptor that holds nothing has nothing to forget. One that holds something may have
/// forgotten it until the boot is approved.
async fn the_founding_needs_no_approved_boot_and_all_after_it_do(bench: &impl AuthorityBench) {
    let (version, made) = acceptor(bench).await;
    assert_eq!(made, Acceptor::made(made.id), "acceptor: one that was just made holds nothing");
    restart_and_approve(bench).await;
    assert_eq!(acceptor(bench).await, (version, made.clone()), "acceptor: a restart made another one of it");
    let founded = holding(bench, &made, 1);
    bench.restart().await;
    assert_eq!(set(bench, version, &founded).await, Done, "acceptor: the founding must pass");
    let (version, read) = acceptor(bench).await;
    assert_eq!(read, founded, "acceptor: the founding was not stored as it was written");
    let next = holding(bench, &made, 2);
    let refused = set(bench, version, &next).await;
    assert_eq!(refused, GateMoved, "acceptor: written though the boot is not approved");
    assert_eq!(acceptor(bench).await, (version, founded), "acceptor: a refused write changed something");
    open(bench).await;
    assert_eq!(set(bench, version, &next).await, Done, "acceptor: the boot is approved");
}

async fn an_acceptor_is_read_as_it_was_written(bench: &impl AuthorityBench) {
    open(bench).await;
    let (version, before) = acceptor(bench).await;
    let mut full = holding(bench, &before, u64::MAX);
    let grants = std::iter::once(bench.origin()).chain(bench.peers()).map(|origin| {
        let grant = Grant {
            generation: u32::MAX,
            boot: digest("contract", &[origin.to_string().as_bytes()]),
            view: view(bench, 3, "grants"),
            number: u64::MAX,
            ttl: Duration::new(3, 1),
            holders: [(u64::MAX, Relies(u32::MAX, 1)), (7, Relies(1, u64::MAX))].into(),
        };
        (origin.region, grant)
    });
    full.grants = grants.collect();
    assert_eq!(set(bench, version, &full).await, Done);
    restart_and_approve(bench).await;
    let (later, read) = acceptor(bench).await;
    assert_eq!(read, full, "acceptor: it must be read as it was written");
    assert!(later > version, "acceptor: each write must move the version");
}

async fn concurrent_acceptor_writes_have_one_winner(bench: &impl AuthorityBench) {
    open(bench).await;
    let (version, before) = acceptor(bench).await;
    let rivals: Vec<Acceptor> = (10..18).map(|counter| holding(bench, &before, counter)).collect();
    let written = together(rivals.iter().map(|rival| set(bench, version, rival)).collect()).await;
    let winner = the_one_done(&rivals, &written);
    assert!(written.iter().all(|written| *written != GateMoved), "acceptor: the boot is approved");
    assert_eq!(acceptor(bench).await.1, *winner, "acceptor: somebody else's write stands there");
    assert_eq!(set(bench, version, &before).await, Lost, "acceptor: written at an old version");
}

/// An acceptor that was made anew may be at the version at which the former one was read. It has
/// its own id, and promised nothing of the former one's.
async fn another_acceptor_is_not_written_over(bench: &impl AuthorityBench) {
    open(bench).await;
    let (version, stands) = acceptor(bench).await;
    let of_before = Acceptor { id: AcceptorId(stands.id.0 ^ 1), ..holding(bench, &stands, 30) };
    assert_eq!(set(bench, version, &of_before).await, Lost, "acceptor: another one was written in its place");
    assert_eq!(acceptor(bench).await, (version, stands), "acceptor: a lost write changed something");
}

fn the_one_done<'a, T>(rivals: &'a [T], written: &[Written]) -> &'a T {
    let mut done = rivals.iter().zip(written).filter(|(_, written)| **written == Done);
    match (done.next(), done.next()) {
        (Some((winner, _)), None) => winner,
        _ => panic!("authority: one of them must be written: {written:?}"),
    }
}

async fn a_gates_state_is_read_as_it_was_written(bench: &impl AuthorityBench) {
    let gate_now = open(bench).await;
    assert_eq!((gate_now.epoch, gate_now.state), (1, None), "gate: nothing was adopted");
    assert_eq!(views(bench).await, [], "views: nothing was chosen");
    let founded = GateState::founded(view(bench, 1, "first"));
    let moving = Pending { target: view(bench, 2, "target"), seal: None };
    let sealed = Pending { seal: Some(1 << 40), ..moving.clone() };
    let waived = BTreeSet::from([(bench.peers()[0].region.clone(), 7), (bench.origin().region, 1)]);
    let states = [
        founded.clone(),
        founded.give_up(Some(moving)),
        founded.give_up(Some(sealed)),
        GateState { since: vec![view(bench, 1, "first"), view(bench, 1, "older")], waived, ..founded },
    ];
    for state in states {
        let version = open(bench).await.version;
        assert_eq!(set_gate(bench, version, &state).await, Done);
        assert_eq!(gate(bench).await.state.as_ref(), Some(&state), "gate: must be read as it was written");
        restart_and_approve(bench).await;
        assert_eq!(gate(bench).await.state, Some(state), "gate: a restart changed its state");
    }
}

async fn a_state_moves_version_epoch_heartbeat_and_views(bench: &impl AuthorityBench) {
    let (before, seq) = (open(bench).await, heartbeat(bench).await.0);
    let state = next(bench, &before);
    assert_eq!(set_gate(bench, before.version, &state).await, Done);
    let after = gate(bench).await;
    assert!(after.version > before.version, "gate: a new state must move the version");
    assert_eq!(after.epoch, state.view.epoch(), "gate: its epoch is the view's");
    assert!(after.is_open(), "gate: a new state must not take the approval away");
    assert_eq!(heartbeat(bench).await, (seq + 1, after.epoch), "gate: a heartbeat must come with the state");
    let kept = views(bench).await;
    assert!(kept.contains(&state.view), "views: the adopted one must be kept");
    assert!(kept.is_sorted_by_key(|view| view.epoch()), "views: oldest first");
    beats(bench).await;
    assert_eq!(heartbeat(bench).await, (seq + 2, after.epoch), "replica: a heartbeat of another epoch");
}

async fn a_state_written_at_an_old_version_is_lost(bench: &impl AuthorityBench) {
    let old = open(bench).await;
    let moved = adopts(bench).await;
    let stale = next(bench, &moved);
    is_refused(bench, old.version, &stale, (Lost, "gate: written at an old version")).await;
    assert!(!views(bench).await.contains(&stale.view), "views: a lost write left its view");
    restart_and_approve(bench).await;
    is_refused(bench, moved.version, &stale, (Lost, "gate: an approval must move the version")).await;
}

async fn is_refused(bench: &impl AuthorityBench, at: GateVersion, state: &GateState, how: (Written, &str)) {
    let ((how, why), version) = (how, at);
    let (before, beaten) = (gate(bench).await, heartbeat(bench).await);
    assert_eq!(set_gate(bench, version, state).await, how, "{why}");
    assert_eq!(gate(bench).await, before, "gate: a refused write changed the gate");
    assert_eq!(heartbeat(bench).await, beaten, "gate: a refused write left a heartbeat");
}

async fn concurrent_gate_writes_have_one_winner(bench: &impl AuthorityBench) {
    let before = open(bench).await;
    let seq = heartbeat(bench).await.0;
    let name = |at: usize| format!("rival-{at}");
    let rivals: Vec<GateState> =
        (0..8).map(|at| GateState::founded(view(bench, before.epoch + 1, &name(at)))).collect();
    let written = together(rivals.iter().map(|rival| set_gate(bench, before.version, rival)).collect()).await;
    let winner = the_one_done(&rivals, &written);
    assert_eq!(gate(bench).await.state.as_ref(), Some(winner), "gate: somebody else's state stands there");
    assert_eq!(heartbeat(bench).await.0, seq + 1, "gate: one write, one heartbeat");
}

async fn an_epoch_never_goes_back(bench: &impl AuthorityBench) {
    let now = adopts(bench).await;
    let older = GateState::founded(view(bench, now.epoch - 1, "older"));
    is_refused(bench, now.version, &older, (Lost, "gate: its epoch went back")).await;
    let opened = now.state.as_ref().expect("gate: it has a state").open();
    assert_eq!(set_gate(bench, now.version, &opened).await, Done, "gate: the same view may be set");
}

async fn no_state_passes_an_unapproved_boot(bench: &impl AuthorityBench) {
    let before = open(bench).await;
    let state = next(bench, &before);
    bench.restart().await;
    let why = "gate: written though the boot is not approved";
    is_refused(bench, before.version, &state, (GateMoved, why)).await;
    let version = open(bench).await.version;
    assert_eq!(set_gate(bench, version, &state).await, Done, "gate: the boot is approved");
}

async fn no_claim_of_an_older_state_passes(bench: &impl AuthorityBench) {
    let mut ask = asks(bench, &id(bench, "authority-older"), 1).await;
    let now = adopts(bench).await;
    assert_eq!(claim(bench, &ask).await, ClaimReply::GateMoved, "gate: a claim of an older state passed");
    ask.gate = now.version;
    assert_eq!(wins(bench, &ask).await.0.token.epoch, now.epoch, "gate: a claim is of the gate's epoch");
}

async fn a_concurrent_claim_wins_before_the_state_or_never(bench: &impl AuthorityBench) {
    let before = &open(bench).await;
    let state = next(bench, before);
    let mut all = Vec::new();
    for nonce in 1..=16 {
        all.push(asks(bench, &id(bench, &format!("authority-beside-{nonce}")), nonce).await);
    }
    let (all, state) = (&all, &state);
    // The gate's write is one of them.
    let calls = (0..=all.len()).map(|at| async move {
        let Some(ask) = all.get(at) else {
            assert_eq!(set_gate(bench, before.version, state).await, Done);
            return None;
        };
        Some(claim(bench, ask).await)
    });
    for (ask, reply) in all.iter().zip(together(calls.collect()).await) {
        let stands = !rows(bench, &ask.id).await.is_empty();
        match reply {
            Some(ClaimReply::Won { token, .. }) => {
                assert_eq!(token.epoch, before.epoch, "gate: a claim of the old version got the new epoch");
                assert!(stands, "gate: a claim that won is not there");
            }
            Some(ClaimReply::GateMoved) => assert!(!stands, "gate: a claim that was refused is there"),
            Some(ClaimReply::Found(rows)) => panic!("gate: the key was new, but {rows:?}"),
            None => {}
        }
    }
}

async fn kept_views_stay(bench: &impl AuthorityBench) {
    let epoch = open(bench).await.epoch + 100;
    let (one, two) = (view(bench, epoch, "one"), view(bench, epoch + 1, "two"));
    keep(bench, &[]).await;
    keep(bench, &[two.clone(), one.clone()]).await;
    bench.pass(SHORT).await;
    keep(bench, &[view(bench, epoch, "other"), one.clone()]).await;
    let found: Vec<_> = kept(bench).await.into_iter().filter(|(view, _)| view.epoch() >= epoch).collect();
    let stay: Vec<_> = found.iter().map(|(view, _)| view.clone()).collect();
    assert_eq!(stay, [one, two], "views: a kept one must stay as it is");
    let rounding = Duration::from_millis(1);
    assert!(found.iter().all(|(_, age)| *age + rounding >= SHORT), "views: kept again, they are not younger");
}

/// A view of the bench's regions; another name gives another ring.
pub(super) fn view(bench: &impl StoreBench, epoch: u64, name: &str) -> Arc<View> {
    let origins: Vec<_> = std::iter::once(bench.origin()).chain(bench.peers()).collect();
    view_with(&origins, bench.tenant(name), epoch)
}

/// A view of these regions, with the tenant pinned to the first.
pub(super) fn view_with(origins: &[Origin], tenant: Tenant, epoch: u64) -> Arc<View> {
    let regions: Vec<RegionSpec> =
        origins.iter().map(|origin| RegionSpec { name: origin.region.clone(), weight: 1 }).collect();
    let first = &origins[0];
    let pin = Pin { tenant, regions: vec![first.region.clone()] };
    let spec = RingSpec { seed: 11, place_by: PlaceBy::Tenant, regions, pins: vec![pin] };
    let ring = Arc::new(Ring::build(&spec).expect("bench: its regions must make a ring"));
    let voters: BTreeMap<_, _> =
        origins.iter().zip(1..).map(|(origin, id)| (origin.region.clone(), AcceptorId(id))).collect();
    let escrow = BTreeMap::from([("payouts".into(), Digest32::new([7; 32]))]);
    let content = View::founding(epoch, ring, escrow, voters).content();
    let retired = [(first.clone(), Retired { mark: 3, lost: Some(2) })].into();
    Arc::new(View::from_content(Content { retired, ..content }))
}

pub(super) fn next(bench: &impl StoreBench, gate: &Gate) -> GateState {
    GateState::founded(view(bench, gate.epoch + 1, "next"))
}

pub(super) async fn adopts(bench: &impl AuthorityBench) -> Gate {
    let before = open(bench).await;
    assert_eq!(set_gate(bench, before.version, &next(bench, &before)).await, Done);
    gate(bench).await
}

fn holding(bench: &impl StoreBench, before: &Acceptor, counter: u64) -> Acceptor {
    let ballot = Ballot { counter, region: bench.origin().region, proposer: u64::MAX };
    let accepted = Accepted { ballot: ballot.clone(), view: view(bench, 1, "accepted") };
    Acceptor { admitted: true, promised: Some(ballot), accepted: Some(accepted), ..before.clone() }
}

calls! { AuthorityBench:
    acceptor = acceptor() -> (u64, Acceptor);
    set = set_acceptor(version: u64, acceptor: &Acceptor) -> Written;
    set_gate = set_gate(version: GateVersion, state: &GateState) -> Written;
    keep = keep_views(views: &[Arc<View>]) -> ();
    kept = views() -> Vec<(Arc<View>, Duration)>;
}

async fn views(bench: &impl AuthorityBench) -> Vec<Arc<View>> {
    kept(bench).await.into_iter().map(|(view, _)| view).collect()
}

async fn heartbeat(bench: &impl StoreBench) -> (u64, u64) {
    let own = own_heartbeat(bench).await;
    (own.seq, own.epoch)
}
