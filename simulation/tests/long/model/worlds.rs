//! The explored worlds: whole ones that must hold, and for each mutant one that shows its breach.
//!
//! `world` defines bounds, `model.rs` explores. A mutant's world is as small as possible: its
//! bounds are no claim.

use onceway::protocol::authority::GateState;
use onceway::protocol::plant::Check;
use onceway::protocol::register::{Acceptor, Ballot, Message};

use crate::model::acts::Act;
use crate::model::parts::{Parts, register_id};
use crate::model::state::{Left, Mail, Site, State, ViewId};
use crate::model::world::{Before, Bounds, Fault, Mutant, Only, Plan, World};

const ALL: [bool; 3] = [true; 3];
const TICK: Before = Before::Act(Act::Tick);

fn left(rounds: u8, renewals: u8, releases: u8) -> Left {
    Left { rounds, renewals, releases, restarts: 0, remakes: 0 }
}

fn lease(at: Site) -> Before {
    Before::Renew(at, ALL)
}

fn claim(at: Site) -> Before {
    Before::Act(Act::Claim(at))
}

fn only(renew: &[Site], claim: &[Site], arrive: &[(Site, Site)], cut: &[(Site, Site)]) -> Only {
    Only { renew: renew.to_vec(), claim: claim.to_vec(), arrive: arrive.to_vec(), cut: cut.to_vec() }
}

fn small(left: Left, plans: &[(Site, Plan)], only: Only, before: &[Before]) -> Bounds {
    Bounds {
        regions: 3,
        changes: 1,
        claims: 2,
        left,
        plans: plans.to_vec(),
        slow: None,
        only,
        before: before.to_vec(),
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Form {
    /// For an unoptimized build: it takes seconds.
    Brief,
    /// For every change of the project.
    Short,
    /// For a release.
    Long,
}

/// A world that must hold, and the acts that must have been seen in it.
pub struct Whole {
    pub name: &'static str,
    pub form: Form,
    pub bounds: Bounds,
    pub seen: &'static [&'static str],
}

/// The worlds that must hold. Each has two view changes, any number of crashes and pauses (nothing
/// is urgent), and the acts of its name.
pub fn wholes() -> Vec<Whole> {
    let restart = |left: Left| Left { restarts: 1, ..left };
    let loses_or_moves = [(1, Plan::Lose(0)), (1, Plan::Turn(0)), (0, Plan::Kill), (0, Plan::Finish)];
    let returns = [(0, Plan::Back), (1, Plan::Turn(0)), (1, Plan::Kill), (0, Plan::Finish)];
    let both = [lease(0), lease(1)];
    let was_lost =
        [lease(0), claim(0), TICK, TICK, Before::Change(1, Plan::Lose(0), ALL), Before::Open(1), lease(1)];
    let everywhere = |regions: Site| -> Vec<(Site, Site)> {
        (0..regions).flat_map(|at| (0..regions).map(move |of| (at, of))).filter(|(at, of)| at != of).collect()
    };
    let whole =
        |name, form, regions, left, plans: &[(Site, Plan)], renew: &[Site], before: &[Before], seen| {
            let claims = 2 * usize::from(before.len() > both.len());
            let claim = if claims > 0 { vec![0, 1] } else { Vec::new() };
            let only = Only { renew: renew.to_vec(), claim, arrive: everywhere(regions), cut: Vec::new() };
            let bounds = Bounds { regions, changes: 2, claims, ..small(left, plans, only, before) };
            Whole { name, form, bounds, seen }
        };
    let taken = ["a takeover", "the last change"].as_slice();
    let returned = ["a return", "the last change", "a stale writer refused"].as_slice();
    let restarted = ["a takeover", "the last change", "a restart"].as_slice();
    let all = loses_or_moves.as_slice();
    let drifts = |name, at| {
        let bounds = small(left(1, 1, 0), &[(1, Plan::Lose(0))], only(&[0], &[], &[], &[]), &both);
        Whole { name, form: Form::Brief, bounds: Bounds { slow: Some(at), claims: 0, ..bounds }, seen: taken }
    };
    vec![
        drifts("three regions, the clock of the lost one is slow", 0),
        drifts("three regions, the clock of a survivor is slow", 1),
        whole("three regions, a release", Form::Brief, 3, left(2, 0, 1), all, &[], &both, taken),
        whole("three regions, a restart", Form::Brief, 3, restart(left(2, 0, 0)), all, &[], &both, restarted),
        whole("three regions, a renewal", Form::Short, 3, left(2, 1, 0), all, &[1], &both, taken),
        whole("two and a witness, a renewal", Form::Short, 2, left(2, 1, 0), all, &[0, 1], &both, taken),
        whole(
            "two and a witness, a return",
            Form::Short,
            2,
            left(2, 1, 1),
            &returns,
            &[0],
            &was_lost,
            returned,
        ),
        whole(RENEWED, Form::Long, 2, restart(left(2, 1, 0)), all, &[0, 1], &both, restarted),
        whole(RELEASED, Form::Long, 3, restart(left(2, 0, 1)), all, &[], &both, restarted),
        whole("three regions, a renewal by either", Form::Long, 3, left(2, 1, 0), all, &[0, 1], &both, taken),
        whole(RESTARTED, Form::Long, 3, restart(left(2, 1, 0)), all, &[1], &both, restarted),
    ]
}

const RENEWED: &str = "two and a witness, a renewal and a restart";
const RELEASED: &str = "three regions, a release and a restart";
const RESTARTED: &str = "three regions, a renewal and a restart";

pub fn mutants() -> Vec<(Mutant, Bounds)> {
    let plants = plants().into_iter().map(|(check, bounds)| (Mutant::Removed(check), bounds));
    let faults = faults().into_iter().map(|(fault, bounds)| (Mutant::Undone(fault), bounds));
    plants.chain(faults).collect()
}

fn plants() -> Vec<(Check, Bounds)> {
    use Before::{Change, Open, Replicate};
    let lose_a = [(1, Plan::Lose(0))];
    let turn_a = [(1, Plan::Turn(0))];
    let turn_b = [(2, Plan::Turn(1))];
    let two = [(1, Plan::Lose(0)), (2, Plan::Kill)];
    let slept = [
        lease(0),
        claim(0),
        TICK,
        TICK,
        Change(1, Plan::Lose(0), ALL),
        Open(1),
        lease(1),
        claim(1),
        Change(0, Plan::Back, ALL),
        Replicate,
    ];
    let skipped = [Change(1, Plan::Turn(0), [false, true, true]), Replicate, Open(1), lease(1), claim(1)];
    let sealed = [lease(0), claim(0), Change(1, Plan::Turn(0), ALL)];
    let both = [lease(0), lease(1)];
    let one = [lease(0), lease(1), claim(0)];
    let gone = [lease(0), claim(0), TICK, TICK];
    let (b, b_with_a) = (only(&[1], &[], &[], &[(0, 1)]), only(&[1], &[1], &[], &[(1, 2)]));
    let moves = only(&[1], &[0, 1], &[(1, 0)], &[(1, 2)]);
    let back = only(&[0], &[0], &[(0, 1), (0, 2)], &[(1, 2), (0, 2)]);
    let late = only(&[0, 1], &[], &[], &[(0, 1)]);
    let none = only(&[], &[], &[], &[]);
    vec![
        (Check::GrantOnAccept, small(left(1, 1, 0), &lose_a, b.clone(), &both)),
        (Check::NothingNewer, small(left(1, 2, 0), &lose_a, late, &[])),
        (Check::UntilFromBefore, small(left(0, 1, 0), &[], b, &[])),
        (Check::Tenure, small(left(2, 1, 2), &turn_a, back.clone(), &slept)),
        (Check::MarksAccumulate, small(left(1, 0, 1), &turn_b, none.clone(), &sealed)),
        (Check::Import, small(left(1, 0, 0), &lose_a, only(&[], &[], &[(2, 0)], &[]), &gone)),
        (Check::ForeignFirst, small(left(2, 0, 0), &two, none, &[])),
        (Check::ClosedWhenGained, small(left(1, 1, 1), &turn_a, b_with_a, &one)),
        (Check::PendingClosed, small(left(1, 1, 1), &turn_a, moves, &both)),
        (
            Check::SkippedView,
            small(left(2, 1, 2), &turn_a, only(&[0], &[0], &[], &[(1, 2), (0, 2)]), &skipped),
        ),
    ]
}

fn faults() -> Vec<(Fault, Bounds)> {
    use Before::{Change, GiveUp, Renew};
    let lose_a = [(1, Plan::Lose(0))];
    let turn_a = [(1, Plan::Turn(0))];
    let slept = [lease(0), lease(1), claim(0), TICK, TICK];
    let killed = [GiveUp(0, 0), Change(0, Plan::Kill, ALL), lease(0)];
    let one = [lease(0), lease(1), claim(0)];
    let held = [Renew(0, [true, true, false]), lease(1)];
    let swapped = [
        Renew(0, [true, false, true]),
        Before::Act(Act::Remake(2)),
        Change(1, Plan::Swap(2), [false, true, true]),
    ];
    let without_a = only(&[1], &[1], &[], &[(0, 1)]);
    let restarted = Left { restarts: 1, ..left(1, 1, 0) };
    let by_c = only(&[1], &[], &[], &[(0, 1), (0, 2)]);
    let moves = only(&[1], &[1], &[(1, 0)], &[(1, 2)]);
    vec![
        (
            Fault::TrustsClocks,
            Bounds { slow: Some(0), ..small(left(0, 1, 0), &[], only(&[0], &[], &[], &[]), &[]) },
        ),
        (Fault::AdoptsAccepted, small(left(1, 0, 0), &lose_a, only(&[], &[], &[], &[]), &[])),
        (Fault::SendsUnchecked, small(left(1, 1, 0), &lose_a, without_a.clone(), &slept)),
        (Fault::ReusesReport, small(left(2, 1, 0), &turn_a, moves.clone(), &killed)),
        (Fault::SealsEarly, small(left(1, 1, 1), &turn_a, moves, &one)),
        (Fault::StartsKnowing, small(restarted, &[(2, Plan::Lose(0))], by_c, &held)),
        (Fault::AdmitsAtOnce, small(left(2, 1, 0), &lose_a, without_a, &swapped)),
    ]
}

/// The state right after the founding: every site holds the first view, and no region a lease.
pub fn founded(parts: &Parts, first: ViewId) -> State {
    let view = parts.views.get(first);
    let found = Message::Found {
        ballot: Ballot { counter: 0, region: parts.name(0).clone(), proposer: 0 },
        view: view.clone(),
    };
    let desk = |site: Site| {
        let (founded, _) = Acceptor::made(register_id(site)).answer(None, &found, &|_, _| false);
        parts.new_desk(founded.unwrap_or_else(|| panic!("an empty acceptor takes the founding")))
    };
    let gate = parts.gate(GateState::founded(view));
    let at = |site: usize, value: u32| if site < usize::from(parts.regions) { value } else { 0 };
    State {
        desks: std::array::from_fn(|site| desk(site as Site)),
        leases: std::array::from_fn(|site| at(site, parts.new_holder())),
        gates: std::array::from_fn(|site| at(site, gate)),
        chosen: vec![first],
        ..State::default()
    }
}

/// The state after all of this world's earlier steps.
pub fn begin(world: &World) -> State {
    let mut state = world.start.clone();
    let before = world.bounds.before.clone();
    let go = |state: State, act: Act| -> State {
        let next = world.step(&state, act);
        next.unwrap_or_else(|| panic!("{act:?} changes nothing in {state:?}"))
    };
    for step in before {
        state.left = Left { rounds: 9, renewals: 9, releases: 9, restarts: 0, remakes: 1 };
        match step {
            Before::Act(act) => state = go(state, act),
            Before::Replicate => {
                for (at, of) in (0..3).flat_map(|at| (0..3).map(move |of| (at, of))) {
                    if at != of && at < world.parts.regions && of < world.parts.regions {
                        state.applied[usize::from(at)][usize::from(of)] = state.seq[usize::from(of)];
                    }
                }
            }
            Before::Renew(at, by) => {
                state = go(state, Act::Renew(at));
                let lost = |mail: &Mail| mail.from == at && !by[usize::from(mail.to)];
                state.mail.retain(|mail| !lost(mail));
                state = settled(world, state);
            }
            Before::GiveUp(at, of) => {
                let base = world.parts.gates.get(state.gates[usize::from(at)]).view;
                state = go(state, Act::GiveUp(at, world.parts.draft(base, of)));
            }
            Before::Open(at) => state = go(state, Act::Open(at)),
            Before::Change(by, plan, learns) => {
                if let Plan::Turn(of) = plan {
                    let base = world.parts.gates.get(state.gates[usize::from(by)]).view;
                    let target = world.parts.draft(base, of);
                    for at in (0..world.parts.regions).filter(|at| world.parts.loses(base, target, *at)) {
                        state = go(state, Act::GiveUp(at, target));
                    }
                }
                let known = state.chosen.len();
                // Again, if another process had the higher ballot.
                while state.chosen.len() == known {
                    state = settled(world, go(state, Act::Propose(by, plan)));
                }
                let newest = *state.chosen.last().unwrap_or(&0);
                for at in (0..world.parts.regions).filter(|at| learns[usize::from(*at)]) {
                    state = go(state, Act::Adopt(at, newest));
                }
            }
        }
    }
    state.left = world.bounds.left;
    // All processes have heard of the highest ballot since.
    state.counters = [state.counters.into_iter().max().unwrap_or(0); 3];
    state
}

fn settled(world: &World, mut state: State) -> State {
    // A message that is not heeded now stays under way.
    while let Some(next) = state.mail.iter().find_map(|mail| world.step(&state, Act::Deliver(*mail))) {
        state = next;
    }
    state
}
