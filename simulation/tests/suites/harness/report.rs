//! The page of a report: well formed whatever its texts hold, and whole without any other file. The
//! answer of a study: which point to take.

use simulation::Outcome;
use simulation::outcome::{FaultSpan, LeaseSpan, Second, ServingSpan, ViewSpan};
use simulation::report::{Report, html};
use simulation::study::{LEAST_SAFE, Row, Study};
use simulation::sums::Figures;

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
