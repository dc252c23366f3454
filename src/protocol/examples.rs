//! Values that the tests of views and of their users share: three regions, one acceptor each.

#![allow(missing_docs, reason = "the tests and the simulation use it, and nobody else")]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::change::{Change, Illegal, Report};
use super::digest::{Digest32, digest};
use super::fingerprint::Fingerprint;
use super::key::{Key, KeyId, Tenant};
use super::record::{Answer, AnswerBody, Nonce, Recovery, RequestId, Row, State, Token};
use super::region::{Origin, RegionName};
use super::register::Ballot;
use super::ring::Ring;
use super::ring_spec::{Pin, PlaceBy, RegionSpec, RingSpec};
use super::time::{Date, Moment};
use super::view::{AcceptorId, Escrowed, Release, Standing, View, Voters};

pub fn name(text: &str) -> RegionName {
    RegionName::parse(text).unwrap()
}

/// A row of a first attempt that names no other, and of which nothing else is known.
pub fn row(origin: Origin, token: Token, nonce: u128, state: State) -> Row {
    Row {
        origin,
        token,
        nonce: Nonce(nonce),
        fingerprint: Fingerprint { raw: digest("test", &[]), canonical: None },
        state,
        over: Vec::new(),
        risk: Vec::new(),
        request_id: RequestId(nonce),
        expires: Date(0),
        principal: None,
        accepted: false,
        doubted: 0,
        settle_time: Duration::ZERO,
        recovery: Recovery::Park,
    }
}

/// A running attempt with so much of its hold left.
pub fn claimed(left: Duration) -> State {
    State::Claimed { left, past: Duration::ZERO }
}

/// An attempt in doubt, without a status, with so much of its hold left.
pub fn doubt(left: Duration) -> State {
    State::InDoubt { status: None, left, past: Duration::ZERO }
}

/// The one answer about these rows, which their order does not change.
pub fn in_every_order<T: PartialEq + Debug>(rows: &[Row], ask: impl Fn(Vec<Row>) -> T) -> T {
    let (mut turned, answer) = (rows.to_vec(), ask(rows.to_vec()));
    for _ in rows {
        turned.rotate_left(1);
        let back = turned.iter().rev().cloned().collect();
        for order in [turned.clone(), back] {
            assert_eq!(ask(order), answer, "the order of rows decides");
        }
    }
    answer
}

/// An answer with this status and nothing else.
pub fn settled(status: u16) -> State {
    let answer = Answer { status, headers: Vec::new(), body: AnswerBody::NotKept };
    State::Settled { answer: Arc::new(answer), age: Duration::ZERO, expired: false }
}

/// So many milliseconds after the process began.
pub fn at(millis: u64) -> Moment {
    Moment::from_nanos(millis * 1_000_000)
}

pub fn origin(text: &str) -> Origin {
    Origin::parse(text).unwrap()
}

/// A ring of regions of one weight, and its pins: a tenant, and the regions that may have its keys.
pub fn spec(names: &[&str], pins: &[(&str, &[&str])]) -> RingSpec {
    let regions = names.iter().map(|text| RegionSpec { name: name(text), weight: 1 }).collect();
    let pins = pins.iter().map(|(tenant, regions)| Pin {
        tenant: Tenant::parse(tenant).unwrap(),
        regions: regions.iter().map(|text| name(text)).collect(),
    });
    RingSpec { seed: 7, place_by: PlaceBy::Key, regions, pins: pins.collect() }
}

pub fn ring(names: &[&str], pins: &[(&str, &[&str])]) -> Arc<Ring> {
    Arc::new(Ring::build(&spec(names, pins)).unwrap())
}

pub fn abc() -> Arc<Ring> {
    static RING: OnceLock<Arc<Ring>> = OnceLock::new();
    RING.get_or_init(|| ring(&["a", "b", "c"], &[])).clone()
}

pub fn voters(ids: &[(&str, u128)]) -> Voters {
    ids.iter().map(|(text, id)| (name(text), AcceptorId(*id))).collect()
}

/// The meaning of a route, by its name alone.
pub fn meaning(route: &str) -> Digest32 {
    digest("onceway/test/1", &[route.as_bytes()])
}

pub fn meant(route: &str) -> Escrowed {
    Escrowed::from([(route.into(), meaning(route))])
}

/// The first view: all three serve and vote; the route `pay` is under escrow.
pub fn first() -> View {
    View::founding(1, abc(), meant("pay"), voters(&[("a", 1), ("b", 2), ("c", 3)]))
}

pub fn next(view: &View, change: Change) -> View {
    let next = view.next(&change).unwrap();
    // No derived value is of an intermediate view.
    let anew = View::from_content(next.content());
    assert_eq!((next.digest(), next.placement()), (anew.digest(), anew.placement()));
    assert_eq!(next.shares(), anew.shares());
    next
}

pub fn lose(view: &View, region: &str, frontier: u64) -> View {
    next(view, Change::Lose { region: name(region), frontier })
}

/// The view in which the region has sealed its store at `seal`.
pub fn seal(view: &View, region: &str, seal: u64) -> View {
    let generation = view.members()[&name(region)].generation;
    next(view, Change::Seal { region: name(region), generation, seal })
}

/// The draft that gives these regions these standings.
pub fn draft(view: &View, standings: &[(&str, Standing)]) -> View {
    let standings = standings.iter().map(|(text, standing)| (name(text), *standing)).collect();
    view.draft(view.ring().clone(), view.escrow().clone(), &standings).unwrap()
}

pub fn on_ring(view: &View, ring: Arc<Ring>) -> Result<View, Illegal> {
    view.draft(ring, view.escrow().clone(), &BTreeMap::new())
}

/// The report of a region that releases what it loses in `target`.
pub fn report(view: &View, target: &View, region: &str, seal: u64) -> Report {
    Report {
        generation: view.members()[&name(region)].generation,
        seal,
        release: Release { base: view.epoch(), target: target.placement() },
        seen: BTreeMap::new(),
    }
}

/// A clean move to the draft, with the seals of its losers.
pub fn moved(view: &View, target: View, seals: &[(&str, u64)]) -> View {
    let reports = seals.iter().map(|(text, seal)| (name(text), report(view, &target, text, *seal))).collect();
    next(view, Change::Move { target: Arc::new(target), reports })
}

/// The view in which `region` was drained after `view`.
pub fn drained(view: &View, region: &str, seal: u64) -> View {
    moved(view, draft(view, &[(region, SEALED)]), &[(region, seal)])
}

/// The view in which `region` took its arcs back after `view`; the others sealed at `seal`.
pub fn resumed(view: &View, region: &str, seal: u64) -> View {
    moved_at(view, draft(view, &[(region, Standing::Serving)]), seal)
}

/// A clean move to the draft, whose losers all sealed at `seal`.
pub fn moved_at(view: &View, target: View, seal: u64) -> View {
    let losers: Vec<RegionName> = view.losers(&target).cloned().collect();
    let seals: Vec<(&str, u64)> = losers.iter().map(|name| (name.as_str(), seal)).collect();
    moved(view, target, &seals)
}

/// The first view, and the one after each step, as in `lose a 5, rebuild a, resume a 1, kill`.
pub fn history(steps: &str) -> Vec<View> {
    let mut views = vec![first()];
    for step in steps.split(", ") {
        let (last, words) = (views.last().unwrap(), Vec::from_iter(step.split(' ')));
        let number = || words[2].parse().unwrap();
        views.push(match words[0] {
            "lose" => lose(last, words[1], number()),
            "seal" => seal(last, words[1], number()),
            "drain" => drained(last, words[1], number()),
            "resume" => resumed(last, words[1], number()),
            "rebuild" => next(last, Change::Rebuild { region: name(words[1]) }),
            "kill" => next(last, Change::Kill),
            other => panic!("{other} is no step"),
        });
    }
    views
}

pub const SEALED: Standing = Standing::Sealed { drained: true };

pub fn id(tenant: &str, key: &str) -> KeyId {
    KeyId::new(Tenant::parse(tenant).unwrap(), Key::parse(key).unwrap())
}

/// A key whose order begins like this.
pub fn key(view: &View, order: &[&str]) -> KeyId {
    let begins =
        |id: &KeyId| view.ring().order(id).names().map(RegionName::as_str).zip(order).all(|(a, b)| a == *b);
    (0..).map(|number| id("t", &format!("k{number}"))).find(begins).unwrap()
}

pub fn ballot(counter: u64, region: &str) -> Ballot {
    Ballot { counter, region: name(region), proposer: 9 }
}
