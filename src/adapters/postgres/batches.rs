//! The statements of batches: first claims, and settlements.
//!
//! `gather` says when they are sent. Each compares everything that the statement of one key
//! compares. This file must not state anything of a key that the statement did not return.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, SystemTime};

use tokio_postgres::Row;
use uuid::Uuid;

use super::connections::Connections;
use super::errors::{self, Effect};
use super::gather::Member;
use super::numbers::{big, millis, promised, small};
use super::rows::{self, StoredAnswer};
use super::run::{self, Call, Failed};
use crate::ports::store::{Attempt, ClaimAsk, ClaimReply, StoreError};
use crate::protocol::decide::Basis;
use crate::protocol::digest::Digest32;
use crate::protocol::key::{KeyId, Tenant};
use crate::protocol::record::Token;
use crate::protocol::time::Date;

/// A stored body that is larger goes alone.
const MOST_BODY: usize = 64 << 10;

/// The first claim of a key.
pub(super) struct Claim(ClaimAsk);

impl Claim {
    /// True if the claim may share a statement: it stands on no row and is no risk.
    pub(super) fn shares(ask: &ClaimAsk) -> bool {
        matches!(ask.basis, Basis::Absent) && ask.risk.is_empty()
    }

    pub(super) fn of(ask: &ClaimAsk) -> Self {
        Self(ask.clone())
    }

    fn gate(&self) -> i64 {
        self.0.gate.0.cast_signed()
    }

    /// The reply that a batch states of a claim. Each caller reads its own, so that the next batch
    /// does not wait for that.
    pub(super) fn reply(rows: &[Row]) -> Result<ClaimReply, StoreError> {
        match made(rows).map_err(|why| errors::unreadable(Self::WHAT, Effect::Writes, why))? {
            Some(won) => Ok(won),
            None => rows::claim_reply(Self::WHAT, rows),
        }
    }
}

/// The gate's version that a batch is sent under.
fn gate_of(batch: &[&Claim]) -> i64 {
    batch.first().map_or(0, |one| one.gate())
}

/// The reply to a claim whose row was made; `None` for rows that stood.
fn made(rows: &[Row]) -> Result<Option<ClaimReply>, rows::Unreadable> {
    let Some(row) = rows.first() else { return Ok(None) };
    let Some(epoch) = rows::get::<Option<i64>>(row, "made_epoch")? else { return Ok(None) };
    let attempt: i32 = rows::get(row, "made_attempt")?;
    let token = Token {
        epoch: u64::try_from(epoch).map_err(|_| "made_epoch")?,
        attempt: u32::try_from(attempt).map_err(|_| "made_attempt")?,
    };
    let date = |name| {
        let since = rows::get::<SystemTime>(row, name)?.duration_since(SystemTime::UNIX_EPOCH);
        since.ok().and_then(|since| i64::try_from(since.as_millis()).ok()).map(Date).ok_or(name)
    };
    Ok(Some(ClaimReply::Won { token, expires: date("made_until")? }))
}

fn bytes(digest: &Digest32) -> &[u8] {
    digest.as_bytes()
}

/// Values of one column.
fn column<'a, M, T>(batch: &[&'a M], of: impl Fn(&'a M) -> T) -> Vec<T> {
    batch.iter().copied().map(of).collect()
}

/// Rows of each member, by the number that the statement gave it.
fn by_member(count: usize, rows: Vec<Row>) -> Result<Vec<Vec<Row>>, rows::Unreadable> {
    let mut all: Vec<Vec<Row>> = (0..count).map(|_| Vec::new()).collect();
    for row in rows {
        let at = usize::try_from(rows::get::<i64>(&row, "ord")?).map_err(|_| "ord")?;
        all.get_mut(at.checked_sub(1).ok_or("ord")?).ok_or("ord")?.push(row);
    }
    Ok(all)
}

impl Member for Claim {
    const WHAT: &'static str = "a claim";
    /// The row that was made, or those that stood.
    type Fact = Vec<Row>;

    fn tenant(&self) -> &Tenant {
        self.0.id.tenant()
    }

    fn bytes(&self) -> usize {
        self.0.id.key().as_bytes().len() + self.0.path.len() + self.0.route.len() + 256
    }

    async fn send(
        batch: &[&Self],
        sql: &str,
        over: &Connections,
        within: Duration,
    ) -> Result<Vec<Row>, Failed> {
        // A member of another version takes no part, nor the second one of a nonce.
        let gate = gate_of(batch);
        let mut seen = HashSet::new();
        let shares = |one: &&&Self| one.gate() == gate && seen.insert(one.0.nonce.0);
        let batch: Vec<&Self> = batch.iter().filter(shares).copied().collect();
        let tenants = column(&batch, |Self(ask)| ask.id.tenant().as_str());
        let keys = column(&batch, |Self(ask)| ask.id.key().as_bytes());
        let nonces = column(&batch, |Self(ask)| Uuid::from_u128(ask.nonce.0));
        let requests = column(&batch, |Self(ask)| Uuid::from_u128(ask.request_id.0));
        let raws = column(&batch, |Self(ask)| bytes(&ask.fingerprint.raw));
        let canonicals = column(&batch, |Self(ask)| ask.fingerprint.canonical.as_ref().map(bytes));
        let holds = column(&batch, |Self(ask)| millis(ask.hold));
        let promises = column(&batch, |Self(ask)| promised(&ask.lifetime));
        let skews = column(&batch, |Self(ask)| millis(ask.lifetime.skew));
        let tombstones = column(&batch, |Self(ask)| millis(ask.lifetime.tombstone));
        let routes = column(&batch, |Self(ask)| &*ask.route);
        let paths = column(&batch, |Self(ask)| ask.path.as_str());
        let principals = column(&batch, |Self(ask)| ask.principal.as_ref().map(bytes));
        let settles = column(&batch, |Self(ask)| millis(ask.settle_time));
        let rules = column(&batch, |Self(ask)| rows::rule(ask.recovery));
        let call = Call::writes(Self::WHAT, sql);
        run::run(
            over,
            within,
            call,
            &[
                &tenants,
                &keys,
                &nonces,
                &gate,
                &requests,
                &raws,
                &canonicals,
                &holds,
                &promises,
                &skews,
                &tombstones,
                &routes,
                &paths,
                &principals,
                &settles,
                &rules,
            ],
        )
        .await
    }

    fn facts(batch: &[&Self], rows: Vec<Row>) -> Result<Vec<Option<Vec<Row>>>, StoreError> {
        let unreadable = |why| errors::unreadable(Self::WHAT, Effect::Writes, why);
        let gate = gate_of(batch);
        let mut all: HashMap<u128, Vec<Row>> = HashMap::with_capacity(batch.len());
        for row in rows {
            let nonce: Uuid = rows::get(&row, "asked").map_err(unreadable)?;
            all.entry(nonce.as_u128()).or_default().push(row);
        }
        let mut found = |one: &&Self| (one.gate() == gate).then(|| all.remove(&one.0.nonce.0)).flatten();
        Ok(batch.iter().map(&mut found).collect())
    }
}

/// The settlement of an attempt.
pub(super) struct Settlement {
    id: KeyId,
    epoch: i64,
    attempt: i32,
    nonce: Uuid,
    answer: StoredAnswer<'static>,
}

impl Settlement {
    /// True unless the stored answer is so large that it goes alone.
    pub(super) fn shares(answer: &StoredAnswer<'_>) -> bool {
        answer.body.as_ref().is_none_or(|body| body.len() <= MOST_BODY)
    }

    pub(super) fn of(attempt: &Attempt, answer: StoredAnswer<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            id: attempt.id.clone(),
            epoch: big(Self::WHAT, attempt.token.epoch)?,
            attempt: small(Self::WHAT, attempt.token.attempt)?,
            nonce: Uuid::from_u128(attempt.nonce.0),
            answer: answer.into_owned(),
        })
    }
}

impl Member for Settlement {
    const WHAT: &'static str = "a settlement";
    type Fact = ();

    fn tenant(&self) -> &Tenant {
        self.id.tenant()
    }

    fn bytes(&self) -> usize {
        self.answer.body.as_ref().map_or(0, |body| body.len()) + self.answer.headers.len() + 128
    }

    async fn send(
        batch: &[&Self],
        sql: &str,
        over: &Connections,
        within: Duration,
    ) -> Result<Vec<Row>, Failed> {
        let tenants = column(batch, |one| one.id.tenant().as_str());
        let keys = column(batch, |one| one.id.key().as_bytes());
        let (epochs, attempts) = (column(batch, |one| one.epoch), column(batch, |one| one.attempt));
        let nonces = column(batch, |one| one.nonce);
        let statuses = column(batch, |one| one.answer.status);
        let headers = column(batch, |one| one.answer.headers.as_slice());
        let bodies = column(batch, |one| one.answer.body.as_deref());
        let codings = column(batch, |one| one.answer.coding);
        let lengths = column(batch, |one| one.answer.length);
        let call = Call::writes(Self::WHAT, sql);
        run::run(
            over,
            within,
            call,
            &[&tenants, &keys, &epochs, &attempts, &nonces, &statuses, &headers, &bodies, &codings, &lengths],
        )
        .await
    }

    fn facts(batch: &[&Self], rows: Vec<Row>) -> Result<Vec<Option<()>>, StoreError> {
        let unreadable = |why| errors::unreadable(Self::WHAT, Effect::Writes, why);
        let all = by_member(batch.len(), rows).map_err(unreadable)?;
        Ok(all.into_iter().map(|found| (!found.is_empty()).then_some(())).collect())
    }
}
