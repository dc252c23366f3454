//! The verdict on a request, a total function of the rows of its key (docs/protocol.md#rule-3).
//!
//! `gateway::request` gathers the facts and performs the verdict.

use std::sync::Arc;
use std::time::Duration;

use super::digest::Digest32;
use super::fingerprint::Fingerprint;
use super::plant::{Check, is_disabled};
use super::record::{Answer, Basis, Beside, Reading, Recovery, RequestId, Row, State};
use super::region::Origin;
use super::time::Date;

/// A settled answer with its age, the region and the request that ran it, and the end of the
/// promised retention.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Settlement {
    pub answer: Arc<Answer>,
    pub age: Duration,
    pub origin: Origin,
    pub request_id: RequestId,
    pub expires: Date,
}

/// The next step of a request. The dates are the ends of the promised retention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Claim on this basis; when the claim is won, run.
    Claim(Basis),
    /// Give the stored answer again.
    Replay(Settlement),
    /// Wait for the running attempt, for the rest of its hold.
    Attach(Duration, Date),
    /// Ask the upstream about each attempt, then settle, claim on `basis`, or stay.
    Probe {
        /// The rows of the attempts to ask about, newest first; at least one.
        doubts: Vec<Row>,
        /// The basis of a claim after "did not happen" about every attempt, and of an answer that
        /// only this region can write.
        basis: Basis,
    },
    /// The key is in doubt, and no request may change that.
    Parked(Date),
    /// The key was used for another request, or is bound to another principal.
    KeyReused(Date),
    /// The key is past its retention and never runs again.
    KeyExpired(Date),
}

/// The verdict on a reading, for a request that asks this, of this principal of its tenant (`None`
/// if the credential names none). Total: every reading has one.
pub fn decide(reading: Reading, fingerprint: &Fingerprint, principal: Option<Digest32>) -> Verdict {
    let other = |row: &Row| !same_request(row, fingerprint, principal);
    match reading {
        Reading::Absent => Verdict::Claim(Basis::Absent),
        Reading::Gone(row) if !same_principal(&row, principal) => Verdict::KeyReused(row.expires),
        Reading::Gone(row) => Verdict::KeyExpired(row.expires),
        Reading::Released(row, _)
        | Reading::InProgress(row)
        | Reading::Settled(row)
        | Reading::InDoubt(row, _)
            if other(&row) =>
        {
            Verdict::KeyReused(row.expires)
        }
        Reading::Released(_, basis) => Verdict::Claim(basis),
        Reading::InProgress(row) => Verdict::Attach(left(&row.state), row.expires),
        Reading::Settled(row) => match settlement(&row) {
            Some(settlement) => Verdict::Replay(settlement),
            None => Verdict::Parked(row.expires),
        },
        Reading::InDoubt(row, Beside { basis, doubted, rows }) => match rule(&row, &rows) {
            Recovery::Rerun { max_attempts } if doubted < max_attempts => Verdict::Claim(basis),
            Recovery::Rerun { .. } | Recovery::Park => Verdict::Parked(row.expires),
            Recovery::Probe => Verdict::Probe { doubts: std::iter::once(row).chain(rows).collect(), basis },
        },
    }
}

/// The rule for a key in doubt: the one of its claim, whatever its route says by now
/// (docs/protocol.md#rule-13). Of several attempts in doubt the strictest rule counts.
pub fn rule(row: &Row, beside: &[Row]) -> Recovery {
    let rules = beside.iter().map(|row| row.recovery);
    rules.fold(row.recovery, |one, other| match (one, other) {
        (Recovery::Park, _) | (_, Recovery::Park) => Recovery::Park,
        (Recovery::Probe, _) | (_, Recovery::Probe) => Recovery::Probe,
        (Recovery::Rerun { max_attempts: one }, Recovery::Rerun { max_attempts: other }) => {
            Recovery::Rerun { max_attempts: one.min(other) }
        }
    })
}

/// True if a row is of this very request: it asks the same, and its claim bound the key to no other
/// principal. Both reasons must look equal outside: otherwise the key would tell one principal of a
/// tenant about another one's request (docs/protocol.md#rule-1).
pub fn same_request(row: &Row, fingerprint: &Fingerprint, principal: Option<Digest32>) -> bool {
    (fingerprint.same(&row.fingerprint) || is_disabled(Check::Fingerprint)) && same_principal(row, principal)
}

/// True if this principal may use the key: an unbound row is open to every principal of the tenant.
pub fn same_principal(row: &Row, principal: Option<Digest32>) -> bool {
    row.principal.is_none() || row.principal == principal
}

/// The settled answer of a row, if it is settled.
pub fn settlement(row: &Row) -> Option<Settlement> {
    let State::Settled { answer, age, expired: _ } = &row.state else { return None };
    let Row { origin, request_id, expires, .. } = row;
    let (answer, origin) = (answer.clone(), origin.clone());
    Some(Settlement { answer, age: *age, origin, request_id: *request_id, expires: *expires })
}

/// The wait before a client asks again about a running attempt: the typical time of an attempt, at
/// least a second, at most the rest of the hold (then the key can be recovered).
pub fn retry_after(left: Duration, typical: Option<Duration>) -> Duration {
    let floor = Duration::from_secs(1);
    let left = left.max(floor);
    typical.unwrap_or(left).clamp(floor, left)
}

/// The time until a row's attempt is surely over, so that "did not happen" counts. The row alone
/// says it: no setting of today judges an attempt of yesterday. A status that leaves the key in
/// doubt (5xx, 408) ends nothing by itself: a proxy gives up while the service goes on.
pub fn over_in(row: &Row) -> Duration {
    let settles = if is_disabled(Check::SettleTimeKept) { Duration::ZERO } else { row.settle_time };
    match row.state {
        State::InDoubt { status: _, left, past } | State::Claimed { left, past } => {
            left + settles.saturating_sub(past)
        }
        State::Released | State::Settled { .. } | State::Tombstone => Duration::ZERO,
    }
}

/// The time until an attempt in doubt may be settled: none if it was answered, else its hold.
pub fn settles_in(row: &Row) -> Duration {
    let is_answered = matches!(row.state, State::InDoubt { status: Some(_), .. });
    if is_answered { Duration::ZERO } else { left(&row.state) }
}

/// The upstream's word on one attempt in doubt, as far as it counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// The effect happened, with this answer.
    Happened(Arc<Answer>),
    /// The effect did not happen, and the attempt is surely over.
    DidNotHappen,
    /// The upstream has said nothing that counts yet.
    Unknown,
}

/// A conclusion that may be stored about a key in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conclusion<'a> {
    /// This attempt happened.
    Happened(&'a Row, &'a Arc<Answer>),
    /// None of the attempts happened; the row of the highest one.
    None(&'a Row),
    /// The own attempt did not happen, and nothing is known of another one that it does not name.
    OwnNot(&'a Row),
}

impl<'a> Conclusion<'a> {
    /// The row of the attempt that the conclusion is about.
    pub fn row(&self) -> &'a Row {
        match self {
            Self::Happened(row, _) | Self::None(row) | Self::OwnNot(row) => row,
        }
    }
}

/// Concludes from the upstreams' words on the rows in doubt of one key, both in the same order,
/// highest token first. `None`: nothing yet.
///
/// An own attempt hides an attempt that it names once it is released. So nothing is concluded about
/// the own one while the upstream has not answered about one that it names.
pub fn conclude<'a>(rows: &'a [Row], said: &'a [Word], me: &Origin) -> Option<Conclusion<'a>> {
    let all = || rows.iter().zip(said.iter().map(Some).chain(std::iter::repeat(None)));
    let happened = all().find_map(|(row, word)| match word {
        Some(Word::Happened(answer)) => Some(Conclusion::Happened(row, answer)),
        Some(Word::DidNotHappen | Word::Unknown) | None => None,
    });
    if happened.is_some() {
        return happened;
    }
    let is_not = |word: Option<&Word>| matches!(word, Some(Word::DidNotHappen));
    let (own, _) = all().find(|(row, word)| row.origin == *me && is_not(*word)).unzip();
    let unknown: Vec<&Row> = all().filter(|(_, word)| !is_not(*word)).map(|(row, _)| row).collect();
    match (unknown.is_empty(), own) {
        (true, Some(own)) if rows.len() == 1 => Some(Conclusion::OwnNot(own)),
        (true, _) => rows.first().map(Conclusion::None),
        (false, own) => {
            let names = |own: &Row, row: &Row| {
                own.over.iter().any(|(named, token)| *named == row.origin && *token >= row.token)
            };
            let waits =
                |own: &Row| unknown.iter().any(|row| names(own, row)) && !is_disabled(Check::NamedAnswered);
            own.filter(|own| !waits(own)).map(Conclusion::OwnNot)
        }
    }
}

fn left(state: &State) -> Duration {
    match state {
        State::Claimed { left, .. } | State::InDoubt { left, .. } => *left,
        State::Released | State::Settled { .. } | State::Tombstone => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests;
