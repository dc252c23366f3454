//! One visit of the console: what a page is made of, the form that was sent, and the answer.
//!
//! Every page is answered from here, so all have the same headers.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use form_urlencoded::parse;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, LOCATION, REFERRER_POLICY, SET_COOKIE,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use maud::Markup;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::time::timeout;

use super::rates::Rates;
use super::{frame, session};
use crate::gateway::credentials::operators::Visitor;
use crate::gateway::instance::Gateway;
use crate::ports::Ports;
use crate::server::admin_answer::{Answer, problem};
use crate::server::admin_key::Key;
use crate::server::admin_posted::ActBody;

/// Largest form, in bytes, as forms are encoded.
const FORM_LIMIT: usize = 256 << 10;
const FORM_TIME: Duration = Duration::from_secs(10);
/// Policy of a page: it may load its own files, ask this listener, and send its forms to it. A
/// script cannot turn a text into markup.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; \
     base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// Parts of which a page is made: the gateway, its metrics, and the request.
pub(super) struct Visit<'a, P: Ports> {
    pub(super) gateway: &'a Arc<Gateway<P>>,
    pub(super) metrics: &'a PrometheusHandle,
    pub(super) rates: &'a Rates,
    pub(super) key: &'a Key,
    pub(super) visitor: Visitor,
    pub(super) query: &'a str,
}

impl<P: Ports> Visit<'_, P> {
    pub(super) fn region(&self) -> &str {
        self.gateway.region().as_str()
    }

    pub(super) fn asked(&self, name: &str) -> Option<String> {
        parse(self.query.as_bytes()).find(|(known, _)| known == name).map(|(_, value)| value.into_owned())
    }

    pub(super) fn page(&self, status: StatusCode, title: &str, main: &Markup) -> Answer {
        // Who came by loopback has no session to end.
        let signed_in = self.visitor != Visitor::Local;
        page(status, frame::page(self.region(), title, signed_in, main))
    }
}

pub(super) struct Form(pub(super) Vec<(String, String)>);

impl Form {
    /// Text of a field with plain line feeds; empty if the field is absent.
    pub(super) fn get(&self, name: &str) -> String {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map_or(String::new(), |(_, value)| value.replace("\r\n", "\n"))
    }
}

/// Reads a form that a page of this listener sent, or makes the refusal.
pub(super) async fn form<B: ActBody>(headers: &HeaderMap, body: B) -> Result<Form, Answer> {
    session::is_own(headers).map_err(|why| problem(StatusCode::FORBIDDEN, why))?;
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    if !kind.starts_with(b"application/x-www-form-urlencoded") {
        return Err(problem(StatusCode::UNSUPPORTED_MEDIA_TYPE, "send a form of the console"));
    }
    let Ok(Ok(body)) = timeout(FORM_TIME, Limited::new(body, FORM_LIMIT).collect()).await else {
        let why = "the form is over 256 KiB, too slow, or it broke off; `onceway key settle --body-file` takes larger answers";
        return Err(problem(StatusCode::PAYLOAD_TOO_LARGE, why));
    };
    Ok(Form(parse(&body.to_bytes()).into_owned().collect()))
}

pub(super) fn elsewhere(place: &str) -> Answer {
    let mut answer = sent(StatusCode::SEE_OTHER, "text/plain; charset=utf-8", format!("{place}\n"));
    // Places are written here or percent-encoded. A place that is no header text can only be a
    // mistake here, and leads to the console.
    let place = HeaderValue::from_str(place).unwrap_or(HeaderValue::from_static("/console"));
    answer.headers_mut().insert(LOCATION, place);
    answer
}

pub(super) fn with_cookie(mut answer: Answer, cookie: &str) -> Answer {
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        answer.headers_mut().insert(SET_COOKIE, cookie);
    }
    answer
}

pub(super) fn page(status: StatusCode, markup: Markup) -> Answer {
    sent(status, "text/html; charset=utf-8", markup.into_string())
}

pub(super) fn sent(status: StatusCode, kind: &'static str, text: String) -> Answer {
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
