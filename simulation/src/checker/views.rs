//! The invariants about views: what acceptors promise, what is chosen, what regions adopt and when they open (1, 2, 10, 11, 12).
//!
//! Neighbours: [`super::sends`] asks which gate a claim stood under, and since when a region is lost. It must not trust a store's word for
//! what was chosen: it counts the votes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use onceway::protocol::change::STRIDE;
use onceway::protocol::digest::Digest32;
use onceway::protocol::region::{Origin, RegionName};
use onceway::protocol::register::{Ballot, majority};
use onceway::protocol::view::{AcceptorId, Standing, View};

use super::news::{StoreNews, Voter};
use super::{Found, Invariant};
use crate::table::{Gated, Held};

/// What is known of views.
#[derive(Default)]
pub(super) struct Views {
    /// What each acceptor held last.
    held: BTreeMap<Voter, Held>,
    votes: BTreeMap<(Ballot, Digest32), (Arc<View>, BTreeSet<AcceptorId>)>,
    chosen: BTreeMap<u64, Arc<View>>,
    /// Epochs that were left out, and told of.
    left_out: BTreeSet<u64>,
    /// Each state of each store's gate.
    gates: BTreeMap<u64, Vec<Gated>>,
    /// The shortest window after a loss.
    floor: Duration,
    /// When a view was first adopted that declared a region lost in that epoch.
    lost: BTreeMap<(RegionName, u64), Duration>,
}

impl Views {
    /// Nothing is known yet; no window is shorter than `floor`.
    pub(super) fn new(floor: Duration) -> Self {
        Self { floor, ..Self::default() }
    }

    /// What acceptors hold now.
    pub(super) fn agreed(&mut self, votes: Vec<(Voter, Vec<Held>)>, now: Duration, found: &mut Found) {
        for (voter, history) in votes {
            for held in history {
                if let Some(before) = self.held.get(&voter) {
                    promises_are_kept(before, &held, now, found);
                }
                self.one_view_is_chosen(&held, now, found);
                self.held.insert(voter.clone(), held);
            }
        }
        self.no_epoch_is_left_out(now, found);
    }

    /// What a store's gate did.
    pub(super) fn adopted(&mut self, store: &StoreNews, found: &mut Found) {
        for gate in &store.gates {
            self.adopted_view_is_chosen(&store.origin, &gate.state.view, gate.at, found);
            let gates = self.gates.entry(store.number).or_default();
            if let Some(before) = gates.last() {
                epoch_never_falls(&store.origin, before, gate, found);
                nothing_is_known_of_views_that_were_skipped(&store.origin, before, gate, found);
                gate_opens_when_covered(&store.origin, before, gate, found);
                if opens(&store.origin, before, gate) {
                    opens_after_each_loss(&store.origin, gates, gate, self.floor, found);
                }
            }
            gates.push(gate.clone());
            for (region, at) in gate.state.view.lost() {
                self.lost
                    .entry((region.clone(), at))
                    .and_modify(|since| *since = gate.at.min(*since))
                    .or_insert(gate.at);
            }
        }
        let at = store.gates.last().map_or(Duration::ZERO, |gate| gate.at);
        for view in &store.kept {
            self.adopted_view_is_chosen(&store.origin, view, at, found);
        }
    }

    /// The chosen view of an epoch.
    pub(super) fn of_epoch(&self, epoch: u64) -> Option<&Arc<View>> {
        self.chosen.get(&epoch)
    }

    /// The states that a store's gate may have had at a moment: what was committed in one moment may have been committed in any order.
    pub(super) fn gates_at(&self, store: u64, at: Duration) -> &[Gated] {
        let gates = self.gates.get(&store).map(Vec::as_slice).unwrap_or_default();
        let first = gates.partition_point(|gate| gate.at < at).saturating_sub(1);
        let end = gates.partition_point(|gate| gate.at <= at);
        gates.get(first..end).unwrap_or_default()
    }

    /// The states that a store's gate came to have after the one moment, and before the other.
    pub(super) fn gates_between(&self, store: u64, after: Duration, before: Duration) -> &[Gated] {
        let gates = self.gates.get(&store).map(Vec::as_slice).unwrap_or_default();
        let first = gates.partition_point(|gate| gate.at <= after);
        let end = gates.partition_point(|gate| gate.at < before);
        gates.get(first..end).unwrap_or_default()
    }

    /// The states that a store's gate had from the first view after an epoch on, until a moment.
    pub(super) fn gates_since(&self, store: u64, epoch: u64, until: Duration) -> &[Gated] {
        let gates = self.gates.get(&store).map(Vec::as_slice).unwrap_or_default();
        let first = gates.partition_point(|gate| gate.state.view.epoch() <= epoch);
        let end = gates.partition_point(|gate| gate.at <= until);
        gates.get(first..end).unwrap_or_default()
    }

    /// When anybody first adopted a view that declared the region lost after this epoch: from then on its lease must be over, whatever the
    /// window hides.
    pub(super) fn ended(&self, region: &RegionName, epoch: u64) -> Option<Duration> {
        let from = (region.clone(), epoch + 1);
        let later = self.lost.range(from..).take_while(|((name, _), _)| name == region);
        later.map(|(_, since)| *since).min()
    }

    /// 1: at most one view is chosen per epoch.
    fn one_view_is_chosen(&mut self, held: &Held, now: Duration, found: &mut Found) {
        let Some(accepted) = &held.accepted else { return };
        let key = (accepted.ballot.clone(), accepted.view.digest());
        let (view, ids) = self.votes.entry(key).or_insert_with(|| (accepted.view.clone(), BTreeSet::new()));
        if !ids.insert(held.id) {
            return;
        }
        // Those who voted before had to agree, too.
        let agreed = |voters: &BTreeMap<RegionName, AcceptorId>| {
            voters.values().filter(|id| ids.contains(id)).count() >= majority(voters.len())
        };
        if !agreed(view.voters()) || !agreed(view.voters_before()) {
            return;
        }
        let (view, epoch) = (view.clone(), view.epoch());
        match self.chosen.get(&epoch) {
            Some(known) if *known != view => {
                found.push(
                    Invariant::OneViewPerEpoch,
                    now,
                    format!("two views were chosen for epoch {epoch}"),
                );
            }
            Some(_) => {}
            None => {
                self.chosen.insert(epoch, view.clone());
                let before = self.chosen.range(..epoch).next_back().map(|(_, view)| view);
                let after = self.chosen.range(epoch + 1..).next().map(|(_, view)| view);
                let pairs =
                    before.map(|before| (before, &view)).into_iter().chain(after.map(|after| (&view, after)));
                pairs.for_each(|(before, after)| marks_stay(before, after, now, found));
            }
        }
    }

    /// 1: no epoch is left out, but for those that an operator skips who breaks the glass: what the others agreed on before they were stopped
    /// nobody who is left can know.
    fn no_epoch_is_left_out(&mut self, now: Duration, found: &mut Found) {
        let (Some((first, _)), Some((last, _))) =
            (self.chosen.first_key_value(), self.chosen.last_key_value())
        else {
            return;
        };
        if last - first + 1 == self.chosen.len() as u64 {
            return;
        }
        for (before, after) in self.chosen.values().zip(self.chosen.values().skip(1)) {
            let epoch = before.epoch() + 1;
            if epoch < after.epoch() && !is_forced(before, after) && self.left_out.insert(epoch) {
                let text = format!("epoch {} was chosen, epoch {epoch} never was", after.epoch());
                found.push(Invariant::OneViewPerEpoch, now, text);
            }
        }
    }

    /// 2: whatever a region adopts or keeps was chosen.
    fn adopted_view_is_chosen(&self, origin: &Origin, view: &Arc<View>, at: Duration, found: &mut Found) {
        if self.chosen.get(&view.epoch()) != Some(view) {
            let text = format!("{origin} holds a view of epoch {} that was not chosen", view.epoch());
            found.push(Invariant::AdoptedIsChosen, at, text);
        }
    }
}

/// Whether a view was forced: it hears no voters of before, and is far ahead of whatever anybody could have agreed on in one run.
fn is_forced(before: &View, after: &View) -> bool {
    after.voters() == after.voters_before() && after.epoch() - before.epoch() > STRIDE / 2
}

/// 2: the epoch of a region's gate never falls.
fn epoch_never_falls(origin: &Origin, before: &Gated, after: &Gated, found: &mut Found) {
    let (was, is) = (before.state.view.epoch(), after.state.view.epoch());
    if is < was {
        found.push(
            Invariant::AdoptedIsChosen,
            after.at,
            format!("the epoch of {origin} fell from {was} to {is}"),
        );
    }
}

/// 10: a gate that opens has applied every mark, those apart whose loss an operator accepted.
fn gate_opens_when_covered(origin: &Origin, before: &Gated, after: &Gated, found: &mut Found) {
    let view = &after.state.view;
    if !opens(origin, before, after) {
        return;
    }
    let marks = view.members().iter().filter_map(|(name, member)| Some((view.origin(name)?, member.mark)));
    for (other, mark) in marks.filter(|(other, _)| other != origin) {
        let applied = after.applied.get(&other).copied().unwrap_or(0);
        let waived = after.state.waived.iter().any(|(region, _)| *region == other.region);
        if applied < mark && !waived {
            let text = format!("{origin} opened at {applied} of {other}, whose mark is {mark}");
            found.push(Invariant::OpenWhenCovered, after.at, text);
        }
    }
}

/// Whether what was gained starts with this state of the gate.
fn opens(origin: &Origin, before: &Gated, after: &Gated) -> bool {
    !before.state.is_open() && after.state.is_open() && after.state.view.serves(&origin.region)
}

/// 10: where a view was skipped, nobody knows who owned what under it, so nothing starts with the next one.
fn nothing_is_known_of_views_that_were_skipped(
    origin: &Origin,
    before: &Gated,
    after: &Gated,
    found: &mut Found,
) {
    let (was, is) = (before.state.view.epoch(), after.state.view.epoch());
    if is > was + 1 && after.state.is_open() && after.state.view.serves(&origin.region) {
        let text = format!("{origin} adopted epoch {is} after {was}, and was open at once");
        found.push(Invariant::OpenWhenCovered, after.at, text);
    }
}

/// 10: a gate that opens has waited the shortest window since it learned of a loss, those apart that an operator accepted or whose store was
/// replaced; and what the lost region had lodged here became records.
fn opens_after_each_loss(
    origin: &Origin,
    history: &[Gated],
    opened: &Gated,
    floor: Duration,
    found: &mut Found,
) {
    let view = &opened.state.view;
    for (lost, at) in view.losses().filter(|(lost, _)| lost != origin) {
        if opened.lodged.contains(&lost) {
            let text = format!("{origin} opened while claims that {lost} had lodged were no records yet");
            found.push(Invariant::OpenWhenCovered, opened.at, text);
        }
        let waived = opened.state.waived.contains(&(lost.region.clone(), at));
        let first = history.iter().find(|gate| gate.state.view.epoch() >= at);
        let waited = opened.at.saturating_sub(first.map_or(opened.at, |gate| gate.at));
        // Its clock may be fast, by far less than this.
        let surely = floor.saturating_sub(floor / 50);
        if !waived && !view.retired().contains_key(&lost) && waited < surely {
            let text = format!("{origin} opened {waited:?} after it had learned of the loss of {lost}");
            found.push(Invariant::OpenWhenCovered, opened.at, text);
        }
    }
}

/// 11: a region's mark never goes back while its store is the same, except when it is lost, and but for a forced view: it was made of what those
/// know who are left, and a region whose loss they never heard of has no mark by it. It raises that itself with the keys it gives back.
fn marks_stay(before: &View, after: &View, now: Duration, found: &mut Found) {
    if is_forced(before, after) {
        return;
    }
    for (name, was) in before.members() {
        let Some(is) = after.members().get(name) else { continue };
        let lost = matches!(is.standing, Standing::Lost { .. });
        if is.generation == was.generation && is.mark < was.mark && !lost {
            let (was, is, epoch) = (was.mark, is.mark, after.epoch());
            found.push(
                Invariant::MarksStay,
                now,
                format!("the mark of {name} fell from {was} to {is} in epoch {epoch}"),
            );
        }
    }
}

/// 12: what was promised never falls, and nothing is accepted below it.
fn promises_are_kept(before: &Held, after: &Held, now: Duration, found: &mut Found) {
    if before.id != after.id {
        return;
    }
    if after.promised < before.promised {
        let text = format!("{:?} promised {:?} after {:?}", after.id, after.promised, before.promised);
        found.push(Invariant::PromisesKept, now, text);
    }
    let ballot = after.accepted.as_ref().map(|accepted| accepted.ballot.clone());
    if after.accepted != before.accepted && ballot < before.promised {
        let text = format!("{:?} accepted {ballot:?} below {:?}", after.id, before.promised);
        found.push(Invariant::PromisesKept, now, text);
    }
}
