//! The end of grants: a grant is over for a process that saw the same number for long enough.
//!
//! Long enough is the lease's time plus drift, on the process's own boot clock
//! (docs/protocol.md#rule-22). A process that starts has seen nothing, so for it every grant runs
//! for one whole lease more. [`Admission`] says when an acceptor that became a voter may answer
//! (docs/protocol.md#rule-17). This file must not read a clock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::digest::Digest32;
use super::plant::{Plant, removed};
use super::region::RegionName;
use super::register::{Acceptor, Grant};
use super::time::{Drift, Moment};
use super::view::View;

/// The grants of one acceptor as one process saw them.
#[derive(Clone, Debug)]
pub struct GrantWatch {
    drift: Drift,
    seen: BTreeMap<RegionName, Seen>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    boot: Digest32,
    number: u64,
    since: Moment,
}

impl GrantWatch {
    /// A watch that has seen nothing.
    pub fn new(drift: Drift) -> Self {
        Self { drift, seen: BTreeMap::new() }
    }

    /// Records the grants that the acceptor holds now.
    pub fn observe(&mut self, acceptor: &Acceptor, now: Moment) {
        self.seen.retain(|region, _| acceptor.grants.contains_key(region));
        for (region, grant) in &acceptor.grants {
            let known = self.seen.get(region).filter(|seen| seen.is(grant));
            if known.is_none() {
                self.seen.insert(region.clone(), Seen { boot: grant.boot, number: grant.number, since: now });
            }
        }
    }

    /// True if the grant is surely over at `now`. One that was not observed is not.
    pub fn is_over(&self, region: &RegionName, grant: &Grant, now: Moment) -> bool {
        self.over_at(region, grant).is_some_and(|over| now >= over)
    }

    /// The moment from which the grant is surely over, if it is not renewed.
    pub fn over_at(&self, region: &RegionName, grant: &Grant) -> Option<Moment> {
        let seen = self.seen.get(region).filter(|seen| seen.is(grant))?;
        Some(seen.since + self.drift.judge(grant.ttl))
    }
}

impl Seen {
    fn is(&self, grant: &Grant) -> bool {
        (self.boot, self.number) == (grant.boot, grant.number)
    }
}

/// The silence of an acceptor that became a voter after the founding (docs/protocol.md#rule-17).
///
/// The acceptor knows nothing of the grants under the former voters. So it is silent for one
/// longest lease on its own boot clock. A longer silence is not needed: once the view that names it
/// is chosen, no majority of the former voters renews anything. A process that starts counts anew.
#[derive(Clone, Debug)]
pub struct Admission {
    wait: Duration,
    /// The moment since which this process has seen its acceptor among the voters, without a break.
    since: Option<Moment>,
}

impl Admission {
    /// An admission that has seen nothing. No lease of the deployment runs longer than `longest`.
    pub fn new(drift: Drift, longest: Duration) -> Self {
        Self { wait: drift.judge(longest), since: None }
    }

    /// The admitted acceptor of the voter `me`, if due at `now`. `None` while it has to be silent,
    /// is no voter, or is admitted already. `chosen` is the newest chosen view known here: a view
    /// that was only accepted somewhere makes no voters.
    pub fn due(
        &mut self,
        acceptor: &Acceptor,
        me: &RegionName,
        chosen: &Arc<View>,
        now: Moment,
    ) -> Option<Acceptor> {
        if acceptor.admitted || chosen.voters().get(me) != Some(&acceptor.id) {
            self.since = None;
            return None;
        }
        let since = *self.since.get_or_insert(now);
        let silent = now < since + self.wait && !removed(Plant::NewVoterSilent);
        (!silent).then(|| acceptor.admit(me, chosen))
    }
}

#[cfg(test)]
mod admission_tests;
#[cfg(test)]
mod tests;
