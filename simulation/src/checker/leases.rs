//! The invariants about leases: each sender has a lease, judged by the grants of acceptors and not
//! by its own belief.
//!
//! Acceptors write down their grants ([`crate::table::Granted`]). A grant runs for its span of true
//! time at least, because its judge adds the drift. The window hides most breaches of this from the
//! counting of effects.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use onceway::protocol::region::RegionName;
use onceway::protocol::view::AcceptorId;

use super::invariant::{Found, Invariant};
use super::news::Voter;
use super::views::is_majority;
use crate::table::{Granted, Held};
use crate::upstream::Attempted;
use crate::words::key;

/// The grants of each acceptor to each region, in order.
#[derive(Default)]
pub(super) struct Leases {
    granted: BTreeMap<RegionName, BTreeMap<AcceptorId, Vec<Granted>>>,
    /// The time of the first vote for a view that names the acceptor as a new voter.
    new_voters: BTreeMap<AcceptorId, Duration>,
    voters: BTreeSet<AcceptorId>,
}

impl Leases {
    pub(super) fn voted(&mut self, votes: &[(Voter, Vec<Held>)]) {
        let accepted =
            votes.iter().flat_map(|(_, all)| all).filter_map(|held| Some((held.at, held.accepted.as_ref()?)));
        for (at, accepted) in accepted {
            for id in accepted.view.voters().values() {
                if accepted.view.epoch() == 1 {
                    self.voters.insert(*id);
                } else if !self.voters.contains(id) {
                    self.new_voters.entry(*id).and_modify(|since| *since = at.min(*since)).or_insert(at);
                }
            }
        }
    }

    pub(super) fn granted(&mut self, all: Vec<Granted>, found: &mut Found) {
        for granted in all {
            if let Some(since) = self.new_voters.get(&granted.id) {
                silent_at_first(&granted, *since, found);
            }
            let of_region = self.granted.entry(granted.region.clone()).or_default();
            let before = of_region.entry(granted.id).or_default();
            grants_stay(before.last(), &granted, found);
            grants_are_agreed(&granted, found);
            before.push(granted);
        }
    }

    fn running(&self, region: &RegionName, at: Duration) -> impl Iterator<Item = &Granted> {
        let all = self.granted.get(region).into_iter().flatten();
        all.flat_map(move |(_, all)| {
            let before = all.partition_point(|granted| granted.at <= at);
            all[..before].iter().rev().take_while(move |granted| at < granted.until)
        })
    }

    /// True if grants of a majority run for a region at that time, no matter which keys it owns
    /// under them.
    pub(super) fn is_granted(&self, region: &RegionName, at: Duration) -> bool {
        let by = self.running(region, at).map(|granted| granted.id).collect();
        self.running(region, at).any(|granted| is_majority(granted.view.voters(), &by))
    }

    /// An attempt is sent while grants of a majority run, given under views in which the region
    /// owned the key. A renewal that only some of the next view's voters granted ends no lease that
    /// the voters before them had granted.
    pub(super) fn sent(&self, sent: &Attempted, found: &mut Found) {
        let of_owner = |granted: &Granted| granted.view.owner(&sent.id) == Some(&sent.by);
        let running: Vec<&Granted> =
            self.running(&sent.by, sent.at).filter(|granted| of_owner(granted)).collect();
        let by: BTreeSet<AcceptorId> = running.iter().map(|granted| granted.id).collect();
        if !running.iter().any(|granted| is_majority(granted.view.voters(), &by)) {
            let (count, Attempted { at, by, id, token, body: _ }) = (by.len(), sent);
            let (id, when) = (key(id), found.moment(*at));
            let text = format!(
                "{id} {token} was sent by {by} at {when} while {count} grants for it ran: no majority"
            );
            found.push(Invariant::GrantedWhenSent, *at, text);
        }
    }
}

/// No grant of an older view replaces a grant. Otherwise keys that the region gained since
/// could be taken from it while it relies on the grant.
fn grants_stay(before: Option<&Granted>, granted: &Granted, found: &mut Found) {
    let (is, Granted { at, id, region, .. }) = (granted.view.epoch(), granted);
    if let Some(was) = before.map(|before| before.view.epoch()).filter(|was| *was > is) {
        let when = found.moment(*at);
        let text =
            format!("{id:?} granted {region} a lease of epoch {is} at {when}, after one of epoch {was}");
        found.push(Invariant::GrantsStay, *at, text);
    }
}

/// No grant is longer than its view allows. A new voter is silent for no longer than that.
fn grants_are_agreed(granted: &Granted, found: &mut Found) {
    let Granted { at, id, region, until, view } = granted;
    let (length, longest) = (until.saturating_sub(*at), view.longest_lease);
    if length > longest {
        let when = found.moment(*at);
        let text =
            format!("{id:?} granted {region} a lease of {length:?} at {when}: {longest:?} were agreed on");
        found.push(Invariant::GrantsAgreed, *at, text);
    }
}

/// An acceptor that became a voter after the founding knows nothing of the leases granted
/// before. It is silent until they have run out.
fn silent_at_first(granted: &Granted, since: Duration, found: &mut Found) {
    let Granted { at, id, region, until: _, view } = granted;
    let over = since + view.longest_lease;
    if *at < over {
        let (when, since) = (found.moment(*at), found.moment(since));
        let text = format!("{id:?} granted {region} a lease at {when}: it became a voter at {since}");
        found.push(Invariant::SilentAtFirst, *at, text);
    }
}
