//! The truth of a state, and the invariants over it (docs/simulation.md#the-invariants).
//!
//! `steps` reports each act, `world` names the properties. A process of the model must not look in
//! here: it learns of a chosen view only from a round or a reader.

use onceway::protocol::view::{Standing, View};

use crate::model::state::{Accepts, Ballot, Broken, Run, Site, State, ViewId};
use crate::model::world::{Fault, World};

impl World {
    fn break_(&self, state: &mut State, broken: Broken, holds: bool) {
        if !holds && state.broken.is_none() {
            state.broken = Some(broken);
        }
    }

    pub fn accepted(&self, state: &mut State, ballot: Ballot, view: ViewId, id: u8) {
        if self.has(Fault::AdoptsAccepted) {
            self.announce(state, view);
        }
        let known = state.accepts.iter_mut().find(|known| known.ballot == ballot);
        let known = match known {
            Some(known) if known.view != view => {
                return self.break_(state, Broken::TwoChosen, false);
            }
            Some(known) => {
                known.by |= 1 << id;
                *known
            }
            None => {
                let new = Accepts { ballot, view, by: 1 << id };
                state.accepts.push(new);
                state.accepts.sort_unstable();
                new
            }
        };
        if self.parts.is_agreed(view, known.by) {
            self.is_chosen(state, view);
        }
        // A chosen view can only be chosen again.
        let State { accepts, chosen, .. } = state;
        accepts.retain(|known| !chosen.contains(&known.view));
    }

    /// Epochs follow one another, and marks go back only with a loss.
    fn is_chosen(&self, state: &mut State, view: ViewId) {
        if state.chosen.contains(&view) {
            return;
        }
        let Some(last) = state.chosen.last().map(|last| self.parts.views.get(*last)) else { return };
        let next = self.parts.views.get(view);
        self.break_(state, Broken::TwoChosen, next.epoch() == last.epoch() + 1);
        for (name, member) in next.members() {
            let Some(old) = last.members().get(name) else { continue };
            let lost = matches!(member.standing, Standing::Lost { at, .. } if at == next.epoch());
            self.break_(state, Broken::MarkBack, lost || member.mark >= old.mark);
        }
        state.chosen.push(view);
        state.mistaken.retain(|mistaken| *mistaken != view);
    }

    /// Notes that a process took this view for chosen.
    pub fn announce(&self, state: &mut State, view: ViewId) {
        if !state.chosen.contains(&view) && !state.mistaken.contains(&view) {
            state.mistaken.push(view);
        }
    }

    /// Judges an adoption: the view was chosen.
    pub fn adopted(&self, state: &mut State, view: ViewId) {
        let chosen = state.chosen.contains(&view);
        self.break_(state, Broken::Unchosen, chosen);
    }

    /// Every region's newest mark is applied, and all rows of a survivor asked.
    pub fn opened(&self, state: &mut State, at: Site, view: &View, there: [bool; 3]) {
        let mine = state.applied[usize::from(at)];
        for (name, member) in view.members() {
            let of = usize::from(self.parts.site(name));
            if of == usize::from(at) {
                continue;
            }
            self.break_(state, Broken::NotCovered, u64::from(mine[of]) >= member.mark);
            if matches!(member.standing, Standing::Lost { .. }) {
                let serving = |by: &usize| there[*by] && view.serves(&self.parts.names[*by]);
                let answer = (0..3).filter(serving).map(|by| state.applied[by][of]).max();
                self.break_(state, Broken::NotCovered, answer.is_none_or(|answer| mine[of] >= answer));
            }
        }
    }

    /// Judges a claim: it must know each earlier one, unless that region was lost since.
    pub fn claimed(&self, state: &mut State, run: Run) {
        let knows = |before: &Run| run.knew[usize::from(before.at)] >= before.seq;
        let others = state.runs.iter().filter(|before| before.at != run.at);
        let fine = others.into_iter().all(|before| knows(before) || self.was_lost(state, before, run.epoch));
        self.break_(state, Broken::Unknown, fine);
        state.runs.push(run);
    }

    fn was_lost(&self, state: &State, run: &Run, until: u8) -> bool {
        state.chosen.iter().map(|view| self.parts.views.get(*view)).any(|view| {
            let then = view.epoch() >= u64::from(run.epoch) && view.epoch() <= u64::from(until);
            let standing = view.standing(self.parts.name(run.at));
            then && matches!(standing, Some(Standing::Lost { at, .. }) if at > u64::from(run.epoch))
        })
    }

    /// Judges a send: no region ran the key since without its claim (docs/protocol.md#rule-9).
    pub fn sent(&self, state: &mut State, run: usize) {
        let mine = state.runs[run];
        let beside = |later: &Run| later.at != mine.at && later.knew[usize::from(mine.at)] < mine.seq;
        let fine = !state.runs[run + 1..].iter().any(beside);
        self.break_(state, Broken::BesideAnother, fine);
    }

    /// Judges the relations between the parts in every state.
    pub fn judge(&self, state: &mut State) {
        let mut owned = 0;
        for at in 0..self.parts.regions {
            let here = usize::from(at);
            let mine = self.parts.may_run(state.gates[here], state.leases[here], at);
            self.break_(state, Broken::TwoOwners, owned & mine == 0);
            owned |= mine;
            let backed = self.parts.outlives(state.leases[here], state.desks, at);
            self.break_(state, Broken::LeaseOutlives, backed);
            for other in 0..here {
                let [mine, others] = [here, other].map(|at| self.parts.gates.get(state.gates[at]));
                let one = mine.view == others.view || mine.state.view.epoch() != others.state.view.epoch();
                self.break_(state, Broken::OtherOwner, one);
            }
        }
    }

    /// A region was lost while it served, after the start.
    pub fn took_over(&self, state: &State) -> bool {
        self.changed(state, |before, after| {
            before.serving().any(|name| matches!(after.standing(name), Some(Standing::Lost { .. })))
        })
    }

    /// A region that did not serve serves again, after the start.
    pub fn returned(&self, state: &State) -> bool {
        self.changed(state, |before, after| after.serving().any(|name| !before.serves(name)))
    }

    fn changed(&self, state: &State, how: impl Fn(&View, &View) -> bool) -> bool {
        let first = self.start.chosen.len() - 1;
        state.chosen[first..].windows(2).any(|pair| {
            let [before, after] = [pair[0], pair[1]].map(|view| self.parts.views.get(view));
            how(&before, &after)
        })
    }
}
