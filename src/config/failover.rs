//! `ring.toml`, `[failover]` and `[[witness]]`: the mode of failover, the lease, the window of
//! successors, the witnesses.
//!
//! The values are shared: they are in the digest that peers compare. `across` finds the witnesses'
//! addresses. This file must not accept a deployment that could never fail over, unless the file
//! itself says so.

use std::time::Duration;

use toml::de::DeValue;

use super::reader::{self, Located, Section};
use super::span::show;
use super::timings::timings;
use super::values::region_name;
use crate::gateway::authority::failover::{Failover, Mode};
use crate::protocol::region::RegionName;
use crate::protocol::ring_spec::{MAX_REGIONS, RegionSpec};
use crate::protocol::time::Drift;
use crate::protocol::view::LONGEST_LEASE;
use crate::protocol::window::WindowRule;

/// Default settings.
///
/// A lease of ten seconds outlives a restart of Postgres and a pause of a gateway without a
/// takeover. The window is twice the observed lag (docs/protocol.md#rule-31). Its floor covers the
/// lag that two heartbeats cannot show.
fn usual() -> Failover {
    Failover {
        mode: Mode::Automatic,
        lease: Duration::from_secs(10),
        max_life: None,
        window: WindowRule {
            percent: LEAST_PERCENT,
            floor: Duration::from_secs(1),
            beyond: Duration::from_secs(60),
        },
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

/// Other settings of the file against which these are checked.
pub(super) struct Beside<'a> {
    /// Time between two heartbeats.
    pub heartbeat: Duration,
    /// Bounds on the error of clocks.
    pub drift: Drift,
    /// The regions, if all of them could be read.
    pub regions: Option<&'a [Located<RegionSpec>]>,
}

/// Reads the settings. An error is reported, and the default stays.
pub(super) fn read(top: &Section<'_>, beside: &Beside<'_>) -> Failover {
    let mut failover = usual();
    let mut section = None;
    if top.is_text("failover") {
        failover.mode = top.optional("failover", mode).unwrap_or(failover.mode);
    } else {
        section = top.table("failover");
    }
    if let Some(section) = &section {
        settings(section, &mut failover);
    }
    failover.witnesses = witnesses(top, beside.regions);
    // The problem is reported at the lease, or at the setting that the lease does not fit.
    let (place, lease) = match &section {
        Some(section) => (section, "lease"),
        None => (top, "heartbeat"),
    };
    if let Some(text) = short_lease(failover.lease, beside) {
        place.fail_at(lease, text);
    }
    if let Some(regions) = beside.regions {
        enough_regions(top, &failover, regions);
    }
    if let Some(section) = section {
        section.finish();
    }
    failover
}

fn mode(value: &DeValue<'_>) -> Result<Mode, String> {
    reader::word(value, &[("automatic", Mode::Automatic), ("manual", Mode::Manual)])
}

fn settings(section: &Section<'_>, failover: &mut Failover) {
    let span = |key, least: u64, most: u64, usual| {
        let (least, most) = (Duration::from_millis(least), Duration::from_secs(most));
        section.optional(key, |value| reader::time(value, least, most)).unwrap_or(usual)
    };
    failover.mode = section.optional("mode", mode).unwrap_or(failover.mode);
    failover.lease = span("lease", 1_000, LONGEST_LEASE.as_secs(), failover.lease);
    let window = &mut failover.window;
    window.floor = span("floor", 0, 3_600, window.floor);
    window.beyond = span("beyond", 0, 86_400, window.beyond);
    if let Some(percent) = section.optional("multiple", |value| reader::hundredths(value, MOST_MULTIPLE)) {
        window.percent = percent;
    }
    let accepted = section.optional("unsafe_multiple", reader::flag).unwrap_or(false);
    if window.percent < LEAST_PERCENT && !accepted {
        section.fail_at(
            "multiple",
            "multiple is less than 2: the last rows of a lost region may still be on their way when its keys start elsewhere, and these would \
             run twice; write 2 or more, or unsafe_multiple = true beside it if you accept that",
        );
    }
    if window.floor > window.beyond {
        section.fail_at(
            "floor",
            format!(
                "floor {} is longer than beyond {}, so nothing would ever open by itself: shorten floor or lengthen beyond",
                show(window.floor),
                show(window.beyond)
            ),
        );
    }
    failover.drain_limit = span("drain_limit", 0, 60, failover.drain_limit);
    failover.kill_after = span("kill_after", 1_000, 300, failover.kill_after);
    if failover.drain_limit >= failover.kill_after {
        section.fail_at(
            "drain_limit",
            format!(
                "drain_limit {} must be shorter than kill_after {}, or a change would be ended while it still waits for attempts",
                show(failover.drain_limit),
                show(failover.kill_after)
            ),
        );
    }
    failover.stable_for = span("stable_for", 0, 86_400, failover.stable_for);
    let count = |value: &DeValue<'_>| reader::number(value, 1, MAX_REGIONS as u64);
    // At most 64, as read.
    failover.min_serving =
        section.optional("min_serving", count).map_or(failover.min_serving, |count| count as usize);
}

/// Reads the witnesses, in order of name.
fn witnesses(top: &Section<'_>, regions: Option<&[Located<RegionSpec>]>) -> Vec<RegionName> {
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
        section.finish();
    }
    names.sort();
    names
}

/// Reports a lease that ends before several renewals. One late heartbeat or one lost message would
/// then cost a region its keys.
fn short_lease(lease: Duration, beside: &Beside<'_>) -> Option<String> {
    let Beside { heartbeat, drift, regions: _ } = beside;
    let usable = drift.holder(lease);
    let (beats, pings) = (*heartbeat * 4, timings(*heartbeat).ping * 3);
    (usable <= beats.max(pings)).then(|| {
        format!(
            "lease {} is too short: {} of it can be relied on (clock drift {} ppm, margin {}), which must be more than four heartbeats ({}) \
             and three pings ({}); lengthen lease, or shorten heartbeat",
            show(lease),
            show(Duration::from_millis(u64::try_from(usable.as_millis()).unwrap_or(u64::MAX))),
            drift.ppm,
            show(drift.margin),
            show(beats),
            show(pings)
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
        top.fail_at(
            place,
            format!(
                "min_serving {} is more than the number of regions that own keys ({owners}), so none could ever be drained: lower it",
                failover.min_serving
            ),
        );
    }
}
