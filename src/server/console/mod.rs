//! The console: what an operator needs during an incident, on one page of the admin listener.
//!
//! [`super::admin_acts`] performs the acts; [`session`] says who may use the console. maud escapes
//! every text where it is written. No page names anything outside of this listener, and each page
//! can be read without its script. Paths, bodies and tokens are not logged.

mod acts;
mod attention;
mod chart;
mod frame;
mod jobs;
mod key;
mod lists;
mod now;
pub(super) mod rates;
pub(super) mod search;
mod session;

use std::sync::Arc;

use http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::time::Instant;

use self::rates::Rates;
use self::session::{Form, Tried, Visit, form, page, sent, with_cookie};
pub(super) use self::session::{Tries, elsewhere};
use super::Gateway;
use super::admin_acts::What;
use super::admin_http::{Acted, Answer, Key, problem};
use crate::gateway::credentials::operators::Visitor;
use crate::gateway::credentials::{TokenDigest, digest};
use crate::ports::Body;

/// Files of the page. Anybody may have them: they reveal nothing about this deployment.
const FILES: [(&str, &str, &str); 3] = [
    ("console.css", "text/css; charset=utf-8", include_str!("console.css")),
    ("console.js", "text/javascript; charset=utf-8", include_str!("console.js")),
    ("icon.svg", "image/svg+xml", include_str!("icon.svg")),
];

/// A visitor on loopback, with a token or with a valid session.
fn known(key: &Key, gateway: &Gateway, headers: &HeaderMap) -> Option<Visitor> {
    key.visitor(headers).or_else(|| {
        let (operators, region, now) = (key.operators.now(), gateway.region().as_str(), gateway.date());
        let of_session =
            |token: &&TokenDigest| session::is_shown(headers, &key.of_sessions(token), region, now);
        operators.tokens().find(of_session).and_then(|token| operators.of(token))
    })
}

/// Answers a request below `/console`. `path` is the rest of the path.
pub(super) async fn answer(
    (gateway, metrics, rates): (&Arc<Gateway>, &PrometheusHandle, &Rates),
    (key, tries): (&Key, &Tries),
    path: &[&str],
    head: &Parts,
    body: Body,
) -> Acted {
    if let [name] = path
        && let Some((_, kind, text)) = FILES.iter().find(|(known, ..)| known == name)
    {
        return Ok(sent(StatusCode::OK, kind, (*text).to_owned()));
    }
    let Some(visitor) = known(key, gateway, &head.headers) else {
        return Ok(match (&head.method, path) {
            // A request that was not meant for this machine.
            _ if key.operators.now().is_open() => key.refusal(),
            (&Method::POST, ["sign-in"]) => {
                sign_in(gateway, (key, tries), &head.headers, &form(&head.headers, body).await?)
            }
            _ => ask_to_sign_in(gateway, None),
        });
    };
    let visit = Visit { gateway, metrics, rates, key, visitor, query: head.uri.query().unwrap_or_default() };
    Ok(match (&head.method, path) {
        (&Method::POST, ["sign-in"]) => elsewhere("/console"),
        (&Method::POST, ["sign-out"]) => match session::is_own(&head.headers) {
            Ok(()) => with_cookie(elsewhere("/console"), &session::ended(gateway.region().as_str())),
            Err(why) => problem(StatusCode::FORBIDDEN, why),
        },
        (&Method::POST, [name]) if let Some(what) = What::of(name) => {
            acts::act(&visit, (name, what), &form(&head.headers, body).await?).await
        }
        (&Method::GET | &Method::HEAD, [] | [""]) => now::whole(&visit).await,
        (&Method::GET | &Method::HEAD, ["now"]) => page(StatusCode::OK, now::part(&visit).await),
        (&Method::GET | &Method::HEAD, ["audit"]) => page(StatusCode::OK, lists::audit(&visit).await),
        (&Method::GET | &Method::HEAD, ["key"]) => key::look_up(&visit).await,
        (&Method::GET | &Method::HEAD, ["job"]) => jobs::look_up(&visit).await,
        (&Method::GET | &Method::HEAD, ["keys"]) => search::search(&visit).await,
        _ => problem(StatusCode::NOT_FOUND, "the console is at /console"),
    })
}

/// Takes a token from a form. A known token is answered with a session.
fn sign_in(gateway: &Gateway, (key, tries): (&Key, &Tries), headers: &HeaderMap, form: &Form) -> Answer {
    let region = gateway.region().as_str();
    // Digests are compared, not tokens, so the time that it takes reveals nothing about the token.
    let token = digest(form.get("token").trim().as_bytes());
    match tries.judge(Instant::now(), || key.operators.now().of(&token).is_some()) {
        Tried::Right => {
            let over_tls = session::is_over_tls(headers);
            let begun = session::begun(&key.of_sessions(&token), region, gateway.date(), over_tls);
            with_cookie(elsewhere("/console"), &begun)
        }
        Tried::Wrong => {
            let why = "That is not the admin token of this gateway, nor an operator's own.";
            ask_to_sign_in(gateway, Some(why))
        }
        Tried::TooMany(left) => {
            let seconds = left.as_millis().div_ceil(1_000);
            let why = format!("Too many wrong tokens were shown here. Sign in again in {seconds} s.");
            let markup = frame::sign_in(region, Some(&why));
            let mut answer = page(StatusCode::TOO_MANY_REQUESTS, markup);
            if let Ok(seconds) = u64::try_from(seconds) {
                answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
            }
            answer
        }
    }
}

fn ask_to_sign_in(gateway: &Gateway, why: Option<&str>) -> Answer {
    let mut answer = page(StatusCode::UNAUTHORIZED, frame::sign_in(gateway.region().as_str(), why));
    answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    answer
}
