//! The credential of an upstream: it takes the place of the client's own at the moment of sending.
//!
//! No store, job, forward or log holds it, as nothing before this file knows it. A 401 or 403 is
//! marked: the gateway says whether it is an answer to the client's request.

use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use http::header::{AUTHORIZATION, COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};

use crate::adapters::headers::strip_look_alikes;
use crate::ports::upstream::CredentialRefused;

/// A header, and the value that it has now.
#[derive(Debug)]
pub struct Credential {
    pub(super) header: HeaderName,
    value: ArcSwap<HeaderValue>,
    refused: AtomicBool,
}

impl Credential {
    /// Makes a credential. Its value is never shown, not by `Debug` either.
    pub fn new(header: HeaderName, mut value: HeaderValue) -> Self {
        value.set_sensitive(true);
        Self { header, value: ArcSwap::from_pointee(value), refused: AtomicBool::new(false) }
    }

    /// Takes the value of `newer` for all later requests.
    pub fn renew(&self, newer: &Self) {
        self.value.store(newer.value.load_full());
    }

    /// Replaces the client's credentials.
    pub(super) fn put(&self, headers: &mut HeaderMap) {
        headers.remove(AUTHORIZATION);
        headers.remove(COOKIE);
        strip_look_alikes(headers, &self.header);
        headers.insert(self.header.clone(), HeaderValue::clone(&self.value.load()));
    }

    /// Marks an answer that may be to our credential. Logged once, until it is taken again.
    pub(super) fn judge<B>(&self, answer: &mut Response<B>) {
        let status = answer.status();
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            answer.extensions_mut().insert(CredentialRefused);
            if !self.refused.swap(true, Ordering::Relaxed) {
                tracing::error!(
                    status = status.as_u16(),
                    header = %self.header,
                    "the upstream refuses our credential: look at its value_file"
                );
            }
        } else if status.is_success() && self.refused.load(Ordering::Relaxed) {
            self.refused.store(false, Ordering::Relaxed);
            tracing::info!("the upstream takes our credential again");
        }
    }
}
