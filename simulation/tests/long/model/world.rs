//! An explored world: its sites, their possible wishes, and the bounds of each act.
//!
//! `worlds` lists the worlds of the tests, `acts` offers what a world allows. A mutant lacks a
//! plant of the protocol, or a duty of the gateway that the model plays.

use onceway::protocol::plant::{Check, planted};
use stateright::{Model, Property};

use crate::model::acts::Act;
use crate::model::parts::{EVEN, Parts, UNEVEN};
use crate::model::state::{Broken, Handler, Left, Site, State};

/// A proposal that a process may make.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Plan {
    Lose(Site),
    /// The proposer's own region, which is lost, is back.
    Back,
    /// The region serves no more, or serves again.
    Turn(Site),
    /// The keys that are being given up are kept.
    Kill,
    /// Another one's proposal is finished.
    Finish,
    /// The acceptor there was made anew.
    Swap(Site),
}

/// A duty of the gateway around the protocol, left undone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A view that one acceptor accepted is taken for chosen (docs/protocol.md#rule-16).
    AdoptsAccepted,
    /// A handler sends without a look at lease and tenure.
    SendsUnchecked,
    /// An earlier report is used for another change of another view (docs/protocol.md#rule-25).
    ReusesReport,
    /// A region reports a heartbeat from before its last claims for its seal.
    SealsEarly,
    /// A process that starts takes the existing grants for over.
    StartsKnowing,
    /// All clocks are taken for equally fast.
    TrustsClocks,
    /// A new acceptor answers as soon as a view names it (docs/protocol.md#rule-17).
    AdmitsAtOnce,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutant {
    Removed(Check),
    Undone(Fault),
}

#[derive(Clone)]
pub struct Bounds {
    pub regions: Site,
    pub changes: usize,
    pub claims: usize,
    pub left: Left,
    pub plans: Vec<(Site, Plan)>,
    /// The site whose clock runs at half the speed of the others.
    pub slow: Option<Site>,
    pub only: Only,
    /// Steps before the exploration starts, with all that they need.
    pub before: Vec<Before>,
}

#[derive(Clone)]
pub struct Only {
    /// Regions that renew their leases, and that claim keys.
    pub renew: Vec<Site>,
    pub claim: Vec<Site>,
    /// Pairs of regions: rows of the second may arrive at the first.
    pub arrive: Vec<(Site, Site)>,
    /// Between these no message arrives.
    pub cut: Vec<(Site, Site)>,
}

#[derive(Clone, Copy)]
pub enum Before {
    /// A whole change, which these sites learn.
    Change(Site, Plan, [bool; 3]),
    Act(Act),
    /// All rows written so far arrive everywhere.
    Replicate,
    /// A region asks for a lease, and these acceptors grant it.
    Renew(Site, [bool; 3]),
    /// A region gives up its keys, for a view in which that other one serves no more or again.
    GiveUp(Site, Site),
    /// A region checks if its gate may open, and it does.
    Open(Site),
}

pub struct World {
    pub bounds: Bounds,
    pub mutant: Option<Mutant>,
    pub parts: Parts,
    pub start: State,
    /// True once the earlier steps are done.
    pub begun: bool,
}

impl World {
    pub fn new(bounds: Bounds, mutant: Option<Mutant>) -> Self {
        let trusts = bounds.slow.is_none() || mutant == Some(Mutant::Undone(Fault::TrustsClocks));
        let ppm = if trusts { EVEN } else { UNEVEN };
        let (parts, first) = Parts::new(bounds.regions, ppm, bounds.slow.is_some());
        let start = crate::model::worlds::founded(&parts, first);
        let mut world = Self { bounds, mutant, parts, start, begun: false };
        let start = world.with_plant(|| crate::model::worlds::begin(&world));
        (world.start, world.begun) = (start, true);
        world
    }

    pub fn has(&self, fault: Fault) -> bool {
        self.mutant == Some(Mutant::Undone(fault))
    }

    /// Acts with the world's plant taken out, on this thread: checkers have threads of their own.
    fn with_plant<T>(&self, act: impl FnOnce() -> T) -> T {
        match self.mutant {
            Some(Mutant::Removed(check)) => planted(check, act),
            Some(Mutant::Undone(_)) | None => act(),
        }
    }

    pub fn changes(&self, state: &State) -> usize {
        state.chosen.len() - self.start.chosen.len()
    }
}

impl Model for World {
    type State = State;
    type Action = Act;

    fn init_states(&self) -> Vec<State> {
        vec![self.start.clone()]
    }

    fn actions(&self, state: &State, acts: &mut Vec<Act>) {
        if state.broken.is_none() {
            self.with_plant(|| self.offer(state, acts));
        }
    }

    fn next_state(&self, state: &State, act: Act) -> Option<State> {
        self.with_plant(|| self.step(state, act))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        macro_rules! never {
            ($name:expr, $broken:expr) => {
                Property::always($name, |_, state: &State| state.broken != Some($broken))
            };
        }
        vec![
            never!("one chosen view per epoch, no gaps (rule 15)", Broken::TwoChosen),
            never!("only chosen views are adopted (rule 16)", Broken::Unchosen),
            never!("never two regions for a key (rule 9)", Broken::TwoOwners),
            never!("no key starts without the rows of who had it (rule 31)", Broken::Unknown),
            never!("nothing is sent beside a start that knew nothing of it (rule 31)", Broken::BesideAnother),
            never!("who opens has every mark, and what survivors have (rule 26)", Broken::NotCovered),
            never!("marks never go back but to a frontier (rule 18)", Broken::MarkBack),
            never!("promises never fall, nothing is accepted below them (rule 14)", Broken::PromiseFell),
            never!("a lease ends before its grants do (rule 23)", Broken::LeaseOutlives),
            never!("one owner per key and epoch (rule 2)", Broken::OtherOwner),
            Property::sometimes("a takeover", |world: &World, state| world.took_over(state)),
            Property::sometimes("a return", |world: &World, state| world.returned(state)),
            Property::sometimes("the last change", |world: &World, state| {
                world.changes(state) == world.bounds.changes
            }),
            Property::sometimes("a stale writer refused", |_, state: &State| {
                state.runs.iter().any(|run| run.handler == Handler::Refused)
            }),
            Property::sometimes("a restart", |world: &World, state: &State| {
                state.left.restarts < world.bounds.left.restarts
            }),
        ]
    }
}
