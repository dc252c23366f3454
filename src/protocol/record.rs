//! The record of a key: rows of regions, and one reading of them all (docs/protocol.md#rule-3).
//!
//! Each region writes only its own row of a key (its *origin*), so a key may have several rows.
//! [`resolve`] is the total, order-free function that gives their common meaning. A row carries the
//! rest of its hold, as judged by the database that read it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::digest::Digest32;
use super::fingerprint::Fingerprint;
use super::plant::{Check, is_disabled};
use super::region::{Origin, RegionName};
use super::time::{Date, Drift};
use super::written::{self, As, Base64, Seconds, as_text, hex128, number128};

/// The fencing token of one attempt: compared by epoch, then attempt. They grow with claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Token {
    /// The epoch of the gate under which the claim was written.
    pub epoch: u64,
    /// Number of the attempt, from 1.
    pub attempt: u32,
}

impl Token {
    /// The number of attempts so far, this one included: a key that was forgotten counts anew.
    pub fn attempts(self) -> u32 {
        self.attempt % SERIES
    }
}

/// Number of attempts in one life of a key. The next life, once the key was forgotten under the
/// same epoch, begins above all of them.
pub const SERIES: u32 = 10_000;
/// The highest number of a life. Attempts beyond it would not fit their column.
const MOST_SERIES: u32 = 214_000;

/// The attempt of the next claim under `epoch` of a key whose known rows had at most `known`.
/// `forgotten` is the greatest token of a row that was ever forgotten here: a token never comes
/// again, whatever was forgotten.
pub fn next_attempt(known: u32, epoch: u64, forgotten: Token) -> u32 {
    let next = known.saturating_add(1);
    if (Token { epoch, attempt: next }) > forgotten || is_disabled(Check::ForgottenTokens) {
        return next;
    }
    (forgotten.attempt / SERIES + 1).min(MOST_SERIES) * SERIES + known % SERIES + 1
}

impl fmt::Display for Token {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}", self.epoch, self.attempt)
    }
}

/// 128 random bits that distinguish one claim statement from every other. So a claim whose commit
/// was not confirmed can find itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nonce(pub u128);

/// The id of the request that made an attempt, as the client and the upstream know it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(pub u128);

impl fmt::Display for RequestId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "req_{:032x}", self.0)
    }
}

as_text! {
    Nonce, "a nonce": nonce => hex128(nonce.0), text => number128(text).map(Self);
    RequestId, "a request's id": id => hex128(id.0), text => number128(text).map(Self);
    Recovery, "a rule for keys in doubt": rule => rule.to_string(), text => Self::parse(text);
}

/// A stored final answer. Headers are those that a replay may carry, already filtered.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The upstream's status.
    #[serde(deserialize_with = "written::http_status")]
    pub status: u16,
    /// Names in lower case, in the upstream's order.
    #[serde(with = "As::<Vec<(String, Base64)>>")]
    pub headers: Vec<(String, Vec<u8>)>,
    /// The body, or that it was not kept.
    pub body: AnswerBody,
}

/// The body of a stored answer.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Option<Base64>", into = "Option<Base64>")]
pub enum AnswerBody {
    /// Kept whole.
    Kept(Vec<u8>),
    /// Over the route's stored limit: the first client got it, replays say that it was not kept.
    NotKept,
}

impl From<Option<Base64>> for AnswerBody {
    fn from(bytes: Option<Base64>) -> Self {
        bytes.map_or(Self::NotKept, |Base64(bytes)| Self::Kept(bytes))
    }
}

impl From<AnswerBody> for Option<Base64> {
    fn from(body: AnswerBody) -> Self {
        match body {
            AnswerBody::Kept(bytes) => Some(Base64(bytes)),
            AnswerBody::NotKept => None,
        }
    }
}

impl fmt::Debug for Answer {
    /// Shows sizes only: bodies and headers may carry anything.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body = match &self.body {
            AnswerBody::Kept(bytes) => format!("{} bytes", bytes.len()),
            AnswerBody::NotKept => "not kept".to_owned(),
        };
        write!(out, "Answer({}, {} headers, {body})", self.status, self.headers.len())
    }
}

/// The state of a row. The arrows are: claimed → settled, released, in doubt; in doubt → settled,
/// released, claimed; released → claimed; settled → tombstone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the names say it")]
pub enum State {
    /// An attempt holds the right to perform the effect, for `left` more; zero: the hold is over.
    Claimed {
        /// The rest of the hold, by the clock of the database that was read.
        #[serde(with = "Seconds")]
        left: Duration,
        /// The time since the end of the hold, by the same clock; zero before that end.
        #[serde(with = "Seconds")]
        past: Duration,
    },
    /// The effect may or may not have happened. The spans are those of a claim.
    InDoubt {
        /// The upstream's status, if it gave one.
        #[serde(default, deserialize_with = "written::http_status")]
        status: Option<u16>,
        #[serde(with = "Seconds")]
        left: Duration,
        #[serde(with = "Seconds")]
        past: Duration,
    },
    /// Nothing happened; the next claim takes the following attempt number.
    Released,
    /// The final answer, replayed from now on.
    Settled {
        answer: Arc<Answer>,
        /// The time since it was settled, by the clock of the database that was read.
        #[serde(with = "Seconds")]
        age: Duration,
        /// True if its stored life is over here: it reads as a tombstone, whatever its origin made.
        expired: bool,
    },
    /// Past retention: the answer is gone, the key never runs again.
    Tombstone,
}

/// A rule for keys in doubt. It has no default: each route that requires a key states it, and each
/// claim keeps the one of its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recovery {
    /// Run again, until `max_attempts` attempts may have happened, then park. The upstream is
    /// idempotent by key or checks the token.
    Rerun {
        /// The most attempts that may have happened. One that surely did nothing does not count.
        max_attempts: u32,
    },
    /// Ask the upstream whether the effect happened.
    Probe,
    /// Stay in doubt until an operator settles or releases it.
    #[default]
    Park,
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rerun { max_attempts } => write!(f, "{} {max_attempts}", self.name()),
            Self::Probe | Self::Park => f.write_str(self.name()),
        }
    }
}

impl Recovery {
    /// The names of all rules, as people spell them.
    pub const NAMES: [&str; 3] = ["rerun", "probe", "park"];

    /// Its name, one of [`Recovery::NAMES`].
    pub fn name(self) -> &'static str {
        let [rerun, probe, park] = Self::NAMES;
        match self {
            Self::Rerun { .. } => rerun,
            Self::Probe => probe,
            Self::Park => park,
        }
    }

    /// The most attempts that a rule can name.
    pub const MOST_ATTEMPTS: u32 = 1_000;

    /// Reads a rule as it is displayed.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "probe" => Some(Self::Probe),
            "park" => Some(Self::Park),
            _ => {
                let max_attempts = text.strip_prefix("rerun ")?.parse().ok()?;
                (1..=Self::MOST_ATTEMPTS).contains(&max_attempts).then_some(Self::Rerun { max_attempts })
            }
        }
    }
}

/// One region's row of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The region and generation that wrote it.
    pub origin: Origin,
    /// The token of its last attempt.
    pub token: Token,
    /// The nonce of its last attempt.
    pub nonce: Nonce,
    /// Digests of what the request asked.
    pub fingerprint: Fingerprint,
    /// Its state.
    pub state: State,
    /// Rows of other origins that its claim knowingly superseded.
    pub over: Vec<(Origin, Token)>,
    /// Lost regions whose window alone allowed its claim.
    pub risk: Vec<RegionName>,
    /// The request that made its last attempt.
    pub request_id: RequestId,
    /// The end of the promised retention.
    pub expires: Date,
    /// The digest of the principal to whom the claim bound the key; `None`: to the tenant alone.
    pub principal: Option<Digest32>,
    /// The request was accepted to be run without its client: while released, it waits for its job.
    pub accepted: bool,
    /// The number of attempts before the last one that may have happened.
    #[serde(default)]
    pub doubted: u32,
    /// The time for which the last attempt may still be inside the upstream after its hold. Zero,
    /// as the hold is, once an answer has ended it.
    #[serde(with = "Seconds")]
    pub settle_time: Duration,
    /// The rule for the key while its last attempt is in doubt, as its claim says.
    pub recovery: Recovery,
}

/// The common meaning of a key's rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// No row.
    Absent,
    /// Nothing happened so far: the highest token's row, and the basis of the next claim.
    Released(Row, Basis),
    /// An attempt is running: the highest token's row.
    InProgress(Row),
    /// In doubt: the highest token's row of those in doubt, and what is known beside.
    InDoubt(Row, Beside),
    /// The final answer.
    Settled(Row),
    /// Past retention.
    Gone(Row),
}

impl Reading {
    /// The row that it is about, if the key has one.
    pub fn row(&self) -> Option<&Row> {
        match self {
            Self::Absent => None,
            Self::Released(row, _) | Self::InDoubt(row, _) => Some(row),
            Self::InProgress(row) | Self::Settled(row) | Self::Gone(row) => Some(row),
        }
    }
}

/// The basis of a claim: the rows that the request saw before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Basis {
    /// No row of any origin.
    Absent,
    /// Rows that this claim knowingly supersedes.
    Known {
        /// This region's own row, in any state and even if masked: the claim overwrites it. It is
        /// compared by token and nonce in the writing statement.
        own: Option<(Token, Nonce)>,
        /// Rows of other origins: those in doubt or released, and all that the own row had
        /// superseded, as the claim overwrites its list too.
        over: Vec<(Origin, Token)>,
        /// The highest attempt of all rows; the claim takes the next number.
        attempt: u32,
    },
}

/// The knowledge of a key in doubt, beside the highest row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beside {
    /// The basis of the next claim.
    pub basis: Basis,
    /// The number of attempts that may have happened.
    pub doubted: u32,
    /// The other rows in doubt, highest token first. No claim may be made before each of them is
    /// answered for.
    pub rows: Vec<Row>,
}

/// A reader's knowledge beside the rows.
#[derive(Clone, Debug)]
pub struct Reader {
    /// The reader's own origin: its database can judge the hold only of its own rows.
    pub me: Origin,
    /// Other origins whose claims are in doubt at once, by the view.
    pub over: BTreeSet<Origin>,
    /// The time, by the reader's own boot clock, since each other origin surely could start nothing
    /// more under the reader's keys. A missing origin may be running (docs/protocol.md#rule-12).
    pub ended: BTreeMap<Origin, Duration>,
    /// The drift, added to a foreign attempt's hold before the hold counts as over.
    pub drift: Drift,
}

impl Reader {
    /// A reader that knows of no other origin's end.
    pub fn new(me: Origin, drift: Drift) -> Self {
        Self { me, over: BTreeSet::new(), ended: BTreeMap::new(), drift }
    }

    /// Judges the hold of another origin's row. The store gives the whole hold, as no database may
    /// judge another's dates (docs/protocol.md#rule-12). The hold counts from the moment when that
    /// origin surely could start nothing more.
    fn judge(&self, row: &mut Row) {
        let ended = self.ended.get(&row.origin).filter(|_| row.origin != self.me);
        if let State::Claimed { left, past } | State::InDoubt { left, past, .. } = &mut row.state
            && let Some(ended) = ended
        {
            let hold = self.drift.judge(*left);
            *left = hold.saturating_sub(*ended);
            *past = ended.saturating_sub(hold);
        }
    }
}

/// Reads the rows of one key, at most one per origin, in any order (docs/protocol.md#rule-4).
///
/// - Settled > running > in doubt > released. Of several final rows the greatest token wins.
/// - A row named in the `over` of a row that is not in doubt itself is masked.
/// - A row in doubt masks nothing: its superseded attempts are asked about again. That costs a
///   question, and protects regions that stand in for another.
/// - A released row never hides an unmasked doubt of another origin.
/// - A running attempt comes before a doubt. The reader's own comes first even if it is masked: no
///   claim can be made over it, so the reader must wait for its end.
pub fn resolve(mut rows: Vec<Row>, reader: &Reader) -> Reading {
    rows.iter_mut().for_each(|row| reader.judge(row));
    rows.sort_by(|a, b| b.token.cmp(&a.token).then_with(|| a.origin.cmp(&b.origin)));
    if let Some(at) =
        rows.iter().position(|row| matches!(row.state, State::Settled { .. } | State::Tombstone))
    {
        let row = rows.swap_remove(at);
        let is_kept = matches!(row.state, State::Settled { expired: false, .. });
        return if is_kept {
            Reading::Settled(row)
        } else {
            Reading::Gone(Row { state: State::Tombstone, ..row })
        };
    }
    if is_disabled(Check::Over) {
        rows.truncate(1);
    }
    if let Some(at) = rows.iter().position(|row| row.origin == reader.me && is_running(row, reader)) {
        return Reading::InProgress(rows.swap_remove(at));
    }
    let sure = rows.iter().filter(|row| !reads_as_doubt(row, reader));
    let masks: Vec<(Origin, Token)> = sure.flat_map(|row| row.over.iter().cloned()).collect();
    let own = rows.iter().find(|row| row.origin == reader.me);
    // The basis of every claim, whichever of the rows are masked.
    let superseded = own.map(|row| row.over.clone()).unwrap_or_default();
    let own = own.map(|row| (row.token, row.nonce));
    let attempt = rows.iter().map(|row| row.token.attempt).max().unwrap_or(0);
    let doubted = doubted(&rows);
    rows.retain(|row| !masks.iter().any(|(origin, token)| *origin == row.origin && *token >= row.token));
    if let Some(at) = rows.iter().position(|row| is_running(row, reader)) {
        return Reading::InProgress(rows.swap_remove(at));
    }
    let basis = Basis::Known { own, over: supersede(superseded, &rows, reader), attempt };
    let (doubts, released): (Vec<Row>, Vec<Row>) =
        rows.into_iter().partition(|row| reads_as_doubt(row, reader));
    let mut doubts = doubts.into_iter();
    match (doubts.next(), released.into_iter().next()) {
        (Some(highest), _) => Reading::InDoubt(highest, Beside { basis, doubted, rows: doubts.collect() }),
        (None, Some(highest)) => Reading::Released(highest, basis),
        (None, None) => Reading::Absent,
    }
}

/// The number of attempts of a key that may have happened, the last ones included. A claim stores
/// it, so that attempts which surely did nothing use up no rerun.
pub fn doubted<'a>(rows: impl IntoIterator<Item = &'a Row>) -> u32 {
    let may_have = |row: &Row| u32::from(matches!(row.state, State::Claimed { .. } | State::InDoubt { .. }));
    rows.into_iter().map(|row| row.doubted.saturating_add(may_have(row))).max().unwrap_or(0)
}

fn supersede(already: Vec<(Origin, Token)>, rows: &[Row], reader: &Reader) -> Vec<(Origin, Token)> {
    let others = rows.iter().filter(|row| row.origin != reader.me);
    let mut over: BTreeMap<Origin, Token> = BTreeMap::new();
    for (origin, token) in already.into_iter().chain(others.map(|row| (row.origin.clone(), row.token))) {
        let named = over.entry(origin).or_insert(token);
        *named = token.max(*named);
    }
    over.into_iter().collect()
}

fn is_running(row: &Row, reader: &Reader) -> bool {
    matches!(row.state, State::Claimed { .. }) && !reads_as_doubt(row, reader)
}

fn reads_as_doubt(row: &Row, reader: &Reader) -> bool {
    match row.state {
        State::InDoubt { .. } => true,
        State::Claimed { left, past: _ } => {
            let judged = row.origin == reader.me || reader.ended.contains_key(&row.origin);
            (judged && left.is_zero()) || reader.over.contains(&row.origin)
        }
        State::Released | State::Settled { .. } | State::Tombstone => false,
    }
}

#[cfg(test)]
mod tests;
