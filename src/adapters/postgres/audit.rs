//! The port `Audit`: runs at risk with their doubles, late answers, and all records of each key.
//!
//! `keys` journals the doubles that a settlement meets; `upkeep` reads the journal of one key.

use std::time::Duration;

use tokio_postgres::Row as PgRow;
use uuid::Uuid;

use super::errors::Called;
use super::params::{
    Named, Param, Params, StoredAnswer, behind, big, borrowed, checked, column, millis, pair, pairs, small,
};
use super::rows::{self, get, id_of, key_id, place};
use super::run::Call;
use super::upkeep::{entry, explained, open_attempt};
use super::{Lane, PgStore};
use crate::ports::Audit;
use crate::ports::audit::{Begin, Counted, Double, Finding, History, HistoryRow, Of, RunAtRisk, Stretch};
use crate::ports::store::Attempt;
use crate::ports::upkeep::Place;
use crate::protocol::double::{Trace, Why};
use crate::protocol::key::KeyId;
use crate::protocol::record::{Answer, RequestId, Row};
use crate::protocol::time::Date;

/// A thousand years: no entry is older, and the database's dates reach further.
const MOST_BACK: Duration = Duration::from_secs(1_000 * 365 * 86_400);

impl Audit for PgStore {
    async fn runs_at_risk(&self, after: Option<&KeyId>, most: u32) -> Called<Vec<RunAtRisk>> {
        let call = Call::reads("listing runs at risk", &self.sql.runs_at_risk);
        let (tenant, key) = after.map(pair).unzip();
        self.list(Lane::Admin, call, &[&tenant, &key, &i64::from(most)], open_attempt).await
    }

    async fn stretch(&self, of: Of, after: Option<&KeyId>, most: u32) -> Called<Stretch> {
        let sql = match of {
            Of::All => &self.sql.comb,
            Of::AtRisk => &self.sql.at_risk,
        };
        let call = Call::reads("looking for keys that ran twice", sql);
        let (tenant, key) = behind(after);
        let params: Params<'_> = &[&tenant, &key, &i64::from(most)];
        self.read(Lane::Upkeep, call, params, |found| stretched(found, most)).await
    }

    async fn traces(&self, ids: &[KeyId]) -> Called<Vec<Vec<Trace>>> {
        let call = Call::reads("reading the rows of keys", &self.sql.traces);
        let (tenants, keys) = pairs(ids);
        self.of_keys(Lane::Upkeep, call, ids.len(), &[&tenants, &keys], trace).await
    }

    async fn journal_doubles(&self, found: &[Double]) -> Called<Vec<bool>> {
        let call = Call::writes("journalling keys that ran twice", &self.sql.journal_doubles);
        let first = attempts(call.what, found, |double| &double.first)?;
        let second = attempts(call.what, found, |double| &double.second)?;
        let ids = [column(found, |double| pair(&double.id).0), column(found, |double| pair(&double.id).1)];
        let facts = [
            column(found, |double| double.at_risk),
            column(found, |double| double.named),
            column(found, |double| double.reason.as_str()),
        ];
        let params: Vec<Param<'_>> = ids.into_iter().chain(first).chain(second).chain(facts).collect();
        let mut journalled = vec![false; found.len()];
        for at in self.list(Lane::Upkeep, call, &borrowed(&params), place).await? {
            journalled.get_mut(at).into_iter().for_each(|held| *held = true);
        }
        Ok(journalled)
    }

    async fn doubles(&self) -> Called<Counted> {
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

    async fn late(&self, attempt: &Attempt, request_id: Option<RequestId>, answer: &Answer) -> Called<bool> {
        let call = Call::writes("journalling a late answer", &self.sql.late);
        let (named, stored) = (Named::of(call.what, attempt)?, StoredAnswer::of(call.what, answer)?);
        let request = request_id.map(|id| Uuid::from_u128(id.0));
        let answered: Params<'_> = &[&request, &stored.status, &stored.length, &stored.body];
        Ok(self.number(Lane::Upkeep, call, &[&named.params(), answered].concat()).await? > 0)
    }

    async fn findings(&self, after: Option<Place>, back: Duration, most: u32) -> Called<Vec<Finding>> {
        let call = Call::reads("listing doubles and late answers", &self.sql.findings);
        // The first entry is number 1.
        let after = after.map_or(0, |Place(id)| id);
        let back = millis(back.min(MOST_BACK));
        self.list(Lane::Admin, call, &[&after, &back, &i64::from(most)], |row| {
            Ok(Finding { place: Place(get(row, "place")?), id: key_id(row)?, entry: entry(row)? })
        })
        .await
    }

    async fn rows_of_key(&self, id: &KeyId) -> Called<Vec<HistoryRow>> {
        let (tenants, keys) = pairs(std::slice::from_ref(id));
        let call = Call::reads("reading the rows of a key", &self.sql.histories);
        self.list(Lane::Admin, call, &[&tenants, &keys], history_row).await
    }

    async fn histories(&self, begin: Begin<'_>, most: u32) -> Called<Vec<History>> {
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
        let (tenants, keys) = pairs(&ids);
        let (named, count): (Params<'_>, _) = (&[&tenants, &keys], ids.len());
        let rows = self.of_keys(Lane::Admin, call(&self.sql.histories), count, named, history_row).await?;
        let journals =
            self.of_keys(Lane::Admin, call(&self.sql.journal_of_many), count, named, entry).await?;
        for (history, (rows, journal)) in page.iter_mut().zip(rows.into_iter().zip(journals)) {
            (history.rows, history.journal) = (rows, journal);
        }
        Ok(page)
    }
}

/// Attempts, in four columns.
fn attempts<'a>(what: &str, found: &'a [Double], of: fn(&'a Double) -> &'a Row) -> Called<[Param<'a>; 4]> {
    Ok([
        column(found, |double| of(double).origin.to_string()),
        checked(found, |double| big(what, of(double).token.epoch))?,
        checked(found, |double| small(what, of(double).token.attempt))?,
        column(found, |double| Uuid::from_u128(of(double).nonce.0)),
    ])
}

/// Reads the end of the stretch, which each row carries, and the rows of its shared keys.
fn stretched(found: &[PgRow], most: u32) -> Result<Stretch, rows::Unreadable> {
    let first = found.first().ok_or("no row")?;
    let through = get::<Option<&str>>(first, "through_tenant")?;
    let through = through.map(|tenant| id_of(tenant, get(first, "through_key")?)).transpose()?;
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
