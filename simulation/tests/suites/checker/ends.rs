//! Doubles, which only the end shows: each that a store shows is in its own journal, with the
//! explanation. A double that nothing explains took effect twice.

use onceway::ports::upkeep::Entry;
use onceway::protocol::double::Why;
use onceway::protocol::examples;
use onceway::protocol::time::Date;
use simulation::table::History;

use super::*;

fn row(region: &str, nonce: u128, state: State) -> Row {
    let row = examples::row(origin(region), token(1, 1), nonce, state);
    Row { request_id: RequestId(1), expires: Date(1), ..row }
}

fn settled() -> State {
    let answer = Answer { status: 200, headers: Vec::new(), body: AnswerBody::NotKept };
    State::Settled { answer: Arc::new(answer), age: ms(1), expired: false }
}

/// A store of a that shows these rows of a key, and whose journal has this entry about it.
fn shows(id: &KeyId, rows: Vec<Row>, kind: &str, explained: Option<Why>) -> Truth {
    let (token, request_id, status, actor, reason) = (None, None, None, None, None);
    let kind = kind.to_owned();
    let entry = Entry { at: Date(1), kind, token, request_id, status, actor, reason, explained };
    Truth {
        origin: origin("a"),
        history: History::default(),
        writes: Vec::new(),
        rows: [(id.clone(), rows)].into(),
        journal: vec![(Some(id.clone()), entry)],
    }
}

pub(super) fn effect() -> Happening {
    Happening {
        at: ms(1),
        region: name("a"),
        token: token(1, 1),
        request_id: RequestId(1),
        status: 201,
        body: Default::default(),
        asked: Default::default(),
        queued: false,
        over_by: None,
    }
}

#[test]
fn a_double_that_some_store_shows_is_in_a_journal() {
    let breaks = |count: usize, rows: &[&str], kind: &str| {
        broken_of(count, rows.iter().map(|region| row(region, 1, settled())).collect(), kind, None)
    };
    assert_eq!(breaks(2, &["a", "b"], "double"), []);
    assert_eq!(breaks(1, &["a", "b"], "late"), [], "an upstream that honours keys");
    assert_eq!(breaks(2, &["a"], "late"), [], "the rows have not met");
    assert_eq!(breaks(2, &["a", "b"], "late"), [Invariant::DoublesJournalled]);
}

/// The invariants that a store breaks if it shows these rows and its journal has this entry. The
/// key took effect so many times.
fn broken_of(count: usize, rows: Vec<Row>, kind: &str, explained: Option<Why>) -> Vec<Invariant> {
    let id = key(&first());
    let store = shows(&id, rows, kind, explained);
    ended(&checker(), &[(id, vec![effect(); count])].into(), vec![store])
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
