//! Every cell of the table, written out a second time on purpose.
//!
//! `tests/deploy` compares the document with the table.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::examples::{self, name};
use crate::ring::Ring;
use crate::view::{AcceptorId, Content, Standing};

fn ring(regions: &[&str]) -> Arc<Ring> {
    examples::ring(regions, &[])
}

/// Every cell: `R`, `J`, `F`, `W`, `S` for the permitted senders.
const CELLS: [(&str, &str); 23] = [
    ("hello", "RJF"),
    ("ping", "RJF"),
    ("forward", "RJ"),
    ("read", "RJF"),
    ("prepare", "R"),
    ("accept", "R"),
    ("renew", "R"),
    ("force", "R"),
    ("found", "R"),
    ("views", "RJF"),
    ("adopt", "R"),
    ("release", "R"),
    ("frontier", "R"),
    ("rows", "R"),
    ("latest", "RJF"),
    ("lodge", "R"),
    ("lodge-answer", "R"),
    ("void", "R"),
    ("accept-risk", "R"),
    ("key", "R"),
    ("doubts", "R"),
    ("jobs", "R"),
    ("act", "R"),
];

#[test]
fn every_cell_is_as_it_was_meant() {
    assert_eq!(Kind::ALL.len(), CELLS.len());
    for (message, (named, cells)) in Kind::ALL.iter().zip(CELLS) {
        assert_eq!(message.name(), named);
        // The listener refuses by this before it reads a body.
        assert!(cells.chars().all(|cell| CELLS[0].1.contains(cell)), "{named}: who may not say hello");
        for (sender, letter) in Sender::ALL.into_iter().zip("RJFWS".chars()) {
            let heard = may(&name("x"), sender, *message, None);
            assert_eq!(heard.is_ok(), cells.contains(letter), "{named} of {sender:?}");
            if let Err(why) = heard {
                assert!(why.to_string().contains(named) && why.to_string().contains('x'), "{why}");
            }
        }
    }
}

#[test]
fn no_region_sends_ballots_or_leases_for_another() {
    let own = ["prepare", "accept", "renew", "force", "latest", "lodge"];
    for message in &Kind::ALL {
        let (me, other) = (name("me"), name("other"));
        let said = |of| may(&me, Sender::Region, *message, Some(of));
        assert_eq!(said(&me), Ok(()), "{message:?}");
        let refused = NotHeard::InAnothersName(me.clone(), other.clone(), *message);
        let expected = if own.contains(&message.name()) { Err(refused) } else { Ok(()) };
        assert_eq!(said(&other), expected, "{message:?}");
    }
}

#[test]
fn the_view_decides_a_senders_role_before_the_files() {
    let voters: BTreeMap<_, _> = [(name("a"), AcceptorId(1)), (name("w"), AcceptorId(2))].into();
    let first = View::founding(1, ring(&["a", "b"]), BTreeMap::new(), voters);
    let drained = Standing::Sealed { drained: true };
    let mut members = first.members().clone();
    members.get_mut(&name("b")).unwrap().standing = drained;
    let first = View::from_content(Content { members, ..first.content() });
    let of = |view: &View, text: &str, named| Sender::of(&name(text), view, named, false);
    for named in [true, false] {
        assert_eq!(of(&first, "b", named), Sender::Region, "sealed, and in the ring");
        assert_eq!(of(&first, "w", named), Sender::Witness, "a voter that is no member");
    }
    assert_eq!(Sender::of(&name("v"), &first, false, true), Sender::Witness, "by the files");
    assert_eq!((of(&first, "d", true), of(&first, "d", false)), (Sender::Joining, Sender::Stranger));
    let left = examples::moved(&first, examples::on_ring(&first, ring(&["a"])).unwrap(), &[]);
    assert_eq!(of(&left, "b", true), Sender::Former, "whatever the files still say");
    let tell = |view: &View| ["a", "b", "d", "w"].map(|text| tells_of_others(&name(text), view));
    assert_eq!((tell(&first), tell(&left)), ([true, true, false, false], [true, false, false, false]));
    let unfounded = View::unfounded(ring(&["a", "b"]));
    assert_eq!((of(&unfounded, "b", true), of(&unfounded, "m", false)), (Sender::Region, Sender::Stranger));
}

#[test]
fn a_removed_region_approves_boots_in_two_cases_only() {
    let voters: BTreeMap<_, _> = ["a", "b", "c"].map(|text| (name(text), AcceptorId(1))).into();
    let first = View::founding(1, ring(&["a", "b", "c"]), BTreeMap::new(), voters.clone());
    let left = |voters: &BTreeMap<RegionName, AcceptorId>| {
        View::from_content(Content { ring: ring(&["a", "b"]), voters: voters.clone(), ..first.content() })
    };
    let names = |texts: &[&str]| texts.iter().map(|text| name(text)).collect::<BTreeSet<_>>();
    assert_eq!(vouchers(&names(&["b", "c", "d"]), &left(&voters)), names(&["b", "c", "d"]), "it votes");
    let fewer: BTreeMap<_, _> = ["a", "b"].map(|text| (name(text), AcceptorId(1))).into();
    assert_eq!(vouchers(&names(&["b", "c", "d"]), &left(&fewer)), names(&["b", "d"]), "d joins");
    assert_eq!(vouchers(&names(&["c"]), &left(&fewer)), names(&["c"]), "nobody else remembers");
}
