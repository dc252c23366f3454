//! The checker looks at each entry of a history once, and must find the same as a look at the
//! whole.
//!
//! Here both looks are done, with checks of the protocol taken out, so that breaches exist. The
//! checker's own tests do the same with forged histories, where much more breaks. It must not ask
//! which invariant breaks: `plants.rs` has the scenarios.

use std::collections::BTreeSet;

use onceway::protocol::plant::{Plant, planted};
use simulation::checker::{Breach, Invariant};

use super::swarm::Swarm;
use super::trio::{checker, play};

/// Seeds for each plant.
const SEEDS: u64 = 2;

#[test]
fn looking_step_by_step_finds_what_a_look_at_the_whole_finds() {
    let mut broken = 0;
    for plant in [Plant::ClosedWhenGained, Plant::Tenure, Plant::GateInClaim] {
        for seed in 0..SEEDS {
            let (steps, whole) = planted(plant, || both(seed));
            assert_eq!(told(&steps), told(&whole), "{plant:?} in seed {seed}");
            broken += whole.len();
        }
    }
    assert!(broken > 0, "there was nothing to find");
    let (steps, whole) = both(0);
    assert!(steps.is_empty() && whole.is_empty(), "{steps:#?} {whole:#?}");
}

/// The breaches of one seed by two checkers: one that looks after each step, and one that looks
/// once.
fn both(seed: u64) -> (Vec<Breach>, Vec<Breach>) {
    play(async {
        let mut stepwise = checker();
        let mut swarm = Swarm::start(seed).await;
        let mut steps = Vec::new();
        swarm.disturb(|world| steps.extend(stepwise.step(world))).await;
        let whole = checker().step(&swarm.trio.world);
        (steps, whole)
    })
}

/// The invariants and texts of breaches, without the times, which differ.
fn told(breaches: &[Breach]) -> BTreeSet<(Invariant, String)> {
    breaches.iter().map(|breach| (breach.invariant, breach.text.clone())).collect()
}
