//! Numbers and spans of time as the columns hold them.
//!
//! A number that its column cannot hold is an error before anything is sent. This file must not cut
//! a value to fit.

use std::time::Duration;

use super::errors;
use crate::ports::store::StoreError;
use crate::protocol::lifetime::{Lifetime, Retention};

/// The retention in milliseconds. `None`: for ever.
pub(super) fn promised(lifetime: &Lifetime) -> Option<i64> {
    match lifetime.retention {
        Retention::For(span) => Some(millis(span)),
        Retention::Never => None,
    }
}

pub(super) fn big(what: &str, value: u64) -> Result<i64, StoreError> {
    i64::try_from(value).map_err(|_| errors::not_sent(what, "a number is too large to be stored"))
}

pub(super) fn small(what: &str, value: u32) -> Result<i32, StoreError> {
    i32::try_from(value).map_err(|_| errors::not_sent(what, "an attempt number is too large to be stored"))
}

pub(super) fn status(what: &str, value: u16) -> Result<i16, StoreError> {
    i16::try_from(value).map_err(|_| errors::not_sent(what, "a status is not one of HTTP's"))
}

/// Whole milliseconds, rounded up: a stored hold or retention is never shorter than the promised
/// one.
pub(super) fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
}
