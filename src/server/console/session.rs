//! One visit of the console: its session in place of the token, its form, and its answer. All
//! answers have the same headers.
//!
//! A session is a date and its seal: HMAC-SHA256 under the key of a token's sessions. So a new
//! token ends it, no gateway stores it, and no cookie holds the token. All ports of a host share
//! cookies: the cookie's name tells regions apart, and its path keeps it from other pages. To
//! browsers, a page on another port of the same host is the "same site", so the origin is compared.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use form_urlencoded::parse;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, COOKIE, HOST, HeaderName, LOCATION, ORIGIN,
    REFERRER_POLICY, SET_COOKIE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::Full;
use maud::Markup;
use metrics_exporter_prometheus::PrometheusHandle;
use ring::hmac;
use tokio::time::Instant;

use super::frame;
use super::rates::Rates;
use crate::gateway::credentials::operators::Visitor;
use crate::ports::Body;
use crate::protocol::digest::Digest32;
use crate::protocol::time::Date;
use crate::server::admin_http::{Answer, Key, problem, whole};
use crate::server::{Gateway, locked};

/// Duration of a session, in seconds: a shift.
const LASTS: i64 = 8 * 3_600;

/// Makes the cookie of a session that begins now. If it begins over TLS, browsers send it only over
/// TLS.
pub(super) fn begun(key: &hmac::Key, region: &str, now: Date, over_tls: bool) -> String {
    let until = now.as_millis() / 1_000 + LASTS;
    let seal = hmac::sign(key, text(region, until).as_bytes());
    let seal: String = seal.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let secure = if over_tls { "; Secure" } else { "" };
    format!(
        "{}={until}.{seal}; Path=/console; Max-Age={LASTS}; HttpOnly; SameSite=Strict{secure}",
        name(region)
    )
}

/// True if the browser reached a front with TLS. Meaningful only after [`is_own`] took the headers.
pub(super) fn is_over_tls(headers: &HeaderMap) -> bool {
    headers.get(ORIGIN).is_some_and(|origin| origin.as_bytes().starts_with(b"https://"))
}

pub(super) fn ended(region: &str) -> String {
    format!("{}=; Path=/console; Max-Age=0; HttpOnly; SameSite=Strict", name(region))
}

/// True if one of the request's cookies is a valid session of this region.
pub(super) fn is_shown(headers: &HeaderMap, key: &hmac::Key, region: &str, now: Date) -> bool {
    let name = name(region);
    let lines = headers.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.any(|(known, value)| known == name && is_sealed(value, key, region, now))
}

fn is_sealed(value: &str, key: &hmac::Key, region: &str, now: Date) -> bool {
    let Some((until, seal)) = value.split_once('.') else { return false };
    let (Ok(until), Some(seal)) = (until.parse::<i64>(), Digest32::parse(seal)) else { return false };
    // ring compares in constant time.
    let is_ours = hmac::verify(key, text(region, until).as_bytes(), seal.as_bytes()).is_ok();
    let now = now.as_millis() / 1_000;
    // A clock that was set back must not make a session endless.
    is_ours && now < until && until <= now + LASTS
}

fn text(region: &str, until: i64) -> String {
    format!("onceway/console/1 {region} {until}")
}

fn name(region: &str) -> String {
    format!("onceway-console-{region}")
}

/// Checks that a page of this listener sent the form. Today's browsers all name the origin of a
/// POST. A request that does not is from no browser, and can use the admin API. The error says what
/// to do.
pub(super) fn is_own(headers: &HeaderMap) -> Result<(), &'static str> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let (Some(host), Some(origin)) = (text(HOST.as_str()), text(ORIGIN.as_str())) else {
        return Err("a form of the console names its host and its origin: programs use the admin API");
    };
    let from = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    let same = from.is_some_and(|from| from.eq_ignore_ascii_case(host));
    if !same || text("sec-fetch-site").is_some_and(|site| site != "same-origin") {
        return Err(
            "this form was sent by another page: open /console here, and let a front pass on the Host header",
        );
    }
    Ok(())
}

/// Largest form, in bytes, as forms are encoded.
const FORM_LIMIT: usize = 256 << 10;
/// Policy of a page: it may load its own files, ask this listener, and send its forms to it. A
/// script cannot turn a text into markup.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; \
     base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// Parts of which a page is made: the gateway, its metrics, and the request.
pub(super) struct Visit<'a> {
    pub(super) gateway: &'a Arc<Gateway>,
    pub(super) metrics: &'a PrometheusHandle,
    pub(super) rates: &'a Rates,
    pub(super) key: &'a Key,
    pub(super) visitor: Visitor,
    pub(super) query: &'a str,
}

impl Visit<'_> {
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
pub(super) async fn form(headers: &HeaderMap, body: Body) -> Result<Form, Box<Answer>> {
    is_own(headers).map_err(|why| problem(StatusCode::FORBIDDEN, why))?;
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    if !kind.starts_with(b"application/x-www-form-urlencoded") {
        return Err(problem(StatusCode::UNSUPPORTED_MEDIA_TYPE, "send a form of the console").into());
    }
    let Some(body) = whole(body, FORM_LIMIT).await else {
        let why = "the form is over 256 KiB, too slow, or it broke off; `onceway key settle --body-file` takes larger answers";
        return Err(problem(StatusCode::PAYLOAD_TOO_LARGE, why).into());
    };
    Ok(Form(parse(&body).into_owned().collect()))
}

pub(in crate::server) fn elsewhere(place: &str) -> Answer {
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

/// Wrong tokens in one span, at most.
const MOST: u32 = 10;
/// Length of a span. It begins with its first wrong token.
const SPAN: Duration = Duration::from_secs(60);

/// Limit for wrong tokens at the sign-in, for each process, with one log line for all of them.
///
/// Visitors are not told apart: through a forwarded port all of them come from this machine.
/// Sessions that exist, and programs that name the token, are not limited.
#[derive(Default)]
pub(in crate::server) struct Tries(Mutex<Span>);

#[derive(Default)]
struct Span {
    began: Option<Instant>,
    refused: u32,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Tried {
    Right,
    Wrong,
    /// Too many wrong tokens: this one was not looked at. No token is looked at for this long.
    TooMany(Duration),
}

impl Tries {
    /// Judges a token by `is_right`, if a try is allowed now.
    pub(super) fn judge(&self, now: Instant, is_right: impl FnOnce() -> bool) -> Tried {
        let mut span = locked(&self.0);
        let left = span.began.map(|began| (began + SPAN).saturating_duration_since(now)).unwrap_or_default();
        if !left.is_zero() && span.refused >= MOST {
            span.refused = span.refused.saturating_add(1);
            return Tried::TooMany(left);
        }
        if is_right() {
            return Tried::Right;
        }
        if left.is_zero() {
            let before = span.refused;
            *span = Span { began: Some(now), refused: 0 };
            tracing::warn!(
                before,
                "somebody could not sign in to the console: a wrong token. Others within a minute are counted and told as `before` with the next such line"
            );
        }
        span.refused += 1;
        Tried::Wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Date = Date(1_700_000_000_000);

    fn key(byte: u8) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &[byte; 32])
    }

    fn later(seconds: i64) -> Date {
        Date(NOW.as_millis() + seconds * 1_000)
    }

    fn with(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(http::HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        headers
    }

    fn shown(cookie: &str) -> HeaderMap {
        with(&[("cookie", cookie)])
    }

    #[test]
    fn a_session_is_known_only_until_it_ends() {
        let over_tls = begun(&key(7), "us-east", NOW, true);
        let begun = begun(&key(7), "us-east", NOW, false);
        assert!(begun.ends_with("; Path=/console; Max-Age=28800; HttpOnly; SameSite=Strict"), "{begun}");
        assert_eq!(over_tls, format!("{begun}; Secure"));
        let cookie = begun.split(';').next().unwrap().to_owned();
        let known = |headers: &HeaderMap, byte, region, now| is_shown(headers, &key(byte), region, now);
        let among_others = shown(&format!("theme=dark; {cookie}; onceway-console-us-east=1.2"));
        assert!(known(&shown(&cookie), 7, "us-east", NOW) && known(&among_others, 7, "us-east", NOW));
        assert!(known(&shown(&cookie), 7, "us-east", later(LASTS - 1)));
        assert!(!known(&shown(&cookie), 7, "us-east", later(LASTS)), "it has ended");
        assert!(!known(&shown(&cookie), 7, "us-east", later(-3_600)), "the clock was set back");
        assert!(!known(&shown(&cookie), 8, "us-east", NOW), "the token is another one");
        let renamed = cookie.replace("us-east", "eu-west");
        assert!(!known(&shown(&renamed), 7, "eu-west", NOW), "it is another region's");
        assert!(!known(&with(&[]), 7, "us-east", NOW));
    }

    #[test]
    fn a_session_that_was_touched_is_none() {
        let begun = begun(&key(7), "a", NOW, false);
        let cookie = begun.split(';').next().unwrap();
        let (name, value) = cookie.split_once('=').unwrap();
        let (until, seal) = value.split_once('.').unwrap();
        let longer = (until.parse::<i64>().unwrap() + 1).to_string();
        for touched in [
            format!("{name}={longer}.{seal}"),
            format!(
                "{name}={until}.{}",
                seal.replacen(&seal[..1], if seal.starts_with('0') { "1" } else { "0" }, 1)
            ),
            format!("{name}={until}.{}", &seal[..62]),
            format!("{name}={until}."),
            format!("{name}={until}.+{}", &seal[1..]),
            format!("{name}={until}"),
            format!("{name}=."),
        ] {
            assert!(!is_shown(&shown(&touched), &key(7), "a", NOW), "{touched}");
        }
    }

    #[test]
    fn a_form_is_taken_from_its_own_origin_only() {
        let of = |pairs: &[(&str, &str)]| is_own(&with(pairs)).is_ok();
        let host = ("host", "127.0.0.1:7402");
        let origin = ("origin", "http://127.0.0.1:7402");
        assert!(of(&[host, origin]) && of(&[host, origin, ("sec-fetch-site", "same-origin")]));
        assert!(of(&[("host", "console.example.com"), ("origin", "https://Console.example.com")]));
        for pairs in [
            &[host][..],
            &[origin],
            &[host, ("origin", "null")],
            &[host, ("origin", "http://127.0.0.1:3000")],
            &[host, ("origin", "http://localhost:7402")],
            &[host, ("origin", "http://127.0.0.1:7402.example.com")],
            &[host, ("origin", "ftp://127.0.0.1:7402")],
            &[host, origin, ("sec-fetch-site", "same-site")],
            &[host, origin, ("sec-fetch-site", "none")],
        ] {
            assert!(!of(pairs), "{pairs:?}");
        }
    }

    #[test]
    fn ten_wrong_tries_block_sign_in_for_a_minute() {
        let (tries, begin) = (Tries::default(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        let (right, wrong) = (|| true, || false);
        assert_eq!(tries.judge(at(0), right), Tried::Right);
        for second in 0..10 {
            assert_eq!(tries.judge(at(second), wrong), Tried::Wrong, "{second}");
        }
        let unseen = || -> bool { panic!("it is looked at") };
        assert_eq!(tries.judge(at(20), unseen), Tried::TooMany(Duration::from_secs(40)));
        assert_eq!(tries.judge(at(59), unseen), Tried::TooMany(Duration::from_secs(1)));
        assert_eq!(tries.judge(at(60), right), Tried::Right);
        assert_eq!(tries.judge(at(61), wrong), Tried::Wrong, "a new minute begins");
        assert_eq!(tries.judge(at(62), right), Tried::Right, "right ones are not counted");
    }
}
