//! The view for people and machines: [`status`], [`metrics`] with their [`labels`], [`spans`] and
//! [`trace`], [`publication`], [`coverage`], [`lag_history`].
//!
//! Nothing here may decide about a request.

pub(crate) mod coverage;
pub(super) mod labels;
pub(crate) mod lag_history;
pub(super) mod metrics;
pub(crate) mod publication;
pub(crate) mod spans;
pub(crate) mod status;
pub(super) mod times;
pub(crate) mod trace;
