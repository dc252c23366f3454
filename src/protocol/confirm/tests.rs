//! What a reader makes of views that were told and of what acceptors hold.
//!
//! Neighbour: `super` has the rule. A hostile teller is played by letters that no acceptor shows.

use std::collections::BTreeMap;

use super::*;
use crate::protocol::change::Change;
use crate::protocol::ring::{PlaceBy, RegionSpec, Ring, RingSpec};
use crate::protocol::view::{AcceptorId, Content, Standing};

fn name(text: &str) -> RegionName {
    RegionName::parse(text).unwrap()
}

/// Regions a, b and c, and, where it votes, a witness w.
fn founded(voters: &[&str]) -> Arc<View> {
    let regions = ["a", "b", "c"].map(|text| RegionSpec { name: name(text), weight: 1 }).to_vec();
    let ring = Ring::build(&RingSpec { seed: 1, place_by: PlaceBy::Key, regions, pins: Vec::new() });
    let voters = voters.iter().zip(1..).map(|(text, id)| (name(text), AcceptorId(id))).collect();
    Arc::new(View::founding(1, Arc::new(ring.unwrap()), BTreeMap::new(), voters))
}

fn next(view: &View) -> Arc<View> {
    Arc::new(view.next(&Change::Kill).unwrap())
}

fn shown(all: &[(&str, &Arc<View>)]) -> Shown {
    all.iter().map(|(text, view)| (name(text), (*view).clone())).collect()
}

fn epochs(known: &View, told: &[&Arc<View>], shown: &Shown) -> Vec<u64> {
    let told: Vec<Arc<View>> = told.iter().map(|view| (*view).clone()).collect();
    let named = |name: &RegionName| ["a", "b", "c"].contains(&name.as_str());
    confirmed(known, &told, shown, &named).iter().map(|view| view.epoch()).collect()
}

/// The letter of the attack: everybody sealed, in an epoch that nobody reaches.
fn poison(view: &View, epoch: u64) -> Arc<View> {
    let mut content = Content { epoch, ..view.content() };
    content.members.values_mut().for_each(|member| member.standing = Standing::Sealed { drained: true });
    Arc::new(View::from_content(content))
}

#[test]
fn a_view_counts_once_a_majority_of_the_voters_before_it_shows_it() {
    let known = founded(&["a", "b", "c"]);
    let second = next(&known);
    assert_eq!(epochs(&known, &[&second], &shown(&[("a", &second), ("b", &second)])), [2]);
    let third = next(&second);
    let later = shown(&[("a", &third), ("b", &second)]);
    assert_eq!(epochs(&known, &[&second], &later), [2], "one went on from it");
    for few in [&[][..], &[("a", &second)], &[("a", &second), ("b", &known), ("c", &known)]] {
        assert_eq!(epochs(&known, &[&second], &shown(few)), [] as [u64; 0]);
    }
    let all = shown(&[("a", &known), ("b", &known)]);
    assert_eq!(epochs(&second, &[&known], &all), [] as [u64; 0], "older than what is known");
}

#[test]
fn a_letter_that_no_majority_shows_counts_for_nothing_in_whatever_epoch() {
    let known = founded(&["a", "b", "c"]);
    for epoch in [2, 3, LEAP, 9 * 10_u64.pow(18), u64::MAX] {
        let poison = poison(&known, epoch);
        let held = shown(&[("a", &known), ("b", &known), ("c", &poison)]);
        assert_eq!(epochs(&known, &[&poison], &held), [] as [u64; 0], "{epoch}");
    }
}

#[test]
fn a_reader_that_is_far_behind_learns_all_of_them() {
    let known = founded(&["a", "b", "c"]);
    let views = std::iter::successors(Some(next(&known)), |view| Some(next(view))).take(6);
    let views: Vec<Arc<View>> = views.collect();
    let told: Vec<&Arc<View>> = views.iter().collect();
    let held = shown(&[("a", &views[5]), ("c", &views[5])]);
    assert_eq!(epochs(&known, &told, &held), [2, 3, 4, 5, 6, 7]);
    let gap = [told[0], told[3], told[5]];
    assert_eq!(epochs(&known, &gap, &held), [7], "what does not lead to it is left out");
    // The teller is ahead of what a majority shows.
    let held = shown(&[("a", &views[5]), ("b", &views[4]), ("c", &known)]);
    assert_eq!(epochs(&known, &told, &held), [2, 3, 4, 5, 6]);
}

#[test]
fn a_forced_view_counts_once_a_region_that_is_left_shows_it() {
    let known = founded(&["a", "b", "w"]);
    let stopped = [(name("b"), 0), (name("w"), 0)].into();
    let forced = Arc::new(known.next(&Change::Force { stopped, anew: None, drawn: 5 }).unwrap());
    let held = shown(&[("a", &forced), ("b", &known)]);
    assert_eq!(epochs(&known, &[&forced], &held), [forced.epoch()]);
    // A witness alone could make one up.
    let mut content = forced.content();
    content.voters = [(name("w"), AcceptorId(3))].into();
    content.voters_before = content.voters.clone();
    let alone = Arc::new(View::from_content(content));
    assert_eq!(epochs(&known, &[&alone], &shown(&[("w", &alone)])), [] as [u64; 0]);
}

#[test]
fn a_newcomer_goes_by_a_majority_whom_its_files_name() {
    let nobody = View::unfounded(founded(&[]).ring().clone());
    let view = next(&founded(&["a", "b", "c"]));
    assert_eq!(epochs(&nobody, &[&view], &shown(&[("a", &view), ("b", &view)])), [2]);
    assert_eq!(epochs(&nobody, &[&view], &shown(&[("a", &view)])), [] as [u64; 0]);
    let strange = next(&founded(&["x", "y", "c"]));
    let held = shown(&[("x", &strange), ("y", &strange), ("c", &strange)]);
    assert_eq!(epochs(&nobody, &[&strange], &held), [] as [u64; 0]);
}
