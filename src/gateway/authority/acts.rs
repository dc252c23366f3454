//! What operators ask of the register: founding it, plans and changes of the ring, drains, returns, takeovers.
//!
//! Neighbours: `server::admin_authority` and `cli` bring them in. Every act says what came of it, or why nothing did. It must not do anything
//! that an operator did not ask for by name. These answers stand in until the register is driven here: each act is refused.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Serialize;

use super::Gateway;
use crate::ports::Ports;
use crate::protocol::region::RegionName;
use crate::protocol::ring::Ring;

/// Why an act was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{detail}")]
pub struct ActError {
    /// A stable word for programs: `refused`, `not-yet`, `epoch`, `unknown-region`.
    pub code: &'static str,
    /// What is wrong and what to do.
    pub detail: String,
}

/// What the founding came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FoundReport {
    /// The first epoch.
    pub epoch: u64,
    /// Whose majority decides from now on.
    pub voters: Vec<String>,
}

/// What a ring would change.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RingPlan {
    /// The epoch that it was compared with: what `ring apply` expects.
    pub epoch: u64,
}

/// What a takeover by hand came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TakeoverReport {
    /// The epoch in which the region is lost.
    pub epoch: u64,
    /// Regions that accepted the risk and open without waiting.
    pub waived: Vec<String>,
}

fn not_built<T>() -> Result<T, ActError> {
    Err(ActError { code: "refused", detail: "this gateway cannot do that yet".to_owned() })
}

impl<P: Ports> Gateway<P> {
    /// Founds the register.
    ///
    /// # Errors
    /// Always.
    pub async fn found(
        self: &Arc<Self>,
        _escrow: BTreeSet<Arc<str>>,
        _epoch_above: Option<u64>,
    ) -> Result<FoundReport, ActError> {
        not_built()
    }

    /// What this ring would change in the register's.
    ///
    /// # Errors
    /// Always.
    pub fn plan(&self, _ring: &Ring, _escrow: &BTreeSet<Arc<str>>) -> Result<RingPlan, ActError> {
        not_built()
    }

    /// Puts a ring in force.
    ///
    /// # Errors
    /// Always.
    pub async fn apply(
        self: &Arc<Self>,
        _ring: Arc<Ring>,
        _escrow: BTreeSet<Arc<str>>,
        _expect_epoch: u64,
        _actor: &str,
    ) -> Result<u64, ActError> {
        not_built()
    }

    /// Takes a region out of service.
    ///
    /// # Errors
    /// Always.
    pub async fn drain(
        self: &Arc<Self>,
        _region: &RegionName,
        _force: bool,
        _actor: &str,
        _reason: &str,
    ) -> Result<u64, ActError> {
        not_built()
    }

    /// Gives a drained region its arcs back.
    ///
    /// # Errors
    /// Always.
    pub async fn resume(self: &Arc<Self>, _region: &RegionName, _actor: &str) -> Result<u64, ActError> {
        not_built()
    }

    /// Declares a region lost by hand.
    ///
    /// # Errors
    /// Always.
    pub async fn takeover(
        self: &Arc<Self>,
        _region: &RegionName,
        _accept_risk: bool,
        _actor: &str,
        _reason: &str,
    ) -> Result<TakeoverReport, ActError> {
        not_built()
    }
}
