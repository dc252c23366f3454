//! The figures of many seeds, the page of a report and the answer of a study: they are forged, and
//! no seed is played.

use std::time::Duration;

use onceway::ports::Dice;
use simulation::Outcome;
use simulation::dice::SimDice;
use simulation::outcome::{FaultSpan, Keys, LeaseSpan, Outage, Second, ServingSpan, ViewSpan};
use simulation::report::{Report, html};
use simulation::study::{LEAST_SAFE, Row, Study};
use simulation::sums::{Figures, Latency, Spread, Sums};
use simulation::words::moment;

fn is_well_formed(text: &str) -> Result<(), String> {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = text.strip_prefix("<!DOCTYPE html>").ok_or("no doctype")?;
    while let Some((before, after)) = rest.split_once('<') {
        if before.contains('>') {
            return Err(format!("a bare > in {before:?}"));
        }
        let (tag, next) = after.split_once('>').ok_or("a tag without an end")?;
        let name = tag.split(|letter: char| letter.is_whitespace()).next().unwrap_or_default();
        match (name.strip_prefix('/'), tag.ends_with('/')) {
            (Some(name), _) if open.pop() == Some(name) => {}
            (Some(name), _) => return Err(format!("{name} ends, but is not open")),
            (None, true) => {}
            (None, false) => open.push(name),
        }
        if tag.matches('"').count() % 2 != 0 {
            return Err(format!("a quote in {tag:?}"));
        }
        rest = next;
    }
    let unescaped =
        |part: &str| !["amp;", "lt;", "gt;", "quot;", "#39;"].iter().any(|name| part.starts_with(name));
    match text.split('&').skip(1).find(|part| unescaped(part)) {
        Some(part) => Err(format!("a bare & before {part:.20}")),
        None if open.is_empty() => Ok(()),
        None => Err(format!("never closed: {open:?}")),
    }
}

fn report(text: &str) -> Report {
    let row =
        Row { name: text.to_owned(), settings: vec![(text.to_owned(), text.to_owned())], ..Row::default() };
    let study =
        Study { scenario: text.to_owned(), title: text.to_owned(), rows: vec![row], ..Study::default() };
    let fault =
        FaultSpan { kind: text.to_owned(), place: text.to_owned(), from_ms: 1, to_ms: 2, mattered: true };
    let shown = Outcome {
        serving: vec![ServingSpan { region: text.to_owned(), from_ms: 0, to_ms: 9_000 }],
        leases: vec![LeaseSpan { region: text.to_owned(), epoch: 2, from_ms: 0, to_ms: 700 }],
        faults: vec![FaultSpan { place: "a>b".to_owned(), ..fault.clone() }, fault],
        views: vec![ViewSpan { epoch: 2, at_ms: 5, standings: [(text.to_owned(), text.to_owned())].into() }],
        seconds: vec![Second { answered: 3, refused: 1, ..Second::default() }],
        ..Outcome::default()
    };
    Report { study, shown }
}

#[test]
fn a_page_is_well_formed_whatever_its_texts_hold() {
    for text in ["plain", "</title><script>alert(1)</script>", "\"' & <b>\u{0}\n"] {
        let page = html(&report(text));
        assert_eq!(is_well_formed(&page), Ok(()), "{text:?}");
        assert!(!page.contains("<script") && !page.contains("<b>"), "{text:?}");
    }
    assert!(
        is_well_formed("<!DOCTYPE html><p><b></p>").is_err()
            && is_well_formed("<!DOCTYPE html><p>&x</p>").is_err()
    );
}

#[test]
fn a_page_needs_nothing_else() {
    let page = html(&report("plain"));
    for outside in ["http:", "https:", "src=", "url(", "@import", "<link", "<script", "<iframe"] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert_eq!(page.matches("<table>").count(), 4);
    assert!(page.contains("prefers-color-scheme: dark"));
}

fn row(name: &str, multiple: f64, doubles: (f64, f64, f64)) -> Row {
    let (least, rate, most) = doubles;
    let figures = Figures { doubles_per_million: rate, doubles_between: (least, most), ..Figures::default() };
    let escrow = name.strip_prefix("escrow ").map(|kind| ("route.escrow".to_owned(), kind.to_owned()));
    Row {
        name: name.to_owned(),
        settings: escrow.into_iter().collect(),
        multiple,
        needs_unsafe_multiple: multiple < LEAST_SAFE,
        figures,
        ..Row::default()
    }
}

#[test]
fn the_answer_names_the_first_point_near_the_best() {
    let mut study = Study {
        count: 200,
        rows: vec![
            row("multiple 1", 1.0, (0.0, 0.0, 1.0)),
            row("multiple 2", 2.0, (178.0, 301.0, 476.0)),
            row("multiple 3", 3.0, (153.0, 268.0, 435.0)),
            row("escrow claim", 2.0, (0.0, 0.0, 50.0)),
        ],
        ..Study::default()
    };
    let [held, best, without] = &study.answer()[..] else { panic!("{:?}", study.answer()) };
    assert_eq!(held, "Every invariant held, in 200 seeds at each point.");
    assert!(best.starts_with("Fewest doubles: escrow claim, with 0 doubles"), "{best}");
    assert!(without.starts_with("Fewest without escrow: multiple 2, with 301"), "{without}");
    // Where the bounds of a later one lie below, it is better beyond doubt.
    study.rows[2] = row("multiple 3", 3.0, (100.0, 120.0, 150.0));
    assert!(study.answer()[2].contains("multiple 3"), "{:?}", study.answer());
    study.rows[1].figures.broke = 1;
    assert_eq!(study.answer()[0], "An invariant BROKE at: multiple 2.");
    study.rows.truncate(1);
    assert_eq!(study.answer()[1], "A ring file takes none of these points as it is.");
}

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
