//! Two of three regions are gone: no region runs anything until an operator says that they are
//! stopped.

use onceway::protocol::change::STRIDE;

use super::trio::*;

fn disks_are_lost(trio: &Trio, regions: &[RegionName]) -> BTreeSet<RegionName> {
    regions.iter().for_each(|region| trio.lose_disk(region));
    regions.iter().cloned().collect()
}

/// An operator says at a region that these are stopped.
async fn breaks_glass(trio: &Trio, at: &RegionName, stopped: &BTreeSet<RegionName>) -> Result<u64, ActError> {
    trio.gateway(at).break_glass(stopped, "ann", "they are off").await
}

async fn come_back(trio: &Trio, regions: [RegionName; 2]) {
    regions.iter().for_each(|region| trio.bring_back(region));
    trio.all_home(STABLE * 4 + ms(60_000)).await;
}

#[test]
fn the_last_region_goes_on_when_an_operator_attests() {
    checked(Trio::start(1), async |trio| {
        let (own, gained) = (key_of(&c(), &a(), "own"), key_of(&a(), &b(), "gained"));
        let stopped = BTreeSet::from([a(), b()]);
        refused(breaks_glass(&trio, &c(), &stopped).await, "refused", ""); // a majority answers
        trio.lose(&a());
        trio.lose(&b());
        sleep(LEASE).await;
        for _ in 0..60 {
            assert_eq!(trio.send(&c(), "/park", &own).await.status, 503);
            assert_eq!(trio.send(&c(), "/park", &gained).await.status, 503);
            sleep(ms(100)).await;
        }
        refused(breaks_glass(&trio, &c(), &BTreeSet::from([a()])).await, "not-yet", "");
        breaks_glass(&trio, &c(), &stopped).await.unwrap();
        // It cannot know the last view of the others: even its own keys wait for the window.
        assert_eq!(trio.insist(&c(), "/park", &own, ms(10_000)).await.by, c().as_str());
        assert!(trio.risk(&own).contains(&a()), "it may have been taken over before");
        assert_eq!(trio.insist(&c(), "/park", &gained, ms(10_000)).await.by, c().as_str());
        assert!(trio.risk(&gained).contains(&a()), "by the window alone");
        let noted = trio.world.cluster.notes(&c());
        assert!(noted.iter().any(|entry| entry.kind == "glass-broken"), "{noted:?}");
        come_back(&trio, [a(), b()]).await;
        for key in [&own, &gained] {
            trio.replays_once(&b(), "/park", key, ms(5_000)).await;
        }
    });
}

/// Their disks are gone, too: their acceptors are new ones, which answer nothing before they are
/// voters. The last region takes them in alone. (Swarm, seed 268: it waited for the answer of the
/// very one that it took in, and no key ever ran again.)
#[test]
fn the_last_region_takes_voters_in_that_were_made_anew() {
    checked(Trio::start(2), async |trio| {
        let stopped = disks_are_lost(&trio, &[a(), b()]);
        sleep(LEASE).await;
        let gateway = trio.gateway(&c());
        breaks_glass(&trio, &c(), &stopped).await.unwrap();
        for region in &stopped {
            let rebuilt = async || {
                gateway.rebuild(region, true, "ann", "").await.is_ok_and(|done| done.generation == 2)
            };
            trio.until("the store may be replaced", ms(30_000), rebuilt).await;
            trio.begin_anew(region);
        }
        let all_serve = async || regions().iter().all(|name| trio.serves(name));
        trio.until("all serve", STABLE * 4 + ms(60_000), all_serve).await;
        let all_vote = async || gateway.authority_status().voters.len() == 3;
        trio.until("all vote again", ms(30_000), all_vote).await;
        trio.lose(&c());
        let key = key_of(&c(), &a(), "on");
        assert_eq!(trio.insist(&a(), "/park", &key, ms(40_000)).await.status, 201, "and it may be lost");
    });
}

/// The region has a new store, which one of the stopped regions would have to approve. It answers,
/// but its acceptor takes nothing. (Swarm, seed 68558: for ever, because `break-glass` took it for
/// half of a majority.)
#[test]
fn an_unapproved_region_counts_in_no_majority() {
    checked(Trio::start(9), async |trio| {
        disks_are_lost(&trio, &[b()]);
        trio.until_lost(&b(), &a()).await;
        let gateway = trio.gateway(&a());
        let rebuilt =
            async || gateway.rebuild(&b(), true, "ann", "").await.is_ok_and(|done| done.generation == 2);
        trio.until("the store may be replaced", ms(30_000), rebuilt).await;
        let first = trio.gate(&a()).view.voters()[&b()];
        trio.world.cluster.rebuild(&b(), 2);
        trio.cut_off(&b(), false);
        // c never reports b's heartbeats.
        trio.world.cut(&c(), &b(), true, ONE_WAY);
        trio.begin_process(&b());
        let votes = async || trio.gate(&a()).view.voters().get(&b()).is_some_and(|id| *id != first);
        trio.until("its new acceptor is a voter", STABLE + ms(30_000), votes).await;
        trio.lose(&c());
        sleep(LEASE * 2).await;
        let own = key_of(&a(), &b(), "own");
        assert_eq!(trio.send(&a(), "/park", &own).await.status, 503);
        let why = breaks_glass(&trio, &a(), &BTreeSet::from([c()])).await.unwrap_err();
        assert!(why.code == "not-yet" && why.detail.contains(b().as_str()), "{why}");
        assert!(why.detail.contains("cannot vote before their stores are approved"), "{why}");
        trio.lose(&b());
        breaks_glass(&trio, &a(), &BTreeSet::from([c(), b()])).await.unwrap();
        for lost in [b(), c()] {
            gateway.takeover(&lost, true, "ann", "nobody can say what it had").await.unwrap();
        }
        assert_eq!(trio.insist(&a(), "/park", &own, ms(20_000)).await.by, a().as_str());
    });
}

/// A change was on its way when the majority went: the forced view comes after it, not in its
/// place. (Swarm, seed 491: the acceptor that had accepted it refused every break-glass, for ever.)
#[test]
fn a_pending_change_does_not_prevent_break_glass() {
    checked(Trio::start(3), async |trio| {
        trio.lose(&a());
        trio.lose(&b());
        let view = Arc::new(trio.gate(&c()).view.next(&Change::Kill).unwrap());
        trio.begin_change(&c(), b(), view.clone()).await;
        sleep(LEASE).await;
        let epoch = breaks_glass(&trio, &c(), &BTreeSet::from([a(), b()])).await.unwrap();
        assert!(epoch > view.epoch());
        let key = key_of(&c(), &a(), "own");
        assert_eq!(trio.insist(&c(), "/park", &key, ms(20_000)).await.by, c().as_str());
        come_back(&trio, [a(), b()]).await;
    });
}

/// Its own Postgres was restarted meanwhile: no peer is left that could report its heartbeats
/// (swarm, seed 1530).
#[test]
fn the_last_region_whose_store_restarted_goes_on_too() {
    checked(Trio::start(4), async |trio| {
        let stopped = disks_are_lost(&trio, &[a(), b()]);
        trio.world.cluster.restart(&c());
        sleep(LEASE * 2).await;
        breaks_glass(&trio, &c(), &stopped).await.unwrap();
        let key = key_of(&c(), &a(), "alone");
        assert_eq!(trio.insist(&c(), "/park", &key, ms(20_000)).await.by, c().as_str());
    });
}

/// The reverse: it came back as an old copy, and this gateway knows that. It has forgotten claims.
#[test]
fn the_last_region_whose_store_went_back_does_not_go_on() {
    checked(Trio::start(5), async |trio| {
        let key = key_of(&c(), &a(), "forgotten");
        let copied = trio.world.cluster.copy(&c());
        assert_eq!(trio.send(&c(), "/park", &key).await.status, 201);
        sleep(ms(1_000)).await;
        let stopped = disks_are_lost(&trio, &[a(), b()]);
        trio.world.cluster.restore(&c(), copied);
        sleep(LEASE * 2).await;
        refused(breaks_glass(&trio, &c(), &stopped).await, "refused", "");
        sleep(LEASE).await;
        assert_eq!(trio.send(&c(), "/park", &key).await.status, 503);
        assert_eq!(trio.effects(&key).len(), 1);
    });
}

/// The last region was lost itself, Postgres and all, and came back after the others were gone. Its
/// gateway knows of no view, because nobody can say what the store had. (Swarm, seeds 1430, 1489
/// and 1946: "the register is not founded", for ever.)
#[test]
fn a_gateway_that_started_anew_goes_on_by_what_its_store_keeps() {
    checked(Trio::start(6), async |trio| {
        trio.lose(&c());
        let stopped = disks_are_lost(&trio, &[a(), b()]);
        trio.bring_back(&c());
        sleep(LEASE * 2).await;
        assert_eq!(trio.gateway(&c()).authority_status().epoch, 0, "the store is not approved");
        breaks_glass(&trio, &c(), &stopped).await.unwrap();
        let key = key_of(&c(), &a(), "anew");
        until_accepted(&trio, &c(), &[a(), b()]).await;
        assert_eq!(trio.insist(&c(), "/park", &key, ms(20_000)).await.by, c().as_str());
    });
}

/// The same holds if a standby was promoted. It may lack rows that the others had seen, and nobody
/// is left who could say.
#[test]
fn the_last_region_whose_standby_was_promoted_does_not_go_on() {
    checked(Trio::start(12), async |trio| {
        let stopped = disks_are_lost(&trio, &[a(), b()]);
        trio.lose(&c());
        trio.world.cluster.promote(&c());
        trio.bring_back(&c());
        sleep(LEASE * 2).await;
        refused(breaks_glass(&trio, &c(), &stopped).await, "refused", "");
        let noted = trio.world.cluster.notes(&c());
        assert!(noted.iter().all(|entry| entry.kind != "glass-broken"), "nothing was broken: {noted:?}");
        assert_eq!(trio.send(&c(), "/park", &key_of(&c(), &a(), "promoted")).await.status, 503);
    });
}

/// Accepts the risk that a gateway calls for if it never measured a lag.
async fn until_accepted(trio: &Trio, at: &RegionName, lost: &[RegionName]) {
    let gateway = trio.gateway(at);
    let open = async || {
        for region in lost {
            // Not yet, while the region does not serve.
            let _ = gateway.takeover(region, true, "ann", "nobody can say what it had").await;
        }
        trio.serves(at) && trio.gate(at).is_open()
    };
    trio.until("it serves and is open", STABLE * 4 + ms(60_000), open).await;
}

/// Its own store is a new one whose acceptor is no voter yet, and the voters' stores were destroyed
/// meanwhile (swarm, seed 293).
#[test]
fn a_region_whose_acceptor_was_made_anew_goes_on_alone() {
    keyed(Trio::start(7), async |trio, key| {
        assert_eq!(trio.send(&a(), "/park", &key).await.status, 201);
        sleep(ms(1_000)).await;
        disks_are_lost(&trio, &[a()]);
        trio.until_lost(&a(), &b()).await;
        trio.gateway(&b()).rebuild(&a(), true, "ann", "its disk is gone").await.unwrap();
        trio.begin_anew(&a());
        while trio.world.cluster.gate(&a()).is_none() {
            sleep(ms(5)).await;
        }
        let stopped = disks_are_lost(&trio, &[b(), c()]);
        let own = trio.world.cluster.acceptors()[&a()];
        assert!(!trio.gate(&a()).view.voters().values().any(|id| *id == own), "too late for this test");
        refused(breaks_glass(&trio, &a(), &BTreeSet::from([b()])).await, "not-yet", ""); // c remembers promises
        breaks_glass(&trio, &a(), &stopped).await.unwrap();
        sleep(LEASE / 2).await;
        assert!(
            !trio.world.cluster.store(&a()).acceptor().await.unwrap().1.admitted,
            "leases may run still (docs/protocol.md#rule-17)"
        );
        until_accepted(&trio, &a(), &[a(), b(), c()]).await;
        let answer = trio.insist(&a(), "/park", &key, ms(20_000)).await;
        assert!(answer.replayed || trio.risk(&key).contains(&a()), "{answer:?}");
    });
}

/// The survivor does not know the last view of the stopped regions. That view and the forced one
/// share no epoch, and keys that it gave away run at risk. Were the forced view the next one, epoch
/// 2 would have two views, and c would silently run its own key again.
#[test]
fn a_forced_view_never_reuses_a_stopped_regions_epoch() {
    checked(Trio::start(8), async |trio| {
        let key = key_of(&c(), &a(), "taken");
        trio.cut_off(&c(), true);
        trio.until_lost(&c(), &a()).await;
        assert_eq!(trio.insist(&a(), "/rerun", &key, TAKEOVER).await.by, a().as_str());
        let theirs = trio.gate(&a()).view.epoch();
        let stopped = BTreeSet::from([a(), b()]);
        stopped.iter().for_each(|region| trio.lose(region));
        sleep(LEASE).await;
        assert!(trio.gateway(&c()).authority_status().epoch < theirs, "c never heard of it");
        let epoch = breaks_glass(&trio, &c(), &stopped).await.unwrap();
        assert!(epoch > theirs + STRIDE / 2, "{epoch}");
        assert_eq!(trio.send(&c(), "/rerun", &key).await.status, 503, "it may have run elsewhere");
        trio.insist(&c(), "/rerun", &key, ms(20_000)).await;
        assert!(trio.risk(&key).contains(&a()), "never in silence");
        come_back(&trio, [a(), b()]).await;
        assert!(trio.gate(&a()).view.epoch() > epoch);
    });
}

/// Rows of a had arrived at b, which is gone as well: c does not wait for rows that nobody can send
/// (swarm, seed 230).
#[test]
fn no_gate_waits_for_rows_of_stopped_regions() {
    checked(Trio::start(9), async |trio| {
        trio.hold(&a(), &[c()], true);
        let key = key_of(&a(), &c(), "seen");
        assert_eq!(trio.send(&a(), "/park", &key).await.status, 201);
        sleep(ms(2_000)).await;
        let stopped = disks_are_lost(&trio, &[a(), b()]);
        sleep(LEASE).await;
        breaks_glass(&trio, &c(), &stopped).await.unwrap();
        assert_eq!(trio.insist(&c(), "/park", &key, ms(20_000)).await.by, c().as_str());
        assert!(trio.risk(&key).contains(&a()));
    });
}

/// No serving region could meet a change that was begun and not ended. A region that wants another
/// change has to end it (swarm, seed 641).
#[test]
fn an_unfinished_change_ends_without_any_lease() {
    checked(Trio::start(10), async |trio| {
        for region in [b(), c()] {
            trio.drain(&a(), &region, true).await.unwrap();
        }
        let sealed = |at: &RegionName| [b(), c()].iter().all(|name| !trio.gate(at).view.serves(name));
        trio.until("all know", ms(5_000), async || regions().iter().all(sealed)).await;
        let known = trio.gate(&a()).view;
        trio.lose(&a());
        trio.begin_change(&c(), a(), Arc::new(known.next(&Change::Kill).unwrap())).await;
        sleep(LEASE * 2).await;
        let b_says = trio.gateway(&b());
        let lost = async || b_says.takeover(&a(), false, "ann", "its disk is gone").await.is_ok();
        trio.until("a is declared lost", ms(30_000), lost).await;
        trio.until("b is resumed", ms(30_000), async || b_says.resume(&b(), "ann").await.is_ok()).await;
        trio.until("b serves", ms(30_000), async || trio.serves(&b())).await;
    });
}

/// The survivor has nothing to serve, and no region is left that could give it anything: it says
/// what to do (swarm, seeds 1353 and 1915).
#[test]
fn a_sealed_survivor_says_that_no_majority_is_left() {
    checked(Trio::start(11), async |trio| {
        trio.drain(&a(), &c(), true).await.unwrap();
        let says = || {
            let reasons = trio.gateway(&c()).readiness().reasons;
            reasons.iter().any(|reason| reason.contains("no majority of the voters answers"))
        };
        trio.lose(&a());
        sleep(ms(1_000)).await;
        assert!(!says(), "b answers still");
        trio.lose(&b());
        trio.until("c says it", ms(10_000), async || says()).await;
    });
}
