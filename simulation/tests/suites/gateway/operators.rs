//! Acts by hand: the region and the time for a ruling about a key in doubt, and the client's answer
//! after it.

use onceway::gateway::operator::Refusal;
use onceway::ports::upkeep::{Act, Ruling};

use super::bench::*;
use super::upkeep::{UNCLEAR, abandon, answer};

fn act(ruling: Ruling) -> Act {
    Act { ruling, actor: "ada".to_owned(), reason: "the ledger says so".to_owned() }
}

#[test]
fn only_the_owner_rules_on_finished_attempts() {
    keyed(Bench::start(1), async |bench, [eu, us, _], key| {
        let gateway = bench.gateway(&eu);
        let absent = gateway.rule(&id(&key), &act(Ruling::Released)).await;
        assert_eq!(absent.unwrap_err(), Refusal::NotInDoubt("absent"));
        bench.upstream(&eu, UpstreamMode::DropBeforeEffect);
        assert_eq!(bench.send(&eu, "/park", &key).await.status, 504);
        let elsewhere = bench.gateway(&us).rule(&id(&key), &act(Ruling::Released)).await;
        assert_eq!(elsewhere.unwrap_err(), Refusal::NotOwner("eu".to_owned()));
        let early = gateway.rule(&id(&key), &act(Ruling::Released)).await.unwrap_err();
        assert!(matches!(early, Refusal::Running(left) if left > HOLD - ms(500)), "{early:?}");
        let mute = Act { reason: "  ".to_owned(), ..act(Ruling::Released) };
        assert!(matches!(gateway.rule(&id(&key), &mute).await.unwrap_err(), Refusal::Malformed(_)));
        bench.world.cluster.step_clock(&eu, 3_600_000_000);
        sleep(HOLD / 2).await;
        let early = gateway.rule(&id(&key), &act(Ruling::Released)).await.unwrap_err();
        assert!(matches!(early, Refusal::Running { .. }), "{early:?}");
        sleep(HOLD * 2).await;
        assert_eq!(bench.arrived(&eu), 1);
        // A dry run shows the key as it is, and does not change it.
        let dry = gateway.rehearse_rule(&id(&key), &act(Ruling::Released)).await.unwrap();
        assert_eq!((dry.state, dry.journal.len()), ("in-doubt", 0));
        assert!(matches!(gateway.rehearse_rule(&id(&key), &mute).await, Err(Refusal::Malformed(_))));
        let shown = gateway.rule(&id(&key), &act(Ruling::Released)).await.unwrap();
        assert_eq!((shown.state, shown.journal.len()), ("released", 1));
        bench.upstream(&eu, receipt(5));
        let reply = bench.send(&us, "/park", &key).await;
        assert_eq!((reply.status, reply.replayed, bench.effects(&key).len()), (201, false, 1));
    });
}

/// The hold of an attempt without an answer is over, but its request may still be inside the
/// upstream for the route's settle time. An operator who finds nothing there looked too early, and
/// a retry would be a second effect. An effect that did happen may be ruled at once.
#[test]
fn an_operator_cannot_release_a_possibly_running_attempt() {
    served(Bench::start(4), async |bench, [eu, ..]| {
        bench.upstream(&eu, UpstreamMode::DropBeforeEffect);
        let (key, other) = (key_of(&eu, "too-early"), key_of(&eu, "known"));
        assert_eq!(bench.send(&eu, "/park", &key).await.status, 504);
        assert_eq!(bench.send(&eu, "/park", &other).await.status, 504);
        sleep(HOLD + LATE).await;
        let gateway = bench.gateway(&eu);
        let early = gateway.rule(&id(&key), &act(Ruling::Released)).await.unwrap_err();
        assert!(matches!(early, Refusal::Running(left) if left <= SETTLE_TIME), "{early:?}");
        let reply = gateway.rule(&id(&other), &act(Ruling::Settled(answer()))).await.unwrap();
        assert_eq!(reply.state, "settled");
        sleep(SETTLE_TIME + LATE).await;
        assert_eq!(gateway.rule(&id(&key), &act(Ruling::Released)).await.unwrap().state, "released");
    });
}

/// An operator was wrong, or the effect came later than anybody thought: the status address, once
/// asked about the second attempt, names both.
#[test]
fn a_probe_journals_the_effect_of_a_released_attempt() {
    for (broken, late) in
        [(UpstreamMode::EffectThenDrop, Some("1.1")), (UpstreamMode::DropBeforeEffect, None)]
    {
        keyed(Bench::start(5), async |bench, [eu, ..], key| {
            bench.upstream(&eu, broken.clone());
            bench.world.upstreams.set_probes(&eu, ProbeMode::CannotSay);
            assert_eq!(bench.send(&eu, "/probe", &key).await.status, 504);
            sleep(HOLD + SETTLE_TIME + LATE).await;
            let reply = bench.gateway(&eu).rule(&id(&key), &act(Ruling::Released)).await.unwrap();
            assert_eq!(reply.state, "released");
            bench.world.upstreams.set_probes(&eu, ProbeMode::Ledger);
            bench.upstream(&eu, receipt(5));
            assert_eq!(bench.send(&eu, "/probe", &key).await.status, 201);
            sleep(ms(500)).await;
            let shown = bench.gateway(&eu).key_status(&id(&key)).await.unwrap();
            let found = shown.journal.iter().find(|entry| entry.kind == "late");
            assert_eq!(found.and_then(|entry| entry.token.as_deref()), late, "{:?}", shown.journal);
        });
    }
}

/// A row that another region wrote is that region's: the owner writes a stand-in for it.
#[test]
fn the_owner_rules_about_another_regions_attempt() {
    for ruling in [Ruling::Settled(answer()), Ruling::Released] {
        keyed(Bench::start(2), async |bench, [eu, us, _], key| {
            let store = bench.world.cluster.store(&us);
            let attempt = abandon(&store, "park", &key).await;
            store.doubt(&attempt, UNCLEAR).await.unwrap();
            sleep(ms(500)).await;
            assert_eq!(bench.send(&us, "/park", &key).await.said(), (409, "outcome-unknown"));
            if matches!(ruling, Ruling::Released) {
                // A status does not end the attempt: it may still take effect.
                let early = bench.gateway(&eu).rule(&id(&key), &act(ruling.clone())).await.unwrap_err();
                assert!(matches!(early, Refusal::Running { .. }), "{early:?}");
                sleep(HOLD * 2).await;
            }
            let shown = bench.gateway(&eu).rule(&id(&key), &act(ruling.clone())).await.unwrap();
            let settled = matches!(ruling, Ruling::Settled(_));
            assert_eq!((shown.state, shown.journal.len()), (if settled { "settled" } else { "released" }, 1));
            sleep(ms(200)).await;
            let reply = bench.send(&us, "/park", &key).await;
            assert_eq!((reply.status, reply.replayed), (201, settled));
            assert_eq!(bench.effects(&key).len(), usize::from(!settled));
        });
    }
}
