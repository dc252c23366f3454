//! Two of three regions are gone: nobody runs anything until an operator says that they are stopped.
//!
//! Neighbours: `play::operator` does the same where gateways call for it, in any scenario. It must not attest what is not so.

use std::collections::BTreeSet;
use std::sync::Arc;

use onceway::ports::Acceptors;
use onceway::ports::store::Written;
use onceway::protocol::change::Change;
use onceway::protocol::register::{Accepted, Acceptor, Ballot};
use tokio::time::sleep;

use super::trio::{LEASE, STABLE, Trio, a, b, c, key_of, ms, play};

#[test]
fn the_last_region_goes_on_once_an_operator_attests_that_the_others_are_stopped() {
    play(async {
        let trio = Trio::start(1).await;
        let (own, gained) = (key_of(&c(), &a(), "own"), key_of(&a(), &b(), "gained"));
        let stopped = BTreeSet::from([a(), b()]);
        let gateway = trio.node(&c()).gateway;
        let refused = gateway.break_glass(&stopped, "ann", "both are off").await.unwrap_err();
        assert_eq!(refused.code, "refused", "a majority answers: {refused}");
        trio.lose(&a());
        trio.lose(&b());
        sleep(LEASE).await;
        for _ in 0..60 {
            assert_eq!(trio.send(&c(), "/park", &own).await.status, 503);
            assert_eq!(trio.send(&c(), "/park", &gained).await.status, 503);
            sleep(ms(100)).await;
        }
        let wrong = gateway.break_glass(&BTreeSet::from([a()]), "ann", "one is off").await.unwrap_err();
        assert_eq!(wrong.code, "not-yet", "{wrong}");
        gateway.break_glass(&stopped, "ann", "both are off").await.unwrap();
        assert_eq!(trio.insist(&c(), "/park", &own, LEASE).await.by, c().as_str());
        let told = trio.insist(&c(), "/park", &gained, ms(10_000)).await;
        assert_eq!(told.by, c().as_str());
        assert!(trio.risk(&gained).contains(&a()), "by the window alone");
        let noted = trio.world.cluster.notes(&c());
        assert!(noted.iter().any(|entry| entry.kind == "glass-broken"), "{noted:?}");
        trio.bring_back(&a());
        trio.bring_back(&b());
        trio.all_home(STABLE + ms(60_000)).await;
        for key in [&own, &gained] {
            assert!(trio.insist(&b(), "/park", key, ms(5_000)).await.replayed, "{key}");
            assert_eq!(trio.effects(key).len(), 1, "{key}");
        }
        trio.check();
    });
}

/// Their disks are gone, too: their acceptors are new ones, which answer nothing before they are voters. The one that is left takes them in alone
/// (swarm, seed 268: it waited for the word of the very one that it took in, and nobody ever ran a key again).
#[test]
fn the_last_region_takes_voters_in_that_were_made_anew() {
    play(async {
        let trio = Trio::start(2).await;
        let stopped = BTreeSet::from([a(), b()]);
        for region in &stopped {
            trio.lose(region);
            trio.world.cluster.destroy(region);
        }
        sleep(LEASE).await;
        let gateway = trio.node(&c()).gateway;
        gateway.break_glass(&stopped, "ann", "their disks are gone").await.unwrap();
        for region in &stopped {
            let rebuilt = async || {
                gateway.rebuild(region, true, "ann", "").await.is_ok_and(|done| done.generation == 2)
            };
            trio.until("the store may be replaced", ms(30_000), rebuilt).await;
            trio.world.cluster.rebuild(region, 2);
            trio.cut_off(region, false);
            trio.begin_process(region);
        }
        let all_serve = async || [a(), b(), c()].iter().all(|name| trio.serves(name));
        trio.until("all serve", STABLE * 4 + ms(60_000), all_serve).await;
        let all_vote = async || gateway.authority_status().voters.len() == 3;
        trio.until("all vote again", ms(30_000), all_vote).await;
        trio.lose(&c());
        let key = key_of(&c(), &a(), "on");
        assert_eq!(trio.insist(&a(), "/park", &key, ms(40_000)).await.status, 201, "and it may be lost");
        trio.check();
    });
}

/// A change was on its way when the majority went: the forced view comes after it, not in its place (swarm, seed 491: the acceptor that had
/// accepted it refused every break-glass, for ever).
#[test]
fn a_change_that_was_on_its_way_does_not_keep_the_glass_whole() {
    play(async {
        let trio = Trio::start(3).await;
        trio.lose(&a());
        trio.lose(&b());
        let gateway = trio.node(&c()).gateway;
        // What a round leaves whose proposer died before anybody else accepted.
        let store = trio.world.cluster.store(&c());
        let (version, held) = store.acceptor().await.unwrap();
        let view = Arc::new(trio.gate(&c()).view.next(&Change::Kill).unwrap());
        let ballot = Ballot { counter: 1_000, region: b(), proposer: 1 };
        let accepted = Some(Accepted { ballot: ballot.clone(), view: view.clone() });
        let on_its_way = Acceptor { promised: Some(ballot), accepted, ..held };
        assert_eq!(store.set_acceptor(version, &on_its_way).await.unwrap(), Written::Done);
        sleep(LEASE).await;
        let epoch = gateway.break_glass(&BTreeSet::from([a(), b()]), "ann", "both are off").await.unwrap();
        assert!(epoch > view.epoch());
        let key = key_of(&c(), &a(), "own");
        assert_eq!(trio.insist(&c(), "/park", &key, ms(20_000)).await.by, c().as_str());
        trio.bring_back(&a());
        trio.bring_back(&b());
        trio.all_home(STABLE * 4 + ms(60_000)).await;
        trio.check();
    });
}

/// Its own Postgres was restarted meanwhile: no peer is left who could say what it remembers of it (swarm, seed 1530).
#[test]
fn the_last_region_whose_store_restarted_goes_on_too() {
    play(async {
        let trio = Trio::start(4).await;
        let stopped = BTreeSet::from([a(), b()]);
        for region in &stopped {
            trio.lose(region);
            trio.world.cluster.destroy(region);
        }
        trio.world.cluster.restart(&c());
        sleep(LEASE * 2).await;
        let gateway = trio.node(&c()).gateway;
        gateway.break_glass(&stopped, "ann", "their disks are gone").await.unwrap();
        let key = key_of(&c(), &a(), "alone");
        assert_eq!(trio.insist(&c(), "/park", &key, ms(20_000)).await.by, c().as_str());
        trio.check();
    });
}

/// But not where it came back as an old copy, and this gateway knows that: it has forgotten claims.
#[test]
fn the_last_region_whose_store_went_back_does_not_go_on() {
    play(async {
        let trio = Trio::start(5).await;
        let key = key_of(&c(), &a(), "forgotten");
        let copied = trio.world.cluster.copy(&c());
        assert_eq!(trio.send(&c(), "/park", &key).await.status, 201);
        sleep(ms(1_000)).await;
        let stopped = BTreeSet::from([a(), b()]);
        for region in &stopped {
            trio.lose(region);
            trio.world.cluster.destroy(region);
        }
        trio.world.cluster.restore(&c(), copied);
        sleep(LEASE * 2).await;
        let gateway = trio.node(&c()).gateway;
        let refused = gateway.break_glass(&stopped, "ann", "their disks are gone").await.unwrap_err();
        assert_eq!(refused.code, "refused", "{refused}");
        sleep(LEASE).await;
        assert_eq!(trio.send(&c(), "/park", &key).await.status, 503);
        assert_eq!(trio.effects(&key).len(), 1);
        trio.check();
    });
}
