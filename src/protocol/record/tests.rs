//! The table of cases of docs/protocol.md#rule-3: the common meaning of rows, in every order.
//!
//! A row is written as origin, token, state and superseded attempts.

use std::time::Duration;

use super::super::examples;
use super::*;

const HOLD: Duration = Duration::from_secs(10);

fn origin(name: &str) -> Origin {
    examples::origin(&format!("{name}#1"))
}

fn token(epoch: u64, attempt: u32) -> Token {
    Token { epoch, attempt }
}

fn row(name: &str, at: (u64, u32), state: State, over: &[(&str, (u64, u32))]) -> Row {
    let over = over.iter().map(|(name, at)| (origin(name), token(at.0, at.1))).collect();
    Row { over, expires: Date(9), ..examples::row(origin(name), token(at.0, at.1), 1, state) }
}

fn settled() -> State {
    examples::settled(200)
}

/// A claim as the store shows another region's: the whole hold is left.
fn claimed() -> State {
    examples::claimed(HOLD)
}

fn doubt() -> State {
    examples::doubt(HOLD)
}

/// The meaning of the rows in every order, as a word and the row that decides it.
fn reads(reader: &Reader, rows: &[Row]) -> (&'static str, Row) {
    match examples::in_every_order(rows, |rows| resolve(rows, reader)) {
        Reading::Absent => panic!("there are rows"),
        Reading::Released(row, _) => ("released", row),
        Reading::InProgress(row) => ("running", row),
        Reading::InDoubt(row, _) => ("doubt", row),
        Reading::Settled(row) => ("settled", row),
        Reading::Gone(row) => ("gone", row),
    }
}

fn here() -> Reader {
    Reader::new(origin("b"), Drift::default())
}

#[test]
fn the_cases_of_the_reference() {
    let a51: &[(&str, (u64, u32))] = &[("a", (5, 1))];
    // Whatever its row says of its hold: nobody has judged it here.
    let ran_out = examples::claimed(Duration::ZERO);
    assert_eq!(resolve(Vec::new(), &here()), Reading::Absent);
    let cases = [
        (row("a", (5, 1), settled(), &[]), row("b", (6, 2), claimed(), &[]), ("settled", "a")),
        (row("a", (5, 1), settled(), &[]), row("b", (6, 2), settled(), &[]), ("settled", "b")),
        (row("a", (5, 1), doubt(), &[]), row("b", (6, 1), settled(), &[]), ("settled", "b")),
        (row("a", (5, 1), doubt(), &[]), row("b", (6, 2), State::Released, a51), ("released", "b")),
        (row("a", (5, 1), doubt(), &[]), row("b", (6, 1), State::Released, &[]), ("doubt", "a")),
        (row("a", (5, 1), claimed(), &[]), row("b", (6, 2), State::Released, a51), ("released", "b")),
        (row("c", (5, 1), doubt(), &[]), row("b", (6, 2), State::Released, a51), ("doubt", "c")),
        (row("a", (5, 1), ran_out.clone(), &[]), row("b", (4, 1), State::Released, &[]), ("running", "a")),
        (row("a", (5, 1), State::Tombstone, &[]), row("b", (6, 1), settled(), &[]), ("settled", "b")),
        (row("b", (6, 2), State::Tombstone, &[]), row("a", (5, 1), settled(), &[]), ("gone", "b")),
        // Two rows never have one token. If they did, all regions would choose the same.
        (row("a", (5, 1), settled(), &[]), row("b", (5, 1), settled(), &[]), ("settled", "a")),
    ];
    for (one, other, (word, by)) in cases {
        let (found, row) = reads(&here(), &[one.clone(), other.clone()]);
        assert_eq!((found, row.origin), (word, origin(by)), "{one:?}\n{other:?}");
    }
    match resolve(vec![row("a", (5, 3), State::Released, &[])], &here()) {
        Reading::Released(_, Basis::Known { own, attempt, .. }) => assert_eq!((own, attempt), (None, 3)),
        other => panic!("{other:?}"),
    }
}

/// Another region's claim runs until its whole hold, and the drift, have passed since that region
/// surely could start nothing more. No date that it wrote counts.
#[test]
fn a_foreign_claim_is_waited_for_by_the_readers_own_clock() {
    let secs = Duration::from_secs;
    let nothing_known = Reader::new(origin("b"), Drift { ppm: 100_000, margin: secs(1) });
    assert_eq!(reads(&nothing_known, &[row("a", (5, 1), claimed(), &[])]).0, "running");
    for (state, ended, word, (left, past)) in [
        (claimed(), 11, "running", (1, 0)),
        (claimed(), 15, "doubt", (0, 3)),
        // What "did not happen" has to wait for runs down as well.
        (doubt(), 11, "doubt", (1, 0)),
    ] {
        let reader = Reader { ended: [(origin("a"), secs(ended))].into(), ..nothing_known.clone() };
        let judged = match state {
            State::InDoubt { .. } => State::InDoubt { status: None, left: secs(left), past: secs(past) },
            _ => State::Claimed { left: secs(left), past: secs(past) },
        };
        let (found, shown) = reads(&reader, &[row("a", (5, 1), state, &[])]);
        assert_eq!((found, shown.state), (word, judged));
    }
}

/// A lost region's claims are not waited for. But its request may be on its way: "none" waits on.
#[test]
fn a_lost_origins_claim_is_in_doubt_at_once() {
    let lost = Reader { over: BTreeSet::from([origin("a")]), ..here() };
    let (word, shown) = reads(&lost, &[row("a", (5, 1), claimed(), &[])]);
    assert_eq!((word, shown.state), ("doubt", claimed()));
    let own = Reader { ended: BTreeMap::from([(origin("b"), HOLD * 9)]), ..here() };
    let (word, _) = reads(&own, &[row("b", (5, 1), claimed(), &[])]);
    assert_eq!(word, "running", "the own row is judged by the own database alone");
}

/// A claim over another origin's doubt, itself in doubt, does not hide that other doubt.
#[test]
fn a_row_in_doubt_masks_nothing() {
    let rows = [row("a", (5, 1), doubt(), &[]), row("b", (6, 2), doubt(), &[("a", (5, 1))])];
    match resolve(rows.to_vec(), &here()) {
        Reading::InDoubt(row, beside) => {
            assert_eq!((row.origin, beside.rows[0].origin.clone()), (origin("b"), origin("a")));
        }
        other => panic!("{other:?}"),
    }
}

/// The next token is greater, whatever was forgotten, and attempts are counted on.
#[test]
fn a_token_never_comes_again() {
    let none = token(0, 0);
    assert_eq!((next_attempt(0, 1, none), next_attempt(4, 1, none)), (1, 5));
    assert_eq!(next_attempt(0, 3, token(2, 7)), 1, "a newer epoch begins anew");
    assert_eq!(next_attempt(0, 3, token(3, 1)), 10_001);
    assert_eq!(next_attempt(2, 3, token(3, 2)), 3, "it is above by itself");
    for (known, forgotten) in [(0, 1), (0, 9_999), (0, 10_001), (1, 5), (10_001, 20_004), (3, 4_000_000)] {
        let next = token(3, next_attempt(known, 3, token(3, forgotten)));
        assert!(next > token(3, forgotten) && next > token(3, known), "{known} {forgotten} {next}");
        assert_eq!(next.attempts(), known % SERIES + 1, "{known} {forgotten} {next}");
    }
}
