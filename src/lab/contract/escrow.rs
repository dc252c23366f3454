//! The promises of [`Escrows`]. Each run of the suite needs a new bench, whose gate
//! [`super::authority`] moves.

use super::authority::{AuthorityBench, adopts};
use super::bench::*;
use super::imports::latest;
use onceway_ports::Escrows;
use onceway_ports::authority::{Lodged, Lodging};
use onceway_ports::store::Terms;
use onceway_protocol::written::LONGEST;

pub trait EscrowBench: AuthorityBench<Store: Escrows + Imports> {}

impl<B: AuthorityBench<Store: Escrows + Imports>> EscrowBench for B {}

pub async fn suite(bench: &impl EscrowBench) {
    only_a_higher_token_replaces_a_lodged_claim(bench).await;
    nothing_is_lodged_under_another_gate(bench).await;
    claims_lodged_before_a_gate_change_are_found(bench).await;
    a_voided_escrow_is_gone(bench).await;
    an_answer_is_lodged_with_its_claim_at_any_epoch(bench).await;
    a_converted_claim_is_an_own_doubt(bench).await;
    the_longest_spans_are_read_again(bench).await;
    a_converted_answer_is_an_own_settlement(bench).await;
    an_already_known_attempt_is_not_converted(bench).await;
    an_own_open_row_of_a_lower_token_gives_way(bench).await;
    a_lodged_claim_is_handed_back_to_its_home(bench).await;
    a_conversion_goes_on_until_nothing_is_left(bench).await;
    no_escrow_goes_before_the_boot_is_approved(bench).await;
    an_escrow_goes_once_its_record_is_here(bench).await;
    an_escrow_goes_with_its_life(bench).await;
}

async fn only_a_higher_token_replaces_a_lodged_claim(bench: &impl EscrowBench) {
    let first = lodges(bench, "escrow-again", 3, 1).await;
    assert_eq!(lodge(bench, &first).await, Lodged::Done, "escrow: lodged again, it stands already");
    let lower = with(&first, 2, 2);
    assert_eq!(lodge(bench, &lower).await, Lodged::Superseded, "escrow: a lower token replaced a higher");
    let higher = with(&first, 4, 3);
    assert_eq!(lodge(bench, &higher).await, Lodged::Done, "escrow: a higher token takes the place");
    assert_eq!(lodge(bench, &first).await, Lodged::Superseded, "escrow: a higher token stands there");
    let elsewhere = Lodging { origin: bench.peers()[1].clone(), ..lower };
    assert_eq!(lodge(bench, &elsewhere).await, Lodged::Done, "escrow: each origin has its own");
    assert_eq!(convert(bench, &first.origin).await, 1, "escrow: one row for each key and origin");
    assert_eq!(
        row(bench, &first.id).await.nonce,
        higher.terms.nonce,
        "escrow: the higher token's must stand"
    );
    assert_eq!(convert(bench, &elsewhere.origin).await, 1);
}

async fn nothing_is_lodged_under_another_gate(bench: &impl EscrowBench) {
    let lodging = lodging(bench, "escrow-gate", 1, 1).await;
    let old = open(bench).await.version;
    adopts(bench).await;
    let lodged = lodge_at(bench, &lodging, old).await;
    assert_eq!(lodged, Lodged::GateMoved, "escrow: lodged under an older state");
    let version = open(bench).await.version;
    bench.restart().await;
    let lodged = lodge_at(bench, &lodging, version).await;
    assert_eq!(lodged, Lodged::GateMoved, "escrow: lodged before the approval");
    open(bench).await;
    assert_eq!(convert(bench, &lodging.origin).await, 0, "escrow: what was refused was lodged all the same");
    assert_eq!(rows(bench, &lodging.id).await, [], "escrow: what was refused left a row");
}

/// Once the gate has moved, every claim lodged under the older state can be found: nothing slips in
/// later (docs/protocol.md#rule-37).
async fn claims_lodged_before_a_gate_change_are_found(bench: &impl EscrowBench) {
    let version = open(bench).await.version;
    let mut all = Vec::new();
    for nonce in 1..=16 {
        all.push(lodging(bench, &format!("escrow-beside-{nonce:02}"), 1, nonce).await);
    }
    let calls = all.iter().map(Some).chain([None]).map(|lodging| async move {
        let Some(lodging) = lodging else {
            adopts(bench).await;
            return None;
        };
        Some(lodge_at(bench, lodging, version).await)
    });
    let answers = together(calls.collect()).await;
    let done = answers.iter().filter(|answers| **answers == Some(Lodged::Done)).count() as u64;
    assert!(!answers.contains(&Some(Lodged::Superseded)), "escrow: nothing stood there");
    assert_eq!(convert(bench, &all[0].origin).await, done, "escrow: what was lodged is not what is found");
    for (lodging, answers) in all.iter().zip(&answers) {
        let stands = !rows(bench, &lodging.id).await.is_empty();
        assert_eq!(stands, *answers == Some(Lodged::Done), "escrow: {answers:?}");
    }
}

async fn a_voided_escrow_is_gone(bench: &impl EscrowBench) {
    let lodging = lodges(bench, "escrow-void", 2, 1).await;
    let other = Lodging { origin: bench.peers()[1].clone(), ..lodging.clone() };
    for other in [with(&lodging, 2, 2), with(&lodging, 1, 1), other] {
        void(bench, &other).await;
    }
    let lodged = lodge(bench, &with(&lodging, 1, 9)).await;
    assert_eq!(lodged, Lodged::Superseded, "escrow: another one was voided");
    for _ in 0..2 {
        void(bench, &lodging).await;
    }
    assert_eq!(convert(bench, &lodging.origin).await, 0, "escrow: a voided one is still there");
}

/// A fact is never refused, under a newer state either, but it needs its own claim in the store.
async fn an_answer_is_lodged_with_its_claim_at_any_epoch(bench: &impl EscrowBench) {
    let lodging = lodging(bench, "escrow-answer", 2, 1).await;
    assert_eq!(lodge_answer(bench, &lodging).await, Lost, "escrow: there is no such claim");
    lodge(bench, &lodging).await;
    adopts(bench).await;
    assert_eq!(lodge_answer(bench, &with(&lodging, 2, 2)).await, Lost, "escrow: of another nonce");
    assert_eq!(lodge_answer(bench, &with(&lodging, 3, 1)).await, Lost, "escrow: of another token");
    assert_eq!(lodge_answer(bench, &lodging).await, Done, "escrow: of a newer state, but a fact");
    assert_eq!(lodge_answer(bench, &lodging).await, Done, "escrow: it is lodged already");
    // The next attempt has no answer yet.
    assert_eq!(lodge(bench, &with(&lodging, 3, 5)).await, Lodged::Done);
    assert_eq!(convert(bench, &lodging.origin).await, 1);
    let open = row(bench, &lodging.id).await;
    let State::InDoubt { .. } = open.state else { panic!("escrow: an older answer was kept: {open:?}") };
    assert_eq!(lodge_answer(bench, &lodging).await, Lost, "escrow: it was converted");
}

async fn a_converted_claim_is_an_own_doubt(bench: &impl EscrowBench) {
    let lodging = lodges(bench, "escrow-doubt", 7, 1).await;
    assert_eq!(rows(bench, &lodging.id).await, [], "escrow: it must not be shown as a record");
    restart_and_approve(bench).await;
    assert_eq!(convert(bench, &lodging.origin).await, 1, "escrow: it must be converted");
    let own = row(bench, &lodging.id).await;
    assert_eq!(
        (own.origin.clone(), own.token, own.nonce),
        (bench.origin(), lodging.token, lodging.terms.nonce)
    );
    assert_eq!((own.fingerprint, own.request_id), (lodging.terms.fingerprint, lodging.terms.request_id));
    assert_eq!((own.principal, &own.risk), (lodging.terms.principal, &Vec::new()));
    let State::InDoubt { status: None, left, past } = own.state else { panic!("escrow: {own:?}") };
    assert!(left <= LONG && left > LONG / 2 && past.is_zero(), "escrow: the hold counts from the lodging");
    let listed = listed(bench, &lodging.id).await.expect("escrow: not listed");
    assert_eq!(
        (listed.open.route, listed.open.path),
        (lodging.terms.route.clone(), lodging.terms.path.clone())
    );
    assert_eq!(settle(bench, &lodging.attempt(), &answer()).await, Done, "escrow: it ends as an own attempt");
}

async fn the_longest_spans_are_read_again(bench: &impl EscrowBench) {
    let mut lodging = lodging(bench, "escrow-longest", 1, 1).await;
    lodging.terms.hold = LONGEST;
    lodging.terms.lifetime =
        Lifetime { retention: Retention::For(LONGEST), skew: LONGEST, tombstone: LONGEST };
    lodge(bench, &lodging).await;
    assert_eq!(convert(bench, &lodging.origin).await, 1);
    let State::InDoubt { left, .. } = row(bench, &lodging.id).await.state else { panic!("escrow: no doubt") };
    assert!(left > LONGEST / 2 && left <= LONGEST, "escrow: {left:?}");
    assert!(listed(bench, &lodging.id).await.is_some(), "escrow: not listed");
}

async fn a_converted_answer_is_an_own_settlement(bench: &impl EscrowBench) {
    let lodging = lodges(bench, "escrow-settled", 1, 1).await;
    lodge_answer(bench, &lodging).await;
    assert_eq!(convert(bench, &lodging.origin).await, 1);
    let own = row(bench, &lodging.id).await;
    assert_eq!((own.origin, own.token, own.nonce), (bench.origin(), lodging.token, lodging.terms.nonce));
    let State::Settled { answer: stored, expired: false, .. } = own.state else {
        panic!("escrow: {:?}", own.state)
    };
    assert_eq!(*stored, answer(), "escrow: another answer");
    assert!(listed(bench, &lodging.id).await.is_none(), "escrow: nothing is in doubt about it");
}

/// Its origin's record or the own one has a token as high, or any final row is here.
async fn an_already_known_attempt_is_not_converted(bench: &impl EscrowBench) {
    let known = lodges(bench, "escrow-known", 1, 1).await;
    assert_eq!(bench.arrives(&known.id, Foreign::Released).await, known.token, "bench: the same attempt");
    let newer = lodges(bench, "escrow-newer", 2, 1).await;
    bench.arrives(&newer.id, Foreign::Released).await;
    let own = claimed(bench, "escrow-own", 1).await;
    lodges(bench, "escrow-own", 1, 9).await;
    let last = settled_key(bench, "escrow-final", 1).await;
    lodges(bench, "escrow-final", 5, 9).await;
    assert_eq!(convert(bench, &known.origin).await, 4, "escrow: all of them must be taken off");
    assert_eq!(rows(bench, &known.id).await.len(), 1, "escrow: converted beside its own record");
    assert_eq!(rows(bench, &newer.id).await.len(), 2, "escrow: the record there is of an older attempt");
    assert_eq!(row(bench, &own.id).await.nonce, own.nonce, "escrow: the own row has a token as high");
    assert!(is_settled(bench, &last.id).await, "escrow: what is final was opened");
}

/// A running attempt, and with its answer a settled one: its store may have neither.
async fn a_lodged_claim_is_handed_back_to_its_home(bench: &impl EscrowBench) {
    let running = lodges(bench, "escrow-back", 3, 1).await;
    let answered = lodges(bench, "escrow-back-answered", 1, 2).await;
    lodge_answer(bench, &answered).await;
    bench.beats().await;
    let back = latest(bench, &running.origin, 1).await;
    for (lodging, doubted) in [(&running, 2), (&answered, 0)] {
        let found = back.iter().find(|back| back.id == lodging.id).expect("escrow: not handed back");
        let CopiedRow { id: _, row, hold, lives, tombstone, route, path } = found;
        assert_eq!(
            (&row.origin, row.token, row.nonce),
            (&lodging.origin, lodging.token, lodging.terms.nonce)
        );
        assert_eq!((row.fingerprint, row.request_id), (lodging.terms.fingerprint, lodging.terms.request_id));
        let said = (row.principal, row.doubted, row.recovery, *hold);
        assert_eq!(said, (lodging.terms.principal, doubted, lodging.terms.recovery, lodging.terms.hold));
        assert_eq!((route, path, *tombstone), (&lodging.terms.route, &lodging.terms.path, LONG));
        assert!(*lives > LONG / 2 && *lives <= LONG + SHORT, "escrow: {lives:?}");
        let is_settled = matches!(row.state, State::Settled { .. });
        assert_eq!(is_settled, doubted == 0, "escrow: one of them has its answer: {row:?}");
        assert!(is_settled || matches!(row.state, State::Claimed { .. }), "escrow: the other may run");
        void(bench, lodging).await;
    }
}

async fn an_own_open_row_of_a_lower_token_gives_way(bench: &impl EscrowBench) {
    released_key(bench, "escrow-lower", 1).await;
    let higher = lodges(bench, "escrow-lower", 2, 9).await;
    assert_eq!(convert(bench, &higher.origin).await, 1);
    let own = row(bench, &higher.id).await;
    assert_eq!((own.token, own.nonce), (higher.token, higher.terms.nonce));
    assert!(matches!(own.state, State::InDoubt { .. }), "escrow: {own:?}");
}

async fn a_conversion_goes_on_until_nothing_is_left(bench: &impl EscrowBench) {
    let mut all = Vec::new();
    for nonce in 1..=5 {
        all.push(lodging(bench, &format!("escrow-many-{nonce}"), 1, nonce).await);
    }
    let other = Lodging { origin: bench.peers()[1].clone(), ..all[0].clone() };
    for lodging in all.iter().chain([&other]) {
        assert_eq!(lodge(bench, lodging).await, Lodged::Done);
    }
    let origin = &all[0].origin;
    let mut taken = Vec::new();
    for _ in 0..4 {
        taken.push(bench.store().convert(origin, 2).await.expect("escrow: convert failed"));
    }
    assert_eq!(taken, [2, 2, 1, 0], "escrow: at most so many at a time, until none is left");
    for lodging in &all {
        assert_eq!(row(bench, &lodging.id).await.nonce, lodging.terms.nonce, "escrow: one got lost");
    }
    let lodged = lodge(bench, &with(&other, 1, 7)).await;
    assert_eq!(lodged, Lodged::Superseded, "escrow: another origin's was taken");
    assert_eq!(convert(bench, &other.origin).await, 1);
}

/// A store that restarted may have lost rows: before its boot is approved none is forgotten, and a
/// conversion is an error, since 0 would say that none is left.
async fn no_escrow_goes_before_the_boot_is_approved(bench: &impl EscrowBench) {
    let closed = lodges(bench, "escrow-closed", 1, 1).await;
    bench.arrives(&lodges(bench, "escrow-kept", 1, 1).await.id, Foreign::Claimed).await;
    bench.restart().await;
    bench.pass(SHORT).await;
    let refused = bench.store().convert(&closed.origin, 100).await;
    let Err(StoreError::Definite(_)) = refused else { panic!("escrow: before the approval: {refused:?}") };
    assert_eq!(reap(bench).await, 0, "escrow: reaped before the approval");
    open(bench).await;
    assert_eq!(reap(bench).await, 1, "escrow: its record is here, and the boot is approved");
    assert_eq!(convert(bench, &closed.origin).await, 1, "escrow: a refused conversion lost it");
}

async fn an_escrow_goes_once_its_record_is_here(bench: &impl EscrowBench) {
    let first = lodges(bench, "escrow-reaped", 1, 1).await;
    let second = lodges(bench, "escrow-stays", 2, 1).await;
    assert_eq!(reap(bench).await, 0, "escrow: no record of theirs is here");
    bench.arrives(&first.id, Foreign::Claimed).await;
    bench.arrives(&second.id, Foreign::Claimed).await;
    assert_eq!(reaps_at_last(bench).await, 1, "escrow: its record is here");
    let lodged = lodge(bench, &with(&second, 1, 2)).await;
    assert_eq!(lodged, Lodged::Superseded, "escrow: the other one must stay");
    assert_eq!(convert(bench, &first.origin).await, 1);
}

/// An escrow goes after its stored life and its tombstone, by this store's observed time: so long
/// its home refuses the key. It never goes after its hold.
async fn an_escrow_goes_with_its_life(bench: &impl EscrowBench) {
    let lodging = async |name: &str| lodging(bench, name, 1, 1).await;
    let mut held = lodging("escrow-held").await;
    held.terms.hold = Duration::ZERO;
    let lifetime = Lifetime { retention: Retention::For(Duration::ZERO), skew: SHORT, tombstone: SHORT };
    let mut lives = lodging("escrow-lives").await;
    lives.terms.lifetime = lifetime;
    let mut refused = lodging("escrow-refused").await;
    refused.terms.lifetime = Lifetime { tombstone: LONG, ..lifetime };
    let mut ever = lodging("escrow-ever").await;
    ever.terms.lifetime.retention = Retention::Never;
    for lodging in [&held, &lives, &ever, &refused] {
        assert_eq!(lodge(bench, lodging).await, Lodged::Done);
    }
    assert_eq!(reap(bench).await, 0, "escrow: reaped before its time");
    bench.pass(SHORT).await;
    assert_eq!(reaps_at_last(bench).await, 1, "escrow: one of them is past its life");
    assert_eq!(lodge(bench, &with(&held, 1, 2)).await, Lodged::Superseded, "escrow: it went with its hold");
    assert_eq!(lodge(bench, &with(&ever, 1, 2)).await, Lodged::Superseded, "escrow: it is kept for ever");
    // Its home would refuse the key by now, and so does whoever takes over.
    lodge_answer(bench, &refused).await;
    assert_eq!(convert(bench, &held.origin).await, 3);
    let State::Settled { expired: true, .. } = row(bench, &refused.id).await.state else {
        panic!("escrow: a key past its retention is open again")
    };
}

async fn lodging(bench: &impl StoreBench, name: &str, attempt: u32, nonce: u128) -> Lodging {
    let token = Token { epoch: open(bench).await.epoch, attempt };
    lodging_of(id(bench, name), bench.peers()[0].clone(), token, Nonce(nonce))
}

pub fn lodging_of(id: KeyId, origin: Origin, token: Token, nonce: Nonce) -> Lodging {
    let terms = Terms {
        nonce,
        fingerprint: Fingerprint {
            raw: fingerprint::raw("POST", "/escrow", id.key().as_str().as_bytes()),
            canonical: Some(fingerprint::raw("POST", "/escrow", b"{}")),
        },
        request_id: RequestId(nonce.0 << 64 | 3),
        hold: LONG,
        settle_time: SHORT,
        recovery: Recovery::Rerun { max_attempts: 4 },
        lifetime: Lifetime { retention: Retention::For(LONG), skew: SHORT, tombstone: LONG },
        route: "payouts".into(),
        path: "/v1/payouts".to_owned(),
        principal: Some(digest("contract", &[b"principal"])),
    };
    Lodging { id, origin, token, terms }
}

fn with(lodging: &Lodging, attempt: u32, nonce: u128) -> Lodging {
    let token = Token { attempt, ..lodging.token };
    let terms = Terms { nonce: Nonce(nonce), ..lodging.terms.clone() };
    Lodging { token, terms, ..lodging.clone() }
}

async fn lodges(bench: &impl EscrowBench, name: &str, attempt: u32, nonce: u128) -> Lodging {
    let lodging = lodging(bench, name, attempt, nonce).await;
    assert_eq!(lodge(bench, &lodging).await, Lodged::Done, "escrow: it must be lodged");
    lodging
}

async fn lodge(bench: &impl EscrowBench, lodging: &Lodging) -> Lodged {
    lodge_at(bench, lodging, open(bench).await.version).await
}

calls! { EscrowBench: lodge_at = lodge(lodging: &Lodging, gate: GateVersion) -> Lodged; }

async fn void(bench: &impl EscrowBench, lodging: &Lodging) {
    bench.store().void(&lodging.origin, &lodging.attempt()).await.expect("escrow: void failed");
}

async fn lodge_answer(bench: &impl EscrowBench, lodging: &Lodging) -> Written {
    let written = bench.store().lodge_answer(&lodging.origin, &lodging.attempt(), &answer()).await;
    written.expect("escrow: lodge_answer failed")
}

async fn convert(bench: &impl EscrowBench, origin: &Origin) -> u64 {
    let (mut all, mut some) = (0, 1);
    while some > 0 {
        some = bench.store().convert(origin, 100).await.expect("escrow: convert failed");
        all += some;
    }
    all
}

async fn reap(bench: &impl EscrowBench) -> u64 {
    bench.store().reap_escrows(1_000).await.expect("escrow: reap_escrows failed")
}

/// Reaps until something goes: a row that had to stay is looked at again after a while.
async fn reaps_at_last(bench: &impl EscrowBench) -> u64 {
    for _ in 0..20 {
        bench.pass(SHORT).await;
        let gone = reap(bench).await;
        if gone > 0 {
            return gone;
        }
    }
    0
}
