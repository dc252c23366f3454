//! Parts of questions and their answers, as JSON: keys, tokens, answers, rows, messages to
//! acceptors.
//!
//! Digests and 128-bit numbers are lower-case hex, bytes are base64, spans are whole seconds and
//! nanoseconds. So each value has one spelling and none is rounded. This file must not fill in
//! missing values.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderName, HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};

pub(super) use crate::adapters::views::{
    Malformed, digest, hex128, number128, read_acceptor_id as acceptor_id, region,
};
use crate::ports::authority::{CopiedRow, Lodging};
use crate::protocol::digest::Digest32;
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::key::{Key, KeyId, Tenant};
use crate::protocol::lifetime::{Lifetime, Retention};
use crate::protocol::record::{Answer, AnswerBody, Nonce, RequestId, Row, State, Token};
use crate::protocol::region::{Origin, RegionName};
use crate::protocol::time::Date;
use crate::protocol::view::Release;

/// The part that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wrong(pub(super) &'static str);

impl From<Malformed> for Wrong {
    fn from(Malformed(what): Malformed) -> Self {
        Self(what)
    }
}

pub(super) fn origin(text: &str) -> Result<Origin, Wrong> {
    Origin::parse(text).map_err(|_| Wrong("an origin"))
}

pub(super) fn nonce(text: &str) -> Result<Nonce, Wrong> {
    Ok(Nonce(number128(text, "a nonce")?))
}

fn digest_or_none(text: Option<&String>) -> Result<Option<Digest32>, Wrong> {
    Ok(text.map(|text| digest(text)).transpose()?)
}

fn bytes(text: &str) -> Result<Vec<u8>, Wrong> {
    STANDARD.decode(text).map_err(|_| Wrong("base64"))
}

/// A text that a store takes.
fn plain(text: String) -> Result<String, Wrong> {
    if text.contains('\0') { Err(Wrong("a text with a zero byte")) } else { Ok(text) }
}

/// Whole seconds, and the nanoseconds beyond them.
#[derive(Serialize, Deserialize)]
pub(super) struct SpanPart(u64, u32);

impl SpanPart {
    pub(super) fn of(span: Duration) -> Self {
        Self(span.as_secs(), span.subsec_nanos())
    }

    pub(super) fn read(&self) -> Result<Duration, Wrong> {
        if self.1 < 1_000_000_000 { Ok(Duration::new(self.0, self.1)) } else { Err(Wrong("a span of time")) }
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct KeyPart {
    tenant: String,
    key: String,
}

impl KeyPart {
    pub(super) fn of(id: &KeyId) -> Self {
        Self { tenant: id.tenant().as_str().to_owned(), key: id.key().as_str().to_owned() }
    }

    pub(super) fn read(self) -> Result<KeyId, Wrong> {
        let tenant = Tenant::parse(&self.tenant).map_err(|_| Wrong("a tenant"))?;
        let key = Key::parse(&self.key).map_err(|_| Wrong("a key"))?;
        Ok(KeyId::new(tenant, key))
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct TokenPart {
    epoch: u64,
    attempt: u32,
}

impl TokenPart {
    pub(super) fn of(token: Token) -> Self {
        Self { epoch: token.epoch, attempt: token.attempt }
    }

    pub(super) fn read(&self) -> Token {
        Token { epoch: self.epoch, attempt: self.attempt }
    }
}

#[derive(Serialize, Deserialize)]
struct FingerprintPart {
    raw: String,
    canonical: Option<String>,
}

impl FingerprintPart {
    fn of(fingerprint: &Fingerprint) -> Self {
        let canonical = fingerprint.canonical.map(|digest| digest.to_string());
        Self { raw: fingerprint.raw.to_string(), canonical }
    }

    fn read(&self) -> Result<Fingerprint, Wrong> {
        Ok(Fingerprint { raw: digest(&self.raw)?, canonical: digest_or_none(self.canonical.as_ref())? })
    }
}

#[derive(Serialize, Deserialize)]
struct LifetimePart {
    /// `None`: for ever.
    retention: Option<SpanPart>,
    skew: SpanPart,
    tombstone: SpanPart,
}

impl LifetimePart {
    fn of(lifetime: &Lifetime) -> Self {
        let retention = match lifetime.retention {
            Retention::For(span) => Some(SpanPart::of(span)),
            Retention::Never => None,
        };
        let (skew, tombstone) = (SpanPart::of(lifetime.skew), SpanPart::of(lifetime.tombstone));
        Self { retention, skew, tombstone }
    }

    fn read(&self) -> Result<Lifetime, Wrong> {
        let retention = match &self.retention {
            Some(span) => Retention::For(span.read()?),
            None => Retention::Never,
        };
        Ok(Lifetime { retention, skew: self.skew.read()?, tombstone: self.tombstone.read()? })
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct AnswerPart {
    status: u16,
    headers: Vec<(String, String)>,
    /// `None`: not kept.
    body: Option<String>,
}

impl AnswerPart {
    pub(super) fn of(answer: &Answer) -> Self {
        let headers = answer.headers.iter().map(|(name, value)| (name.clone(), STANDARD.encode(value)));
        let body = match &answer.body {
            AnswerBody::Kept(bytes) => Some(STANDARD.encode(bytes)),
            AnswerBody::NotKept => None,
        };
        Self { status: answer.status, headers: headers.collect(), body }
    }

    pub(super) fn read(self) -> Result<Answer, Wrong> {
        StatusCode::from_u16(self.status).map_err(|_| Wrong("a status"))?;
        let mut headers = Vec::with_capacity(self.headers.len());
        for (name, value) in self.headers {
            let value = bytes(&value)?;
            let lower = HeaderName::from_lowercase(name.as_bytes()).is_ok();
            if !lower || HeaderValue::from_bytes(&value).is_err() {
                return Err(Wrong("a header of an answer"));
            }
            headers.push((name, value));
        }
        let body = match self.body {
            Some(text) => AnswerBody::Kept(bytes(&text)?),
            None => AnswerBody::NotKept,
        };
        Ok(Answer { status: self.status, headers, body })
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct LodgingPart {
    id: KeyPart,
    origin: String,
    token: TokenPart,
    nonce: String,
    fingerprint: FingerprintPart,
    request_id: String,
    hold: SpanPart,
    lifetime: LifetimePart,
    route: String,
    path: String,
    principal: Option<String>,
}

impl LodgingPart {
    pub(super) fn of(lodging: &Lodging) -> Self {
        Self {
            id: KeyPart::of(&lodging.id),
            origin: lodging.origin.to_string(),
            token: TokenPart::of(lodging.token),
            nonce: hex128(lodging.nonce.0),
            fingerprint: FingerprintPart::of(&lodging.fingerprint),
            request_id: hex128(lodging.request_id.0),
            hold: SpanPart::of(lodging.hold),
            lifetime: LifetimePart::of(&lodging.lifetime),
            route: lodging.route.to_string(),
            path: lodging.path.clone(),
            principal: lodging.principal.map(|digest| digest.to_string()),
        }
    }

    pub(super) fn read(self) -> Result<Lodging, Wrong> {
        Ok(Lodging {
            id: self.id.read()?,
            origin: origin(&self.origin)?,
            token: self.token.read(),
            nonce: nonce(&self.nonce)?,
            fingerprint: self.fingerprint.read()?,
            request_id: number128(&self.request_id, "a request's id").map(RequestId)?,
            hold: self.hold.read()?,
            lifetime: self.lifetime.read()?,
            route: plain(self.route)?.into(),
            path: plain(self.path)?,
            principal: digest_or_none(self.principal.as_ref())?,
        })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StatePart {
    Claimed { left: SpanPart, past: SpanPart },
    InDoubt { status: Option<u16>, left: SpanPart, past: SpanPart },
    Released,
    Settled { answer: AnswerPart, age: SpanPart, expired: bool },
    Tombstone,
}

impl StatePart {
    fn of(state: &State) -> Self {
        let span = SpanPart::of;
        match state {
            State::Claimed { left, past } => Self::Claimed { left: span(*left), past: span(*past) },
            State::InDoubt { status, left, past } => {
                Self::InDoubt { status: *status, left: span(*left), past: span(*past) }
            }
            State::Released => Self::Released,
            State::Settled { answer, age, expired } => {
                Self::Settled { answer: AnswerPart::of(answer), age: span(*age), expired: *expired }
            }
            State::Tombstone => Self::Tombstone,
        }
    }

    fn read(self) -> Result<State, Wrong> {
        Ok(match self {
            Self::Claimed { left, past } => State::Claimed { left: left.read()?, past: past.read()? },
            Self::InDoubt { status, left, past } => {
                let real = status.is_none_or(|status| StatusCode::from_u16(status).is_ok());
                if !real {
                    return Err(Wrong("a status"));
                }
                State::InDoubt { status, left: left.read()?, past: past.read()? }
            }
            Self::Released => State::Released,
            Self::Settled { answer, age, expired } => {
                State::Settled { answer: Arc::new(answer.read()?), age: age.read()?, expired }
            }
            Self::Tombstone => State::Tombstone,
        })
    }
}

#[derive(Serialize, Deserialize)]
struct RowPart {
    origin: String,
    token: TokenPart,
    nonce: String,
    fingerprint: FingerprintPart,
    state: StatePart,
    over: Vec<(String, TokenPart)>,
    risk: Vec<String>,
    request_id: String,
    expires: i64,
    principal: Option<String>,
    accepted: bool,
    #[serde(default)]
    doubted: u32,
    seen: i64,
}

impl RowPart {
    fn of(row: &Row) -> Self {
        let over = row.over.iter().map(|(origin, token)| (origin.to_string(), TokenPart::of(*token)));
        Self {
            origin: row.origin.to_string(),
            token: TokenPart::of(row.token),
            nonce: hex128(row.nonce.0),
            fingerprint: FingerprintPart::of(&row.fingerprint),
            state: StatePart::of(&row.state),
            over: over.collect(),
            risk: row.risk.iter().map(RegionName::to_string).collect(),
            request_id: hex128(row.request_id.0),
            expires: row.expires.0,
            principal: row.principal.map(|digest| digest.to_string()),
            accepted: row.accepted,
            doubted: row.doubted,
            seen: row.seen.0,
        }
    }

    fn read(self) -> Result<Row, Wrong> {
        let over = self.over.iter().map(|(name, token)| Ok((origin(name)?, token.read())));
        let token = self.token.read();
        Ok(Row {
            origin: origin(&self.origin)?,
            token,
            nonce: nonce(&self.nonce)?,
            fingerprint: self.fingerprint.read()?,
            state: self.state.read()?,
            over: over.collect::<Result<_, Wrong>>()?,
            risk: self.risk.iter().map(|name| region(name)).collect::<Result<_, _>>()?,
            request_id: number128(&self.request_id, "a request's id").map(RequestId)?,
            expires: Date(self.expires),
            principal: digest_or_none(self.principal.as_ref())?,
            accepted: self.accepted,
            // No peer makes it overflow.
            doubted: self.doubted.min(token.attempts()),
            seen: Date(self.seen),
        })
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct CopiedRowPart {
    id: KeyPart,
    row: RowPart,
    hold: SpanPart,
    lives: SpanPart,
    tombstone: SpanPart,
    route: String,
    path: String,
}

impl CopiedRowPart {
    pub(super) fn of(copied: &CopiedRow) -> Self {
        Self {
            id: KeyPart::of(&copied.id),
            row: RowPart::of(&copied.row),
            hold: SpanPart::of(copied.hold),
            lives: SpanPart::of(copied.lives),
            tombstone: SpanPart::of(copied.tombstone),
            route: copied.route.to_string(),
            path: copied.path.clone(),
        }
    }

    pub(super) fn read(self) -> Result<CopiedRow, Wrong> {
        Ok(CopiedRow {
            id: self.id.read()?,
            row: self.row.read()?,
            hold: self.hold.read()?,
            lives: self.lives.read()?,
            tombstone: self.tombstone.read()?,
            route: plain(self.route)?.into(),
            path: plain(self.path)?,
        })
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct ReleasePart {
    base: u64,
    target: String,
}

impl ReleasePart {
    pub(super) fn of(release: &Release) -> Self {
        Self { base: release.base, target: release.target.to_string() }
    }

    pub(super) fn read(&self) -> Result<Release, Wrong> {
        Ok(Release { base: self.base, target: digest(&self.target)? })
    }
}
