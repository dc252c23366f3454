//! Tests of the view: owners and targets, and losers of keys by a change, judged per key.

use super::super::change::Change;
use super::super::examples::{
    SEALED, abc, draft, drained, first, id, key, lose, moved, name, on_ring, ring, seal,
};
use super::*;

#[test]
fn the_first_serving_region_owns_and_the_next_one_is_the_target() {
    let view = first();
    let key = key(&view, &["a", "b", "c"]);
    assert_eq!((view.owner(&key), view.target(&key)), (Some(&name("a")), Some(&name("b"))));
    let view = lose(&view, "a", 0);
    assert_eq!((view.owner(&key), view.target(&key)), (Some(&name("b")), Some(&name("c"))));
    let view = lose(&view, "b", 0);
    assert_eq!((view.owner(&key), view.target(&key)), (Some(&name("c")), None));
    assert_eq!(View::unfounded(abc()).owner(&key), None, "nobody serves before the founding");
}

#[test]
fn a_region_loses_what_it_owned_and_nobody_else_does() {
    let view = first();
    let without = lose(&view, "a", 0);
    let losers: Vec<_> = view.losers(&without).collect();
    assert_eq!(losers, [&name("a")]);
    let back = draft(&seal(&without, "a", 1), &[("a", Standing::Serving)]);
    assert!(!without.loses(&back, &name("a")), "who gains does not lose");
    assert!(without.loses(&back, &name("b")) && without.loses(&back, &name("c")));
    let same = view.next(&Change::Kill).unwrap();
    assert_eq!(view.losers(&same).count(), 0);
}

#[test]
fn a_pin_takes_keys_though_no_arc_moves() {
    let view = first();
    let pinned = ring(&["a", "b", "c"], &[("vip", &["b", "c"])]);
    let next = on_ring(&view, pinned.clone()).unwrap();
    let losers = view.losers(&next).collect::<Vec<_>>();
    assert_eq!(losers, [&name("a"), &name("c")], "they may have had keys of vip");
    // From b to c, and back to no pin.
    let base = View::from_content(Content { ring: pinned, ..view.content() });
    let other = on_ring(&base, ring(&["a", "b", "c"], &[("vip", &["c"])])).unwrap();
    assert_eq!(base.losers(&other).collect::<Vec<_>>(), [&name("b")]);
    let none = on_ring(&base, abc()).unwrap();
    assert_eq!(base.losers(&none).collect::<Vec<_>>(), [&name("b")]);
    let key = id("vip", "1");
    assert_eq!(base.owner(&key), Some(&name("b")));
    assert_eq!(lose(&base, "b", 0).owner(&key), Some(&name("c")));
    let alone = lose(&lose(&base, "b", 0), "c", 0);
    assert_eq!(alone.owner(&key), None, "a pin admits no others");
}

#[test]
fn regions_that_come_and_go_lose_and_gain() {
    let view = first();
    let with_d = on_ring(&view, ring(&["a", "b", "c", "d"], &[])).unwrap();
    let standing = with_d.standing(&name("d"));
    assert_eq!(standing, Some(Standing::Sealed { drained: false }), "new regions own nothing");
    assert_eq!(view.losers(&with_d).count(), 0, "so nobody loses anything by them");
    let view = drained(&view, "a", 5);
    let without_a = on_ring(&view, ring(&["b", "c"], &[])).unwrap();
    assert_eq!(view.losers(&without_a).count(), 0, "a has nothing any more");
    assert_eq!(without_a.members()[&name("a")].mark, 5, "its mark stays while its rows live");
}

#[test]
fn placement_decides_owners_and_the_digest_covers_everything() {
    let view = first();
    let killed = view.next(&Change::Kill).unwrap();
    assert_eq!(view.placement(), killed.placement());
    assert_ne!(view, killed, "another epoch");
    for other in [
        lose(&view, "a", 0),
        draft(&view, &[("a", SEALED)]),
        draft(&view, &[("a", Standing::Sealed { drained: false })]),
        View::from_content(Content { escrow: BTreeMap::new(), ..view.content() }),
        View::from_content(Content { ring: ring(&["a", "b"], &[]), ..view.content() }),
    ] {
        assert_ne!(view.placement(), other.placement());
    }
    let lost = lose(&view, "a", 0);
    assert_ne!(lost.placement(), lose(&killed, "a", 0).placement(), "lost at another epoch is another loss");
    let by = |mark| moved(&view, draft(&view, &[("a", SEALED)]), &[("a", mark)]);
    assert_eq!(by(1).placement(), by(2).placement());
    assert_ne!(by(1), by(2), "marks are part of what is agreed");
    let voters = view.voters().clone();
    for other in [
        Content { voters_before: BTreeMap::new(), ..view.content() },
        Content { voters: BTreeMap::new(), voters_before: voters, ..view.content() },
    ] {
        assert_ne!(view, View::from_content(other), "so are the voters");
    }
}

#[test]
fn content_is_all_of_it() {
    let view = drained(&first(), "a", 5);
    assert_eq!(View::from_content(view.content()), view);
    assert_eq!(view.shares().keys().collect::<Vec<_>>(), [&name("b"), &name("c")]);
    assert_eq!(view.shares().values().sum::<u32>(), super::super::ring::ARCS);
    assert_eq!(view.origin(&name("a")).map(|origin| origin.to_string()).as_deref(), Some("a#1"));
}
