//! The gateway's periods, as a deployment's heartbeat makes them.
//!
//! No other setting changes them. This file must not read one.

use std::time::Duration;

use crate::gateway::settings::Timings;

/// The gateway's periods and bounds.
///
/// Only the heartbeat is a setting so far. The others follow from it, or from the bounds of the
/// store's statements (1.4 s each, at most two in a claim).
pub(super) fn timings(heartbeat: Duration) -> Timings {
    let ms = Duration::from_millis;
    Timings {
        heartbeat,
        ping: ms(250),
        silent_after: ms(1_000),
        poll: ms(100),
        attach_poll: ms(25),
        body_within: ms(30_000),
        claim_within: ms(4_000),
        settle_within: ms(3_000),
        probe_within: ms(3_000),
        jobs_poll: ms(1_000),
        sweep: ms(2_000),
        reap: ms(5_000),
        reap_pause: ms(20),
    }
}
