//! Which grants are over: a grant is over for a process once that process saw the same number for the lease's time plus drift, on its own
//! boot clock (protocol reference, section 1).
//!
//! Neighbours: [`super::register`] asks before it accepts or grants, `gateway::authority` feeds it. A process that starts has seen
//! nothing, so for it every grant runs for one whole lease more. [`Admission`] says when an acceptor that became a voter may answer (H7). It
//! must not read a clock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::digest::Digest32;
use super::region::RegionName;
use super::register::{Acceptor, Grant};
use super::time::{Drift, Moment};
use super::view::View;

/// What one process saw of the grants of one acceptor.
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

    /// The acceptor holds this now.
    pub fn observe(&mut self, acceptor: &Acceptor, now: Moment) {
        self.seen.retain(|region, _| acceptor.grants.contains_key(region));
        for (region, grant) in &acceptor.grants {
            let known = self.seen.get(region).filter(|seen| seen.is(grant));
            if known.is_none() {
                self.seen.insert(region.clone(), Seen { boot: grant.boot, number: grant.number, since: now });
            }
        }
    }

    /// Whether the grant is surely over at `now`. One that was not observed is not.
    pub fn is_over(&self, region: &RegionName, grant: &Grant, now: Moment) -> bool {
        self.over_at(region, grant).is_some_and(|over| now >= over)
    }

    /// From when on the grant is surely over, if it is not renewed.
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

/// When an acceptor that became a voter after the founding may answer (H7): it knows nothing of what was granted under the voters before it, so
/// it is silent for one longest lease on its own boot clock. Longer is not needed: once the view that names it is chosen, no majority of the
/// former voters renews anything. A process that starts counts anew.
#[derive(Clone, Debug)]
pub struct Admission {
    wait: Duration,
    /// Since when this process has seen its acceptor among the voters, without a break.
    since: Option<Moment>,
}

impl Admission {
    /// Nothing seen yet; no lease of the deployment runs longer than `longest`.
    pub fn new(drift: Drift, longest: Duration) -> Self {
        Self { wait: drift.judge(longest), since: None }
    }

    /// What the acceptor of the voter `me` is to become at `now`; `None` while it has to be silent, is no voter, or is admitted already.
    /// `chosen` is the newest chosen view known here: one that was only accepted somewhere makes nobody a voter.
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
        (now >= since + self.wait).then(|| acceptor.admit(me, chosen))
    }
}

#[cfg(test)]
mod tests {
    use super::super::register::{Ballot, Message, Reply};
    use super::super::ring::{PlaceBy, RegionSpec, Ring, RingSpec};
    use super::super::view::AcceptorId;
    use super::*;

    const DRIFT: Drift = Drift { ppm: 1_000, margin: Duration::from_millis(50) };
    const TTL: Duration = Duration::from_secs(10);

    fn name(text: &str) -> RegionName {
        RegionName::parse(text).unwrap()
    }

    fn at(millis: u64) -> Moment {
        Moment::from_nanos(millis * 1_000_000)
    }

    fn view(epoch: u64, voters: &[(&str, u128)]) -> Arc<View> {
        let regions = ["a", "b"].map(|region| RegionSpec { name: name(region), weight: 1 }).to_vec();
        let ring = Ring::build(&RingSpec { seed: 1, place_by: PlaceBy::Key, regions, pins: Vec::new() });
        let voters = voters.iter().map(|(voter, id)| (name(voter), AcceptorId(*id))).collect();
        Arc::new(View::founding(epoch, Arc::new(ring.unwrap()), Default::default(), voters))
    }

    fn holding(number: u64) -> (Acceptor, Grant) {
        let grant =
            Grant { generation: 1, boot: Digest32::new([1; 32]), view: view(1, &[]), number, ttl: TTL };
        let grants = BTreeMap::from([(name("a"), grant.clone())]);
        (Acceptor { grants, ..Acceptor::made(AcceptorId(7)) }, grant)
    }

    #[test]
    fn a_grant_is_over_once_its_number_was_seen_unchanged_for_long_enough() {
        let mut watch = GrantWatch::new(DRIFT);
        let (acceptor, grant) = holding(1);
        assert!(!watch.is_over(&name("a"), &grant, at(1_000_000)), "what was never seen is not over");
        watch.observe(&acceptor, at(1_000));
        watch.observe(&acceptor, at(5_000));
        assert!(!watch.is_over(&name("a"), &grant, at(11_059)));
        assert!(watch.is_over(&name("a"), &grant, at(11_060)));
        let (renewed, newer) = holding(2);
        assert!(!watch.is_over(&name("a"), &newer, at(1_000_000)));
        watch.observe(&renewed, at(11_000));
        assert!(!watch.is_over(&name("a"), &newer, at(21_059)));
        assert!(watch.is_over(&name("a"), &newer, at(21_060)));
        let empty = Acceptor::made(AcceptorId(7));
        watch.observe(&empty, at(22_000));
        watch.observe(&renewed, at(23_000));
        assert!(!watch.is_over(&name("a"), &newer, at(24_000)), "a break begins anew");
    }

    #[test]
    fn an_acceptor_that_became_a_voter_is_silent_for_one_lease() {
        let (made, me) = (Acceptor::made(AcceptorId(7)), name("w"));
        let (before, chosen) = (view(4, &[("w", 3)]), view(5, &[("w", 7)]));
        let mut admission = Admission::new(DRIFT, TTL);
        assert_eq!(admission.due(&made, &me, &before, at(0)), None);
        assert_eq!(admission.due(&made, &me, &chosen, at(100_000)), None);
        assert_eq!(admission.due(&made, &me, &chosen, at(110_059)), None);
        // No voter for a moment: the time counts from the next view that names it.
        assert_eq!(admission.due(&made, &me, &before, at(110_060)), None);
        assert_eq!(admission.due(&made, &me, &chosen, at(110_061)), None);
        assert_eq!(admission.due(&made, &me, &chosen, at(120_120)), None);
        let admitted = admission.due(&made, &me, &chosen, at(120_121)).unwrap();
        assert!(admitted.admitted);
        assert_eq!(admission.due(&admitted, &me, &chosen, at(500_000)), None);

        // It answers now, holds the view that made it a voter, and is behind every proposer.
        let ballot = Ballot { counter: 1, region: name("a"), proposer: 0 };
        let nothing_over = |_: &RegionName, _: &Grant| false;
        let (next, reply) =
            admitted.answer(None, &Message::Prepare { ballot: ballot.clone() }, &nothing_over);
        let Reply::Promised(accepted) = reply else { panic!("{reply:?}") };
        assert!(accepted.view == chosen && accepted.ballot < ballot);
        assert_eq!(next.unwrap().promised, Some(ballot.clone()));
        // What was accepted before stays: it may be chosen.
        let holding = Acceptor {
            admitted: false,
            ..admitted
                .answer(
                    None,
                    &Message::Accept { ballot: ballot.clone(), view: view(6, &[("w", 7)]) },
                    &nothing_over,
                )
                .0
                .unwrap()
        };
        let mut admission = Admission::new(DRIFT, Duration::ZERO);
        assert_eq!(admission.due(&holding, &me, &chosen, at(0)), None);
        let kept = admission.due(&holding, &me, &chosen, at(50)).unwrap();
        assert_eq!((kept.accepted, kept.promised), (holding.accepted.clone(), holding.promised.clone()));
    }
}
