//! Two protocol versions side by side, over one store and between regions: this program's own, and
//! the next, which is made up.

use super::bench::*;

const BEFORE: Versions = Versions::OURS;
const OUTGROWN: &str = "the regions go by protocol version 2 and this process speaks 1-1";

async fn serves(old: &Gateway<SimPorts>) {
    until("the older process to serve", ms(5_000), async || old.readiness().serves).await;
}

fn is_outgrown(old: &Gateway<SimPorts>) -> bool {
    old.readiness().reasons.iter().any(|reason| reason.starts_with(OUTGROWN))
}

/// Both run keys of their region until the view goes by a version that one of them does not speak.
/// That one runs nothing more, and says why.
#[test]
fn two_versions_share_a_store_until_the_view_upgrades() {
    served(Bench::upgraded(61), async |bench, [eu, us, _]| {
        let old = bench.process(speaking(&eu, BEFORE));
        serves(&old).await;
        let key = key_of(&eu, "older");
        assert_eq!(ask(&old, "/probe", &key, "{}").await.status, 201);
        assert_eq!(bench.send(&eu, "/probe", &key).await.status, 201);
        assert_eq!(bench.effects(&key).len(), 1, "the newer process replays it");

        let raised = bench.gateway(&us).raise_protocol("test").await.unwrap();
        assert_eq!((raised.protocol, raised.common), (2, 2), "{raised:?}");
        until("the older process to say why", ms(3_000), async || is_outgrown(&old)).await;
        assert!(!old.readiness().ready);
        let key = key_of(&eu, "after");
        assert_eq!(ask(&old, "/probe", &key, "{}").await.said(), (503, "gateway-outdated"));
        assert_eq!(bench.effects(&key).len(), 0);
        sleep(ms(5_000)).await;
        assert!(!old.authority_status().lease.held, "it renews no more");
        let question = Question::Acceptor { to: None, message: Message::Read };
        let answer = old.answer_question(us.clone(), question).await;
        assert!(
            matches!(&answer, PeerReply::Refused(said) if said.starts_with(OUTGROWN)),
            "it votes no more: {answer:?}"
        );
        let refused = old.drain(&us, false, "test", "").await.unwrap_err();
        assert!(refused.detail.starts_with(OUTGROWN), "nobody operates by it: {refused}");
        let refused = old.break_glass(&[us, region("ap")].into(), "test", "").await.unwrap_err();
        assert!(refused.detail.starts_with(OUTGROWN), "nor breaks the glass by it: {refused}");
        bench.all_serve().await;
        assert_eq!(bench.send(&eu, "/probe", &key).await.status, 201);
    });
}

#[test]
fn the_version_rises_only_when_every_process_speaks_it() {
    served(Bench::upgraded(62), async |bench, [_, us, ap]| {
        bench.replace_with(&ap, speaking(&ap, BEFORE));
        bench.all_serve().await;
        let same = bench.gateway(&us).raise_protocol("test").await.unwrap();
        assert_eq!((same.protocol, same.common, same.epoch), (1, 1, 1));
        assert_eq!(same.speaks["ap"], "1-1");
        bench.replace_with(&ap, speaking(&ap, upgraded()));
        bench.all_serve().await;
        bench.gateway(&ap).stop(ms(100)).await;
        bench.links(&ap, LinkMode::Refuse);
        let refused = bench.gateway(&us).raise_protocol("test").await.unwrap_err();
        assert!(refused.code == "not-yet" && refused.detail.starts_with("ap does not say"), "{refused}");
        assert_eq!(bench.gateway(&us).status().await.protocol, 1);
    });
}

/// A mere proposal is refused and forgotten. A version in force ends the older process.
#[test]
fn a_chosen_newer_version_ends_an_older_process() {
    served(Bench::upgraded(66), async |bench, [_, us, ap]| {
        bench.replace_with(&ap, speaking(&ap, BEFORE));
        let old = bench.gateway(&ap);
        serves(&old).await;
        let view = Arc::new(bench.world.cluster.gate(&ap).unwrap().view.next(&Change::Protocol(2)).unwrap());
        let ballot = Ballot { counter: 77, region: us.clone(), proposer: 1 };
        let message = Message::Accept { ballot: ballot.clone(), view: view.clone() };
        let answer = old.answer_question(us.clone(), Question::Acceptor { to: None, message }).await;
        let PeerReply::Refused(why) = answer else { panic!("{answer:?}") };
        assert_eq!(why, "the view goes by protocol version 2, this process speaks 1-1");
        assert!(old.readiness().serves, "nobody goes by it yet");

        // One letter does not show that a view was chosen.
        let letter = || Question::Adopt { view: view.clone() };
        let answer = old.answer_question(us.clone(), letter()).await;
        assert!(matches!(answer, PeerReply::Adopted(epoch) if epoch < view.epoch()), "{answer:?}");
        assert!(old.readiness().serves, "nobody has shown that it was chosen");

        for voter in [region("eu"), us.clone()] {
            let message = Message::Accept { ballot: ballot.clone(), view: view.clone() };
            let answer = bench
                .gateway(&voter)
                .answer_question(us.clone(), Question::Acceptor { to: None, message })
                .await;
            assert!(matches!(answer, PeerReply::Acceptor(..)), "{voter}: {answer:?}");
        }
        old.answer_question(us.clone(), letter()).await;
        let answer = old.answer_question(us, letter()).await;
        assert!(matches!(&answer, PeerReply::Refused(said) if said.starts_with(OUTGROWN)), "{answer:?}");
        assert!(is_outgrown(&old));
        assert!(!old.readiness().serves);
    });
}

/// No letter brings the view: pings tell of it. One region alone may say whatever it likes.
#[test]
fn an_older_process_hears_in_pings_that_it_was_outgrown() {
    served(Bench::start(67), async |bench, [eu, us, ap]| {
        bench.replace_with(&ap, speaking(&ap, BEFORE));
        let old = bench.gateway(&ap);
        serves(&old).await;
        let goes_by_two = async |name: &RegionName| {
            let pong = bench.gateway(name).pong().await;
            let newer = Newer(Pong { epoch: pong.epoch + 1, protocol: 2, ..pong });
            bench.world.network.plug(name.clone(), Arc::new(newer));
        };
        goes_by_two(&us).await;
        sleep(ms(3_000)).await;
        assert!(old.readiness().serves, "{:?}", old.readiness().reasons);
        goes_by_two(&eu).await;
        until("it to hear that", ms(3_000), async || is_outgrown(&old)).await;
    });
}

struct Newer(Pong);

impl Region for Newer {
    fn forward(&self, _from: RegionName, _forward: Forward) -> Answering<'_, ForwardReply> {
        Box::pin(std::future::pending())
    }

    fn pong(&self) -> Answering<'_, Pong> {
        let pong = self.0.clone();
        Box::pin(async move { pong })
    }

    fn ask(&self, _from: RegionName, _question: Question) -> Answering<'_, PeerReply> {
        Box::pin(std::future::pending())
    }
}

#[test]
fn a_peer_of_a_foreign_version_is_not_heard() {
    served(Bench::start(65), async |bench, [_, us, ap]| {
        let foreign = Versions::new(NEXT, NEXT).unwrap();
        bench.replace_with(&ap, speaking(&ap, foreign));
        let why = format!("it speaks protocol versions {foreign}, this process {}", Versions::OURS);
        until("it to be refused", ms(10_000), async || {
            bench.gateway(&us).readiness().reasons.iter().any(|reason| reason.contains(&why))
        })
        .await;
        assert!(!bench.gateway(&us).readiness().forwards_to.contains(&"ap".to_owned()));
        assert!(!bench.serves(&ap), "it speaks no version that the view goes by");
    });
}
