//! The answers to clients against the effects at upstreams (`same-answer`, `asks-the-same`).
//!
//! The replies and the effects are forged.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use onceway::protocol::record::{RequestId, Token};
use simulation::Reply;
use simulation::play::answers::{SAME_ANSWER, wrong};
use simulation::play::log::Asked;
use simulation::upstream::Happening;
use tokio::time::Instant;

use crate::shared::{id, region};

/// The breaches of these replies under one key, if upstreams performed those effects.
fn broken(told: &[(&'static str, &'static str)], performed: &[(&'static str, &'static str)]) -> Vec<String> {
    let (id, at) = (id("k"), region("a"));
    let asked = |(body, answer): &(&'static str, &'static str)| {
        let reply = Reply::Answered {
            status: StatusCode::CREATED,
            code: String::new(),
            body: Bytes::from(*answer),
            replayed: false,
            by: String::new(),
            retry_after: None,
        };
        let now = Instant::now();
        Asked { begun: now, ended: now, id: id.clone(), body, at: at.clone(), reply }
    };
    let happened = |(request, answer): &(&'static str, &'static str)| Happening {
        at: Duration::ZERO,
        region: at.clone(),
        token: Token { epoch: 1, attempt: 1 },
        request_id: RequestId(1),
        status: 201,
        body: Bytes::from(*answer),
        asked: Bytes::from(*request),
        queued: false,
        over_by: None,
    };
    let ledger = [(id.clone(), performed.iter().map(happened).collect())].into();
    let all: Vec<Asked> = told.iter().map(asked).collect();
    wrong(&all, &ledger).into_iter().map(|(invariant, _)| invariant).collect()
}

#[test]
fn another_request_must_not_get_the_answer() {
    let (one, other) = ("{}", "{\"other\":1}");
    assert_eq!(broken(&[(one, "x"), (one, "x")], &[(one, "x")]), [""; 0]);
    assert_eq!(broken(&[(one, "x"), (other, "x")], &[(one, "x")]), ["asks-the-same (rule 1)"]);
    let both = [(one, "x"), (other, "y")];
    assert_eq!(broken(&both, &both), [""; 0], "two that knew nothing of one another");
}

#[test]
fn an_answer_is_an_upstreams_and_there_are_no_more_than_effects() {
    assert_eq!(broken(&[("{}", "z")], &[("{}", "x")]), [SAME_ANSWER]);
    assert_eq!(broken(&[("{}", "z")], &[]), [SAME_ANSWER]);
    assert_eq!(broken(&[("{}", "x"), ("{}", "y")], &[("{}", "x"), ("{}", "y")]), [""; 0]);
    assert_eq!(broken(&[("{}", "x"), ("{}", "y")], &[("{}", "x")]), [SAME_ANSWER, SAME_ANSWER]);
}
