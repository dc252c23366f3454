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

use state::Left;
use stateright::{Checker, HasDiscoveries, Model};
use std::time::Instant;
use world::{Before, Bounds, Plan, World};

fn number(name: &str, or: u64) -> u64 {
    std::env::var(name).ok().and_then(|t| t.parse().ok()).unwrap_or(or)
}

#[test]
fn size() {
    let digits = |name: &str, or: &str| -> Vec<u8> {
        std::env::var(name).unwrap_or(or.to_string()).bytes().map(|b| b - b'0').collect()
    };
    let n = |name: &str, or: u64| number(name, or) as u8;
    let regions = n("REGIONS", 3);
    let pairs =
        (0..regions).flat_map(|a| (0..regions).map(move |b| (a, b))).filter(|(a, b)| a != b).collect();
    let all = [
        (1, Plan::Lose(0)),
        (1, Plan::Turn(0)),
        (0, Plan::Kill),
        (0, Plan::Finish),
        (2, Plan::Lose(0)),
        (2, Plan::Finish),
        (1, Plan::Finish),
        (2, Plan::Turn(1)),
        (2, Plan::Lose(1)),
        (0, Plan::Back),
    ];
    let bounds = Bounds {
        regions,
        changes: number("CHANGES", 2) as usize,
        claims: number("CLAIMS", 0) as usize,
        left: Left {
            rounds: n("ROUNDS", 1),
            renewals: n("RENEWALS", 0),
            releases: n("RELEASES", 0),
            restarts: n("RESTARTS", 0),
            remakes: 0,
        },
        plans: digits("PLANS", "0123").into_iter().map(|p| all[usize::from(p)]).collect(),
        near: number("NEAR", 1) == 1,
        only: world::Only {
            renew: digits("RENEW", "01"),
            claim: digits("CLAIM", "01"),
            arrive: pairs,
            cut: vec![],
        },
        before: vec![Before::Renew(0, [true; 3]), Before::Renew(1, [true; 3])],
    };
    let begun = Instant::now();
    let world = World::new(bounds, None);
    let checker = world
        .checker()
        .threads(2)
        .target_state_count(number("TARGET", 10_000_000) as usize)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_dfs()
        .join();
    println!(
        "unique {} total {} depth {} in {:?}",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth(),
        begun.elapsed()
    );
    let p = &checker.model().parts;
    println!(
        "views {} desks {} holders {} gates {} rounds {}",
        p.views.len(),
        p.desks.len(),
        p.holders.len(),
        p.gates.len(),
        p.rounds.len()
    );
    for (name, path) in checker.discoveries() {
        println!("{name}");
        if name.contains(':') {
            println!("{}", story::story(checker.model(), path))
        }
    }
}

#[test]
fn every_mutant_is_killed() {
    let mut alive = Vec::new();
    for (mutant, bounds) in worlds::mutants() {
        let begun = Instant::now();
        let sound = World::new(bounds.clone(), None)
            .checker()
            .threads(2)
            .target_state_count(number("TARGET", 300_000) as usize)
            .finish_when(HasDiscoveries::AnyFailures)
            .spawn_bfs()
            .join();
        println!("{mutant:?}: sound {} states, {:?}", sound.unique_state_count(), begun.elapsed());
        let begun = Instant::now();
        let checker = World::new(bounds, Some(mutant))
            .checker()
            .threads(2)
            .target_state_count(number("TARGET", 300_000) as usize)
            .finish_when(HasDiscoveries::AnyFailures)
            .spawn_bfs()
            .join();
        let broken: Vec<_> =
            checker.discoveries().into_iter().filter(|(name, _)| name.contains(':')).collect();
        if broken.is_empty() {
            alive.push(mutant)
        }
        println!("{mutant:?}: {} states, {:?}", checker.unique_state_count(), begun.elapsed());
        for (name, path) in broken {
            println!("  {name}\n{}", story::story(checker.model(), path))
        }
    }
    println!("alive: {alive:?}");
}
