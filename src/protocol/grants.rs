//! The end of grants: a grant is over for a process that saw the same number for long enough.
//!
//! Long enough is the lease's time plus drift, on the process's own boot clock
//! (docs/protocol.md#rule-22). A process that starts has seen nothing, so for it every grant runs
//! for one whole lease more. [`Admission`] says when an acceptor that became a voter may answer
//! (docs/protocol.md#rule-17).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::digest::Digest32;
use super::plant::{Check, is_disabled};
use super::region::RegionName;
use super::register::{Acceptor, Answered, Grant, HELD_BY_ANOTHER_START, Message, Relies, Reply};
use super::time::{Drift, Moment};
use super::view::{AcceptorId, View};

/// The grants of one acceptor as one process saw them.
#[derive(Clone, Debug)]
pub struct GrantWatch {
    drift: Drift,
    seen: BTreeMap<RegionName, Seen>,
    /// The last time that a new start of each region's Postgres was refused here.
    knocked: BTreeMap<RegionName, Moment>,
}

/// The numbers of one grant that gateways may rely on, and when each was first seen.
#[derive(Clone, Debug)]
struct Seen {
    boot: Digest32,
    numbers: BTreeMap<u64, Moment>,
}

/// The time for which a refused new start, which asks again, counts as about to be granted.
const KNOCKS: Duration = Duration::from_secs(1);

impl GrantWatch {
    /// A watch that has seen nothing.
    pub fn new(drift: Drift) -> Self {
        Self { drift, seen: BTreeMap::new(), knocked: BTreeMap::new() }
    }

    /// Records the grants that the acceptor holds now.
    pub fn observe(&mut self, acceptor: &Acceptor, now: Moment) {
        self.seen.retain(|region, _| acceptor.grants.contains_key(region));
        for (region, grant) in &acceptor.grants {
            let known = self.seen.get(region).filter(|seen| seen.boot == grant.boot);
            let since =
                |number: &u64| known.and_then(|seen| seen.numbers.get(number)).copied().unwrap_or(now);
            let numbers = grant.holders.values().map(|Relies(_, number)| number).chain([&grant.number]);
            let numbers = numbers.map(|number| (*number, since(number))).collect();
            self.seen.insert(region.clone(), Seen { boot: grant.boot, numbers });
        }
    }

    /// The acceptor's answer at `now`, by what this process saw ([`Acceptor::answer`]).
    ///
    /// A reader asks before it takes a region over. So it is told that the lease runs while a new
    /// start keeps asking: else some acceptors would grant that, and others accept the loss.
    pub fn answer(
        &mut self,
        acceptor: &Acceptor,
        to: Option<AcceptorId>,
        message: &Message,
        now: Moment,
    ) -> Answered {
        let knocks =
            |region: &RegionName| self.knocked.get(region).is_some_and(|last| now.since(*last) <= KNOCKS);
        let reads = matches!(message, Message::Read) && !is_disabled(Check::Quiet);
        let over = |region: &RegionName, grant: &Grant| {
            self.is_over(region, grant, now) && !(reads && knocks(region))
        };
        let answered = acceptor.answer(to, message, &over);
        if let (Message::Renew { region, .. }, Reply::NotGranted(HELD_BY_ANOTHER_START)) =
            (message, &answered.1)
        {
            self.knocked.insert(region.clone(), now);
        }
        answered
    }

    /// True if the grant is surely over at `now`. One that was not observed is not.
    pub fn is_over(&self, region: &RegionName, grant: &Grant, now: Moment) -> bool {
        self.over_at(region, grant).is_some_and(|over| now >= over)
    }

    /// The moment from which the grant is surely over, if it is not renewed.
    pub fn over_at(&self, region: &RegionName, grant: &Grant) -> Option<Moment> {
        let seen = self.seen.get(region).filter(|seen| seen.boot == grant.boot)?;
        Some(*seen.numbers.get(&grant.number)? + self.drift.judge(grant.ttl))
    }
}

/// The silence of an acceptor that became a voter after the founding (docs/protocol.md#rule-17).
///
/// The acceptor knows nothing of the grants under the former voters. So it is silent for the
/// longest lease that was ever agreed on, by its own boot clock. No longer: once that view is
/// chosen, no majority of the former voters renews anything. A process that starts counts anew.
#[derive(Clone, Debug)]
pub struct Admission {
    drift: Drift,
    /// The moment since which this process has seen its acceptor among the voters, without a break.
    since: Option<Moment>,
}

impl Admission {
    /// An admission that has seen nothing.
    pub fn new(drift: Drift) -> Self {
        Self { drift, since: None }
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
        let wait = self.drift.judge(chosen.longest_lease);
        let silent = now < since + wait && !is_disabled(Check::NewVoterSilent);
        (!silent).then(|| acceptor.admit(me, chosen))
    }
}

#[cfg(test)]
mod tests;
