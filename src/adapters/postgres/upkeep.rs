//! The ports `Upkeep` and `Audit`: reaping, lists, acts by hand; doubles, late answers, the
//! journal, all records of each key.
//!
//! Calls use connections of their own, so that nothing here delays a request or a heartbeat. `keys`
//! journals the doubles that a settlement meets.

use std::time::Duration;

use tokio_postgres::Row as PgRow;
use uuid::Uuid;

use super::errors::{self, Called};
use super::params::{
    self, Named, Param, Params, StoredAnswer, behind, big, borrowed, checked, column, millis, pair, pairs,
    small,
};
use super::rows::{self, count, get, id_of, key_id, key_of, place};
use super::run::Call;
use super::{Lane, PgStore};
use crate::ports::audit::{Begin, Counted, Double, Finding, History, HistoryRow, Of, Stretch};
use crate::ports::store::{Attempt, ClaimAsk, Written};
use crate::ports::upkeep::{
    Act, ClaimPage, Entry, ForeignPage, KeyStretch, ListedDoubt, OpenAttempt, Place, Reaped, Ruling, Who,
};
use crate::ports::{Audit, Upkeep};
use crate::protocol::double::{Trace, Why};
use crate::protocol::key::{Key, KeyId, Tenant};
use crate::protocol::record::{Answer, Basis, Recovery, RequestId, Row};
use crate::protocol::time::Date;

/// A thousand years: no entry is older, and the database's dates reach further.
const MOST_BACK: Duration = Duration::from_secs(1_000 * 365 * 86_400);

impl Upkeep for PgStore {
    async fn reap(&self, most: u32, away: Option<u64>) -> Called<Reaped> {
        let call = Call::writes("a batch of reaping", &self.sql.reap);
        let away = away.map(|epoch| big(call.what, epoch)).transpose()?;
        self.one(Lane::Upkeep, call, &[&i64::from(most), &away], |row| {
            let (expired, forgotten) = (count(row, "expired")?, count(row, "forgotten")?);
            Ok(Reaped { expired, forgotten, kept: count(row, "kept")? })
        })
        .await
    }

    async fn claims(&self, after: Option<Place>, older: Duration, most: u32) -> Called<ClaimPage> {
        let call = Call::reads("looking for abandoned claims", &self.sql.open_claims);
        let after = after.map(|Place(held)| held);
        self.read(Lane::Upkeep, call, &[&after, &millis(older), &i64::from(most)], |found| {
            let first = found.first().ok_or("no row")?;
            let through = get::<Option<i64>>(first, "through")?.map(Place);
            let more = count(first, "looked_at")? >= u64::from(most);
            let mut claims = Vec::new();
            for row in found {
                if get::<Option<&str>>(row, "tenant")?.is_some() {
                    claims.push(open_attempt(row)?);
                }
            }
            Ok(ClaimPage { claims, through, more })
        })
        .await
    }

    async fn doubts(&self, after: Option<&KeyId>, most: u32) -> Called<Vec<ListedDoubt>> {
        let call = Call::reads("listing the keys in doubt", &self.sql.doubts);
        let (tenant, key) = after.map(pair).unzip();
        self.list(Lane::Admin, call, &[&tenant, &key, &i64::from(most)], |row| {
            let (since, excerpt) = (Date(get(row, "since_ms")?), get(row, "excerpt")?);
            Ok(ListedDoubt { open: open_attempt(row)?, since, excerpt })
        })
        .await
    }

    async fn excerpt(&self, id: &KeyId) -> Called<Option<String>> {
        let call = Call::reads("reading what the upstream said", &self.sql.excerpt);
        let (tenant, key) = pair(id);
        Ok(self.list(Lane::Admin, call, &[&tenant, &key], |row| get(row, "excerpt")).await?.pop())
    }

    async fn foreign(&self, after: Option<&KeyId>, most: u32) -> Called<ForeignPage> {
        let call = Call::reads("looking for what other regions left open", &self.sql.foreign);
        let (tenant, key) = behind(after);
        self.read(Lane::Upkeep, call, &[&tenant, &key, &i64::from(most)], |found| {
            let mut page = ForeignPage::default();
            for row in found {
                match get::<bool>(row, "through")? {
                    true => {
                        page.through = Some(key_id(row)?);
                        page.more = count(row, "looked_at")? >= u64::from(most);
                    }
                    false => page.open.push(key_id(row)?),
                }
            }
            page.open.sort();
            Ok(page)
        })
        .await
    }

    async fn enlist(&self, ids: &[KeyId]) -> Called<()> {
        let (tenants, keys) = pairs(ids);
        let call = Call::writes("listing doubts", &self.sql.enlist);
        self.on(Lane::Upkeep, call, &[&tenants, &keys]).await.map(drop)
    }

    async fn delist(&self, ids: &[KeyId]) -> Called<()> {
        let (tenants, keys) = pairs(ids);
        let call = Call::writes("taking doubts off the list", &self.sql.delist);
        self.on(Lane::Upkeep, call, &[&tenants, &keys]).await.map(drop)
    }

    async fn unlist(&self) -> Called<u64> {
        let call = Call::writes("clearing the list of doubts", &self.sql.unlist);
        self.one(Lane::Upkeep, call, &[], |row| count(row, "listed")).await
    }

    async fn rule(&self, attempt: &Attempt, act: &Act) -> Called<Written> {
        const WHAT: &str = "an act by hand";
        let named = Named::of(WHAT, attempt)?;
        let (named, who): (_, Params<'_>) = (&named.params(), &[&act.actor, &act.reason]);
        let written = match &act.ruling {
            Ruling::Settled(answer) => {
                let stored = StoredAnswer::of(WHAT, answer)?;
                let call = Call::writes(WHAT, &self.sql.settle_by_hand);
                self.write(Lane::Admin, call, &[named.as_slice(), who, &stored.params()].concat()).await?
            }
            Ruling::Released => {
                let call = Call::writes(WHAT, &self.sql.release_by_hand);
                self.write(Lane::Admin, call, &[named.as_slice(), who].concat()).await?
            }
        };
        if written == Written::Done {
            return Ok(written);
        }
        self.explain_loss(Lane::Admin, Call::reads(WHAT, &self.sql.standing), named).await
    }

    async fn change_rule(&self, attempts: &[Attempt], rule: Recovery, by: Who<'_>) -> Called<u64> {
        let call = Call::writes("changing the rule of keys in doubt", &self.sql.rule);
        let params = [
            column(attempts, |attempt| pair(&attempt.id).0),
            column(attempts, |attempt| pair(&attempt.id).1),
            checked(attempts, |attempt| big(call.what, attempt.token.epoch))?,
            checked(attempts, |attempt| small(call.what, attempt.token.attempt))?,
            column(attempts, |attempt| Uuid::from_u128(attempt.nonce.0)),
            Box::new(rows::rule(rule)),
            Box::new(by.actor),
            Box::new(by.reason),
        ];
        self.one(Lane::Admin, call, &borrowed(&params), |row| count(row, "changed")).await
    }

    async fn stand_in(&self, ask: &ClaimAsk, ruling: &Ruling, by: Option<Who<'_>>) -> Called<Written> {
        const WHAT: &str = "a record in another's place";
        if matches!(ask.basis, Basis::Absent) {
            return Err(errors::not_sent(WHAT, "there is nothing to stand in for"));
        }
        let (state, stored) = match ruling {
            Ruling::Settled(answer) => (rows::SETTLED, StoredAnswer::of(WHAT, answer)?),
            Ruling::Released => (rows::RELEASED, StoredAnswer::default()),
        };
        let (actor, reason) = by.map(|by| (by.actor, by.reason)).unzip();
        let claim = params::claim(WHAT, ask)?;
        let claim = borrowed(&claim);
        let by: Params<'_> = &[&actor, &reason];
        // Its outcome is known, so no wait and no rule go with it.
        let all = [&claim[..15], &claim[17..], &[&state], &stored.params(), by].concat();
        if !self.on(Lane::Upkeep, Call::writes(WHAT, &self.sql.stand_in), &all).await?.is_empty() {
            return Ok(Written::Done);
        }
        let call = Call::reads(WHAT, &self.sql.stood_in);
        let params = [&claim[..4], &[&state, &stored.status]].concat();
        self.one(Lane::Upkeep, call, &params, |row| {
            Ok(match (get(row, "stands")?, get(row, "open")?) {
                (true, true | false) => Written::Done,
                (false, true) => Written::Lost,
                (false, false) => Written::GateMoved,
            })
        })
        .await
    }

    async fn live_keys(&self, tenant: &Tenant, after: Option<&Key>, most: u32) -> Called<KeyStretch> {
        let call = Call::reads("counting a tenant's keys", &self.sql.live_keys);
        // No key is empty: everything comes after the empty one.
        let after = after.map_or(&b""[..], |key| key.as_bytes());
        self.one(Lane::Upkeep, call, &[&tenant.as_str(), &after, &i64::from(most)], |row| {
            let through = get::<Option<&[u8]>>(row, "through")?.map(key_of).transpose()?;
            Ok(KeyStretch { keys: count(row, "keys")?, through })
        })
        .await
    }

    async fn note(&self, kind: &str, reason: &str) -> Called<()> {
        let call = Call::writes("a note in the journal", &self.sql.note);
        self.on(Lane::Upkeep, call, &[&kind, &reason]).await.map(drop)
    }

    async fn journal(&self, id: &KeyId) -> Called<Vec<Entry>> {
        let call = Call::reads("reading the journal", &self.sql.journal);
        let (tenant, key) = pair(id);
        self.list(Lane::Admin, call, &[&tenant, &key], entry).await
    }
}

impl Audit for PgStore {
    async fn runs_at_risk(&self, after: Option<&KeyId>, most: u32) -> Called<Vec<OpenAttempt>> {
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

fn entry(row: &PgRow) -> Result<Entry, rows::Unreadable> {
    let token =
        get::<Option<i64>>(row, "epoch")?.map(|_| rows::token(&rows::Columns::of(row))).transpose()?;
    let status = get::<Option<i16>>(row, "status")?.map(u16::try_from).transpose().map_err(|_| "status")?;
    Ok(Entry {
        at: Date(get(row, "at_ms")?),
        kind: get(row, "kind")?,
        token,
        request_id: get::<Option<Uuid>>(row, "request_id")?.map(|id| RequestId(id.as_u128())),
        status,
        actor: get(row, "actor")?,
        reason: get(row, "reason")?,
        explained: explained(row)?,
    })
}

/// Explanation of a double, by the facts in its entry.
fn explained(row: &PgRow) -> Result<Option<Why>, rows::Unreadable> {
    let (at_risk, named) = (get::<Option<bool>>(row, "at_risk")?, get::<Option<bool>>(row, "named")?);
    Ok(at_risk.zip(named).map(|(at_risk, named)| Why::of(at_risk, named)))
}

fn open_attempt(row: &PgRow) -> Result<OpenAttempt, rows::Unreadable> {
    Ok(OpenAttempt {
        id: key_id(row)?,
        row: rows::read(row)?,
        route: get::<&str>(row, "route")?.into(),
        path: get(row, "path")?,
    })
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
