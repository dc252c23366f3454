//! Clauses of the store about claims: which of them wins, on which basis, and the rows found
//! instead. Rows of other origins are superseded knowingly, or not at all.

use super::super::bench::*;

pub async fn suite(bench: &impl StoreBench) {
    an_absent_key_is_won_with_attempt_one(bench).await;
    a_second_claim_finds_the_first(bench).await;
    a_repeated_claim_finds_itself(bench, "repeat", false).await;
    concurrent_claims_have_one_winner(bench).await;
    another_gate_version_stores_nothing(bench).await;
    two_tenants_with_equal_keys_are_two_keys(bench).await;
    extreme_keys_are_kept_apart(bench).await;
    a_released_key_is_won_with_the_next_attempt(bench).await;
    a_key_in_doubt_is_won_with_the_next_attempt(bench).await;
    a_stale_basis_finds_the_row(bench).await;
    a_hold_that_is_over_is_superseded(bench).await;
    a_superseded_attempt_has_lost(bench).await;
    rows_of_other_origins_are_named_by_the_claim(bench).await;
    many_claims_and_settlements_at_once_are_as_if_alone(bench).await;
    rows_of_other_origins_stop_who_has_not_seen_them(bench).await;
    rows_that_nobody_saw_are_found(bench).await;
}

async fn many_claims_and_settlements_at_once_are_as_if_alone(bench: &impl StoreBench) {
    const EACH: u128 = 12;
    let gate = open(bench).await.version;
    let name = |kind: &str, at: u128| id(bench, &format!("many-{kind}-{at}"));
    let mut asked = Vec::new();
    for at in 0..EACH {
        let nonce = 1_000 + at * 10;
        // New, and twice at the same time: one of the two wins.
        asked.push(asks(bench, &name("new", at), nonce).await);
        asked.push(asks(bench, &name("new", at), nonce + 1).await);
        // Repeated: the first reply was lost.
        let repeated = asks(bench, &name("repeated", at), nonce + 2).await;
        wins(bench, &repeated).await;
        asked.push(repeated);
        settled_key(bench, &format!("many-settled-{at}"), nonce + 3).await;
        asked.push(asks(bench, &name("settled", at), nonce + 4).await);
        bench.arrives(&name("foreign", at), Foreign::Settled).await;
        asked.push(asks(bench, &name("foreign", at), nonce + 5).await);
        let moved = asks(bench, &name("moved", at), nonce + 6).await;
        asked.push(ClaimAsk { gate: GateVersion(gate.0 + 1 + at as u64 % 2), ..moved });
    }
    let replies = together(asked.iter().map(|ask| claim(bench, ask)).collect()).await;
    let of = |kind: &str| {
        let kind = format!("many-{kind}-");
        let all = asked.iter().zip(&replies);
        all.filter(move |(ask, _)| ask.id.key().as_str().starts_with(&kind)).map(|(_, reply)| reply)
    };
    let won = |reply: &&ClaimReply| matches!(reply, ClaimReply::Won { token, .. } if token.attempt == 1);
    assert_eq!(of("new").filter(won).count(), EACH as usize, "store: of two claims of a new key one wins");
    assert!(of("repeated").all(|reply| won(&reply)), "store: a repeated claim finds itself");
    assert!(of("moved").all(|reply| *reply == ClaimReply::GateMoved), "store: the gate has moved");
    for reply in of("new").filter(|reply| !won(reply)).chain(of("settled")).chain(of("foreign")) {
        assert!(matches!(reply, ClaimReply::Found(rows) if rows.len() == 1), "store: {reply:?}");
    }
    for at in 0..EACH {
        assert!(rows(bench, &name("moved", at)).await.is_empty(), "store: nothing was written");
    }

    let mut ends = Vec::new();
    for (ask, reply) in asked.iter().zip(&replies) {
        let ClaimReply::Won { token, .. } = reply else { continue };
        let attempt = Attempt { id: ask.id.clone(), token: *token, nonce: ask.terms.nonce };
        let lost = Attempt { nonce: Nonce(ask.terms.nonce.0 + 100_000), ..attempt.clone() };
        ends.extend([(attempt.clone(), Done), (attempt, Done), (lost, Lost)]);
    }
    let answer = answer();
    let ended = together(ends.iter().map(|(attempt, _)| settle(bench, attempt, &answer)).collect()).await;
    for ((attempt, wanted), written) in ends.iter().zip(ended) {
        assert_eq!(written, *wanted, "store: {attempt:?}");
        let stored = row(bench, &attempt.id).await.state;
        assert!(matches!(stored, State::Settled { answer: stored, .. } if *stored == answer));
    }
}

async fn an_absent_key_is_won_with_attempt_one(bench: &impl StoreBench) {
    let gate = open(bench).await;
    let ask = asks(bench, &id(bench, "absent"), 1).await;
    let (attempt, expires) = wins(bench, &ask).await;
    let first = Token { epoch: gate.epoch, attempt: 1 };
    assert_eq!(attempt.token, first, "store: a first claim's token must be the gate's epoch and attempt 1");
    let row = row(bench, &ask.id).await;
    assert_eq!(row.origin, bench.origin(), "store: a claim must be stored under the own origin");
    assert_eq!(
        (row.token, row.nonce, row.fingerprint, row.request_id, row.expires),
        (attempt.token, ask.terms.nonce, ask.terms.fingerprint, ask.terms.request_id, expires),
        "store: a claim must be stored as asked and answered"
    );
    assert!(row.over.is_empty() && row.risk.is_empty(), "store: a first claim supersedes nothing: {row:?}");
    let State::Claimed { left, past: Duration::ZERO } = row.state else {
        panic!("store: a won key must read as claimed: {row:?}")
    };
    assert!(left > Duration::ZERO && left <= LONG, "store: {left:?} cannot be left of a hold of {LONG:?}");
}

async fn a_second_claim_finds_the_first(bench: &impl StoreBench) {
    let first = claimed(bench, "second", 1).await;
    for ask in [asks(bench, &first.id, 2).await, asks_again(bench, &first.id, 3).await] {
        let found = finds(bench, &ask, "a claimed key must not be won again").await;
        assert_eq!((found.token, found.nonce), (first.token, first.nonce), "store: the first must be found");
        let State::Claimed { left, past: Duration::ZERO } = found.state else {
            panic!("store: it must be claimed: {found:?}")
        };
        assert!(left > Duration::ZERO, "store: a claim just made must have hold left");
    }
    assert_eq!(row(bench, &first.id).await.nonce, first.nonce, "store: a lost claim must change nothing");
    assert_eq!(settle(bench, &first, &answer()).await, Done, "store: the holder must still settle");
}

async fn concurrent_claims_have_one_winner(bench: &impl StoreBench) {
    for round in 0..5 {
        let (id, basis, attempt) = match round {
            4 => {
                let doubted = doubted_key(bench, "recover-race", None).await;
                let basis = known(&row(bench, &doubted.id).await);
                (doubted.id, basis, 2)
            }
            _ => (id(bench, &format!("race-{round}")), Basis::Absent, 1),
        };
        let mut racing = Vec::new();
        for nonce in 2..=33 {
            racing.push(asks_on(bench, &id, nonce, basis.clone()).await);
        }
        let replies = together(racing.iter().map(|ask| claim(bench, ask)).collect()).await;
        let won = |(_, reply): &(_, &ClaimReply)| matches!(reply, ClaimReply::Won { .. });
        let winners: Vec<Nonce> =
            racing.iter().zip(&replies).filter(won).map(|(ask, _)| ask.terms.nonce).collect();
        assert_eq!(winners.len(), 1, "store: one of 32 claims must win, not those of {winners:?}");
        for reply in &replies {
            match reply {
                // A recovery may be shown the doubt from which it began.
                ClaimReply::Found(rows) if attempt == 1 => {
                    assert_eq!(rows[0].nonce, winners[0], "store: a loser must be shown the winner's row");
                }
                ClaimReply::Won { .. } | ClaimReply::Found(_) => {}
                ClaimReply::GateMoved => panic!("store: the gate moved though nobody touched it"),
            }
        }
        let row = row(bench, &id).await;
        assert_eq!(row.nonce, winners[0], "store: the winner's row must stand");
        assert_eq!(row.token.attempt, attempt, "store: all of them are one attempt");
    }
}

/// A claim repeated with the same nonce finds the own claim: same token, same expiry, nothing new.
/// So does one whose answer was lost, although the gate closed, or moved, in between. It is
/// durable, so "nothing was written" would be wrong.
pub(super) async fn a_repeated_claim_finds_itself(bench: &impl StoreBench, name: &str, restarts: bool) {
    let meanwhile = async || {
        if restarts {
            bench.restart().await
        }
    };
    let ask = asks(bench, &id(bench, name), 1).await;
    let first = claim(bench, &ask).await;
    meanwhile().await;
    for gate in ["as it is", "open"] {
        let found = claim(bench, &ask).await;
        assert_eq!(found, first, "store: a repeated claim must answer as the first time, the gate {gate}");
        open(bench).await;
    }
    let attempt =
        Attempt { id: ask.id.clone(), token: row(bench, &ask.id).await.token, nonce: ask.terms.nonce };
    assert_eq!(release(bench, &attempt).await, Done);
    let again = asks_again(bench, &ask.id, 2).await;
    let second = claim(bench, &again).await;
    meanwhile().await;
    let found = claim(bench, &again).await;
    assert_eq!(found, second, "store: a repeated claim on a known basis must find itself");
    let row = row(bench, &ask.id).await;
    assert_eq!(row.token.attempt, 2, "store: repeating a claim must not count attempts");
}

async fn another_gate_version_stores_nothing(bench: &impl StoreBench) {
    let mut ask = asks(bench, &id(bench, "version"), 1).await;
    let right = ask.gate;
    for wrong in [GateVersion(right.0 + 1), GateVersion(right.0.wrapping_sub(1) & i64::MAX as u64)] {
        ask.gate = wrong;
        assert_eq!(claim(bench, &ask).await, ClaimReply::GateMoved, "store: {wrong:?} is not {right:?}");
        assert!(rows(bench, &ask.id).await.is_empty(), "store: a claim under another version stored a row");
    }
    ask.gate = right;
    wins(bench, &ask).await;
}

async fn two_tenants_with_equal_keys_are_two_keys(bench: &impl StoreBench) {
    let key = Key::parse("equal").expect("a key");
    for (nonce, tenant) in [(1, "one"), (2, "two")] {
        let id = KeyId::new(bench.tenant(tenant), key.clone());
        let (attempt, _) = wins(bench, &asks(bench, &id, nonce).await).await;
        assert_eq!(row(bench, &id).await.nonce, attempt.nonce, "store: a tenant must see its own row");
    }
}

async fn extreme_keys_are_kept_apart(bench: &impl StoreBench) {
    let visible: String = (b'!'..=b'~').map(char::from).collect();
    let long = "k".repeat(Key::MAX_LEN);
    let almost = format!("{}l", &long[1..]);
    let texts = ["a", "A", "'", "\\", "%", "_", "\"", long.as_str(), almost.as_str(), visible.as_str()];
    let tenant = bench.tenant("extreme");
    let ids: Vec<KeyId> = texts
        .iter()
        .map(|text| KeyId::new(tenant.clone(), Key::parse(text).expect("an extreme key is a key")))
        .collect();
    for (nonce, id) in (1..).zip(&ids) {
        wins(bench, &asks(bench, id, nonce).await).await;
    }
    let found = look_up(bench, &ids).await;
    for (nonce, (text, rows)) in (1..).zip(texts.iter().zip(found)) {
        assert_eq!(only(rows).nonce, Nonce(nonce), "store: another key's row was found for {text:?}");
    }
}

async fn a_released_key_is_won_with_the_next_attempt(bench: &impl StoreBench) {
    let first = released_key(bench, "released-again", 1).await;
    let released = row(bench, &first.id).await;
    finds(bench, &asks(bench, &first.id, 2).await, "a claim that saw no row must be shown a released one")
        .await;
    let mut ask = asks_on(bench, &first.id, 2, known(&released)).await;
    ask.terms.lifetime = lived(LONG * 2, Duration::ZERO);
    let (second, expires) = wins(bench, &ask).await;
    assert_eq!(second.token.attempt, 2, "store: the claim after a release takes the next attempt");
    assert!(second.token > first.token, "store: tokens of a key must grow");
    assert!(expires > released.expires, "store: retention counts from the newest claim");
    let row = row(bench, &first.id).await;
    assert!(is_claimed(&row), "store: it must be claimed again: {row:?}");
    assert_eq!(row.doubted, 0, "store: a released attempt surely did nothing");
    let new = (ask.terms.nonce, ask.terms.request_id, expires);
    assert_eq!((row.nonce, row.request_id, row.expires), new, "store: the new claim must stand in the row");
}

/// A key in doubt is won on its row's basis, whatever the rest of the hold: its holder gave up.
async fn a_key_in_doubt_is_won_with_the_next_attempt(bench: &impl StoreBench) {
    for (name, status) in [("doubt-again", None), ("doubt-again-500", Some(500))] {
        let first = doubted_key(bench, name, status).await;
        let ask = asks(bench, &first.id, 2).await;
        finds(bench, &ask, "a claim that saw no row must be shown one in doubt").await;
        let (second, _) = wins(bench, &asks_again(bench, &first.id, 2).await).await;
        assert_eq!(second.token.attempt, 2, "store: the claim after a doubt takes the next attempt");
        let again = row(bench, &first.id).await;
        assert!(is_claimed(&again), "store: it must be claimed again");
        assert_eq!(again.doubted, 1, "store: the attempt in doubt may have happened");
        assert_eq!(release(bench, &second).await, Done);
        wins(bench, &asks_again(bench, &first.id, 3).await).await;
        assert_eq!(row(bench, &first.id).await.doubted, 1, "store: a release takes no doubt back");
    }
}

async fn a_stale_basis_finds_the_row(bench: &impl StoreBench) {
    let first = released_key(bench, "stale", 1).await;
    let now = row(bench, &first.id).await;
    let older = Token { attempt: now.token.attempt + 1, ..now.token };
    let earlier = Token { epoch: now.token.epoch + 1, ..now.token };
    let stale = [
        Some((older, now.nonce)),
        Some((earlier, now.nonce)),
        Some((now.token, Nonce(now.nonce.0 + 1))),
        None,
    ];
    for own in stale {
        let basis = Basis::Known { own, over: Vec::new(), attempt: now.token.attempt };
        let ask = asks_on(bench, &first.id, 2, basis).await;
        let found = finds(bench, &ask, "a claim on a stale basis must not win").await;
        assert_eq!(found, now, "store: a claim on a stale basis must be shown the row as it is");
    }
    // Without any row to show, an error is as good.
    let gone = asks_on(bench, &id(bench, "stale-absent"), 3, known(&now)).await;
    if let Ok(ClaimReply::Won { token, .. }) = bench.store().claim(&gone).await {
        panic!("store: a claim on a row that is not there won under {token}");
    }
}

async fn a_hold_that_is_over_is_superseded(bench: &impl StoreBench) {
    let first = claimed_as(bench, "over", 1, |ask| ask.terms.hold = SHORT).await;
    bench.pass(SHORT).await;
    let over = row(bench, &first.id).await;
    let State::Claimed { left: Duration::ZERO, past } = over.state else {
        panic!("store: a hold that is over has none left: {over:?}")
    };
    bench.pass(SHORT).await;
    let State::Claimed { left: Duration::ZERO, past: later } = row(bench, &first.id).await.state else {
        panic!("store: a hold that is over stays over")
    };
    assert!(later >= past + SHORT / 2, "store: how long a hold has been over must grow: {past:?}, {later:?}");
    let unseen = asks(bench, &first.id, 2).await;
    finds(bench, &unseen, "a claim that saw no row must be shown one whose hold is over").await;
    let (second, _) = wins(bench, &asks_on(bench, &first.id, 2, known(&over)).await).await;
    assert_eq!(second.token.attempt, 2, "store: recovery takes the next attempt");
}

async fn a_superseded_attempt_has_lost(bench: &impl StoreBench) {
    let first = doubted_key(bench, "superseded", None).await;
    let (second, _) = wins(bench, &asks_again(bench, &first.id, 2).await).await;
    assert_eq!(settle(bench, &first, &answer()).await, Lost, "store: a superseded attempt settled");
    assert_eq!(release(bench, &first).await, Lost, "store: a superseded attempt released");
    assert_eq!(doubt(bench, &first, None).await, Lost, "store: a superseded attempt doubted");
    let settled = settle(bench, &second, &answer()).await;
    assert_eq!(settled, Done, "store: the newest attempt settles, whatever an older one did");
}

async fn rows_of_other_origins_are_named_by_the_claim(bench: &impl StoreBench) {
    let epoch = open(bench).await.epoch;
    let over: Vec<_> = bench.peers().into_iter().map(|peer| (peer, Token { epoch, attempt: 4 })).collect();
    let basis = Basis::Known { own: None, over: over.clone(), attempt: 4 };
    let ask = asks_on(bench, &id(bench, "foreign"), 1, basis).await;
    let (attempt, _) = wins(bench, &ask).await;
    assert_eq!(attempt.token, Token { epoch, attempt: 5 }, "store: attempts count on from the highest seen");
    let mut stored = row(bench, &ask.id).await.over;
    stored.sort();
    let mut asked = over;
    asked.sort();
    assert_eq!(stored, asked, "store: a claim must name what it supersedes");
}

/// A claim is stopped by a row of another origin that it does not name, or names as of an older
/// attempt: it has not seen it. An open row that it names yields, and its own row names it. A
/// released row yields if the claim counts on from its attempt. A settled row never yields.
async fn rows_of_other_origins_stop_who_has_not_seen_them(bench: &impl StoreBench) {
    for state in [Foreign::Claimed, Foreign::InDoubt, Foreign::Released, Foreign::Settled] {
        let mut ask = asks(bench, &id(bench, &format!("foreign-{state:?}")), 1).await;
        let theirs = bench.arrives(&ask.id, state).await;
        is_stopped(bench, &ask, 1, state).await;
        let older = Token { attempt: theirs.attempt - 1, ..theirs };
        let seen = |token: Token| match state {
            Foreign::Released => Basis::Known { own: None, over: Vec::new(), attempt: token.attempt },
            _ => Basis::Known { own: None, over: vec![(bench.peers()[0].clone(), token)], attempt: 1 },
        };
        ask.basis = seen(older);
        is_stopped(bench, &ask, 1, state).await;
        ask.basis = seen(theirs);
        if state == Foreign::Settled {
            is_stopped(bench, &ask, 1, state).await;
            continue;
        }
        let (attempt, _) = wins(bench, &ask).await;
        assert_eq!(attempt.token.attempt, theirs.attempt + 1, "store: attempts count on from the highest");
        let standing = rows(bench, &ask.id).await;
        assert_eq!(standing.len(), 2, "store: a claim must leave rows of other origins where they are");
        let over =
            if state == Foreign::Released { Vec::new() } else { vec![(bench.peers()[0].clone(), theirs)] };
        assert_eq!(own(bench, &ask.id).await.over, over, "store: a claim must name what it supersedes");
    }
}

/// A row that arrived after the look is not superseded: its effect may have happened.
async fn rows_that_nobody_saw_are_found(bench: &impl StoreBench) {
    for state in [Foreign::Claimed, Foreign::InDoubt, Foreign::Settled] {
        let first = released_key(bench, &format!("foreign-unseen-{state:?}"), 1).await;
        let seen = row(bench, &first.id).await;
        bench.arrives(&first.id, state).await;
        is_stopped(bench, &asks_on(bench, &first.id, 2, known(&seen)).await, 2, state).await;
        let own = rows(bench, &first.id).await.contains(&seen);
        assert!(own, "store: a lost claim changed the own row");
    }
}

async fn is_stopped(bench: &impl StoreBench, ask: &ClaimAsk, standing: usize, by: Foreign) {
    match claim(bench, ask).await {
        ClaimReply::Found(rows) => {
            assert_eq!(rows.len(), standing, "store: a claim must be shown all rows in its way");
        }
        ClaimReply::Won { token, .. } => {
            panic!("store: a claim won under {token} over a foreign row that it had not seen: {by:?}")
        }
        ClaimReply::GateMoved => panic!("store: the gate moved though nobody touched it"),
    }
}
