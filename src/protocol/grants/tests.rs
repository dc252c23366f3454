//! Tests of the end of a grant: one process saw it unchanged for long enough on its own clock
//! (docs/protocol.md#rule-17, docs/protocol.md#rule-22).

use std::sync::Arc;
use std::time::Duration;

use super::super::digest::digest;
use super::super::examples::{at, first, name};
use super::super::view::AcceptorId;
use super::*;

const DRIFT: Drift = Drift { ppm: 1_000, margin: Duration::from_millis(10) };
const TTL: Duration = Duration::from_secs(1);

fn grant(boot: u8, number: u64) -> Grant {
    let boot = digest("test", &[&[boot]]);
    Grant { generation: 1, boot, view: Arc::new(first()), number, ttl: TTL, holders: BTreeMap::new() }
}

fn holding(grant: Grant) -> Acceptor {
    let mut acceptor = Acceptor::made(AcceptorId(1));
    acceptor.grants.insert(name("a"), grant);
    acceptor
}

#[test]
fn a_grant_ends_when_unchanged_for_lease_and_drift() {
    let mut watch = GrantWatch::new(DRIFT);
    let held = grant(1, 1);
    assert!(!watch.is_over(&name("a"), &held, at(99_999)), "never observed");
    watch.observe(&holding(held.clone()), at(100));
    watch.observe(&holding(held.clone()), at(700));
    assert!(!watch.is_over(&name("a"), &held, at(100 + 1_010)), "the drift is not over");
    assert!(watch.is_over(&name("a"), &held, at(100 + 1_011)), "since it was seen first");
    assert_eq!(watch.over_at(&name("a"), &held), Some(at(1_111)));
}

#[test]
fn a_renewal_begins_anew() {
    let mut watch = GrantWatch::new(DRIFT);
    watch.observe(&holding(grant(1, 1)), at(0));
    watch.observe(&holding(grant(1, 2)), at(900));
    assert!(!watch.is_over(&name("a"), &grant(1, 2), at(1_900)));
    assert!(watch.is_over(&name("a"), &grant(1, 2), at(1_911)));
    assert!(!watch.is_over(&name("a"), &grant(1, 1), at(9_999)), "not what was asked for");
    assert!(!watch.is_over(&name("a"), &grant(2, 2), at(9_999)), "another start of that Postgres");
}

#[test]
fn a_process_that_starts_has_seen_nothing() {
    let mut watch = GrantWatch::new(DRIFT);
    watch.observe(&holding(grant(1, 1)), at(0));
    let mut restarted = GrantWatch::new(DRIFT);
    assert!(watch.is_over(&name("a"), &grant(1, 1), at(2_000)));
    restarted.observe(&holding(grant(1, 1)), at(2_000));
    assert!(!restarted.is_over(&name("a"), &grant(1, 1), at(3_000)));
    assert!(restarted.is_over(&name("a"), &grant(1, 1), at(3_011)));
}

#[test]
fn grants_that_an_acceptor_dropped_are_forgotten() {
    let mut watch = GrantWatch::new(DRIFT);
    watch.observe(&holding(grant(1, 1)), at(0));
    watch.observe(&Acceptor::made(AcceptorId(1)), at(1));
    watch.observe(&holding(grant(1, 1)), at(2_000));
    assert!(!watch.is_over(&name("a"), &grant(1, 1), at(2_001)));
}
