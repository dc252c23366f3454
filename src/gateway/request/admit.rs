//! Admission: turns an HTTP request into a keyed request, a pass-through or a refusal.
//!
//! The whole body is read and fingerprinted before anything is claimed, so a body that breaks off
//! leaves nothing behind.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use http_body::Body as _;

use super::accept;
use super::ask::Ask;
use super::passthrough::Passing;
use super::problems::{Kind, Problem};
use super::reply;
use crate::gateway::credentials::Vouched;
use crate::gateway::credentials::caller::Caller;
use crate::gateway::instance::Gateway;
use crate::gateway::limits::concurrency::Place;
use crate::gateway::limits::quota::Charged;
use crate::gateway::policy::canonical::canonical_json;
use crate::gateway::policy::route::{Binding, Dialect, Matched, NO_ROUTE, Policy};
use crate::gateway::policy::signature::Unsigned;
use crate::gateway::reloadable::Live;
use crate::gateway::telemetry::times::{RouteTimes, Waited};
use crate::gateway::telemetry::trace;
use crate::ports::body::{self, Body, Collected};
use crate::ports::jobs::StoredRequest;
use crate::ports::peers::Forward;
use crate::ports::{Clock, Dice, Ports};
use crate::protocol::digest::Digest32;
use crate::protocol::fingerprint::{self, Fingerprint};
use crate::protocol::key::{KeyError, KeyId};
use crate::protocol::time::Moment;

pub enum Admitted {
    Pass(Box<Request<Body>>, Passing),
    Keyed(Arc<Ask>),
    /// Refused, with the echo of its key if it had one.
    Refused(Problem, Dialect, Option<HeaderValue>, Arc<RouteTimes>),
}

pub async fn admit<P: Ports>(
    gateway: &Gateway<P>,
    request: Request<Body>,
    place: &Place,
    arrived: Moment,
) -> Admitted {
    let live = gateway.live();
    let (method, path) = (request.method(), request.uri().path());
    let matched = live.routes.find(method, path, request.headers());
    let with_key = matched.has_key(request.headers());
    gateway.coverage.saw(method, path, matched, with_key, matches!(matched, Matched::Refused(_)));
    let (route, policy) = match matched {
        Matched::Route(route) => (&*route.name, route.policy_for(with_key)),
        Matched::PassThrough | Matched::Refused(_) => (NO_ROUTE, None),
    };
    let times = live.times(route).clone();
    if let Matched::Refused(why) = matched {
        return Admitted::Refused(why.into(), Dialect::Plain, None, times);
    }
    let Some(policy) = policy.cloned() else {
        // It belongs to a trace like any other.
        let mut request = request;
        let trace = trace::follow(request.headers_mut(), gateway.ports.dice().request_id());
        return Admitted::Pass(Box::new(request), Passing::of(times, matched, trace, arrived));
    };
    let echo = policy.key_headers.from.iter().find_map(|name| request.headers().get(name)).cloned();
    let dialect = policy.dialect;
    match keyed(gateway, &live, (&times, policy), request, place, arrived).await {
        Ok(ask) => Admitted::Keyed(Arc::new(ask)),
        Err(problem) => {
            // No client is told a key that is not one.
            let unread =
                [Kind::KeyMissing, Kind::KeyEmpty, Kind::KeyTooLong, Kind::KeyMalformed, Kind::KeyRepeated];
            let echo = echo.filter(|_| !unread.contains(&problem.kind));
            Admitted::Refused(problem, dialect, echo, times)
        }
    }
}

async fn keyed<P: Ports>(
    gateway: &Gateway<P>,
    live: &Live,
    (times, policy): (&Arc<RouteTimes>, Arc<Policy>),
    request: Request<Body>,
    place: &Place,
    arrived: Moment,
) -> Result<Ask, Problem> {
    let (mut head, body) = request.into_parts();
    let (id, principal, echo) = identify(gateway, live, &policy, &head)?;
    policy.key_headers.move_into(&mut head.headers, &reply::KEY, echo.clone());
    if !place.is_of(Some(id.tenant())) {
        return Err(gateway.overloaded());
    }
    make_room(gateway, place, announced(&head.headers, &body, policy.body_limit)?)?;
    let charged = gateway.charge(live, id.tenant(), false)?;
    let begun = gateway.now();
    let body = read_body(gateway, body, policy.body_limit).await?;
    let waited = Waited::default();
    waited.add(gateway.now().since(begun));
    make_room(gateway, place, body.len())?;
    let target = head.uri.into_parts().path_and_query.map(Uri::from).unwrap_or_default();
    let fingerprint = take_fingerprint(&policy, &head.method, &target, &head.headers, &body)?;
    let deadline = gateway.settings.patience(&policy);
    let by = accept::by(&policy, &head.headers);
    let (request_id, mut headers) = (gateway.ports.dice().request_id(), head.headers);
    trace::follow(&mut headers, request_id);
    Ok(Ask {
        id,
        principal,
        echo,
        route: times.route().clone(),
        policy,
        meanings: live.meanings.clone(),
        request: StoredRequest { method: head.method, target, headers, body },
        fingerprint,
        request_id,
        arrived,
        deadline,
        by,
        charged,
        times: Some(times.clone()),
        waited,
        _place: Some(place.clone()),
    })
}

pub fn identify<P: Ports>(
    gateway: &Gateway<P>,
    live: &Live,
    policy: &Policy,
    head: &Parts,
) -> Result<(KeyId, Option<Digest32>, HeaderValue), Problem> {
    let caller = find_caller(gateway, live, head).ok_or_else(|| Kind::CredentialInvalid.problem())?;
    check_named(policy, caller.principal)?;
    let (key, written) = policy.key_headers.read(&head.headers, policy.syntax)?;
    policy.key_policy.check(&key)?;
    Ok((KeyId::new(caller.tenant, key), caller.principal, written))
}

/// The caller. On a listener of a trusted front, the front names it; elsewhere the credential.
pub fn find_caller<P: Ports>(gateway: &Gateway<P>, live: &Live, head: &Parts) -> Option<Caller> {
    match head.extensions.get::<Vouched>() {
        Some(Vouched(caller)) => caller.clone(),
        None => live.credentials.caller(&head.headers, gateway.ports.clock().date()),
    }
}

fn check_named(policy: &Policy, principal: Option<Digest32>) -> Result<(), Problem> {
    let named = principal.is_some() || policy.bind == Binding::Tenant;
    named.then_some(()).ok_or_else(|| Kind::CredentialInvalid.problem())
}

/// Admits a request that a peer forwarded, which has verified tenant and key.
pub fn admit_forward<P: Ports>(
    gateway: &Gateway<P>,
    forward: Forward,
    place: &Place,
) -> Result<Ask, (Problem, Dialect)> {
    let live = gateway.live();
    let matched = live.routes.find(&forward.method, forward.target.path(), &forward.headers);
    let no_route = || (Kind::NoRoute.problem(), Dialect::Plain);
    let (route, policy) = match matched {
        Matched::Route(route) => (route.name.clone(), route.policy().ok_or_else(no_route)?.clone()),
        Matched::PassThrough => return Err(no_route()),
        Matched::Refused(why) => return Err((why.into(), Dialect::Plain)),
    };
    let dialect = policy.dialect;
    let admitted = || {
        check_named(&policy, forward.principal)?;
        if forward.body.len() > policy.body_limit {
            return Err(too_large(policy.body_limit));
        }
        make_room(gateway, place, forward.body.len())?;
        policy.key_policy.check(forward.id.key())?;
        let Forward { method, target, headers, body, .. } = forward;
        let fingerprint = take_fingerprint(&policy, &method, &target, &headers, &body)?;
        let echo = headers.get(&reply::KEY).cloned().ok_or(KeyError::Missing)?;
        let by = accept::by(&policy, &headers);
        Ok(Ask {
            id: forward.id,
            principal: forward.principal,
            echo,
            route,
            policy,
            meanings: live.meanings.clone(),
            request: StoredRequest { method, target, headers, body },
            fingerprint,
            request_id: forward.request_id,
            arrived: gateway.now(),
            deadline: forward.deadline,
            by,
            charged: Charged::default(),
            times: None,
            waited: Waited::default(),
            _place: Some(place.clone()),
        })
    };
    admitted().map_err(|problem| (problem, dialect))
}

/// Most bytes of the body: as its head says, or its framing (if empty), or the route's limit.
fn announced(headers: &HeaderMap, body: &Body, limit: usize) -> Result<usize, Problem> {
    let announced = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    match announced {
        Some(length) if length > limit as u64 => Err(too_large(limit)),
        Some(length) => Ok(length as usize),
        None => Ok(body.size_hint().upper().map_or(limit, |most| limit.min(most as usize))),
    }
}

async fn read_body<P: Ports>(gateway: &Gateway<P>, body: Body, limit: usize) -> Result<Bytes, Problem> {
    let until = gateway.now() + gateway.settings.timings.body_within;
    match gateway.before(until, body::collect(body, limit)).await {
        Some(Ok(Collected::Whole(bytes))) => Ok(bytes),
        Some(Ok(Collected::Over(..))) => Err(too_large(limit)),
        Some(Err(_)) | None => Err(Kind::BodyBroken.problem()),
    }
}

fn too_large(limit: usize) -> Problem {
    Kind::BodyTooLarge.problem().because(format_args!("The limit is {limit} bytes"))
}

fn make_room<P: Ports>(gateway: &Gateway<P>, place: &Place, bytes: usize) -> Result<(), Problem> {
    place.has_room_for(bytes).then_some(()).ok_or_else(|| gateway.overloaded())
}

/// Takes two digests: of the raw bytes, and of the business signature if the route has one, else of
/// the canonical form if there is a lossless one. Headers that count are part of both.
pub fn take_fingerprint(
    policy: &Policy,
    method: &Method,
    target: &Uri,
    headers: &HeaderMap,
    body: &Bytes,
) -> Result<Fingerprint, Problem> {
    let target = target.path_and_query().map_or("/", |target| target.as_str());
    let method = method.as_str();
    let canonical = match (&policy.fingerprint, is_json(headers)) {
        (None, true) => canonical_json(body).ok().map(|text| fingerprint::canonical(method, target, &text)),
        (None, false) => None,
        (Some(_), false) => return Err(Unsigned::NotJsonType.into()),
        (Some(selection), true) => {
            let selected = selection.select(body).map_err(Unsigned::RawOnly)?;
            Some(fingerprint::signature(method, target, &selection.canonical(), &selected))
        }
    };
    let values =
        |name: &HeaderName| headers.get_all(name).iter().map(HeaderValue::as_bytes).collect::<Vec<_>>();
    let counted: Vec<(&str, Vec<&[u8]>)> =
        policy.fingerprint_headers.iter().map(|name| (name.as_str(), values(name))).collect();
    Ok(Fingerprint { raw: fingerprint::raw(method, target, body), canonical }.with_headers(&counted))
}

/// True if the body is JSON for every reader. With two content types, each reader may take another.
fn is_json(headers: &HeaderMap) -> bool {
    let mut kinds = headers.get_all(CONTENT_TYPE).iter();
    let (Some(Ok(kind)), None) = (kinds.next().map(HeaderValue::to_str), kinds.next()) else { return false };
    let essence = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || essence.ends_with("+json")
}
