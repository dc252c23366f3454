//! The console: what an operator needs during an incident, on one page of the admin listener.
//!
//! `GET /console` (its script asks for the parts `/console/now` and `/console/audit`), `GET
//! /console/key?tenant=&key=`, `GET /console/keys?tenant=&route=&state=&from=&before=`, `GET
//! /console/job?region=&tenant=&key=`, `POST /console/settle`, `/console/release`,
//! `/console/retry`, `/console/drop`, `/console/sign-in` and `/console/sign-out`, and its own
//! files.
//!
//! [`super::admin_acts`] and [`super::admin_jobs`] perform the acts; [`session`] says who may use
//! the console. maud escapes every text where it is written. No page names anything outside of this
//! listener, and each page can be read without its script. This file must not decide anything. It
//! must not log paths, bodies or tokens.

mod acts;
mod attention;
mod chart;
mod forms;
mod frame;
mod jobs;
mod key;
mod lists;
mod now;
pub(super) mod rates;
pub(super) mod search;
mod session;
mod tries;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use form_urlencoded::parse;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, LOCATION, REFERRER_POLICY, RETRY_AFTER,
    SET_COOKIE, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use maud::Markup;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::time::{Instant, timeout};

use self::rates::Rates;
use self::tries::Tried;
pub(super) use self::tries::Tries;
use super::admin_answer::{Answer, problem};
use super::admin_key::Key;
use super::admin_posted::ActBody;
use crate::gateway::credentials::operators::Visitor;
use crate::gateway::credentials::{TokenDigest, digest};
use crate::gateway::instance::Gateway;
use crate::ports::Ports;

/// Largest form, in bytes, as forms are encoded.
const FORM_LIMIT: usize = 256 << 10;
/// Longest time for the form to arrive.
const FORM_TIME: Duration = Duration::from_secs(10);
/// Policy of a page: it may load its own files, ask this listener, and send its forms to it. A
/// script cannot turn a text into markup.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; \
     base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// Files of the page. Anybody may have them: they reveal nothing about this deployment.
const FILES: [(&str, &str, &str); 3] = [
    ("console.css", "text/css; charset=utf-8", include_str!("console.css")),
    ("console.js", "text/javascript; charset=utf-8", include_str!("console.js")),
    ("icon.svg", "image/svg+xml", include_str!("icon.svg")),
];

/// The visitor's right to use the console.
enum Access {
    /// A visitor on loopback, with a token or with a valid session.
    Known(Visitor),
    /// A visitor who has to show a token first.
    Unknown,
    /// A request that was not meant for this machine.
    Astray,
}

impl Access {
    fn of<P: Ports>(key: &Key, gateway: &Gateway<P>, headers: &HeaderMap) -> Self {
        if let Some(visitor) = key.visitor(headers) {
            return Self::Known(visitor);
        }
        let (operators, region, now) = (key.operators.now(), gateway.region().as_str(), gateway.date());
        if operators.is_open() {
            return Self::Astray;
        }
        let of_session =
            |token: &&TokenDigest| session::is_shown(headers, &key.of_sessions(token), region, now);
        let known = operators.tokens().find(of_session).and_then(|token| operators.of(token));
        known.map_or(Self::Unknown, Self::Known)
    }
}

/// Parts of which a page is made: the gateway, its metrics, and the request.
pub(super) struct Visit<'a, P: Ports> {
    gateway: &'a Arc<Gateway<P>>,
    metrics: &'a PrometheusHandle,
    rates: &'a Rates,
    key: &'a Key,
    visitor: Visitor,
    query: &'a str,
}

impl<P: Ports> Visit<'_, P> {
    /// True if the visitor has a session to end.
    fn signed_in(&self) -> bool {
        self.visitor != Visitor::Local
    }

    fn asked(&self, name: &str) -> Option<String> {
        parse(self.query.as_bytes()).find(|(known, _)| known == name).map(|(_, value)| value.into_owned())
    }
}

/// Sends a browser that opens the admin listener to the console.
pub(super) fn redirect() -> Answer {
    elsewhere("/console")
}

/// Answers a request below `/console`. `path` is the rest of the path.
pub(super) async fn answer<P: Ports, B: ActBody>(
    (gateway, metrics, rates): (&Arc<Gateway<P>>, &PrometheusHandle, &Rates),
    (key, tries): (&Key, &Tries),
    path: &[&str],
    head: &Parts,
    body: B,
) -> Answer {
    if let [name] = path
        && let Some((_, kind, text)) = FILES.iter().find(|(known, ..)| known == name)
    {
        return sent(StatusCode::OK, kind, (*text).to_owned());
    }
    let visitor = match Access::of(key, gateway, &head.headers) {
        Access::Astray => return key.refusal(),
        Access::Unknown => {
            return match (&head.method, path) {
                (&Method::POST, ["sign-in"]) => sign_in(gateway, (key, tries), &head.headers, body).await,
                _ => ask_to_sign_in(gateway, None),
            };
        }
        Access::Known(visitor) => visitor,
    };
    let visit = Visit { gateway, metrics, rates, key, visitor, query: head.uri.query().unwrap_or_default() };
    match (&head.method, path) {
        (&Method::POST, ["sign-in"]) => elsewhere("/console"),
        (&Method::POST, ["sign-out"]) => match session::is_own(&head.headers) {
            Ok(()) => with_cookie(elsewhere("/console"), &session::ended(gateway.region().as_str())),
            Err(why) => foreign(why),
        },
        (&Method::POST, [verb @ ("settle" | "release" | "retry" | "drop")]) => {
            match form(&head.headers, body).await {
                Ok(form) => acts::act(&visit, verb, &form).await,
                Err(answer) => answer,
            }
        }
        (&Method::GET | &Method::HEAD, [] | [""]) => page(StatusCode::OK, now::whole(&visit).await),
        (&Method::GET | &Method::HEAD, ["now"]) => page(StatusCode::OK, now::part(&visit).await),
        (&Method::GET | &Method::HEAD, ["audit"]) => page(StatusCode::OK, lists::part(&visit).await),
        (&Method::GET | &Method::HEAD, ["key"]) => key::look_up(&visit).await,
        (&Method::GET | &Method::HEAD, ["job"]) => jobs::look_up(&visit).await,
        (&Method::GET | &Method::HEAD, ["keys"]) => search::search(&visit).await,
        _ => problem(StatusCode::NOT_FOUND, "the console is at /console"),
    }
}

/// Takes a token from a form. A known token is answered with a session.
async fn sign_in<P: Ports, B: ActBody>(
    gateway: &Gateway<P>,
    (key, tries): (&Key, &Tries),
    headers: &HeaderMap,
    body: B,
) -> Answer {
    let form = match form(headers, body).await {
        Ok(form) => form,
        Err(answer) => return answer,
    };
    let region = gateway.region().as_str();
    // Digests are compared, not tokens, so the time that it takes reveals nothing about the token.
    let token = digest(form.get("token").trim().as_bytes());
    match tries.judge(Instant::now(), || key.operators.now().of(&token).is_some()) {
        Tried::Right => {
            let over_tls = session::is_over_tls(headers);
            let begun = session::begun(&key.of_sessions(&token), region, gateway.date(), over_tls);
            with_cookie(elsewhere("/console"), &begun)
        }
        Tried::Wrong => ask_to_sign_in(
            gateway,
            Some("That is not the admin token of this gateway, nor an operator's own."),
        ),
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

fn ask_to_sign_in<P: Ports>(gateway: &Gateway<P>, why: Option<&str>) -> Answer {
    let mut answer = page(StatusCode::UNAUTHORIZED, frame::sign_in(gateway.region().as_str(), why));
    answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    answer
}

pub(super) struct Form(Vec<(String, String)>);

impl Form {
    /// Text of a field with plain line feeds; empty if the field is absent.
    fn get(&self, name: &str) -> String {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map_or(String::new(), |(_, value)| value.replace("\r\n", "\n"))
    }
}

/// Reads a form that a page of this listener sent, or makes the refusal.
async fn form<B: ActBody>(headers: &HeaderMap, body: B) -> Result<Form, Answer> {
    session::is_own(headers).map_err(foreign)?;
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    if !kind.starts_with(b"application/x-www-form-urlencoded") {
        return Err(problem(StatusCode::UNSUPPORTED_MEDIA_TYPE, "send a form of the console"));
    }
    let Ok(Ok(body)) = timeout(FORM_TIME, Limited::new(body, FORM_LIMIT).collect()).await else {
        return Err(problem(
            StatusCode::PAYLOAD_TOO_LARGE,
            "the form is over 256 KiB, too slow, or it broke off; `onceway key settle --body-file` takes larger answers",
        ));
    };
    Ok(Form(parse(&body.to_bytes()).into_owned().collect()))
}

/// Refuses a form that another page may have sent.
fn foreign(why: &str) -> Answer {
    problem(StatusCode::FORBIDDEN, why)
}

fn elsewhere(place: &str) -> Answer {
    let mut answer = sent(StatusCode::SEE_OTHER, "text/plain; charset=utf-8", format!("{place}\n"));
    // Places are written here or percent-encoded. A place that is no header text can only be a
    // mistake here, and leads to the console.
    let place = HeaderValue::from_str(place).unwrap_or(HeaderValue::from_static("/console"));
    answer.headers_mut().insert(LOCATION, place);
    answer
}

fn with_cookie(mut answer: Answer, cookie: &str) -> Answer {
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        answer.headers_mut().insert(SET_COOKIE, cookie);
    }
    answer
}

fn page(status: StatusCode, markup: Markup) -> Answer {
    sent(status, "text/html; charset=utf-8", markup.into_string())
}

fn sent(status: StatusCode, kind: &'static str, text: String) -> Answer {
    const HEADERS: [(HeaderName, &str); 6] = [
        (CONTENT_SECURITY_POLICY, POLICY),
        (CACHE_CONTROL, "no-store"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        // Not `no-referrer`: with that, browsers send their own forms with `Origin: null`.
        (REFERRER_POLICY, "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    let mut answer = Response::new(Full::new(Bytes::from(text)));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    answer
}
