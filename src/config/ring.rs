//! `ring.toml`: the agreement of all regions on placement, clocks, heartbeats and failover.
//!
//! The values are shared: they are in the digest that peers compare. `failover` reads its part;
//! `protocol::ring` checks the ring and builds it.

use std::sync::Arc;
use std::time::Duration;

use super::failover;
use super::reader::{self, At, Located, Problems, Section, Source};
use super::settings::life;
use super::values::{is_name, region_name, tenant};
use crate::gateway::authority::failover::Failover;
use crate::protocol::ring::Ring;
use crate::protocol::ring_spec::{Pin, PlaceBy, RegionSpec, RingSpec};
use crate::protocol::time::Drift;

/// A checked `ring.toml`.
#[derive(Clone, Debug)]
pub struct RingFile {
    pub deployment: String,
    /// In the order of the file.
    pub pins: Vec<Pin>,
    pub ring: Arc<Ring>,
    /// Bounds on the error of clocks.
    pub drift: Drift,
    /// Time for which an answer is stored beyond the promise.
    pub skew: Duration,
    pub heartbeat: Duration,
    /// Rules of takeovers.
    pub failover: Failover,
}

/// Reads the file. Errors are added to `problems`; then the value only helps to find more.
///
/// Blocks: it builds the ring (milliseconds per region).
pub fn read(source: &Source, problems: &Problems) -> Option<RingFile> {
    let document = source.parse(problems)?;
    let top = Section::top(source, &document, problems);
    let deployment =
        top.required("deployment", "name the deployment, such as deployment = \"payments\"", name);
    let seed = top.required(
        "seed",
        "write a random number, such as seed = 0x followed by 16 hex digits from `openssl rand -hex 8`; it can never be changed",
        |value| reader::number(value, 0, u64::MAX),
    );
    // With a known seed, a client can choose keys that all fall into one arc. Only a check warns,
    // so a trial with the reference file runs.
    if seed.is_some_and(|seed| REFERENCE.contains(&format!("\nseed = {seed:#x}\n"))) {
        top.warn_at("seed", "this is the seed of the reference file, which everybody knows: draw your own (0x and what `openssl rand -hex 8` prints) before `onceway init`; it can never be changed afterwards");
    }
    let place_by = top.required(
        "place_by",
        "say \"tenant\" (a customer's writes stay in one region) or \"key\" (the finest spread); it can never be changed",
        |value| reader::word(value, &[("tenant", PlaceBy::Tenant), ("key", PlaceBy::Key)]),
    );
    let heartbeat = top.span("heartbeat", 50, 5, failover::HEARTBEAT);
    let sections = top.tables("region");
    if sections.is_empty() {
        top.fail("no region is listed: write a [[region]] with name and weight for each");
    }
    let somewhere = top.at_key("region");
    let regions: Vec<Option<Located<RegionSpec>>> = sections.into_iter().map(region).collect();
    let pins: Vec<Option<Located<Pin>>> = top.tables("pin").into_iter().map(pin).collect();
    let (drift, skew) = clock(&top);
    let (regions, pins): (Option<Vec<_>>, Option<Vec<_>>) =
        (regions.into_iter().collect(), pins.into_iter().collect());
    let max_life = top.optional("max_life", life);
    let failover = Failover { max_life, ..failover::read(&top, heartbeat, drift, regions.as_deref()) };
    top.finish();
    let (region_places, regions): (Vec<At>, Vec<RegionSpec>) = apart(regions?);
    let (pin_places, pins): (Vec<At>, Vec<Pin>) = apart(pins?);
    // Missing values are reported already. The rest is checked all the same.
    let place_by = place_by.unwrap_or(PlaceBy::Key);
    let spec = RingSpec { seed: seed.unwrap_or_default(), place_by, regions, pins };
    if spec.regions.is_empty() {
        return None;
    }
    match Ring::build(&spec) {
        Ok(ring) => {
            let (deployment, ring) = (deployment.unwrap_or_default(), Arc::new(ring));
            Some(RingFile { deployment, pins: spec.pins, ring, drift, skew, heartbeat, failover })
        }
        Err(error) => {
            for problem in error.problems {
                let at = place(&problem, &spec, &region_places, &pin_places);
                problems.add(at.unwrap_or(&somewhere), problem);
            }
            None
        }
    }
}

fn apart<T>(all: Vec<Located<T>>) -> (Vec<At>, Vec<T>) {
    all.into_iter().map(|located| (located.at, located.value)).unzip()
}

/// Place of the last pin or region that a problem of the ring names at its beginning.
fn place<'a>(problem: &str, spec: &RingSpec, regions: &'a [At], pins: &'a [At]) -> Option<&'a At> {
    let is_of_pin = |pin: &Pin| {
        let tenant = &pin.tenant;
        problem.starts_with(&format!("the pin of tenant {tenant} "))
            || problem.starts_with(&format!("tenant {tenant} is pinned"))
    };
    let is_of_region = |region: &RegionSpec| problem.starts_with(&format!("region {} ", region.name));
    let pin = spec.pins.iter().rposition(is_of_pin).and_then(|index| pins.get(index));
    pin.or_else(|| spec.regions.iter().rposition(is_of_region).and_then(|index| regions.get(index)))
}

const REFERENCE: &str = include_str!("../../config/ring.toml");

/// Largest weight, as `Ring::build` takes it.
const MOST_WEIGHT: u64 = 10_000;

/// Default bounds on the error of clocks.
pub(super) const DRIFT: Drift = Drift { ppm: 500, margin: Duration::from_millis(50) };

/// Default time for which an answer is stored beyond the promise.
pub(super) const SKEW: Duration = Duration::from_secs(1);

fn clock(top: &Section<'_>) -> (Drift, Duration) {
    let Some(clock) = top.table("clock") else { return (DRIFT, SKEW) };
    let ppm = clock.optional("drift_ppm", |value| reader::number(value, 1, 100_000));
    let margin = clock.span("margin", 1, 10, DRIFT.margin);
    let skew = clock.span("skew", 0, 3_600, SKEW);
    clock.finish();
    (Drift { ppm: ppm.unwrap_or(DRIFT.ppm), margin }, skew)
}

fn region(section: Section<'_>) -> Option<Located<RegionSpec>> {
    let at = section.at().clone();
    let name = section.required("name", "name the region, such as name = \"us-east\"", region_name);
    let advice = "write 1, or 0 for an edge that owns no keys";
    let weight = section.required("weight", advice, |value| reader::number(value, 0, MOST_WEIGHT));
    section.finish();
    Some(Located { at, value: RegionSpec { name: name?, weight: weight? } })
}

fn pin(section: Section<'_>) -> Option<Located<Pin>> {
    let at = section.at().clone();
    let tenant = section.required("tenant", "name the tenant whose keys are pinned", tenant);
    let advice = "list the regions that may run its keys, home first";
    let regions = section.required("regions", advice, |value| reader::list(value, region_name));
    section.finish();
    Some(Located { at, value: Pin { tenant: tenant?, regions: regions? } })
}

/// Reads the name of a deployment, for people.
fn name(value: &toml::de::DeValue<'_>) -> Result<String, String> {
    let text = reader::text(value)?;
    is_name(&text)?;
    Ok(text)
}
