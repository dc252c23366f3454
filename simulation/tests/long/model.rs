//! The register, the leases and the hand-over, explored exhaustively within small bounds by stateright: the protocol's own code
//! (`Acceptor`, `GrantWatch`, `Admission`, `Lease`, `Round`, `View::next`, `GateState`, `right`, `hindrances`), not a second writing of it.
//!
//! A state is made of numbers of protocol values (`model/parts.rs`); two values have one number exactly if they answer alike from then on.
//!
//! *Time.* All clocks tick at once; a lease runs for two ticks, drift is left out (the tests of `protocol::time` and the simulation have it). A
//! state holds no absolute time: moments are as far from now as they are, and what is a lease's time past or more is past, since the
//! protocol compares moments with now by spans no longer than that. Nothing is urgent: any number of ticks may pass before anything
//! else happens, so every process may pause, every message be late or lost, and who crashes for good is one to whom nothing happens any
//! more; only a restart is a step, as it forgets. An acceptor's process looks at its grants whenever they change: it could do so
//! later only, and then judge later. A process notices that its lease lapsed in the tick in which it does: whatever it does with it looks
//! first. Whole ticks are enough as all bounds of a lease meet on them: it is good before its end, a grant is over from its end on.
//!
//! *Messages.* A reply to a round's message is heard at once: that it is late or lost is the same as its consequences being so. Replies
//! to renewals are messages, as they move the clock of a lease. A process reaches its own acceptor at once; messages are not repeated. A
//! view that was chosen can be heard of at any time, in any order, by anybody; what is written arrives up to where it stands, at any time.
//!
//! *Left out.* Windows (over at once), escrow, records, more than one process per region, other rings, weights: the simulation has those.
//! Numbers that are only compared for being the same (of grants, of tenures) are kept as whether they are. States are told apart by 64 bits.
//!
//! `cargo test --release -p simulation --test long model::` is CI's form, an unoptimized build has a brief one. The long form, which is run by hand:
//! `ONCEWAY_MODEL=long cargo test --release -p simulation --test long model::no_state_breaks_an_invariant -- --nocapture`.

mod acts;
mod holders;
mod parts;
mod pool;
mod start;
mod state;
mod steps;
mod story;
mod text;
mod truth;
mod wishes;
mod world;
mod worlds;

use std::time::Instant;

use stateright::{Checker, CheckerBuilder, HasDiscoveries, Model};

use story::story;
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
