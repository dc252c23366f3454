//! Accepted requests: run without their client, once, whatever dies, with the answers to clients
//! and operators meanwhile.
//! A worker's death is played by a store that is away when its outcome comes. The worker leaves a
//! claim whose hold runs out.

use onceway::gateway::operator::dead_letters::{JobAct, JobStatus};
use onceway::ports::body::{self, Collected};
use onceway::ports::jobs::{Act, Acted};
use onceway::protocol::job::JobState;

use super::bench::*;
use super::stored::leave;

pub(super) async fn asked(gateway: &Gate, key: &str) -> (u16, serde_json::Value) {
    let (head, rest) = gateway.handle(question(key, "sk")).await.into_parts();
    let Ok(Collected::Whole(bytes)) = body::collect(rest, 1 << 20).await else { panic!("a whole body") };
    (head.status.as_u16(), serde_json::from_slice(&bytes).unwrap())
}

pub(super) async fn state(bench: &Bench, at: &RegionName, key: &str) -> String {
    asked(&bench.gateway(at), key).await.1["state"].as_str().unwrap_or("none").to_owned()
}

pub(super) async fn becomes(bench: &Bench, at: &RegionName, key: &str, wanted: &str) {
    until(wanted, ms(60_000), async || state(bench, at, key).await == wanted).await;
}

async fn letters(bench: &Bench, at: &RegionName) -> Vec<JobStatus> {
    bench.gateway(at).jobs(Some(JobState::Dead)).await.unwrap().jobs
}

pub(super) fn act() -> Act {
    Act { actor: "test".to_owned(), reason: "a test".to_owned() }
}

#[test]
fn an_accepted_request_runs_once_and_replays_everywhere() {
    keyed(Bench::start(1), async |bench, [eu, us, _], key| {
        bench.upstream(&eu, receipt(500));
        // Through another region, as DNS would have it.
        let response = bench.gateway(&us).handle(request("/later", &key, "{}")).await;
        let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
        assert_eq!(response.status(), 202);
        assert_eq!(header("location"), format!("/.well-known/onceway/requests/{key}"));
        assert!(header("retry-after").parse::<u64>().unwrap() >= 1);
        assert_eq!((header("idempotency-key"), header("onceway-region")), (key.clone(), "eu".to_owned()));
        assert!(!header("idempotency-expires").is_empty());
        assert!(!response.headers().contains_key("preference-applied"), "nobody asked for it");
        until("the attempt to run", ms(2_000), async || state(&bench, &us, &key).await == "running").await;
        becomes(&bench, &us, &key, "settled").await;
        let answer = ask(&bench.gateway(&us), "/later", &key, "{}").await;
        assert_eq!((answer.status, answer.replayed, answer.by.as_str()), (201, true, "eu"));
        assert_eq!((bench.effects(&key).len(), bench.arrived(&eu)), (1, 1));
        assert_eq!(bench.effects(&key)[0].token.attempt, 1, "the first attempt is the first");
        let (status, shown) = asked(&bench.gateway(&us), &key).await;
        assert_eq!((status, &shown["status"], &shown["attempt"]), (200, &201.into(), &1.into()));
        assert_eq!(shown["answer"]["body"].as_str().unwrap().as_bytes(), answer.body);
        let jobs = bench.gateway(&eu).jobs(None).await.unwrap().jobs;
        assert!(jobs.is_empty(), "a settled job goes with its request");
    });
}

#[test]
fn a_client_chooses_where_the_route_lets_it() {
    served(Bench::start(2), async |bench, [eu, ..]| {
        let gateway = bench.gateway(&eu);
        let prefers =
            |path: &str, key: &str| request_with(path, key, "{}", ("prefer", "wait=1, respond-async"));
        let (plain, later, heedless) = (key_of(&eu, "plain"), key_of(&eu, "later"), key_of(&eu, "heedless"));
        assert_eq!(ask(&gateway, "/prefer", &plain, "{}").await.status, 201);
        let response = gateway.handle(prefers("/prefer", &later)).await;
        assert_eq!(response.status(), 202);
        assert_eq!(response.headers()["preference-applied"], "respond-async");
        becomes(&bench, &eu, &later, "settled").await;
        let arrival = bench.world.upstreams.arrivals(&eu).pop().unwrap();
        assert_eq!(arrival.headers["prefer"], "wait=1", "the upstream is not asked for what was done here");
        assert!(!arrival.headers.contains_key("authorization"), "credentials are not stored unsealed");
        let answer = gateway.handle(prefers("/probe", &heedless)).await;
        assert_eq!(answer.status(), 201, "sync routes do not heed it");
    });
}

/// A gateway that dies between accepting and running leaves record and job, and no process.
#[test]
fn a_crash_between_accepting_and_running_leaves_a_job_that_runs() {
    keyed(Bench::start(3), async |bench, [eu, ..], key| {
        leave(&bench, &eu, &key, b"{}", None).await;
        becomes(&bench, &eu, &key, "settled").await;
        let answer = bench.send(&eu, "/later", &key).await;
        assert_eq!((answer.status, answer.replayed, bench.effects(&key).len()), (201, true, 1));
    });
}

/// Its client must not learn that nothing happened: the job may exist, and run.
#[test]
fn an_acceptance_with_a_lost_reply_runs_once() {
    keyed(Bench::start(4), async |bench, [eu, ..], key| {
        bench.store(&eu, StoreMode::LoseReplies(ms(500)));
        assert_eq!(bench.send(&eu, "/later", &key).await.said(), (504, "outcome-unknown"));
        assert_eq!(bench.arrived(&eu), 0);
        bench.store(&eu, StoreMode::Up);
        bench.all_serve().await;
        let answer = bench.send(&eu, "/later", &key).await;
        assert!(matches!(answer.status, 201 | 202), "{answer:?}");
        becomes(&bench, &eu, &key, "settled").await;
        assert_eq!((bench.effects(&key).len(), bench.arrived(&eu)), (1, 1));
    });
}

/// The worker's store is away after the effect, before the record, until the hold is over.
#[test]
fn a_worker_killed_after_the_effect_is_recovered() {
    let usual = receipt(50);
    let rows = [("/later", usual, 1), ("/later-rerun", UpstreamMode::Once { after: ms(50) }, 2)];
    for (path, mode, attempts) in rows {
        keyed(Bench::start(6), async |bench, [eu, ..], key| {
            bench.upstream(&eu, mode.clone());
            assert_eq!(bench.send(&eu, path, &key).await.status, 202, "{path}");
            until("the attempt to arrive", ms(5_000), async || bench.arrived(&eu) == 1).await;
            bench.store(&eu, StoreMode::Refuse);
            sleep(HOLD + ms(5_000)).await;
            bench.store(&eu, StoreMode::Up);
            bench.all_serve().await;
            becomes(&bench, &eu, &key, "settled").await;
            let answer = bench.send(&eu, path, &key).await;
            assert_eq!((answer.status, &answer.body), (201, &bench.effects(&key)[0].body), "{path}");
            assert_eq!((bench.effects(&key).len(), bench.arrived(&eu)), (1, attempts), "{path}");
            let arrivals = bench.world.upstreams.arrivals(&eu).into_iter();
            let tokens: Vec<_> = arrivals.filter_map(|arrival| Some(arrival.attempt?.1)).collect();
            assert!(tokens.is_sorted_by(|one, next| one < next), "{path}: {tokens:?}");
        });
    }
}

#[test]
fn a_duplicate_never_runs_a_waiting_job() {
    keyed(Bench::start(8), async |bench, [eu, ..], key| {
        bench.upstream(&eu, UpstreamMode::Refuse);
        let first = bench.send(&eu, "/prefer", &key_of(&eu, "other")).await;
        assert_eq!(first.said(), (502, "upstream-unavailable"), "an ordinary request is not stored");
        assert_eq!(bench.send(&eu, "/later", &key).await.status, 202);
        sleep(ms(100)).await;
        let waiting = bench.send(&eu, "/later", &key).await;
        assert_eq!((waiting.status, state(&bench, &eu, &key).await.as_str()), (202, "accepted"));
        let other = ask(&bench.gateway(&eu), "/later", &key, "{\"other\":1}").await;
        assert_eq!(other.said(), (422, "key-reused"));
        bench.upstream(&eu, receipt(2_500));
        until("the attempt to run", ms(5_000), async || bench.arrived(&eu) == 1).await;
        let running = bench.send(&eu, "/later", &key).await;
        assert_eq!(running.status, 202);
        assert!(String::from_utf8_lossy(&running.body).contains("\"state\":\"running\""));
        let other = ask(&bench.gateway(&eu), "/later", &key, "{\"other\":1}").await;
        assert_eq!(other.said(), (422, "key-reused"));
        assert_eq!(bench.gateway(&eu).jobs(None).await.unwrap().jobs.len(), 1);
        becomes(&bench, &eu, &key, "settled").await;
        let answer = bench.send(&eu, "/later", &key).await;
        assert_eq!((answer.status, answer.replayed, bench.arrived(&eu)), (201, true, 1));
    });
}

#[test]
fn a_waiting_client_never_runs_an_accepted_job() {
    keyed(Bench::start(9), async |bench, [eu, ..], key| {
        bench.upstream(&eu, UpstreamMode::Refuse);
        let preferring = request_with("/prefer", &key, "{}", ("prefer", "respond-async"));
        assert_eq!(bench.gateway(&eu).handle(preferring).await.status(), 202);
        bench.upstream(&eu, UpstreamMode::Hang);
        assert_eq!(bench.send(&eu, "/prefer", &key).await.status, 202);
    });
}

#[test]
fn a_poison_job_ends_in_the_dead_letters_within_its_bounds() {
    keyed(Bench::start(10), async |bench, [eu, ..], key| {
        // As if nothing had happened; the ledger notes the time of each attempt.
        bench.upstream(&eu, UpstreamMode::EffectThenFail { status: 429 });
        assert_eq!(bench.send(&eu, "/later", &key).await.status, 202);
        becomes(&bench, &eu, &key, "dead").await;
        let at: Vec<Duration> = bench.effects(&key).iter().map(|effect| effect.at).collect();
        assert_eq!(at.len(), ACCEPT.max_runs as usize);
        for (run, pair) in at.windows(2).enumerate() {
            let (gap, span) = (pair[1] - pair[0], ACCEPT.backoff.after(run as u32 + 1));
            // Half of the span is jitter; a look for due jobs and some statements are added.
            assert!(gap >= span / 2 && gap <= span + ms(300), "run {run}: {gap:?} of {span:?}");
        }
        assert_eq!(bench.send(&eu, "/later", &key).await.said(), (409, "dead-letter"));
        let [letter] = &letters(&bench, &eu).await[..] else { panic!("one letter") };
        let trouble = "the upstream answered 429: nothing happened; run 5 times";
        assert_eq!((letter.runs, letter.trouble.as_deref()), (ACCEPT.max_runs, Some(trouble)));
        sleep(ms(30_000)).await;
        assert_eq!(bench.arrived(&eu), ACCEPT.max_runs as usize, "a dead letter must not run");

        bench.upstream(&eu, receipt(50));
        assert_eq!(bench.gateway(&eu).act_on_job(&id(&key), JobAct::Retry, &act()).await, Ok(Acted::Done));
        becomes(&bench, &eu, &key, "settled").await;
        assert_eq!(bench.send(&eu, "/later", &key).await.status, 201);
    });
}

#[test]
fn a_dropped_letter_frees_its_key() {
    keyed(Bench::start(11), async |bench, [eu, ..], key| {
        bench.upstream(&eu, UpstreamMode::Refuse);
        assert_eq!(bench.send(&eu, "/later", &key).await.status, 202);
        becomes(&bench, &eu, &key, "dead").await;
        assert_eq!(bench.gateway(&eu).act_on_job(&id(&key), JobAct::Drop, &act()).await, Ok(Acted::Done));
        assert_eq!(state(&bench, &eu, &key).await, "released");
        sleep(ms(5_000)).await;
        assert_eq!(bench.arrived(&eu), 0);
        bench.upstream(&eu, receipt(50));
        assert_eq!(bench.send(&eu, "/later", &key).await.status, 202, "its client may send it again");
        becomes(&bench, &eu, &key, "settled").await;
        assert_eq!(bench.effects(&key).len(), 1);
    });
}

#[test]
fn a_doubt_that_nobody_can_end_is_a_dead_letter() {
    for path in ["/later-park", "/later"] {
        keyed(Bench::start(13), async |bench, [eu, ..], key| {
            bench.upstream(&eu, UpstreamMode::EffectThenDrop);
            bench.world.upstreams.set_probes(&eu, ProbeMode::CannotSay);
            assert_eq!(bench.send(&eu, path, &key).await.status, 202);
            if path == "/later" {
                until("the doubt", ms(5_000), async || state(&bench, &eu, &key).await == "in_doubt").await;
                assert_eq!(bench.send(&eu, path, &key).await.status, 202, "its job goes on asking");
            }
            becomes(&bench, &eu, &key, "dead").await;
            let found = (bench.effects(&key).len(), bench.arrived(&eu), letters(&bench, &eu).await.len());
            assert_eq!(found, (1, 1, 1), "{path}");
            if path == "/later-park" {
                assert_eq!(bench.state(&eu, &key).await, "in-doubt");
                assert_eq!(bench.send(&eu, path, &key).await.said(), (409, "dead-letter"));
            }
        });
    }
}

#[test]
fn a_request_past_its_retention_is_erased_unrun() {
    keyed(Bench::start(15), async |bench, [eu, ..], key| {
        bench.upstream(&eu, UpstreamMode::Refuse);
        assert_eq!(bench.send(&eu, "/later", &key).await.status, 202);
        bench.store(&eu, StoreMode::Refuse);
        // Another gateway of the region sees the time pass.
        bench.world.cluster.observes(&eu, ACCEPT.request_retention + ms(1_000));
        bench.upstream(&eu, receipt(50));
        bench.store(&eu, StoreMode::Up);
        bench.all_serve().await;
        becomes(&bench, &eu, &key, "dead").await;
        assert_eq!((letters(&bench, &eu).await.len(), bench.arrived(&eu)), (1, 0));
        let holds = async || !letters(&bench, &eu).await[0].kept;
        until("its request to be erased", ms(10_000), holds).await;
        assert_eq!(bench.gateway(&eu).act_on_job(&id(&key), JobAct::Retry, &act()).await, Ok(Acted::Erased));
    });
}

#[test]
fn the_status_address_tells_of_any_key_and_of_nobody_elses() {
    served(Bench::start(16), async |bench, [eu, us, _]| {
        let key = key_of(&eu, "any/key");
        assert_eq!(bench.send(&eu, "/probe", &key).await.status, 201);
        let address = key.replace('/', "%2F");
        for at in [&eu, &us] {
            assert_eq!(asked(&bench.gateway(at), &address).await.1["state"], "settled");
        }
        let (status, problem) = asked(&bench.gateway(&us), &key_of(&eu, "never")).await;
        assert_eq!((status, &problem["code"]), (404, &"key-unknown".into()));
        assert_eq!(bench.gateway(&eu).handle(question(&address, "nobody")).await.status(), 401);

        // With its owner away, the asked region reports its own knowledge.
        let doubtful = key_of(&eu, "doubtful");
        bench.upstream(&eu, UpstreamMode::DropBeforeEffect);
        assert_eq!(bench.send(&eu, "/probe", &doubtful).await.status, 504);
        bench.until_state(&us, &doubtful, "in-doubt", ms(5_000)).await;
        bench.links(&eu, LinkMode::Refuse);
        assert_eq!(asked(&bench.gateway(&us), &doubtful).await.1["state"], "in_doubt");
    });
}

#[test]
fn a_doubt_without_a_job_is_recovered_while_its_client_waits() {
    served(Bench::start(17), async |bench, [eu, ..]| {
        for (word, doubt, replayed) in
            [("did-not", says(5, 500, false), false), ("happened", UpstreamMode::EffectThenDrop, true)]
        {
            let key = key_of(&eu, word);
            bench.upstream(&eu, doubt);
            assert!(bench.send(&eu, "/prefer", &key).await.status >= 500);
            sleep(HOLD + SETTLE_TIME + LATE).await;
            bench.upstream(&eu, receipt(50));
            let preferring = request_with("/prefer", &key, "{}", ("prefer", "respond-async"));
            let answer = bench.gateway(&eu).handle(preferring).await;
            assert_eq!(answer.status(), 201);
            assert_eq!(answer.headers().contains_key("idempotent-replayed"), replayed);
            assert_eq!(bench.effects(&key).len(), 1);
        }
    });
}

#[test]
fn tenants_with_many_requests_leave_some_workers_to_the_others() {
    served(Bench::start(31), async |bench, [eu, ..]| {
        bench.upstream(&eu, receipt(2_000));
        let gateway = bench.gateway(&eu);
        for number in 0..120 {
            let key = key_of(&eu, &format!("many-{number}"));
            assert_eq!(ask(&gateway, "/later", &key, "{}").await.status, 202);
        }
        for number in 0..120 {
            let (key, _) = key_of_tenant("globex", &eu, &format!("more-{number}"));
            assert_eq!(ask_as("globex", &gateway, "/later", &key, "{}").await.status, 202);
        }
        // Both have more than all workers can run, and their jobs are due longer.
        sleep(ms(1_000)).await;
        let begun = Instant::now();
        let (few, id) = key_of_tenant("initech", &eu, "few");
        assert_eq!(ask_as("initech", &gateway, "/later", &few, "{}").await.status, 202);
        let effects = || bench.world.upstreams.effects(&id).len();
        until("the third tenant's request to be run", ms(12_000), async || effects() == 1).await;
        assert!(begun.elapsed() < ms(6_000), "a run that is under way, and its own: {:?}", begun.elapsed());
        let done = |number: &usize| bench.effects(&key_of(&eu, &format!("many-{number}"))).len() == 1;
        let done = (0..120).filter(done).count();
        assert!(done < 60, "it waited for {done} of the first one's");
    });
}
