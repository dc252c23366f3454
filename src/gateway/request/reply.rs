//! Answers: turns the result of a request into the response for its client.
//!
//! Every flow of the gateway ends here. `server` renders only framing errors itself. Errors are the
//! documents of [`super::problems`]. No text of it may hold a key, a token or a body.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, LINK, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use serde::Serialize;

use super::problems::{self, Kind, Problem, seconds};
use crate::gateway::policy::route::Dialect;
use crate::ports::body::{self, Body};
use crate::protocol::decide::Settlement;
use crate::protocol::key::Key;
use crate::protocol::record::{Answer, AnswerBody, RequestId};
use crate::protocol::region::RegionName;
use crate::protocol::time::Date;

pub const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
pub const KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// End of the key's promised retention, as an HTTP date.
pub const EXPIRES: HeaderName = HeaderName::from_static("idempotency-expires");
pub const ORIGINAL: HeaderName = HeaderName::from_static("original-request-id");
pub const REGION: HeaderName = HeaderName::from_static("onceway-region");
pub const REQUEST_ID: HeaderName = HeaderName::from_static("onceway-request-id");
/// The client's preference that was applied (RFC 7240 section 3).
pub const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");
/// Word of a refusal for Stripe's SDKs: `true` if a retry is safe.
pub const SHOULD_RETRY: HeaderName = HeaderName::from_static("stripe-should-retry");
/// Present on a replay whose body was over the stored limit.
pub const BODY: HeaderName = HeaderName::from_static("onceway-body");

pub enum Reply {
    /// The upstream's answer, on its way to the client for the first time.
    First {
        response: Response<Body>,
        /// True if it was settled. Otherwise nothing happened and the claim was released.
        settled: bool,
        expires: Date,
    },
    Replay(Settlement),
    Accepted(Pending),
    Refused(Problem, Option<Date>),
}

pub struct Pending {
    pub key: Key,
    pub request_id: RequestId,
    /// True if it was accepted now; else by an earlier request.
    pub first: bool,
    pub running: bool,
    /// True if its client asked not to wait.
    pub preferred: bool,
    /// Time until the client should ask for the answer.
    pub after: Duration,
    pub expires: Date,
}

#[derive(Serialize)]
struct PendingJson {
    state: &'static str,
    status_url: String,
    request_id: String,
}

impl Reply {
    pub fn verdict(&self) -> &'static str {
        match self {
            Reply::First { settled: true, .. } => "settled",
            Reply::First { settled: false, .. } => "released",
            Reply::Replay(_) => "replayed",
            Reply::Accepted(_) => "accepted",
            Reply::Refused(problem, _) => problem.kind.verdict(),
        }
    }

    /// The code of its problem; `-` without one.
    pub fn code(&self) -> &'static str {
        if let Reply::Refused(problem, _) = self { problem.code() } else { "-" }
    }

    pub fn status(&self) -> u16 {
        match self {
            Reply::First { response, .. } => response.status().as_u16(),
            Reply::Replay(settlement) => settlement.answer.status,
            Reply::Accepted(_) => StatusCode::ACCEPTED.as_u16(),
            Reply::Refused(problem, _) => problem.status,
        }
    }

    /// True if it shows that the request started no key. A client that guesses keys pays for it.
    pub fn is_retry(&self) -> bool {
        match self {
            Reply::Replay(_) => true,
            Reply::Accepted(pending) => !pending.first,
            Reply::Refused(problem, _) => {
                [Kind::InProgress, Kind::InDoubt, Kind::Parked, Kind::DeadLetter].contains(&problem.kind)
            }
            Reply::First { .. } => false,
        }
    }
}

pub enum Step {
    Ended(Reply),
    /// Nothing was sent, and the facts have changed. Look at all anew, or else give this problem.
    Again(Problem),
}

impl Step {
    /// The reply, if there is no further look.
    pub fn reply(self) -> Reply {
        match self {
            Step::Ended(reply) => reply,
            Step::Again(problem) => Reply::Refused(problem, None),
        }
    }
}

pub fn render(
    reply: Reply,
    key: &HeaderValue,
    request_id: RequestId,
    me: &RegionName,
    dialect: Dialect,
) -> Response<Body> {
    let mut region = value(me.as_str());
    let (mut response, expires) = match reply {
        Reply::First { mut response, settled: _, expires } => {
            // An upstream may deduplicate by itself and use the same names; only a replay by the
            // gateway may carry them.
            response.headers_mut().remove(REPLAYED);
            response.headers_mut().remove(ORIGINAL);
            (response, Some(expires))
        }
        Reply::Replay(settlement) => {
            region = value(settlement.origin.region.as_str());
            (replay(&settlement), Some(settlement.expires))
        }
        Reply::Accepted(pending) => (accepted(&pending), Some(pending.expires)),
        Reply::Refused(problem, expires) => (refuse(&problem, dialect), expires),
    };
    let headers = response.headers_mut();
    headers.insert(KEY, key.clone());
    headers.insert(REGION, region);
    headers.insert(REQUEST_ID, value(&request_id.to_string()));
    if let Some(date) = expires.and_then(http_date) {
        headers.insert(EXPIRES, date);
    }
    response
}

/// 202 with a status monitor (RFC 9110 section 15.3.3).
fn accepted(pending: &Pending) -> Response<Body> {
    let status_url = problems::status_url(&pending.key);
    let state = if pending.running { "running" } else { "accepted" };
    let (location, request_id) = (value(&status_url), pending.request_id.to_string());
    let mut response = json(&PendingJson { state, status_url, request_id });
    *response.status_mut() = StatusCode::ACCEPTED;
    let headers = response.headers_mut();
    headers.insert(LOCATION, location);
    headers.insert(RETRY_AFTER, value(&seconds(pending.after).to_string()));
    if pending.preferred {
        headers.insert(PREFERENCE_APPLIED, HeaderValue::from_static("respond-async"));
    }
    response
}

pub fn state(shown: &impl Serialize, me: &RegionName) -> Response<Body> {
    let mut response = json(shown);
    response.headers_mut().insert(REGION, value(me.as_str()));
    response
}

fn json(shown: &impl Serialize) -> Response<Body> {
    let mut response = document("application/json", serde_json::to_vec(shown).unwrap_or_default());
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn document(kind: &'static str, bytes: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(body::full(bytes));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

pub fn refuse(problem: &Problem, dialect: Dialect) -> Response<Body> {
    let mut response = document("application/problem+json", problem.to_json(dialect));
    let status = StatusCode::from_u16(problem.status_in(dialect));
    *response.status_mut() = status.unwrap_or(StatusCode::GATEWAY_TIMEOUT);
    let headers = response.headers_mut();
    headers.insert(LINK, value(&problems::described_by(problem.code())));
    if let Some(after) = problem.after {
        headers.insert(RETRY_AFTER, value(&seconds(after).to_string()));
    }
    if dialect == Dialect::Stripe {
        let safe = if problem.kind.row().safe_to_retry { "true" } else { "false" };
        headers.insert(SHOULD_RETRY, HeaderValue::from_static(safe));
    }
    if problem.kind == Kind::CredentialInvalid {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

pub fn problems_page() -> Response<Body> {
    document("text/html; charset=utf-8", problems::page())
}

/// The published contract. It changes only with a new configuration.
pub fn publication(contract: Bytes) -> Response<Body> {
    let mut response = document("application/json", contract);
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=300"));
    headers.insert(LINK, value(&format!("<{}>; rel=\"describedby\"", problems::PAGE)));
    response
}

/// True if this answer of the status address, of any region, says that there is no such key.
pub fn says_nothing_is_there(response: &Response<Body>) -> bool {
    response.status() == StatusCode::NOT_FOUND
}

fn replay(settlement: &Settlement) -> Response<Body> {
    let answer = &settlement.answer;
    let mut response = Response::new(body::empty());
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::OK);
    let headers = response.headers_mut();
    for (name, bytes) in &answer.headers {
        if let (Ok(name), Ok(text)) = (HeaderName::try_from(name.as_str()), HeaderValue::from_bytes(bytes)) {
            headers.append(name, text);
        }
    }
    headers.insert(REPLAYED, HeaderValue::from_static("true"));
    headers.insert(ORIGINAL, value(&settlement.request_id.to_string()));
    headers.insert("age", value(&settlement.age.as_secs().to_string()));
    if matches!(answer.body, AnswerBody::Kept(_)) {
        *response.body_mut() = body::full(Bytes::from_owner(KeptBody(answer.clone())));
        return response;
    }
    headers.insert(BODY, HeaderValue::from_static("not-kept"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    headers.remove("content-encoding");
    let not_kept = Kind::BodyNotKept.problem().with_status(answer.status);
    headers.append(LINK, value(&problems::described_by(not_kept.code())));
    *response.body_mut() = body::full(not_kept.to_json(Dialect::Plain));
    response
}

/// A kept body, shared between all replays of one answer without a copy.
struct KeptBody(std::sync::Arc<Answer>);

impl AsRef<[u8]> for KeptBody {
    fn as_ref(&self) -> &[u8] {
        match &self.0.body {
            AnswerBody::Kept(bytes) => bytes,
            AnswerBody::NotKept => &[],
        }
    }
}

/// The upstream's headers that a replay carries.
pub fn keep_headers(headers: &HeaderMap, allowed: &[HeaderName]) -> Vec<(String, Vec<u8>)> {
    headers
        .iter()
        .filter(|(name, _)| allowed.contains(name))
        .map(|(name, text)| (name.as_str().to_owned(), text.as_bytes().to_vec()))
        .collect()
}

/// Gives the client the whole collected answer: its length is known again.
pub fn whole(head: http::response::Parts, bytes: Bytes) -> Response<Body> {
    let mut response = Response::from_parts(head, body::empty());
    // Without a body, the length may be that of another request (HEAD, RFC 9110 section 8.6).
    if !bytes.is_empty() {
        response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(bytes.len()));
    }
    *response.body_mut() = body::full(bytes);
    response
}

pub fn http_date(date: Date) -> Option<HeaderValue> {
    let millis = u64::try_from(date.as_millis()).ok()?;
    let when = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(millis))?;
    Some(value(&httpdate::fmt_http_date(when)))
}

fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static("?"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::policy::route::Mismatch;
    use crate::protocol::key::KeyError;

    #[test]
    fn an_upstream_cannot_make_a_first_answer_look_like_a_replay() {
        let mut response = Response::new(body::empty());
        response.headers_mut().insert(REPLAYED, value("true"));
        response.headers_mut().insert(ORIGINAL, value("req_other"));
        let first = Reply::First { response, settled: true, expires: Date(0) };
        let me = RegionName::parse("eu").unwrap();
        let rendered = render(first, &value("k"), RequestId(1), &me, Dialect::Plain);
        assert_eq!(rendered.headers().get(REPLAYED), None);
        assert_eq!(rendered.headers().get(ORIGINAL), None);
        assert_eq!(rendered.headers()[KEY], "k");
    }

    /// The status of a refusal, its error object without the message, and its word about a retry.
    async fn refused(problem: Problem, dialect: Dialect) -> (u16, [String; 2], Option<String>) {
        let response = refuse(&problem, dialect);
        let (status, word) = (response.status().as_u16(), response.headers().get(SHOULD_RETRY).cloned());
        let Ok(body::Collected::Whole(json)) = body::collect(response.into_body(), 1 << 16).await else {
            panic!("a whole body")
        };
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!((&json["code"], &json["error"]["message"]), (&problem.code().into(), &json["detail"]));
        let error = ["type", "code"].map(|member| json["error"][member].as_str().unwrap().to_owned());
        (status, error, word.map(|word| word.to_str().unwrap().to_owned()))
    }

    #[tokio::test]
    async fn a_refusal_has_the_error_format_of_its_route() {
        let after = Duration::from_secs(1);
        for (problem, plain, stripe) in [
            (Mismatch::Unprocessable.into(), (422, "key-reused"), (400, "key-reused", "false")),
            (Kind::KeyExpired.problem(), (410, "key-expired"), (400, "key-expired", "false")),
            (Kind::InProgress.after(after), (409, "in-progress"), (409, "idempotency_key_in_use", "true")),
        ] {
            let error = |code: &str| ["idempotency_error".to_owned(), code.to_owned()];
            let (status, code) = plain;
            assert_eq!(refused(problem.clone(), Dialect::Plain).await, (status, error(code), None));
            let (status, code, word) = stripe;
            assert_eq!(refused(problem, Dialect::Stripe).await, (status, error(code), Some(word.to_owned())));
        }
        for (problem, status, kind) in [
            (KeyError::Missing.into(), 400, "invalid_request_error"),
            (Mismatch::Conflict.into(), 409, "idempotency_error"),
            (Kind::CredentialInvalid.problem(), 401, "authentication_error"),
            (Kind::NoRoute.problem(), 404, "invalid_request_error"),
            (Kind::DeadLetter.problem(), 409, "invalid_request_error"),
            (Kind::QuotaExceeded.after(after), 429, "rate_limit_error"),
            (Kind::UpstreamBroke.problem(), 502, "api_error"),
            (Kind::Stopping.after(after), 503, "api_error"),
            (Kind::OutcomeUnknown.after(after), 504, "api_error"),
            (Kind::InDoubt.after(after), 409, "invalid_request_error"),
            (Kind::UpstreamUnclear.after(after).with_status(401), 401, "authentication_error"),
        ] {
            let code = problem.code().to_owned();
            let (seen, error, _) = refused(problem, Dialect::Plain).await;
            assert_eq!((seen, error), (status, [kind.to_owned(), code]));
        }
        let not_kept: serde_json::Value =
            serde_json::from_slice(&Kind::BodyNotKept.problem().to_json(Dialect::Plain)).unwrap();
        assert_eq!(not_kept.get("error"), None, "its effect happened");
    }

    #[test]
    fn the_content_length_matches_the_body() {
        let of = |bytes: &'static str| {
            let (mut head, _) = Response::new(()).into_parts();
            head.headers.insert(CONTENT_LENGTH, value("123"));
            whole(head, Bytes::from(bytes)).headers()[CONTENT_LENGTH].clone()
        };
        assert_eq!(of("four"), "4");
        assert_eq!(of(""), "123", "an answer to HEAD");
    }
}
