//! `ring.toml`: the agreement of all regions on placement, clocks, heartbeats and failover. And the
//! gateway's periods, as the heartbeat makes them.
//!
//! The values are shared: they are in the digest that peers compare. `protocol::ring` checks the
//! ring and builds it. A deployment that could never fail over is refused, unless the file says so.

use std::sync::Arc;
use std::time::Duration;

use toml::de::DeValue;

use super::problems::Weight;
use super::reader::{self, At, Located, Problems, Section, Source};
use super::settings::life;
use super::span::{show, whole_millis};
use super::values::{is_name, region_name, tenant};
use crate::gateway::authority::failover::{Failover, Mode};
use crate::gateway::settings::Timings;
use crate::protocol::region::RegionName;
use crate::protocol::ring::Ring;
use crate::protocol::ring_spec::{MAX_REGIONS, Pin, PlaceBy, RegionSpec, RingSpec};
use crate::protocol::time::Drift;
use crate::protocol::view::LONGEST_LEASE;
use crate::protocol::window::WindowRule;

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
        top.note_at(Weight::Known, "seed", "this is the seed of the reference file, which everybody knows: draw your own (0x and what `openssl rand -hex 8` prints) before `onceway init`; it can never be changed afterwards");
    }
    let place_by = top.required(
        "place_by",
        "say \"tenant\" (a customer's writes stay in one region) or \"key\" (the finest spread); it can never be changed",
        |value| reader::word(value, &[("tenant", PlaceBy::Tenant), ("key", PlaceBy::Key)]),
    );
    let heartbeat = top.span("heartbeat", 50, 5, HEARTBEAT);
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
    let failover = Failover { max_life, ..self::failover(&top, heartbeat, drift, regions.as_deref()) };
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

pub(super) const DRIFT: Drift = Drift { ppm: 500, margin: Duration::from_millis(50) };

/// Default time for which an answer is stored beyond the promise.
pub(super) const SKEW: Duration = Duration::from_secs(1);

fn clock(top: &Section<'_>) -> (Drift, Duration) {
    let Some(clock) = top.table("clock") else { return (DRIFT, SKEW) };
    let ppm = clock.optional("drift_ppm", |value| reader::number(value, 1, 100_000));
    let margin = clock.span("margin", 1, 10, DRIFT.margin);
    let skew = clock.span("skew", 0, 3_600, SKEW);
    (Drift { ppm: ppm.unwrap_or(DRIFT.ppm), margin }, skew)
}

fn region(section: Section<'_>) -> Option<Located<RegionSpec>> {
    let name = section.required("name", "name the region, such as name = \"us-east\"", region_name);
    let advice = "write 1, or 0 for an edge that owns no keys";
    let weight = section.required("weight", advice, |value| reader::number(value, 0, MOST_WEIGHT));
    Some(Located { at: section.at().clone(), value: RegionSpec { name: name?, weight: weight? } })
}

fn pin(section: Section<'_>) -> Option<Located<Pin>> {
    let tenant = section.required("tenant", "name the tenant whose keys are pinned", tenant);
    let advice = "list the regions that may run its keys, home first";
    let regions = section.required("regions", advice, |value| reader::list(value, region_name));
    Some(Located { at: section.at().clone(), value: Pin { tenant: tenant?, regions: regions? } })
}

fn name(value: &DeValue<'_>) -> Result<String, String> {
    let text = reader::text(value)?;
    is_name(&text)?;
    Ok(text)
}

/// Default settings.
///
/// A lease of ten seconds outlives a restart of Postgres and a pause of a gateway without a
/// takeover. The window is twice the observed lag (docs/protocol.md#rule-31). Its floor covers the
/// lag that two heartbeats cannot show.
fn usual_failover() -> Failover {
    let (floor, beyond) = (Duration::from_secs(1), Duration::from_secs(60));
    Failover {
        mode: Mode::Automatic,
        lease: Duration::from_secs(10),
        max_life: None,
        window: WindowRule { percent: LEAST_PERCENT, floor, beyond },
        drain_limit: Duration::from_millis(300),
        kill_after: Duration::from_secs(5),
        stable_for: Duration::from_secs(60),
        min_serving: 1,
        witnesses: Vec::new(),
    }
}

/// Twice the observed lag: less needs the unsafe flag.
const LEAST_PERCENT: u32 = 200;
/// A hundred times the observed lag: more is taken for a slip.
const MOST_MULTIPLE: u32 = 100;

/// The regions of the file, if all of them could be read.
type Regions<'a> = Option<&'a [Located<RegionSpec>]>;

/// Reads the settings. An error is reported, and the default stays.
fn failover(top: &Section<'_>, heartbeat: Duration, drift: Drift, regions: Regions<'_>) -> Failover {
    let mut failover = usual_failover();
    let mut section = None;
    if top.is_text("failover") {
        failover.mode = top.optional("failover", mode).unwrap_or(failover.mode);
    } else {
        section = top.table("failover");
    }
    if let Some(section) = &section {
        settings(section, &mut failover);
    }
    failover.witnesses = witnesses(top, regions);
    // The problem is reported at the lease, or at the setting that the lease does not fit.
    let (place, lease) = match &section {
        Some(section) => (section, "lease"),
        None => (top, "heartbeat"),
    };
    if let Some(text) = short_lease(failover.lease, heartbeat, drift) {
        place.fail_at(lease, text);
    }
    if let Some(regions) = regions {
        enough_regions(top, &failover, regions);
    }
    failover
}

fn mode(value: &DeValue<'_>) -> Result<Mode, String> {
    reader::word(value, &[("automatic", Mode::Automatic), ("manual", Mode::Manual)])
}

fn settings(section: &Section<'_>, failover: &mut Failover) {
    failover.mode = section.optional("mode", mode).unwrap_or(failover.mode);
    failover.lease = section.span("lease", 1_000, LONGEST_LEASE.as_secs(), failover.lease);
    let window = &mut failover.window;
    window.floor = section.span("floor", 0, 3_600, window.floor);
    window.beyond = section.span("beyond", 0, 86_400, window.beyond);
    let percent = section.optional("multiple", |value| reader::hundredths(value, MOST_MULTIPLE));
    window.percent = percent.unwrap_or(window.percent);
    if !section.flag("unsafe_multiple") && window.percent < LEAST_PERCENT {
        let why = "multiple is less than 2: the last rows of a lost region may still be on their way when its keys start \
             elsewhere, and these would run twice; write 2 or more, or unsafe_multiple = true beside it if you accept that";
        section.fail_at("multiple", why);
    }
    if window.floor > window.beyond {
        let (floor, beyond) = (show(window.floor), show(window.beyond));
        let why = format!(
            "floor {floor} is longer than beyond {beyond}, so nothing would ever open by itself: \
             shorten floor or lengthen beyond"
        );
        section.fail_at("floor", why);
    }
    failover.drain_limit = section.span("drain_limit", 0, 60, failover.drain_limit);
    failover.kill_after = section.span("kill_after", 1_000, 300, failover.kill_after);
    if failover.drain_limit >= failover.kill_after {
        let (drain, kill) = (show(failover.drain_limit), show(failover.kill_after));
        let why = format!(
            "drain_limit {drain} must be shorter than kill_after {kill}, or a change would be ended \
             while it still waits for attempts"
        );
        section.fail_at("drain_limit", why);
    }
    failover.stable_for = section.span("stable_for", 0, 86_400, failover.stable_for);
    let count = section.optional("min_serving", |value| reader::number(value, 1, MAX_REGIONS as u64));
    failover.min_serving = count.unwrap_or(failover.min_serving);
}

/// Reads the witnesses, in order of name.
fn witnesses(top: &Section<'_>, regions: Regions<'_>) -> Vec<RegionName> {
    let mut names: Vec<RegionName> = Vec::new();
    for section in top.tables("witness") {
        let advice =
            "name the witness, such as name = \"witness-1\"; region files give its address under that name";
        if let Some(name) = section.required("name", advice, region_name) {
            if regions.is_some_and(|regions| regions.iter().any(|region| region.value.name == name)) {
                section.fail(format!("witness {name} has a region's name: give it one of its own"));
            } else if names.contains(&name) {
                section.fail(format!("witness {name} is listed twice: list each witness once"));
            } else {
                names.push(name);
            }
        }
    }
    names.sort();
    names
}

/// Reports a lease that one late heartbeat or one lost message would end.
fn short_lease(lease: Duration, heartbeat: Duration, drift: Drift) -> Option<String> {
    let usable = drift.holder(lease);
    let (beats, pings) = (heartbeat * 4, timings(heartbeat).ping * 3);
    (usable <= beats.max(pings)).then(|| {
        let [lease, usable, margin] = [lease, whole_millis(usable), drift.margin].map(show);
        let (ppm, beats, pings) = (drift.ppm, show(beats), show(pings));
        format!(
            "lease {lease} is too short: {usable} of it can be relied on (clock drift {ppm} ppm, margin \
             {margin}), which must be more than four heartbeats ({beats}) and three pings ({pings}); \
             lengthen lease, or shorten heartbeat"
        )
    })
}

/// Reports settings that the number of regions does not allow.
fn enough_regions(top: &Section<'_>, failover: &Failover, regions: &[Located<RegionSpec>]) {
    let owners = regions.iter().filter(|region| region.value.weight > 0).count();
    let place = if top.has("failover") { "failover" } else { "region" };
    let voters = regions.len() + failover.witnesses.len();
    // Every region has an acceptor, an edge too. With two of them only both are a majority.
    if failover.mode == Mode::Automatic && owners > 1 && voters < 3 {
        top.fail_at(
            place,
            "two regions cannot fail over by themselves: when one is gone, the other is no majority and cannot know that it is not itself cut \
             off. Add a third voter ([[witness]] with a name), or write failover = \"manual\" (an operator decides)",
        );
    }
    if owners > 0 && failover.min_serving > owners {
        let least = failover.min_serving;
        let why = format!(
            "min_serving {least} is more than the number of regions that own keys ({owners}), so none \
             could ever be drained: lower it"
        );
        top.fail_at(place, why);
    }
}

/// Default time between two heartbeats.
pub(super) const HEARTBEAT: Duration = Duration::from_millis(250);

/// The gateway's periods and bounds.
///
/// Only the heartbeat is a setting so far. The others follow from it, or from the bounds of the
/// store's statements (1.4 s each, at most two in a claim).
pub(super) fn timings(heartbeat: Duration) -> Timings {
    let ms = Duration::from_millis;
    Timings {
        heartbeat,
        ping: ms(250),
        silent_after: ms(1_000),
        poll: ms(100),
        attach_poll: ms(25),
        body_within: ms(30_000),
        claim_within: ms(4_000),
        settle_within: ms(3_000),
        probe_within: ms(3_000),
        jobs_poll: ms(1_000),
        sweep: ms(2_000),
        reap: ms(5_000),
        reap_pause: ms(20),
    }
}
