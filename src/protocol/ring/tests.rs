//! Tests of the ring: golden vectors, balance, weights, pins, and the moves of a change.
//!
//! This file must not recompute a vector from the code under test.

use proptest::prelude::*;
use sha2::{Digest, Sha256};

use super::*;
use crate::examples::{id, name as region};
use crate::key::Key;

fn spec(regions: &[(&str, u32)]) -> RingSpec {
    let regions = regions.iter().map(|&(name, weight)| RegionSpec { name: region(name), weight }).collect();
    RingSpec { seed: 0x0123_4567_89ab_cdef, place_by: PlaceBy::Key, regions, pins: Vec::new() }
}

fn pin(tenant: &str, regions: &[&str]) -> Pin {
    Pin { tenant: Tenant::parse(tenant).unwrap(), regions: regions.iter().map(|name| region(name)).collect() }
}

fn ring(regions: &[(&str, u32)]) -> Ring {
    Ring::build(&spec(regions)).unwrap()
}

fn names(order: Order<'_>) -> Vec<&str> {
    order.names().map(RegionName::as_str).collect()
}

const THREE: &[(&str, u32)] = &[("ap-1", 1), ("eu-1", 1), ("us-1", 1)];

#[test]
fn golden() {
    let ring = ring(THREE);
    // The hash itself, by its authors' test vector for no bytes and seed 0.
    assert_eq!(xxh3_64_with_seed(b"", 0), 0x2d06_8005_38d3_94c2);
    let (longest_tenant, longest_key) = ("t".repeat(Tenant::MAX_LEN), "k".repeat(Key::MAX_LEN));
    let vectors = [
        ("acme", "order-1", 19796, "ap-1 eu-1 us-1"),
        ("acme", "order-2", 57755, "eu-1 us-1 ap-1"),
        ("acme", "order-3", 49562, "ap-1 eu-1 us-1"),
        ("globex", "order-1", 7890, "ap-1 eu-1 us-1"),
        ("a", "b", 8462, "eu-1 ap-1 us-1"),
        ("A", "b", 60384, "eu-1 us-1 ap-1"),
        ("a", "B", 50379, "ap-1 us-1 eu-1"),
        ("shop.eu_1", "8e03978e-40d5-43dd-bc93-6894a57f9324", 44853, "us-1 eu-1 ap-1"),
        ("shop.eu_1", "8e03978e-40d5-43dd-bc93-6894a57f9325", 64542, "ap-1 eu-1 us-1"),
        ("0", "!", 16257, "us-1 ap-1 eu-1"),
        ("t", "\"\\", 36372, "ap-1 us-1 eu-1"),
        ("ab", "c", 57077, "us-1 ap-1 eu-1"),
        ("a", "bc", 611, "eu-1 us-1 ap-1"),
        (&longest_tenant, "k", 27406, "ap-1 eu-1 us-1"),
        ("t", &longest_key, 31110, "ap-1 us-1 eu-1"),
        (&longest_tenant, &longest_key, 27401, "ap-1 eu-1 us-1"),
    ];
    for (tenant, key, arc, order) in vectors {
        let id = id(tenant, key);
        let names = names(ring.order(&id)).join(" ");
        assert_eq!((ring.arc(&id), names.as_str()), (Arc16(arc), order), "{tenant} {key}");
    }
    // python3 hashlib: sha256 over len8(part)+part for domain, numbers and names.
    assert_eq!(ring.digest().to_string(), "d004ff2b30aa089a3d48489125638a06aad62661f77e0cd75110da8354d543ea");
}

#[test]
fn golden_tables() {
    let table = |regions: &[(&str, u32)]| {
        let hash = Sha256::digest(ring(regions).table());
        Digest32::from_slice(&hash).unwrap().to_string()
    };
    assert_eq!(table(THREE), "6e3a7af42198ae2716b6ffb627f544f595a7c515becd533cdc1ef4ca96b334c8");
    let others = table(&[("a", 1), ("b", 20), ("c", 300), ("d", 10_000), ("e", 0)]);
    assert_eq!(others, "92efc88add1db9a5d16d00fc51cb175c3523c64e35e767b25b42c219a131d4fd");
}

#[test]
fn golden_by_tenant() {
    let ring = Ring::build(&RingSpec { place_by: PlaceBy::Tenant, ..spec(THREE) }).unwrap();
    let acme = ring.arc(&id("acme", "a"));
    assert_eq!(acme, Arc16(13030));
    assert!((0..100).all(|i| ring.arc(&id("acme", &format!("k{i}"))) == acme));
    assert_ne!(ring.arc(&id("globex", "a")), acme);
    assert_eq!(ring.digest().to_string(), "70d06407fa062c790723bbfe924804c95384bcadb740e6139192516fbec3dadf");
}

#[test]
fn the_specs_order_means_nothing() {
    let mut turned = spec(&[("us-1", 3), ("ap-1", 1), ("eu-1", 2)]);
    let mut straight = spec(&[("ap-1", 1), ("eu-1", 2), ("us-1", 3)]);
    turned.pins = vec![pin("b", &["us-1"]), pin("a", &["eu-1", "ap-1"])];
    straight.pins = vec![pin("a", &["eu-1", "ap-1"]), pin("b", &["us-1"])];
    let (turned, straight) = (Ring::build(&turned).unwrap(), Ring::build(&straight).unwrap());
    assert_eq!(turned.table(), straight.table());
    assert_eq!(turned.digest(), straight.digest());
    assert_eq!(turned.moves(&straight), Ok(Moves::default()));
}

#[test]
fn every_part_of_the_spec_is_in_the_digest() {
    let base = RingSpec { pins: vec![pin("t", &["eu-1", "us-1"])], ..spec(THREE) };
    let specs = [
        base.clone(),
        RingSpec { seed: 1, ..base.clone() },
        RingSpec { place_by: PlaceBy::Tenant, ..base.clone() },
        RingSpec { pins: Vec::new(), ..base.clone() },
        RingSpec { pins: vec![pin("t", &["us-1", "eu-1"])], ..base.clone() },
        RingSpec { pins: vec![pin("u", &["eu-1", "us-1"])], ..base.clone() },
        RingSpec { regions: spec(&[("ap-1", 1), ("eu-1", 1), ("us-1", 2)]).regions, ..base.clone() },
        RingSpec { regions: spec(&[("ap-1", 1), ("eu-1", 1), ("us-1", 1), ("zz", 0)]).regions, ..base },
    ];
    let digests: std::collections::BTreeSet<Digest32> =
        specs.iter().map(|spec| Ring::build(spec).unwrap().digest()).collect();
    assert_eq!(digests.len(), specs.len());
}

#[test]
fn every_row_ranks_every_owning_region_once() {
    let ring = ring(&[("a", 1), ("b", 5), ("edge", 0), ("z", 10_000)]);
    for arc in 0..=u16::MAX {
        let mut row = ring.arc_order(Arc16(arc)).indexes().to_vec();
        row.sort_unstable();
        assert_eq!(row, [0, 1, 3]);
    }
    assert_eq!(ring.share(&region("edge")), 0.0);
    assert_eq!(ring.share(&region("nowhere")), 0.0);
    let sum: f64 = ["a", "b", "z"].iter().map(|name| ring.share(&region(name))).sum();
    assert_eq!(sum, 1.0);
}

#[test]
fn weights_are_respected() {
    let ring = ring(&[("a", 1), ("b", 2), ("c", 3)]);
    for (name, part) in [("a", 1.0 / 6.0), ("b", 2.0 / 6.0), ("c", 3.0 / 6.0)] {
        let share = ring.share(&region(name));
        assert!((share / part - 1.0).abs() <= 0.02, "{name}: {share} for {part}");
    }
}

#[test]
fn a_change_moves_only_what_it_must() {
    let base = &[("a", 100), ("b", 100), ("c", 200)][..];
    let changes: [(&str, &[(&str, u32)]); 5] = [
        ("d", &[("a", 100), ("b", 100), ("c", 200), ("d", 100)]),
        ("c", &[("a", 100), ("b", 100)]),
        ("b", &[("a", 100), ("b", 150), ("c", 200)]),
        ("c", &[("a", 100), ("b", 100), ("c", 1)]),
        ("a", &[("a", 0), ("b", 100), ("c", 200)]),
    ];
    let before = ring(base);
    for (changed, regions) in changes {
        let (after, changed) = (ring(regions), region(changed));
        let grows = after.share(&changed) > before.share(&changed);
        let moves = before.moves(&after).unwrap();
        assert!(!moves.arcs.is_empty() && moves.pins.is_empty());
        for (from, to) in moves.arcs.keys() {
            assert_eq!(if grows { to } else { from }, &changed, "{from} to {to}");
        }
        let moved: u32 = moves.arcs.values().sum();
        let difference = (after.share(&changed) - before.share(&changed)).abs() * f64::from(ARCS);
        assert_eq!(f64::from(moved), difference);
        // The way back has the same moves, and the other regions keep their order.
        let back = after.moves(&before).unwrap();
        assert!(moves.arcs.iter().all(|((from, to), n)| back.arcs[&(to.clone(), from.clone())] == *n));
        for arc in 0..=u16::MAX {
            let others = |ring: &Ring| {
                let kept = |name: &&RegionName| **name != changed;
                ring.arc_order(Arc16(arc)).names().filter(kept).cloned().collect::<Vec<_>>()
            };
            assert_eq!(others(&before), others(&after));
        }
    }
}

#[test]
fn pins_come_first_and_admit_no_others() {
    let pins = vec![pin("bank", &["us-1", "eu-1"]), pin("clinic", &["eu-1"])];
    let before = ring(THREE);
    let pinned = Ring::build(&RingSpec { pins, ..spec(THREE) }).unwrap();
    for i in 0..200 {
        let key = format!("k{i}");
        assert_eq!(names(pinned.order(&id("bank", &key))), ["us-1", "eu-1"]);
        assert_eq!(names(pinned.order(&id("clinic", &key))), ["eu-1"]);
        assert_eq!(pinned.order(&id("clinic", &key)).home(), &region("eu-1"));
        assert_eq!(names(pinned.order(&id("shop", &key))), names(before.order(&id("shop", &key))));
    }
    let tenants = |names: [&str; 2]| names.map(|name| Tenant::parse(name).unwrap()).to_vec();
    let moved = Moves { pins: tenants(["bank", "clinic"]), ..Moves::default() };
    assert_eq!(before.moves(&pinned).unwrap(), moved);
    let turned = vec![pin("bank", &["eu-1", "us-1"]), pin("clinic", &["eu-1"]), pin("airline", &["ap-1"])];
    let turned = Ring::build(&RingSpec { pins: turned, ..spec(THREE) }).unwrap();
    assert_eq!(pinned.moves(&turned).unwrap().pins, tenants(["airline", "bank"]));
}

#[test]
fn rings_of_other_seeds_are_not_compared() {
    let other = Ring::build(&RingSpec { seed: 1, place_by: PlaceBy::Tenant, ..spec(THREE) }).unwrap();
    assert_eq!(ring(THREE).moves(&other).unwrap_err().problems.len(), 2);
}

#[test]
fn all_problems_are_listed() {
    let mut bad = spec(&[("a", 0), ("a", 0), ("b", 0), ("c", 10_001)]);
    bad.pins = vec![pin("t", &[]), pin("u", &["x", "a", "c", "c"]), pin("t", &["c"])];
    let error = Ring::build(&bad).unwrap_err();
    let want = [
        "region a is listed twice",
        "region c has weight 10001",
        "the pin of tenant t names no region",
        "names region x, which the ring does not have",
        "names region a, whose weight is 0",
        "names region c twice",
        "tenant t is pinned twice",
    ];
    assert_eq!(error.problems.len(), want.len(), "{error}");
    for (problem, want) in error.problems.iter().zip(want) {
        assert!(problem.contains(want), "{problem:?} for {want:?}");
    }
    assert!(!error.to_string().contains('\n'));
}

#[test]
fn too_many_or_no_owners_are_refused() {
    let regions = (0..65).map(|i| RegionSpec { name: region(&format!("r{i}")), weight: 1 }).collect();
    let many = RingSpec { regions, ..spec(&[]) };
    assert_eq!(Ring::build(&many).unwrap_err().problems, ["65 regions are listed: use at most 64"]);
    for none in [&[][..], &[("a", 0), ("b", 0)]] {
        let problems = Ring::build(&spec(none)).unwrap_err().problems;
        let [one] = &problems[..] else { panic!("{problems:?}") };
        assert!(one.starts_with("no region has a weight above 0"), "{one}");
    }
}

#[test]
fn the_largest_ring_builds() {
    let many: Vec<(String, u32)> = (0..64).map(|i| (format!("r{i}"), 10_000 - i)).collect();
    let many: Vec<(&str, u32)> = many.iter().map(|(name, weight)| (name.as_str(), *weight)).collect();
    let ring = ring(&many);
    assert_eq!(ring.table().len(), 64 << 16);
    assert!(many.iter().all(|(name, _)| (0.8..1.2).contains(&(ring.share(&region(name)) * 64.0))));
}

#[test]
fn equal_rings_are_one_and_few_are_kept() {
    let regions = ["eu-west", "us"].map(|name| RegionSpec { name: region(name), weight: 1 }).to_vec();
    let spec = |seed| RingSpec { seed, place_by: PlaceBy::Key, regions: regions.clone(), pins: Vec::new() };
    let ring = known(spec(7)).unwrap();
    assert!(Arc::ptr_eq(&ring, &known(spec(7)).unwrap()));
    let mut turned = spec(7);
    turned.regions.reverse();
    assert!(Arc::ptr_eq(&ring, &known(turned).unwrap()), "the order of a list makes no other ring");
    (100..100 + KEPT as u64 + 2).for_each(|seed| assert!(known(spec(seed)).is_some()));
    assert!(RINGS.lock().unwrap().len() <= KEPT, "the rings that are kept grow without bound");
}

proptest! {
    #[test]
    fn the_arc_is_the_hash_of_the_key_under_the_tenants(tenant in "[a-z.]{1,64}", key in "[!-~]{1,255}") {
        static RING: std::sync::OnceLock<Ring> = std::sync::OnceLock::new();
        let ring = RING.get_or_init(|| ring(THREE));
        let seed = xxh3_64_with_seed(tenant.as_bytes(), ring.seed);
        let want = (xxh3_64_with_seed(key.as_bytes(), seed) >> 48) as u16;
        prop_assert_eq!(ring.arc(&id(&tenant, &key)), Arc16(want));
    }
}
