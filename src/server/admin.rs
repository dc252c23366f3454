//! The admin listener: health, readiness, metrics, status, coverage and keys.
//!
//! It serves `GET` requests itself:
//! - `/healthz`, and `/readyz` for the health checks of global DNS (can serve *or forward*)
//! - `/metrics` (Prometheus), `/v1/status`, `/v1/coverage`, `/v1/shadow`
//! - `/v1/keys` (a search), `/v1/keys/{tenant}/{key}`
//! - `/v1/doubts` (of this region), `/v1/doubts/all`, `/v1/jobs` (of this region),
//!   `/v1/jobs/all`
//! - `/v1/audit`, `/v1/audit/export`, `/v1/audit/journal`, `/v1/audit/{tenant}/{key}`
//!
//! [`super::admin_acts`] acts on keys, [`super::admin_authority`] on regions; [`super::console`] is
//! the page for people. On loopback no password is needed, but the request must name a host of
//! loopback. On other addresses every path but the two health checks needs a token (config
//! refuses otherwise), and an act one whose operator may act. This file must not log paths: they
//! hold keys.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, WWW_AUTHENTICATE};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use metrics_exporter_prometheus::PrometheusHandle;
use ring::hmac;
use ring::rand::SystemRandom;
use rustls::ServerConfig;
use serde::Serialize;
use serde_json::Value;
use tokio::net::TcpListener;

use super::Listeners;
use super::admin_acts::{self, ActBody, Posted, Verb};
use super::admin_authority;
use super::admin_door;
use super::admin_jobs;
use super::console::rates::{self, Rates};
use super::console::{self, search};
use super::replaceable::Replaceable;
use super::second_person::{self, APPROVAL};
use crate::gateway::credentials::operators::{Operators, Visitor, Weighty};
use crate::gateway::credentials::{TokenDigest, digest};
use crate::gateway::dead_letters::JobAct;
use crate::gateway::{Gateway, percent};
use crate::ports::Ports;
use crate::ports::observe::{self, Kind};
use crate::ports::peers::{Proof, Told};
use crate::ports::store::StoreError;
use crate::protocol::key::KeyId;

pub struct Admin<P: Ports> {
    gateway: Arc<Gateway<P>>,
    metrics: PrometheusHandle,
    /// CPU, memory and files of this process, as the system knows them.
    process: metrics_process::Collector,
    rates: Arc<Rates>,
    key: Key,
    tries: console::Tries,
}

/// Those whom the admin listener answers.
pub(super) struct Key {
    pub(super) operators: Replaceable<Operators>,
    /// Drawn at the start: seals what nobody outside of this process may make.
    drawn: hmac::Key,
}

/// Response type of every path.
pub type Answer = Response<Full<Bytes>>;

/// The answer of a path, or the refusal as an answer.
pub(super) type Acted = Result<Answer, Box<Answer>>;

impl<P: Ports> Admin<P> {
    /// Makes an admin service that answers these operators.
    pub fn new(
        gateway: Arc<Gateway<P>>,
        metrics: PrometheusHandle,
        operators: Replaceable<Operators>,
    ) -> Self {
        let process = metrics_process::Collector::default();
        process.describe();
        metrics::gauge!(observe::BUILD_INFO, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
        let (rates, tries) = (Arc::default(), console::Tries::default());
        Self { gateway, metrics, process, rates, key: Key::new(operators), tries }
    }

    /// Answers one request. Reads the body only for an operator's act.
    pub async fn answer<B: ActBody>(&self, request: Request<B>) -> Result<Answer, Infallible> {
        let (head, body) = request.into_parts();
        let path: Vec<&str> = head.uri.path().trim_start_matches('/').split('/').collect();
        match &path[..] {
            [""] if head.method != Method::POST => return Ok(console::redirect()),
            ["console", page @ ..] => {
                let shown = (&self.gateway, &self.metrics, &*self.rates);
                let door = (&self.key, &self.tries);
                return Ok(console::answer(shown, door, page, &head, body).await);
            }
            _ => {}
        }
        let answer = match head.method {
            Method::POST => self.acted(&path, &head.headers, body, false).await,
            Method::GET | Method::HEAD => self.shown(&path, &head).await,
            _ => {
                let why = "only GET and an operator's POST are answered here";
                Ok(problem(StatusCode::METHOD_NOT_ALLOWED, why))
            }
        };
        Ok(answer.unwrap_or_else(|refused| *refused))
    }

    /// Answers an act that an operator asked another region for.
    ///
    /// The operator has to be known here, by a token: the region that asks proves nothing.
    pub async fn act_for(&self, path: &str, body: String, proof: Proof) -> Told {
        let mut headers = HeaderMap::new();
        let Proof { authorization, approval } = proof;
        let pairs = [(AUTHORIZATION.as_str(), Some(authorization)), (APPROVAL, approval)];
        for (name, value) in pairs {
            if let Some(Ok(value)) = value.map(|value| HeaderValue::from_str(&value)) {
                headers.insert(name, value);
            }
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let path: Vec<&str> = path.split('/').collect();
        let is_passed_on = matches!(
            path[..],
            ["v1", "keys", _, _, "settle" | "release"] | ["v1", "jobs", _, _, "retry" | "drop"]
        );
        if !is_passed_on || matches!(self.key.visitor(&headers), None | Some(Visitor::Local)) {
            let why =
                "its operators are not known there by the token that was shown: ask its own admin listener";
            return Told::Refused(why.to_owned());
        }
        let answer = self.acted(&path, &headers, Full::from(body), true).await;
        let (head, body) = answer.unwrap_or_else(|refused| *refused).into_parts();
        let Ok(body) = body.collect().await;
        let body = String::from_utf8_lossy(&body.to_bytes()).into_owned();
        Told::Acted { status: head.status.as_u16(), body }
    }

    async fn acted<B: ActBody>(&self, path: &[&str], headers: &HeaderMap, body: B, passed_on: bool) -> Acted {
        let gateway = &self.gateway;
        let Some(by) = self.key.visitor(headers) else { return Ok(self.key.refusal()) };
        by.may_act().map_err(|why| Box::new(coded(StatusCode::FORBIDDEN, "forbidden", &why)))?;
        let posted = Posted { key: &self.key, by, path: &path.join("/"), headers, body, passed_on };
        match path {
            ["v1", "keys", tenant, key, "settle"] => {
                admin_acts::rule(gateway, Verb::Settle, named(tenant, key)?, posted).await
            }
            ["v1", "keys", tenant, key, "release"] => {
                admin_acts::rule(gateway, Verb::Release, named(tenant, key)?, posted).await
            }
            ["v1", "doubts", "rule"] => admin_acts::change_rule(gateway, posted).await,
            ["v1", "jobs", tenant, key, "retry"] => {
                admin_jobs::act(gateway, JobAct::Retry, named(tenant, key)?, posted).await
            }
            ["v1", "jobs", tenant, key, "drop"] => {
                admin_jobs::act(gateway, JobAct::Drop, named(tenant, key)?, posted).await
            }
            ["v1", "admin", "approve"] => second_person::approve(gateway, posted).await,
            ["v1", "admin", act @ ..] => admin_authority::act(gateway, act, posted).await,
            _ => Ok(problem(
                StatusCode::METHOD_NOT_ALLOWED,
                "POST only /v1/keys/{tenant}/{key}/settle or /release, /v1/doubts/rule, /v1/jobs/{tenant}/{key}/retry or /drop, /v1/admin/...",
            )),
        }
    }

    async fn shown(&self, path: &[&str], head: &Parts) -> Acted {
        let (gateway, query) = (&self.gateway, head.uri.query().unwrap_or_default());
        Ok(match path {
            ["healthz"] => text(StatusCode::OK, "ok\n"),
            ["readyz"] => {
                let readiness = gateway.readiness();
                let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
                json(status, &readiness)
            }
            _ if self.key.visitor(&head.headers).is_none() => self.key.refusal(),
            ["metrics"] => text(StatusCode::OK, &self.render()),
            ["v1", "status"] => json(StatusCode::OK, &gateway.status().await),
            ["v1", "doubts"] => {
                let (most, after) = admin_acts::page(query)?;
                told(gateway.doubts(after.as_ref(), most).await)
            }
            ["v1", "doubts", "all"] => {
                let (most, after) = admin_acts::page(query)?;
                told(gateway.all_doubts(after.as_ref(), most).await)
            }
            ["v1", "jobs"] => told(gateway.jobs_here(admin_jobs::state(query)?).await),
            ["v1", "jobs", "all"] => told(gateway.all_jobs(admin_jobs::state(query)?).await),
            ["v1", "coverage"] => json(StatusCode::OK, &gateway.coverage()),
            ["v1", "shadow"] => match gateway.shadow_report() {
                Some(report) => json(StatusCode::OK, &report),
                None => problem(
                    StatusCode::NOT_FOUND,
                    "this gateway is not in shadow mode (shadow = true in its region file)",
                ),
            },
            ["v1", "keys"] => {
                let (wanted, after, most) = search::read(&parsed(query)).map_err(|why| bad(&why))?;
                told(gateway.search(&wanted, after.as_ref(), most).await)
            }
            ["v1", "keys", tenant, key] => told(gateway.key_status(&named(tenant, key)?).await),
            ["v1", "audit"] => {
                let (most, after) = admin_acts::page(query)?;
                told(gateway.audit(after.as_ref(), most).await)
            }
            ["v1", "audit", "export"] => {
                let (most, after) = admin_acts::page(query)?;
                told(gateway.export(after.as_ref(), most).await)
            }
            ["v1", "audit", "journal"] => admin_authority::findings(gateway, query).await,
            ["v1", "audit", tenant, key] => told(gateway.key_life(&named(tenant, key)?).await),
            _ => not_here(),
        })
    }

    /// Renders the metrics. A metric without series yet is listed with its HELP and TYPE.
    fn render(&self) -> String {
        self.metrics.run_upkeep();
        self.process.collect();
        let mut page = self.metrics.render();
        for metric in observe::ALL {
            if !page.contains(&format!("# TYPE {} ", metric.name)) {
                let kind = match metric.kind {
                    Kind::Counter => "counter",
                    Kind::Gauge => "gauge",
                    Kind::Histogram => "histogram",
                };
                page.push_str(&format!(
                    "# HELP {name} {}\n# TYPE {name} {kind}\n\n",
                    metric.help,
                    name = metric.name
                ));
            }
        }
        page
    }
}

impl Key {
    pub(super) fn new(operators: Replaceable<Operators>) -> Self {
        // A process without random numbers has no TLS either.
        let drawn = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        #[expect(clippy::expect_used, reason = "the system gives random numbers")]
        let drawn = drawn.expect("random numbers");
        Self { operators, drawn }
    }

    /// True if acts of this kind need a second person.
    pub(super) fn needs(&self, what: Weighty) -> bool {
        self.operators.now().second_person.contains(&what)
    }

    /// The key that seals what only this process may make.
    pub(super) fn drawn(&self) -> &hmac::Key {
        &self.drawn
    }

    /// The key that seals the sessions of a token's owner.
    ///
    /// The operators' file shows the digests of their tokens to its readers, so those seal nothing. The
    /// shared token's digest is in no file: with it every gateway of the region knows a session.
    pub(super) fn of_sessions(&self, token: &TokenDigest) -> hmac::Key {
        match self.operators.now().shared {
            Some(shared) if shared == *token => hmac::Key::new(hmac::HMAC_SHA256, token),
            _ => hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&self.drawn, token).as_ref()),
        }
    }

    /// The sender of a request that may be answered. Compares digests, not tokens, so the time that
    /// it takes reveals nothing about a token.
    pub(super) fn visitor(&self, headers: &HeaderMap) -> Option<Visitor> {
        let operators = self.operators.now();
        if operators.is_open() {
            return names_this_machine(headers).then_some(Visitor::Local);
        }
        let (scheme, token) = headers.get(AUTHORIZATION)?.as_bytes().split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then(|| operators.of(&digest(token))).flatten()
    }

    pub(super) fn refusal(&self) -> Answer {
        match self.operators.now().is_open() {
            false => unauthorized(),
            true => problem(
                StatusCode::MISDIRECTED_REQUEST,
                "without a token only 127.0.0.1, [::1] and localhost are answered: ask by one of them, or name a token file ([admin] token_file)",
            ),
        }
    }
}

/// True if the request names this machine as its host.
///
/// With DNS rebinding, a stranger's page in a browser here has its name pointed to loopback. Its
/// requests name the stranger as the host. A request without a host is from no browser.
fn names_this_machine(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(HOST) else { return true };
    let Ok(host) = Authority::try_from(host.as_bytes()) else { return false };
    let bare = host.host().trim_start_matches('[').trim_end_matches(']');
    bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// The parameters of a query.
fn parsed(query: &str) -> Vec<(String, String)> {
    form_urlencoded::parse(query.as_bytes()).into_owned().collect()
}

/// The key that a path names.
fn named(tenant: &str, key: &str) -> Result<KeyId, Box<Answer>> {
    admin_acts::id(&percent::decode(tenant), &percent::decode(key)).map_err(|why| bad(&why))
}

fn not_here() -> Answer {
    problem(
        StatusCode::NOT_FOUND,
        "ask /console, /healthz, /readyz, /metrics, /v1/status, /v1/doubts, /v1/doubts/all, /v1/jobs, /v1/jobs/all, /v1/coverage, /v1/shadow, /v1/audit, /v1/audit/export, /v1/audit/journal, /v1/audit/{tenant}/{key}, /v1/keys?tenant=&route=&state=&from=&before= or /v1/keys/{tenant}/{key}",
    )
}

fn unauthorized() -> Answer {
    let mut answer = problem(
        StatusCode::UNAUTHORIZED,
        "send Authorization: Bearer with the admin token, or with an operator's",
    );
    answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    answer
}

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
pub(super) fn told(found: Result<impl Serialize, StoreError>) -> Answer {
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
    let title = status.canonical_reason().unwrap_or_default();
    let body = serde_json::json!({ "type": "about:blank", "title": title, "status": status.as_u16(), "detail": detail });
    answer(status, "application/problem+json", format!("{body}\n").into_bytes())
}

/// Makes a problem with a stable code for programs.
pub(super) fn coded(status: StatusCode, code: &str, detail: &str) -> Answer {
    unfinished(status, (code, detail), Value::Null)
}

/// Makes such a problem with more fields: what its reader needs to go on.
pub(super) fn unfinished(status: StatusCode, (code, detail): (&str, &str), more: Value) -> Answer {
    let title = status.canonical_reason().unwrap_or_default();
    let mut body = serde_json::json!({
        "type": "about:blank", "title": title, "status": status.as_u16(), "code": code, "detail": detail,
    });
    if let (Value::Object(body), Value::Object(more)) = (&mut body, more) {
        body.extend(more);
    }
    answer(status, "application/problem+json", format!("{body}\n").into_bytes())
}

pub(super) fn answer(status: StatusCode, kind: &'static str, body: Vec<u8>) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer.headers_mut().insert("cache-control", HeaderValue::from_static("no-store"));
    answer
}

/// Keeps samples for the console as long as there is one.
async fn keep_rates(rates: Weak<Rates>, metrics: PrometheusHandle) {
    loop {
        tokio::time::sleep(rates::EVERY).await;
        let Some(rates) = rates.upgrade() else { return };
        rates.keep(&metrics.render());
    }
}

/// Listens for operators, health checks and scrapers in the background, over TLS if there is a
/// configuration for it.
pub fn listen<P: Ports>(
    listeners: &mut Listeners,
    listener: TcpListener,
    tls: Option<Replaceable<ServerConfig>>,
    admin: Arc<Admin<P>>,
) {
    tokio::spawn(keep_rates(Arc::downgrade(&admin.rates), admin.metrics.clone()));
    admin_door::listen(listeners, listener, tls, move |request| {
        let admin = admin.clone();
        async move { admin.answer(request).await }
    });
}
