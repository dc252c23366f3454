//! The right to send under a claim: the moment until which its one send may start.
//!
//! After its hold, a claim reads as in doubt, and another request may then recover the key. The
//! holder must have sent, and be surely done, before that. A handler that slept must not send any
//! more. Lease and tenure are checked beside this, by the caller.

use std::time::Duration;

use super::time::{Drift, Moment};

/// The end of the right to send, from *before* the claim was asked for (docs/protocol.md#rule-9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SendBy(Moment);

impl SendBy {
    /// `asked + hold · (1 − eps) − δ − upstream_timeout`. The database starts the hold later than
    /// `asked`, so counting from `asked` errs on the safe side.
    pub fn new(asked: Moment, hold: Duration, upstream_timeout: Duration, drift: Drift) -> Self {
        Self(asked + drift.holder(hold).saturating_sub(upstream_timeout))
    }

    /// True if a send may start now.
    pub fn allows(self, now: Moment) -> bool {
        now < self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handler_that_slept_past_its_window_must_not_send() {
        let drift = Drift { ppm: 1_000, margin: Duration::from_millis(90) };
        let asked = Moment::from_nanos(1_000);
        let by = SendBy::new(asked, Duration::from_secs(10), Duration::from_secs(5), drift);
        assert!(by.allows(asked));
        assert!(by.allows(asked + Duration::from_millis(4_899)));
        assert!(!by.allows(asked + Duration::from_millis(4_900)));
        let short = SendBy::new(asked, Duration::from_secs(5), Duration::from_secs(5), drift);
        assert!(!short.allows(asked), "a hold no longer than the upstream's time allows nothing");
    }
}
