//! Many outcomes of one point, added up: the figures that tables, charts and advice go by.
//!
//! Neighbours: commands play seeds and add their outcomes here, in any order; [`crate::advice`] and [`crate::report`] read the figures. It must
//! not hold anything that depends on the order, the machine or the clock: the same seeds give the same figures, to the byte.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::outcome::{Breach, Keys, Outcome};

/// How many broken seeds are named.
const MOST_BROKEN: usize = 10;
/// The shares of a distribution that are kept, in thousandths: each fiftieth, and finer towards the end.
fn points() -> impl Iterator<Item = u32> {
    (1..=49).map(|fiftieth| fiftieth * 20).chain([990, 995, 998, 999, 1_000])
}

/// Outcomes of one point, as they come in.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    seeds: u64,
    simulated_ms: u64,
    hops: u64,
    keys: Keys,
    routes: BTreeMap<String, Keys>,
    /// Per route: for each seed and home region that was without service, for how long.
    without: BTreeMap<String, Vec<u64>>,
    /// For each seed: for how long the arc that was hit worst was without service.
    worst: Vec<u64>,
    latency_ms: Vec<u64>,
    takeovers: u64,
    broke: BTreeMap<u64, Breach>,
}

/// What came of one point, or of one design.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// How many seeds.
    pub seeds: u64,
    /// Simulated time.
    pub simulated_ms: u64,
    /// What came of the keys.
    pub keys: Keys,
    /// Doubles that no route asks for, per million keys.
    pub doubles_per_million: f64,
    /// Between what the rate of such doubles is, with a confidence of 95 %, if these seeds were all there is to know.
    pub doubles_between: (f64, f64),
    /// The same figures by route.
    pub routes: BTreeMap<String, OfRoute>,
    /// Without service, of the arc and route that was hit worst in each seed.
    pub without_service: Spread,
    /// From a key's first request to its answer, less what a direct call to the upstream takes.
    pub added_latency_ms: Latency,
    /// The same as a distribution: for each share of the answers, in thousandths, the latency that so many do not exceed.
    pub distribution: Vec<(u32, u64)>,
    /// Calls from one region to another, per hundred keys.
    pub hops_per_hundred: f64,
    /// How many takeovers there were.
    pub takeovers: u64,
    /// The seeds in which an invariant broke: how many, and the first of them. Nobody looks for invariants of other designs.
    pub broke: u64,
    /// The first of them, each with its first breach.
    pub first_broken: BTreeMap<u64, Breach>,
}

/// What came of one route.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct OfRoute {
    /// What came of its keys.
    pub keys: Keys,
    /// Doubles that it does not ask for, per million keys.
    pub doubles_per_million: f64,
    /// Without service, per seed and home region that was.
    pub without_service: Spread,
}

/// How long something took: usually, and at worst.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Spread {
    /// The median.
    pub p50_ms: u64,
    /// The longest.
    pub max_ms: u64,
}

/// How much longer answers take than without a gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Latency {
    /// The median.
    pub p50: u64,
    /// All but one of a hundred take at most this.
    pub p99: u64,
}

impl Sums {
    /// Adds one seed.
    pub fn add(&mut self, outcome: &Outcome) {
        self.seeds += 1;
        self.simulated_ms += outcome.simulated_ms;
        self.hops += outcome.hops;
        self.keys += &outcome.keys;
        for (route, keys) in &outcome.routes {
            *self.routes.entry(route.clone()).or_default() += keys;
        }
        let mut arcs: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        for outage in &outcome.outages {
            *arcs.entry((&outage.route, &outage.home)).or_default() += outage.to_ms - outage.from_ms;
        }
        self.worst.push(arcs.values().copied().max().unwrap_or(0));
        for ((route, _), without) in arcs {
            self.without.entry(route.to_owned()).or_default().push(without);
        }
        self.latency_ms.extend(&outcome.latency_ms);
        self.takeovers += outcome.happened.get("takeover").copied().unwrap_or(0);
        if let Some(breach) = outcome.breaches.first() {
            self.broke.insert(outcome.seed, breach.clone());
        }
    }

    /// What it comes to. `direct_ms` is what a direct call to the upstream takes.
    pub fn figures(mut self, direct_ms: u64) -> Figures {
        self.latency_ms.sort_unstable();
        let added = |thousandths| at(&self.latency_ms, thousandths).saturating_sub(direct_ms);
        let keys = self.keys.clone();
        let (least, most) = poisson(keys.unasked());
        let routes = self.routes.into_iter().map(|(name, keys)| {
            let without_service = spread(self.without.remove(&name).unwrap_or_default());
            let doubles_per_million = per_million(keys.unasked() as f64, keys.begun);
            (name, OfRoute { keys, doubles_per_million, without_service })
        });
        Figures {
            seeds: self.seeds,
            simulated_ms: self.simulated_ms,
            doubles_per_million: per_million(keys.unasked() as f64, keys.begun),
            doubles_between: (per_million(least, keys.begun), per_million(most, keys.begun)),
            routes: routes.collect(),
            without_service: spread(self.worst),
            added_latency_ms: Latency { p50: added(500), p99: added(990) },
            distribution: points().map(|point| (point, added(point))).collect(),
            hops_per_hundred: rounded(self.hops as f64 * 100.0 / keys.begun.max(1) as f64, 10.0),
            keys,
            takeovers: self.takeovers,
            broke: self.broke.len() as u64,
            first_broken: self.broke.into_iter().take(MOST_BROKEN).collect(),
        }
    }
}

/// The value that so many thousandths do not exceed; 0 if there is none. `sorted` must be.
fn at(sorted: &[u64], thousandths: u32) -> u64 {
    let index = (sorted.len() * thousandths as usize).div_ceil(1_000).saturating_sub(1);
    sorted.get(index).copied().unwrap_or(0)
}

fn spread(mut all: Vec<u64>) -> Spread {
    all.sort_unstable();
    Spread { p50_ms: at(&all, 500), max_ms: at(&all, 1_000) }
}

fn per_million(count: f64, of: u64) -> f64 {
    rounded(count * 1_000_000.0 / of.max(1) as f64, 10.0)
}

fn rounded(value: f64, steps: f64) -> f64 {
    (value * steps).round() / steps
}

/// Between what the mean of a count lies, with a confidence of 95 %: exact for none (the rule of three), else Byar's approximation.
fn poisson(count: u64) -> (f64, f64) {
    if count == 0 {
        return (0.0, 3.0);
    }
    let bound = |count: f64, side: f64| {
        count * (1.0 - 1.0 / (9.0 * count) + side * 1.96 / (3.0 * count.sqrt())).powi(3)
    };
    (bound(count as f64, -1.0).max(0.0), bound(count as f64 + 1.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Outage;

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
        assert_eq!(poisson(0), (0.0, 3.0));
        let (least, most) = poisson(10);
        assert!((4.6..5.0).contains(&least) && (18.0..18.6).contains(&most), "{least} {most}");
        assert_eq!(
            Sums::default().figures(50),
            Figures {
                doubles_between: (0.0, 3_000_000.0),
                distribution: points().map(|point| (point, 0)).collect(),
                ..Figures::default()
            }
        );
    }
}
