//! Acts as operators post them to an admin listener: who, where, and the words of the body. And its
//! answers: JSON, text, and problems with a code. No cache may keep one.
//!
//! On loopback no token is needed, but the request must name a host of loopback. Digests are
//! compared, not tokens. No token is logged, nor said which one was nearly right.
//!
//! An act needs `Content-Type: application/json`: a page in a browser cannot send that to another
//! origin without asking first. A name that the token has takes the place of the one that the words
//! claim. Neither a path nor a body is logged.

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, WWW_AUTHENTICATE};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::Full;
use ring::hmac;
use ring::rand::SystemRandom;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::Replaceable;
use crate::gateway::credentials::operators::{Operators, Visitor};
use crate::gateway::credentials::{TokenDigest, digest};
use crate::ports::Body;
use crate::ports::body::{Collected, collect};
use crate::ports::peers::Proof;
use crate::ports::store::StoreError;

/// Header of an act with its approval.
pub(super) const APPROVAL: &str = "onceway-approval";
/// Largest body of an act, in bytes.
const BODY_LIMIT: usize = 2 << 20;
/// Longest reason or name, in bytes.
pub(super) const MOST_TEXT: usize = 1_000;
/// Longest time for the body to arrive.
const BODY_TIME: Duration = Duration::from_secs(10);

/// Those whom the admin listener answers.
pub(super) struct Key {
    pub(super) operators: Replaceable<Operators>,
    /// Drawn at the start: seals what nobody outside of this process may make.
    pub(super) drawn: hmac::Key,
}

impl Key {
    pub(super) fn new(operators: Replaceable<Operators>) -> Self {
        // A process without random numbers has no TLS either.
        let drawn = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        #[expect(clippy::expect_used, reason = "the system gives random numbers")]
        let drawn = drawn.expect("random numbers");
        Self { operators, drawn }
    }

    /// The key that seals the sessions of a token's owner.
    ///
    /// The operators' file shows the digests of their tokens, so those seal nothing. The shared
    /// token's digest is in no file: with it every gateway of the region knows a session.
    pub(super) fn of_sessions(&self, token: &TokenDigest) -> hmac::Key {
        match self.operators.now().shared {
            Some(shared) if shared == *token => hmac::Key::new(hmac::HMAC_SHA256, token),
            _ => hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&self.drawn, token).as_ref()),
        }
    }

    /// The sender of a request that may be answered. The time that it takes reveals no token.
    pub(super) fn visitor(&self, headers: &HeaderMap) -> Option<Visitor> {
        let operators = self.operators.now();
        if operators.is_open() {
            return names_this_machine(headers).then_some(Visitor::Local);
        }
        let (scheme, token) = headers.get(AUTHORIZATION)?.as_bytes().split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then(|| operators.of(&digest(token))).flatten()
    }

    pub(super) fn refusal(&self) -> Answer {
        if self.operators.now().is_open() {
            let why = "without a token only 127.0.0.1, [::1] and localhost are answered: ask by one of them, or name a token file ([admin] token_file)";
            return problem(StatusCode::MISDIRECTED_REQUEST, why);
        }
        let why = "send Authorization: Bearer with the admin token, or with an operator's";
        let mut answer = problem(StatusCode::UNAUTHORIZED, why);
        answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        answer
    }
}

/// True if the request names this machine as its host.
///
/// With DNS rebinding, a stranger's page in a browser here has its name pointed to loopback. Its
/// requests name the stranger as the host. A request without a host is from no browser.
fn names_this_machine(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(HOST) else { return true };
    let Ok(host) = Authority::try_from(host.as_bytes()) else { return false };
    let bare = host.host().trim_start_matches('[').trim_end_matches(']');
    bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// A name for the journal as the words claim it. Only [`Case::actor`] reads it.
#[derive(Default, Deserialize)]
pub(super) struct Claimed(String);

/// An act that was posted by somebody who may act.
pub(super) struct Posted<'a> {
    pub(super) key: &'a Key,
    pub(super) by: Visitor,
    pub(super) path: &'a str,
    pub(super) headers: &'a HeaderMap,
    pub(super) body: Body,
    /// True if a region passed it on: it is not passed on again.
    pub(super) passed_on: bool,
}

/// An act that was posted, for the question whether it needs a second person.
pub(super) struct Case<'a> {
    pub(super) key: &'a Key,
    pub(super) by: Visitor,
    pub(super) path: &'a str,
    pub(super) body: Value,
    pub(super) approval: Option<String>,
}

impl<'a> Posted<'a> {
    /// The proof that lets another region act for this operator: nobody acts there without a token.
    pub(super) fn elsewhere(&self) -> Option<Proof> {
        let text = |name| self.headers.get(name)?.to_str().ok().map(str::to_owned);
        let authorization = text(AUTHORIZATION.as_str()).filter(|_| !self.passed_on)?;
        Some(Proof { authorization, approval: text(APPROVAL) })
    }

    pub(super) async fn read<T: DeserializeOwned>(self) -> Result<(T, Case<'a>), Box<Answer>> {
        let Self { key, by, path, headers, body, passed_on: _ } = self;
        let given = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let given = given.split(';').next().unwrap_or_default().trim();
        if !given.eq_ignore_ascii_case("application/json") {
            let why = "send Content-Type: application/json";
            return Err(Box::new(problem(StatusCode::UNSUPPORTED_MEDIA_TYPE, why)));
        }
        let too_much =
            || problem(StatusCode::PAYLOAD_TOO_LARGE, "the body is over 2 MiB, too slow, or it broke off");
        let body = whole(body, BODY_LIMIT).await.ok_or_else(too_much)?;
        // The error's text names our own fields. Of the body's values it could show a type only.
        let wrong = |error: serde_json::Error| {
            bad(&format!("the body is no act: line {}, column {}", error.line(), error.column()))
        };
        let words = serde_json::from_slice(&body).map_err(wrong)?;
        let body = serde_json::from_slice(&body).map_err(wrong)?;
        let approval = headers.get(APPROVAL).and_then(|value| value.to_str().ok()).map(str::to_owned);
        Ok((words, Case { key, by, path, body, approval }))
    }
}

impl Case<'_> {
    /// The name for the journal: the token's own takes the place of the one that the words claim.
    pub(super) fn actor(&self, Claimed(name): Claimed) -> String {
        self.by.actor(name)
    }
}

/// The whole body, unless it is larger or too slow, or breaks off.
pub(super) async fn whole(body: Body, limit: usize) -> Option<Bytes> {
    match timeout(BODY_TIME, collect(body, limit)).await {
        Ok(Ok(Collected::Whole(bytes))) => Some(bytes),
        Ok(Ok(Collected::Over(..)) | Err(_)) | Err(_) => None,
    }
}

pub type Answer = Response<Full<Bytes>>;

/// The answer of a path, or the refusal as an answer.
pub(super) type Acted = Result<Answer, Box<Answer>>;

pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Answer {
    match serde_json::to_vec_pretty(value) {
        Ok(mut bytes) => {
            bytes.push(b'\n');
            answer(status, "application/json", bytes)
        }
        Err(error) => problem(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

/// Answers with what the store knows, or says that it does not answer.
pub(super) fn from_store(found: Result<impl Serialize, StoreError>) -> Answer {
    match found {
        Ok(found) => json(StatusCode::OK, &found),
        Err(error) => problem(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
    }
}

pub(super) fn bad(why: &str) -> Box<Answer> {
    Box::new(problem(StatusCode::BAD_REQUEST, why))
}

pub(super) fn text(status: StatusCode, body: &str) -> Answer {
    answer(status, "text/plain; version=0.0.4; charset=utf-8", body.as_bytes().to_vec())
}

pub(super) fn problem(status: StatusCode, detail: &str) -> Answer {
    with(status, detail, json!({}))
}

/// Makes a problem with a stable code for programs.
pub(super) fn coded(status: StatusCode, code: &str, detail: &str) -> Answer {
    with(status, detail, json!({ "code": code }))
}

pub(super) fn forbidden(why: impl AsRef<str>) -> Box<Answer> {
    Box::new(coded(StatusCode::FORBIDDEN, "forbidden", why.as_ref()))
}

/// Makes a problem with more fields: what its reader needs to go on.
pub(super) fn with(status: StatusCode, detail: &str, mut body: Value) -> Answer {
    body["type"] = "about:blank".into();
    body["title"] = status.canonical_reason().unwrap_or_default().into();
    body["status"] = status.as_u16().into();
    body["detail"] = detail.into();
    answer(status, "application/problem+json", format!("{body}\n").into_bytes())
}

pub(super) fn answer(status: StatusCode, kind: &'static str, body: Vec<u8>) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer.headers_mut().insert("cache-control", HeaderValue::from_static("no-store"));
    answer
}
