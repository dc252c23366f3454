//! Forged votes, grants, replies and effects: the chosen views and held leases, and the answers to
//! clients against the effects at upstreams (`same-answer`, `asks-the-same`).

use http::StatusCode;
use simulation::Reply;
use simulation::play::agreed::{chosen_by, leased_by};
use simulation::play::answers::{SAME_ANSWER, wrong};
use simulation::play::log::Asked;

use super::*;

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
fn broken(
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
        ..ends::effect()
    };
    let ledger = [(id.clone(), performed.iter().map(happened).collect())].into();
    let all: Vec<Asked> = received.iter().map(asked).collect();
    wrong(&all, &ledger).into_iter().map(|(invariant, _)| invariant).collect()
}

#[test]
fn another_request_must_not_get_the_answer() {
    let (one, other) = ("{}", "{\"other\":1}");
    assert_eq!(broken(&[(one, "x"), (one, "x")], &[(one, "x")]), [""; 0]);
    assert_eq!(broken(&[(one, "x"), (other, "x")], &[(one, "x")]), ["asks-the-same (rule 1)"]);
    let both = [(one, "x"), (other, "y")];
    assert_eq!(broken(&both, &both), [""; 0], "two that knew nothing of one another");
}

#[test]
fn an_answer_is_an_upstreams_and_there_are_no_more_than_effects() {
    assert_eq!(broken(&[("{}", "z")], &[("{}", "x")]), [SAME_ANSWER]);
    assert_eq!(broken(&[("{}", "z")], &[]), [SAME_ANSWER]);
    assert_eq!(broken(&[("{}", "x"), ("{}", "y")], &[("{}", "x"), ("{}", "y")]), [""; 0]);
    assert_eq!(broken(&[("{}", "x"), ("{}", "y")], &[("{}", "x")]), [SAME_ANSWER, SAME_ANSWER]);
}
