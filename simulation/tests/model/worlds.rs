//! The worlds that are explored: whole ones that must hold, and for each mutant one that shows what it breaks.
//!
//! Neighbours: `world` says what bounds mean, `model.rs` explores. A mutant's world is as small as still shows it: its bounds are no
//! claim. It must not give a mutant's world more than the whole ones may do, but what it starts with.

use onceway::protocol::plant::Plant;

use crate::acts::Act;
use crate::state::Left;
use crate::world::{Before, Bounds, Fault, Mutant, Plan};

const ALL: [bool; 3] = [true; 3];

fn left(rounds: u8, renewals: u8, releases: u8) -> Left {
    Left { rounds, renewals, releases, restarts: 0, remakes: 0 }
}

fn small(
    changes: usize,
    claims: usize,
    left: Left,
    plans: &[(u8, Plan)],
    before: &[Before],
    only: fn(&Act) -> bool,
) -> Bounds {
    Bounds { regions: 3, changes, claims, left, plans: plans.to_vec(), only, before: before.to_vec() }
}

fn all(_: &Act) -> bool {
    true
}

/// Only `b` asks for leases, claims, and restarts, and what is written arrives there and at the third.
fn by_b(act: &Act) -> bool {
    match act {
        Act::Renew(at) | Act::Claim(at) | Act::Restart(at) => *at == 1,
        Act::Arrive(at, of) => *at != 0 && *of == 0,
        Act::Tick
        | Act::Deliver(_)
        | Act::Propose(..)
        | Act::Adopt(..)
        | Act::Open(_)
        | Act::GiveUp(..)
        | Act::Send(_)
        | Act::Remake(_)
        | Act::Admit(_) => true,
    }
}

/// The same of `a` and `b`.
fn by_a_and_b(act: &Act) -> bool {
    match act {
        Act::Renew(at) | Act::Claim(at) => *at != 2,
        Act::Arrive(at, _) => *at == 1,
        Act::Tick
        | Act::Deliver(_)
        | Act::Propose(..)
        | Act::Adopt(..)
        | Act::Open(_)
        | Act::GiveUp(..)
        | Act::Send(_)
        | Act::Restart(_)
        | Act::Remake(_)
        | Act::Admit(_) => true,
    }
}

/// Each mutant with the world that shows it.
pub fn mutants() -> Vec<(Mutant, Bounds)> {
    let plants = plants().into_iter().map(|(check, bounds)| (Mutant::Removed(check), bounds));
    let faults = faults().into_iter().map(|(fault, bounds)| (Mutant::Undone(fault), bounds));
    plants.chain(faults).collect()
}

fn plants() -> Vec<(Plant, Bounds)> {
    use Before::{Change, Open, Renew, Replicate};
    let lease = |at| Renew(at, ALL);
    let lose_a = [(1, Plan::Lose(0))];
    let turn_a = [(1, Plan::Turn(0))];
    let (claim, tick) = (|at| Before::Act(Act::Claim(at)), Before::Act(Act::Tick));
    vec![
        (Plant::GrantOnAccept, small(1, 0, left(1, 1, 0), &lose_a, &[lease(0), lease(1)], by_b)),
        (Plant::NothingNewer, small(1, 0, left(1, 2, 0), &lose_a, &[], by_a_and_b)),
        (Plant::UntilFromBefore, small(0, 0, left(0, 1, 0), &[], &[], by_b)),
        (
            Plant::Tenure,
            small(
                1,
                2,
                left(1, 1, 2),
                &turn_a,
                &[
                    lease(0),
                    claim(0),
                    tick,
                    tick,
                    Change(1, Plan::Lose(0), ALL),
                    Open(1),
                    lease(1),
                    claim(1),
                    Change(0, Plan::Back, ALL),
                    Replicate,
                ],
                all,
            ),
        ),
        (
            Plant::MarksAccumulate,
            small(
                1,
                1,
                left(1, 0, 1),
                &[(2, Plan::Turn(1))],
                &[lease(0), claim(0), Change(1, Plan::Turn(0), ALL)],
                all,
            ),
        ),
        (Plant::Import, small(1, 1, left(1, 0, 0), &lose_a, &[lease(0), claim(0), tick, tick], by_b)),
        (Plant::ForeignFirst, small(1, 0, left(2, 0, 0), &[(1, Plan::Lose(0)), (2, Plan::Kill)], &[], by_b)),
        (
            Plant::ClosedWhenGained,
            small(1, 2, left(1, 1, 1), &turn_a, &[lease(0), lease(1), claim(0)], by_b),
        ),
        (Plant::PendingClosed, small(1, 2, left(1, 1, 1), &turn_a, &[lease(0), lease(1)], by_a_and_b)),
        (
            Plant::SkippedView,
            small(
                1,
                2,
                left(1, 1, 2),
                &turn_a,
                &[
                    Change(1, Plan::Turn(0), [false, true, true]),
                    Replicate,
                    Open(1),
                    lease(1),
                    claim(1),
                ],
                all,
            ),
        ),
    ]
}

fn faults() -> Vec<(Fault, Bounds)> {
    use Before::{Change, GiveUp, Renew};
    let lease = |at| Renew(at, ALL);
    let lose_a = [(1, Plan::Lose(0))];
    let turn_a = [(1, Plan::Turn(0))];
    let (claim, tick) = (|at| Before::Act(Act::Claim(at)), Before::Act(Act::Tick));
    let restarted = Left { restarts: 1, ..left(1, 1, 0) };
    vec![
        (Fault::AdoptsAccepted, small(1, 0, left(1, 0, 0), &lose_a, &[], by_b)),
        (
            Fault::SendsUnchecked,
            small(1, 2, left(1, 1, 0), &lose_a, &[lease(0), lease(1), claim(0), tick, tick], by_b),
        ),
        (
            Fault::ReusesReport,
            small(1, 0, left(1, 1, 0), &turn_a, &[GiveUp(0, 0), Change(0, Plan::Kill, ALL), lease(0)], by_b),
        ),
        (
            Fault::SealsEarly,
            small(1, 2, left(1, 1, 1), &turn_a, &[lease(0), lease(1), claim(0)], by_b),
        ),
        (
            Fault::StartsKnowing,
            small(1, 0, restarted, &[(2, Plan::Lose(0))], &[Renew(0, [true, true, false]), lease(1)], by_b),
        ),
        (
            Fault::AdmitsAtOnce,
            small(
                1,
                0,
                left(1, 1, 0),
                &lose_a,
                &[
                    Renew(0, [true, false, true]),
                    Before::Act(Act::Remake(2)),
                    Change(1, Plan::Swap(2), [false, true, true]),
                ],
                by_b,
            ),
        ),
    ]
}
