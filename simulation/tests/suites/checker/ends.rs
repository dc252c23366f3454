//! Doubles, which only the end shows: each that a store shows is in its own journal, with the
//! explanation. A double that nothing explains took effect twice. And what is chosen and held by
//! forged votes and grants, and replies against effects (`same-answer`, `asks-the-same`).

use http::StatusCode;
use onceway::ports::upkeep::Entry;
use onceway::protocol::double::Why;
use onceway::protocol::examples;
use onceway::protocol::time::Date;
use simulation::Reply;
use simulation::play::agreed::{chosen_by, leased_by};
use simulation::play::answers::{SAME_ANSWER, wrong};
use simulation::play::log::Asked;
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
    assert_eq!(broken(vec![row("a", 1, settled()), row("b", 1, settled())], "late", None), [], "one attempt");
    let open = State::InDoubt { status: None, left: ms(0), past: ms(0) };
    assert_eq!(broken(vec![row("a", 1, settled()), row("b", 2, open)], "late", None), [], "no answer yet");
}

#[test]
fn a_lease_runs_while_a_majority_has_granted_it() {
    let view = first();
    let grant = |at, id, until| leases::grant("a", at..until, id, &view);
    let of = |all: &[Granted]| -> Vec<(Duration, Duration)> {
        leased_by(all.to_vec(), ms(900)).into_iter().map(|lease| (lease.from, lease.to)).collect()
    };
    assert_eq!(of(&[grant(0, 1, 100)]), [], "one of three");
    assert_eq!(of(&[grant(0, 1, 100), grant(10, 2, 90)]), [(ms(10), ms(90))]);
    // A renewal in time makes it longer, a late one begins another. Nothing is known beyond now.
    assert_eq!(of(&[grant(0, 1, 100), grant(10, 2, 90), grant(50, 3, 150)]), [(ms(10), ms(100))]);
    let late =
        [grant(0, 1, 100), grant(10, 2, 90), grant(200, 1, 300), grant(210, 3, 2_000), grant(220, 1, 2_000)];
    assert_eq!(of(&late), [(ms(10), ms(90)), (ms(210), ms(900))]);
}

#[test]
fn a_view_is_chosen_by_its_last_vote() {
    let view = first();
    let vote = |at, id| Held { at: ms(at), ..held(id, 1, Some((1, &view))) };
    assert!(chosen_by(vec![vote(5, 1), vote(6, 1)]).is_empty(), "the same one twice");
    let chosen = chosen_by(vec![vote(9, 2), vote(5, 1), vote(12, 3)]);
    assert_eq!(chosen.len(), 1);
    assert_eq!((chosen[0].at, &chosen[0].by), (ms(9), &vec![name("a"), name("b")]));
}

/// The breaches of these replies under one key, if upstreams performed those effects.
fn wrongs(
    received: &[(&'static str, &'static str)],
    performed: &[(&'static str, &'static str)],
) -> Vec<String> {
    let (id, at) = (key(&first()), name("a"));
    let asked = |(body, answer): &(&'static str, &'static str)| {
        let reply = Reply::Answered {
            status: StatusCode::CREATED,
            code: String::new(),
            body: Bytes::from(*answer),
            replayed: false,
            by: String::new(),
            retry_after: None,
        };
        let now = Instant::now();
        Asked { begun: now, ended: now, id: id.clone(), body, at: at.clone(), reply }
    };
    let happened = |(request, answer): &(&'static str, &'static str)| Happening {
        body: Bytes::from(*answer),
        asked: Bytes::from(*request),
        ..effect()
    };
    let ledger = [(id.clone(), performed.iter().map(happened).collect())].into();
    let all: Vec<Asked> = received.iter().map(asked).collect();
    wrong(&all, &ledger).into_iter().map(|(invariant, _)| invariant).collect()
}

#[test]
fn another_request_must_not_get_the_answer() {
    let (one, other) = ("{}", "{\"other\":1}");
    assert_eq!(wrongs(&[(one, "x"), (one, "x")], &[(one, "x")]), [""; 0]);
    assert_eq!(wrongs(&[(one, "x"), (other, "x")], &[(one, "x")]), ["asks-the-same (rule 1)"]);
    let both = [(one, "x"), (other, "y")];
    assert_eq!(wrongs(&both, &both), [""; 0], "two that knew nothing of one another");
}

#[test]
fn an_answer_is_an_upstreams_and_there_are_no_more_than_effects() {
    assert_eq!(wrongs(&[("{}", "z")], &[("{}", "x")]), [SAME_ANSWER]);
    assert_eq!(wrongs(&[("{}", "z")], &[]), [SAME_ANSWER]);
    assert_eq!(wrongs(&[("{}", "x"), ("{}", "y")], &[("{}", "x"), ("{}", "y")]), [""; 0]);
    assert_eq!(wrongs(&[("{}", "x"), ("{}", "y")], &[("{}", "x")]), [SAME_ANSWER, SAME_ANSWER]);
}
