//! Counters of the search for keys that ran twice.
//!
//! [`crate::gateway::upkeep::doubles`] calls them. This file must not decide anything.

use std::time::Duration;

use metrics::{counter, gauge};

use crate::ports::audit::Counted;
use crate::ports::observe;

/// Counts the doubles in the region's journal: the same number at every gateway of the region, and
/// over restarts. The series begins with the first look at the journal. One that began with zero
/// would seem to grow when a gateway starts.
pub(in crate::gateway) fn doubles(counted: &Counted) {
    counter!(observe::DOUBLES).absolute(counted.doubles);
    counter!(observe::UNEXPLAINED).absolute(counted.unexplained);
}

/// Shows the time since the last whole pass over all records began.
pub(in crate::gateway) fn audit_age(age: Duration) {
    gauge!(observe::AUDIT_AGE).set(age.as_secs_f64());
}

pub(in crate::gateway) fn audit_pass() {
    counter!(observe::AUDIT_PASSES).increment(1);
}
