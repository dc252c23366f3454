//! Stored requests against loss, damage and repetition: other owners, clocks that step, damage at
//! rest, drops, and stops in mid-run.
//!
//! [`leave`] writes the record and the job of a gateway that died between accepting and running.

use onceway::gateway::credentials::caller::{Caller, Voucher};
use onceway::gateway::operator::dead_letters::{JobAct, JobStatus};
use onceway::ports::jobs::{Acted, StoredRequest};
use onceway::ports::store::Terms;
use onceway::protocol::digest::Digest32;
use onceway::protocol::fingerprint::canonical;

use super::accepted::{act, becomes, state};
use super::bench::*;
use super::upkeep::claim;

const HOUR_MICROS: i64 = 3_600_000_000;

/// Leaves the record and the job of a gateway that died between accepting and running; its request
/// was `{}`, and is stored with this body.
pub async fn leave(bench: &Bench, at: &RegionName, key: &str, body: &'static [u8], by: Option<Digest32>) {
    let (head, _) = request("/later", key, "{}").into_parts();
    let store = bench.world.cluster.store(at);
    let mut claim = claim(key, 7, HOLD * 100);
    claim.gate = store.gate().await.unwrap().version;
    claim.terms = Terms {
        fingerprint: Fingerprint {
            raw: raw("POST", "/later", b"{}"),
            canonical: Some(canonical("POST", "/later", b"{}")),
        },
        route: "later".into(),
        path: "/later".to_owned(),
        principal: by,
        ..claim.terms
    };
    let stored = StoredRequest {
        method: Method::POST,
        target: Uri::from_static("/later"),
        headers: head.headers,
        body: Bytes::from_static(body),
    };
    let reply = store.accept(&claim, &stored, ACCEPT.request_retention).await;
    assert!(matches!(reply, Ok(ClaimReply::Won { .. })), "{reply:?}");
}

async fn job(bench: &Bench, at: &RegionName, key: &str) -> Option<JobStatus> {
    bench.gateway(at).jobs(None).await.unwrap().jobs.into_iter().find(|job| job.key == key)
}

/// As after a change of the ring: the job is here, the key is another region's now. The job waits,
/// is seen to wait, and its request is erased in time.
#[test]
fn a_worker_leaves_keys_alone_that_another_region_owns() {
    served(Bench::start(1), async |bench, [eu, us, _]| {
        let key = key_of(&us, "elsewhere");
        // It cannot be handed on either.
        bench.links(&us, LinkMode::Refuse);
        leave(&bench, &eu, &key, b"{}", None).await;
        sleep(ACCEPT.request_retention - ms(2_000)).await;
        let waiting = job(&bench, &eu, &key).await.unwrap();
        assert_eq!((&*waiting.state, waiting.runs), ("waiting", 0));
        assert_eq!(waiting.trouble.as_deref(), Some("another region owns the key"));
        assert_eq!((bench.arrived(&eu), bench.arrived(&us)), (0, 0), "only the owner may run it");
        let erased =
            async || job(&bench, &eu, &key).await.is_some_and(|job| job.state == "dead" && !job.kept);
        // It is looked at when it is due again.
        until("its request to be erased", ACCEPT.request_retention, erased).await;
    });
}

/// By a clock that steps ahead by an hour every retention is over. Nothing is erased, all jobs run.
#[test]
fn a_clock_that_steps_ahead_erases_no_stored_request() {
    play(async {
        for seed in 0..8 {
            let (bench, eu) = (Bench::start(seed).await, region("eu"));
            let (waiting, dead) = (key_of(&eu, "waiting"), key_of(&eu, "dead"));
            bench.upstream(&eu, UpstreamMode::Refuse);
            assert_eq!(bench.send(&eu, "/later", &dead).await.status, 202);
            becomes(&bench, &eu, &dead, "dead").await;
            assert_eq!(bench.send(&eu, "/later", &waiting).await.status, 202);
            // Somewhere between two heartbeats, two looks for jobs, and two for what to erase.
            sleep(ms(seed * 641)).await;
            bench.world.cluster.step_clock(&eu, HOUR_MICROS);
            // Long enough for all runs of the job: this clock would put it off for an hour.
            sleep(ms(8_000)).await;
            assert!(
                job(&bench, &eu, &dead).await.unwrap().kept,
                "seed {seed}: erased by a clock that stepped"
            );
            let kept = job(&bench, &eu, &waiting).await.unwrap();
            assert!(kept.trouble.is_none_or(|why| !why.contains("retention")), "seed {seed}");
            bench.world.cluster.step_clock(&eu, -HOUR_MICROS);
            bench.upstream(&eu, receipt(50));
            let gateway = bench.gateway(&eu);
            if kept.state == "dead" {
                assert_eq!(gateway.act_on_job(&id(&waiting), JobAct::Retry, &act()).await, Ok(Acted::Done));
            }
            becomes(&bench, &eu, &waiting, "settled").await;
        }
    });
}

/// However long a pause an upstream asks for, no request is kept from its runs until it is erased.
#[test]
fn a_pause_without_end_is_not_heeded() {
    play(async {
        for (seed, retry_after) in [59, 86_400, u64::MAX].into_iter().enumerate() {
            let (bench, eu) = (Bench::start(seed as u64).await, region("eu"));
            let key = key_of(&eu, "paused");
            bench.upstream(&eu, UpstreamMode::Busy { retry_after });
            assert_eq!(bench.send(&eu, "/later", &key).await.status, 202);
            until("the first run", ms(5_000), async || bench.arrived(&eu) == 1).await;
            sleep(ms(5_000)).await;
            assert_eq!(bench.arrived(&eu), 1, "a pause is heeded as far as there is time");
            bench.upstream(&eu, receipt(50));
            becomes(&bench, &eu, &key, "settled").await;
        }
    });
}

#[test]
fn a_request_that_was_damaged_at_rest_is_a_dead_letter() {
    keyed(Bench::start(4), async |bench, [eu, ..], key| {
        leave(&bench, &eu, &key, b"{", None).await;
        becomes(&bench, &eu, &key, "dead").await;
        let letter = job(&bench, &eu, &key).await.unwrap();
        assert_eq!(
            (letter.trouble.as_deref(), letter.kept),
            (Some("its stored request is not the one that was accepted"), true)
        );
        assert_eq!(bench.arrived(&eu), 0, "nobody asked for this");
    });
}

/// Routes may be changed while jobs wait: the principal was promised before.
#[test]
fn a_job_keeps_its_key_bound() {
    keyed(Bench::start(5), async |bench, [eu, ..], key| {
        let ann = Caller::new(Tenant::parse("acme").unwrap(), Voucher::File, Some("ann"));
        leave(&bench, &eu, &key, b"{}", ann.principal).await;
        until("the effect", ms(5_000), async || bench.effects(&key).len() == 1).await;
        sleep(ms(1_000)).await;
        for (token, status) in [(TOKENS[1].0, 200), (TOKENS[3].0, 404), (TOKENS[0].0, 404)] {
            assert_eq!(bench.gateway(&eu).handle(question(&key, token)).await.status(), status, "{token}");
        }
    });
}

#[test]
fn a_dropped_job_does_not_run() {
    for offset in (0..3_000).step_by(75) {
        keyed(Bench::start(6), async |bench, [eu, ..], key| {
            bench.upstream(&eu, says(5, 500, false));
            assert_eq!(bench.send(&eu, "/later-rerun", &key).await.status, 202);
            until("a doubt", ms(5_000), async || state(&bench, &eu, &key).await == "in_doubt").await;
            bench.world.cluster.set_latency(&eu, ms(200));
            bench.upstream(&eu, receipt(50));
            sleep(ms(offset)).await;
            let dropped = bench.gateway(&eu).act_on_job(&id(&key), JobAct::Drop, &act()).await.unwrap();
            let (before, arrived) = (bench.effects(&key).len(), bench.arrived(&eu));
            sleep(ms(20_000)).await;
            match dropped {
                Acted::Done => assert_eq!((bench.effects(&key).len(), bench.arrived(&eu)), (before, arrived)),
                Acted::Running | Acted::Absent => assert_eq!(bench.effects(&key).len(), 1, "at {offset} ms"),
                Acted::Waiting | Acted::Erased | Acted::GateMoved => panic!("{dropped:?}"),
            }
        });
    }
}

/// A stop meets the worker anywhere. Once it has reported that nothing is left, nothing is sent.
#[test]
fn a_stop_waits_for_the_worker_that_is_about_to_run() {
    let mut met = 0;
    for offset in (0..2_000).step_by(100) {
        keyed(Bench::start(7), async |bench, [eu, ..], key| {
            bench.world.cluster.set_latency(&eu, ms(150));
            // Another place in the worker's period each time.
            sleep(ms(offset * 3 % 500)).await;
            leave(&bench, &eu, &key, b"{}", None).await;
            sleep(ms(offset / 10)).await;
            assert_eq!(bench.gateway(&eu).stop(Duration::from_secs(60)).await, 0);
            let arrived = bench.arrived(&eu);
            met += arrived;
            sleep(ms(5_000)).await;
            assert_eq!(bench.arrived(&eu), arrived, "sent after the stop, at {offset} ms");
        });
    }
    assert!((1..20).contains(&met), "some stops must come before the run, others after it: {met}");
}
