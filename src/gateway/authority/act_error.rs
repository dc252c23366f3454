//! The reason why an operator's act was not done.
//!
//! Codes are a contract: add, never rename.

use serde::Serialize;

use crate::protocol::region::RegionName;
use crate::protocol::view::View;

/// Reason why an act was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{detail}")]
pub struct ActError {
    /// A stable word for programs: `refused`, `not-yet`, `epoch`, `unknown-region`.
    pub code: &'static str,
    /// The problem, and what the operator can do about it.
    pub detail: String,
}

/// Refuses an act.
pub(in crate::gateway) fn refused<T>(detail: impl Into<String>) -> Result<T, ActError> {
    Err(ActError::refused(detail))
}

/// Puts an act off.
pub(super) fn not_yet<T>(detail: impl Into<String>) -> Result<T, ActError> {
    Err(ActError::not_yet(detail))
}

impl ActError {
    pub(in crate::gateway) fn refused(detail: impl Into<String>) -> Self {
        Self { code: "refused", detail: detail.into() }
    }

    /// Error: the view has no such region.
    pub(in crate::gateway) fn unknown(view: &View, region: &RegionName) -> Self {
        let known: Vec<_> = view.members().keys().collect();
        Self { code: "unknown-region", detail: format!("there is no region {region}: {known:?} are known") }
    }

    /// Error: the act is legal, but its conditions are not met yet.
    pub(super) fn not_yet(detail: impl Into<String>) -> Self {
        Self { code: "not-yet", detail: detail.into() }
    }
}
