//! The truth, seen from outside: chosen views, and the regions that ran each key; with the
//! invariants over it (docs/protocol.md#invariants).
//!
//! `world` reports every step. No process of the model may look in here: it must not know more than
//! its messages brought.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use onceway::protocol::region::RegionName;
use onceway::protocol::register::{Acceptor, Ballot, majority};
use onceway::protocol::view::{AcceptorId, Standing, View};

/// A claim that was committed.
#[derive(Clone, Debug)]
pub struct Run {
    pub key: usize,
    pub region: RegionName,
    /// The heartbeat after it: a region that has applied this heartbeat has the claim's row.
    pub seq: u64,
    pub epoch: u64,
    /// The heartbeats of all regions that the claimant had applied then.
    pub knew: BTreeMap<RegionName, u64>,
}

type Accepts = (Arc<View>, BTreeSet<(RegionName, AcceptorId)>);

#[derive(Default)]
pub struct Truth {
    accepts: BTreeMap<Ballot, Accepts>,
    pub chosen: BTreeMap<u64, (Arc<View>, Ballot)>,
    pub runs: Vec<Run>,
    blocked: Vec<(AcceptorId, Arc<View>)>,
    /// Epochs for which a process proposed to end a pending proposal, and epochs for which a clean
    /// move was proposed.
    pub kills: BTreeSet<u64>,
    pub moves: BTreeSet<u64>,
    /// Counts of happenings that must occur in some run.
    pub sometimes: BTreeMap<&'static str, u64>,
}

impl Truth {
    pub fn saw(&mut self, what: &'static str) {
        *self.sometimes.entry(what).or_default() += 1;
    }

    /// Checks an acceptor's step. Invariant 12: its promise never falls, and it accepts nothing
    /// below it.
    pub fn acceptor(&mut self, name: &RegionName, before: &Acceptor, after: &Acceptor) {
        assert!(before.promised <= after.promised, "a promise fell at {name}");
        if before.accepted == after.accepted {
            return;
        }
        let Some(accepted) = &after.accepted else { panic!("what {name} had accepted is gone") };
        assert!(Some(&accepted.ballot) >= before.promised.as_ref(), "{name} accepted below its promise");
        if before.accepted.as_ref().is_some_and(|held| held.view.epoch() > accepted.view.epoch()) {
            self.saw("accepted epoch falls");
        }
        if self.blocked.contains(&(after.id, accepted.view.clone())) {
            self.saw("blocked, then accepted");
        }
        let entry = self.accepts.entry(accepted.ballot.clone());
        let (view, by) = entry.or_insert_with(|| (accepted.view.clone(), BTreeSet::new()));
        assert_eq!(*view, accepted.view, "two values under one ballot");
        by.insert((name.clone(), after.id));
        let agreed = |voters: &BTreeMap<RegionName, AcceptorId>| {
            let count = voters.iter().filter(|(name, id)| by.contains(&((*name).clone(), **id))).count();
            count >= majority(voters.len())
        };
        if agreed(view.voters()) && agreed(view.voters_before()) {
            let view = view.clone();
            self.is_chosen(view, accepted.ballot.clone());
        }
    }

    pub fn blocked(&mut self, acceptor: AcceptorId, view: &Arc<View>) {
        self.blocked.push((acceptor, view.clone()));
    }

    /// Invariant 1: one chosen view per epoch, and epochs without gaps. Invariant 11: marks never
    /// go back, except to a frontier.
    fn is_chosen(&mut self, view: Arc<View>, ballot: Ballot) {
        let epoch = view.epoch();
        if let Some((known, _)) = self.chosen.get(&epoch) {
            assert_eq!(*known, view, "two chosen views of epoch {epoch}");
            return;
        }
        let last = self.chosen.last_key_value().map(|(last, (before, _))| (*last, before.clone()));
        if let Some((last, before)) = last {
            assert_eq!(epoch, last + 1, "a gap between chosen views");
            for (name, member) in view.members() {
                let Some(old) = before.members().get(name) else { continue };
                let lost = matches!(member.standing, Standing::Lost { at, .. } if at == epoch);
                let back = member.mark < old.mark && member.generation == old.generation;
                assert!(lost || !back, "the mark of {name} went back");
            }
            for (name, old) in before.members() {
                let new = view.standing(name);
                let (was, is) = (old.standing.is_serving(), view.serves(name));
                let (was_lost, is_lost) =
                    [Some(old.standing), new].map(|of| matches!(of, Some(Standing::Lost { .. }))).into();
                if was && is_lost {
                    self.saw("takeover");
                } else if was_lost && !is_lost {
                    self.saw("lost and back");
                } else if !was && is {
                    self.saw("serves again");
                } else if !was && !was_lost && is_lost {
                    self.saw("lost while sealed");
                }
            }
            if self.kills.contains(&epoch) && self.moves.contains(&epoch) {
                let killed = before.placement() == view.placement();
                self.saw(if killed { "kill wins" } else { "kill loses" });
            }
            if before.voters() != view.voters() {
                self.saw("voter swapped");
            }
        }
        self.chosen.insert(epoch, (view, ballot));
    }

    /// Checks that `view` was chosen. Invariant 2: nothing else is ever adopted.
    pub fn adopts(&self, view: &Arc<View>) {
        let chosen = self.chosen.get(&view.epoch()).map(|(known, _)| known);
        assert_eq!(chosen, Some(view), "a view was adopted that nobody chose");
    }

    /// Checks a committed claim. The claimant must know each earlier claim of the key, or the
    /// earlier region was lost since.
    pub fn runs(&mut self, run: Run) {
        for before in self.runs.iter().filter(|before| before.key == run.key && before.region != run.region) {
            let known = run.knew.get(&before.region).is_some_and(|seq| *seq >= before.seq);
            assert!(
                known || self.was_lost(before, run.epoch),
                "{run:?} starts without the row of {before:?}"
            );
        }
        self.runs.push(run);
    }

    /// Checks a send of the claim with run number `index`. No region may have run the key since
    /// without having seen that claim (docs/protocol.md#rule-9).
    pub fn sends(&self, index: usize) {
        let mine = &self.runs[index];
        for later in &self.runs[index + 1..] {
            let other = later.key == mine.key && later.region != mine.region;
            let known = later.knew.get(&mine.region).is_some_and(|seq| *seq >= mine.seq);
            assert!(!other || known, "{mine:?} is sent beside {later:?}, which knew nothing of it");
        }
    }

    fn was_lost(&self, run: &Run, until: u64) -> bool {
        let views = self.chosen.range(run.epoch..=until).map(|(_, (view, _))| view);
        views.into_iter().any(
            |view| matches!(view.standing(&run.region), Some(Standing::Lost { at, .. }) if at > run.epoch),
        )
    }
}
