//! The figures of many seeds, the streams of chance, and moments as stories write them.

use std::time::Duration;

use onceway::ports::Dice;
use simulation::Outcome;
use simulation::dice::SimDice;
use simulation::outcome::{Keys, Outage};
use simulation::sums::{Figures, Latency, Spread, Sums};
use simulation::words::moment;

fn outcome(seed: u64, doubles: u64, without: &[(&str, u64)]) -> Outcome {
    let outage = |(home, length): &(&str, u64)| Outage {
        home: (*home).to_owned(),
        route: "r".to_owned(),
        from_ms: 100,
        to_ms: 100 + length,
    };
    let keys = Keys { begun: 1_000, doubles, doubles_allowed: 1, ..Keys::default() };
    Outcome {
        seed,
        routes: [("r".to_owned(), keys.clone())].into(),
        keys,
        hops: 500,
        latency_ms: vec![60, 70, 5_050],
        outages: without.iter().map(outage).collect(),
        ..Outcome::default()
    }
}

#[test]
fn figures_are_those_of_all_seeds_in_any_order() {
    let seeds = [
        outcome(1, 3, &[("a", 2_000), ("a", 1_000), ("b", 10)]),
        outcome(2, 1, &[]),
        outcome(3, 1, &[("b", 9_000)]),
    ];
    let sum = |order: [usize; 3]| {
        let mut sums = Sums::default();
        order.iter().for_each(|index| sums.add(&seeds[*index]));
        sums.figures(50)
    };
    let figures = sum([0, 1, 2]);
    assert_eq!(figures, sum([2, 0, 1]));
    assert_eq!((figures.keys.begun, figures.keys.unasked()), (3_000, 2));
    assert_eq!((figures.doubles_per_million, figures.hops_per_hundred), (666.7, 50.0));
    assert_eq!(figures.without_service, Spread { p50_ms: 3_000, max_ms: 9_000 });
    assert_eq!(figures.routes["r"].without_service, Spread { p50_ms: 3_000, max_ms: 9_000 });
    assert_eq!(figures.added_latency_ms, Latency { p50: 20, p99: 5_000 });
}

#[test]
fn nothing_seen_is_not_nothing_there() {
    let between = |doubles| {
        let keys = Keys { begun: 1_000_000, doubles, ..Keys::default() };
        let mut sums = Sums::default();
        sums.add(&Outcome { keys, ..Outcome::default() });
        sums.figures(50).doubles_between
    };
    assert_eq!(between(0), (0.0, 3.0));
    let (least, most) = between(10);
    assert!((4.6..5.0).contains(&least) && (18.0..18.6).contains(&most), "{least} {most}");
    let figures = Sums::default().figures(50);
    let points: Vec<u32> = figures.distribution.iter().map(|(point, _)| *point).collect();
    assert_eq!((points.len(), points.last()), (54, Some(&1_000)));
    assert_eq!(
        figures,
        Figures {
            doubles_between: (0.0, 3_000_000.0),
            distribution: points.into_iter().map(|point| (point, 0)).collect(),
            ..Figures::default()
        }
    );
}

#[test]
fn a_stream_replays_and_differs_from_its_neighbour() {
    let draw = |seed, stream| {
        let dice = SimDice::new(seed, stream);
        (dice.nonce(), dice.request_id(), dice.jitter(Duration::from_secs(9)))
    };
    assert_eq!(draw(1, 2), draw(1, 2));
    assert_ne!(draw(1, 2), draw(1, 3));
    assert_ne!(draw(1, 2), draw(2, 2));
}

#[test]
fn jitter_stays_within_its_bounds_and_uses_them() {
    let dice = SimDice::new(7, 0);
    let most = Duration::from_nanos(3);
    let mut seen = [0_u32; 4];
    for _ in 0..1_000 {
        seen[usize::try_from(dice.jitter(most).as_nanos()).unwrap()] += 1;
    }
    assert!(seen[..3].iter().all(|count| *count > 200), "{seen:?}");
    assert_eq!(dice.jitter(Duration::ZERO), Duration::ZERO);
    assert!(dice.jitter(Duration::MAX) <= Duration::from_nanos(u64::MAX));
}

#[test]
fn moments_count_from_when_clients_began() {
    let zero = Duration::from_millis(2_900);
    assert_eq!(moment(Duration::from_micros(21_184_003), zero), "18.284003");
    assert_eq!(moment(Duration::from_millis(900), zero), "-2.000000");
}
