//! The life of a request, to be read from top to bottom.
//!
//! 1. [`ingress`] and [`admit`]: who asks, under which key, what exactly. [`passthrough`] takes
//!    requests without a key.
//! 2. [`address`] places the key. [`forward`] hands it to the owner; [`forwarded_verdict`] is its
//!    answer's first line.
//! 3. [`follow`] reads the rows, and replays, waits ([`attach`]) or runs.
//! 4. [`claim`], then [`escrow`]: the claim is durable before the request is sent.
//! 5. [`outcome`] settles, [`recover`] asks the upstream about a doubt, [`stand_in`] ends another
//!    region's attempt.
//! 6. [`finish`] and [`reply`]: the answer, or one of the [`problems`]. [`accept`] answers before
//!    the run.
//!
//! Nothing here may send a request without a durable claim.

pub(super) mod accept;
pub(crate) mod address;
pub(super) mod admit;
pub(super) mod attach;
pub(super) mod claim;
pub(super) mod escrow;
pub(super) mod finish;
pub(super) mod follow;
pub(super) mod forward;
pub(super) mod forwarded_verdict;
pub(super) mod ingress;
pub(super) mod outcome;
pub(super) mod passthrough;
pub(crate) mod problems;
pub(super) mod recover;
pub(crate) mod reply;
pub(super) mod stand_in;

pub use problems::codes;
