//! Advice in words for `ring.toml` and `routes.toml`, made from the figures of a study.
//!
//! The rules, in this order. *Late doubles* are the doubles that waiting would have shown. Not
//! counted are those that a route allows, those on routes with escrow, and those whose claim had
//! not left its region.
//! 1. `multiple`: the smallest one of at least 2 without late doubles. If no point is without:
//!    start at the smallest one of at least 2. Take each next step if it at least halves the late
//!    doubles, and spares more of them than it makes clients give up keys.
//! 2. `floor`: the same rule, among the points with that multiple. It stays as it is if no other
//!    was played.
//! 3. `escrow`: for each route that had a double at that point, allows none and has no escrow. The
//!    advice is `"claim"`, or `"claim+answer"` if that leaves at most half as many keys in doubt.
//!
//! An event that was seen no time in N keys is reported as "at most 3 in N" (the rule of three, 95
//! %). The advice also names the questions that the figures cannot answer. It must not say anything
//! that no figure says, nor depend on anything but the study.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::rivals::Design;
use crate::study::{LEAST_SAFE, Row, Study};
use crate::sums::Figures;

/// The settings in which comparable points may differ: they only change how long regions wait.
const WAITS: [&str; 2] = ["failover.multiple", "failover.floor"];
const ESCROW: &str = "route.escrow";

/// The recommended settings, and why.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Advice {
    /// The multiple; none if no point with one of at least 2 was played.
    pub multiple: Option<f64>,
    /// The floor.
    pub floor_ms: Option<u64>,
    /// The escrow kind of each route that needs one.
    pub escrow: BTreeMap<String, String>,
    /// The reasons, with the figures that they rest on.
    pub reasons: Vec<String>,
    /// Questions that the figures cannot answer.
    pub limits: Vec<String>,
}

/// Derives the advice from a study.
pub fn advise(study: &Study) -> Advice {
    let mut advice = Advice { limits: limits(study), ..Advice::default() };
    let waits: Vec<&Row> = study.rows.iter().filter(|row| only_waits(row)).collect();
    let least = waits.iter().map(|row| row.floor_ms).collect::<Vec<_>>();
    // The floor that most points have is the ring file's: others were varied beside it.
    let usual =
        least.iter().copied().max_by_key(|floor| least.iter().filter(|other| *other == floor).count());
    let by_multiple = |row: &&&Row| Some(row.floor_ms) == usual && row.multiple >= LEAST_SAFE;
    let mut multiples: Vec<&Row> = waits.iter().filter(by_multiple).copied().collect();
    multiples.sort_by(|one, other| one.multiple.total_cmp(&other.multiple));
    let Some(chosen) = pick(study, &multiples) else {
        advice.reasons.push(format!(
            "No point with a multiple of {LEAST_SAFE} or more was played, so nothing can be advised: sweep --vary failover.multiple=2,3,5."
        ));
        return advice;
    };
    advice.multiple = Some(chosen.multiple);
    advice.reasons.push(why_multiple(study, chosen, &multiples));
    advice.reasons.extend(unsafe_points(study, &waits, chosen));
    let mut floors: Vec<&Row> = waits.iter().filter(|row| row.multiple == chosen.multiple).copied().collect();
    floors.sort_by_key(|row| row.floor_ms);
    floors.dedup_by_key(|row| row.floor_ms);
    let floor = pick(study, &floors).unwrap_or(chosen);
    advice.floor_ms = Some(floor.floor_ms);
    advice.reasons.push(why_floor(study, floor, &floors));
    escrow(study, floor, &mut advice);
    advice
}

fn only_waits(row: &Row) -> bool {
    row.design == Design::Onceway && row.settings.iter().all(|(key, _)| WAITS.contains(&key.as_str()))
}

/// Doubles that waiting would have shown.
fn late(study: &Study, figures: &Figures) -> u64 {
    let waits = |route: &str| study.routes.get(route).is_none_or(|is| is.escrow == "off");
    let of = figures.routes.iter().filter(|(route, _)| waits(route));
    of.map(|(_, of)| of.keys.unasked().saturating_sub(of.keys.doubles_gone)).sum()
}

/// Picks a point by the first rule; `rows` are sorted by how long they wait.
fn pick<'a>(study: &Study, rows: &[&'a Row]) -> Option<&'a Row> {
    if let Some(row) = rows.iter().find(|row| late(study, &row.figures) == 0) {
        return Some(row);
    }
    let mut chosen = *rows.first()?;
    for row in &rows[1..] {
        let (before, after) = (late(study, &chosen.figures), late(study, &row.figures));
        let given_up = row.figures.keys.given_up.saturating_sub(chosen.figures.keys.given_up);
        if after * 2 <= before && before - after > given_up {
            chosen = row;
        }
    }
    Some(chosen)
}

fn why_multiple(study: &Study, chosen: &Row, multiples: &[&Row]) -> String {
    let figures = &chosen.figures;
    let (late_here, keys) = (late(study, figures), figures.keys.begun);
    let rule = match late_here {
        0 => format!(
            "it is the smallest of at least {LEAST_SAFE} with which no key ran twice for want of waiting: none of {keys} keys, so at most 3 in {keys} (95 %)"
        ),
        _ => format!(
            "{late_here} of {keys} keys ran twice for want of waiting, and no longer wait that was played at least halves that without making \
             clients give up as many keys"
        ),
    };
    let others = multiples.iter().filter(|row| row.multiple != chosen.multiple).map(|row| {
        format!(
            "{}: {} for want of waiting, {} without service, {} keys refused",
            row.multiple,
            late(study, &row.figures),
            seconds(row.figures.without_service.p50_ms),
            row.figures.keys.given_up
        )
    });
    let others: Vec<String> = others.collect();
    let beside = if others.is_empty() {
        "no other was played".to_owned()
    } else {
        format!("the others: {}", others.join("; "))
    };
    format!(
        "multiple = {}: {rule}. The arc that was hit worst was without service for {} (median; {} at worst) while {} keys were refused; {beside}. \
         {} more ran twice because their claims had not left the region that was lost: no multiple helps there.",
        chosen.multiple,
        seconds(figures.without_service.p50_ms),
        seconds(figures.without_service.max_ms),
        figures.keys.given_up,
        figures.keys.doubles_gone
    )
}

/// The price of the points that need an unsafe multiple, which a ring file may not have.
fn unsafe_points(study: &Study, waits: &[&Row], chosen: &Row) -> Option<String> {
    let told = waits.iter().filter(|row| row.needs_unsafe_multiple).map(|row| {
        format!(
            "with {}, {} keys ran twice for want of waiting, and {} were without service",
            row.multiple,
            late(study, &row.figures),
            seconds(row.figures.without_service.p50_ms)
        )
    });
    let told: Vec<String> = told.collect();
    (!told.is_empty()).then(|| {
        format!(
            "Below {LEAST_SAFE} (unsafe_multiple = true): {}; with {}, {} keys and {}. What was measured up to the loss says how long rows took, not how \
             long the last ones will.",
            told.join("; "),
            chosen.multiple,
            late(study, &chosen.figures),
            seconds(chosen.figures.without_service.p50_ms)
        )
    })
}

fn why_floor(study: &Study, floor: &Row, floors: &[&Row]) -> String {
    let shown = seconds(floor.floor_ms);
    if floors.len() < 2 {
        return format!(
            "floor = \"{}ms\", as it is ({shown}): no other was played (sweep --vary failover.floor=500ms,1s,3s).",
            floor.floor_ms
        );
    }
    let all: Vec<String> = floors
        .iter()
        .map(|row| format!("{}: {} for want of waiting", seconds(row.floor_ms), late(study, &row.figures)))
        .collect();
    format!("floor = \"{}ms\" ({shown}), by the same rule: {}.", floor.floor_ms, all.join("; "))
}

fn escrow(study: &Study, chosen: &Row, advice: &mut Advice) {
    let with = |kind: &str| {
        let is = |row: &&Row| {
            row.design == Design::Onceway && row.settings == [(ESCROW.to_owned(), kind.to_owned())]
        };
        study.rows.iter().find(is).map(|row| &row.figures)
    };
    let (claim, answer) = (with("claim"), with("claim+answer"));
    let kind = match (claim, answer) {
        (Some(claim), Some(answer))
            if answer.keys.in_doubt * 2 <= claim.keys.in_doubt && claim.keys.in_doubt > 0 =>
        {
            "claim+answer"
        }
        _ => "claim",
    };
    for (name, route) in &study.routes {
        let Some(of) = chosen.figures.routes.get(name) else { continue };
        let (doubles, keys) = (of.keys.unasked(), of.keys.begun);
        let seen = format!("{doubles} of {keys} keys");
        let bound = format!("none of {keys} keys ran twice, so at most 3 in {keys} (95 %)");
        advice.reasons.push(match (route.recovery.as_str(), route.escrow.as_str()) {
            ("rerun", _) => format!("Route {name} asks for a second effect rather than none (recovery = \"rerun\"): no escrow."),
            (_, "off") if doubles == 0 => {
                format!("Route {name}: {bound}. Put it under escrow if even that is too much; else the wait is enough.")
            }
            (_, "off") => {
                advice.escrow.insert(name.clone(), kind.to_owned());
                format!("Route {name}: {seen} ran twice. If it cannot bear that, write escrow = \"{kind}\"{}.", worth(name, kind, claim, answer))
            }
            (_, escrow) if doubles == 0 => format!("Route {name} is under escrow (\"{escrow}\"): {bound}. Keep it."),
            (_, escrow) => format!("Route {name} is under escrow (\"{escrow}\") and {seen} ran twice all the same: replay the seeds and see why."),
        });
    }
    advice.reasons.extend(price(study, chosen, kind, claim, answer));
}

/// The figures of a route under escrow.
fn worth(name: &str, kind: &str, claim: Option<&Figures>, answer: Option<&Figures>) -> String {
    let figures = if kind == "claim" { claim } else { answer };
    let Some(of) = figures.and_then(|figures| figures.routes.get(name)) else {
        return String::new();
    };
    let (doubles, keys) = (of.keys.unasked(), of.keys.begun);
    match doubles {
        0 => format!(
            ": then none of {keys} did, so at most 3 in {keys} (95 %), and it was without service for {} (median)",
            seconds(of.without_service.p50_ms)
        ),
        some => format!(": then {some} of {keys} did"),
    }
}

/// The price of escrow.
fn price(
    study: &Study,
    chosen: &Row,
    kind: &str,
    claim: Option<&Figures>,
    answer: Option<&Figures>,
) -> Option<String> {
    let figures = if kind == "claim" { claim } else { answer }?;
    let already = study.routes.values().filter(|route| route.escrow != "off").count();
    let beside = if already == 0 {
        String::new()
    } else {
        format!(", {already} of the routes being under escrow before")
    };
    Some(format!(
        "The price of escrow = \"{kind}\" on all routes: {} ms added at the median instead of {} ms, and {} hops per hundred keys instead of {}{beside}.",
        figures.added_latency_ms.p50,
        chosen.figures.added_latency_ms.p50,
        figures.hops_per_hundred,
        chosen.figures.hops_per_hundred
    ))
}

fn limits(study: &Study) -> Vec<String> {
    vec![
        "Whether your lag is like this: how often rows wait behind large transactions, and for how long, is the scenario's assumption. Compare it \
         with the lag that your gateways measured, and write it into the scenario before you believe a number."
            .to_owned(),
        "How often your clients send a key again is the scenario's assumption, too (again, at_two, retries): a double takes a second request."
            .to_owned(),
        format!(
            "Anything rarer than about 3 in {} keys per point: play more seeds (--count).",
            study.rows.iter().map(|row| row.figures.keys.begun).max().unwrap_or(0)
        ),
        "Faults that the scenario does not have: two regions at once, clocks beyond the allowed drift, operators who accept a risk too early."
            .to_owned(),
        "What a double costs you, against what a minute without service does: the figures say how many of each, the choice is yours.".to_owned(),
    ]
}

fn seconds(ms: u64) -> String {
    format!("{:.1} s", ms as f64 / 1_000.0)
}

#[cfg(test)]
mod tests;
