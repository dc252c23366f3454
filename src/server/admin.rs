//! The admin listener: health, readiness, metrics, status, coverage and keys.
//!
//! The answer to an unknown path lists them. `/readyz` is for the health checks of global DNS: it
//! can serve *or forward*. On loopback no password is needed, but the request must name a host of
//! loopback. Elsewhere every path but the two health checks needs a token (config refuses
//! otherwise), and an act one whose operator may act. No path is logged: they hold keys.

use std::sync::Arc;

use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use metrics_exporter_prometheus::PrometheusHandle;
use rustls::ServerConfig;
use tokio::net::TcpListener;

use super::admin_acts::{self, What};
use super::admin_door::{self, Answers};
use super::admin_http::{
    APPROVAL, Acted, Answer, Key, Posted, bad, forbidden, from_store, json, problem, text,
};
use super::console::rates::{self, Rates};
use super::console::{self, search};
use super::{Gateway, Listeners, Replaceable, admin_authority, second_person};
use crate::gateway::credentials::operators::{Operators, Visitor};
use crate::gateway::operator::percent;
use crate::ports::body::full;
use crate::ports::observe::{self, Kind};
use crate::ports::peers::{PeerReply, Proof};
use crate::ports::{Body, BodyError};
use crate::protocol::key::KeyId;

pub struct Admin {
    gateway: Arc<Gateway>,
    metrics: PrometheusHandle,
    /// CPU, memory and files of this process, as the system knows them.
    process: metrics_process::Collector,
    rates: Arc<Rates>,
    key: Key,
    tries: console::Tries,
}

impl Admin {
    pub fn new(gateway: Arc<Gateway>, metrics: PrometheusHandle, operators: Replaceable<Operators>) -> Self {
        let process = metrics_process::Collector::default();
        process.describe();
        metrics::gauge!(observe::BUILD_INFO, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
        let (rates, tries) = (Arc::default(), console::Tries::default());
        Self { gateway, metrics, process, rates, key: Key::new(operators), tries }
    }

    /// Answers an act that an operator asked another region for. The operator has to be known here,
    /// by a token: the region that asks proves nothing.
    pub async fn act_for(&self, path: &str, body: String, proof: Proof) -> PeerReply {
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
        if What::asked(&path).is_none() || matches!(self.key.visitor(&headers), None | Some(Visitor::Local)) {
            let why =
                "its operators are not known there by the token that was shown: ask its own admin listener";
            return PeerReply::Refused(why.to_owned());
        }
        let answer = self.acted(&path, &headers, full(body), true).await;
        let (head, body) = answer.unwrap_or_else(|refused| *refused).into_parts();
        let Ok(body) = body.collect().await;
        let body = String::from_utf8_lossy(&body.to_bytes()).into_owned();
        PeerReply::Acted { status: head.status.as_u16(), body }
    }

    async fn acted(&self, path: &[&str], headers: &HeaderMap, body: Body, passed_on: bool) -> Acted {
        let gateway = &self.gateway;
        let Some(by) = self.key.visitor(headers) else { return Ok(self.key.refusal()) };
        by.may_act().map_err(forbidden)?;
        let posted = Posted { key: &self.key, by, path: &path.join("/"), headers, body, passed_on };
        if let Some((what, tenant, key)) = What::asked(path) {
            return admin_acts::act(gateway, what, named(tenant, key)?, posted).await;
        }
        match path {
            ["v1", "doubts", "rule"] => admin_acts::change_rule(gateway, posted).await,
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
            ["v1", "doubts" | "audit"] | ["v1", "doubts", "all"] | ["v1", "audit", "export"] => {
                let (most, after) = admin_acts::page(query)?;
                let after = after.as_ref();
                match path[1..] {
                    ["doubts"] => from_store(gateway.doubts(after, most).await),
                    ["doubts", _] => from_store(gateway.all_doubts(after, most).await),
                    ["audit"] => from_store(gateway.audit(after, most).await),
                    _ => from_store(gateway.export(after, most).await),
                }
            }
            ["v1", "jobs"] => from_store(gateway.jobs(admin_acts::job_state(query)?).await),
            ["v1", "jobs", "all"] => from_store(gateway.all_jobs(admin_acts::job_state(query)?).await),
            ["v1", "coverage"] => json(StatusCode::OK, &gateway.coverage()),
            ["v1", "shadow"] => match gateway.shadow_report() {
                Some(report) => json(StatusCode::OK, &report),
                None => problem(
                    StatusCode::NOT_FOUND,
                    "this gateway is not in shadow mode (shadow = true in its region file)",
                ),
            },
            ["v1", "keys"] => {
                let query: Vec<_> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
                let (wanted, after, most) = search::read(&query).map_err(|why| bad(&why))?;
                from_store(gateway.search(&wanted, after.as_ref(), most).await)
            }
            ["v1", "keys", tenant, key] => from_store(gateway.key_status(&named(tenant, key)?).await),
            ["v1", "audit", "journal"] => admin_authority::findings(gateway, query).await,
            ["v1", "audit", tenant, key] => from_store(gateway.key_life(&named(tenant, key)?).await),
            _ => problem(
                StatusCode::NOT_FOUND,
                "ask /console, /healthz, /readyz, /metrics, /v1/status, /v1/doubts, /v1/doubts/all, /v1/jobs, /v1/jobs/all, /v1/coverage, /v1/shadow, /v1/audit, /v1/audit/export, /v1/audit/journal, /v1/audit/{tenant}/{key}, /v1/keys?tenant=&route=&state=&from=&before= or /v1/keys/{tenant}/{key}",
            ),
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

impl Answers for Admin {
    /// Reads the body only for an operator's act.
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let (head, body) = request.into_parts();
        let body = body.map_err(|error| BodyError(error.to_string())).boxed_unsync();
        let path: Vec<&str> = head.uri.path().trim_start_matches('/').split('/').collect();
        let answer = match (&path[..], &head.method) {
            ([""], method) if method != Method::POST => Ok(console::elsewhere("/console")),
            (["console", page @ ..], _) => {
                let shown = (&self.gateway, &self.metrics, &*self.rates);
                console::answer(shown, (&self.key, &self.tries), page, &head, body).await
            }
            (path, &Method::POST) => self.acted(path, &head.headers, body, false).await,
            (path, &(Method::GET | Method::HEAD)) => self.shown(path, &head).await,
            (_, _) => {
                let why = "only GET and an operator's POST are answered here";
                Ok(problem(StatusCode::METHOD_NOT_ALLOWED, why))
            }
        };
        answer.unwrap_or_else(|refused| *refused)
    }
}

fn named(tenant: &str, key: &str) -> Result<KeyId, Box<Answer>> {
    admin_acts::id(&percent::decode(tenant), &percent::decode(key)).map_err(|why| bad(&why))
}

pub fn listen(
    listeners: &mut Listeners,
    listener: TcpListener,
    tls: Option<Replaceable<ServerConfig>>,
    admin: Arc<Admin>,
) {
    let (rates, metrics) = (Arc::downgrade(&admin.rates), admin.metrics.clone());
    // Samples for the console, as long as there is one.
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(rates::EVERY).await;
            let Some(rates) = rates.upgrade() else { return };
            rates.keep(&metrics.render());
        }
    });
    admin_door::listen(listeners, listener, tls, admin);
}
