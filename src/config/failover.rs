//! `ring.toml`, `[failover]` and `[[witness]]`: the mode of failover, the lease, the window of
//! successors, the witnesses. And the gateway's periods, as the heartbeat makes them.
//!
//! The values are shared: they are in the digest that peers compare. A deployment that could never
//! fail over is refused, unless the file itself says so.

use std::time::Duration;

use toml::de::DeValue;

use super::reader::{self, Located, Section};
use super::span::{show, whole_millis};
use super::values::region_name;
use crate::gateway::authority::failover::{Failover, Mode};
use crate::gateway::settings::Timings;
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

/// Reads the settings. An error is reported, and the default stays. `regions` are those of the
/// file, if all of them could be read.
pub(super) fn read(
    top: &Section<'_>,
    heartbeat: Duration,
    drift: Drift,
    regions: Option<&[Located<RegionSpec>]>,
) -> Failover {
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
    if let Some(section) = section {
        section.finish();
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
