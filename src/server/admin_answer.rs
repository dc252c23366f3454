//! Answers of an admin listener: JSON, text, and problems with a code. No cache may keep one.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;
use serde_json::{Value, json};

use crate::ports::store::StoreError;

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
