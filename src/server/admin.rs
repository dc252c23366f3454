//! The admin listener: health, readiness, metrics, status, one key.
//!
//! `GET /healthz`, `GET /readyz` (for the health checks of global DNS: can serve *or forward*), `GET /metrics` (Prometheus),
//! `GET /v1/status`, `GET /v1/keys/{tenant}/{key}`. Neighbours: `gateway::status` says it, `cli::status` prints it. On loopback it
//! needs no password; elsewhere every path but the two health checks needs the token (config refuses otherwise). It must not
//! change anything, and must not log paths: they hold keys.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use metrics_exporter_prometheus::PrometheusHandle;
use serde::Serialize;
use tokio::net::TcpListener;

use super::Listeners;
use crate::gateway::credentials::{TokenDigest, digest};
use crate::gateway::{Gateway, percent};
use crate::ports::Ports;
use crate::ports::observe::{self, Kind};
use crate::protocol::key::{Key, KeyId, Tenant};

/// The most connections at a time.
const MOST_CONNECTIONS: usize = 100;
/// How long a request's head may take.
const HEAD_TIME: Duration = Duration::from_secs(10);

/// Answers the admin listener's requests.
pub struct Admin<P: Ports> {
    gateway: Arc<Gateway<P>>,
    metrics: PrometheusHandle,
    token: Option<TokenDigest>,
}

type Answer = Response<Full<Bytes>>;

impl<P: Ports> Admin<P> {
    /// An admin service; `token` is the digest of the token it asks for, `None` for a loopback listener.
    pub fn new(gateway: Arc<Gateway<P>>, metrics: PrometheusHandle, token: Option<TokenDigest>) -> Self {
        Self { gateway, metrics, token }
    }

    /// Answers one request. The body is not read.
    pub async fn answer<B>(&self, request: Request<B>) -> Result<Answer, Infallible> {
        Ok(self.route(&request).await)
    }

    async fn route<B>(&self, request: &Request<B>) -> Answer {
        let path: Vec<&str> = request.uri().path().trim_start_matches('/').split('/').collect();
        if request.method() != Method::GET && request.method() != Method::HEAD {
            return problem(StatusCode::METHOD_NOT_ALLOWED, "only GET is answered here");
        }
        match &path[..] {
            ["healthz"] => text(StatusCode::OK, "ok\n"),
            ["readyz"] => {
                let readiness = self.gateway.readiness();
                let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
                json(status, &readiness)
            }
            _ if !self.allowed(request) => {
                let mut answer =
                    problem(StatusCode::UNAUTHORIZED, "send Authorization: Bearer with the admin token");
                answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
                answer
            }
            ["metrics"] => text(StatusCode::OK, &self.render()),
            ["v1", "status"] => json(StatusCode::OK, &self.gateway.status().await),
            ["v1", "keys", tenant, key] => self.key(&percent::decode(tenant), &percent::decode(key)).await,
            _ => problem(
                StatusCode::NOT_FOUND,
                "ask /healthz, /readyz, /metrics, /v1/status or /v1/keys/{tenant}/{key}",
            ),
        }
    }

    async fn key(&self, tenant: &str, key: &str) -> Answer {
        let id = match (Tenant::parse(tenant), Key::parse(key)) {
            (Ok(tenant), Ok(key)) => KeyId::new(tenant, key),
            (Err(error), _) => return problem(StatusCode::BAD_REQUEST, &error.to_string()),
            (_, Err(error)) => return problem(StatusCode::BAD_REQUEST, &error.to_string()),
        };
        match self.gateway.key_status(&id).await {
            Ok(status) => json(StatusCode::OK, &status),
            Err(error) => problem(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
        }
    }

    /// Digests are compared, not tokens: how long it takes tells nothing about the token.
    fn allowed<B>(&self, request: &Request<B>) -> bool {
        let Some(token) = &self.token else { return true };
        let given =
            request.headers().get(AUTHORIZATION).and_then(|value| value.as_bytes().split_at_checked(7));
        given
            .is_some_and(|(scheme, given)| scheme.eq_ignore_ascii_case(b"bearer ") && digest(given) == *token)
    }

    /// The metrics; those that have no series yet with their HELP and TYPE.
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

fn json(status: StatusCode, value: &impl Serialize) -> Answer {
    match serde_json::to_vec_pretty(value) {
        Ok(mut bytes) => {
            bytes.push(b'\n');
            answer(status, "application/json", bytes)
        }
        Err(error) => problem(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

fn text(status: StatusCode, body: &str) -> Answer {
    answer(status, "text/plain; version=0.0.4; charset=utf-8", body.as_bytes().to_vec())
}

fn problem(status: StatusCode, detail: &str) -> Answer {
    let title = status.canonical_reason().unwrap_or_default();
    let body = serde_json::json!({ "type": "about:blank", "title": title, "status": status.as_u16(), "detail": detail });
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
    listeners.add(listener, MOST_CONNECTIONS, move |stream, _, mut stop| {
        let admin = admin.clone();
        async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let admin = admin.clone();
                async move { admin.answer(request).await }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIME)
                .serve_connection(TokioIo::new(stream), service);
            let mut connection = std::pin::pin!(connection);
            // An error is the caller's hang-up.
            tokio::select! {
                biased;
                _ = &mut connection => return,
                () = stop.wait() => connection.as_mut().graceful_shutdown(),
            }
            let _ = connection.await;
        }
    });
}
