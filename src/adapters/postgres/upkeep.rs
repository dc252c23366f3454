//! The port `Upkeep`: reaping, the lists of the sweep and of the operator, acts by hand, the
//! journal.
//!
//! Calls use connections of their own, so that nothing here delays a request or a heartbeat. This
//! file must not decide when any of it runs.

use std::time::Duration;

use uuid::Uuid;

use super::errors;
use super::numbers::{big, millis, promised, small};
use super::rows::{self, StoredAnswer, count, get};
use super::run::{Call, Params};
use super::{Lane, PgStore, packed};
use crate::ports::Upkeep;
use crate::ports::store::{Attempt, ClaimAsk, StoreError, Written};
use crate::ports::upkeep::{
    Act, ClaimPage, Entry, ForeignPage, KeyStretch, ListedDoubt, OpenAttempt, Place, Reaped, Ruling, Who,
};
use crate::protocol::decide::Basis;
use crate::protocol::double::Why;
use crate::protocol::key::{Key, KeyId, Tenant};
use crate::protocol::record::{Recovery, RequestId, Token};
use crate::protocol::time::Date;

impl Upkeep for PgStore {
    async fn reap(&self, most: u32, away: Option<u64>) -> Result<Reaped, StoreError> {
        const WHAT: &str = "a batch of reaping";
        let call = Call::writes(WHAT, &self.sql.reap);
        let away = away.map(|epoch| big(WHAT, epoch)).transpose()?;
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
        let found = self.on(Lane::Upkeep, call, &[&after, &millis(older), &i64::from(most)]).await?;
        let read = || {
            let first = found.first().ok_or("no row")?;
            let through = get::<Option<i64>>(first, "through")?.map(Place);
            let more = count(first, "looked_at")? >= u64::from(most);
            let mut claims = Vec::new();
            for row in &found {
                if get::<Option<&str>>(row, "tenant")?.is_some() {
                    claims.push(open_attempt(row)?);
                }
            }
            Ok(ClaimPage { claims, through, more })
        };
        read().map_err(|why| call.unreadable(why))
    }

    async fn doubts(&self, after: Option<&KeyId>, most: u32) -> Result<Vec<ListedDoubt>, StoreError> {
        let call = Call::reads("listing the keys in doubt", &self.sql.doubts);
        let (tenant, key) = (after.map(|id| id.tenant().as_str()), after.map(|id| id.key().as_bytes()));
        self.list(Lane::Admin, call, &[&tenant, &key, &i64::from(most)], |row| {
            let (since, excerpt) = (Date(get(row, "since_ms")?), get(row, "excerpt")?);
            Ok(ListedDoubt { open: open_attempt(row)?, since, excerpt })
        })
        .await
    }

    async fn excerpt(&self, id: &KeyId) -> Result<Option<String>, StoreError> {
        let call = Call::reads("reading what the upstream said", &self.sql.excerpt);
        let named: Params<'_> = &[&id.tenant().as_str(), &id.key().as_bytes()];
        Ok(self.list(Lane::Admin, call, named, |row| get(row, "excerpt")).await?.pop())
    }

    async fn foreign(&self, after: Option<&KeyId>, most: u32) -> Result<ForeignPage, StoreError> {
        let call = Call::reads("looking for what other regions left open", &self.sql.foreign);
        // No tenant is empty: everything comes after the empty one.
        let tenant = after.map_or("", |id| id.tenant().as_str());
        let key = after.map_or(&b""[..], |id| id.key().as_bytes());
        let found = self.on(Lane::Upkeep, call, &[&tenant, &key, &i64::from(most)]).await?;
        let read = || {
            let mut page = ForeignPage::default();
            for row in &found {
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
        };
        read().map_err(|why| call.unreadable(why))
    }

    async fn enlist(&self, ids: &[KeyId]) -> Result<(), StoreError> {
        let call = Call::writes("listing doubts", &self.sql.enlist);
        let (tenants, keys) = columns(ids);
        self.on(Lane::Upkeep, call, &[&tenants, &keys]).await.map(|_| ())
    }

    async fn delist(&self, ids: &[KeyId]) -> Result<(), StoreError> {
        let call = Call::writes("taking doubts off the list", &self.sql.delist);
        let (tenants, keys) = columns(ids);
        self.on(Lane::Upkeep, call, &[&tenants, &keys]).await.map(|_| ())
    }

    async fn unlist(&self) -> Result<u64, StoreError> {
        let call = Call::writes("clearing the list of doubts", &self.sql.unlist);
        self.one(Lane::Upkeep, call, &[], |row| count(row, "listed")).await
    }

    async fn rule(&self, attempt: &Attempt, act: &Act) -> Result<Written, StoreError> {
        const WHAT: &str = "an act by hand";
        let (tenant, key) = (attempt.id.tenant().as_str(), attempt.id.key().as_bytes());
        let (epoch, number) = (big(WHAT, attempt.token.epoch)?, small(WHAT, attempt.token.attempt)?);
        let nonce = Uuid::from_u128(attempt.nonce.0);
        let named: Params<'_> = &[&tenant, &key, &epoch, &number, &nonce];
        let who: Params<'_> = &[&act.actor, &act.reason];
        let written = match &act.ruling {
            Ruling::Settled(answer) => {
                let stored = StoredAnswer::of(WHAT, answer)?;
                let call = Call::writes(WHAT, &self.sql.settle_by_hand);
                self.write(Lane::Admin, call, &[named, who, &stored.params()].concat()).await?
            }
            Ruling::Released => {
                let call = Call::writes(WHAT, &self.sql.release_by_hand);
                self.write(Lane::Admin, call, &[named, who].concat()).await?
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
        const WHAT: &str = "changing the rule of keys in doubt";
        let tenants: Vec<&str> = attempts.iter().map(|attempt| attempt.id.tenant().as_str()).collect();
        let keys: Vec<&[u8]> = attempts.iter().map(|attempt| attempt.id.key().as_bytes()).collect();
        let epochs = attempts.iter().map(|attempt| big(WHAT, attempt.token.epoch));
        let epochs: Vec<i64> = epochs.collect::<Result<_, _>>()?;
        let numbers = attempts.iter().map(|attempt| small(WHAT, attempt.token.attempt));
        let numbers: Vec<i32> = numbers.collect::<Result<_, _>>()?;
        let nonces: Vec<Uuid> = attempts.iter().map(|attempt| Uuid::from_u128(attempt.nonce.0)).collect();
        let call = Call::writes(WHAT, &self.sql.rule);
        let params: Params<'_> =
            &[&tenants, &keys, &epochs, &numbers, &nonces, &rows::rule(rule), &by.actor, &by.reason];
        self.one(Lane::Admin, call, params, |row| rows::count(row, "changed")).await
    }

    async fn stand_in(
        &self,
        ask: &ClaimAsk,
        ruling: &Ruling,
        by: Option<Who<'_>>,
    ) -> Result<Written, StoreError> {
        const WHAT: &str = "a record in another's place";
        let Basis::Known { own, over, attempt } = &ask.basis else {
            return Err(errors::not_sent(WHAT, "there is nothing to stand in for"));
        };
        let (tenant, key) = (ask.id.tenant().as_str(), ask.id.key().as_bytes());
        let (nonce, request_id) = (Uuid::from_u128(ask.nonce.0), Uuid::from_u128(ask.request_id.0));
        let gate = big(WHAT, ask.gate.0)?;
        let raw = ask.fingerprint.raw.as_bytes().as_slice();
        let canonical = ask.fingerprint.canonical.as_ref().map(|digest| digest.as_bytes().as_slice());
        let promised = promised(&ask.lifetime);
        let (hold, skew, tombstone) =
            (millis(ask.hold), millis(ask.lifetime.skew), millis(ask.lifetime.tombstone));
        let (route, risk) = (&*ask.route, rows::names(&ask.risk));
        let principal = ask.principal.as_ref().map(|digest| digest.as_bytes().as_slice());
        let attempt = small(WHAT, *attempt)?;
        let own_epoch = own.map(|(token, _)| big(WHAT, token.epoch)).transpose()?;
        let own_attempt = own.map(|(token, _)| small(WHAT, token.attempt)).transpose()?;
        let own_nonce = own.map(|(_, nonce)| Uuid::from_u128(nonce.0));
        let over = rows::over_json(over);
        let (state, stored) = match ruling {
            Ruling::Settled(answer) => (rows::SETTLED, Some(StoredAnswer::of(WHAT, answer)?)),
            Ruling::Released => (rows::RELEASED, None),
        };
        let status = stored.as_ref().map(|stored| stored.status);
        let headers = stored.as_ref().map(|stored| stored.headers.as_slice());
        let body = stored.as_ref().and_then(|stored| stored.body.as_deref());
        let coding = stored.as_ref().map_or(packed::PLAIN, |stored| stored.coding);
        let length = stored.as_ref().and_then(|stored| stored.length);
        let (actor, reason) = by.map(|by| (by.actor, by.reason)).unzip();
        let named: Params<'_> = &[&tenant, &key, &gate, &nonce, &request_id, &raw, &canonical];
        let life: Params<'_> = &[&hold, &promised, &skew, &tombstone, &route, &ask.path, &principal, &risk];
        let basis: Params<'_> = &[&attempt, &own_epoch, &own_attempt, &own_nonce, &over];
        let end: Params<'_> = &[&state, &status, &headers, &body, &coding, &length, &actor, &reason];
        let call = Call::writes(WHAT, &self.sql.stand_in);
        if !self.on(Lane::Upkeep, call, &[named, life, basis, end].concat()).await?.is_empty() {
            return Ok(Written::Done);
        }
        let call = Call::reads(WHAT, &self.sql.stood_in);
        let params: Params<'_> = &[&tenant, &key, &gate, &nonce, &state, &status];
        self.one(Lane::Upkeep, call, params, |row| {
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
        self.on(Lane::Upkeep, call, &[&kind, &reason]).await.map(|_| ())
    }

    async fn journal(&self, id: &KeyId) -> Result<Vec<Entry>, StoreError> {
        let call = Call::reads("reading the journal", &self.sql.journal);
        self.list(Lane::Admin, call, &[&id.tenant().as_str(), &id.key().as_bytes()], entry).await
    }
}

/// Keys as parameters.
pub(super) fn columns(ids: &[KeyId]) -> (Vec<&str>, Vec<&[u8]>) {
    ids.iter().map(|id| (id.tenant().as_str(), id.key().as_bytes())).unzip()
}

/// Reads an entry of the journal.
pub(super) fn entry(row: &tokio_postgres::Row) -> Result<Entry, rows::Unreadable> {
    let token = match get::<Option<i64>>(row, "epoch")? {
        Some(_) => Some(rows::token(&rows::Columns::of(row))?),
        None => None::<Token>,
    };
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
pub(super) fn explained(row: &tokio_postgres::Row) -> Result<Option<Why>, rows::Unreadable> {
    let (at_risk, named) = (get::<Option<bool>>(row, "at_risk")?, get::<Option<bool>>(row, "named")?);
    Ok(at_risk.zip(named).map(|(at_risk, named)| Why::of(at_risk, named)))
}

/// Reads the key of a row.
pub(super) fn key_id(row: &tokio_postgres::Row) -> Result<KeyId, rows::Unreadable> {
    id_of(get(row, "tenant")?, get(row, "key")?)
}

/// Reads a stored key.
pub(super) fn id_of(tenant: &str, key: &[u8]) -> Result<KeyId, rows::Unreadable> {
    let tenant = Tenant::parse(tenant).map_err(|_| "tenant")?;
    Ok(KeyId::new(tenant, key_of(key)?))
}

fn key_of(key: &[u8]) -> Result<Key, rows::Unreadable> {
    Key::parse(std::str::from_utf8(key).map_err(|_| "key")?).map_err(|_| "key")
}

fn open_attempt(row: &tokio_postgres::Row) -> Result<OpenAttempt, rows::Unreadable> {
    Ok(OpenAttempt {
        id: key_id(row)?,
        row: rows::read(row)?,
        route: get::<&str>(row, "route")?.into(),
        path: get(row, "path")?,
    })
}
