//! The credential of an upstream: it takes the place of the client's own at the moment of sending.
//!
//! No store, job, forward or log holds it, as nothing before this file knows it. A 401 or 403 that
//! answers it is no answer to the client's request.

use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use http::header::{AUTHORIZATION, COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use crate::ports::upstream::SendError;

/// A header, and the value that it has now.
#[derive(Debug)]
pub struct Credential {
    header: HeaderName,
    value: ArcSwap<HeaderValue>,
    /// True while the upstream refuses it.
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
        headers.insert(self.header.clone(), HeaderValue::clone(&self.value.load()));
    }

    /// Says if the upstream took it.
    ///
    /// # Errors
    /// `Refused`; logged once, until another answer comes.
    pub(super) fn judge(&self, status: StatusCode) -> Result<(), SendError> {
        let refused = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        if refused != self.refused.load(Ordering::Relaxed)
            && refused != self.refused.swap(refused, Ordering::Relaxed)
        {
            match refused {
                true => tracing::error!(
                    status = status.as_u16(),
                    header = %self.header,
                    "the upstream refuses our credential: nothing runs there until value_file is right"
                ),
                false => tracing::info!("the upstream takes our credential again"),
            }
        }
        match refused {
            true => Err(SendError::Refused(status.as_u16())),
            false => Ok(()),
        }
    }
}
