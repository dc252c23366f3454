//! Whether two regions' rows of one key are two effects, and whether anything explains them.
//!
//! The only place that says so: every look for doubles, and what operators are shown, ask
//! [`compare`]. Neighbours: [`super::record`] has the rows and says which answer is served. It must
//! not look at a flag before it has looked at what happened: a wrong flag would hide its own error.

use super::plant::{Plant, removed};
use super::record::{Row, State};

/// One region's row of a key, as evidence of what its last attempt came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The row. Its answer may have come without headers and body.
    pub row: Row,
    /// Whether the attempt was settled, in a life of the key that is not over: a tombstone may have
    /// been settled before, and its row says that no more.
    pub settled: bool,
}

/// How sure it is that both attempts took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Twice {
    /// One ran at risk of the other, and one of them has no answer.
    Perhaps,
    /// Both have their answers.
    Surely,
}

/// What explains a double.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// One of the two says that it ran at risk: a region was lost, and the window was over.
    Risk,
    /// One of the two names the other: a route's recovery, or an operator, held that one for ended.
    Over,
    /// Nothing: a bug by definition.
    Unexplained,
}

impl Why {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Risk, Self::Over, Self::Unexplained];

    /// What explains two attempts of which one ran `at_risk`, or one is `named` by the other.
    pub fn of(at_risk: bool, named: bool) -> Self {
        match (at_risk, named) {
            (true, _) => Self::Risk,
            (false, true) => Self::Over,
            (false, false) => Self::Unexplained,
        }
    }

    /// In a word, for people and programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Risk => "risk",
            Self::Over => "over",
            Self::Unexplained => "unexplained",
        }
    }
}

/// Two effects of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Double {
    /// Whether both are certain.
    pub twice: Twice,
    /// Whether one of the two attempts ran at risk.
    pub at_risk: bool,
    /// Whether one of the two names the other.
    pub named: bool,
}

impl Double {
    /// What explains it.
    pub fn why(&self) -> Why {
        Why::of(self.at_risk, self.named)
    }
}

/// Whether rows of two regions are two effects of their key; in either order the same.
///
/// Two settled attempts are, whatever they say of a risk. Rows of one nonce are one attempt, whose
/// answer came by two ways: a row that stands in for another region's, a claim that was lodged. An
/// attempt without an answer counts beside one that ran at risk and does not name it: it may have
/// taken effect, and nobody waited for it.
pub fn compare(one: &Trace, other: &Trace) -> Option<Double> {
    if one.row.nonce == other.row.nonce || one.row.origin == other.row.origin {
        return None;
    }
    let twice = match (came(one), came(other)) {
        (Came::Settled, Came::Settled) => Twice::Surely,
        (_, _) if risked(one, other) || risked(other, one) => Twice::Perhaps,
        (_, _) => return None,
    };
    if removed(Plant::Audit) {
        return None;
    }
    Some(Double {
        twice,
        at_risk: !one.row.risk.is_empty() || !other.row.risk.is_empty(),
        named: names(&one.row, &other.row) || names(&other.row, &one.row),
    })
}

/// Whether a claim knowingly superseded another region's attempt.
pub fn names(row: &Row, other: &Row) -> bool {
    row.over.iter().any(|(origin, token)| *origin == other.origin && *token >= other.token)
}

/// What an attempt came to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Came {
    Settled,
    /// It may be running.
    Running,
    InDoubt,
    /// It ended without an answer, and nobody knows any more how.
    Forgotten,
    Nothing,
}

fn came(trace: &Trace) -> Came {
    match trace.row.state {
        State::Claimed { .. } => Came::Running,
        State::InDoubt { .. } => Came::InDoubt,
        State::Released => Came::Nothing,
        State::Settled { .. } | State::Tombstone if trace.settled => Came::Settled,
        // Its time is over here, and its origin may have forgotten it: the key may live anew.
        State::Settled { .. } => Came::Nothing,
        State::Tombstone => Came::Forgotten,
    }
}

/// Whether an attempt ran at risk of another one, and both may have taken effect.
fn risked(run: &Trace, other: &Trace) -> bool {
    let ran = match came(run) {
        Came::Settled | Came::InDoubt | Came::Forgotten => true,
        Came::Running | Came::Nothing => false,
    };
    let too = match came(other) {
        Came::Settled => true,
        Came::Running | Came::InDoubt => !names(&run.row, &other.row),
        Came::Forgotten | Came::Nothing => false,
    };
    !run.row.risk.is_empty() && ran && too
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::protocol::digest::Digest32;
    use crate::protocol::fingerprint::Fingerprint;
    use crate::protocol::record::{Answer, AnswerBody, Nonce, RequestId, Token};
    use crate::protocol::region::{Origin, RegionName};
    use crate::protocol::time::Date;

    fn trace(origin: &str, nonce: u128, state: State) -> Trace {
        let raw = Digest32::from_slice(&[0; 32]).unwrap();
        let settled = matches!(state, State::Settled { .. });
        let row = Row {
            origin: Origin::parse(origin).unwrap(),
            token: Token { epoch: 3, attempt: 1 },
            nonce: Nonce(nonce),
            fingerprint: Fingerprint { raw, canonical: None },
            state,
            over: Vec::new(),
            risk: Vec::new(),
            request_id: RequestId(nonce),
            expires: Date(0),
            principal: None,
            accepted: false,
            seen: Date(0),
        };
        Trace { row, settled }
    }

    fn settled() -> State {
        let answer = Answer { status: 201, headers: Vec::new(), body: AnswerBody::NotKept };
        State::Settled { answer: Arc::new(answer), age: Duration::ZERO, expired: false }
    }

    fn doubt() -> State {
        State::InDoubt { status: None, left: Duration::ZERO, past: Duration::ZERO }
    }

    fn claimed() -> State {
        State::Claimed { left: Duration::ZERO, past: Duration::ZERO }
    }

    fn at_risk(mut trace: Trace) -> Trace {
        trace.row.risk = vec![RegionName::parse("a").unwrap()];
        trace
    }

    /// The same, whoever is named first.
    fn both(one: &Trace, other: &Trace) -> Option<(Twice, Why)> {
        let said = |double: Option<Double>| double.map(|double| (double.twice, double.why()));
        assert_eq!(said(compare(one, other)), said(compare(other, one)), "{one:?} {other:?}");
        said(compare(one, other))
    }

    #[test]
    pub fn two_answers_are_a_double_whatever_their_claims_say() {
        let (a, mut b) = (trace("a#1", 1, settled()), trace("b#1", 2, settled()));
        assert_eq!(both(&a, &b), Some((Twice::Surely, Why::Unexplained)));
        assert_eq!(both(&a, &at_risk(b.clone())), Some((Twice::Surely, Why::Risk)));
        b.row.over = vec![(a.row.origin.clone(), a.row.token)];
        assert_eq!(both(&a, &b), Some((Twice::Surely, Why::Over)));
        assert_eq!(both(&at_risk(a.clone()), &b), Some((Twice::Surely, Why::Risk)));
        let later = Token { epoch: 3, attempt: 2 };
        let again = Trace { row: Row { token: later, ..a.row.clone() }, ..a.clone() };
        assert_eq!(both(&again, &b), Some((Twice::Surely, Why::Unexplained)), "only the one before");
        // One token is no one attempt: two regions drew it.
        assert_eq!(a.row.token, b.row.token);
        let replaced = trace("a#2", 2, settled());
        assert_eq!(both(&a, &replaced), Some((Twice::Surely, Why::Unexplained)), "generations too");
    }

    #[test]
    fn one_attempt_whose_answer_came_by_two_ways_is_none() {
        let (a, mut b) = (trace("a#1", 1, settled()), trace("b#1", 1, settled()));
        b.row.token = Token { epoch: 4, attempt: 2 };
        assert_eq!(both(&a, &b), None);
        assert_eq!(both(&at_risk(a), &at_risk(b)), None);
    }

    #[test]
    fn a_tombstone_that_was_settled_is_evidence_until_its_life_is_over() {
        let forgotten = |settled| Trace { settled, ..trace("a#1", 1, State::Tombstone) };
        let b = trace("b#1", 2, settled());
        assert_eq!(both(&forgotten(true), &b), Some((Twice::Surely, Why::Unexplained)));
        assert_eq!(both(&forgotten(false), &b), None);
        let over = Trace { settled: false, ..trace("a#1", 1, settled()) };
        assert_eq!(both(&over, &b), None, "the key may live anew");
    }

    #[test]
    fn without_an_answer_a_double_takes_a_risk() {
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

    #[test]
    fn what_was_superseded_knowingly_takes_an_answer() {
        let mut run = at_risk(trace("b#1", 1, settled()));
        let other = trace("a#1", 2, doubt());
        run.row.over = vec![(other.row.origin.clone(), other.row.token)];
        assert_eq!(both(&run, &other), None);
        let later = Row { token: Token { epoch: 3, attempt: 2 }, ..other.row.clone() };
        let later = Trace { row: later, settled: false };
        assert_eq!(both(&run, &later), Some((Twice::Perhaps, Why::Risk)));
    }
}
