//! The life of a request, from top to bottom: no file names one that stands above it.
//!
//! 1. [`ingress`] has the two ways in. [`address`] tells a key's state. [`admit`] says who asks,
//!    under which key, what exactly; [`passthrough`] takes requests without a key.
//! 2. [`forward`] asks the owner, or has the key served here: [`follow`] reads the rows, and
//!    replays, waits ([`attach`]), accepts ([`accept`]) or runs ([`attempt`]).
//! 3. [`finish`] ends it. [`reply`], [`ask`] and [`problems`] are what all of them say. Nothing
//!    here may send a request without a durable claim.

pub(super) mod accept;
pub(super) mod address;
pub(super) mod admit;
pub(super) mod ask;
pub(super) mod attach;
pub(super) mod attempt;
pub(super) mod finish;
pub(super) mod follow;
pub(super) mod forward;
pub(super) mod ingress;
pub(super) mod passthrough;
pub(crate) mod problems;
pub(super) mod reply;

pub use problems::codes;
