//! A durable claim, and its basis.
//!
//! [`super::claim`] makes one. This file must not store or send anything.

use crate::gateway::authority::state::Run;
use crate::ports::jobs::StoredRequest;
use crate::ports::store::Attempt;
use crate::protocol::decide::Basis;
use crate::protocol::hold::SendBy;
use crate::protocol::region::RegionName;
use crate::protocol::snapshot::Permit;
use crate::protocol::time::Date;

pub(in crate::gateway) struct ClaimBasis {
    /// The rows that the claim saw.
    pub(in crate::gateway) seen: Basis,
    /// True if those rows say that nothing happened, or if there are none. Only then can absence be
    /// a proof.
    pub(in crate::gateway) untouched: bool,
}

/// Purpose of a claim: to run now, or to store a request for its job.
pub(in crate::gateway) enum ClaimMode {
    Now,
    /// To be run by its job.
    Later(Box<StoredRequest>),
}

/// A durable claim of one request.
pub(in crate::gateway) struct Claim {
    pub(in crate::gateway) attempt: Attempt,
    pub(in crate::gateway) expires: Date,
    pub(in crate::gateway) send_by: SendBy,
    pub(in crate::gateway) permit: Permit,
    /// True if its route is under escrow, so it may be lodged elsewhere.
    pub(in crate::gateway) lodges: bool,
    /// The region where it surely is lodged.
    pub(in crate::gateway) lodged: Option<RegionName>,
    /// The attempt counts as running as long as this lives.
    pub(in crate::gateway) _running: Run,
}
