//! Clauses of the store about an attempt's outcome: settle, release, doubt; and about stand-ins for
//! other origins' attempts.

use super::super::bench::*;
use super::upkeep::{act, enlist, journalled};

pub async fn suite(bench: &impl StoreBench) {
    a_claim_or_doubt_settles_and_stays_so(bench).await;
    a_hold_that_is_over_still_settles(bench).await;
    answers_read_back_identical(bench).await;
    a_claim_or_doubt_is_released(bench).await;
    a_doubt_keeps_the_status(bench).await;
    another_name_has_lost(bench).await;
}

/// A claim or a doubt, for both of which an outcome may come.
async fn opened(bench: &impl StoreBench, name: &str, status: Option<u16>) -> Attempt {
    match status {
        None => claimed(bench, name, 1).await,
        status => doubted_key(bench, &format!("doubt-{name}"), status).await,
    }
}

/// A claim settles, and a repetition is done already. Another answer under the same token has lost,
/// as its bearer must not give it to a client. The first answer stays, and the key is never won.
async fn a_claim_or_doubt_settles_and_stays_so(bench: &impl StoreBench) {
    for status in [None, Some(500)] {
        let attempt = opened(bench, "settle", status).await;
        let before = row(bench, &attempt.id).await;
        assert_eq!(settle(bench, &attempt, &answer()).await, Done, "store: a claim must settle");
        let other = Answer { status: 500, headers: Vec::new(), body: AnswerBody::NotKept };
        assert_eq!(settle(bench, &attempt, &answer()).await, Done, "store: settling twice is done");
        assert_eq!(settle(bench, &attempt, &other).await, Lost, "store: a settled answer was replaced");
        assert_eq!(release(bench, &attempt).await, Lost, "store: a settled attempt was released");
        assert_eq!(doubt(bench, &attempt, Some(500)).await, Lost, "store: a settled attempt was doubted");
        let again = asks_again(bench, &attempt.id, 2).await;
        finds(bench, &again, "a settled key must not be won on its own row's basis").await;
        let row = row(bench, &attempt.id).await;
        assert_eq!(stored(&row.state), answer(), "store: the first answer must stay");
        let State::Settled { age, .. } = row.state else { unreachable!("`stored` saw it settled") };
        assert!(age < LONG, "store: an answer settled just now cannot be {age:?} old");
        assert_eq!(named(&row), named(&before), "store: settling changes the state and nothing else");
    }
}

/// An attempt whose hold is over settles unless it was superseded: its answer is the truth.
async fn a_hold_that_is_over_still_settles(bench: &impl StoreBench) {
    let attempt = claimed_as(bench, "late-settle", 1, |ask| ask.terms.hold = SHORT).await;
    bench.pass(SHORT).await;
    assert_eq!(settle(bench, &attempt, &answer()).await, Done, "store: a late answer must settle");
}

async fn answers_read_back_identical(bench: &impl StoreBench) {
    let header = |name: &str, value: &[u8]| (name.to_owned(), value.to_vec());
    let all_bytes: Vec<u8> = (0..=255).collect();
    let answers = [
        Answer { status: 200, headers: Vec::new(), body: AnswerBody::Kept(Vec::new()) },
        Answer { status: 200, headers: Vec::new(), body: AnswerBody::NotKept },
        Answer {
            status: 599,
            headers: vec![
                header("x-b", b"2"),
                header("x-a", b"1"),
                header("x-b", b""),
                header("x-latin", b"caf\xe9 \xff"),
                header("x-b", b"2"),
            ],
            body: AnswerBody::Kept(all_bytes),
        },
        Answer { status: 303, headers: vec![header("location", b"/a,b;c=\"d\"")], body: AnswerBody::NotKept },
        Answer { status: 201, headers: Vec::new(), body: AnswerBody::Kept(vec![0; 300_000]) },
    ];
    for (at, answer) in answers.iter().enumerate() {
        let attempt = claimed(bench, &format!("answer-{at}"), 1).await;
        assert_eq!(settle(bench, &attempt, answer).await, Done);
        let read = stored(&row(bench, &attempt.id).await.state);
        assert!(read == *answer, "store: {answer:?} was read back as {read:?}, or with other bytes");
        let found = finds(bench, &asks(bench, &attempt.id, 2).await, "a settled key must not be won").await;
        assert!(stored(&found.state) == *answer, "store: a claim must find the very answer {answer:?}");
    }
}

async fn a_claim_or_doubt_is_released(bench: &impl StoreBench) {
    for status in [None, Some(500)] {
        let attempt = opened(bench, "release", status).await;
        let before = row(bench, &attempt.id).await;
        assert_eq!(release(bench, &attempt).await, Done, "store: a claim must be released");
        assert_eq!(release(bench, &attempt).await, Done, "store: releasing twice is done");
        let after = row(bench, &attempt.id).await;
        assert_eq!(after.state, State::Released, "store: it must read as released");
        assert_eq!(named(&after), named(&before), "store: a release changes the state and nothing else");
        assert_eq!(settle(bench, &attempt, &answer()).await, Lost, "store: a released attempt settled");
        assert_eq!(doubt(bench, &attempt, None).await, Lost, "store: a released attempt was doubted");
        assert_eq!(row(bench, &attempt.id).await, after, "store: released must stay released");
    }
}

async fn a_doubt_keeps_the_status(bench: &impl StoreBench) {
    for (name, given) in [("doubt-none", None), ("doubt-408", Some(408)), ("doubt-599", Some(599))] {
        let attempt = claimed(bench, name, 1).await;
        assert_eq!(doubt(bench, &attempt, given).await, Done, "store: a claim must be doubted");
        assert_eq!(doubt(bench, &attempt, given).await, Done, "store: doubting twice is done");
        let State::InDoubt { status, left, past: Duration::ZERO } = row(bench, &attempt.id).await.state
        else {
            panic!("store: a doubted attempt must read as in doubt");
        };
        assert_eq!(status, given, "store: a doubt must keep the upstream's status");
        assert!(!left.is_zero() && left <= LONG, "store: {left:?} cannot be left of a hold of {LONG:?}");
    }
}

async fn another_name_has_lost(bench: &impl StoreBench) {
    let right = claimed(bench, "named", 5).await;
    let token = right.token;
    let wrong = [
        Attempt { nonce: Nonce(6), ..right.clone() },
        Attempt { token: Token { attempt: token.attempt + 1, ..token }, ..right.clone() },
        Attempt { token: Token { epoch: token.epoch + 1, ..token }, ..right.clone() },
        Attempt { id: id(bench, "named-absent"), ..right.clone() },
    ];
    for attempt in &wrong {
        assert_eq!(settle(bench, attempt, &answer()).await, Lost, "store: {attempt:?} settled");
        assert_eq!(release(bench, attempt).await, Lost, "store: {attempt:?} released");
        assert_eq!(doubt(bench, attempt, None).await, Lost, "store: {attempt:?} doubted");
    }
    assert!(is_claimed(&row(bench, &right.id).await), "store: a lost write changed the row");
    assert!(rows(bench, &wrong[3].id).await.is_empty(), "store: a lost write made a row");
    assert_eq!(settle(bench, &right, &answer()).await, Done);
    assert_eq!(settle(bench, &wrong[0], &answer()).await, Lost, "store: another nonce settled again");
}

/// The parts of a row that no outcome changes.
fn named(row: &Row) -> (Token, Nonce, Fingerprint, RequestId, Date) {
    (row.token, row.nonce, row.fingerprint, row.request_id, row.expires)
}

fn stored(state: &State) -> Answer {
    match state {
        State::Settled { answer, .. } => Answer::clone(answer),
        State::Claimed { .. } | State::InDoubt { .. } | State::Released | State::Tombstone => {
            panic!("store: it must read as settled, not as {state:?}")
        }
    }
}

pub async fn stand_ins(bench: &impl StoreBench) {
    a_stand_in_record_is_complete_at_once(bench).await;
    a_stand_in_record_is_based_on_seen_rows(bench).await;
    an_operators_word_in_anothers_place_is_journalled(bench).await;
}

/// A claim over another origin's row that has arrived, of a key without an own row.
async fn stands_over(bench: &impl StoreBench, name: &str, nonce: u128) -> (ClaimAsk, Token) {
    let key = id(bench, name);
    let theirs = bench.arrives(&key, Foreign::InDoubt).await;
    let mut ask = asks_on(bench, &key, nonce, over_theirs(bench, theirs)).await;
    (ask.risk, ask.terms.hold) = (vec![bench.peers()[0].region.clone()], Duration::ZERO);
    (ask, theirs)
}

async fn stand_in(bench: &impl StoreBench, ask: &ClaimAsk, ruling: &Ruling) -> Written {
    bench.store().stand_in(ask, ruling, None).await.expect("store: stand_in failed")
}

async fn a_stand_in_record_is_complete_at_once(bench: &impl StoreBench) {
    for (name, ruling) in [("stand-settled", Ruling::Settled(answer())), ("stand-released", Ruling::Released)]
    {
        let (ask, theirs) = stands_over(bench, name, 71).await;
        for _ in 0..2 {
            assert_eq!(stand_in(bench, &ask, &ruling).await, Done, "store: {name}");
        }
        let own = own(bench, &ask.id).await;
        match (&own.state, &ruling) {
            (State::Settled { answer: stored, .. }, Ruling::Settled(answer)) => assert_eq!(**stored, *answer),
            (State::Released, Ruling::Released) => {}
            (state, _) => panic!("store: it must say what became of them, not {state:?}"),
        }
        assert_eq!((own.nonce, own.risk, own.request_id), (ask.terms.nonce, ask.risk, ask.terms.request_id));
        assert!(own.over == [(bench.peers()[0].clone(), theirs)] && own.token.attempt > theirs.attempt);
    }
    // An own attempt that is over gives way as to a claim, and the rows that it named stay named.
    let (mut ask, theirs) = stands_over(bench, "stand-own", 72).await;
    let (attempt, _) = wins(bench, &ask).await;
    assert_eq!(doubt(bench, &attempt, None).await, Done);
    (ask.basis, ask.terms.nonce) = (known(&own(bench, &ask.id).await), Nonce(73));
    assert_eq!(stand_in(bench, &ask, &Ruling::Released).await, Done);
    let own = own(bench, &ask.id).await;
    assert!(own.over == [(bench.peers()[0].clone(), theirs)] && own.token > attempt.token, "store: {own:?}");
}

async fn a_stand_in_record_is_based_on_seen_rows(bench: &impl StoreBench) {
    let released = Ruling::Released;
    let (ask, _) = stands_over(bench, "stand-unseen", 81).await;
    let unseen = ClaimAsk { basis: Basis::Known { own: None, over: Vec::new(), attempt: 0 }, ..ask.clone() };
    assert_eq!(stand_in(bench, &unseen, &released).await, Lost, "store: it hides what it never saw");
    let (mut long, mut again) = (ask.clone(), ask.clone());
    (long.terms.hold, again.terms.nonce) = (LONG, Nonce(82));
    let (running, _) = wins(bench, &long).await;
    assert_eq!(stand_in(bench, &again, &released).await, Lost, "store: an own row came meanwhile");
    again.basis = Basis::Known { own: Some((running.token, running.nonce)), over: Vec::new(), attempt: 9 };
    assert_eq!(stand_in(bench, &again, &released).await, Lost, "store: an attempt runs");
    let key = id(bench, "stand-answered");
    bench.arrives(&key, Foreign::Settled).await;
    let stood = stand_in(bench, &ClaimAsk { id: key.clone(), ..ask }, &Ruling::Settled(answer())).await;
    assert_eq!(stood, Lost, "store: it has its answer");
    assert_eq!(rows(bench, &key).await.len(), 1, "store: nothing was written");
    let (ask, _) = stands_over(bench, "stand-moved", 83).await;
    bench.restart().await;
    assert_eq!(stand_in(bench, &ask, &released).await, GateMoved, "store: the boot is not approved");
    open(bench).await;
    assert_eq!(stand_in(bench, &ask, &released).await, GateMoved, "store: the gate is at another version");
    assert_eq!(rows(bench, &ask.id).await.len(), 1, "store: nothing was written");
}

/// An operator's ruling is journalled once, in the same transaction, and the key leaves the list.
async fn an_operators_word_in_anothers_place_is_journalled(bench: &impl StoreBench) {
    for (name, ruling, kind) in [
        ("stand-by-hand-1", Ruling::Settled(answer()), "settled-by-hand"),
        ("stand-by-hand-2", Ruling::Released, "released-by-hand"),
    ] {
        let (ask, _) = stands_over(bench, name, 91).await;
        enlist(bench, std::slice::from_ref(&ask.id)).await;
        let act = act(ruling);
        let by = Who { actor: &act.actor, reason: &act.reason };
        for _ in 0..2 {
            assert_eq!(bench.store().stand_in(&ask, &act.ruling, Some(by)).await, Ok(Done), "store: {name}");
        }
        let token = own(bench, &ask.id).await.token;
        journalled(bench, &Attempt { id: ask.id.clone(), token, nonce: ask.terms.nonce }, kind).await;
        assert!(listed(bench, &ask.id).await.is_none(), "store: it must leave the list");
    }
}
