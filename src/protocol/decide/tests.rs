//! Directed schedules for the reading and the verdict together: the basis of the next claim.

use std::time::Duration;

use super::super::digest::digest;
use super::super::examples;
use super::super::fingerprint::{self, Fingerprint};
use super::super::record::{Nonce, Reader, Token, resolve};
use super::super::time::Drift;
use super::*;

fn origin(name: &str) -> Origin {
    examples::origin(&format!("{name}#1"))
}

fn token(attempt: u32) -> Token {
    Token { epoch: 1, attempt }
}

fn asked() -> Fingerprint {
    Fingerprint { raw: fingerprint::raw("POST", "/", b""), canonical: None }
}

fn row(name: &str, attempt: u32, state: State, over: &[(&str, u32)]) -> Row {
    let over = over.iter().map(|(name, attempt)| (origin(name), token(*attempt))).collect();
    let (fingerprint, doubted, expires) = (asked(), attempt.saturating_sub(1), Date(9));
    let row = examples::row(origin(name), token(attempt), u128::from(attempt), state);
    Row { fingerprint, over, doubted, expires, ..row }
}

fn running() -> State {
    examples::claimed(Duration::from_secs(1))
}

fn doubt() -> State {
    examples::doubt(Duration::ZERO)
}

/// The verdict at `me` on rows of this rule, equal for every order of the rows.
fn verdict(me: &str, recovery: Recovery, rows: &[Row]) -> Verdict {
    decided(me, rows.iter().map(|row| Row { recovery, ..row.clone() }).collect())
}

fn decided(me: &str, rows: Vec<Row>) -> Verdict {
    examples::in_every_order(&rows, |rows| asked_by(None, me, rows))
}

fn asked_by(principal: Option<Digest32>, me: &str, rows: Vec<Row>) -> Verdict {
    let reading = resolve(rows, &Reader::new(origin(me), Drift::default()));
    decide(reading, &asked(), principal)
}

fn known(own: Option<u32>, over: &[(&str, u32)], attempt: u32) -> Basis {
    Basis::Known {
        own: own.map(|attempt| (token(attempt), Nonce(u128::from(attempt)))),
        over: over.iter().map(|(name, attempt)| (origin(name), token(*attempt))).collect(),
        attempt,
    }
}

/// eu claims 1.1, releases. us claims 1.2 over it, releases. eu's new claim must know its own row.
#[test]
fn a_new_claim_builds_on_its_own_older_row() {
    let rows = [row("eu", 1, State::Released, &[]), row("us", 2, State::Released, &[("eu", 1)])];
    assert_eq!(verdict("eu", Recovery::Park, &rows), Verdict::Claim(known(Some(1), &[("us", 2)], 2)));
    assert_eq!(verdict("us", Recovery::Park, &rows), Verdict::Claim(known(Some(2), &[("eu", 1)], 2)));
    let said = verdict("ap", Recovery::Park, &rows);
    assert_eq!(said, Verdict::Claim(known(None, &[("us", 2)], 2)), "us masks eu's row, and its row stands");
}

#[test]
fn a_claim_over_a_foreign_doubt_keeps_tokens_growing() {
    let recovery = Recovery::Rerun { max_attempts: 9 };
    let rows = [row("eu", 5, State::Released, &[]), row("us", 2, doubt(), &[])];
    assert_eq!(verdict("eu", recovery, &rows), Verdict::Claim(known(Some(5), &[("us", 2)], 5)));
    let said = verdict("eu", Recovery::Rerun { max_attempts: 4 }, &rows);
    assert_eq!(said, Verdict::Parked(Date(9)), "all rows count, but for the released one");
    let masked = [row("eu", 1, doubt(), &[]), row("us", 2, doubt(), &[("eu", 1)])];
    assert_eq!(verdict("eu", recovery, &masked), Verdict::Claim(known(Some(1), &[("us", 2)], 2)));
}

#[test]
fn a_superseded_doubt_never_comes_back() {
    let rows = [
        row("ap", 1, doubt(), &[]),
        row("eu", 3, State::Released, &[("ap", 1), ("us", 2)]),
        row("us", 4, State::Released, &[]),
    ];
    // A doubt that was answered for must not come back when the row that names it is overwritten.
    let both = known(Some(3), &[("ap", 1), ("us", 4)], 4);
    assert_eq!(verdict("eu", Recovery::Park, &rows), Verdict::Claim(both));
}

/// A request cannot claim over a running attempt: it must wait, and not claim in vain.
#[test]
fn a_running_attempt_is_waited_for_despite_doubts() {
    let attach = Verdict::Attach(Duration::from_secs(1), Date(9));
    for recovery in [Recovery::Rerun { max_attempts: 9 }, Recovery::Probe, Recovery::Park] {
        let foreign = [row("ap", 2, running(), &[]), row("us", 1, doubt(), &[])];
        assert_eq!(verdict("eu", recovery, &foreign), attach);
        let own = [row("eu", 1, running(), &[]), row("us", 2, doubt(), &[])];
        assert_eq!(verdict("eu", recovery, &own), attach);
        let masked = [row("eu", 1, running(), &[]), row("us", 2, State::Released, &[("eu", 1)])];
        assert_eq!(verdict("eu", recovery, &masked), attach, "the own row does not yield while it runs");
    }
}

/// Each attempt has the rule of its claim, and the strictest one counts for the key.
#[test]
fn a_key_with_several_attempts_in_doubt_goes_by_the_strictest_rule() {
    let rerun = |max_attempts| Recovery::Rerun { max_attempts };
    let under = |one, other| {
        let row = |name, attempt, recovery| Row { recovery, ..row(name, attempt, doubt(), &[]) };
        decided("eu", vec![row("eu", 1, one), row("us", 2, other)])
    };
    let parked = Verdict::Parked(Date(9));
    for rule in [rerun(9), Recovery::Probe, Recovery::Park] {
        assert_eq!(under(Recovery::Park, rule), parked);
        assert_eq!(under(rule, Recovery::Park), parked);
    }
    assert!(matches!(under(Recovery::Probe, rerun(9)), Verdict::Probe { .. }));
    assert!(matches!(under(rerun(9), Recovery::Probe), Verdict::Probe { .. }));
    assert!(matches!(under(rerun(9), rerun(9)), Verdict::Claim(_)));
    assert_eq!([under(rerun(9), rerun(1)), under(rerun(1), rerun(9))], [parked.clone(), parked]);
}

#[test]
fn each_attempt_in_doubt_is_asked_about_the_newest_first() {
    let rows = [row("ap", 1, doubt(), &[]), row("eu", 3, doubt(), &[]), row("us", 2, State::Released, &[])];
    match verdict("eu", Recovery::Probe, &rows) {
        Verdict::Probe { doubts, basis } => {
            let asked: Vec<_> = doubts.iter().map(|doubt| (doubt.origin.clone(), doubt.token)).collect();
            assert_eq!(asked, [(origin("eu"), token(3)), (origin("ap"), token(1))]);
            assert_eq!(basis, known(Some(3), &[("ap", 1), ("us", 2)], 3));
        }
        other => panic!("keys in doubt on a probe route are asked about: {other:?}"),
    }
}

/// "Did not happen" must count at last: the settle time runs on after the hold, it does not stand
/// still. A status does not end the attempt.
#[test]
fn an_attempt_is_over_its_settle_time_after_its_hold() {
    let left = |state| {
        let (settle_time, recovery) = (Duration::from_secs(2), Recovery::Probe);
        let row = Row { settle_time, recovery, ..row("eu", 1, state, &[]) };
        match asked_by(None, "eu", vec![row]) {
            Verdict::Probe { doubts, .. } => over_in(&doubts[0]).as_millis(),
            other => panic!("a key in doubt on a probe route is asked about: {other:?}"),
        }
    };
    let (ms, none) = (Duration::from_millis, Duration::ZERO);
    for status in [None, Some(504)] {
        assert_eq!(left(State::InDoubt { status, left: ms(500), past: none }), 2_500);
    }
    for (past, expected) in [(0, 2_000), (1_999, 1), (2_000, 0), (90_000, 0)] {
        for status in [None, Some(504)] {
            assert_eq!(left(State::InDoubt { status, left: none, past: ms(past) }), expected);
        }
        assert_eq!(left(State::Claimed { left: none, past: ms(past) }), expected);
    }
}

/// For every other principal, a bound key looks like a key of another request, in every state of
/// it. Nothing else about it shows.
#[test]
fn a_bound_key_is_of_another_request_to_all_but_its_principal() {
    let [ann, bob] = [b"ann", b"bob"].map(|name| digest("test", &[name]));
    for state in [examples::settled(200), running(), doubt(), State::Released, State::Tombstone] {
        for (bound, asks, same) in [
            (Some(ann), Some(ann), true),
            (Some(ann), Some(bob), false),
            (Some(ann), None, false),
            (None, Some(ann), true),
            (None, None, true),
        ] {
            let recovery = Recovery::Rerun { max_attempts: 9 };
            let row = Row { principal: bound, recovery, ..row("eu", 1, state.clone(), &[]) };
            let verdict = asked_by(asks, "eu", vec![row]);
            let refused = verdict == Verdict::KeyReused(Date(9));
            assert_eq!(refused, !same, "{state:?}, bound to {bound:?}, {asks:?} asks: {verdict:?}");
        }
    }
}

#[test]
fn a_key_that_was_used_for_another_request_is_refused() {
    let fingerprint = Fingerprint { raw: fingerprint::raw("POST", "/other", b""), canonical: None };
    let row = Row { fingerprint, ..row("a", 1, running(), &[]) };
    assert_eq!(asked_by(None, "a", vec![row]), Verdict::KeyReused(Date(9)));
}

fn happened() -> Word {
    let State::Settled { answer, .. } = examples::settled(201) else { unreachable!() };
    Word::Happened(answer)
}

fn concluded(rows: &[Row], said: &[Word]) -> Option<(&'static str, String)> {
    conclude(rows, said, &origin("b")).map(|end| {
        let kind = match end {
            Conclusion::Happened(..) => "happened",
            Conclusion::None(_) => "none",
            Conclusion::OwnNot(_) => "own-not",
        };
        (kind, end.row().origin.to_string())
    })
}

/// b's stand-in as an older version left it, over a's doubt. a's upstream says nothing yet, and a
/// release of b's row would hide that doubt.
#[test]
fn a_row_waits_for_the_attempts_it_names() {
    let (not, unknown) = (Word::DidNotHappen, Word::Unknown);
    let own_not = || Some(("own-not", "b#1".to_owned()));
    let names = [row("b", 2, doubt(), &[("a", 1)]), row("a", 1, doubt(), &[])];
    assert_eq!(concluded(&names, &[not.clone(), unknown.clone()]), None);
    assert_eq!(concluded(&names, &[not.clone(), not.clone()]), Some(("none", "b#1".to_owned())));
    assert_eq!(concluded(&names, &[not.clone(), happened()]), Some(("happened", "a#1".to_owned())));
    assert_eq!(concluded(&names, std::slice::from_ref(&not)), None, "the other one was not asked");
    // A released row hides nothing that it does not name.
    let names_not = [row("b", 2, doubt(), &[]), row("a", 1, doubt(), &[])];
    assert_eq!(concluded(&names_not, &[not.clone(), unknown.clone()]), own_not());
    let newer = [row("a", 3, doubt(), &[]), row("b", 2, doubt(), &[("a", 1)])];
    assert_eq!(concluded(&newer, &[unknown.clone(), not.clone()]), own_not());
    let of_c = [row("a", 3, doubt(), &[]), row("b", 2, doubt(), &[("c", 9)])];
    assert_eq!(concluded(&of_c, &[unknown.clone(), not.clone()]), own_not());
    assert_eq!(concluded(&newer[..1], std::slice::from_ref(&unknown)), None);
    assert_eq!(concluded(&newer[1..], std::slice::from_ref(&unknown)), None, "an own one neither");
    assert_eq!(concluded(&newer[1..], std::slice::from_ref(&not)), own_not());
    assert_eq!(concluded(&newer[..1], std::slice::from_ref(&not)), Some(("none", "a#1".to_owned())));
}
