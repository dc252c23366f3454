//! Keys owned elsewhere: one hop, never resent, never held over an outage.

use super::accepted::asked;
use super::bench::*;

/// A region that counts its forwards, and passes them on or, with none behind it, refuses them.
struct Counting {
    behind: Box<dyn Region>,
    owns: bool,
    forwards: Mutex<usize>,
}

impl Region for Counting {
    fn forward(&self, from: RegionName, forward: Forward) -> Answering<'_, ForwardReply> {
        *self.forwards.lock().unwrap() += 1;
        if self.owns {
            return self.behind.forward(from, forward);
        }
        Box::pin(async { ForwardReply::NotOwner { epoch: 9 } })
    }

    fn pong(&self) -> Answering<'_, Pong> {
        self.behind.pong()
    }

    fn ask(&self, from: RegionName, question: Question) -> Answering<'_, PeerReply> {
        self.behind.ask(from, question)
    }
}

fn count(bench: &Bench, at: &RegionName, owns: bool) -> Arc<Counting> {
    let counting =
        Arc::new(Counting { behind: Box::new(bench.gateway(at)), owns, forwards: Mutex::default() });
    bench.world.network.plug(at.clone(), counting.clone());
    counting
}

#[test]
fn a_forward_is_never_forwarded_again() {
    served(Bench::start(1), async |bench, _| {
        let key = key_of(&region("ap"), "misdirected");
        let reply = bench.gateway(&region("us")).forward(region("eu"), forward("/park", &key)).await;
        assert!(matches!(reply, ForwardReply::NotOwner { epoch: 1 }));
        sleep(ms(1_000)).await;
        for at in ["eu", "us", "ap"] {
            assert_eq!(bench.arrived(&region(at)), 0, "{at}");
        }
        assert_eq!(bench.state(&region("ap"), &key).await, "absent");
    });
}

#[test]
fn regions_that_do_not_agree_on_the_owner_say_moving() {
    served(Bench::start(2), async |bench, [eu, us, _]| {
        let counting = count(&bench, &eu, false);
        assert_eq!(bench.send(&us, "/park", &key_of(&eu, "disputed")).await.said(), (503, "moving"));
        assert_eq!((*counting.forwards.lock().unwrap(), bench.arrived(&eu), bench.arrived(&us)), (1, 0, 0));
        let (status, problem) = asked(&bench.gateway(&us), &key_of(&eu, "disputed")).await;
        assert_eq!((status, &problem["code"]), (503, &"moving".into()), "whoever owns it was not asked");
    });
}

#[test]
fn a_forward_broken_after_sending_is_not_resent() {
    for (mode, effects) in [(LinkMode::LoseReply, 1), (LinkMode::LoseRequest, 0)] {
        served(Bench::start(3), async |bench, [eu, us, _]| {
            let (key, counting) = (key_of(&eu, "broken"), count(&bench, &eu, true));
            bench.world.network.set_link(&us, &eu, mode, ONE_WAY);
            assert_eq!(bench.send(&us, "/park", &key).await.said(), (504, "outcome-unknown"), "{mode:?}");
            sleep(ms(2_000)).await;
            assert_eq!([*counting.forwards.lock().unwrap(), bench.arrived(&eu)], [effects; 2], "{mode:?}");
            bench.world.network.set_link(&us, &eu, LinkMode::Up, ONE_WAY);
            bench.all_serve().await;
            let answer = bench.send(&us, "/park", &key).await;
            assert_eq!((answer.status, answer.replayed), (201, effects == 1), "{mode:?}");
            assert_eq!(answer.body, bench.effects(&key)[0].body);
            assert_eq!((bench.effects(&key).len(), bench.arrived(&us)), (1, 0), "{mode:?}");
        });
    }
}

#[test]
fn a_peer_that_refuses_is_home_unavailable() {
    served(Bench::start(4), async |bench, [eu, us, _]| {
        bench.links(&eu, LinkMode::Refuse);
        assert_eq!(bench.send(&us, "/park", &key_of(&eu, "away")).await.said(), (503, "home-unavailable"));
        assert_eq!((bench.arrived(&eu), bench.arrived(&us)), (0, 0));
    });
}

#[test]
fn a_silent_peer_is_given_up_within_about_a_second() {
    served(Bench::start(5), async |bench, [eu, us, _]| {
        bench.links(&eu, LinkMode::Silent);
        let begun = Instant::now();
        assert_eq!(bench.send(&us, "/park", &key_of(&eu, "mute")).await.said(), (503, "home-unavailable"));
        assert!(begun.elapsed() >= ms(1_000) && begun.elapsed() < ms(1_500), "{:?}", begun.elapsed());
        let known = Instant::now();
        assert_eq!(bench.send(&us, "/park", &key_of(&eu, "mute")).await.said(), (503, "home-unavailable"));
        assert!(known.elapsed() < ms(20), "what is known to be silent is not asked: {:?}", known.elapsed());
        assert_eq!(bench.arrived(&us), 0);
    });
}

/// Slow is not silent: a peer that answers pings may take its time with an answer.
#[test]
fn a_gateway_waits_for_slow_peers_that_answer_pings() {
    served(Bench::start(6), async |bench, [eu, us, _]| {
        bench.upstream(&eu, receipt(2_500));
        assert_eq!(bench.send(&us, "/park", &key_of(&eu, "slow")).await.status, 201);
    });
}

#[test]
fn an_unsettled_copy_decides_nothing() {
    keyed(Bench::start(8), async |bench, [eu, us, _], key| {
        bench.upstream(&eu, UpstreamMode::Refuse);
        assert_eq!(bench.send(&eu, "/park", &key).await.status, 502);
        bench.until_state(&us, &key, "released", ms(1_000)).await;
        bench.world.cluster.hold(&eu, &us, true);
        bench.upstream(&eu, receipt(5));
        assert_eq!(bench.send(&eu, "/park", &key).await.status, 201);
        assert_eq!(bench.state(&us, &key).await, "released");
        let answer = bench.send(&us, "/park", &key).await;
        assert_eq!((answer.status, answer.replayed, answer.by.as_str()), (201, true, "eu"));
        assert_eq!((bench.effects(&key).len(), bench.arrived(&us)), (1, 0));
    });
}
