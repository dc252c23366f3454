//! Accepted requests while their regions are lost and return: each takes effect once, and each has
//! its end without its client.

use onceway::protocol::job::JobState;

use super::trio::*;

async fn is_settled(trio: &Trio, key: &str) -> bool {
    trio.gateway(&c()).key_status(&id(key)).await.unwrap().state == "settled"
}

async fn is_dead(trio: &Trio, key: &str) -> bool {
    let mut dead = false;
    for name in regions() {
        let job = trio.world.cluster.store(&name).job(&id(key)).await.unwrap();
        dead |= job.is_some_and(|job| job.state == JobState::Dead);
    }
    dead
}

async fn jobs(trio: &Trio) -> usize {
    let mut count = 0;
    for name in regions() {
        let gateway = trio.gateway(&name);
        count += gateway.jobs(Some(JobState::Waiting)).await.unwrap().jobs.len();
        count += gateway.jobs(Some(JobState::Dead)).await.unwrap().jobs.len();
    }
    count
}

/// a is cut off with a job that it has not run. Its client asks b, which accepts it at a's risk and
/// runs it. a is back, and finds it ended.
#[test]
fn a_returning_region_never_reruns_its_successors_jobs() {
    keyed(Trio::start(1), async |trio, key| {
        trio.upstream(&a(), UpstreamMode::Refuse);
        assert_eq!(trio.send(&a(), "/later", &key).await.status, 202);
        sleep(ms(200)).await;
        trio.cut_off(&a(), true);
        trio.until_lost(&a(), &b()).await;
        let accepted = async || trio.send(&b(), "/later", &key).await.status == 202;
        trio.until("b accepts it", TAKEOVER, accepted).await;
        trio.until("b runs it", ms(5_000), async || is_settled(&trio, &key).await).await;
        trio.upstream(&a(), receipt(50));
        trio.cut_off(&a(), false);
        trio.all_home(ms(20_000)).await;
        trio.until("no job is left", ms(90_000), async || jobs(&trio).await == 0).await;
        assert_eq!((trio.effects(&key).len(), trio.arrived(&a(), &key)), (1, 0));
    });
}

/// Whatever becomes of the region that accepted them, with requests waiting and under way: each is
/// settled or a dead letter in the end, and nobody asks for it meanwhile.
#[test]
fn every_accepted_request_ends_without_its_client() {
    for breaks in 0..4 {
        checked(Trio::start(5 + breaks), async |trio| {
            let keys = (0..8).map(|number| key_of(&a(), &b(), &format!("ends-{number}")));
            let keys: Vec<String> = keys.collect();
            for (number, key) in keys.iter().enumerate() {
                let mode = if number < 4 { receipt(50) } else { UpstreamMode::Refuse };
                trio.upstream(&a(), mode);
                assert_eq!(trio.send(&a(), "/later", key).await.status, 202);
                sleep(ms(60)).await;
            }
            match breaks {
                0 => trio.lose(&a()),
                1 => trio.cut_off(&a(), true),
                2 => trio.node(&a()).process.pause(),
                _ => trio.node(&a()).process.kill(),
            }
            trio.until_lost(&a(), &b()).await;
            trio.upstream(&a(), receipt(50));
            match breaks {
                0 => trio.bring_back(&a()),
                1 => trio.cut_off(&a(), false),
                2 => trio.node(&a()).process.resume(),
                _ => trio.begin_process(&a()),
            }
            trio.all_home(ms(90_000)).await;
            for key in &keys {
                let ended = async || is_settled(&trio, key).await || is_dead(&trio, key).await;
                trio.until("an end of it", HOLD * 8, ended).await;
                assert!(trio.effects(key).len() < 2, "{key}");
            }
        });
    }
}

#[test]
fn a_job_follows_its_key_through_a_drain() {
    keyed(Trio::start(3), async |trio, key| {
        trio.upstream(&a(), UpstreamMode::Refuse);
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
    keyed(Trio::start(4), async |trio, key| {
        for at in [a(), b()] {
            trio.upstream(&at, UpstreamMode::Refuse);
        }
        assert_eq!(trio.send(&a(), "/later", &key).await.status, 202);
        // b knows of its first run, and there is no other one.
        sleep(ms(100)).await;
        trio.lose_before(&a(), &b()).await;
        let accepted = async || trio.send(&b(), "/later", &key).await.status == 202;
        trio.until("b accepts it", TAKEOVER, accepted).await;
        let state = async |at: &RegionName| {
            let job = trio.world.cluster.store(at).job(&id(&key)).await.unwrap();
            job.map(|job| job.state)
        };
        trio.until("b gives it up", ms(40_000), async || state(&b()).await == Some(JobState::Dead)).await;
        trio.upstream(&a(), receipt(50));
        trio.bring_back(&a());
        trio.all_home(ms(20_000)).await;
        trio.until("a's own job ends", ms(40_000), async || state(&a()).await.is_none()).await;
        assert_eq!((trio.effects(&key).len(), state(&b()).await), (0, Some(JobState::Dead)));
    });
}
