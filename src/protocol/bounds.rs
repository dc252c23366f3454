//! Bounds on numbers from peers: ballots, epochs, times of leases (docs/protocol.md#rule-20).
//!
//! Without bounds, one message with the largest number would end all proposals for ever. Gateways
//! and witnesses check a message before their acceptor sees it. This file must not refuse numbers
//! that a voter meets after it was away for a while: such a voter has to accept the next view.

use std::time::Duration;

use super::plant::{Check, is_disabled};
use super::register::{Acceptor, Ballot, LARGEST, Message, majority};
use super::view::View;

/// The most that a ballot's counter may be ahead of the known ones.
pub const AHEAD: u64 = 1 << 32;
/// The step of break-glass above every known ballot, so that no returning proposer is near
/// it. A voter that was away may miss 63 of these within [`AHEAD`].
pub const FORCED_BY: u64 = 1 << 26;
/// The most that an epoch may be ahead of the newest known view. Break-glass leaves out up to two
/// strides ([`super::change::STRIDE`]), and a voter that was away may have missed several of these.
pub const LEAP: u64 = 1 << 24;

/// Knowledge of an acceptor's process beside its row.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// The counter that a majority of the acceptors was read to have promised; 0 if never.
    pub counter: u64,
    /// The epoch of the newest view that counts.
    pub epoch: u64,
}

/// A number is out of bounds: it, and the highest known one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum OutOfBounds {
    #[error("ballot {0} is more than 2^32 ahead of {1}, the highest that is known here")]
    Ballot(u64, u64),
    #[error("epoch {0} is too far ahead of {1}, the newest that is known here")]
    Epoch(u64, u64),
    #[error("a lease of {0:?} is longer than the regions have agreed on")]
    Lease(Duration),
}

/// Says whether an acceptor may look at this message at all.
pub fn within(acceptor: &Acceptor, message: &Message, known: &Known) -> Result<(), OutOfBounds> {
    let promised = acceptor.promised.as_ref().map_or(0, |ballot| ballot.counter);
    let accepted = acceptor.accepted.as_ref().map_or(0, |accepted| accepted.view.epoch());
    let near =
        |ballot: &Ballot| leap(ballot.counter, promised.max(known.counter), AHEAD, OutOfBounds::Ballot);
    let epoch = |view: &View| near_epoch(view.epoch(), accepted.max(known.epoch));
    let any_epoch = |view: &View| leap(view.epoch(), accepted, u64::MAX, OutOfBounds::Epoch);
    match message {
        Message::Read => Ok(()),
        Message::Prepare { ballot } => near(ballot),
        Message::Accept { ballot, view } => near(ballot).and_then(|()| epoch(view)),
        Message::Renew { view, ttl, .. } => {
            match *ttl > view.longest_lease && !is_disabled(Check::AgreedLease) {
                true => Err(OutOfBounds::Lease(*ttl)),
                false => epoch(view),
            }
        }
        // Force comes from an operator and is the only way out of a poisoned register: any number
        // passes that leaves room above it.
        Message::Force { ballot, view } => {
            leap(ballot.counter, promised, u64::MAX, OutOfBounds::Ballot).and_then(|()| any_epoch(view))
        }
        Message::Found { ballot: _, view } => any_epoch(view),
    }
}

/// Says whether an epoch is near enough to the newest known one, and not above the largest.
pub fn near_epoch(epoch: u64, known: u64) -> Result<(), OutOfBounds> {
    leap(epoch, known, LEAP, OutOfBounds::Epoch)
}

/// Says whether a number is at most so far ahead of the known one, and not above the largest.
fn leap(number: u64, known: u64, most: u64, error: fn(u64, u64) -> OutOfBounds) -> Result<(), OutOfBounds> {
    let is_near = number <= known.saturating_add(most) && number <= LARGEST;
    if is_near { Ok(()) } else { Err(error(number, known)) }
}

/// The counter that a majority of `voters` acceptors has promised, by the promises that were read.
/// No single acceptor can raise it. 0 if fewer than a majority were read.
pub fn reached(mut promised: Vec<u64>, voters: usize) -> u64 {
    promised.sort_unstable_by(|a, b| b.cmp(a));
    promised.get(majority(voters) - 1).copied().unwrap_or(0)
}

/// The counter to go on from after a round in which `near` of `voters` acceptors could still be
/// won. The others answered that they had promised `far`, which is out of bounds. `None` while the
/// near ones are a majority: an absurd promise of a minority is not followed.
pub fn follow(mut far: Vec<u64>, near: usize, voters: usize) -> Option<u64> {
    far.retain(|counter| *counter < LARGEST);
    far.sort_unstable();
    let missing = majority(voters).checked_sub(near).filter(|missing| *missing > 0)?;
    far.get(missing - 1).copied()
}

#[cfg(test)]
mod tests;
