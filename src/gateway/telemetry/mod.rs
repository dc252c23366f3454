//! The view for people and machines, from top to bottom.
//!
//! 1. [`status`], [`readiness`], and the contract for clients: [`publication`].
//! 2. The series of [`metrics`]; [`coverage`], and [`trace`] with its spans.
//! 3. [`times`] of requests, [`lag_history`], and bounded [`labels`].
//!
//! Nothing here may decide about a request.

pub(crate) mod coverage;
pub(super) mod labels;
pub(crate) mod lag_history;
pub(super) mod metrics;
pub(crate) mod publication;
pub(crate) mod readiness;
pub(crate) mod status;
pub(super) mod times;
pub(crate) mod trace;
