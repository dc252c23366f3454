//! The end of a keyed request: rendered, counted, logged.
//!
//! [`super::reply`] renders. A hop carries another region's answer as its client gets it, so its
//! verdict and code are read from headers. An upstream may write the same headers: nothing is
//! decided by them.

use http::header::{LINK, LOCATION, RETRY_AFTER};
use http::{HeaderMap, Response};

use super::ask::Ask;
use super::problems::{self, Kind};
use super::reply::{self, Reply};
use crate::gateway::instance::Gateway;
use crate::gateway::telemetry::times::Where;
use crate::gateway::telemetry::{metrics, spans, trace};
use crate::gateway::well_known;
use crate::ports::{Body, Clock, Ports};
use crate::protocol::key::Key;
use crate::protocol::outcome::{Outcome, OutcomeSets};

/// Renders, counts and logs the reply of this region: the one line per request.
pub fn finish<P: Ports>(gateway: &Gateway<P>, ask: &Ask, reply: Reply) -> Response<Body> {
    finish_from(gateway, ask, reply, Where::Here)
}

/// Does the same for a request that may have been sent on.
pub fn finish_from<P: Ports>(gateway: &Gateway<P>, ask: &Ask, reply: Reply, from: Where) -> Response<Body> {
    let (verdict, code) = (reply.verdict(), reply.code());
    if let Reply::Refused(problem, _) = &reply {
        metrics::refused(problem);
        if problem.kind == Kind::KeyReused {
            gateway.generators.mismatched(ask, gateway.ports.clock());
        }
    }
    ask.charged.give_back(ask.id.tenant(), reply.is_retry());
    metrics::answer(&ask.route, ask.id.tenant(), verdict);
    let response = reply::render(reply, &ask.echo, ask.request_id, &gateway.settings.me, ask.policy.dialect);
    let took = gateway.ports.clock().now().since(ask.arrived);
    if let Some(times) = &ask.times {
        times.request(verdict, response.status(), from, took);
        if from == Where::Here {
            times.overhead(took.saturating_sub(ask.waited.all()));
        }
    }
    spans::asked(ask, &gateway.settings.me, gateway.view().epoch());
    spans::answered(verdict, code, response.status().as_u16());
    tracing::info!(
        request = %ask.request_id, route = %ask.route, tenant = %ask.id.tenant(), key = %ask.id.digest(),
        region = %gateway.settings.me, verdict, code, status = response.status().as_u16(),
        epoch = gateway.view().epoch(), ms = took.as_millis() as u64, trace = %trace::of(&ask.headers),
        "answered"
    );
    response
}

const NONE: &str = "-";

/// The verdict and the code of the owner's answer, in the words of [`reply::Reply`].
pub fn forwarded_verdict<B>(
    key: &Key,
    outcomes: &OutcomeSets,
    answer: &Response<B>,
) -> (&'static str, &'static str) {
    let headers = answer.headers();
    if headers.contains_key(&reply::REPLAYED) {
        return ("replayed", NONE);
    }
    if let Some(kind) = kind(headers) {
        return (kind.verdict(), kind.row().code);
    }
    let accepted = headers.get(LOCATION).is_some_and(|place| place == well_known::of(key).as_str());
    let verdict = match outcomes.classify(answer.status().as_u16(), headers.contains_key(RETRY_AFTER)) {
        _any if accepted => "accepted",
        Outcome::NothingHappened => "released",
        Outcome::Final | Outcome::Unknown => "settled",
    };
    (verdict, NONE)
}

/// The code of a problem, read from the link to its explanation in these headers.
pub fn code(headers: &HeaderMap) -> &'static str {
    kind(headers).map_or(NONE, |kind| kind.row().code)
}

fn kind(headers: &HeaderMap) -> Option<Kind> {
    let lines = headers.get_all(LINK).iter().filter_map(|line| line.to_str().ok());
    let named = lines.filter_map(|line| line.strip_prefix('<')?.strip_prefix(problems::PAGE));
    let named = named.filter_map(|line| line.strip_prefix('#')?.strip_suffix(">; rel=\"describedby\""));
    named.filter_map(Kind::of).next()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use http::HeaderValue;

    use super::*;
    use crate::gateway::policy::route::{Dialect, Mismatch};
    use crate::gateway::request::problems::{KINDS, Problem};
    use crate::gateway::request::reply::{Pending, Reply};
    use crate::ports::body;
    use crate::protocol::decide::Settlement;
    use crate::protocol::record::{Answer, AnswerBody, RequestId};
    use crate::protocol::region::{Origin, RegionName};
    use crate::protocol::time::Date;

    const AFTER: Duration = Duration::from_secs(1);

    fn key() -> Key {
        Key::parse("to-be/encoded%").unwrap()
    }

    fn first(status: u16, settled: bool) -> Reply {
        let mut response = Response::new(body::empty());
        *response.status_mut() = status.try_into().unwrap();
        // An upstream's own headers are no words of the gateway.
        response.headers_mut().insert(LOCATION, HeaderValue::from_static("/v1/charges/1"));
        response.headers_mut().insert(LINK, HeaderValue::from_static("</help>; rel=\"describedby\""));
        Reply::First { response, settled, expires: Date(0) }
    }

    fn replay(status: u16, body: AnswerBody) -> Reply {
        let answer = Arc::new(Answer { status, headers: Vec::new(), body });
        Reply::Replay(Settlement {
            answer,
            age: AFTER,
            expires: Date(0),
            origin: Origin::parse("eu#1").unwrap(),
            request_id: RequestId(1),
        })
    }

    fn accepted(running: bool) -> Reply {
        Reply::Accepted(Pending {
            key: key(),
            request_id: RequestId(1),
            first: !running,
            running,
            preferred: false,
            after: AFTER,
            expires: Date(0),
        })
    }

    fn problems() -> impl Iterator<Item = Problem> {
        let own = KINDS.iter().filter(|kind| **kind < Kind::BodyNotKept);
        let more = [Mismatch::Conflict.into(), Kind::UpstreamUnclear.after(AFTER).with_status(500)];
        own.map(|kind| kind.after(AFTER)).chain(more)
    }

    #[test]
    fn a_forwarded_answer_keeps_its_verdict() {
        let me = RegionName::parse("eu").unwrap();
        for dialect in [Dialect::Plain, Dialect::Stripe] {
            let answers = [first(201, true), first(404, true), first(429, false)].into_iter();
            let answers = answers.chain([
                replay(201, AnswerBody::Kept(Vec::new())),
                replay(503, AnswerBody::NotKept),
                accepted(false),
                accepted(true),
            ]);
            let refused = problems().map(|problem| Reply::Refused(problem, None));
            for reply in answers.chain(refused) {
                let expected = (reply.verdict(), reply.code());
                let rendered =
                    reply::render(reply, &HeaderValue::from_static("k"), RequestId(1), &me, dialect);
                assert_eq!(
                    forwarded_verdict(&key(), &OutcomeSets::default(), &rendered),
                    expected,
                    "{rendered:?}"
                );
            }
        }
    }
}
