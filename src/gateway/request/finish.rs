//! The end of a keyed request: rendered, counted, logged; and the refusals that several flows give.
//!
//! A hop carries another region's answer as its client gets it, so its verdict and code are read
//! from headers. An upstream may write the same headers: nothing is decided by them.

use std::time::Duration;

use http::header::{LINK, LOCATION, RETRY_AFTER};
use http::{HeaderMap, Response};

use super::ask::Ask;
use super::problems::{self, Kind, Problem};
use super::reply::{self, Reply};
use crate::gateway::instance::Gateway;
use crate::gateway::telemetry::times::Where;
use crate::gateway::telemetry::{metrics, trace};
use crate::ports::{Body, Dice, Ports};
use crate::protocol::key::Key;
use crate::protocol::outcome::{Outcome, OutcomeSets};
use crate::protocol::snapshot::Unfit;
use crate::protocol::time::Date;

/// Renders, counts and logs the reply: the one line per request. `from` says if it may have been
/// sent on.
pub fn finish<P: Ports>(gateway: &Gateway<P>, ask: &Ask, reply: Reply, from: Where) -> Response<Body> {
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
    let took = gateway.now().since(ask.arrived);
    if let Some(times) = &ask.times {
        times.request(verdict, response.status(), from, took);
        if from == Where::Here {
            times.overhead(took.saturating_sub(ask.waited.all()));
        }
    }
    trace::asked(ask, &gateway.settings.me, gateway.view().epoch());
    trace::answered(verdict, code, response.status().as_u16());
    tracing::info!(
        request = %ask.request_id, route = %ask.route, tenant = %ask.id.tenant(), key = %ask.id.digest(),
        region = %gateway.settings.me, verdict, code, status = response.status().as_u16(),
        epoch = gateway.view().epoch(), ms = took.as_millis() as u64, trace = %trace::of(&ask.request.headers),
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
    let accepted = headers.get(LOCATION).is_some_and(|place| place == problems::status_url(key).as_str());
    let verdict = match outcomes.classify(answer.status().as_u16(), headers.contains_key(RETRY_AFTER)) {
        _any if accepted => "accepted",
        Outcome::NothingHappened => "released",
        Outcome::Final | Outcome::Unknown => "settled",
    };
    (verdict, NONE)
}

pub fn code(headers: &HeaderMap) -> &'static str {
    kind(headers).map_or(NONE, |kind| kind.row().code)
}

fn kind(headers: &HeaderMap) -> Option<Kind> {
    let lines = headers.get_all(LINK).iter().filter_map(|line| line.to_str().ok());
    let named = lines.filter_map(|line| line.strip_prefix('<')?.strip_prefix(problems::PAGE));
    let named = named.filter_map(|line| line.strip_prefix('#')?.strip_suffix(">; rel=\"describedby\""));
    named.filter_map(Kind::of).next()
}

impl<P: Ports> Gateway<P> {
    /// At least `span`, and up to as much again or three seconds more, so that refused clients do
    /// not come back together. Whole seconds, each equally likely, since `Retry-After` has no
    /// others (RFC 9110, section 10.2.3).
    pub(in crate::gateway) fn jittered(&self, span: Duration) -> Duration {
        const VALUES: u64 = 4;
        let least = span.as_secs() + u64::from(span.subsec_nanos() > 0);
        let below = Duration::from_secs(least.max(VALUES)) - Duration::from_nanos(1);
        Duration::from_secs(least + self.ports.dice().jitter(below).as_secs())
    }

    /// A problem that may be over in a second or some.
    pub(in crate::gateway) fn later(&self, kind: Kind) -> Problem {
        kind.after(self.jittered(Duration::from_secs(1)))
    }

    pub(in crate::gateway) fn overloaded(&self) -> Problem {
        self.later(Kind::Overloaded)
    }

    /// The problem of a key whose owner is changing. A move takes well below a second.
    pub(in crate::gateway) fn moving(&self) -> Problem {
        const LEAST: Duration = Duration::from_millis(250);
        Kind::Moving.after(LEAST + self.ports.dice().jitter(LEAST * 2))
    }

    pub(in crate::gateway) fn unknown(&self, expires: Option<Date>) -> Reply {
        Reply::Refused(self.later(Kind::OutcomeUnknown), expires)
    }

    pub(in crate::gateway) fn store_unavailable(&self, why: String) -> Problem {
        tracing::warn!(why, "refused: the store is not available");
        self.later(Kind::StoreUnavailable)
    }

    /// The refusal of a gateway that runs no key at all.
    pub(in crate::gateway) fn unfit(&self, why: &Unfit) -> Problem {
        tracing::warn!(why = why.reason(), "refused: no key is run here");
        self.later(match why {
            Unfit::NotFounded => Kind::NotFounded,
            Unfit::Outgrown(_) => Kind::Outgrown,
            Unfit::Store(_) => Kind::StoreUnavailable,
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::gateway::policy::route::{Dialect, Mismatch};
    use crate::gateway::request::problems::{KINDS, Problem};
    use crate::gateway::request::reply::{Pending, Reply};
    use crate::ports::body;
    use crate::protocol::decide::Settlement;
    use crate::protocol::record::{Answer, AnswerBody, RequestId};
    use crate::protocol::region::{Origin, RegionName};
    use crate::protocol::time::Date;
    use http::HeaderValue;
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;

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
