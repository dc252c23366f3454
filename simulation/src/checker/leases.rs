//! The invariant about leases: whoever sends has one, by what acceptors granted and not by what it believes itself (13).
//!
//! Neighbours: acceptors write down what they grant ([`crate::table::Granted`]). A grant runs for its span of true time at least, as whoever
//! judges it adds the drift. The window hides most breaches of this from the counting of effects. It must not read a gateway's lease.

use std::collections::BTreeMap;

use onceway::protocol::region::RegionName;
use onceway::protocol::register::majority;
use onceway::protocol::view::AcceptorId;

use super::news::Sent;
use super::{Found, Invariant};
use crate::table::Granted;

/// What each acceptor granted to each region, in order.
#[derive(Default)]
pub(super) struct Leases {
    granted: BTreeMap<RegionName, BTreeMap<AcceptorId, Vec<Granted>>>,
}

impl Leases {
    /// What was granted since the last look.
    pub(super) fn granted(&mut self, all: Vec<Granted>) {
        for granted in all {
            let of_region = self.granted.entry(granted.region.clone()).or_default();
            of_region.entry(granted.id).or_default().push(granted);
        }
    }

    /// 13: an attempt is sent while grants of a majority run.
    pub(super) fn sent(&self, sent: &Sent, found: &mut Found) {
        let running: BTreeMap<AcceptorId, &Granted> = self
            .granted
            .get(&sent.by)
            .into_iter()
            .flatten()
            .filter_map(|(id, all)| {
                let before = all.partition_point(|granted| granted.at <= sent.at);
                let last = all.get(before.checked_sub(1)?)?;
                (sent.at < last.until).then_some((*id, last))
            })
            .collect();
        let is_majority = |granted: &&Granted| {
            let voters = granted.view.voters();
            voters.values().filter(|id| running.contains_key(id)).count() >= majority(voters.len())
        };
        if !running.values().any(|granted| is_majority(granted)) {
            let Sent { at, by, id, token } = sent;
            let count = running.len();
            let text =
                format!("{id:?} {token} was sent by {by} at {at:?} while {count} grants ran: no majority");
            found.push(Invariant::GrantedWhenSent, *at, text);
        }
    }
}
