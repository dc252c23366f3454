//! Joining the ring and leaving it: the refusals, with the reasons that an operator gets.

use onceway::gateway::authority::act_error::ActError;

use super::trio::*;

async fn apply(trio: &Trio, weights: &[(RegionName, u32)]) -> Result<u64, ActError> {
    trio.apply(&a(), ring(weights)).await
}

/// A serving region is drained before it leaves. Then it leaves, stays listed, does not come home
/// and cannot be resumed.
#[test]
fn a_region_leaves_once_it_owns_nothing() {
    on(Trio::start(41), async |trio| {
        let without = [(a(), 100), (b(), 100)];
        refused(apply(&trio, &without).await, "refused", "`onceway region drain c-east` first");
        trio.drain(&a(), &c(), false).await.unwrap();
        apply(&trio, &without).await.unwrap();
        let votes =
            |name: &RegionName| trio.gateway(&a()).authority_status().voters.contains(&name.to_string());
        trio.until("c votes no more", ms(10_000), async || !votes(&c())).await;
        let listed = trio.gateway(&a()).authority_status().regions;
        assert!(listed.iter().any(|region| region.name == c().as_str() && !region.in_ring), "{listed:?}");
        let resumed = trio.gateway(&a()).resume(&c(), "test").await;
        refused(resumed, "refused", "left the ring");
        // No region waits for it: it is gone. Another one's keys find their successor, with only
        // the two remaining votes.
        trio.lose(&c());
        trio.drain(&a(), &b(), false).await.unwrap();
        trio.until("a owns all", ms(5_000), async || {
            let regions = trio.gateway(&a()).authority_status();
            regions.opening.is_empty()
                && regions.regions.iter().any(|one| one.name == a().as_str() && one.share > 0.999)
        })
        .await;
    });
}

/// A region joins once it answers, every region knows it, and rows flow both ways.
#[test]
fn a_region_that_does_not_answer_cannot_join() {
    on(Trio::start(42), async |trio| {
        let stranger = RegionName::parse("d-far").unwrap();
        let answer = apply(&trio, &[(a(), 100), (b(), 100), (c(), 100), (stranger, 100)]).await;
        refused(answer, "not-yet", "its gateway does not answer a-west");
    });
}

/// A region that was put back to an older onceway could not serve: it may not join.
#[test]
fn a_region_of_an_older_version_cannot_join() {
    on(Trio::start(44), async |trio| {
        trio.drain(&a(), &c(), false).await.unwrap();
        apply(&trio, &[(a(), 100), (b(), 100)]).await.unwrap();
        let all = [(a(), 100), (b(), 100), (c(), 100)];
        let again = async |name: &RegionName, speaks: Versions| {
            trio.node(name).process.kill();
            trio.begin_speaking(name, speaks);
            sleep(ms(3_000)).await;
        };
        let upgraded = Versions::new(NEWEST, NEXT).unwrap();
        for name in regions() {
            again(&name, upgraded).await;
        }
        let raised = trio.ask(async || Ok(trio.gateway(&a()).raise_protocol("test").await?.epoch)).await;
        raised.unwrap();
        again(&c(), Versions::OURS).await;
        let answer = apply(&trio, &all).await;
        refused(answer, "not-yet", "the regions go by protocol version 2 and it speaks 1-1");
        again(&c(), upgraded).await;
        apply(&trio, &all).await.unwrap();
    });
}

/// An edge owns nothing: it is not counted among those that go on serving.
#[test]
fn the_last_region_that_owns_keys_stays() {
    on(Trio::start(43), async |trio| {
        let edges = [(a(), 100), (b(), 0), (c(), 0)];
        apply(&trio, &edges).await.unwrap();
        let drained = trio.drain(&b(), &a(), true).await;
        refused(drained, "refused", "the last region");
        trio.drain(&b(), &c(), false).await.unwrap();
        let answer = apply(&trio, &[(a(), 0), (b(), 0), (c(), 100)]).await;
        refused(answer, "refused", "no region that serves would own keys");
    });
}

/// A route comes under escrow with its meaning, so the gateway of the act needs the route.
#[test]
fn a_route_that_the_gateway_does_not_have_comes_under_no_escrow() {
    on(Trio::start(46), async |trio| {
        let gateway = trio.gateway(&a());
        let before = trio.gate(&a()).view;
        let unknown: BTreeSet<Arc<str>> = ["strict", "nowhere"].map(Arc::from).into();
        let answer =
            gateway.apply(ring(&[(a(), 1), (b(), 1), (c(), 2)]), unknown, before.epoch(), "test").await;
        refused(answer, "refused", "no route \"nowhere\"");
        assert_eq!(trio.gate(&a()).view, before, "nothing was changed");
        let agreed: BTreeSet<Arc<str>> = before.escrow().keys().cloned().collect();
        assert!(!before.escrow().is_empty());
        let plan = gateway.plan(before.ring(), &agreed).unwrap();
        assert_eq!((plan.escrow_added, plan.escrow_removed, plan.escrow_changed), (vec![], vec![], vec![]));
    });
}

/// All acceptors have the first view, and its founder dies before it told any region. Each gateway
/// finds it at its own acceptor: nobody has to found anything again.
#[test]
fn a_founding_that_nobody_was_told_of_is_found() {
    for names in [&regions()[..], &[a()]] {
        on(async { Trio::unfounded(1, names, failover(), LIFE) }, async |trio| {
            names.iter().for_each(|name| trio.begin_process(name));
            let unserved = async || trio.send(&a(), "/probe", "early").await.said() == (503, "not-founded");
            trio.until("a request to be told that nothing is founded", ms(5_000), unserved).await;
            let founder = trio.gateway(&a());
            let found = async || founder.found(BTreeSet::new(), None).await.map(|report| report.epoch);
            assert_eq!(trio.ask(found).await, Ok(1));
            names.iter().for_each(|name| trio.node(name).process.kill());
            names.iter().for_each(|name| trio.begin_process(name));
            let serve = async || names.iter().all(|name| trio.serves(name));
            trio.until("all regions serve", ms(20_000), serve).await;
        });
    }
}
