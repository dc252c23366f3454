//! Acts as operators post them to an admin listener: who, where, and the words of the body.
//!
//! An act needs `Content-Type: application/json`: a page in a browser cannot send that to another
//! origin without asking first. A name that the token has takes the place of the one that the words
//! claim. Neither a path nor a body is logged.

use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt, Limited};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::timeout;

use super::admin_answer::{Answer, bad, problem};
use super::admin_key::Key;
use crate::gateway::credentials::operators::Visitor;
use crate::ports::peers::Proof;

/// Header of an act with its approval.
pub(super) const APPROVAL: &str = "onceway-approval";
/// Largest body of an act, in bytes.
const BODY_LIMIT: usize = 2 << 20;
/// Longest reason or name, in bytes.
pub(super) const MOST_TEXT: usize = 1_000;
/// Longest time for the body to arrive.
const BODY_TIME: Duration = Duration::from_secs(10);

/// The body of an operator's request, from the listener or from a test.
pub trait ActBody:
    http_body::Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>
{
}

impl<B> ActBody for B where
    B: http_body::Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>
{
}

pub(super) trait Words: DeserializeOwned {
    /// The name for the journal; `None` if the act is not journalled.
    fn actor(&mut self) -> Option<&mut String> {
        None
    }
}

/// Says for each type where its name for the journal stands.
macro_rules! journalled {
    ($($words:ty),+) => {$(
        impl super::admin_posted::Words for $words {
            fn actor(&mut self) -> Option<&mut String> {
                Some(&mut self.actor)
            }
        }
    )+};
}
pub(super) use journalled;

/// An act that was posted by somebody who may act.
pub(super) struct Posted<'a, B> {
    pub(super) key: &'a Key,
    pub(super) by: Visitor,
    pub(super) path: &'a str,
    pub(super) headers: &'a HeaderMap,
    pub(super) body: B,
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

impl<'a, B: ActBody> Posted<'a, B> {
    /// The proof that lets another region act for this operator: nobody acts there without a token.
    pub(super) fn elsewhere(&self) -> Option<Proof> {
        let text = |name| self.headers.get(name)?.to_str().ok().map(str::to_owned);
        let authorization = text(AUTHORIZATION.as_str()).filter(|_| !self.passed_on)?;
        Some(Proof { authorization, approval: text(APPROVAL) })
    }

    /// Reads the words. A name that the token has takes the place of the one that they claim.
    pub(super) async fn read<T: Words>(self) -> Result<(T, Case<'a>), Box<Answer>> {
        let Self { key, by, path, headers, body, passed_on: _ } = self;
        let body = said(headers, body).await?;
        // The error's text names our own fields. Of the body's values it could show a type only.
        let wrong = |error: serde_json::Error| {
            bad(&format!("the body is no act: line {}, column {}", error.line(), error.column()))
        };
        let mut words: T = serde_json::from_slice(&body).map_err(wrong)?;
        let body = serde_json::from_slice(&body).map_err(wrong)?;
        if let Some(actor) = words.actor() {
            *actor = by.actor(std::mem::take(actor));
        }
        let approval = headers.get(APPROVAL).and_then(|value| value.to_str().ok()).map(str::to_owned);
        Ok((words, Case { key, by, path, body, approval }))
    }
}

async fn said<B: ActBody>(headers: &HeaderMap, body: B) -> Result<Bytes, Box<Answer>> {
    let given = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let given = given.split(';').next().unwrap_or_default().trim();
    if !given.eq_ignore_ascii_case("application/json") {
        let why = "send Content-Type: application/json";
        return Err(Box::new(problem(StatusCode::UNSUPPORTED_MEDIA_TYPE, why)));
    }
    let collected = timeout(BODY_TIME, Limited::new(body, BODY_LIMIT).collect()).await;
    let Ok(Ok(body)) = collected else {
        let why = "the body is over 2 MiB, too slow, or it broke off";
        return Err(Box::new(problem(StatusCode::PAYLOAD_TOO_LARGE, why)));
    };
    Ok(body.to_bytes())
}
