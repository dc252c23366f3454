//! The admin listener: health, readiness, metrics, status, coverage and keys.
//!
//! It serves `GET` requests itself:
//! - `/healthz`, and `/readyz` for the health checks of global DNS (can serve *or forward*)
//! - `/metrics` (Prometheus), `/v1/status`, `/v1/coverage`, `/v1/shadow`, `/v1/keys/{tenant}/{key}`
//! - `/v1/audit`, `/v1/audit/export`, `/v1/audit/journal`, `/v1/audit/{tenant}/{key}`
//!
//! [`super::admin_acts`] acts on keys, [`super::admin_authority`] on regions; [`super::console`] is
//! the page for people. On loopback no password is needed, but the request must name a host of
//! loopback. On other addresses every path but the two health checks needs the token (config
//! refuses otherwise). This file must not log paths: they hold keys.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, WWW_AUTHENTICATE};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use metrics_exporter_prometheus::PrometheusHandle;
use serde::Serialize;
use tokio::net::TcpListener;

use super::Listeners;
use super::admin_acts::{self, ActBody, Verb};
use super::admin_authority;
use super::admin_door;
use super::admin_jobs;
use super::console;
use super::replaceable::Replaceable;
use crate::gateway::credentials::{TokenDigest, digest};
use crate::gateway::dead_letters::JobAct;
use crate::gateway::{Gateway, percent};
use crate::ports::Ports;
use crate::ports::observe::{self, Kind};

/// Service of the admin listener.
pub struct Admin<P: Ports> {
    gateway: Arc<Gateway<P>>,
    metrics: PrometheusHandle,
    key: Key,
    tries: console::Tries,
}

/// Digest of the token that the admin listener requires; none on loopback.
pub(super) struct Key(pub(super) Replaceable<Option<TokenDigest>>);

/// Response type of every path.
pub type Answer = Response<Full<Bytes>>;

impl<P: Ports> Admin<P> {
    /// Makes an admin service. `token` is the digest of the required token, `None` for a loopback
    /// listener.
    pub fn new(
        gateway: Arc<Gateway<P>>,
        metrics: PrometheusHandle,
        token: Replaceable<Option<TokenDigest>>,
    ) -> Self {
        Self { gateway, metrics, key: Key(token), tries: console::Tries::default() }
    }

    /// Answers one request. Reads the body only for an operator's act.
    pub async fn answer<B: ActBody>(&self, request: Request<B>) -> Result<Answer, Infallible> {
        let (head, body) = request.into_parts();
        let path: Vec<&str> = head.uri.path().trim_start_matches('/').split('/').collect();
        match &path[..] {
            [""] if head.method != Method::POST => return Ok(console::redirect()),
            ["console", page @ ..] => {
                let (shown, door) = ((&self.gateway, &self.metrics), (&self.key, &self.tries));
                return Ok(console::answer(shown, door, page, &head, body).await);
            }
            _ => {}
        }
        if head.method == Method::POST {
            return Ok(match &path[..] {
                _ if !self.key.allows(&head.headers) => self.key.refusal(),
                ["v1", "keys", tenant, key, "settle"] => {
                    self.act(Verb::Settle, tenant, key, &head.headers, body).await
                }
                ["v1", "keys", tenant, key, "release"] => {
                    self.act(Verb::Release, tenant, key, &head.headers, body).await
                }
                ["v1", "jobs", tenant, key, "retry"] => {
                    self.act_on_job(JobAct::Retry, tenant, key, &head.headers, body).await
                }
                ["v1", "jobs", tenant, key, "drop"] => {
                    self.act_on_job(JobAct::Drop, tenant, key, &head.headers, body).await
                }
                ["v1", "admin", act @ ..] => {
                    admin_authority::act(&self.gateway, act, &head.headers, body).await
                }
                _ => problem(
                    StatusCode::METHOD_NOT_ALLOWED,
                    "POST only /v1/keys/{tenant}/{key}/settle or /release, /v1/jobs/{tenant}/{key}/retry or /drop, /v1/admin/...",
                ),
            });
        }
        if head.method != Method::GET && head.method != Method::HEAD {
            return Ok(problem(
                StatusCode::METHOD_NOT_ALLOWED,
                "only GET and an operator's POST are answered here",
            ));
        }
        Ok(match &path[..] {
            ["healthz"] => text(StatusCode::OK, "ok\n"),
            ["readyz"] => {
                let readiness = self.gateway.readiness();
                let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
                json(status, &readiness)
            }
            _ if !self.key.allows(&head.headers) => self.key.refusal(),
            ["metrics"] => text(StatusCode::OK, &self.render()),
            ["v1", "status"] => json(StatusCode::OK, &self.gateway.status().await),
            ["v1", "doubts"] => admin_acts::doubts(&self.gateway, head.uri.query().unwrap_or_default()).await,
            ["v1", "jobs"] => admin_jobs::list(&self.gateway, head.uri.query().unwrap_or_default()).await,
            ["v1", "coverage"] => json(StatusCode::OK, &self.gateway.coverage()),
            ["v1", "shadow"] => match self.gateway.shadow_report() {
                Some(report) => json(StatusCode::OK, &report),
                None => problem(
                    StatusCode::NOT_FOUND,
                    "this gateway is not in shadow mode (shadow = true in its region file)",
                ),
            },
            ["v1", "keys", tenant, key] => self.key(tenant, key).await,
            ["v1", "audit", what @ ..] => self.audit(what, head.uri.query().unwrap_or_default()).await,
            _ => not_here(),
        })
    }

    async fn audit(&self, what: &[&str], query: &str) -> Answer {
        match what {
            [] => admin_authority::audit(&self.gateway, query).await,
            ["export"] => admin_authority::export(&self.gateway, query).await,
            ["journal"] => admin_authority::findings(&self.gateway, query).await,
            [tenant, key] => admin_authority::life(&self.gateway, tenant, key).await,
            _ => not_here(),
        }
    }

    async fn key(&self, tenant: &str, key: &str) -> Answer {
        let id = match admin_acts::id(&percent::decode(tenant), &percent::decode(key)) {
            Ok(id) => id,
            Err(why) => return problem(StatusCode::BAD_REQUEST, &why),
        };
        match self.gateway.key_status(&id).await {
            Ok(status) => json(StatusCode::OK, &status),
            Err(error) => problem(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
        }
    }

    async fn act<B: ActBody>(
        &self,
        verb: Verb,
        tenant: &str,
        key: &str,
        headers: &HeaderMap,
        body: B,
    ) -> Answer {
        match admin_acts::id(&percent::decode(tenant), &percent::decode(key)) {
            Ok(id) => admin_acts::rule(&self.gateway, verb, id, headers, body).await,
            Err(why) => problem(StatusCode::BAD_REQUEST, &why),
        }
    }

    async fn act_on_job<B: ActBody>(
        &self,
        what: JobAct,
        tenant: &str,
        key: &str,
        headers: &HeaderMap,
        body: B,
    ) -> Answer {
        let (tenant, key) = (percent::decode(tenant), percent::decode(key));
        admin_jobs::act(&self.gateway, what, (&tenant, &key), headers, body).await
    }

    /// Renders the metrics. A metric without series yet is listed with its HELP and TYPE.
    fn render(&self) -> String {
        self.metrics.run_upkeep();
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
    /// Says whether the request may be answered. Compares digests, not tokens, so the time that it
    /// takes reveals nothing about the token.
    pub(super) fn allows(&self, headers: &HeaderMap) -> bool {
        let Some(token) = *self.0.now() else { return names_this_machine(headers) };
        let given = headers.get(AUTHORIZATION).and_then(|value| value.as_bytes().split_at_checked(7));
        given.is_some_and(|(scheme, given)| scheme.eq_ignore_ascii_case(b"bearer ") && digest(given) == token)
    }

    pub(super) fn refusal(&self) -> Answer {
        match *self.0.now() {
            Some(_) => unauthorized(),
            None => problem(
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

fn not_here() -> Answer {
    problem(
        StatusCode::NOT_FOUND,
        "ask /console, /healthz, /readyz, /metrics, /v1/status, /v1/doubts, /v1/jobs, /v1/coverage, /v1/shadow, /v1/audit, /v1/audit/export, /v1/audit/journal, /v1/audit/{tenant}/{key} or /v1/keys/{tenant}/{key}",
    )
}

fn unauthorized() -> Answer {
    let mut answer = problem(StatusCode::UNAUTHORIZED, "send Authorization: Bearer with the admin token");
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
    let title = status.canonical_reason().unwrap_or_default();
    let body = serde_json::json!({
        "type": "about:blank", "title": title, "status": status.as_u16(), "code": code, "detail": detail,
    });
    answer(status, "application/problem+json", format!("{body}\n").into_bytes())
}

fn answer(status: StatusCode, kind: &'static str, body: Vec<u8>) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer.headers_mut().insert("cache-control", HeaderValue::from_static("no-store"));
    answer
}

/// Listens for operators, health checks and scrapers in the background.
pub fn listen<P: Ports>(listeners: &mut Listeners, listener: TcpListener, admin: Arc<Admin<P>>) {
    admin_door::listen(listeners, listener, move |request| {
        let admin = admin.clone();
        async move { admin.answer(request).await }
    });
}
