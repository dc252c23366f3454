//! The port `Escrows`: claims of other regions that were lodged here.
//!
//! `imports` keeps the other rows of other regions. This file must not judge whether an escrow
//! proves anything.

use uuid::Uuid;

use super::errors;
use super::numbers::{big, millis, promised, small};
use super::rows::{self, StoredAnswer, count};
use super::run::{Call, Params};
use super::{Lane, PgStore};
use crate::ports::Escrows;
use crate::ports::authority::{Lodged, Lodging};
use crate::ports::store::{GateVersion, StoreError, Written};
use crate::protocol::key::KeyId;
use crate::protocol::record::{Answer, Nonce, Token};
use crate::protocol::region::Origin;

/// A lodged claim as columns.
struct Named<'a> {
    tenant: &'a str,
    key: &'a [u8],
    origin: String,
    epoch: i64,
    attempt: i32,
    nonce: Uuid,
}

impl<'a> Named<'a> {
    fn of(
        what: &str,
        id: &'a KeyId,
        origin: &Origin,
        token: Token,
        nonce: Nonce,
    ) -> Result<Self, StoreError> {
        Ok(Self {
            tenant: id.tenant().as_str(),
            key: id.key().as_bytes(),
            origin: origin.to_string(),
            epoch: big(what, token.epoch)?,
            attempt: small(what, token.attempt)?,
            nonce: Uuid::from_u128(nonce.0),
        })
    }

    fn params(&self) -> [&(dyn tokio_postgres::types::ToSql + Sync); 6] {
        [&self.tenant, &self.key, &self.origin, &self.epoch, &self.attempt, &self.nonce]
    }
}

impl Escrows for PgStore {
    async fn lodge(&self, lodging: &Lodging, gate: GateVersion) -> Result<Lodged, StoreError> {
        const WHAT: &str = "lodging a claim";
        let Lodging {
            id,
            origin,
            token,
            nonce,
            fingerprint,
            request_id,
            hold,
            settle_time,
            recovery,
            lifetime,
            route,
            path,
            principal,
        } = lodging;
        let named = Named::of(WHAT, id, origin, *token, *nonce)?;
        let version = big(WHAT, gate.0)?;
        let (raw, request_id) = (fingerprint.raw.as_bytes().as_slice(), Uuid::from_u128(request_id.0));
        let canonical = fingerprint.canonical.as_ref().map(|digest| digest.as_bytes().as_slice());
        let promised = promised(lifetime);
        let (hold, skew, tombstone) = (millis(*hold), millis(lifetime.skew), millis(lifetime.tombstone));
        let (route, principal) = (&**route, principal.as_ref().map(|digest| digest.as_bytes().as_slice()));
        let compared: Params<'_> = &[&version];
        let asked: Params<'_> = &[&raw, &canonical, &request_id];
        let life: Params<'_> = &[&hold, &promised, &skew, &tombstone, &route, path, &principal];
        let call = Call::writes(WHAT, &self.sql.lodge);
        let after: Params<'_> = &[&millis(*settle_time), &rows::rule(*recovery)];
        let all = [compared, &named.params(), asked, life, after].concat();
        if !self.on(Lane::Peers, call, &all).await?.is_empty() {
            return Ok(Lodged::Done);
        }
        let call = Call::reads(WHAT, &self.sql.lodged);
        self.one(Lane::Peers, call, &[compared, &named.params()].concat(), |row| {
            Ok(match (rows::get(row, "stands")?, rows::get(row, "open")?) {
                (true, true | false) => Lodged::Done,
                (false, false) => Lodged::GateMoved,
                (false, true) => Lodged::Superseded,
            })
        })
        .await
    }

    async fn void(&self, id: &KeyId, origin: &Origin, token: Token, nonce: Nonce) -> Result<(), StoreError> {
        const WHAT: &str = "voiding an escrow";
        let named = Named::of(WHAT, id, origin, token, nonce)?;
        let call = Call::writes(WHAT, &self.sql.void);
        self.on(Lane::Peers, call, &named.params()).await.map(|_| ())
    }

    async fn lodge_answer(
        &self,
        id: &KeyId,
        origin: &Origin,
        token: Token,
        nonce: Nonce,
        answer: &Answer,
    ) -> Result<Written, StoreError> {
        const WHAT: &str = "lodging an answer";
        let (named, stored) = (Named::of(WHAT, id, origin, token, nonce)?, StoredAnswer::of(WHAT, answer)?);
        let call = Call::writes(WHAT, &self.sql.lodge_answer);
        let params = [named.params().as_slice(), &stored.params()].concat();
        self.write(Lane::Peers, call, &params).await
    }

    async fn convert(&self, origin: &Origin, most: u32) -> Result<u64, StoreError> {
        const WHAT: &str = "turning escrows into records";
        let call = Call::writes(WHAT, &self.sql.convert);
        let params: Params<'_> = &[&origin.to_string(), &i64::from(most)];
        let read = |row: &_| Ok((count(row, "taken")?, rows::get::<bool>(row, "open")?));
        match self.one(Lane::Upkeep, call, params, read).await? {
            (taken, true) => Ok(taken),
            // Zero would say that nothing is left.
            (_, false) => Err(errors::not_sent(WHAT, "the running boot is not approved")),
        }
    }

    async fn reap_escrows(&self, most: u32) -> Result<u64, StoreError> {
        let call = Call::writes("reaping escrows", &self.sql.reap_escrows);
        let params: Params<'_> = &[&i64::from(most)];
        self.one(Lane::Upkeep, call, params, |row| count(row, "gone")).await
    }
}
