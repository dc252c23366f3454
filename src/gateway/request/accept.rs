//! Acceptance: a request that is stored and run later, and its client's replies meanwhile.
//!
//! Once a request is accepted, no client's retry runs it or accepts it again: its job runs it, or
//! an operator decides.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

use super::ask::{Ask, By};
use super::problems::Kind;
use super::reply::{Pending, Reply};
use crate::gateway::instance::Gateway;
use crate::gateway::policy::route::{Mode, Policy};
use crate::ports::jobs::StoredRequest;
use crate::ports::{Jobs, Ports};
use crate::protocol::decide::{retry_after, same_request};
use crate::protocol::job::JobState;
use crate::protocol::record::{Reading, RequestId, Row};
use crate::protocol::time::Date;

/// The headers that are stored with every accepted request.
const KEPT: &[&str] = &[
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "content-encoding",
    "content-language",
    "content-length",
    "content-type",
    "host",
    "idempotency-key",
    "prefer",
    "traceparent",
    "tracestate",
    "user-agent",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-request-id",
];
const PREFER: HeaderName = HeaderName::from_static("prefer");
/// Longest time that a client is asked to stay away.
const MOST_PATIENCE: Duration = Duration::from_secs(60);

pub fn by(policy: &Policy, headers: &HeaderMap) -> By {
    let preferred = prefers(headers);
    match policy.mode {
        Mode::Accept => By::Later { preferred },
        Mode::Prefer if preferred => By::Later { preferred },
        Mode::Prefer | Mode::Sync => By::Client,
    }
}

fn prefers(headers: &HeaderMap) -> bool {
    preferences(headers).any(is_respond_async)
}

fn preferences(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let lines = headers.get_all(PREFER).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(','))
}

/// Ignores case, and what follows a ';' or '=' (RFC 7240, sections 2 and 4.1).
fn is_respond_async(preference: &str) -> bool {
    let name = preference.split([';', '=']).next().unwrap_or_default();
    name.trim().eq_ignore_ascii_case("respond-async")
}

/// The request to store, without the preference that was honoured. Unsealed, it keeps some headers.
pub fn stored<P: Ports>(gateway: &Gateway<P>, ask: &Ask) -> StoredRequest {
    let mut request = ask.request.clone();
    request.headers.remove(PREFER);
    let others = preferences(&ask.request.headers).filter(|preference| !is_respond_async(preference));
    for other in others.filter_map(|preference| HeaderValue::from_str(preference.trim()).ok()) {
        request.headers.append(PREFER, other);
    }
    if !gateway.settings.seals_requests {
        keep_only(&mut request.headers, &ask.policy.keep_headers);
    }
    request
}

/// Keeps headers that describe the request, or that its route names: others may be secrets.
fn keep_only(headers: &mut HeaderMap, named: &[HeaderName]) {
    let unnamed = |name: &&HeaderName| !KEPT.contains(&name.as_str()) && !named.contains(name);
    let others: Vec<HeaderName> = headers.keys().filter(unnamed).cloned().collect();
    for other in others {
        headers.remove(other);
    }
}

pub fn accepted<P: Ports>(gateway: &Arc<Gateway<P>>, ask: &Ask, expires: Date) -> Reply {
    gateway.authority.wakes.jobs.notify_one();
    crate::gateway::telemetry::metrics::job(&ask.route, "accepted");
    Reply::Accepted(Pending { first: true, ..pending(gateway, ask, ask.request_id, expires) })
}

/// The reply if only a job may go on with these rows. `None`: perform the verdict on the rows.
pub async fn standing<P: Ports>(gateway: &Arc<Gateway<P>>, ask: &Ask, rows: &[Row]) -> Option<Reply> {
    let accepted = rows.iter().any(|row| row.origin == gateway.origin && row.accepted);
    if ask.by != By::Worker && !accepted {
        return None;
    }
    let (row, running) = match gateway.read(rows.to_vec()) {
        Reading::Settled(_) | Reading::Gone(_) => return None,
        Reading::Absent => return Some(Reply::Refused(Kind::KeyUnknown.problem(), None)),
        Reading::Released(row, _) | Reading::InDoubt(row, _) => (row, false),
        Reading::InProgress(row) => (row, true),
    };
    if ask.by == By::Worker {
        // An operator discarded it, and its client may have sent it again since.
        return (!accepted).then_some(Reply::Refused(Kind::KeyUnknown.problem(), None));
    }
    if !same_request(&row, &ask.fingerprint, ask.principal) {
        return None;
    }
    match Box::pin(gateway.store().job(&ask.id)).await {
        Ok(None) => None,
        Ok(Some(job)) => Some(match job.state {
            JobState::Waiting => {
                Reply::Accepted(Pending { running, ..pending(gateway, ask, job.request_id, row.expires) })
            }
            JobState::Dead => Reply::Refused(Kind::DeadLetter.problem(), Some(row.expires)),
        }),
        Err(error) => {
            tracing::warn!(%error, "refused: whether the key has a job cannot be read");
            Some(Reply::Refused(gateway.later(Kind::StoreUnavailable), Some(row.expires)))
        }
    }
}

fn pending<P: Ports>(gateway: &Gateway<P>, ask: &Ask, request_id: RequestId, expires: Date) -> Pending {
    let after = retry_after(MOST_PATIENCE, gateway.live.load().typical(&ask.route).or(Some(Duration::ZERO)));
    Pending {
        key: ask.id.key().clone(),
        request_id,
        first: false,
        running: false,
        preferred: matches!(ask.by, By::Later { preferred: true }),
        after,
        expires,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_that_are_not_named_are_dropped() {
        let mut headers = HeaderMap::new();
        for name in ["content-type", "idempotency-key", "authorization", "cookie", "x-api-key", "x-shop"] {
            headers.insert(name, "1".parse().unwrap());
        }
        keep_only(&mut headers, &[HeaderName::from_static("x-shop")]);
        let mut kept: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        kept.sort_unstable();
        assert_eq!(kept, ["content-type", "idempotency-key", "x-shop"]);
    }

    #[test]
    fn only_a_real_respond_async_preference_counts() {
        let line = |line: &&str| (PREFER, line.parse().unwrap());
        let prefers = |lines: &[&str]| super::prefers(&lines.iter().map(line).collect());
        for yes in [
            &["respond-async"][..],
            &["Respond-Async"],
            &["wait=10, respond-async"],
            &["return=minimal", " respond-async ; x=1"],
        ] {
            assert!(prefers(yes), "{yes:?}");
        }
        for no in [&[][..], &["respond-asynchronously"], &["return=respond-async"], &["x;respond-async"]] {
            assert!(!prefers(no), "{no:?}");
        }
    }
}
