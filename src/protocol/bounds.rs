//! How far ahead the numbers of peers may be: ballots, epochs, times of leases.
//!
//! Neighbours: [`super::register`] answers what is within bounds, [`super::confirm`] says which views
//! count, `gateway::authority` and `server::witness` ask before an acceptor sees a message. Without
//! bounds one message with the largest number would end all proposals for ever. It must not refuse what
//! a voter can meet that was away for a while: such a voter has to accept the next view.

use std::time::Duration;

use super::register::{Acceptor, Ballot, Message};

/// A ballot's counter may be so far ahead of the known ones.
pub const AHEAD: u64 = 1 << 32;
/// Break-glass puts its ballot so far above every known one: nobody who comes back is near it. A voter
/// that was away may miss 63 of these within [`AHEAD`].
pub const FORCED_BY: u64 = 1 << 26;
/// An epoch may be so far ahead of the newest view that is known: break-glass leaves up to two strides
/// ([`super::change::STRIDE`]) out, and a voter that was away may have missed several of these.
pub const LEAP: u64 = 1 << 24;
/// No ballot and no epoch is larger: stores keep 63 bits, and something must be left above a poisoned one.
pub const LARGEST: u64 = (1 << 63) - (1 << 40);
/// A lease may be asked for so many times the own one, as regions change that setting one by one.
const LONGER: u32 = 8;

/// What the process of an acceptor knows beside its row.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// The counter that a majority of the acceptors was read to have promised; 0 if it was never read.
    pub counter: u64,
    /// The epoch of the newest view that counts.
    pub epoch: u64,
    /// How long a lease runs here.
    pub lease: Duration,
}

/// A number is out of bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutOfBounds {
    /// A ballot's counter.
    #[error("ballot {ballot} is more than 2^32 ahead of {known}, the highest that is known here")]
    Ballot {
        /// The counter.
        ballot: u64,
        /// What is known.
        known: u64,
    },
    /// A view's epoch.
    #[error("epoch {epoch} is too far ahead of {known}, the newest that is known here")]
    Epoch {
        /// The epoch.
        epoch: u64,
        /// What is known.
        known: u64,
    },
    /// The time of a lease.
    #[error("a lease of {0:?} is too long: [failover] lease is equal in all regions")]
    Lease(Duration),
}

/// Whether an acceptor may look at this message at all.
///
/// # Errors
/// Which number is out of bounds.
pub fn within(acceptor: &Acceptor, message: &Message, known: &Known) -> Result<(), OutOfBounds> {
    let promised = acceptor.promised.as_ref().map_or(0, |ballot| ballot.counter);
    let accepted = acceptor.accepted.as_ref().map_or(0, |accepted| accepted.view.epoch());
    let counter = |ballot: &Ballot| near_ballot(ballot.counter, promised.max(known.counter));
    let epoch = |epoch: u64| near_epoch(epoch, accepted.max(known.epoch));
    match message {
        Message::Read => Ok(()),
        Message::Prepare { ballot } => counter(ballot),
        Message::Accept { ballot, view } => counter(ballot).and_then(|()| epoch(view.epoch())),
        Message::Renew { view, ttl, .. } => match *ttl > known.lease.saturating_mul(LONGER) {
            true => Err(OutOfBounds::Lease(*ttl)),
            false => epoch(view.epoch()),
        },
        // An operator's word, and the only way out of a poisoned register: any number that leaves room above.
        Message::Force { ballot, view } => {
            below_largest(ballot.counter, promised).and_then(|()| epoch_below_largest(view.epoch(), accepted))
        }
        Message::Found { ballot: _, view } => epoch_below_largest(view.epoch(), accepted),
    }
}

fn near_ballot(ballot: u64, known: u64) -> Result<(), OutOfBounds> {
    match ballot > known.saturating_add(AHEAD) {
        true => Err(OutOfBounds::Ballot { ballot, known }),
        false => below_largest(ballot, known),
    }
}

fn below_largest(ballot: u64, known: u64) -> Result<(), OutOfBounds> {
    if ballot > LARGEST { Err(OutOfBounds::Ballot { ballot, known }) } else { Ok(()) }
}

/// Whether an epoch is near enough to the newest one that is known.
///
/// # Errors
/// It is not.
pub fn near_epoch(epoch: u64, known: u64) -> Result<(), OutOfBounds> {
    match epoch > known.saturating_add(LEAP) {
        true => Err(OutOfBounds::Epoch { epoch, known }),
        false => epoch_below_largest(epoch, known),
    }
}

fn epoch_below_largest(epoch: u64, known: u64) -> Result<(), OutOfBounds> {
    if epoch > LARGEST { Err(OutOfBounds::Epoch { epoch, known }) } else { Ok(()) }
}

/// The counter that a majority of `voters` acceptors has reached, by what some of them were read to have
/// promised: no single one can raise it. 0 if fewer were read.
pub fn reached(mut promised: Vec<u64>, voters: usize) -> u64 {
    promised.sort_unstable_by(|a, b| b.cmp(a));
    promised.get(super::register::majority(voters) - 1).copied().unwrap_or(0)
}

/// The counter to go on from after a round in which `near` of `voters` acceptors could still be won, and
/// the others answered that they had promised these, which are far ahead. None while those that are near
/// are a majority: nobody's absurd promise is followed then.
pub fn follow(mut far: Vec<u64>, near: usize, voters: usize) -> Option<u64> {
    far.retain(|counter| *counter < LARGEST);
    far.sort_unstable();
    let missing = super::register::majority(voters).checked_sub(near).filter(|missing| *missing > 0)?;
    far.get(missing - 1).copied()
}

#[cfg(test)]
mod tests;
