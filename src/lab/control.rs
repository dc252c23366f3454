//! The demo's control listener: breaks and mends a deployment over HTTP.
//!
//! - `POST /regions/{name}/{kill|stop|start|pause|resume}` (`?part=gateway|postgres`),
//!   `GET /regions`
//! - `POST /endpoints/{name}/{1|2}/{kill|start}`: the endpoints of a region's upstream
//! - `POST /links/{a}/{b}/{cut|heal|freeze}` and `POST /links/{a}/{b}?rtt=200ms` (`?oneway=1`)
//! - `GET /ledger` (`?key=K`)
//!
//! It listens on loopback only and has no password, and is never part of a gateway.

use std::sync::Arc;

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinSet;

use percent_encoding::percent_decode_str;

use super::accept;
use super::deployment::Deployment;
use super::gateway::Action;
use super::region::{Part, Region};

/// A refusal: status, and one line with the remedy.
type Refusal = (StatusCode, String);
type Answered = Result<Value, Refusal>;

/// Listens until the set is dropped; a running call goes on. `events` gets one per action.
pub async fn listen(deployment: &Arc<Deployment>, events: UnboundedSender<Value>) -> Result<JoinSet<()>> {
    let address = ("127.0.0.1", deployment.ports.control);
    let listener = TcpListener::bind(address).await.context("cannot bind the control port")?;
    // Weak: only a running call holds the deployment, so that its one owner can shut it down.
    let deployment = Arc::downgrade(deployment);
    Ok(accept(listener, move |stream| {
        let (deployment, events) = (deployment.clone(), events.clone());
        let service = service_fn(move |request| {
            let (deployment, events) = (deployment.upgrade(), events.clone());
            async move { Ok::<_, std::convert::Infallible>(answer(deployment, &events, &request).await) }
        });
        // A task of its own outlives the set. An error means that the caller hung up.
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        std::future::ready(())
    }))
}

async fn answer(
    deployment: Option<Arc<Deployment>>,
    events: &UnboundedSender<Value>,
    request: &Request<Incoming>,
) -> Response<Full<Bytes>> {
    let answered = match deployment {
        Some(deployment) => route(&deployment, events, request).await,
        None => Err((StatusCode::SERVICE_UNAVAILABLE, "the deployment is being shut down".to_owned())),
    };
    let (status, body) = match answered {
        Ok(body) => (StatusCode::OK, body),
        Err((status, detail)) => (status, json!({ "status": status.as_u16(), "detail": detail })),
    };
    let mut response = Response::new(Full::new(Bytes::from(format!("{body}\n"))));
    *response.status_mut() = status;
    let kind = if status.is_success() { "application/json" } else { "application/problem+json" };
    response.headers_mut().insert("content-type", http::HeaderValue::from_static(kind));
    response
}

async fn route(
    deployment: &Deployment,
    events: &UnboundedSender<Value>,
    request: &Request<Incoming>,
) -> Answered {
    // A browser names the page's origin with every POST that it sends for a page. Such a page must
    // not break the demo.
    if request.headers().contains_key(http::header::ORIGIN) {
        return Err((StatusCode::FORBIDDEN, "no orders are taken from web pages: use curl".to_owned()));
    }
    let path: Vec<&str> = request.uri().path().trim_matches('/').split('/').collect();
    let query = request.uri().query().unwrap_or_default();
    let event = match (request.method(), &path[..]) {
        (&Method::GET, ["regions"]) => return Ok(shown(deployment)),
        (&Method::GET, ["ledger"]) => {
            let totals = deployment.ledger.totals(parameter(query, "key").as_deref());
            return serde_json::to_value(totals).map_err(broken);
        }
        (&Method::POST, ["regions", name, action]) => {
            let region = deployment.region(name).ok_or_else(|| no_such_region(name))?;
            let unknown = |_| not_found(format!("no action {action:?}: kill, stop, start, pause or resume"));
            let does: Action = serde_json::from_value((*action).into()).map_err(unknown)?;
            let part = parse_part(parameter(query, "part").as_deref())?;
            region.act(does, part).await.map_err(broken)?;
            let _ = events.send(json!({ "event": "region", "region": name, "action": action, "part": part }));
            return serde_json::to_value(region.show()).map_err(broken);
        }
        (&Method::POST, ["endpoints", name, number, action]) => {
            endpoint(deployment, (name, number), action).await?
        }
        (&Method::POST, ["links", a, b, action]) => link(deployment, (a, b), action, query)?,
        (&Method::POST, ["links", a, b]) => link(deployment, (a, b), "rtt", query)?,
        _ => {
            return Err(not_found(
                "ask GET /regions, GET /ledger, POST /regions/{name}/{kill|stop|start|pause|resume}, POST /endpoints/{name}/{1|2}/{kill|start}, POST /links/{a}/{b}/{cut|heal|freeze} or POST /links/{a}/{b}?rtt=200ms",
            ));
        }
    };
    let _ = events.send(event.clone());
    Ok(event)
}

async fn endpoint(deployment: &Deployment, (name, number): (&str, &str), action: &str) -> Answered {
    let region = deployment.number(name).ok_or_else(|| no_such_region(name))?;
    let [first, second] = &deployment.endpoints[region];
    let endpoint = match number {
        "1" => first,
        "2" => second,
        other => return Err(not_found(format!("no endpoint {other:?}: 1 or 2"))),
    };
    match action {
        "kill" => endpoint.kill().await,
        "start" => endpoint.open().await.map(drop).map_err(broken)?,
        other => return Err(not_found(format!("no action {other:?}: kill or start"))),
    }
    let address = format!("https://{}", endpoint.address());
    Ok(json!({ "event": "endpoint", "region": name, "number": number, "action": action, "address": address }))
}

fn link(deployment: &Deployment, (a, b): (&str, &str), action: &str, query: &str) -> Answered {
    let from = deployment.number(a).ok_or_else(|| no_such_region(a))?;
    let to = deployment.number(b).ok_or_else(|| no_such_region(b))?;
    let oneway = match parameter(query, "oneway").as_deref() {
        None | Some("0" | "false") => false,
        Some("1" | "true") => true,
        Some(other) => return Err(bad(format!("oneway={other}: say 1 or leave it out"))),
    };
    let (links, rtt) = (&deployment.links, parameter(query, "rtt"));
    let done = match action {
        "cut" => links.cut(from, to, oneway),
        "heal" => links.heal(from, to, oneway),
        "freeze" => links.freeze(from, to, oneway),
        "rtt" => {
            let lacks = || bad("say how long a round trip takes, such as ?rtt=200ms");
            let text = rtt.as_ref().ok_or_else(lacks)?;
            let rtt = humantime::parse_duration(text).map_err(|error| bad(format!("rtt={text}: {error}")))?;
            links.set_rtt(from, to, rtt, oneway)
        }
        other => {
            return Err(not_found(format!("no link action {other:?}: cut, heal, freeze, or ?rtt=200ms")));
        }
    };
    done.map_err(|error| bad(error.to_string()))?;
    Ok(json!({ "event": "link", "from": a, "to": b, "action": action, "oneway": oneway, "rtt": rtt }))
}

/// The regions with their states and current pids, in the form of the ready line.
pub fn shown(deployment: &Deployment) -> Value {
    json!(deployment.regions.iter().map(Region::show).collect::<Vec<_>>())
}

fn parse_part(word: Option<&str>) -> Result<Part, Refusal> {
    let Some(word) = word else { return Ok(Part::Both) };
    let part = serde_json::from_value(word.into()).ok().filter(|part| *part != Part::Both);
    part.ok_or_else(|| bad(format!("part={word}: gateway, postgres, or leave it out for both")))
}

fn parameter(query: &str, name: &str) -> Option<String> {
    let value = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))?;
    Some(percent_decode_str(value).decode_utf8_lossy().into_owned())
}

fn not_found(detail: impl Into<String>) -> Refusal {
    (StatusCode::NOT_FOUND, detail.into())
}

fn bad(detail: impl Into<String>) -> Refusal {
    (StatusCode::BAD_REQUEST, detail.into())
}

fn no_such_region(name: &str) -> Refusal {
    not_found(format!("no region {name:?}: us-east, eu-west or ap-south"))
}

fn broken(error: impl std::fmt::Display) -> Refusal {
    (StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}"))
}
