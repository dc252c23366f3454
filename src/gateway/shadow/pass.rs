//! Requests of a gateway in shadow mode, passed through, their bodies copied; beside them their
//! trials.
//!
//! The copy never delays or changes the body. A request's body and its answer may end in either
//! order. [`super::memory`] remembers keys.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http::header::RETRY_AFTER;
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, Uri};
use http_body::{Body as _, SizeHint};
use http_body_util::BodyExt;

use super::memory::{Asked, Met, Report, Shadow, Verdict};
use crate::gateway::instance::Gateway;
use crate::gateway::limits::quota::Charged;
use crate::gateway::policy::route::{Binding, Matched, NO_ROUTE, Policy};
use crate::gateway::reloadable::Live;
use crate::gateway::request::admit::{identify, take_fingerprint};
use crate::gateway::request::passthrough::Passing;
use crate::gateway::request::problems::{Kind, Problem};
use crate::gateway::telemetry::metrics::observe;
use crate::gateway::telemetry::{metrics, trace};
use crate::ports::upstream::SendError;
use crate::ports::{Body, BodyError, Clock, Polled, Ports, Upstream};
use crate::protocol::digest::{Digest32, digest};
use crate::protocol::key::KeyId;
use crate::protocol::outcome::Outcome;
use crate::protocol::record::Recovery;
use crate::protocol::time::Moment;

impl<P: Ports> Gateway<P> {
    /// The expected decisions; `None` if this gateway is not in shadow mode.
    pub fn shadow_report(&self) -> Option<Report> {
        let inner = self.shadow.as_ref()?.lock();
        let (remembered, forgotten) = inner.memory.size();
        let seconds = self.now().since(self.begun).as_secs();
        let region = self.settings.me.to_string();
        let routes = inner.routes.iter().map(|(route, counts)| (route.to_string(), counts.clone())).collect();
        Some(Report { region, seconds, remembered, forgotten, routes })
    }
}

pub async fn pass<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    shadow: &Arc<Shadow>,
    request: Request<Body>,
) -> Response<Body> {
    let arrived = gateway.now();
    let (head, body) = request.into_parts();
    let (method, path) = (&head.method, head.uri.path());
    let live = gateway.live();
    let matched = live.routes.find(method, path, &head.headers);
    let with_key = matched.has_key(&head.headers);
    gateway.coverage.saw(method, path, matched, with_key, false);
    let route = match matched {
        Matched::Route(route) => route.name.clone(),
        Matched::PassThrough | Matched::Refused(_) => NO_ROUTE.into(),
    };
    // The trace stays the client's: the request goes as it came.
    let times = live.times(&route).clone();
    let passing = Passing::of(times, matched, trace::of(&head.headers), arrived);
    let trial = match matched {
        Matched::Refused(why) => {
            shadow.judge(&route, None, Verdict::refused(Problem::from(why).kind));
            None
        }
        Matched::Route(found) if let Some(policy) = found.policy_for(with_key) => {
            try_out(gateway, &live, shadow, route, policy.clone(), &head)
        }
        Matched::Route(_) | Matched::PassThrough => {
            if !method.is_safe() {
                shadow.judge(&route, None, Verdict::Unprotected);
            }
            None
        }
    };
    match trial {
        Some(trial) => watch(gateway, trial, &passing, head, body).await,
        None => gateway.pass(passing, Request::from_parts(head, body)).await,
    }
}

/// Judges a keyed request before its body; `None` if it would have been refused for its head alone.
fn try_out<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    live: &Live,
    shadow: &Arc<Shadow>,
    route: Arc<str>,
    policy: Arc<Policy>,
    head: &Parts,
) -> Option<Trial> {
    let refused =
        |id: Option<&KeyId>, problem: Problem| shadow.judge(&route, id, Verdict::refused(problem.kind));
    let identified = identify(gateway, live, &policy, head);
    let (id, principal, _) = identified.map_err(|problem| refused(None, problem)).ok()?;
    let charged =
        gateway.charge(live, id.tenant(), false).map_err(|problem| refused(Some(&id), problem)).ok()?;
    let key = digest("onceway/shadow/1", &[id.tenant().as_bytes(), id.key().as_str().as_bytes()]);
    let (shadow, stage) = (shadow.clone(), Mutex::default());
    Some(Trial { shadow, charged, route, policy, id, principal, key, stage })
}

async fn watch<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    trial: Trial,
    passing: &Passing,
    head: Parts,
    body: Body,
) -> Response<Body> {
    let trial = Arc::new(trial);
    let at_end = {
        let (trial, ports) = (trial.clone(), gateway.ports.clone());
        let (method, target, headers) = (head.method.clone(), head.uri.clone(), head.headers.clone());
        move |copied| trial.came(copied, (&method, &target, &headers), ports.clock().now())
    };
    let body = tee(body, trial.policy.body_limit, at_end);
    let (request, upstream) = (Request::from_parts(head, body), passing.upstream.as_deref());
    let answered = gateway.ports.upstream().pass(upstream, request, passing.within).await;
    let answer = match &answered {
        Ok(response) => {
            let status = response.status().as_u16();
            let with_retry_after = response.headers().contains_key(RETRY_AFTER);
            (trial.policy.outcomes.classify(status, with_retry_after), Some(status))
        }
        Err(SendError::NotSent(_)) => (Outcome::NothingHappened, None),
        Err(SendError::Unknown(_) | SendError::Late(_)) => (Outcome::Unknown, None),
    };
    let now = gateway.now();
    trial.note(|stage| stage.answer = Some((answer, now)));
    gateway.passed(passing, answered)
}

/// One keyed request on its way: its body and its answer may end in either order.
struct Trial {
    shadow: Arc<Shadow>,
    charged: Charged,
    route: Arc<str>,
    policy: Arc<Policy>,
    id: KeyId,
    principal: Option<Digest32>,
    key: Digest32,
    stage: Mutex<Stage>,
}

#[derive(Clone, Copy, Default)]
struct Stage {
    met: Option<Met>,
    answer: Option<((Outcome, Option<u16>), Moment)>,
}

impl Trial {
    fn came(&self, copied: Copied, asks: (&Method, &Uri, &HeaderMap), now: Moment) {
        let body = match copied {
            Copied::Whole(body) => body,
            Copied::Over => return self.judge(Verdict::refused(Kind::BodyTooLarge)),
            Copied::Broken => return self.judge(Verdict::Unjudged),
        };
        let (method, target, headers) = asks;
        let bound_to = match self.policy.bind {
            Binding::Principal => self.principal,
            Binding::Tenant => None,
        };
        let fingerprint = match take_fingerprint(&self.policy, method, target, headers, &body) {
            Ok(fingerprint) => fingerprint,
            Err(problem) => return self.judge(Verdict::refused(problem.kind)),
        };
        let asked = Asked { fingerprint, principal: self.principal, bound_to };
        let reruns = matches!(self.policy.recovery, Recovery::Rerun { .. });
        let met = self.shadow.lock().memory.meet(self.key, asked, now, self.policy.retention, reruns);
        match met {
            Met::Nothing(_) => self.judge(Verdict::Run),
            // Judged when the run that it waits for ends.
            Met::Running(_) => {}
            Met::Settled(_) => self.judge(Verdict::Replayed),
            Met::InDoubt => self.judge(Verdict::InDoubt),
            Met::Other => self.judge(Verdict::refused(Kind::KeyReused)),
            Met::Expired => self.judge(Verdict::refused(Kind::KeyExpired)),
        }
        self.note(|stage| stage.met = Some(met));
    }

    /// Takes in the state that the body met, or the head of the answer, or that none will come. The
    /// second of them ends the trial.
    fn note(&self, change: impl FnOnce(&mut Stage)) {
        let stage = {
            let mut stage = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
            change(&mut stage);
            *stage
        };
        let Stage { met: Some(met), answer: Some((answer, now)) } = stage else { return };
        let ended = self.shadow.lock().memory.end(met, answer, now, self.policy.wait);
        for given in ended.waited {
            self.judge(Verdict::after_waiting(given));
        }
        if ended.diverged {
            self.shadow.lock().routes.entry(self.route.clone()).or_default().diverged += 1;
            metrics::count_by(observe::SHADOW_DIVERGED, "route", self.route.clone());
            tracing::info!(route = %self.route, tenant = %self.id.tenant(), key = %self.id.digest(), status = answer.1, "shadow mode: a copy of a request got another final status");
        }
    }

    fn judge(&self, verdict: Verdict) {
        let retry = matches!(verdict, Verdict::Replayed | Verdict::InDoubt | Verdict::Refused("in-progress"));
        self.charged.give_back(self.id.tenant(), retry);
        self.shadow.judge(&self.route, Some(&self.id), verdict);
    }
}

impl Drop for Trial {
    /// A client that hung up took the answer along: also that of the copies that waited for it.
    fn drop(&mut self) {
        let stage = self.stage.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let (Some(met), None) = (stage.met, stage.answer) {
            let waited = self.shadow.lock().memory.forget(met);
            for _ in 0..waited {
                self.judge(Verdict::Unjudged);
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub enum Copied {
    Whole(Bytes),
    Over,
    /// The body broke off, or was given up by its reader.
    Broken,
}

/// Receiver of the copy: called once, at the body's end, at its limit, or when it is given up.
type AtEnd = Box<dyn FnOnce(Copied) + Send>;

pub fn tee(inner: Body, limit: usize, at_end: impl FnOnce(Copied) + Send + 'static) -> Body {
    let mut tee = Tee { inner, copy: BytesMut::new(), limit, at_end: Some(Box::new(at_end)) };
    if tee.inner.is_end_stream() {
        tee.tell(Copied::Whole);
    }
    tee.boxed_unsync()
}

struct Tee {
    inner: Body,
    copy: BytesMut,
    limit: usize,
    at_end: Option<AtEnd>,
}

impl Tee {
    fn tell(&mut self, how: fn(Bytes) -> Copied) {
        let copy = std::mem::take(&mut self.copy).freeze();
        if let Some(at_end) = self.at_end.take() {
            at_end(how(copy));
        }
    }

    fn copy(&mut self, data: &Bytes) {
        if self.at_end.is_some() && self.copy.len() + data.len() <= self.limit {
            self.copy.extend_from_slice(data);
        } else {
            self.tell(|_| Copied::Over);
        }
    }
}

impl http_body::Body for Tee {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Polled {
        let polled = Pin::new(&mut self.inner).poll_frame(context);
        match &polled {
            Poll::Pending | Poll::Ready(Some(Err(_))) => {}
            Poll::Ready(None) => self.tell(Copied::Whole),
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref() {
                    self.copy(data);
                }
                // A reader may not poll again once the body says that it is over.
                if self.inner.is_end_stream() {
                    self.tell(Copied::Whole);
                }
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for Tee {
    fn drop(&mut self) {
        self.tell(|_| Copied::Broken);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::ports::body::{Collected, chain, collect, empty, full};

    async fn through(body: Body, limit: usize) -> (Bytes, Copied) {
        let (send, copied) = mpsc::channel();
        let hint = body.size_hint().exact();
        let teed = tee(body, limit, move |copy| send.send(copy).unwrap());
        assert_eq!(teed.size_hint().exact(), hint, "a length that is known stays known");
        let Ok(Collected::Whole(bytes)) = collect(teed, 1 << 10).await else { panic!("a whole body") };
        let first = copied.recv().unwrap();
        assert!(copied.recv().is_err(), "told once");
        (bytes, first)
    }

    #[tokio::test]
    async fn a_tee_passes_everything_and_keeps_a_bounded_copy() {
        let pieces = || chain(Bytes::from_static(b"one"), full("two"));
        assert_eq!(through(pieces(), 6).await, ("onetwo".into(), Copied::Whole("onetwo".into())));
        assert_eq!(through(pieces(), 5).await, ("onetwo".into(), Copied::Over));
        assert_eq!(through(empty(), 0).await, (Bytes::new(), Copied::Whole(Bytes::new())));
    }

    #[test]
    fn a_body_that_nobody_reads_is_broken() {
        let (send, copied) = mpsc::channel();
        drop(tee(full("x"), 9, move |copy| send.send(copy).unwrap()));
        assert_eq!(copied.recv(), Ok(Copied::Broken));
    }
}
