//! Values as columns: the parameters of statements.
//!
//! A number that its column cannot hold is an error before anything is sent. Nothing is cut to fit.

use std::borrow::Cow;
use std::time::Duration;

use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::answer::{self, Packed};
use super::{errors, rows};
use crate::ports::store::{Attempt, ClaimAsk, StoreError, Terms};
use crate::protocol::digest::Digest32;
use crate::protocol::key::KeyId;
use crate::protocol::lifetime::{Lifetime, Retention};
use crate::protocol::record::{Answer, AnswerBody, Basis};
use crate::protocol::region::RegionName;

pub(super) type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

pub(super) type Param<'a> = Box<dyn ToSql + Send + Sync + 'a>;

/// The form in which a statement takes parameters.
pub(super) fn borrowed<'a>(params: &'a [Param<'_>]) -> Vec<&'a (dyn ToSql + Sync)> {
    params.iter().map(|param| &**param as &(dyn ToSql + Sync)).collect()
}

/// One value of each member, in one parameter.
pub(super) fn column<'a, M, T>(members: &'a [M], of: impl Fn(&'a M) -> T) -> Param<'a>
where
    Vec<T>: ToSql + Send + Sync + 'a,
{
    Box::new(members.iter().map(of).collect::<Vec<T>>())
}

/// The same for values that a column may not hold.
pub(super) fn checked<'a, M, T>(
    members: &'a [M],
    of: impl Fn(&'a M) -> Result<T, StoreError>,
) -> Result<Param<'a>, StoreError>
where
    Vec<T>: ToSql + Send + Sync + 'a,
{
    Ok(Box::new(members.iter().map(of).collect::<Result<Vec<T>, _>>()?))
}

pub(super) fn pair(id: &KeyId) -> (&str, &[u8]) {
    (id.tenant().as_str(), id.key().as_bytes())
}

/// The key after which a page begins. No tenant is empty, so every key comes after the empty one.
pub(super) fn behind(after: Option<&KeyId>) -> (&str, &[u8]) {
    after.map_or(("", b""), pair)
}

/// Keys, each as an element of two arrays.
pub(super) fn pairs(ids: &[KeyId]) -> (Vec<&str>, Vec<&[u8]>) {
    ids.iter().map(pair).unzip()
}

pub(super) fn bytes(digest: &Digest32) -> &[u8] {
    digest.as_bytes()
}

/// Regions as `risk` stores them.
pub(super) fn names(regions: &[RegionName]) -> Vec<&str> {
    regions.iter().map(RegionName::as_str).collect()
}

/// The retention in milliseconds. `None`: for ever.
pub(super) fn promised(lifetime: &Lifetime) -> Option<i64> {
    match lifetime.retention {
        Retention::For(span) => Some(millis(span)),
        Retention::Never => None,
    }
}

pub(super) fn big(what: &str, value: u64) -> Result<i64, StoreError> {
    i64::try_from(value).map_err(|_| errors::not_sent(what, "a number is too large to be stored"))
}

pub(super) fn small(what: &str, value: u32) -> Result<i32, StoreError> {
    i32::try_from(value).map_err(|_| errors::not_sent(what, "an attempt number is too large to be stored"))
}

pub(super) fn status(what: &str, value: u16) -> Result<i16, StoreError> {
    i16::try_from(value).map_err(|_| errors::not_sent(what, "a status is not one of HTTP's"))
}

/// Whole milliseconds, rounded up: no stored span is shorter than the promised one.
pub(super) fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
}

pub(super) struct Named<'a> {
    tenant: &'a str,
    key: &'a [u8],
    epoch: i64,
    attempt: i32,
    nonce: Uuid,
}

impl<'a> Named<'a> {
    pub(super) fn of(what: &str, Attempt { id, token, nonce }: &'a Attempt) -> Result<Self, StoreError> {
        let ((tenant, key), nonce) = (pair(id), Uuid::from_u128(nonce.0));
        Ok(Self { tenant, key, epoch: big(what, token.epoch)?, attempt: small(what, token.attempt)?, nonce })
    }

    pub(super) fn params(&self) -> [&(dyn ToSql + Sync); 5] {
        [&self.tenant, &self.key, &self.epoch, &self.attempt, &self.nonce]
    }
}

/// Parameters of a claim's terms, but for its nonce.
pub(super) fn terms(terms: &Terms) -> [Param<'_>; 12] {
    [
        Box::new(bytes(&terms.fingerprint.raw)),
        Box::new(terms.fingerprint.canonical.as_ref().map(bytes)),
        Box::new(Uuid::from_u128(terms.request_id.0)),
        Box::new(millis(terms.hold)),
        Box::new(promised(&terms.lifetime)),
        Box::new(millis(terms.lifetime.skew)),
        Box::new(millis(terms.lifetime.tombstone)),
        Box::new(&*terms.route),
        Box::new(terms.path.as_str()),
        Box::new(terms.principal.as_ref().map(bytes)),
        Box::new(millis(terms.settle_time)),
        Box::new(rows::rule(terms.recovery)),
    ]
}

/// Parameters of a claim: the key and its request, then the life of its record, then the basis.
pub(super) fn claim<'a>(what: &str, ask: &'a ClaimAsk) -> Result<[Param<'a>; 22], StoreError> {
    let (own, over, attempt) = match &ask.basis {
        Basis::Absent => (None, None, 0),
        Basis::Known { own, over, attempt } => (*own, Some(rows::over_json(over)), small(what, *attempt)?),
    };
    let [raw, canonical, request, hold, promised, skew, tombstone, route, path, principal, settle, rule] =
        terms(&ask.terms);
    Ok([
        Box::new(ask.id.tenant().as_str()),
        Box::new(ask.id.key().as_bytes()),
        Box::new(big(what, ask.gate.0)?),
        Box::new(Uuid::from_u128(ask.terms.nonce.0)),
        request,
        raw,
        canonical,
        hold,
        promised,
        skew,
        tombstone,
        route,
        path,
        principal,
        Box::new(names(&ask.risk)),
        settle,
        rule,
        Box::new(attempt),
        Box::new(own.map(|(token, _)| big(what, token.epoch)).transpose()?),
        Box::new(own.map(|(token, _)| small(what, token.attempt)).transpose()?),
        Box::new(own.map(|(_, nonce)| Uuid::from_u128(nonce.0))),
        Box::new(over),
    ])
}

/// An answer; by default none. [`rows::answer`] reads it back.
#[derive(Clone, Default)]
pub(super) struct StoredAnswer<'a> {
    pub(super) status: Option<i16>,
    pub(super) headers: Option<Vec<u8>>,
    pub(super) coding: i16,
    pub(super) body: Option<Cow<'a, [u8]>>,
    pub(super) length: Option<i32>,
}

impl<'a> StoredAnswer<'a> {
    /// An error if the columns cannot hold it; then nothing was sent.
    pub(super) fn of(what: &str, answer: &'a Answer) -> Result<Self, StoreError> {
        let headers = answer::encode(&answer.headers);
        let headers = headers.ok_or_else(|| errors::not_sent(what, "a header is too long to be stored"))?;
        let mut stored =
            Self { status: Some(status(what, answer.status)?), headers: Some(headers), ..Self::default() };
        if let AnswerBody::Kept(bytes) = &answer.body {
            let Packed { coding, bytes, length } = answer::pack(bytes);
            (stored.coding, stored.body, stored.length) = (coding, Some(bytes), Some(length));
        }
        Ok(stored)
    }

    pub(super) fn into_owned(self) -> StoredAnswer<'static> {
        StoredAnswer { body: self.body.map(|body| Cow::Owned(body.into_owned())), ..self }
    }

    /// Status, headers, body, coding, length.
    pub(super) fn params(&self) -> [&(dyn ToSql + Sync); 5] {
        [&self.status, &self.headers, &self.body, &self.coding, &self.length]
    }
}
