//! The spelling of views and of the register's values: each written document is read again, and no
//! other document is.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use proptest::collection::btree_map;
use proptest::prelude::*;

use super::*;
use crate::protocol::authority::Pending;
use crate::protocol::digest::Digest32;
use crate::protocol::key::Tenant;
use crate::protocol::lifetime::Retention;
use crate::protocol::region::{Origin, RegionName};
use crate::protocol::register::{Accepted, Acceptor, Ballot, Grant, Relies};
use crate::protocol::ring::Ring;
use crate::protocol::ring_spec::{Pin, PlaceBy, RegionSpec, RingSpec};
use crate::protocol::versions::NEXT;
use crate::protocol::view::{AcceptorId, Content, Member, Release, Retired, Standing, View};

fn spec(seed: u64, place_by: PlaceBy, pinned: bool) -> RingSpec {
    let regions = [("eu-west", 1), ("us", 3), ("ap", 0)];
    RingSpec {
        seed,
        place_by,
        regions: regions
            .map(|(name, weight)| RegionSpec { name: RegionName::parse(name).unwrap(), weight })
            .to_vec(),
        pins: if pinned {
            let regions = ["us", "eu-west"].map(|name| RegionName::parse(name).unwrap()).to_vec();
            vec![Pin { tenant: Tenant::parse("acme").unwrap(), regions }]
        } else {
            Vec::new()
        },
    }
}

pub fn names() -> impl Strategy<Value = RegionName> {
    "[a-z][a-z0-9]{0,31}".prop_map(|name| RegionName::parse(&name).unwrap())
}

pub fn digests() -> impl Strategy<Value = Digest32> {
    any::<[u8; 32]>().prop_map(Digest32::new)
}

pub fn origins() -> impl Strategy<Value = Origin> {
    (names(), any::<u32>()).prop_map(|(region, generation)| Origin { region, generation })
}

fn members() -> impl Strategy<Value = Member> {
    let standing = prop_oneof![
        Just(Standing::Serving),
        any::<bool>().prop_map(|drained| Standing::Sealed { drained }),
        (any::<u64>(), any::<bool>()).prop_map(|(at, gap)| Standing::Lost { at, gap }),
    ];
    let release = proptest::option::of((any::<u64>(), digests()));
    (any::<u32>(), standing, any::<u64>(), release).prop_map(|(generation, standing, mark, release)| Member {
        generation,
        standing,
        mark,
        release: release.map(|(base, target)| Release { base, target }),
    })
}

/// Built once: building takes some time.
pub static RINGS_TRIED: LazyLock<Vec<Arc<Ring>>> = LazyLock::new(|| {
    let tried = [(0, PlaceBy::Tenant, true), (u64::MAX, PlaceBy::Key, false)];
    tried
        .map(|(seed, place_by, pinned)| Arc::new(Ring::build(&spec(seed, place_by, pinned)).unwrap()))
        .to_vec()
});

pub fn views() -> impl Strategy<Value = Arc<View>> {
    let rings = (0..RINGS_TRIED.len()).prop_map(|at| RINGS_TRIED[at].clone());
    let retired = any::<(u64, Option<u64>)>().prop_map(|(mark, lost)| Retired { mark, lost });
    let retired = btree_map(origins(), retired, 0..3);
    let escrow = btree_map(any::<String>().prop_map(Arc::from), digests(), 0..3);
    let voters = || btree_map(names(), any::<u128>().prop_map(AcceptorId), 0..4);
    let parts = (
        (any::<u64>(), 1..=NEXT),
        rings,
        escrow,
        voters(),
        voters(),
        btree_map(names(), members(), 0..4),
        retired,
    );
    parts.prop_map(|((epoch, protocol), ring, escrow, voters, voters_before, members, retired)| {
        Arc::new(View::from_content(Content {
            epoch,
            protocol,
            ring,
            escrow,
            voters,
            voters_before,
            members,
            retired,
            longest_lease: Duration::from_nanos(epoch % 600_000_000_000),
            longest_life: [Retention::Never, Retention::For(Duration::from_millis(epoch % 9_999))]
                [epoch as usize % 2],
        }))
    })
}

pub fn ballots() -> impl Strategy<Value = Ballot> {
    (any::<u64>(), names(), any::<u64>()).prop_map(|(counter, region, proposer)| Ballot {
        counter,
        region,
        proposer,
    })
}

pub fn accepted() -> impl Strategy<Value = Accepted> {
    (ballots(), views()).prop_map(|(ballot, view)| Accepted { ballot, view })
}

fn acceptors() -> impl Strategy<Value = Acceptor> {
    let grant = (any::<u32>(), digests(), views(), any::<u64>(), any::<Duration>()).prop_map(
        |(generation, boot, view, number, ttl)| {
            let holders = [(number ^ 7, Relies(generation, number))].into();
            Grant { generation, boot, view, number, ttl, holders }
        },
    );
    let held = (proptest::option::of(ballots()), proptest::option::of(accepted()));
    (any::<u128>(), any::<bool>(), held, btree_map(names(), grant, 0..3)).prop_map(
        |(id, admitted, (promised, accepted), grants)| Acceptor {
            id: AcceptorId(id),
            admitted,
            promised,
            accepted,
            grants,
        },
    )
}

fn to_text(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap()
}

fn read(text: &str) -> Result<Arc<View>, &'static str> {
    from_text(text)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn an_acceptors_state_is_read_as_it_was_written(acceptor in acceptors()) {
        prop_assert_eq!(from_text::<Acceptor>(&to_text(&acceptor)).unwrap(), acceptor);
    }

    #[test]
    fn a_pending_change_is_read_as_it_was_written(target in views(), seal in any::<Option<u64>>()) {
        let pending = Pending { target, seal };
        let read: Pending = from_text(&to_text(&pending)).unwrap();
        prop_assert_eq!(read.target.ring().spec(), pending.target.ring().spec());
        prop_assert_eq!(read, pending);
    }

    #[test]
    fn any_text_is_read_or_refused(text in any::<String>()) {
        prop_assert!(read(&text).is_err() && from_text::<Acceptor>(&text).is_err());
    }
}

fn view() -> Arc<View> {
    let ring = Arc::new(Ring::build(&spec(7, PlaceBy::Tenant, true)).unwrap());
    let voters = BTreeMap::from([(RegionName::parse("us").unwrap(), AcceptorId(0xab))]);
    Arc::new(View::founding(
        1,
        ring,
        BTreeMap::from([("/v1/payouts".into(), Digest32::new([7; 32]))]),
        voters,
    ))
}

#[test]
fn malformed_views_are_refused() {
    let good = serde_json::to_value(view()).unwrap();
    assert!(read(&good.to_string()).is_ok());
    let bent: [(&str, serde_json::Value); 16] = [
        ("/longest_life", serde_json::json!([-1, 0])),
        ("/longest_lease", serde_json::json!([600, 1])),
        ("/epoch", serde_json::json!(-1)),
        ("/epoch", serde_json::json!(1.0)),
        ("/ring/place_by", serde_json::json!("Tenant")),
        ("/ring/regions/0/weight", serde_json::json!(70_000)),
        ("/ring/regions/0/name", serde_json::json!("US")),
        ("/ring/pins/0/regions", serde_json::json!([])),
        ("/voters/0/id", serde_json::json!("+00000000000000000000000000000ab")),
        ("/members/0/standing", serde_json::json!("lost")),
        ("/members/0/release", serde_json::json!({"base": 1, "target": "+f".repeat(32)})),
        ("/escrow", serde_json::json!(["a", "a"])),
        ("/escrow/0/means", serde_json::json!("07")),
        ("/escrow/0", serde_json::json!({"route": "a", "means": null})),
        ("/protocol", serde_json::json!(NEXT + 1)),
        ("/retired", serde_json::json!([{"origin": "eu#01", "mark": 1, "lost": null}])),
    ];
    for (at, value) in bent {
        let mut doc = good.clone();
        *doc.pointer_mut(at).unwrap() = value;
        assert!(read(&doc.to_string()).is_err(), "{at}");
    }
    for list in ["voters", "members"] {
        let mut doc = good.clone();
        let entries = doc[list].as_array_mut().unwrap();
        entries.push(entries[0].clone());
        assert!(read(&doc.to_string()).is_err(), "{list} twice");
    }
    let mut more = good.clone();
    more["unknown"] = serde_json::json!(1);
    assert!(read(&more.to_string()).is_err());
    let mut less = good;
    less.as_object_mut().unwrap().remove("retired");
    assert!(read(&less.to_string()).is_err());
}

#[test]
fn views_of_two_versions_are_two_views_that_place_keys_alike() {
    let of = |protocol| {
        let content = View::unfounded(RINGS_TRIED[0].clone()).content();
        View::from_content(Content { epoch: 3, protocol, ..content })
    };
    assert_ne!(of(1).digest(), of(2).digest());
    assert_eq!(of(1).placement(), of(2).placement());
}

/// Refused with and without unknown members: half of a view would be another view.
#[test]
fn a_view_of_a_newer_version_is_refused_with_what_to_do() {
    let content = View::unfounded(RINGS_TRIED[0].clone()).content();
    let view = to_text(&View::from_content(Content { protocol: NEXT, ..content }));
    let newer = view.replacen(&format!("\"protocol\":{NEXT}"), &format!("\"protocol\":{}", NEXT + 1), 1);
    let more = newer.replacen('{', "{\"more\":1,", 1);
    for text in [newer, more] {
        assert_eq!(read(&text).unwrap_err(), NEWER, "{text}");
    }
    let unknown = view.replacen('{', "{\"more\":1,", 1);
    assert_eq!(read(&unknown).unwrap_err(), UNLIKE);
}
