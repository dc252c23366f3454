//! The register, leases and hand-over explored exhaustively.
#[path = "model/acts.rs"]
mod acts;
#[path = "model/parts.rs"]
mod parts;
#[path = "model/pool.rs"]
mod pool;
#[path = "model/start.rs"]
mod start;
#[path = "model/state.rs"]
mod state;
#[path = "model/steps.rs"]
mod steps;
#[path = "model/story.rs"]
mod story;
#[path = "model/text.rs"]
mod text;
#[path = "model/truth.rs"]
mod truth;
#[path = "model/wishes.rs"]
mod wishes;
#[path = "model/world.rs"]
mod world;
#[path = "model/worlds.rs"]
mod worlds;

use stateright::{Checker, HasDiscoveries, Model};
use std::time::Instant;
use state::Left;
use world::{Before, Bounds, Plan, World};

fn number(name: &str, or: u64) -> u64 {
    std::env::var(name).ok().and_then(|t| t.parse().ok()).unwrap_or(or)
}

#[test]
fn size() {
    let bounds = Bounds {
        regions: number("REGIONS", 3) as u8,
        changes: number("CHANGES", 2) as usize,
        claims: number("CLAIMS", 1) as usize,
        left: Left { rounds: number("ROUNDS", 1) as u8, renewals: number("RENEWALS", 0) as u8, releases: number("RELEASES", 0) as u8, restarts: number("RESTARTS", 0) as u8, remakes: 0 },
        plans: vec![(1, Plan::Lose(0)), (2, Plan::Lose(0)), (2, Plan::Finish),(1, Plan::Finish),  (0, Plan::Kill), (1, Plan::Turn(0))].into_iter().take(number("PLANS", 6) as usize).collect(),
        only: |_| true,
        before: vec![Before::Renew(0, [true; 3]), Before::Renew(1, [true; 3])],
    };
    let begun = Instant::now();
    let world = World::new(bounds, None);
    let checker = world.checker().threads(2).target_state_count(number("TARGET", 10_000_000) as usize).finish_when(HasDiscoveries::AnyFailures).spawn_dfs().join();
    println!("unique {} total {} depth {} in {:?}", checker.unique_state_count(), checker.state_count(), checker.max_depth(), begun.elapsed());
    let p = &checker.model().parts;
    println!("views {} desks {} holders {} gates {} rounds {}", p.views.len(), p.desks.len(), p.holders.len(), p.gates.len(), p.rounds.len());
    for (name, path) in checker.discoveries() {
        println!("{name}");
        if name.contains(':') { println!("{}", story::story(checker.model(), path)) }
    }
}

#[test]
fn every_mutant_is_killed() {
    let mut alive = Vec::new();
    for (mutant, bounds) in worlds::mutants() {
        let begun = Instant::now();
        let sound = World::new(bounds.clone(), None).checker().threads(2).target_state_count(number("TARGET", 300_000) as usize).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
        println!("{mutant:?}: sound {} states, {:?}", sound.unique_state_count(), begun.elapsed());
        let begun = Instant::now();
        let checker = World::new(bounds, Some(mutant)).checker().threads(2).target_state_count(number("TARGET", 300_000) as usize).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
        let broken: Vec<_> = checker.discoveries().into_iter().filter(|(name, _)| name.contains(':')).collect();
        if broken.is_empty() { alive.push(mutant) }
        println!("{mutant:?}: {} states, {:?}", checker.unique_state_count(), begun.elapsed());
        for (name, path) in broken { println!("  {name}\n{}", story::story(checker.model(), path)) }
    }
    println!("alive: {alive:?}");
}
