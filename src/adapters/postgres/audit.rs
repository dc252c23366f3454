//! The port `Audit`: runs at risk with their doubles, late answers, and all records of each key.
//!
//! `keys` journals the doubles that a settlement meets; `upkeep` reads the journal of one key. This
//! file must not decide which answer of a double is served, nor what a double is.

use std::time::Duration;

use tokio_postgres::Row as PgRow;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::numbers::{big, millis, small};
use super::rows::{self, StoredAnswer, get};
use super::run::{Call, Params};
use super::upkeep::{columns, entry, explained, id_of, key_id};
use super::{Lane, PgStore};
use crate::ports::Audit;
use crate::ports::audit::{Begin, Counted, Double, Finding, History, HistoryRow, Of, RunAtRisk, Stretch};
use crate::ports::store::{Attempt, StoreError};
use crate::ports::upkeep::Place;
use crate::protocol::double::{Trace, Why};
use crate::protocol::key::KeyId;
use crate::protocol::record::{Answer, RequestId, Row};
use crate::protocol::time::Date;

/// A thousand years: no entry is older, and the database's dates reach further.
const MOST_BACK: Duration = Duration::from_secs(1_000 * 365 * 86_400);

impl Audit for PgStore {
    async fn runs_at_risk(&self, after: Option<&KeyId>, most: u32) -> Result<Vec<RunAtRisk>, StoreError> {
        let call = Call::reads("listing runs at risk", &self.sql.runs_at_risk);
        let (tenant, key) = (after.map(|id| id.tenant().as_str()), after.map(|id| id.key().as_bytes()));
        self.list(Lane::Admin, call, &[&tenant, &key, &i64::from(most)], |row| {
            let (route, path) = (get::<&str>(row, "route")?.into(), get(row, "path")?);
            Ok(RunAtRisk { id: key_id(row)?, row: rows::read(row)?, route, path })
        })
        .await
    }

    async fn stretch(&self, of: Of, after: Option<&KeyId>, most: u32) -> Result<Stretch, StoreError> {
        let sql = match of {
            Of::All => &self.sql.comb,
            Of::AtRisk => &self.sql.at_risk,
        };
        let call = Call::reads("looking for keys that ran twice", sql);
        let (tenant, key) = behind(after);
        let found = self.on(Lane::Upkeep, call, &[&tenant, &key, &i64::from(most)]).await?;
        stretched(&found, most).map_err(|why| call.unreadable(why))
    }

    async fn traces(&self, ids: &[KeyId]) -> Result<Vec<Vec<Trace>>, StoreError> {
        let call = Call::reads("reading the rows of keys", &self.sql.traces);
        let (tenants, keys) = columns(ids);
        let read = |row: &PgRow| Ok((place(row)?, trace(row)?));
        let mut traces = vec![Vec::new(); ids.len()];
        for (at, trace) in self.list(Lane::Upkeep, call, &[&tenants, &keys], read).await? {
            traces.get_mut(at).ok_or_else(|| call.unreadable("ord"))?.push(trace);
        }
        Ok(traces)
    }

    async fn journal_doubles(&self, found: &[Double]) -> Result<Vec<bool>, StoreError> {
        const WHAT: &str = "journalling keys that ran twice";
        let call = Call::writes(WHAT, &self.sql.journal_doubles);
        let ids: Vec<KeyId> = found.iter().map(|double| double.id.clone()).collect();
        let (tenants, keys) = columns(&ids);
        let first = Attempts::of(WHAT, found.iter().map(|double| &double.first))?;
        let second = Attempts::of(WHAT, found.iter().map(|double| &double.second))?;
        let at_risk: Vec<bool> = found.iter().map(|double| double.at_risk).collect();
        let named: Vec<bool> = found.iter().map(|double| double.named).collect();
        let reasons: Vec<&str> = found.iter().map(|double| double.reason.as_str()).collect();
        let (ids, facts): (Params<'_>, Params<'_>) = (&[&tenants, &keys], &[&at_risk, &named, &reasons]);
        let params = [ids, &first.params(), &second.params(), facts].concat();
        let mut journalled = vec![false; found.len()];
        for at in self.list(Lane::Upkeep, call, &params, place).await? {
            journalled.get_mut(at).into_iter().for_each(|held| *held = true);
        }
        Ok(journalled)
    }

    async fn doubles(&self) -> Result<Counted, StoreError> {
        let call = Call::reads("counting doubles", &self.sql.doubles);
        let read = |row: &PgRow| Ok((explained(row)?, get::<i64>(row, "doubles")?));
        let mut counted = Counted::default();
        for (why, count) in self.list(Lane::Upkeep, call, &[], read).await? {
            let count = u64::try_from(count).unwrap_or_default();
            counted.doubles += count;
            counted.unexplained += if why == Some(Why::Unexplained) { count } else { 0 };
        }
        Ok(counted)
    }

    async fn late(
        &self,
        attempt: &Attempt,
        request_id: Option<RequestId>,
        answer: &Answer,
    ) -> Result<bool, StoreError> {
        const WHAT: &str = "journalling a late answer";
        let (tenant, key) = (attempt.id.tenant().as_str(), attempt.id.key().as_bytes());
        let (epoch, number) = (big(WHAT, attempt.token.epoch)?, small(WHAT, attempt.token.attempt)?);
        let (nonce, request) = (Uuid::from_u128(attempt.nonce.0), request_id.map(|id| Uuid::from_u128(id.0)));
        let stored = StoredAnswer::of(WHAT, answer)?;
        let call = Call::writes(WHAT, &self.sql.late);
        let body = stored.body.as_deref();
        let params: Params<'_> =
            &[&tenant, &key, &epoch, &number, &nonce, &request, &stored.status, &stored.length, &body];
        Ok(!self.on(Lane::Upkeep, call, params).await?.is_empty())
    }

    async fn findings(
        &self,
        after: Option<Place>,
        back: Duration,
        most: u32,
    ) -> Result<Vec<Finding>, StoreError> {
        let call = Call::reads("listing doubles and late answers", &self.sql.findings);
        // The first entry is number 1.
        let after = after.map_or(0, |Place(id)| id);
        let back = millis(back.min(MOST_BACK));
        self.list(Lane::Admin, call, &[&after, &back, &i64::from(most)], |row| {
            Ok(Finding { place: Place(get(row, "place")?), id: key_id(row)?, entry: entry(row)? })
        })
        .await
    }

    async fn rows_of_key(&self, id: &KeyId) -> Result<Vec<HistoryRow>, StoreError> {
        let (tenants, keys) = columns(std::slice::from_ref(id));
        let call = Call::reads("reading the rows of a key", &self.sql.histories);
        self.list(Lane::Admin, call, &[&tenants, &keys], history_row).await
    }

    async fn histories(&self, begin: Begin<'_>, most: u32) -> Result<Vec<History>, StoreError> {
        let call = |sql| Call::reads("reading what is known of keys", sql);
        // No key is empty, so every key of a tenant comes after the empty one.
        let (tenant, key) = match begin {
            Begin::First => behind(None),
            Begin::At(tenant) => (tenant.as_str(), &b""[..]),
            Begin::After(id) => behind(Some(id)),
        };
        let named: Params<'_> = &[&tenant, &key, &i64::from(most)];
        let read = |row: &PgRow| Ok(History { id: key_id(row)?, rows: Vec::new(), journal: Vec::new() });
        let mut page = self.list(Lane::Admin, call(&self.sql.keys_after), named, read).await?;
        let ids: Vec<KeyId> = page.iter().map(|one| one.id.clone()).collect();
        let (tenants, keys) = columns(&ids);
        let (ids, call_rows): (Params<'_>, _) = (&[&tenants, &keys], call(&self.sql.histories));
        let read = |row: &PgRow| Ok((place(row)?, history_row(row)?));
        for (at, history_row) in self.list(Lane::Admin, call_rows, ids, read).await? {
            page.get_mut(at).ok_or_else(|| call_rows.unreadable("ord"))?.rows.push(history_row);
        }
        let call_journal = call(&self.sql.journal_of_many);
        let read = |row: &PgRow| Ok((place(row)?, entry(row)?));
        for (at, entry) in self.list(Lane::Admin, call_journal, ids, read).await? {
            page.get_mut(at).ok_or_else(|| call_journal.unreadable("ord"))?.journal.push(entry);
        }
        Ok(page)
    }
}

/// Parameters for the key after which a page begins. No tenant is empty, so every key comes after
/// the empty one.
fn behind(after: Option<&KeyId>) -> (&str, &[u8]) {
    after.map_or(("", b""), |id| (id.tenant().as_str(), id.key().as_bytes()))
}

/// Reads the end of the stretch, which each row carries, and the rows of its shared keys.
fn stretched(found: &[PgRow], most: u32) -> Result<Stretch, rows::Unreadable> {
    let first = found.first().ok_or("no row")?;
    let through = match get::<Option<&str>>(first, "through_tenant")? {
        Some(tenant) => Some(id_of(tenant, get(first, "through_key")?)?),
        None => None,
    };
    let looked_at = rows::count(first, "looked_at")?;
    let mut shared: Vec<(KeyId, Vec<Trace>)> = Vec::new();
    for row in found {
        if get::<Option<&str>>(row, "tenant")?.is_none() {
            continue;
        }
        let (id, trace) = (key_id(row)?, trace(row)?);
        match shared.last_mut().filter(|(last, _)| *last == id) {
            Some((_, rows)) => rows.push(trace),
            None => shared.push((id, vec![trace])),
        }
    }
    // A row and its older copy are no pair.
    shared.retain(|(_, traces)| traces.len() > 1);
    Ok(Stretch { shared, through, looked_at, more: looked_at >= u64::from(most) })
}

fn trace(row: &PgRow) -> Result<Trace, rows::Unreadable> {
    Ok(Trace {
        row: rows::read(row)?,
        route: get::<&str>(row, "route")?.into(),
        settled: get(row, "was_settled")?,
        over: get(row, "is_over")?,
        claimed: get::<Option<i64>>(row, "claimed_ms")?.map(Date),
        tombstone: rows::millis(get(row, "tombstone_ms")?)?,
    })
}

/// Attempts as columns.
#[derive(Default)]
struct Attempts {
    origins: Vec<String>,
    epochs: Vec<i64>,
    attempts: Vec<i32>,
    nonces: Vec<Uuid>,
}

impl Attempts {
    fn of<'a>(what: &'static str, rows: impl Iterator<Item = &'a Row>) -> Result<Self, StoreError> {
        let mut all = Self::default();
        for row in rows {
            all.origins.push(row.origin.to_string());
            all.epochs.push(big(what, row.token.epoch)?);
            all.attempts.push(small(what, row.token.attempt)?);
            all.nonces.push(Uuid::from_u128(row.nonce.0));
        }
        Ok(all)
    }

    fn params(&self) -> [&(dyn ToSql + Sync); 4] {
        [&self.origins, &self.epochs, &self.attempts, &self.nonces]
    }
}

/// Index of the requested key that a row is about.
fn place(row: &PgRow) -> Result<usize, rows::Unreadable> {
    let ord = usize::try_from(get::<i64>(row, "ord")?).map_err(|_| "ord")?;
    ord.checked_sub(1).ok_or("ord")
}

fn history_row(row: &PgRow) -> Result<HistoryRow, rows::Unreadable> {
    Ok(HistoryRow {
        row: rows::read(row)?,
        route: get::<&str>(row, "route")?.into(),
        path: get(row, "path")?,
        claimed: get::<Option<i64>>(row, "claimed_ms")?.map(Date),
        settled: get::<Option<i64>>(row, "settled_at_ms")?.map(Date),
        imported: get(row, "imported")?,
    })
}
