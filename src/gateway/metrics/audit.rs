//! Counting what the search for keys that ran twice came to.
//!
//! Neighbours: [`crate::gateway::doubles`] calls it. It must not decide anything.

use std::time::Duration;

use metrics::{counter, gauge};

use crate::ports::audit::Counted;
use crate::ports::observe;

/// How many keys the region's journal says have run in two regions: the same at every gateway of the region, and over restarts. The series
/// begins with the first look at the journal: one that began with zero would seem to grow when a gateway starts.
pub(in crate::gateway) fn doubles(counted: &Counted) {
    counter!(observe::DOUBLES).absolute(counted.doubles);
    counter!(observe::UNEXPLAINED).absolute(counted.unexplained);
}

/// How long ago the last whole look for doubles over all records began.
pub(in crate::gateway) fn audit_age(age: Duration) {
    gauge!(observe::AUDIT_AGE).set(age.as_secs_f64());
}

/// One more such look ended.
pub(in crate::gateway) fn audit_pass() {
    counter!(observe::AUDIT_PASSES).increment(1);
}
