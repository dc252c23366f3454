//! The sums of many outcomes of one point: the figures for tables.
//!
//! Outcomes are added in any order: the same seeds give the same figures, to the byte.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::outcome::{Breach, Keys, Outcome};

const MOST_BROKEN: usize = 10;
/// The kept shares of a distribution, in thousandths: each fiftieth, and finer towards the end.
fn points() -> impl Iterator<Item = u32> {
    (1..=49).map(|fiftieth| fiftieth * 20).chain([990, 995, 998, 999, 1_000])
}

#[derive(Clone, Debug, Default)]
pub struct Sums {
    /// The plain sums; all else in it is computed in the end.
    figures: Figures,
    hops: u64,
    routes: BTreeMap<String, Keys>,
    /// The time without service by route, of each seed and home region that was without service.
    without: BTreeMap<String, Vec<u64>>,
    /// The time without service of the arc that was hit worst, of each seed.
    worst: Vec<u64>,
    latency_ms: Vec<u64>,
    broke: BTreeMap<u64, Breach>,
}

/// The figures of one point, or of one design.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    pub seeds: u64,
    /// The simulated time of all seeds together.
    pub simulated_ms: u64,
    pub keys: Keys,
    /// Doubles that no route allows, per million keys.
    pub doubles_per_million: f64,
    /// The bounds of the rate of such doubles, with a confidence of 95 %, by these seeds alone.
    pub doubles_between: (f64, f64),
    pub routes: BTreeMap<String, OfRoute>,
    /// The time without service of the arc and route that was hit worst in each seed.
    pub without_service: Spread,
    /// The time from a key's first request to its answer, less that of a direct upstream call.
    pub added_latency_ms: Latency,
    /// The same as a distribution: for each share, in thousandths, the latency it does not exceed.
    pub distribution: Vec<(u32, u64)>,
    pub hops_per_hundred: f64,
    /// The number of losses that a view declared.
    pub takeovers: u64,
    pub at_risk: u64,
    /// Of these, the runs marked at risk of a region that cannot have run the key.
    pub marked_too_much: u64,
    /// The number of seeds in which an invariant broke: other designs' invariants are not checked.
    pub broke: u64,
    /// The first of them, each with its first breach.
    pub first_broken: BTreeMap<u64, Breach>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct OfRoute {
    pub keys: Keys,
    /// Doubles that the route does not allow, per million keys.
    pub doubles_per_million: f64,
    /// The time without service, per seed and home region.
    pub without_service: Spread,
}

/// A time: usual and worst.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Spread {
    pub p50_ms: u64,
    pub max_ms: u64,
}

/// The additional latency of answers compared with a direct call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Latency {
    pub p50: u64,
    pub p99: u64,
}

impl Sums {
    pub fn add(&mut self, outcome: &Outcome) {
        self.figures.seeds += 1;
        self.figures.simulated_ms += outcome.simulated_ms;
        self.figures.keys += &outcome.keys;
        self.hops += outcome.hops;
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
        let happened = |what| outcome.happened.get(what).copied().unwrap_or(0);
        self.figures.takeovers += happened("takeover");
        self.figures.at_risk += happened("run at risk");
        self.figures.marked_too_much += happened("marked at risk too much");
        if let Some(breach) = outcome.breaches.first() {
            self.broke.insert(outcome.seed, breach.clone());
        }
    }

    /// Computes the figures. `direct_ms` is the time of a direct call to the upstream.
    pub fn figures(mut self, direct_ms: u64) -> Figures {
        self.latency_ms.sort_unstable();
        let added = |thousandths| at(&self.latency_ms, thousandths).saturating_sub(direct_ms);
        let (begun, unasked) = (self.figures.keys.begun, self.figures.keys.unasked());
        let (least, most) = poisson(unasked);
        let routes = self.routes.into_iter().map(|(name, keys)| {
            let without_service = spread(self.without.remove(&name).unwrap_or_default());
            let doubles_per_million = per_million(keys.unasked() as f64, keys.begun);
            (name, OfRoute { keys, doubles_per_million, without_service })
        });
        Figures {
            doubles_per_million: per_million(unasked as f64, begun),
            doubles_between: (per_million(least, begun), per_million(most, begun)),
            routes: routes.collect(),
            without_service: spread(self.worst),
            added_latency_ms: Latency { p50: added(500), p99: added(990) },
            distribution: points().map(|point| (point, added(point))).collect(),
            hops_per_hundred: rounded(self.hops as f64 * 100.0 / begun.max(1) as f64, 10.0),
            broke: self.broke.len() as u64,
            first_broken: self.broke.into_iter().take(MOST_BROKEN).collect(),
            ..self.figures
        }
    }
}

/// The value that this share, in thousandths, does not exceed; 0 for none. `sorted` must be sorted.
pub(crate) fn at(sorted: &[u64], thousandths: u32) -> u64 {
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

/// The bounds of a count's mean, at 95 %: exact for none (rule of three), else by Byar.
fn poisson(count: u64) -> (f64, f64) {
    if count == 0 {
        return (0.0, 3.0);
    }
    let bound = |count: f64, side: f64| {
        count * (1.0 - 1.0 / (9.0 * count) + side * 1.96 / (3.0 * count.sqrt())).powi(3)
    };
    (bound(count as f64, -1.0).max(0.0), bound(count as f64 + 1.0, 1.0))
}
