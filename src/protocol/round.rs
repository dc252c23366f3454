//! One round of the register: a proposer's side (docs/protocol.md#rule-15).
//!
//! A change is put only on the view from which it was made, and only if that is the newest accepted
//! one. Any other value that a majority shows is finished unchanged first, never built on. The
//! gateway sends the messages and opens another round, with a higher ballot, after a pause.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::plant::{Check, is_disabled};
use super::region::RegionName;
use super::register::{Accepted, Ballot, Message, Reply, agreed};
use super::view::{AcceptorId, View, Voters};

/// A round that was opened.
#[derive(Clone, Debug)]
pub struct Round {
    ballot: Ballot,
    base: Arc<View>,
    wanted: Option<Arc<View>>,
    /// The acceptors that were asked to promise.
    asked: BTreeSet<(RegionName, AcceptorId)>,
    phase: Phase,
}

#[derive(Clone, Debug)]
enum Phase {
    Preparing { promises: BTreeMap<RegionName, (AcceptorId, Accepted)> },
    Accepting { view: Arc<View>, by: Voters },
}

/// Messages to send, each to a voter by its name and id.
pub type Outbox = Vec<(RegionName, AcceptorId, Message)>;

/// The next step of a round.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Step {
    Wait,
    Send(Outbox),
    Chosen(Arc<View>),
    /// A grant still runs; the value may be accepted later, under a higher ballot.
    Blocked(RegionName),
    /// An acceptor has promised a higher ballot: open another round above that counter.
    Outbid(u64),
}

impl Round {
    /// Opens a round. `wanted` is the next view of `base`, which is chosen; `None` finishes a value
    /// that another proposer began.
    pub fn open(ballot: Ballot, base: Arc<View>, wanted: Option<Arc<View>>) -> (Self, Outbox) {
        let phase = Phase::Preparing { promises: BTreeMap::new() };
        let mut round = Self { ballot, base, wanted, asked: BTreeSet::new(), phase };
        let base = round.base.clone();
        let outbox = round.prepare(&[base.voters()]);
        (round, outbox)
    }

    /// The sets of voters that must each agree to a value by majority: its own, and those of the
    /// view before it, as only they may know of another view in its place. The base is chosen, so
    /// nothing can be in its place.
    fn sets<'a>(&self, value: &'a View) -> Vec<&'a Voters> {
        match *value == *self.base || is_disabled(Check::VotersBefore) {
            true => vec![value.voters()],
            false => vec![&value.voters_before, value.voters()],
        }
    }

    /// Asks for a promise all of these acceptors that were not asked yet.
    fn prepare(&mut self, sets: &[&Voters]) -> Outbox {
        let message = Message::Prepare { ballot: self.ballot.clone() };
        let mut all = Vec::from_iter(sets.iter().copied().flatten());
        all.retain(|(name, id)| self.asked.insert(((*name).clone(), **id)));
        all.into_iter().map(|(name, id)| (name.clone(), *id, message.clone())).collect()
    }

    /// Handles a reply to a message of this round, by a voter that was asked by this name and id.
    pub fn heard(&mut self, from: &RegionName, id: AcceptorId, reply: &Reply) -> Step {
        match reply {
            Reply::Outbid(ballot) => Step::Outbid(ballot.counter),
            Reply::Promised(accepted) => self.promised(from, id, accepted),
            Reply::Accepted => self.accepted(from, id),
            Reply::Blocked(region) => Step::Blocked(region.clone()),
            Reply::NotFounded(_) | Reply::OtherAcceptor(_) | Reply::NotAdmitted => Step::Wait,
            Reply::Holds { .. } | Reply::Granted(_) | Reply::Newer | Reply::NotGranted(_) => Step::Wait,
        }
    }

    fn promised(&mut self, from: &RegionName, id: AcceptorId, accepted: &Accepted) -> Step {
        let Phase::Preparing { promises } = &mut self.phase else { return Step::Wait };
        promises.insert(from.clone(), (id, accepted.clone()));
        let by = promises.iter().map(|(name, (id, _))| (name.clone(), *id)).collect();
        let held = || promises.values().map(|(_, accepted)| accepted);
        let Some(newest) = held().max_by(|a, b| a.ballot.cmp(&b.ballot)).cloned() else { return Step::Wait };
        // Two foundings at a time prepared nothing: their ballots do not say which was agreed on.
        let other = |held: &Accepted| held.ballot.counter == 0 && held.view != newest.view;
        if newest.ballot.counter == 0 && held().any(other) {
            return Step::Wait;
        }
        let newest = newest.view;
        // The base was agreed on, so a majority of its voters holds it or a later view. These
        // acceptors have forgotten it. Nothing may rest on them.
        if newest.epoch() <= self.base.epoch() && newest != self.base {
            return Step::Wait;
        }
        let sets = self.sets(&newest);
        if !sets.iter().all(|voters| agreed(voters, &by)) {
            let more = self.prepare(&sets);
            return if more.is_empty() { Step::Wait } else { Step::Send(more) };
        }
        let value = match &self.wanted {
            Some(wanted) if newest == self.base || is_disabled(Check::ForeignFirst) => wanted.clone(),
            // The change was made from another view than this one, which may be chosen or half
            // accepted. Either way it comes first.
            Some(_) | None => newest,
        };
        let all: BTreeSet<_> = self.sets(&value).into_iter().flatten().collect();
        let message = Message::Accept { ballot: self.ballot.clone(), view: value.clone() };
        let outbox = all.into_iter().map(|(name, id)| (name.clone(), *id, message.clone())).collect();
        self.phase = Phase::Accepting { view: value, by: BTreeMap::new() };
        Step::Send(outbox)
    }

    fn accepted(&mut self, from: &RegionName, id: AcceptorId) -> Step {
        let Phase::Accepting { view, by } = &mut self.phase else { return Step::Wait };
        by.insert(from.clone(), id);
        let (view, by) = (view.clone(), by.clone());
        match self.sets(&view).into_iter().all(|voters| agreed(voters, &by)) {
            true => Step::Chosen(view),
            false => Step::Wait,
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
