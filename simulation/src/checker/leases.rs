//! The invariants about leases, judged by the grants of acceptors and not by a sender's own belief.
//!
//! A grant runs for its span of true time at least, because its judge adds the drift. The window
//! hides most breaches of this from the counting of effects.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use onceway::protocol::region::RegionName;
use onceway::protocol::register::Accepted;
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
        for Held { at, accepted, .. } in votes.iter().flat_map(|(_, all)| all) {
            let Some(Accepted { view, .. }) = accepted else { continue };
            for id in view.voters().values() {
                if view.epoch() == 1 {
                    self.voters.insert(*id);
                } else if !self.voters.contains(id) {
                    let since = self.new_voters.entry(*id).or_insert(*at);
                    *since = *at.min(since);
                }
            }
        }
    }

    pub(super) fn granted(&mut self, all: Vec<Granted>, found: &mut Found) {
        for granted in all {
            let (at, view) = (granted.at, &granted.view);
            // Who became a voter after the founding knows nothing of the leases granted before.
            if let Some(since) =
                self.new_voters.get(&granted.id).filter(|since| at < **since + view.longest_lease)
            {
                let why = format!(": it became a voter at {}", found.moment(*since));
                breaks(Invariant::SilentAtFirst, &granted, "", &why, found);
            }
            let of_region = self.granted.entry(granted.region.clone()).or_default();
            let before = of_region.entry(granted.id).or_default();
            // Else keys that the region gained since could be taken while it relies on this.
            let (was, is) = (before.last().map_or(0, |before| before.view.epoch()), view.epoch());
            if was > is {
                let (of, why) = (format!(" of epoch {is}"), format!(", after one of epoch {was}"));
                breaks(Invariant::GrantsStay, &granted, &of, &why, found);
            }
            let (length, longest) = (granted.until.saturating_sub(at), view.longest_lease);
            if length > longest {
                let (of, why) = (format!(" of {length:?}"), format!(": {longest:?} were agreed on"));
                breaks(Invariant::GrantsAgreed, &granted, &of, &why, found);
            }
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

    /// True if grants of a majority run for a region then, whichever keys it owns under them.
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

fn breaks(invariant: Invariant, granted: &Granted, of: &str, why: &str, found: &mut Found) {
    let Granted { at, id, region, .. } = granted;
    let when = found.moment(*at);
    found.push(invariant, *at, format!("{id:?} granted {region} a lease{of} at {when}{why}"));
}
