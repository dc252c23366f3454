//! Tests of the rules that advise a multiple, a floor and escrow.
//!
//! Studies are made by hand here. The tests must not rely on the result of a play, which has tests
//! of its own.

use super::*;
use crate::outcome::Keys;
use crate::study::RouteIs;
use crate::sums::{Figures, OfRoute, Spread};

const KEYS: u64 = 30_000;

/// A point at which route `notes` had so many doubles, some of claims that had not left.
fn row(settings: &[(&str, &str)], doubles: u64, gone: u64, given_up: u64) -> Row {
    let value = |wanted: &str| settings.iter().find(|(key, _)| *key == wanted).map(|(_, value)| *value);
    let keys = Keys { begun: KEYS, doubles, doubles_gone: gone, given_up, ..Keys::default() };
    let of = OfRoute { keys: keys.clone(), ..OfRoute::default() };
    let multiple = value("failover.multiple").map_or(2.0, |text| text.parse().unwrap());
    Row {
        name: "a point".to_owned(),
        settings: settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        multiple,
        needs_unsafe_multiple: multiple < LEAST_SAFE,
        floor_ms: value("failover.floor").map_or(1_000, |text| text.parse().unwrap()),
        figures: Figures {
            keys,
            routes: [("notes".to_owned(), of)].into(),
            without_service: Spread { p50_ms: (multiple * 5_000.0) as u64, max_ms: 40_000 },
            ..Figures::default()
        },
        ..Row::default()
    }
}

fn multiple(value: &'static str, doubles: u64, gone: u64, given_up: u64) -> Row {
    row(&[("failover.multiple", value)], doubles, gone, given_up)
}

fn study(recovery: &str, escrow: &str, rows: Vec<Row>) -> Study {
    let route = RouteIs { recovery: recovery.to_owned(), escrow: escrow.to_owned() };
    Study { rows, routes: [("notes".to_owned(), route)].into(), ..Study::default() }
}

fn advised(rows: Vec<Row>) -> Advice {
    advise(&study("park", "off", rows))
}

#[test]
fn the_smallest_safe_multiple_without_late_doubles_is_advised() {
    let rows = vec![
        multiple("5", 4, 4, 0),
        multiple("3", 4, 4, 0),
        multiple("2", 6, 4, 0),
        multiple("1", 4, 4, 0),
        multiple("0", 90, 4, 0),
    ];
    let advice = advised(rows);
    assert_eq!((advice.multiple, advice.floor_ms), (Some(3.0), Some(1_000)));
    let why = &advice.reasons[0];
    for what in [
        "multiple = 3",
        "at most 3 in 30000",
        "4 more ran twice because their claims had not left",
        "2: 2 for want",
    ] {
        assert!(why.contains(what), "{what}: {why}");
    }
    assert!(advice.reasons[1].contains("with 0, 86 keys ran twice"), "{}", advice.reasons[1]);
}

#[test]
fn a_longer_wait_must_halve_the_late_doubles_and_spare_more_than_it_refuses() {
    let of = |three: Row| advised(vec![multiple("2", 20, 0, 5), three]).multiple;
    assert_eq!(of(multiple("3", 10, 0, 5)), Some(3.0));
    assert_eq!(of(multiple("3", 11, 0, 5)), Some(2.0), "not halved");
    assert_eq!(of(multiple("3", 10, 0, 15)), Some(2.0), "spares ten and refuses ten more");
    let far = vec![multiple("2", 20, 0, 5), multiple("3", 15, 0, 5), multiple("5", 10, 0, 5)];
    assert_eq!(advised(far).multiple, Some(5.0), "halved in two steps");
}

#[test]
fn nothing_below_two_and_no_other_design_is_advised() {
    let mut rival = multiple("2", 0, 0, 0);
    rival.design = Design::Local;
    let advice = advised(vec![rival, multiple("1", 0, 0, 0), row(&[("failover.lease", "5s")], 0, 0, 0)]);
    assert_eq!((advice.multiple, advice.floor_ms), (None, None));
    assert!(advice.reasons[0].contains("sweep --vary failover.multiple=2,3,5"), "{}", advice.reasons[0]);
}

#[test]
fn a_floor_is_advised_only_where_others_were_played() {
    let with = |floor, doubles| row(&[("failover.multiple", "2"), ("failover.floor", floor)], doubles, 0, 0);
    let advice = advised(vec![multiple("2", 9, 0, 0), with("500", 20), with("3000", 0), with("9000", 0)]);
    assert_eq!((advice.multiple, advice.floor_ms), (Some(2.0), Some(3_000)));
    assert!(advice.reasons.iter().any(|reason| reason.contains("9.0 s: 0 for want of waiting")));
    let alone = advised(vec![multiple("2", 9, 0, 0)]);
    assert!(alone.reasons.iter().any(|reason| reason.contains("no other was played")), "{:?}", alone.reasons);
}

#[test]
fn escrow_is_for_routes_that_doubled_and_did_not_ask_for_it() {
    let of = |recovery, escrow, doubles| {
        let claim = row(&[("route.escrow", "claim")], 0, 0, 8);
        let advice = advise(&study(recovery, escrow, vec![multiple("2", doubles, doubles, 0), claim]));
        (advice.escrow.get("notes").cloned(), advice.reasons.join("\n"))
    };
    let (escrow, why) = of("park", "off", 5);
    assert_eq!(escrow.as_deref(), Some("claim"));
    assert!(why.contains("5 of 30000 keys ran twice") && why.contains("none of 30000 did"), "{why}");
    assert_eq!(of("park", "off", 0).0, None);
    assert_eq!(of("rerun", "off", 5).0, None);
    let (escrow, why) = of("probe", "claim", 5);
    assert!(escrow.is_none() && why.contains("ran twice all the same"), "{why}");
    // Waiting cannot prevent doubles of a route under escrow, so they do not count.
    assert_eq!(
        advise(&study("park", "claim", vec![multiple("2", 5, 0, 0), multiple("3", 0, 0, 0)])).multiple,
        Some(2.0)
    );
}

#[test]
fn the_answer_is_lodged_too_where_that_spares_doubts() {
    let of = |claim_doubts, answer_doubts| {
        let with = |kind, in_doubt| {
            let mut row = row(&[("route.escrow", kind)], 0, 0, 0);
            row.figures.keys.in_doubt = in_doubt;
            row
        };
        let rows =
            vec![multiple("2", 5, 5, 0), with("claim", claim_doubts), with("claim+answer", answer_doubts)];
        advised(rows).escrow["notes"].clone()
    };
    assert_eq!(
        (of(10, 5).as_str(), of(10, 6).as_str(), of(0, 0).as_str()),
        ("claim+answer", "claim", "claim")
    );
}

#[test]
fn limits_name_what_was_assumed_and_how_rare_is_too_rare() {
    let limits = advised(vec![multiple("2", 0, 0, 0)]).limits.join("\n");
    assert!(limits.contains("lag") && limits.contains("3 in 30000 keys"), "{limits}");
}
