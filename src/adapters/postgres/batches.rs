//! The statements of batches: first claims, and settlements.
//!
//! `gather` says when they are sent. Each compares everything that the statement of one key
//! compares. Nothing is stated of a key that the statement did not return.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, SystemTime};

use tokio_postgres::Row;
use uuid::Uuid;

use super::connect::Connections;
use super::errors::{self, Effect};
use super::gather::Member;
use super::params::{StoredAnswer, big, borrowed, bytes, column, millis, promised, small};
use super::rows;
use super::run::{self, Call, Failed};
use crate::ports::store::{Attempt, ClaimAsk, ClaimReply, StoreError};
use crate::protocol::key::{KeyId, Tenant};
use crate::protocol::record::{Basis, Token};
use crate::protocol::time::Date;

/// A stored body that is larger goes alone.
const MOST_BODY: usize = 64 << 10;

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
    let since = rows::get::<SystemTime>(row, "made_until")?.duration_since(SystemTime::UNIX_EPOCH);
    let expires = since.ok().and_then(|since| i64::try_from(since.as_millis()).ok()).ok_or("made_until")?;
    Ok(Some(ClaimReply::Won { token, expires: Date(expires) }))
}

impl Member for Claim {
    const WHAT: &'static str = "a claim";
    /// The row that was made, or those that stood.
    type Fact = Vec<Row>;

    fn tenant(&self) -> &Tenant {
        self.0.id.tenant()
    }

    fn bytes(&self) -> usize {
        self.0.id.key().as_bytes().len() + self.0.terms.path.len() + self.0.terms.route.len() + 256
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
        let shares = |one: &&&Self| one.gate() == gate && seen.insert(one.0.terms.nonce.0);
        let batch: Vec<&Self> = batch.iter().filter(shares).copied().collect();
        let columns = [
            column(&batch, |Self(ask)| ask.id.tenant().as_str()),
            column(&batch, |Self(ask)| ask.id.key().as_bytes()),
            column(&batch, |Self(ask)| Uuid::from_u128(ask.terms.nonce.0)),
            Box::new(gate),
            column(&batch, |Self(ask)| Uuid::from_u128(ask.terms.request_id.0)),
            column(&batch, |Self(ask)| bytes(&ask.terms.fingerprint.raw)),
            column(&batch, |Self(ask)| ask.terms.fingerprint.canonical.as_ref().map(bytes)),
            column(&batch, |Self(ask)| millis(ask.terms.hold)),
            column(&batch, |Self(ask)| promised(&ask.terms.lifetime)),
            column(&batch, |Self(ask)| millis(ask.terms.lifetime.skew)),
            column(&batch, |Self(ask)| millis(ask.terms.lifetime.tombstone)),
            column(&batch, |Self(ask)| &*ask.terms.route),
            column(&batch, |Self(ask)| ask.terms.path.as_str()),
            column(&batch, |Self(ask)| ask.terms.principal.as_ref().map(bytes)),
            column(&batch, |Self(ask)| millis(ask.terms.settle_time)),
            column(&batch, |Self(ask)| rows::rule(ask.terms.recovery)),
        ];
        run::run(over, within, Call::writes(Self::WHAT, sql), &borrowed(&columns)).await
    }

    fn facts(batch: &[&Self], rows: Vec<Row>) -> Result<Vec<Option<Vec<Row>>>, StoreError> {
        let unreadable = |why| errors::unreadable(Self::WHAT, Effect::Writes, why);
        let gate = gate_of(batch);
        let mut all: HashMap<u128, Vec<Row>> = HashMap::with_capacity(batch.len());
        for row in rows {
            let nonce: Uuid = rows::get(&row, "asked").map_err(unreadable)?;
            all.entry(nonce.as_u128()).or_default().push(row);
        }
        let mut found =
            |one: &&Self| (one.gate() == gate).then(|| all.remove(&one.0.terms.nonce.0)).flatten();
        Ok(batch.iter().map(&mut found).collect())
    }
}

pub(super) struct Settlement {
    id: KeyId,
    epoch: i64,
    attempt: i32,
    nonce: Uuid,
    answer: StoredAnswer<'static>,
}

impl Settlement {
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
        let StoredAnswer { body, headers, .. } = &self.answer;
        body.as_ref().map_or(0, |body| body.len()) + headers.as_ref().map_or(0, Vec::len) + 128
    }

    async fn send(
        batch: &[&Self],
        sql: &str,
        over: &Connections,
        within: Duration,
    ) -> Result<Vec<Row>, Failed> {
        let columns = [
            column(batch, |one| one.id.tenant().as_str()),
            column(batch, |one| one.id.key().as_bytes()),
            column(batch, |one| one.epoch),
            column(batch, |one| one.attempt),
            column(batch, |one| one.nonce),
            column(batch, |one| one.answer.status),
            column(batch, |one| one.answer.headers.as_deref()),
            column(batch, |one| one.answer.body.as_deref()),
            column(batch, |one| one.answer.coding),
            column(batch, |one| one.answer.length),
        ];
        run::run(over, within, Call::writes(Self::WHAT, sql), &borrowed(&columns)).await
    }

    fn facts(batch: &[&Self], rows: Vec<Row>) -> Result<Vec<Option<()>>, StoreError> {
        let unreadable = |why| errors::unreadable(Self::WHAT, Effect::Writes, why);
        let mut all = vec![None; batch.len()];
        for row in &rows {
            let at = rows::place(row).map_err(unreadable)?;
            *all.get_mut(at).ok_or_else(|| unreadable("ord"))? = Some(());
        }
        Ok(all)
    }
}
