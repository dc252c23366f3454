//! Doubles: two regions' rows of one key that are two effects, and their explanation
//! (docs/protocol.md#rule-40).
//!
//! [`compare`] is the only place that decides it, for every audit and for operators. This file must
//! not look at a flag before it has looked at the rows' states: a wrong flag would hide its own
//! error.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::plant::{Check, is_disabled};
use super::record::{Row, State};
use super::region::Origin;
use super::time::Date;
use super::view::View;

/// One region's row of a key, as evidence of the result of its last attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The row. Its answer may have come without headers and body.
    pub row: Row,
    /// The route that made the claim.
    pub route: Arc<str>,
    /// True if the attempt was settled, which the row of a tombstone no longer says.
    pub settled: bool,
    /// True if the life of the key is over by the reader's clock, tombstone included.
    pub over: bool,
    /// The time of the attempt's claim, by its origin's clock; `None` if a survivor handed it over.
    pub claimed: Option<Date>,
    /// The time as a tombstone.
    pub tombstone: Duration,
}

impl Trace {
    /// The end of the key's life by its origin's clock, tombstone included.
    fn ends(&self) -> Date {
        let tombstone = i64::try_from(self.tombstone.as_millis()).unwrap_or(i64::MAX);
        Date(self.row.expires.as_millis().saturating_add(tombstone))
    }
}

/// The regions' stores as their reader knows them: until when each one held its rows.
#[derive(Clone, Debug)]
pub struct Held {
    /// The reader's own store: it holds its own rows now.
    pub me: Origin,
    /// The date of each other origin's newest heartbeat that was here, with all rows from before
    /// it, before the rows were read: a row that is here was not forgotten there by then.
    pub beats: BTreeMap<Origin, Date>,
    /// The chosen views that are known here, by epoch: they say which routes were under escrow.
    pub views: Arc<BTreeMap<u64, Arc<View>>>,
}

/// The certainty that both attempts took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Twice {
    /// One has no answer. The other ran at risk of it, or did not reckon with it.
    Perhaps,
    /// Both have their answers.
    Surely,
}

worded! {
    /// The explanation of a double.
    Why;
    /// The explanation in a word, for people and programs.
    name {
        /// One of the two says that it ran at risk: a region was lost, and the window was over.
        Risk = "risk",
        /// One of the two names the other: recovery, or an operator, considered that one ended.
        Over = "over",
        /// Nothing: a bug by definition.
        Unexplained = "unexplained",
    }
}

impl Why {
    /// The explanation, if one of the two ran `at_risk`, or if one is `named` by the other.
    pub fn of(at_risk: bool, named: bool) -> Self {
        match (at_risk, named) {
            (true, _) => Self::Risk,
            (false, true) => Self::Over,
            (false, false) => Self::Unexplained,
        }
    }
}

/// Two effects of one key: did one of the two run at risk, and does one name the other?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Double {
    pub twice: Twice,
    pub at_risk: bool,
    pub named: bool,
}

impl Double {
    /// The explanation.
    pub fn explain(&self) -> Why {
        Why::of(self.at_risk, self.named)
    }
}

/// Compares two rows of a key: two effects, or not. The order does not matter.
///
/// Two settled attempts are a double, whatever they say of a risk. Rows of one nonce are one
/// attempt, whose answer came by two ways: by a stand-in for another region's row, or by a lodged
/// claim. An attempt without an answer counts beside one that ran at risk and does not name it: it
/// may have taken effect, and no region waited for it. An older one counts beside a settled attempt
/// that says no risk if none of `rows`, all that are here of the key, names it.
///
/// Rows of one place, one replicated and one handed over, are a double only if both were settled: a
/// region tries a key again without naming its own attempts. A forgotten key may run anew.
pub fn compare(one: &Trace, other: &Trace, rows: &[Trace], held: &Held) -> Option<Double> {
    if one.row.nonce == other.row.nonce {
        return None;
    }
    let one_place = one.row.origin == other.row.origin;
    let results = [came(one, other, held), came(other, one, held)];
    let twice = match results {
        [Came::Settled, Came::Settled] => Twice::Surely,
        _ if one_place => return None,
        [first, second] if risked((one, first), (other, second)) || risked((other, second), (one, first)) => {
            Twice::Perhaps
        }
        [Came::Settled, Came::Running | Came::InDoubt] if is_unseen(other, one, rows, held) => Twice::Perhaps,
        [Came::Running | Came::InDoubt, Came::Settled] if is_unseen(one, other, rows, held) => Twice::Perhaps,
        _ => return None,
    };
    if is_disabled(Check::Audit) {
        return None;
    }
    Some(Double {
        twice,
        at_risk: !one.row.risk.is_empty() || !other.row.risk.is_empty(),
        named: names(&one.row, &other.row) || names(&other.row, &one.row),
    })
}

/// True if a claim knowingly superseded another region's attempt.
pub fn names(row: &Row, other: &Row) -> bool {
    row.over.iter().any(|(origin, token)| *origin == other.origin && *token >= other.token)
}

/// The result of an attempt.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Came {
    Settled,
    /// The attempt may be running.
    Running,
    InDoubt,
    /// The attempt ended without an answer, and its result is no longer known.
    Forgotten,
    Nothing,
}

/// True if the life of a settled key was over before the other attempt was claimed: the key may
/// live anew. That takes all of these:
///
/// - The life is over by the reader's clock.
/// - The life was over by its origin's dates when the other attempt was claimed.
/// - The origin is not known to have held the row at that time. Its dates may be wrong: a clock
///   that was years behind ends every life early. Lives are judged by observed time, so the row is
///   there until its origin forgets it (docs/protocol.md#rule-43).
fn is_forgotten_before(trace: &Trace, other: &Trace, held: &Held) -> bool {
    let origin = &trace.row.origin;
    let beat = held.beats.get(origin).zip(other.claimed).is_some_and(|(beat, claimed)| *beat >= claimed);
    // Whoever claimed a key anew had forgotten it.
    let was_held = *origin != other.row.origin && (*origin == held.me || beat);
    is_over_before(trace, other) && !was_held
}

/// True if the life of a key is over by the reader's clock. By its origin's dates it was over when
/// the other attempt was claimed.
fn is_over_before(trace: &Trace, other: &Trace) -> bool {
    trace.over && other.claimed.is_none_or(|claimed| claimed >= trace.ends())
}

/// True if a settled attempt did not reckon with an older open one, which may have taken effect: no
/// row names it, and no risk is said. Not so if the key may have begun a new life between the two.
fn is_unseen(open: &Trace, settled: &Trace, rows: &[Trace], held: &Held) -> bool {
    open.row.token < settled.row.token
        && settled.row.risk.is_empty()
        && !rows.iter().any(|trace| names(&trace.row, &open.row))
        && !is_over_before(open, settled)
        && !may_be_unsent(open, held)
}

/// True if an open attempt may be one that surely was never sent: its route was under escrow, and
/// its own store alone tells of it. If it was lodged, a survivor hands it over, and the claim over
/// it names it (docs/protocol.md#rule-39).
fn may_be_unsent(open: &Trace, held: &Held) -> bool {
    let view = held.views.get(&open.row.token.epoch);
    open.claimed.is_some() && view.is_some_and(|view| view.escrow().contains_key(&open.route))
}

/// The result of an attempt, as evidence beside the other one.
fn came(trace: &Trace, other: &Trace, held: &Held) -> Came {
    let settled = trace.settled && !is_forgotten_before(trace, other, held);
    match trace.row.state {
        State::Claimed { .. } => Came::Running,
        State::InDoubt { .. } => Came::InDoubt,
        State::Released => Came::Nothing,
        State::Settled { .. } | State::Tombstone if settled => Came::Settled,
        // Its origin may have forgotten it: the key may live anew.
        State::Settled { .. } => Came::Nothing,
        State::Tombstone => Came::Forgotten,
    }
}

/// True if an attempt ran at risk of another one, and both may have taken effect.
fn risked((run, came): (&Trace, Came), (other, other_came): (&Trace, Came)) -> bool {
    let ran = match came {
        Came::Settled | Came::InDoubt | Came::Forgotten => true,
        Came::Running | Came::Nothing => false,
    };
    let too = match other_came {
        Came::Settled => true,
        Came::Running | Came::InDoubt => !names(&run.row, &other.row),
        Came::Forgotten | Came::Nothing => false,
    };
    !run.row.risk.is_empty() && ran && too
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::examples::{self, name, origin, row};
    use crate::record::Token;

    fn trace(place: &str, nonce: u128, state: State) -> Trace {
        let settled = matches!(state, State::Settled { .. });
        let row = row(origin(place), Token { epoch: 3, attempt: 1 }, nonce, state);
        let (claimed, tombstone) = (Some(Date(0)), Duration::ZERO);
        Trace { row, route: "pay".into(), settled, over: false, claimed, tombstone }
    }

    /// A reader of another region, that has heard of a until this date.
    fn heard(beat: i64) -> Held {
        Held { me: origin("c#1"), beats: [(origin("a#1"), Date(beat))].into(), views: Arc::default() }
    }

    fn nothing_heard() -> Held {
        Held { beats: BTreeMap::new(), ..heard(0) }
    }

    fn trace_at(attempt: u32, trace: Trace) -> Trace {
        Trace { row: Row { token: Token { epoch: 3, attempt }, ..trace.row }, ..trace }
    }

    const DOUBLE: Option<(Twice, Why)> = Some((Twice::Surely, Why::Unexplained));
    const PERHAPS: Option<(Twice, Why)> = Some((Twice::Perhaps, Why::Unexplained));

    fn settled() -> State {
        examples::settled(201)
    }

    fn doubt() -> State {
        examples::doubt(Duration::ZERO)
    }

    fn claimed() -> State {
        examples::claimed(Duration::ZERO)
    }

    fn at_risk(mut trace: Trace) -> Trace {
        trace.row.risk = vec![name("a")];
        trace
    }

    /// The same result in both orders.
    fn both(one: &Trace, other: &Trace) -> Option<(Twice, Why)> {
        beside(one, other, &nothing_heard())
    }

    fn beside(one: &Trace, other: &Trace, held: &Held) -> Option<(Twice, Why)> {
        among(one, other, &[one.clone(), other.clone()], held)
    }

    fn among(one: &Trace, other: &Trace, rows: &[Trace], held: &Held) -> Option<(Twice, Why)> {
        let said =
            |one, other| compare(one, other, rows, held).map(|double| (double.twice, double.explain()));
        assert_eq!(said(one, other), said(other, one), "{one:?} {other:?}");
        said(one, other)
    }

    #[test]
    pub fn two_answers_are_a_double_whatever_their_claims_say() {
        let (a, mut b) = (trace("a#1", 1, settled()), trace("b#1", 2, settled()));
        assert_eq!(both(&a, &b), DOUBLE);
        assert_eq!(both(&a, &at_risk(b.clone())), Some((Twice::Surely, Why::Risk)));
        b.row.over = vec![(a.row.origin.clone(), a.row.token)];
        assert_eq!(both(&a, &b), Some((Twice::Surely, Why::Over)));
        assert_eq!(both(&at_risk(a.clone()), &b), Some((Twice::Surely, Why::Risk)));
        assert_eq!(both(&trace_at(2, a.clone()), &b), DOUBLE, "only the one before");
        b.row.over = vec![(origin("c#1"), a.row.token)];
        assert_eq!(both(&a, &b), DOUBLE, "it names another one");
        // One token is no one attempt: two regions drew it.
        assert_eq!(a.row.token, b.row.token);
        let replaced = trace("a#2", 2, settled());
        assert_eq!(both(&a, &replaced), DOUBLE, "generations too");
        let forgotten = |settled| Trace { settled, ..trace("a#1", 1, State::Tombstone) };
        assert_eq!(both(&forgotten(true), &b), DOUBLE, "it was settled before it was a tombstone");
        assert_eq!(both(&forgotten(false), &b), None);
        let same = trace_at(2, trace("b#1", 1, settled()));
        assert_eq!(both(&at_risk(a), &at_risk(same)), None, "one attempt, answered in two ways");
    }

    #[test]
    fn two_settled_rows_of_one_origin_are_a_double() {
        let a = trace("a#1", 1, settled());
        assert_eq!(both(&a, &trace("a#1", 2, settled())), DOUBLE);
        for state in [doubt(), claimed(), State::Released] {
            assert_eq!(both(&at_risk(a.clone()), &trace("a#1", 2, state)), None, "it was tried again");
        }
        let (a, mut anew) = over_and_claimed(settled(), Some(120));
        anew.row.origin = a.row.origin.clone();
        assert_eq!(beside(&a, &anew, &heard(500)), None, "a forgot it, and ran it anew");
    }

    /// A row of a, over since its date 100 and 20 as a tombstone, and one of b claimed then.
    fn over_and_claimed(state: State, claimed: Option<i64>) -> (Trace, Trace) {
        let mut a = trace("a#1", 1, state);
        a.row.expires = Date(100);
        (a.settled, a.over, a.tombstone) = (true, true, Duration::from_millis(20));
        let b = Trace { claimed: claimed.map(Date), ..trace("b#1", 2, settled()) };
        (a, b)
    }

    #[test]
    fn a_forgotten_key_that_ran_again_is_no_double() {
        for state in [settled(), State::Tombstone] {
            let (a, b) = over_and_claimed(state.clone(), Some(120));
            assert_eq!(both(&a, &b), None);
            assert_eq!(beside(&a, &b, &heard(119)), None, "a may have forgotten it since");
            assert_eq!(both(&Trace { over: false, ..a.clone() }, &b), DOUBLE);
            let (_, unknown) = over_and_claimed(state, None);
            assert_eq!(beside(&a, &unknown, &heard(500)), None, "the time of the claim is not known");
            let (a, b) = over_and_claimed(a.row.state, Some(119));
            assert_eq!(both(&a, &b), DOUBLE, "the life ended later");
        }
    }

    /// The clock of a was behind, and its dates end the life early.
    #[test]
    fn a_row_held_by_its_origin_is_evidence() {
        for state in [settled(), State::Tombstone] {
            let (a, b) = over_and_claimed(state, Some(999));
            assert_eq!(beside(&a, &b, &heard(999)), DOUBLE, "it was there when b claimed the key");
            let own = Held { me: a.row.origin.clone(), ..nothing_heard() };
            assert_eq!(beside(&a, &b, &own), DOUBLE, "the own row is there");
            let other = Held { me: b.row.origin.clone(), ..nothing_heard() };
            assert_eq!(beside(&a, &b, &other), None, "nobody knows whether a holds it");
        }
    }

    #[test]
    fn an_unanswered_attempt_is_a_double_only_at_risk() {
        let cases = [
            (settled(), doubt(), true),
            (settled(), claimed(), true),
            (doubt(), settled(), true),
            (doubt(), doubt(), true),
            (State::Tombstone, settled(), true),
            (claimed(), settled(), false),
            (State::Released, settled(), false),
            (settled(), State::Released, false),
            (settled(), State::Tombstone, false),
        ];
        for (run, other, expected) in cases {
            let (run, other) = (trace("b#1", 1, run), trace("a#1", 2, other));
            let said = expected.then_some((Twice::Perhaps, Why::Risk));
            assert_eq!(both(&at_risk(run.clone()), &other), said, "{run:?} {other:?}");
            assert_eq!(both(&run, &other), None, "nobody risked it: {run:?} {other:?}");
        }
    }

    /// An attempt of a without an answer, and a later one of b that is settled.
    fn unseen(state: State) -> (Trace, Trace) {
        (trace("a#1", 1, state), trace_at(2, trace("b#1", 2, settled())))
    }

    #[test]
    fn an_overlooked_older_attempt_is_perhaps_a_double() {
        for state in [doubt(), claimed()] {
            let (a, mut b) = unseen(state.clone());
            assert_eq!(both(&a, &b), PERHAPS, "{state:?}");
            let mut c = trace("c#1", 3, State::Released);
            c.row.over = vec![(a.row.origin.clone(), a.row.token)];
            assert_eq!(
                among(&a, &b, &[a.clone(), b.clone(), c], &nothing_heard()),
                None,
                "c reckoned with it"
            );
            b.row.token = a.row.token;
            assert_eq!(both(&a, &b), None, "the open one is not older");
        }
        for state in [State::Released, State::Tombstone] {
            let (a, b) = unseen(state);
            assert_eq!(both(&a, &b), None, "{:?}", a.row.state);
        }
    }

    #[test]
    fn an_open_attempt_of_an_earlier_life_is_ignored() {
        let (mut a, mut b) = unseen(doubt());
        a.row.expires = Date(100);
        (a.over, a.tombstone, b.claimed) = (true, Duration::from_millis(20), Some(Date(119)));
        assert_eq!(both(&a, &b), PERHAPS);
        b.claimed = Some(Date(120));
        assert_eq!(both(&a, &b), None);
    }

    #[test]
    fn an_attempt_under_escrow_counts_once_a_survivor_tells_of_it() {
        let views = Arc::new([(3, Arc::new(examples::first()))].into());
        let held = Held { views, ..nothing_heard() };
        let (mut a, b) = unseen(doubt());
        assert_eq!(beside(&a, &b, &held), None, "perhaps it was never lodged, and so never sent");
        let other = Trace { route: "other".into(), ..a.clone() };
        assert_eq!(beside(&other, &b, &held), PERHAPS);
        a.claimed = None;
        assert_eq!(beside(&a, &b, &held), PERHAPS, "it was lodged");
    }

    #[test]
    fn a_knowingly_superseded_attempt_is_no_double() {
        let mut run = at_risk(trace("b#1", 1, settled()));
        let other = trace("a#1", 2, doubt());
        run.row.over = vec![(other.row.origin.clone(), other.row.token)];
        assert_eq!(both(&run, &other), None);
        assert_eq!(both(&run, &trace_at(2, other)), Some((Twice::Perhaps, Why::Risk)));
    }
}
