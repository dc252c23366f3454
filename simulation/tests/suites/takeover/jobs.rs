//! Accepted requests while their regions are lost and return: each takes effect once, and each has
//! its end without its client.
//!
//! The suite `gateway` has accepted requests without losses (`accepted.rs`). A test must not look
//! into a gateway.

use onceway::ports::Jobs;
use onceway::protocol::job::JobState;
use onceway::protocol::region::RegionName;
use simulation::upstream::UpstreamMode;
use tokio::time::sleep;

use super::trio::{TAKEOVER, Trio, a, b, c, checked, id, key_of, ms, regions};

async fn is_settled(trio: &Trio, key: &str) -> bool {
    trio.node(&c()).gateway.key_status(&id(key)).await.unwrap().state == "settled"
}

async fn jobs(trio: &Trio) -> usize {
    let mut count = 0;
    for name in regions() {
        let gateway = trio.node(&name).gateway;
        count += gateway.jobs(Some(JobState::Waiting)).await.unwrap().len();
        count += gateway.jobs(Some(JobState::Dead)).await.unwrap().len();
    }
    count
}

/// a is cut off with a job that it has not run. Its client asks b, which accepts it at a's risk and
/// runs it. a is back, and finds it ended.
#[test]
fn a_returning_region_never_reruns_its_successors_jobs() {
    checked(Trio::start(1), async |trio| {
        let key = key_of(&a(), &b(), "cut");
        trio.world.upstreams.set_mode(&a(), UpstreamMode::Refuse);
        assert_eq!(trio.send(&a(), "/later", &key).await.status, 202);
        sleep(ms(200)).await;
        trio.cut_off(&a(), true);
        trio.until_lost(&a(), &b()).await;
        let accepted = async || trio.send(&b(), "/later", &key).await.status == 202;
        trio.until("b accepts it", TAKEOVER, accepted).await;
        trio.until("b runs it", ms(5_000), async || is_settled(&trio, &key).await).await;
        trio.world.upstreams.set_mode(&a(), UpstreamMode::Receipt { after: ms(50) });
        trio.cut_off(&a(), false);
        trio.all_home(ms(20_000)).await;
        trio.until("no job is left", ms(90_000), async || jobs(&trio).await == 0).await;
        assert_eq!((trio.effects(&key).len(), trio.arrived(&a(), &key)), (1, 0));
    });
}

/// A job that waits when its arc is drained away is run by the key's new owner.
#[test]
fn a_job_follows_its_key_through_a_drain() {
    checked(Trio::start(3), async |trio| {
        let key = key_of(&a(), &b(), "drained");
        trio.world.upstreams.set_mode(&a(), UpstreamMode::Refuse);
        assert_eq!(trio.send(&a(), "/later", &key).await.status, 202);
        trio.drain(&c(), &a(), true).await.unwrap();
        trio.until("b runs it", ms(40_000), async || is_settled(&trio, &key).await).await;
        assert_eq!(trio.effects(&key).len(), 1);
        assert_eq!(trio.effects(&key)[0].region, b());
    });
}

/// a is home again with a job of its own, which b's acceptance superseded while a was gone. b's
/// runs are used up, and an operator decides about that: a runs nothing by its earlier acceptance.
#[test]
fn an_acceptance_that_another_superseded_runs_no_more() {
    checked(Trio::start(4), async |trio| {
        let key = key_of(&a(), &b(), "superseded");
        for at in [a(), b()] {
            trio.world.upstreams.set_mode(&at, UpstreamMode::Refuse);
        }
        assert_eq!(trio.send(&a(), "/later", &key).await.status, 202);
        // b knows of its first run, and there is no other one.
        sleep(ms(100)).await;
        trio.lose(&a());
        trio.until_lost(&a(), &b()).await;
        let accepted = async || trio.send(&b(), "/later", &key).await.status == 202;
        trio.until("b accepts it", TAKEOVER, accepted).await;
        let state = async |at: &RegionName| {
            let job = trio.world.cluster.store(at).job(&id(&key)).await.unwrap();
            job.map(|job| job.state)
        };
        trio.until("b gives it up", ms(40_000), async || state(&b()).await == Some(JobState::Dead)).await;
        trio.world.upstreams.set_mode(&a(), UpstreamMode::Receipt { after: ms(50) });
        trio.bring_back(&a());
        trio.all_home(ms(20_000)).await;
        trio.until("a's own job ends", ms(40_000), async || state(&a()).await.is_none()).await;
        assert_eq!((trio.effects(&key).len(), state(&b()).await), (0, Some(JobState::Dead)));
    });
}
