//! Key of an admin listener: it knows its operators by their tokens.
//!
//! On loopback no token is needed, but the request must name a host of loopback. Digests are
//! compared, not tokens. No token is logged, nor said which one was nearly right.

use std::net::IpAddr;

use http::header::{AUTHORIZATION, HOST, WWW_AUTHENTICATE};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, StatusCode};
use ring::hmac;
use ring::rand::SystemRandom;

use super::Replaceable;
use super::admin_answer::{Answer, problem};
use crate::gateway::credentials::operators::{Operators, Visitor, Weighty};
use crate::gateway::credentials::{TokenDigest, digest};

/// Those whom the admin listener answers.
pub(super) struct Key {
    pub(super) operators: Replaceable<Operators>,
    /// Drawn at the start: seals what nobody outside of this process may make.
    pub(super) drawn: hmac::Key,
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

    /// The key that seals the sessions of a token's owner.
    ///
    /// The operators' file shows the digests of their tokens, so those seal nothing. The shared
    /// token's digest is in no file: with it every gateway of the region knows a session.
    pub(super) fn of_sessions(&self, token: &TokenDigest) -> hmac::Key {
        match self.operators.now().shared {
            Some(shared) if shared == *token => hmac::Key::new(hmac::HMAC_SHA256, token),
            _ => hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&self.drawn, token).as_ref()),
        }
    }

    /// The sender of a request that may be answered. The time that it takes reveals no token.
    pub(super) fn visitor(&self, headers: &HeaderMap) -> Option<Visitor> {
        let operators = self.operators.now();
        if operators.is_open() {
            return names_this_machine(headers).then_some(Visitor::Local);
        }
        let (scheme, token) = headers.get(AUTHORIZATION)?.as_bytes().split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then(|| operators.of(&digest(token))).flatten()
    }

    pub(super) fn refusal(&self) -> Answer {
        if self.operators.now().is_open() {
            let why = "without a token only 127.0.0.1, [::1] and localhost are answered: ask by one of them, or name a token file ([admin] token_file)";
            return problem(StatusCode::MISDIRECTED_REQUEST, why);
        }
        let why = "send Authorization: Bearer with the admin token, or with an operator's";
        let mut answer = problem(StatusCode::UNAUTHORIZED, why);
        answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        answer
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
