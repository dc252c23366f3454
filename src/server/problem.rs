//! Problems (RFC 9457) of requests that never reach the gateway: broken framing, forged peers,
//! malformed messages.
//!
//! `gateway::request::problems` serves the page that explains each code. This file must not know of
//! keys or upstreams: the gateway has its own problems.

use std::time::Duration;

use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, LINK, RETRY_AFTER};
use http::{Method, Response, StatusCode};
use serde::Serialize;

use crate::gateway::request::problems::{ErrorObject, anchor, described_by};
use crate::ports::Body;
use crate::ports::body::full;

/// A refusal by a listener. Nothing was done, so the same request is always safe to retry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub status: StatusCode,
    /// Stable code. It also names the type.
    pub code: &'static str,
    /// Kind of the problem, the same for each use of the code.
    pub title: &'static str,
    /// The flaw of this request, and what to do.
    pub detail: String,
}

#[derive(Serialize)]
struct Document<'a> {
    r#type: String,
    title: &'a str,
    status: u16,
    detail: &'a str,
    code: &'a str,
    safe_to_retry: bool,
    documentation: String,
    error: ErrorObject<'a>,
}

impl Problem {
    /// A request that is open to two readings, or asks for something that is never passed on.
    pub fn malformed(detail: impl Into<String>) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            code: "bad-request",
            title: "The request is malformed",
            detail: detail.into(),
        }
    }

    /// A head over its limits.
    pub fn head_too_large(detail: impl Into<String>) -> Self {
        Self {
            status: StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            code: "head-too-large",
            title: "The request's head is too large",
            detail: detail.into(),
        }
    }

    /// A target over its limit, in bytes.
    pub fn target_too_long(limit: usize) -> Self {
        Self {
            status: StatusCode::URI_TOO_LONG,
            code: "target-too-long",
            title: "The target is too long",
            detail: format!("a target may have at most {limit} bytes"),
        }
    }

    /// A head that began and did not end in time.
    pub fn late_head(within: Duration) -> Self {
        Self {
            status: StatusCode::REQUEST_TIMEOUT,
            code: "head-too-slow",
            title: "The request's head took too long",
            detail: format!("a head must arrive within {within:?} of its first byte"),
        }
    }

    /// A head for which the budget has no room.
    pub fn no_room_for_head() -> Self {
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE,
            code: "overloaded",
            title: "The gateway has all the requests that it can take at once",
            detail: "the heads of all requests together are as large as they may be: send a smaller head, or send it again".into(),
        }
    }

    /// A method that no gateway passes on.
    pub fn method_not_supported(method: &Method) -> Self {
        Self {
            status: StatusCode::NOT_IMPLEMENTED,
            code: "method-not-supported",
            title: "The method is not supported",
            detail: format!("{method} is not passed on by this gateway"),
        }
    }

    /// An `Expect` that asks for something else than 100-continue.
    pub fn expectation_failed() -> Self {
        Self {
            status: StatusCode::EXPECTATION_FAILED,
            code: "expectation-failed",
            title: "The expectation cannot be met",
            detail: "only Expect: 100-continue is supported".into(),
        }
    }

    pub fn response(&self) -> Response<Body> {
        let document = Document {
            r#type: format!("urn:onceway:problem:{}", self.code),
            title: self.title,
            status: self.status.as_u16(),
            detail: &self.detail,
            code: self.code,
            safe_to_retry: true,
            documentation: anchor(self.code),
            error: ErrorObject::of(self.code, self.status.as_u16(), &self.detail),
        };
        let json = serde_json::to_vec(&document).expect("strings and numbers always make JSON");
        let mut response = Response::new(full(json));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if let Ok(link) = HeaderValue::from_str(&described_by(self.code)) {
            headers.insert(LINK, link);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::body::{Collected, collect};

    #[tokio::test]
    async fn a_problem_is_json_with_all_its_members() {
        let problem = Problem {
            status: StatusCode::BAD_REQUEST,
            code: "bad-request",
            title: "The request is malformed",
            detail: "two \"Host\" headers".into(),
        };
        let response = problem.response();
        assert_eq!(response.status(), 400);
        assert_eq!(response.headers()["content-type"], "application/problem+json");
        assert_eq!(
            response.headers()["link"],
            "</.well-known/onceway/problems#bad-request>; rel=\"describedby\""
        );
        let Ok(Collected::Whole(json)) = collect(response.into_body(), 1000).await else {
            panic!("a whole body")
        };
        let document: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(
            document,
            serde_json::json!({
                "type": "urn:onceway:problem:bad-request",
                "title": "The request is malformed",
                "status": 400,
                "detail": "two \"Host\" headers",
                "code": "bad-request",
                "safe_to_retry": true,
                "documentation": "/.well-known/onceway/problems#bad-request",
                "error": {
                    "type": "invalid_request_error",
                    "code": "bad-request",
                    "message": "two \"Host\" headers",
                },
            })
        );
    }
}
