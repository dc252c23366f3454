//! The register, the leases and the hand-over, explored exhaustively within small bounds by
//! stateright.
//!
//! The explored code is the protocol's own (`Acceptor`, `GrantWatch`, `Admission`, `Lease`,
//! `Round`, `View::next`, `GateState`, `Snapshot`, `hindrances`). It must not be a second writing
//! of it. A state is made of numbers of protocol values (`model/parts.rs`). Two values have one
//! number exactly if they answer the same from then on.
//!
//! *Time.* All clocks tick at once, but for the worlds in which one clock runs at half the speed of
//! the others. A lease runs for two ticks.
//! - A state holds no absolute time, only distances from now. A moment a lease's time ago or more
//!   is just past, because the protocol compares moments with now by spans no longer than that.
//! - Nothing is urgent: any number of ticks may pass before the next act. So every process may
//!   pause, and every message may be late or lost. A process that crashes for good simply has no
//!   more acts. Only a restart is a step, because it forgets.
//! - An acceptor's process looks at its grants whenever they change. It could only do so later, and
//!   then judge later.
//! - A process notices that its lease lapsed in the same tick: every use of the lease looks first.
//! - Whole ticks are enough because all bounds of a lease meet on them: it is good before its end,
//!   and a grant is over from its end on.
//!
//! *Messages.* A reply to a round's message arrives at once: a late or lost reply is the same as
//! late or lost consequences. Replies to renewals are messages, because they move the clock of a
//! lease. A process reaches its own acceptor at once. Messages are not repeated. Any process can
//! hear of a chosen view at any time, in any order. Written rows arrive up to their present end, at
//! any time.
//!
//! *Left out.* Windows (over at once), escrow, records, more than one process per region, other
//! rings, weights: the simulation has those. Numbers that are only compared for equality (of
//! grants, of tenures) are kept as equal or not. States are told apart by 64 bits.
//!
//! An unoptimized build has a brief form, which `.ci/run` takes. `.ci/nightly model` takes the long
//! one: `ONCEWAY_MODEL=long cargo test --release -p simulation --test long model::`.

#![allow(clippy::disallowed_methods, reason = "it measures real time")]

mod acts;
mod holders;
mod parts;
mod pool;
mod state;
mod steps;
mod truth;
mod wishes;
mod world;
mod worlds;

use std::time::Instant;

use stateright::{Checker, CheckerBuilder, HasDiscoveries, Model};

use acts::story;
use world::World;
use worlds::Form;

fn form() -> Form {
    match std::env::var("ONCEWAY_MODEL").as_deref() {
        Ok("brief") => Form::Brief,
        Ok("short") => Form::Short,
        Ok("long") => Form::Long,
        Ok(other) => panic!("ONCEWAY_MODEL is brief, short or long, not {other}"),
        Err(_) if cfg!(debug_assertions) => Form::Brief,
        Err(_) => Form::Short,
    }
}

/// The fewest unique states that a form is worth.
fn least(form: Form) -> usize {
    match form {
        Form::Brief => 100_000,
        Form::Short => 1_000_000,
        Form::Long => 20_000_000,
    }
}

fn checker(world: World) -> CheckerBuilder<World> {
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
    world.checker().threads(threads).finish_when(HasDiscoveries::AnyFailures)
}

/// Every broken invariant with the schedule that breaks it.
fn broken(checker: &impl Checker<World>) -> Vec<String> {
    let failure = |name: &'static str| checker.model().property(name).expectation.discovery_is_failure();
    let found = checker.discoveries().into_iter().filter(|(name, _)| failure(name));
    found.map(|(name, path)| format!("{name}\n{}", story(checker.model(), path))).collect()
}

#[test]
fn no_state_breaks_an_invariant() {
    let form = form();
    let mut states = 0;
    for whole in worlds::wholes().into_iter().filter(|whole| whole.form <= form) {
        let begun = Instant::now();
        let checker = checker(World::new(whole.bounds, None)).spawn_dfs().join();
        let (unique, depth) = (checker.unique_state_count(), checker.max_depth());
        println!(
            "{}: {unique} unique states, depth {depth}, {:.1} s",
            whole.name,
            begun.elapsed().as_secs_f64()
        );
        let broken = broken(&checker);
        assert!(broken.is_empty(), "{}: {}", whole.name, broken.join("\n"));
        let found = checker.discoveries();
        let never: Vec<_> = whole.seen.iter().filter(|seen| !found.contains_key(**seen)).collect();
        assert!(never.is_empty(), "{}: never seen: {never:?}", whole.name);
        states += unique;
    }
    println!("{form:?}: {states} unique states in all");
    assert!(states >= least(form), "{states} states are too few for {form:?}");
}

#[test]
fn every_mutant_is_killed_and_its_world_holds_without_it() {
    let mut alive = Vec::new();
    for (mutant, bounds) in worlds::mutants() {
        let sound = checker(World::new(bounds.clone(), None)).spawn_dfs().join();
        let broken_before = broken(&sound);
        assert!(broken_before.is_empty(), "{mutant:?}, not taken out: {}", broken_before.join("\n"));
        let checker = checker(World::new(bounds, Some(mutant))).spawn_bfs().join();
        let stories = broken(&checker);
        println!("{mutant:?}: {} of {} states", checker.unique_state_count(), sound.unique_state_count());
        stories.iter().for_each(|story| println!("{story}"));
        if stories.is_empty() {
            alive.push(mutant);
        }
    }
    assert!(alive.is_empty(), "nothing notices that these are gone: {alive:?}");
}
