//! One round of the register: a proposer's side (protocol reference, 2.2).
//!
//! Neighbours: [`super::register`] answers, `gateway::authority` carries the messages and opens another round with a higher ballot after
//! a pause. A change is put only on the view it was made from, and only where that is the newest accepted: any other value that a majority
//! shows is finished unchanged first, never built on (H6, mutation 12). It must not look at a clock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::region::RegionName;
use super::register::{Accepted, Ballot, Message, Reply, agreed};
use super::view::{AcceptorId, View};

/// A round that was opened.
#[derive(Clone, Debug)]
pub struct Round {
    ballot: Ballot,
    base: Arc<View>,
    wanted: Option<Arc<View>>,
    /// Who was asked to promise.
    asked: BTreeSet<RegionName>,
    phase: Phase,
}

#[derive(Clone, Debug)]
enum Phase {
    Preparing { promises: BTreeMap<RegionName, Accepted> },
    Accepting { view: Arc<View>, by: BTreeSet<RegionName> },
}

/// Messages to send, each to a voter by its name and id.
pub type Outbox = Vec<(RegionName, AcceptorId, Message)>;

/// What a round does next.
#[derive(Clone, Debug)]
pub enum Step {
    /// Wait for more replies.
    Wait,
    /// Send these.
    Send(Outbox),
    /// This view is chosen.
    Chosen(Arc<View>),
    /// A grant still runs; the value may be accepted later, under a higher ballot.
    Blocked(RegionName),
    /// Somebody has a higher ballot: open another round above that counter.
    Outbid(u64),
}

impl Round {
    /// Opens a round: `wanted` is the next view of `base`, which is chosen; or nothing, to finish what somebody else began.
    pub fn open(ballot: Ballot, base: Arc<View>, wanted: Option<Arc<View>>) -> (Self, Outbox) {
        let asked = base.voters().keys().cloned().collect();
        let phase = Phase::Preparing { promises: BTreeMap::new() };
        let round = Self { ballot, base, wanted, asked, phase };
        let prepare = Message::Prepare { ballot: round.ballot.clone() };
        let outbox = round.to(&round.voters(None), &prepare);
        (round, outbox)
    }

    /// The voters to ask: of the base and, where given, of the value: a change of voters needs both majorities.
    fn voters(&self, value: Option<&View>) -> Vec<BTreeMap<RegionName, AcceptorId>> {
        let mut sets = vec![self.base.voters().clone()];
        sets.extend(value.map(|view| view.voters().clone()).filter(|voters| *voters != sets[0]));
        sets
    }

    fn to(&self, sets: &[BTreeMap<RegionName, AcceptorId>], message: &Message) -> Outbox {
        let all: BTreeMap<&RegionName, &AcceptorId> = sets.iter().flatten().collect();
        all.into_iter().map(|(name, id)| (name.clone(), *id, message.clone())).collect()
    }

    /// A voter replied to a message of this round.
    pub fn heard(&mut self, from: &RegionName, reply: &Reply) -> Step {
        match reply {
            Reply::Outbid(ballot) => Step::Outbid(ballot.counter),
            Reply::Promised(accepted) => self.promised(from, accepted),
            Reply::Accepted => self.accepted(from),
            Reply::Blocked(region) => Step::Blocked(region.clone()),
            Reply::NotFounded(_)
            | Reply::OtherAcceptor(_)
            | Reply::NotAdmitted
            | Reply::Holds { .. }
            | Reply::Granted(_)
            | Reply::Newer
            | Reply::NotGranted(_) => Step::Wait,
        }
    }

    fn promised(&mut self, from: &RegionName, accepted: &Accepted) -> Step {
        let Phase::Preparing { promises } = &mut self.phase else { return Step::Wait };
        promises.insert(from.clone(), accepted.clone());
        let by: BTreeSet<RegionName> = promises.keys().cloned().collect();
        let Some(newest) = promises.values().max_by(|a, b| a.ballot.cmp(&b.ballot)) else {
            return Step::Wait;
        };
        let newest = newest.view.clone();
        // Whoever has other voters than the base may have been followed by views that the base's voters never saw.
        let sets = self.voters(Some(&newest));
        if !agreed(&sets[0], &by) {
            return Step::Wait;
        }
        if !sets.iter().all(|voters| agreed(voters, &by)) {
            let prepare = Message::Prepare { ballot: self.ballot.clone() };
            let mut more = self.to(&sets[1..], &prepare);
            more.retain(|(name, _, _)| !self.asked.contains(name));
            self.asked.extend(more.iter().map(|(name, _, _)| name.clone()));
            return if more.is_empty() { Step::Wait } else { Step::Send(more) };
        }
        let value = match &self.wanted {
            Some(wanted) if newest == self.base => wanted.clone(),
            // Not what the change was made from: it may be chosen or half accepted. Either way it comes first.
            Some(_) | None => newest,
        };
        let message = Message::Accept { ballot: self.ballot.clone(), view: value.clone() };
        let outbox = self.to(&self.voters(Some(&value)), &message);
        self.phase = Phase::Accepting { view: value, by: BTreeSet::new() };
        Step::Send(outbox)
    }

    fn accepted(&mut self, from: &RegionName) -> Step {
        let Phase::Accepting { view, by } = &mut self.phase else { return Step::Wait };
        by.insert(from.clone());
        let (view, by) = (view.clone(), by.clone());
        match self.voters(Some(&view)).iter().all(|voters| agreed(voters, &by)) {
            true => Step::Chosen(view),
            false => Step::Wait,
        }
    }
}
