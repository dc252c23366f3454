//! Chosen views and held leases, by forged votes and grants.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use onceway::protocol::register::{Accepted, Ballot};
use onceway::protocol::view::{AcceptorId, View};
use simulation::play::agreed::{chosen_by, leased_by};
use simulation::table::{Granted, Held};

use crate::shared::{ms, region as name, ring};

fn view() -> Arc<View> {
    let names = ["a", "b", "c"];
    let voters = (1..).zip(names).map(|(id, text)| (name(text), AcceptorId(id))).collect();
    Arc::new(View::founding(1, ring(&names.map(|text| (name(text), 1))), BTreeMap::new(), voters))
}

#[test]
fn a_lease_runs_while_a_majority_has_granted_it() {
    let view = view();
    let grant = |at, id, until| Granted {
        at: ms(at),
        id: AcceptorId(id),
        region: name("a"),
        until: ms(until),
        view: view.clone(),
    };
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
    let view = view();
    let ballot = Ballot { counter: 1, region: name("a"), proposer: 0 };
    let vote = |at, id| Held {
        at: ms(at),
        id: AcceptorId(id),
        promised: None,
        accepted: Some(Accepted { ballot: ballot.clone(), view: view.clone() }),
    };
    assert!(chosen_by(vec![vote(5, 1), vote(6, 1)]).is_empty(), "the same one twice");
    let chosen = chosen_by(vec![vote(9, 2), vote(5, 1), vote(12, 3)]);
    assert_eq!(chosen.len(), 1);
    assert_eq!((chosen[0].at, &chosen[0].by), (ms(9), &vec![name("a"), name("b")]));
}
