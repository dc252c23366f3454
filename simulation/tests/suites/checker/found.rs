//! A double that a store shows is in its own journal, with the explanation. A double that nothing
//! explains took effect twice.
//!
//! [`super`] forges the histories.

use super::*;

/// The invariants that a store breaks if it shows these rows and its journal has this entry. The
/// key took effect so many times.
fn broken_of(count: usize, rows: Vec<Row>, kind: &str, explained: Option<Why>) -> Vec<Invariant> {
    let id = key(&first());
    let store = shows(&id, rows, kind, explained);
    ended(&Checker::new(BTreeSet::new(), RULE), &effects(&id, count), vec![store])
}

/// The same of a key that took effect twice if its journal has a double, else once.
fn broken(rows: Vec<Row>, kind: &str, explained: Option<Why>) -> Vec<Invariant> {
    broken_of(if kind == "double" { 2 } else { 1 }, rows, kind, explained)
}

#[test]
fn an_unexplained_double_of_one_effect_is_a_false_alarm() {
    let twice = || vec![row("a", 1, settled()), row("b", 2, settled())];
    assert_eq!(broken_of(2, twice(), "double", Some(Why::Unexplained)), []);
    assert_eq!(broken_of(1, twice(), "double", Some(Why::Unexplained)), [Invariant::AlarmsAreTrue]);
    let mut risky = twice();
    risky[1].risk = vec![name("a")];
    assert_eq!(broken_of(1, risky, "double", Some(Why::Risk)), [], "a risk that took no effect");
}

#[test]
fn a_store_journals_each_double_that_its_rows_show() {
    let twice = || vec![row("a", 1, settled()), row("b", 2, settled())];
    assert_eq!(broken(twice(), "double", Some(Why::Unexplained)), []);
    assert_eq!(broken(twice(), "late", None), [Invariant::DoublesFound], "no journal, no effect asked for");
    assert_eq!(broken(twice(), "double", Some(Why::Risk)), [Invariant::DoublesFound], "nothing explains it");
    let mut risky = twice();
    risky[1].risk = vec![name("a")];
    assert_eq!(broken(risky.clone(), "double", Some(Why::Risk)), []);
    assert_eq!(broken(risky, "double", Some(Why::Unexplained)), [Invariant::DoublesFound]);
    let mut known = twice();
    known[0].over = vec![(origin("b"), token(1, 1))];
    assert_eq!(broken(known, "double", Some(Why::Over)), []);
    let same = vec![row("a", 1, settled()), row("b", 1, settled())];
    assert_eq!(broken(same, "late", None), [], "one attempt");
    let open = State::InDoubt { status: None, left: ms(0), past: ms(0) };
    assert_eq!(broken(vec![row("a", 1, settled()), row("b", 2, open)], "late", None), [], "no answer yet");
}
