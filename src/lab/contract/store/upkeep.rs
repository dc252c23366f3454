//! Clauses of the store about work beside requests: reaping, the sweep's and the operator's lists,
//! rulings. Other clauses leave rows behind, so a clause asserts about its own keys only.

use super::super::bench::*;
use onceway_ports::upkeep::{Act, OpenAttempt};
use onceway_protocol::decide::{over_in, settles_in};

pub async fn suite(bench: &impl StoreBench) {
    a_final_row_past_its_life_is_reaped_to_a_tombstone(bench).await;
    a_tombstone_past_its_life_is_forgotten(bench).await;
    open_rows_and_those_kept_for_ever_are_never_reaped(bench).await;
    nothing_is_reaped_before_its_time(bench).await;
    tombstones_since_a_regions_absence_stay(bench).await;
    a_row_that_masks_is_not_forgotten(bench).await;
    open_claims_are_found_in_order(bench).await;
    a_doubt_is_listed_until_it_ends(bench).await;
    open_rows_of_other_origins_are_found(bench).await;
    foreign_doubts_are_listed_until_they_are_answered(bench).await;
    a_doubt_is_ruled_by_hand(bench).await;
    an_attempt_that_may_still_run_is_not_ruled(bench).await;
    a_row_keeps_its_hold_and_settle_time(bench).await;
    only_doubts_can_change_their_recovery_rule(bench).await;
    a_tenants_keys_are_counted_as_far_as_asked(bench).await;
}

/// An answer whose life is over becomes a tombstone, in storage and not only in reads, and is still
/// never claimed. So does a released key, although nothing happened under it.
async fn a_final_row_past_its_life_is_reaped_to_a_tombstone(bench: &impl StoreBench) {
    let (settled, _) = settled(bench, "reap-settled", LONG).await;
    let released = claimed_as(bench, "reap-released", 1, |ask| ask.terms.lifetime = brief()).await;
    assert_eq!(release(bench, &released).await, Done);
    let expires = [row(bench, &settled.id).await.expires, row(bench, &released.id).await.expires];
    bench.pass(SHORT).await;
    reap_all(bench).await;
    for (attempt, expires) in [settled, released].into_iter().zip(expires) {
        let reaped = row(bench, &attempt.id).await;
        assert_eq!((&reaped.state, reaped.expires), (&State::Tombstone, expires), "store: {reaped:?}");
        assert_eq!(settle(bench, &attempt, &answer()).await, Lost, "store: a tombstone was settled");
        finds(bench, &asks(bench, &attempt.id, 2).await, "a tombstone must not be won").await;
    }
}

async fn a_tombstone_past_its_life_is_forgotten(bench: &impl StoreBench) {
    let (attempt, _) = settled(bench, "reap-forgotten", Duration::ZERO).await;
    bench.pass(SHORT).await;
    reap_all(bench).await;
    assert!(rows(bench, &attempt.id).await.is_empty(), "store: a tombstone past its life must be forgotten");
    let (again, _) = wins(bench, &asks(bench, &attempt.id, 2).await).await;
    assert_eq!(again.token.attempts(), 1, "store: a forgotten key is new");
    assert!(again.token > attempt.token, "store: a token came again after its key was forgotten");
    assert_eq!(release(bench, &again).await, Done);
    let (third, _) = wins(bench, &asks_again(bench, &attempt.id, 3).await).await;
    assert_eq!(third.token.attempts(), 2, "store: attempts are counted on");
    // A key that was never used also begins above the forgotten tokens.
    let fresh = claimed(bench, "reap-fresh", 4).await;
    assert!(fresh.token > attempt.token && fresh.token.attempts() == 1, "store: {}", fresh.token);
}

async fn a_tenants_keys_are_counted_as_far_as_asked(bench: &impl StoreBench) {
    let (tenant, other) = (bench.tenant("counted"), bench.tenant("counted-too"));
    let under = |tenant: &Tenant, name: &str| KeyId::new(tenant.clone(), Key::parse(name).expect("a key"));
    let counted = async |tenant: &Tenant, after: Option<&Key>, most| {
        let stretch = bench.store().live_keys(tenant, after, most).await.expect("store: live_keys failed");
        (stretch.keys, stretch.through)
    };
    let stated = |keys, through: Option<&str>| (keys, through.map(|name| Key::parse(name).expect("a key")));
    assert_eq!(counted(&tenant, None, 9).await, stated(0, None), "store: nothing was started");
    wins(bench, &asks(bench, &under(&tenant, "claimed"), 1).await).await;
    let (settled, _) = wins(bench, &asks(bench, &under(&tenant, "settled"), 2).await).await;
    assert_eq!(settle(bench, &settled, &answer()).await, Done);
    let mut ask = asks(bench, &under(&tenant, "tombstone"), 3).await;
    ask.terms.lifetime = brief();
    let (released, _) = wins(bench, &ask).await;
    assert_eq!(release(bench, &released).await, Done);
    wins(bench, &asks(bench, &under(&other, "claimed"), 4).await).await;
    bench.arrives(&under(&tenant, "elsewhere"), Foreign::Settled).await;
    bench.pass(SHORT).await;
    reap_all(bench).await;
    assert_eq!(row(bench, &released.id).await.state, State::Tombstone);
    assert_eq!(counted(&tenant, None, 9).await, stated(3, None), "store: own rows, and no other tenant's");
    assert_eq!(counted(&other, None, 9).await, stated(1, None), "store: each tenant has its own");
    let two = counted(&tenant, None, 2).await;
    assert_eq!(two, stated(2, Some("settled")), "store: no further than asked, in order");
    assert_eq!(counted(&tenant, two.1.as_ref(), 2).await, stated(1, None), "store: the next stretch");
}

async fn open_rows_and_those_kept_for_ever_are_never_reaped(bench: &impl StoreBench) {
    let briefly = |ask: &mut ClaimAsk| (ask.terms.lifetime, ask.terms.hold) = (brief(), SHORT);
    let held = claimed_as(bench, "reap-claimed", 1, briefly).await;
    let doubted = claimed_as(bench, "reap-doubt", 1, briefly).await;
    assert_eq!(doubt(bench, &doubted, None).await, Done);
    let never = Lifetime { retention: Retention::Never, ..brief() };
    let (kept, _) = settled_for(bench, "reap-never", never).await;
    bench.pass(SHORT * 2).await;
    reap_all(bench).await;
    assert!(is_claimed(&row(bench, &held.id).await), "store: a claim was reaped");
    let state = row(bench, &doubted.id).await.state;
    assert!(matches!(state, State::InDoubt { .. }), "store: a doubt was reaped to {state:?}");
    assert!(is_settled(bench, &kept.id).await, "store: never was reaped");
}

/// A row is due by the store's observed time, which dates do not move, while the gate is open.
async fn nothing_is_reaped_before_its_time(bench: &impl StoreBench) {
    let (attempt, _) = settled(bench, "reap-until", Duration::ZERO).await;
    reap_all(bench).await;
    assert_eq!(rows(bench, &attempt.id).await.len(), 1, "store: reaped before its time");
    bench.pass(SHORT).await;
    bench.restart().await;
    let reaped = bench.store().reap(100, None).await.expect("store: reap failed");
    assert_eq!(reaped.seen(), 0, "store: a closed gate let reaping pass");
    open(bench).await;
    reap_all(bench).await;
    assert!(rows(bench, &attempt.id).await.is_empty(), "store: its time is over");
}

/// A tombstone stays if its token is of the epoch since when a region is away, or of a later one.
async fn tombstones_since_a_regions_absence_stay(bench: &impl StoreBench) {
    for (name, later, stays) in [("reap-away", 0, true), ("reap-before-away", 1, false)] {
        let (attempt, _) = settled(bench, name, Duration::ZERO).await;
        let away = Some(attempt.token.epoch + later);
        bench.pass(SHORT).await;
        while bench.store().reap(3, away).await.expect("store: reap failed").seen() > 0 {}
        let found = rows(bench, &attempt.id).await;
        assert_eq!(found.iter().any(|row| row.state == State::Tombstone), stays, "store: {name}: {found:?}");
    }
}

/// A final row stays while another origin's open row of its key would count without it.
async fn a_row_that_masks_is_not_forgotten(bench: &impl StoreBench) {
    let key = id(bench, "reap-masks");
    let theirs = bench.arrives(&key, Foreign::InDoubt).await;
    let mut ask = asks_on(bench, &key, 2, over_theirs(bench, theirs)).await;
    ask.terms.lifetime = Lifetime { tombstone: Duration::ZERO, ..brief() };
    let (attempt, _) = wins(bench, &ask).await;
    assert_eq!(settle(bench, &attempt, &answer()).await, Done);
    bench.pass(SHORT).await;
    for _ in 0..3 {
        reap_all(bench).await;
    }
    assert_eq!(own(bench, &key).await.state, State::Tombstone, "store: its answer may go, the row must stay");
}

async fn open_claims_are_found_in_order(bench: &impl StoreBench) {
    let begun = place_after(bench, &claimed(bench, "found-0", 1).await).await;
    let mut open = Vec::new();
    for number in 1..=5 {
        // Claims of one moment come in any order.
        bench.pass(Duration::from_millis(1)).await;
        let attempt = claimed(bench, &format!("found-{number}"), number).await;
        if number == 3 {
            assert_eq!(release(bench, &attempt).await, Done);
        } else {
            open.push(attempt.id.clone());
        }
    }
    let (mut place, mut found) = (Some(begun), Vec::new());
    loop {
        let page = bench.store().claims(place, Duration::ZERO, 2).await.expect("store: claims failed");
        found.extend(page.claims);
        place = page.through.or(place);
        if !page.more {
            break;
        }
    }
    let ids: Vec<KeyId> = found.iter().map(|claim| claim.id.clone()).collect();
    assert_eq!(ids, open, "store: the open claims, in the order in which they were made");
    let OpenAttempt { row, route, path, .. } = &found[0];
    assert_eq!((&**route, path.as_str()), ("contract", "/v1/contract"), "store: with route and path");
    assert!(is_claimed(row) && row.origin == bench.origin(), "store: {row:?}");
    let young = bench.store().claims(Some(begun), LONG, 100).await.expect("store: claims failed");
    assert!(young.claims.is_empty() && young.through.is_none(), "store: none is that old: {young:?}");
}

async fn a_doubt_is_listed_until_it_ends(bench: &impl StoreBench) {
    let (first, second) = (claimed(bench, "list-1", 1).await, claimed(bench, "list-2", 2).await);
    assert!(listed(bench, &first.id).await.is_none(), "store: a running claim is not in doubt");
    assert_eq!(doubt(bench, &first, Some(500)).await, Done);
    assert_eq!(doubt(bench, &second, None).await, Done);
    let found = listed(bench, &first.id).await.expect("store: a doubt must be listed");
    assert_eq!((&*found.open.route, found.open.path.as_str()), ("contract", "/v1/contract"));
    assert!(matches!(found.open.row.state, State::InDoubt { status: Some(500), .. }), "store: {found:?}");
    let next = bench.store().doubts(Some(&first.id), 1).await.expect("store: doubts failed");
    assert_eq!(next[0].open.id, second.id, "store: the list goes on after a key");
    let before = unlist(bench).await;
    assert_eq!(settle(bench, &first, &answer()).await, Done);
    assert!(listed(bench, &first.id).await.is_none(), "store: a settled key is not in doubt");
    assert_eq!(unlist(bench).await, before - 1, "store: what has ended must leave the list");
    assert_eq!(release(bench, &second).await, Done);
    wins(bench, &asks_again(bench, &second.id, 3).await).await;
    assert!(listed(bench, &second.id).await.is_none(), "store: a claim that runs again is not in doubt");
}

async fn open_rows_of_other_origins_are_found(bench: &impl StoreBench) {
    open(bench).await;
    let names = ["left-1", "left-2", "left-3", "left-4", "left-5"];
    let states = [Foreign::Claimed, Foreign::Released, Foreign::InDoubt, Foreign::Settled, Foreign::InDoubt];
    let ids: Vec<KeyId> = names.iter().map(|name| id(bench, name)).collect();
    let mut tokens = Vec::new();
    for (id, state) in ids.iter().zip(states) {
        tokens.push(bench.arrives(id, state).await);
    }
    let own = doubted_key(bench, "left-0", None).await;
    // The last one is superseded knowingly.
    wins(bench, &asks_on(bench, &ids[4], 1, over_theirs(bench, tokens[4])).await).await;
    let (mut found, mut after) = (Vec::new(), Some(id(bench, "left-")));
    for _ in 0..3 {
        let page = bench.store().foreign(after.as_ref(), 2).await.expect("store: foreign failed");
        assert_eq!(page.more, page.through != Some(ids[4].clone()), "store: {page:?}");
        after = page.through;
        found.extend(page.open);
    }
    assert_eq!(found, [ids[0].clone(), ids[2].clone()], "store: what is open, and no other key");
    let all = bench.store().foreign(None, 100_000).await.expect("store: foreign failed");
    assert!(!all.more && !all.open.contains(&own.id) && all.open.contains(&ids[0]), "store: {all:?}");
}

async fn foreign_doubts_are_listed_until_they_are_answered(bench: &impl StoreBench) {
    let theirs = id(bench, "left-listed");
    let token = bench.arrives(&theirs, Foreign::InDoubt).await;
    assert!(listed(bench, &theirs).await.is_none(), "store: nobody enlisted it");
    let twice = [theirs.clone(), theirs.clone()];
    enlist(bench, &twice).await;
    let found = listed(bench, &theirs).await.expect("store: an enlisted doubt must be listed");
    let shown = (&found.open.row.origin, found.open.row.token);
    assert_eq!(shown, (&bench.peers()[0], token), "store: {found:?}");
    let before = unlist(bench).await;
    enlist(bench, &twice).await;
    assert_eq!(unlist(bench).await, before, "store: it is on the list once");
    delist(bench, &twice[1..]).await;
    assert!(listed(bench, &theirs).await.is_none(), "store: it was taken off");

    enlist(bench, &twice).await;
    let (attempt, _) = wins(bench, &asks_on(bench, &theirs, 1, over_theirs(bench, token)).await).await;
    assert!(listed(bench, &theirs).await.is_none(), "store: a claim that runs again is not in doubt");
    assert_eq!(doubt(bench, &attempt, None).await, Done);
    let found = listed(bench, &theirs).await.expect("store: an own doubt must be listed");
    assert_eq!(found.open.row.token, attempt.token, "store: the highest token");
    delist(bench, &twice[1..]).await;
    assert!(listed(bench, &theirs).await.is_some(), "store: an own attempt in doubt stays on the list");
    assert_eq!(release(bench, &attempt).await, Done);
    assert!(listed(bench, &theirs).await.is_none(), "store: a row that names it answers for it");
    assert_eq!(unlist(bench).await, before - 1, "store: what is answered for leaves the list");
}

/// The operator's answer becomes the answer; what he says did not happen is free again. The act is
/// of the named attempt only. A store that may be an old copy refuses it.
async fn a_doubt_is_ruled_by_hand(bench: &impl StoreBench) {
    for (name, ruling, kind) in [
        ("rule-settle", Ruling::Settled(answer()), "settled-by-hand"),
        ("rule-release", Ruling::Released, "released-by-hand"),
    ] {
        let (attempt, act) = (over(bench, name, 1).await, act(ruling));
        let wrong = Attempt { token: Token { attempt: 2, ..attempt.token }, ..attempt.clone() };
        for other in [wrong, Attempt { nonce: Nonce(999), ..attempt.clone() }] {
            assert_eq!(rule(bench, &other, &act).await, Lost, "store: another attempt");
        }
        bench.restart().await;
        assert_eq!(rule(bench, &attempt, &act).await, GateMoved, "store: a closed gate let an act pass");
        nothing_is_journalled(bench, &attempt).await;
        open(bench).await;
        assert_eq!(rule(bench, &attempt, &act).await, Done, "store: a doubt must be ruled by hand");
        let ruled = row(bench, &attempt.id).await;
        let answered = matches!(&ruled.state, State::Settled { answer: stored, .. } if **stored == answer());
        assert!(answered || kind != "settled-by-hand", "store: the operator's answer must be the answer");
        assert_eq!(ruled.state == State::Released, kind == "released-by-hand", "store: {ruled:?}");
        if answered {
            assert_eq!(rule(bench, &attempt, &act).await, Lost, "store: it was ruled twice");
        }
        journalled(bench, &attempt, kind).await;
        assert!(listed(bench, &attempt.id).await.is_none(), "store: it must leave the list");
        if !answered {
            wins(bench, &asks_on(bench, &attempt.id, 2, known(&ruled)).await).await;
        }
    }
}

async fn an_attempt_that_may_still_run_is_not_ruled(bench: &impl StoreBench) {
    let running = claimed(bench, "rule-running", 1).await;
    let unknown = doubted_key(bench, "rule-unknown", None).await;
    let (done, _) = settled(bench, "rule-settled", LONG).await;
    for attempt in [&running, &unknown, &done] {
        for ruling in [Ruling::Settled(answer()), Ruling::Released] {
            assert_eq!(rule(bench, attempt, &act(ruling)).await, Lost, "store: {attempt:?}");
        }
        nothing_is_journalled(bench, attempt).await;
    }
    // After an answer, the effect may be settled at once. "Did not happen" counts only where the
    // answer ended the attempt.
    for (nonce, ends_attempt, ruling, done) in [
        (3, false, Ruling::Settled(answer()), Done),
        (4, false, Ruling::Released, Lost),
        (5, true, Ruling::Released, Done),
    ] {
        let answered = claimed(bench, &format!("rule-answered-{nonce}"), nonce).await;
        let unclear = Some(Unclear { status: 500, ends_attempt, excerpt: None });
        assert_eq!(bench.store().doubt(&answered, unclear).await, Ok(Done), "store: a claim must be doubted");
        assert_eq!(rule(bench, &answered, &act(ruling)).await, done, "store: {ends_attempt}");
    }
}

/// Hold and settle time stand in the row: as they were at its claim, until an answer ended the
/// attempt. "Did not happen" counts by hand only after both, in the statement that writes.
async fn a_row_keeps_its_hold_and_settle_time(bench: &impl StoreBench) {
    let ends = |ask: &mut ClaimAsk| {
        (ask.terms.hold, ask.terms.settle_time, ask.terms.recovery) = (SHORT, LONG, Recovery::Probe);
    };
    let attempt = claimed_as(bench, "ends", 1, ends).await;
    let found = row(bench, &attempt.id).await;
    assert_eq!((found.settle_time, found.recovery), (LONG, Recovery::Probe));
    assert_eq!(doubt(bench, &attempt, None).await, Done);
    bench.pass(SHORT * 2).await;
    assert_eq!(bench.store().excerpt(&attempt.id).await, Ok(None));
    let found = row(bench, &attempt.id).await;
    assert!(settles_in(&found).is_zero(), "store: the hold is over: {found:?}");
    assert!(over_in(&found) > LONG - SHORT * 10, "store: the settle time runs: {found:?}");
    assert_eq!(rule(bench, &attempt, &act(Ruling::Released)).await, Lost, "store: too early");
    // The next claim has its own.
    let mut again = asks_again(bench, &attempt.id, 2).await;
    let rerun = Recovery::Rerun { max_attempts: 1_000 };
    (again.terms.hold, again.terms.settle_time, again.terms.recovery) = (LONG, SHORT, rerun);
    let (again, _) = wins(bench, &again).await;
    let found = row(bench, &again.id).await;
    assert_eq!((found.settle_time, found.recovery), (SHORT, rerun));
    let excerpt = Some("the ledger is locked".to_owned());
    let answer = Unclear { status: 500, ends_attempt: true, excerpt: excerpt.clone() };
    assert_eq!(bench.store().doubt(&again, Some(answer)).await, Ok(Done));
    assert_eq!(bench.store().excerpt(&again.id).await, Ok(excerpt));
    let found = row(bench, &again.id).await;
    assert!(over_in(&found).is_zero(), "store: the answer ended it: {found:?}");
    assert!(matches!(found.state, State::InDoubt { status: Some(500), .. }), "store: {found:?}");
}

async fn only_doubts_can_change_their_recovery_rule(bench: &impl StoreBench) {
    let doubted = over(bench, "rule-doubt", 1).await;
    let claimed = claimed(bench, "rule-claimed", 2).await;
    let other = over(bench, "rule-other", 3).await;
    let all = [doubted.clone(), claimed.clone(), Attempt { nonce: Nonce(77), ..other.clone() }];
    let Act { actor, reason, .. } = &act(Ruling::Released);
    let by = Who { actor, reason };
    let change =
        async |rule| bench.store().change_rule(&all, rule, by).await.expect("store: change_rule failed");
    let before = row(bench, &doubted.id).await.recovery;
    assert_eq!(change(Recovery::Probe).await, 1, "store: one of them is in doubt");
    assert_eq!(change(Recovery::Probe).await, 0, "store: it has that rule");
    for (attempt, rule) in [(&doubted, Recovery::Probe), (&claimed, before), (&other, before)] {
        assert_eq!(row(bench, &attempt.id).await.recovery, rule, "store: {attempt:?}");
    }
    journalled(bench, &doubted, "rule-by-hand").await;
    bench.restart().await;
    assert_eq!(change(Recovery::Park).await, 0, "store: a closed gate let an act pass");
    open(bench).await;
    assert_eq!(change(Recovery::Park).await, 1);
}

fn brief() -> Lifetime {
    lived(SHORT, Duration::ZERO)
}

/// A settled key whose retention is [`SHORT`], with a tombstone of this life.
async fn settled(bench: &impl StoreBench, name: &str, tombstone: Duration) -> (Attempt, Date) {
    settled_for(bench, name, Lifetime { tombstone, ..brief() }).await
}

async fn over(bench: &impl StoreBench, name: &str, nonce: u128) -> Attempt {
    let attempt = claimed_as(bench, name, nonce, |ask| ask.terms.hold = SHORT).await;
    assert_eq!(doubt(bench, &attempt, None).await, Done);
    bench.pass(SHORT).await;
    attempt
}

async fn reap_all(bench: &impl StoreBench) {
    while bench.store().reap(3, None).await.expect("store: reap failed").seen() > 0 {}
}

async fn place_after(bench: &impl StoreBench, attempt: &Attempt) -> Place {
    let page = bench.store().claims(None, Duration::ZERO, 100_000).await.expect("store: claims failed");
    let last = page.claims.last().expect("store: a claim was just made");
    assert_eq!(last.id, attempt.id, "store: the newest claim must be the last");
    page.through.expect("store: a stretch that holds a claim has an end")
}

pub(super) fn act(ruling: Ruling) -> Act {
    Act { ruling, actor: "ada".to_owned(), reason: "the provider's ledger says so".to_owned() }
}

calls! { StoreBench:
    rule = rule(attempt: &Attempt, act: &Act) -> Written;
    unlist = unlist() -> u64;
    pub(super) enlist = enlist(ids: &[KeyId]) -> ();
    delist = delist(ids: &[KeyId]) -> ();
}

async fn nothing_is_journalled(bench: &impl StoreBench, attempt: &Attempt) {
    assert_eq!(journal(bench, &attempt.id).await, [], "store: it was journalled, and nothing happened");
}

pub(super) async fn journalled(bench: &impl StoreBench, attempt: &Attempt, kind: &str) {
    let journal = journal(bench, &attempt.id).await;
    let [entry] = journal.as_slice() else { panic!("store: one act, one entry, not {journal:?}") };
    assert_eq!((entry.kind.as_str(), entry.token), (kind, Some(attempt.token)), "store: {entry:?}");
    assert_eq!(entry.actor.as_deref(), Some("ada"), "store: {entry:?}");
    assert_eq!(entry.reason.as_deref(), Some("the provider's ledger says so"), "store: {entry:?}");
}
