//! The invariants about views: promises, chosen and adopted views, and opening. And the marks at
//! risk that the views do not ask for.
//!
//! [`super::sends`] asks here for the gate of a claim and for the time of a loss. It must not take
//! a store's view for chosen: it counts the votes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use onceway::protocol::change::STRIDE;
use onceway::protocol::digest::Digest32;
use onceway::protocol::key::KeyId;
use onceway::protocol::region::{Origin, RegionName};
use onceway::protocol::register::{Ballot, majority};
use onceway::protocol::time::Moment;
use onceway::protocol::view::{AcceptorId, Standing, View};
use onceway::protocol::window::{Window, WindowRule};

use super::invariant::{Found, Invariant};
use super::news::{Heard, StoreNews, Voter};
use crate::table::{Gated, HeardOf, Held, Record};

#[derive(Default)]
pub(super) struct Views {
    /// The last state of each acceptor.
    held: BTreeMap<Voter, Held>,
    votes: BTreeMap<(Ballot, Digest32), (Arc<View>, BTreeSet<AcceptorId>)>,
    chosen: BTreeMap<u64, Arc<View>>,
    /// Epochs that were left out, and are already reported.
    left_out: BTreeSet<u64>,
    /// Each state of each store's gate.
    gates: BTreeMap<u64, Vec<Gated>>,
    /// The time of the first adoption of a view that declared a region lost in that epoch.
    lost: BTreeMap<(RegionName, u64), Duration>,
}

impl Views {
    pub(super) fn agreed(&mut self, votes: Vec<(Voter, Vec<Held>)>, now: Duration, found: &mut Found) {
        for (voter, history) in votes {
            for held in history {
                if let Some(before) = self.held.get(&voter).filter(|before| before.id == held.id) {
                    let Held { id, promised, accepted, .. } = &held;
                    if *promised < before.promised {
                        let text = format!("{id:?} promised {promised:?} after {:?}", before.promised);
                        found.push(Invariant::PromisesKept, now, text);
                    }
                    let ballot = accepted.as_ref().map(|accepted| accepted.ballot.clone());
                    if *accepted != before.accepted && ballot < before.promised {
                        let text = format!("{id:?} accepted {ballot:?} below {:?}", before.promised);
                        found.push(Invariant::PromisesKept, now, text);
                    }
                }
                self.one_view_is_chosen(&held, now, found);
                self.held.insert(voter.clone(), held);
            }
        }
        self.no_epoch_is_left_out(now, found);
    }

    /// Judges what a store adopted. No window after a loss is shorter than `rule` says.
    pub(super) fn adopted(&mut self, store: &StoreNews, rule: &WindowRule, found: &mut Found) {
        for gate in &store.gates {
            self.adopted_view_is_chosen(&store.origin, &gate.state.view, gate.at, found);
            let gates = self.gates.entry(store.number).or_default();
            if let Some(before) = gates.last() {
                epochs_follow(&store.origin, before, gate, found);
                if opens(&store.origin, before, gate) {
                    opens_when_covered(&store.origin, gate, found);
                    opens_after_each_loss(&store.origin, gates, gate, rule, found);
                }
            }
            gates.push(gate.clone());
            for (region, at) in gate.state.view.lost() {
                let since = self.lost.entry((region.clone(), at)).or_insert(gate.at);
                *since = gate.at.min(*since);
            }
        }
        let at = store.gates.last().map_or(Duration::ZERO, |gate| gate.at);
        for view in &store.kept {
            self.adopted_view_is_chosen(&store.origin, view, at, found);
        }
    }

    pub(super) fn of_epoch(&self, epoch: u64) -> Option<&Arc<View>> {
        self.chosen.get(&epoch)
    }

    /// The possible states of a store's gate at a moment. Commits in one moment may have any order.
    pub(super) fn gates_at(&self, store: u64, at: Duration) -> &[Gated] {
        let gates = self.gates.get(&store).map(Vec::as_slice).unwrap_or_default();
        let first = gates.partition_point(|gate| gate.at < at).saturating_sub(1);
        let end = gates.partition_point(|gate| gate.at <= at);
        gates.get(first..end).unwrap_or_default()
    }

    /// The states of a store's gate that follow those before it, up to the last within it.
    pub(super) fn stretch(
        &self,
        store: u64,
        before: impl Fn(&Gated) -> bool,
        within: impl Fn(&Gated) -> bool,
    ) -> &[Gated] {
        let gates = self.gates.get(&store).map(Vec::as_slice).unwrap_or_default();
        gates.get(gates.partition_point(before)..gates.partition_point(within)).unwrap_or_default()
    }

    /// Says whether a region may have run a key without a trace in a store. That store claims the
    /// key in this epoch, and has heard so much of each origin.
    ///
    /// The region owned the key when it was lost, by the view of that time. It is still lost, or
    /// was not heard of since. If rows were known to be missing, it is enough that it owned the key
    /// at any time. If the store's gate may have opened without rows of before its last seal, it is
    /// enough since the newest heartbeat here. If epochs were skipped by break-glass, nobody knows
    /// which keys it owned.
    pub(super) fn may_have_run(
        &self,
        region: &RegionName,
        id: &KeyId,
        (store, epoch): (u64, u64),
        heard: &BTreeMap<Origin, HeardOf>,
    ) -> bool {
        let is_whole = |at: u64| {
            let standing = self.chosen.get(&at).and_then(|view| view.standing(region));
            matches!(standing, Some(Standing::Lost { gap: false, .. }))
        };
        let mark = |at: u64| Some(self.chosen.get(&at)?.members().get(region)?.mark);
        let gates = self.gates.get(&store).map(Vec::as_slice).unwrap_or_default();
        let waived = |at: u64| gates.iter().any(|gate| gate.state.waived.contains(&(region.clone(), at)));
        let is_lost = |origin: &Origin, at: u64| {
            self.chosen.range(..=epoch).next_back().is_some_and(|(_, view)| {
                view.is_present(origin)
                    && matches!(view.standing(region), Some(Standing::Lost { at: now, .. }) if now == at)
            })
        };
        let losses = self.chosen.range(..=epoch).flat_map(|(_, view)| view.losses());
        losses.filter(|(origin, _)| origin.region == *region).any(|(origin, at)| {
            let HeardOf { epoch, rows } = heard.get(&origin).copied().unwrap_or_default();
            let before = at.saturating_sub(1);
            let opened = waived(at) || !is_lost(&origin, at);
            let since = match is_whole(at) {
                true if opened && mark(before).is_none_or(|mark| rows < mark) => {
                    epoch.clamp(1, before.max(1))
                }
                true => before,
                false => 1,
            };
            let owns = |epoch| self.chosen.get(&epoch).is_none_or(|view| view.owner(id) == Some(region));
            (is_lost(&origin, at) || epoch < at) && (since..at).any(owns)
        })
    }

    /// The first adoption of a loss after this epoch: then the region's lease must be over.
    pub(super) fn ended(&self, region: &RegionName, epoch: u64) -> Option<Duration> {
        let from = (region.clone(), epoch + 1);
        let later = self.lost.range(from..).take_while(|((name, _), _)| name == region);
        later.map(|(_, since)| *since).min()
    }

    /// At most one view is chosen per epoch.
    fn one_view_is_chosen(&mut self, held: &Held, now: Duration, found: &mut Found) {
        let Some(accepted) = &held.accepted else { return };
        let key = (accepted.ballot.clone(), accepted.view.digest());
        let (view, ids) = self.votes.entry(key).or_insert_with(|| (accepted.view.clone(), BTreeSet::new()));
        if !ids.insert(held.id) || !is_agreed(view, ids) {
            return;
        }
        let (view, epoch) = (view.clone(), view.epoch());
        if let Some(known) = self.chosen.get(&epoch) {
            if *known != view {
                let text = format!("two views were chosen for epoch {epoch}");
                found.push(Invariant::OneViewPerEpoch, now, text);
            }
            return;
        }
        if let Some((_, before)) = self.chosen.range(..epoch).next_back() {
            marks_stay(before, &view, now, found);
        }
        if let Some((_, after)) = self.chosen.range(epoch..).next() {
            marks_stay(&view, after, now, found);
        }
        self.chosen.insert(epoch, view);
    }

    /// No epoch is left out, except those that an operator skips by breaking the glass. The
    /// survivors cannot know the others' last agreements before they stopped.
    fn no_epoch_is_left_out(&mut self, now: Duration, found: &mut Found) {
        for (before, after) in self.chosen.values().zip(self.chosen.values().skip(1)) {
            let epoch = before.epoch() + 1;
            if epoch < after.epoch() && !is_forced(before, after) && self.left_out.insert(epoch) {
                let text = format!("epoch {} was chosen, epoch {epoch} never was", after.epoch());
                found.push(Invariant::OneViewPerEpoch, now, text);
            }
        }
    }

    /// Each view that a region adopts or keeps was chosen.
    fn adopted_view_is_chosen(&self, origin: &Origin, view: &Arc<View>, at: Duration, found: &mut Found) {
        if self.chosen.get(&view.epoch()) != Some(view) {
            let text = format!("{origin} holds a view of epoch {} that was not chosen", view.epoch());
            found.push(Invariant::AdoptedIsChosen, at, text);
        }
    }
}

/// True if these acceptors chose a view. The voters before had to agree, too.
pub(crate) fn is_agreed(view: &View, by: &BTreeSet<AcceptorId>) -> bool {
    is_majority(view.voters(), by) && is_majority(view.voters_before(), by)
}

/// True if these are a majority of the voters.
pub(super) fn is_majority(voters: &BTreeMap<RegionName, AcceptorId>, by: &BTreeSet<AcceptorId>) -> bool {
    voters.values().filter(|id| by.contains(id)).count() >= majority(voters.len())
}

/// True if a view was forced: it asks no earlier voters, and its epoch is beyond any of a run.
fn is_forced(before: &View, after: &View) -> bool {
    after.voters() == after.voters_before() && after.epoch() - before.epoch() > STRIDE / 2
}

/// The epoch of a region's gate never falls. The owners under a skipped view are not known. So
/// nothing starts at once with the next view.
fn epochs_follow(origin: &Origin, before: &Gated, after: &Gated, found: &mut Found) {
    let (was, is) = (before.state.view.epoch(), after.state.view.epoch());
    if is < was {
        let text = format!("the epoch of {origin} fell from {was} to {is}");
        found.push(Invariant::AdoptedIsChosen, after.at, text);
    }
    if is > was + 1 && after.state.is_open() && after.state.view.serves(&origin.region) {
        let text = format!("{origin} adopted epoch {is} after {was}, and was open at once");
        found.push(Invariant::OpenWhenCovered, after.at, text);
    }
}

/// True if gained keys start with this state of the gate.
fn opens(origin: &Origin, before: &Gated, after: &Gated) -> bool {
    !before.state.is_open() && after.state.is_open() && after.state.view.serves(&origin.region)
}

/// A gate that opens has applied every mark, except those whose loss an operator accepted.
fn opens_when_covered(origin: &Origin, opened: &Gated, found: &mut Found) {
    let view = &opened.state.view;
    let marks = view.members().iter().filter_map(|(name, member)| Some((view.origin(name)?, member.mark)));
    for (other, mark) in marks.filter(|(other, _)| other != origin) {
        let applied = opened.applied.get(&other).copied().unwrap_or(0);
        let waived = opened.state.waived.iter().any(|(region, _)| *region == other.region);
        if applied < mark && !waived {
            let text = format!("{origin} opened at {applied} of {other}, whose mark is {mark}");
            found.push(Invariant::OpenWhenCovered, opened.at, text);
        }
    }
}

/// A gate that opens has waited the window since it learned of a loss: the multiple of the lag
/// that its store remembered then, and never less than the floor. Exempt are losses that an
/// operator accepted, and stores that were replaced. The claims that the lost region had lodged
/// here became records.
fn opens_after_each_loss(
    origin: &Origin,
    history: &[Gated],
    opened: &Gated,
    rule: &WindowRule,
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
        let lag = first.and_then(|gate| gate.lags.get(&lost)).copied().unwrap_or_default();
        let window = Window::begin(at, Some(lag), 0, Moment::default()).length(rule).unwrap_or_default();
        // The clock may be fast, but by far less than this.
        let surely = window.saturating_sub(window / 50);
        if !waived && !view.retired().contains_key(&lost) && waited < surely {
            let text = format!("{origin} opened {waited:?} after it had learned of the loss of {lost}");
            found.push(Invariant::OpenWhenCovered, opened.at, text);
        }
    }
}

/// A region's mark never goes back while its store is the same, except when it is lost. A
/// forced view is also exempt. It is made of the survivors' knowledge, and they may never have
/// heard of a region's loss and so of its mark. The region raises the mark itself with the keys it
/// gives back.
fn marks_stay(before: &View, after: &View, now: Duration, found: &mut Found) {
    if is_forced(before, after) {
        return;
    }
    for (name, was) in before.members() {
        let Some(is) = after.members().get(name) else { continue };
        let lost = matches!(is.standing, Standing::Lost { .. });
        if is.generation == was.generation && is.mark < was.mark && !lost {
            let (was, is, epoch) = (was.mark, is.mark, after.epoch());
            let text = format!("the mark of {name} fell from {was} to {is} in epoch {epoch}");
            found.push(Invariant::MarksStay, now, text);
        }
    }
}

/// Runs at risk, and those that need not have been marked. A mark too many costs no effect, but
/// explains a double that nobody would look at then. Their number breaks nothing: a gateway that
/// lacks a view from before a loss marks all its keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// The runs that were marked.
    pub marked: u64,
    /// Those of them at risk of a region that cannot have run the key.
    pub over: u64,
    heard: Heard,
}

impl Marks {
    /// Takes in what stores had heard at the last look. A region that was heard of since then may
    /// still be a risk. So the count depends a little on the number of looks.
    pub(super) fn heard(&mut self, heard: Heard) {
        self.heard = heard;
    }

    pub(super) fn claimed(&mut self, id: &KeyId, (store, record): (u64, &Record), views: &Views) {
        if record.risk.is_empty() {
            return;
        }
        self.marked += 1;
        let nothing = BTreeMap::new();
        let heard = self.heard.get(&store).unwrap_or(&nothing);
        let may_have_run = |lost| views.may_have_run(lost, id, (store, record.token.epoch), heard);
        if !record.risk.iter().all(may_have_run) {
            self.over += 1;
        }
    }
}
