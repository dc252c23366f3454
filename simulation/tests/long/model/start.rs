//! The start of an exploration: a deployment right after its founding, or later, after successful
//! changes.
//!
//! Every step before the start is one that the exploration itself could take.

use onceway::protocol::authority::GateState;
use onceway::protocol::register::{Acceptor, Ballot, Message};

use crate::model::acts::Act;
use crate::model::parts::{Parts, register_id};
use crate::model::state::{Left, Mail, Site, State, ViewId};
use crate::model::world::{Before, Plan, World};

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

/// The state after all messages under way have arrived.
fn settled(world: &World, mut state: State) -> State {
    // A message that is not heeded now stays under way.
    while let Some(next) = state.mail.iter().find_map(|mail| world.step(&state, Act::Deliver(*mail))) {
        state = next;
    }
    state
}
