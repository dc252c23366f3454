//! The port `Upkeep`: reaping, the lists of the sweep and of the operator, acts by hand, the
//! journal.
//!
//! Calls use connections of their own, so that nothing here delays a request or a heartbeat.

use std::time::Duration;

use tokio_postgres::Row;
use uuid::Uuid;

use super::params::{
    self, Named, Params, StoredAnswer, behind, big, borrowed, checked, column, millis, pair, pairs, small,
};
use super::rows::{self, count, get, key_id, key_of};
use super::run::Call;
use super::{Lane, PgStore, answer, errors};
use crate::ports::Upkeep;
use crate::ports::store::{Attempt, ClaimAsk, StoreError, Written};
use crate::ports::upkeep::{
    Act, ClaimPage, Entry, ForeignPage, KeyStretch, ListedDoubt, OpenAttempt, Place, Reaped, Ruling, Who,
};
use crate::protocol::double::Why;
use crate::protocol::key::{Key, KeyId, Tenant};
use crate::protocol::record::{Basis, Recovery, RequestId};
use crate::protocol::time::Date;

impl Upkeep for PgStore {
    async fn reap(&self, most: u32, away: Option<u64>) -> Result<Reaped, StoreError> {
        let call = Call::writes("a batch of reaping", &self.sql.reap);
        let away = away.map(|epoch| big(call.what, epoch)).transpose()?;
        self.one(Lane::Upkeep, call, &[&i64::from(most), &away], |row| {
            let (expired, forgotten) = (count(row, "expired")?, count(row, "forgotten")?);
            Ok(Reaped { expired, forgotten, kept: count(row, "kept")? })
        })
        .await
    }

    async fn claims(
        &self,
        after: Option<Place>,
        older: Duration,
        most: u32,
    ) -> Result<ClaimPage, StoreError> {
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

    async fn doubts(&self, after: Option<&KeyId>, most: u32) -> Result<Vec<ListedDoubt>, StoreError> {
        let call = Call::reads("listing the keys in doubt", &self.sql.doubts);
        let (tenant, key) = after.map(pair).unzip();
        self.list(Lane::Admin, call, &[&tenant, &key, &i64::from(most)], |row| {
            let (since, excerpt) = (Date(get(row, "since_ms")?), get(row, "excerpt")?);
            Ok(ListedDoubt { open: open_attempt(row)?, since, excerpt })
        })
        .await
    }

    async fn excerpt(&self, id: &KeyId) -> Result<Option<String>, StoreError> {
        let call = Call::reads("reading what the upstream said", &self.sql.excerpt);
        let (tenant, key) = pair(id);
        Ok(self.list(Lane::Admin, call, &[&tenant, &key], |row| get(row, "excerpt")).await?.pop())
    }

    async fn foreign(&self, after: Option<&KeyId>, most: u32) -> Result<ForeignPage, StoreError> {
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

    async fn enlist(&self, ids: &[KeyId]) -> Result<(), StoreError> {
        let (tenants, keys) = pairs(ids);
        let call = Call::writes("listing doubts", &self.sql.enlist);
        self.on(Lane::Upkeep, call, &[&tenants, &keys]).await.map(drop)
    }

    async fn delist(&self, ids: &[KeyId]) -> Result<(), StoreError> {
        let (tenants, keys) = pairs(ids);
        let call = Call::writes("taking doubts off the list", &self.sql.delist);
        self.on(Lane::Upkeep, call, &[&tenants, &keys]).await.map(drop)
    }

    async fn unlist(&self) -> Result<u64, StoreError> {
        let call = Call::writes("clearing the list of doubts", &self.sql.unlist);
        self.one(Lane::Upkeep, call, &[], |row| count(row, "listed")).await
    }

    async fn rule(&self, attempt: &Attempt, act: &Act) -> Result<Written, StoreError> {
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

    async fn change_rule(
        &self,
        attempts: &[Attempt],
        rule: Recovery,
        by: Who<'_>,
    ) -> Result<u64, StoreError> {
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

    async fn stand_in(
        &self,
        ask: &ClaimAsk,
        ruling: &Ruling,
        by: Option<Who<'_>>,
    ) -> Result<Written, StoreError> {
        const WHAT: &str = "a record in another's place";
        if matches!(ask.basis, Basis::Absent) {
            return Err(errors::not_sent(WHAT, "there is nothing to stand in for"));
        }
        let (state, stored) = match ruling {
            Ruling::Settled(answer) => (rows::SETTLED, Some(StoredAnswer::of(WHAT, answer)?)),
            Ruling::Released => (rows::RELEASED, None),
        };
        let status = stored.as_ref().map(|stored| stored.status);
        let headers = stored.as_ref().map(|stored| stored.headers.as_slice());
        let body = stored.as_ref().and_then(|stored| stored.body.as_deref());
        let coding = stored.as_ref().map_or(answer::PLAIN, |stored| stored.coding);
        let length = stored.as_ref().and_then(|stored| stored.length);
        let (actor, reason) = by.map(|by| (by.actor, by.reason)).unzip();
        let claim = params::claim(WHAT, ask)?;
        let claim = borrowed(&claim);
        let end: Params<'_> = &[&state, &status, &headers, &body, &coding, &length, &actor, &reason];
        // Its outcome is known, so no wait and no rule go with it.
        let all = [&claim[..15], &claim[17..], end].concat();
        if !self.on(Lane::Upkeep, Call::writes(WHAT, &self.sql.stand_in), &all).await?.is_empty() {
            return Ok(Written::Done);
        }
        let call = Call::reads(WHAT, &self.sql.stood_in);
        let params = [&claim[..4], &[&state, &status]].concat();
        self.one(Lane::Upkeep, call, &params, |row| {
            Ok(match (get(row, "stands")?, get(row, "open")?) {
                (true, true | false) => Written::Done,
                (false, true) => Written::Lost,
                (false, false) => Written::GateMoved,
            })
        })
        .await
    }

    async fn live_keys(
        &self,
        tenant: &Tenant,
        after: Option<&Key>,
        most: u32,
    ) -> Result<KeyStretch, StoreError> {
        let call = Call::reads("counting a tenant's keys", &self.sql.live_keys);
        // No key is empty: everything comes after the empty one.
        let after = after.map_or(&b""[..], |key| key.as_bytes());
        self.one(Lane::Upkeep, call, &[&tenant.as_str(), &after, &i64::from(most)], |row| {
            let through = get::<Option<&[u8]>>(row, "through")?.map(key_of).transpose()?;
            Ok(KeyStretch { keys: count(row, "keys")?, through })
        })
        .await
    }

    async fn note(&self, kind: &str, reason: &str) -> Result<(), StoreError> {
        let call = Call::writes("a note in the journal", &self.sql.note);
        self.on(Lane::Upkeep, call, &[&kind, &reason]).await.map(drop)
    }

    async fn journal(&self, id: &KeyId) -> Result<Vec<Entry>, StoreError> {
        let call = Call::reads("reading the journal", &self.sql.journal);
        let (tenant, key) = pair(id);
        self.list(Lane::Admin, call, &[&tenant, &key], entry).await
    }
}

pub(super) fn entry(row: &Row) -> Result<Entry, rows::Unreadable> {
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
pub(super) fn explained(row: &Row) -> Result<Option<Why>, rows::Unreadable> {
    let (at_risk, named) = (get::<Option<bool>>(row, "at_risk")?, get::<Option<bool>>(row, "named")?);
    Ok(at_risk.zip(named).map(|(at_risk, named)| Why::of(at_risk, named)))
}

fn open_attempt(row: &Row) -> Result<OpenAttempt, rows::Unreadable> {
    Ok(OpenAttempt {
        id: key_id(row)?,
        row: rows::read(row)?,
        route: get::<&str>(row, "route")?.into(),
        path: get(row, "path")?,
    })
}
