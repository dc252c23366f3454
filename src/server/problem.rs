//! Answers to requests that never reach the gateway. Nothing was done, so each may be sent again.
//!
//! Their problems are rows of `gateway::request::problems`, like the gateway's own.

use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, LINK, RETRY_AFTER};
use http::{Response, StatusCode};

use crate::gateway::policy::route::Dialect;
use crate::gateway::request::problems::{Kind, Problem, described_by};
use crate::ports::Body;
use crate::ports::body::full;

/// A request that is open to two readings, or asks for something that is never passed on.
pub fn malformed(detail: &'static str) -> Problem {
    Kind::BadRequest.said(detail)
}

/// A head for which the budget has no room.
pub fn no_room_for_head() -> Problem {
    Kind::Overloaded.said("the heads of all requests together are as large as they may be: send a smaller head, or send it again")
}

pub fn response(problem: &Problem) -> Response<Body> {
    let mut response = Response::new(full(problem.to_json(Dialect::Plain)));
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::BAD_REQUEST);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    if let Ok(link) = HeaderValue::from_str(&described_by(problem.code())) {
        headers.insert(LINK, link);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::body::{Collected, collect};

    #[tokio::test]
    async fn a_problem_is_json_with_all_its_members() {
        let response = response(&malformed("two \"Host\" headers"));
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
