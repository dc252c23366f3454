//! Tests of a reader's judgement on told views and on views that acceptors hold.
//!
//! A hostile peer is played by messages that no acceptor shows.

use std::collections::BTreeMap;

use super::*;
use crate::change::Change;
use crate::examples::{abc, name, ring};
use crate::view::{AcceptorId, Content, Standing};

/// Regions a, b and c, and a witness w if `voters` names it.
fn founded(voters: &[&str]) -> Arc<View> {
    let voters = voters.iter().zip(1..).map(|(text, id)| (name(text), AcceptorId(id))).collect();
    Arc::new(View::founding(1, abc(), BTreeMap::new(), voters))
}

fn next(view: &View) -> Arc<View> {
    Arc::new(view.next(&Change::Kill).unwrap())
}

fn shown(all: &[(&str, &Arc<View>)]) -> Shown {
    all.iter().map(|(text, view)| (name(text), (*view).clone())).collect()
}

fn epochs(known: &View, learnt: &[&Arc<View>], shown: &Shown) -> Vec<u64> {
    let learnt: Vec<Arc<View>> = learnt.iter().map(|view| (*view).clone()).collect();
    let named = |name: &RegionName| ["a", "b", "c"].contains(&name.as_str());
    confirmed(known, &learnt, shown, &named).iter().map(|view| view.epoch()).collect()
}

/// The view, voted by these alone, now and before.
fn voted_by(view: &View, ids: &[(&str, u128)]) -> Arc<View> {
    let voters: BTreeMap<_, _> = ids.iter().map(|(text, id)| (name(text), AcceptorId(*id))).collect();
    Arc::new(View::from_content(Content { voters_before: voters.clone(), voters, ..view.content() }))
}

const NONE: [u64; 0] = [];

/// The message of the attack: every region sealed, in an epoch that nobody reaches.
fn poison(view: &View, epoch: u64) -> Arc<View> {
    let mut content = Content { epoch, ..view.content() };
    content.members.values_mut().for_each(|member| member.standing = Standing::Sealed { drained: true });
    Arc::new(View::from_content(content))
}

#[test]
fn a_view_counts_when_its_previous_voters_show_it() {
    let known = founded(&["a", "b", "c"]);
    let second = next(&known);
    assert_eq!(epochs(&known, &[&second], &shown(&[("a", &second), ("b", &second)])), [2]);
    let third = next(&second);
    let later = shown(&[("a", &third), ("b", &second)]);
    assert_eq!(epochs(&known, &[&second], &later), [2], "one went on from it");
    for few in [&[][..], &[("a", &second)], &[("a", &second), ("b", &known), ("c", &known)]] {
        assert_eq!(epochs(&known, &[&second], &shown(few)), NONE);
    }
    let all = shown(&[("a", &known), ("b", &known)]);
    assert_eq!(epochs(&second, &[&known], &all), NONE, "older than what is known");
}

#[test]
fn a_letter_without_a_majority_never_counts() {
    let known = founded(&["a", "b", "c"]);
    for epoch in [2, 3, LEAP, 9 * 10_u64.pow(18), u64::MAX] {
        let poison = poison(&known, epoch);
        let held = shown(&[("a", &known), ("b", &known), ("c", &poison)]);
        assert_eq!(epochs(&known, &[&poison], &held), NONE, "{epoch}");
    }
}

#[test]
fn a_reader_that_is_far_behind_learns_all_of_them() {
    let known = founded(&["a", "b", "c"]);
    let views = std::iter::successors(Some(next(&known)), |view| Some(next(view))).take(6);
    let views: Vec<Arc<View>> = views.collect();
    let learnt: Vec<&Arc<View>> = views.iter().collect();
    let held = shown(&[("a", &views[5]), ("c", &views[5])]);
    assert_eq!(epochs(&known, &learnt, &held), [2, 3, 4, 5, 6, 7]);
    let gap = [learnt[0], learnt[3], learnt[5]];
    assert_eq!(epochs(&known, &gap, &held), [7], "what does not lead to it is left out");
    let second = shown(&[("a", learnt[0]), ("b", learnt[0])]);
    assert_eq!(epochs(&known, &[&known, learnt[0]], &second), [2], "what is known is not learnt again");
    // Made up by the teller, of the right epoch: the view after it had other voters before it.
    let mut content = views[0].content();
    content.voters.insert(name("x"), AcceptorId(9));
    let forged = Arc::new(View::from_content(content));
    let held = shown(&[("a", learnt[1]), ("b", learnt[1])]);
    assert_eq!(epochs(&known, &[&forged, learnt[1]], &held), [3]);
    assert_eq!(epochs(&known, &[&forged], &held), NONE, "nobody shows this very view");
    // The teller is ahead of what a majority shows.
    let held = shown(&[("a", &views[5]), ("b", &views[4]), ("c", &known)]);
    assert_eq!(epochs(&known, &learnt, &held), [2, 3, 4, 5, 6]);
}

#[test]
fn a_remaining_region_confirms_a_forced_view() {
    let known = founded(&["a", "b", "w"]);
    let stopped = [(name("b"), 0), (name("w"), 0)].into();
    let forced = Arc::new(known.next(&Change::Force { stopped, anew: None, drawn: 5 }).unwrap());
    let held = shown(&[("a", &forced), ("b", &known)]);
    assert_eq!(epochs(&known, &[&forced], &held), [forced.epoch()]);
    let by = |named: &dyn Fn(&RegionName) -> bool, shown: &[(&str, &Arc<View>)], learnt: &Arc<View>| {
        confirmed(&known, std::slice::from_ref(learnt), &self::shown(shown), named).len()
    };
    assert_eq!(by(&|_| false, &[("a", &forced)], &forced), 1, "the ring names it");
    let newer = voted_by(&forced, &[("d", 4)]);
    assert_eq!(by(&|name| name.as_str() == "d", &[("d", &newer)], &newer), 0, "it is about to join");
    assert_eq!(by(&|_| false, &[("d", &newer)], &newer), 0);
    let three = voted_by(&forced, &[("a", 1), ("v", 2), ("w", 3)]);
    assert_eq!(by(&|_| false, &[("v", &three), ("w", &three)], &three), 0, "a does not show it");
    // No view that follows by one is forced, whoever votes.
    let small = Content { epoch: 2, ..voted_by(&forced, &[("a", 1)]).content() };
    let small = Arc::new(View::from_content(small));
    assert_eq!(by(&|_| true, &[("a", &small)], &small), 0);
    // On top of a view that its reader has not seen.
    let second = next(&known);
    let stopped = [(name("b"), 0), (name("w"), 0)].into();
    let upon = Arc::new(second.next(&Change::Force { stopped, anew: None, drawn: 5 }).unwrap());
    assert_eq!(epochs(&known, &[&second, &upon], &shown(&[("a", &upon)])), [2, upon.epoch()]);
    // A witness alone could make one up.
    let alone = voted_by(&forced, &[("w", 3)]);
    assert_eq!(epochs(&known, &[&alone], &shown(&[("w", &alone)])), NONE);
}

/// A region that left the ring is in the files of the others for a while. It could else move the
/// whole deployment to a view of its own.
#[test]
fn a_forced_view_of_a_region_that_left_counts_for_nothing() {
    let founded = founded(&["a", "b", "c"]);
    let drained = Standing::Sealed { drained: true };
    let mut content = Content { epoch: 2, ..founded.content() };
    content.members.get_mut(&name("c")).unwrap().standing = drained;
    content.voters.remove(&name("c"));
    let known = View::from_content(Content { ring: ring(&["a", "b"], &[]), ..content });
    let forced = known.next(&Change::Force { stopped: BTreeMap::new(), anew: None, drawn: 5 });
    let forged = voted_by(&forced.unwrap(), &[("c", 3)]);
    assert!(is_forced(&known, &forged), "nothing else is wrong with it");
    assert_eq!(epochs(&known, &[&forged], &shown(&[("c", &forged)])), NONE);
}

#[test]
fn a_forced_views_epoch_is_bounded_on_both_sides() {
    let known = founded(&["a", "b", "c"]);
    let voters = known.voters().clone();
    let ahead = |by| Content { epoch: known.epoch() + by, voters_before: voters.clone(), ..known.content() };
    let bounds = [(1, false), (STRIDE, false), (STRIDE + 1, true), (LEAP, true), (LEAP + 1, false)];
    for (by, is) in bounds {
        assert_eq!(is_forced(&known, &View::from_content(ahead(by))), is, "{by} ahead");
    }
    let mut content = ahead(STRIDE + 1);
    content.voters_before.remove(&name("a"));
    assert!(!is_forced(&known, &View::from_content(content)));
}

#[test]
fn a_newcomer_goes_by_a_majority_whom_its_files_name() {
    let nobody = View::unfounded(founded(&[]).ring().clone());
    let view = next(&founded(&["a", "b", "c"]));
    assert_eq!(epochs(&nobody, &[&view], &shown(&[("a", &view), ("b", &view)])), [2]);
    assert_eq!(epochs(&nobody, &[&view], &shown(&[("a", &view)])), NONE);
    let strange = next(&founded(&["x", "y", "c"]));
    let held = shown(&[("x", &strange), ("y", &strange), ("c", &strange)]);
    assert_eq!(epochs(&nobody, &[&strange], &held), NONE);
    let mixed = next(&founded(&["a", "b", "x"]));
    let held = shown(&[("a", &mixed), ("x", &mixed)]);
    assert_eq!(epochs(&nobody, &[&mixed], &held), NONE, "of those named only one shows it");
}

/// By one letter an acceptor would vote before it was a voter, and hold a view that nobody chose.
#[test]
fn a_witness_believes_a_view_that_most_regions_told_last() {
    let first = founded(&["a", "b", "c", "w"]);
    let second = next(&first);
    let by = |letters: &[(&str, &Arc<View>)], heard: &[&str]| {
        let heard: Vec<RegionName> = heard.iter().map(|text| name(text)).collect();
        chosen_by_letters(&shown(letters), heard.iter()).map(|view| view.epoch())
    };
    let abc = &["a", "b", "c"];
    assert_eq!(by(&[("a", &second), ("c", &second)], abc), Some(2));
    let late = [("a", &second), ("b", &second), ("c", &first)];
    assert_eq!(by(&late, abc), Some(2), "one is behind");
    for few in
        [&[][..], &[("a", &second)], &[("a", &second), ("b", &first)], &[("a", &second), ("w", &second)]]
    {
        assert_eq!(by(few, abc), None, "{few:?}");
    }
    assert_eq!(by(&[("a", &second), ("c", &first)], &["a", "b"]), None);
    assert_eq!(by(&[("a", &second), ("b", &first)], &["a"]), Some(2), "the others are silent");
    // A later view that is made up supports no earlier one.
    assert_eq!(by(&[("a", &first), ("b", &second)], &["a", "b"]), None);
}
