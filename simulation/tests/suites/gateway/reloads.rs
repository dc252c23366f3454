//! Routes that are read again while attempts of before are open: names, holds and settle times.

use onceway::gateway::operator::Refusal;
use onceway::gateway::policy::route::{Policy, Route, Routes};
use onceway::ports::upkeep::{Act, Ruling, Who};

use super::bench::*;
use super::upkeep::{UNCLEAR, abandon, abandon_for, answer};

const SLOW: Duration = Duration::from_secs(30);

/// The bench's route of this name under another policy.
fn route(name: &str, change: impl Fn(Policy) -> Policy) -> Route {
    let route = settings(&region("eu")).live.routes.0.into_iter().find(|route| &*route.name == name).unwrap();
    let policy = change(Policy::clone(route.policy().unwrap()));
    Route { terms: Arc::new(policy), ..route }
}

/// The bench's route `probe`, and one of another path whose upstream takes its time.
fn slow_and_probe() -> [Route; 2] {
    let path = onceway::gateway::policy::route::PathPattern::parse("/slow").unwrap();
    let slow = route("probe", |policy| Policy { settle_time: SLOW, ..policy });
    [Route { name: "slow".into(), path, ..slow }, route("probe", |policy| policy)]
}

async fn read(bench: &Bench, routes: &[Route]) {
    let (gateway, routes) = (bench.gateway(&region("eu")), Routes(routes.to_vec()));
    gateway.agree_on_lives(&routes).await;
    gateway.reload(Reload { routes, ..reload() });
}

async fn read_one(bench: &Bench, name: &str, change: impl Fn(Policy) -> Policy) {
    read(bench, &[route(name, change)]).await;
}

/// A proxy answers 504 and the service goes on for 25 s, for which its route allows. Meanwhile the
/// files give that route another name, and its own to one whose upstream is quick. By the name in
/// its record the attempt would be over at 12 s, and a retry would run it again.
#[test]
fn names_that_change_places_say_nothing_of_attempts_of_before() {
    served(Bench::start(1), async |bench, [eu, ..]| {
        let [slow, probe] = slow_and_probe();
        read(&bench, &[slow.clone(), probe.clone()]).await;
        let key = key_of(&eu, "renamed");
        bench
            .upstream(&eu, UpstreamMode::FailThenEffect { status: 504, says_when: false, after: ms(25_000) });
        let begun = Instant::now();
        assert_eq!(bench.send(&eu, "/slow", &key).await.status, 504);
        bench.upstream(&eu, receipt(50));
        let [one, other] = [Route { name: probe.name, ..slow }, Route { name: "slow".into(), ..probe }];
        read(&bench, &[one, other]).await;
        while begun.elapsed() < ms(24_000) {
            assert_eq!(bench.state(&eu, &key).await, "in-doubt", "at {:?}", begun.elapsed());
            let reply = bench.send(&eu, "/slow", &key).await;
            assert_eq!(reply.said(), (409, "outcome-unknown"), "at {:?}", begun.elapsed());
            let listed = bench.gateway(&eu).doubts(None, 10).await.unwrap().doubts;
            assert!(listed.iter().all(|doubt| doubt.over_in_ms > 10_000), "{listed:?}");
            sleep(ms(500)).await;
        }
        bench.until_state(&eu, &key, "settled", HOLD + SLOW).await;
        assert!(bench.send(&eu, "/slow", &key).await.replayed);
        assert_eq!((bench.effects(&key).len(), bench.arrived(&eu)), (1, 1));
    });
}

/// The service goes on for 25 s. The files of now say that it never does, and that its answers end
/// attempts. They say it of attempts that are claimed from now on, and of no earlier one.
#[test]
fn a_settle_time_is_the_one_of_the_claim() {
    served(Bench::start(5), async |bench, [eu, ..]| {
        read_one(&bench, "probe", |policy| Policy { settle_time: SLOW, ..policy }).await;
        let key = key_of(&eu, "settling");
        let late = |after| UpstreamMode::FailThenEffect { status: 504, says_when: false, after: ms(after) };
        bench.upstream(&eu, late(25_000));
        let begun = Instant::now();
        assert_eq!(bench.send(&eu, "/probe", &key).await.status, 504);
        read_one(&bench, "probe", |policy| Policy {
            settle_time: ms(0),
            status_ends_attempt: true,
            ..policy
        })
        .await;
        bench.upstream(&eu, receipt(50));
        while begun.elapsed() < ms(24_000) {
            let reply = bench.send(&eu, "/probe", &key).await;
            assert_eq!(reply.said(), (409, "outcome-unknown"), "at {:?}", begun.elapsed());
            sleep(ms(500)).await;
        }
        bench.until_state(&eu, &key, "settled", HOLD + SLOW).await;
        assert_eq!(bench.effects(&key).len(), 1);
        // An attempt of now is over with its answer, whatever the files say later.
        let key = key_of(&eu, "ended");
        bench.upstream(&eu, says(5, 500, false));
        assert_eq!(bench.send(&eu, "/probe", &key).await.status, 500);
        read_one(&bench, "probe", |policy| Policy { settle_time: SLOW, ..policy }).await;
        bench.upstream(&eu, receipt(50));
        sleep(ms(100)).await;
        assert_eq!(bench.send(&eu, "/probe", &key).await.status, 201);
        assert_eq!(bench.effects(&key).len(), 1);
    });
}

/// A route was `park` when its key was left in doubt. Now it says `rerun`, for an upstream that
/// honours keys from now on: the attempt of before waits for a person all the same.
#[test]
fn a_key_in_doubt_keeps_the_rule_of_its_claim() {
    served(Bench::start(6), async |bench, [eu, ..]| {
        let rerun = Recovery::Rerun { max_attempts: 3 };
        let key = key_of(&eu, "parked");
        bench.upstream(&eu, UpstreamMode::EffectThenDrop);
        assert_eq!(bench.send(&eu, "/park", &key).await.status, 504);
        read_one(&bench, "park", |policy| Policy { recovery: rerun, ..policy }).await;
        bench.upstream(&eu, receipt(5));
        for _ in 0..3 {
            assert_eq!(bench.send(&eu, "/park", &key).await.said(), (409, "outcome-unknown"));
            sleep(HOLD).await;
        }
        assert_eq!((bench.effects(&key).len(), bench.arrived(&eu)), (1, 1));
        // A key of now goes by the rule of now, and keeps that one.
        let other = key_of(&eu, "rerun");
        bench.upstream(&eu, UpstreamMode::DropBeforeEffect);
        assert_eq!(bench.send(&eu, "/park", &other).await.status, 504);
        read_one(&bench, "park", |policy| policy).await;
        bench.upstream(&eu, receipt(5));
        assert_eq!(bench.send(&eu, "/park", &other).await.status, 201);
    });
}

/// An operator who knows that the upstream honours keys by now says so of the doubts of before.
#[test]
fn an_operator_applies_the_current_rule_to_older_doubts() {
    served(Bench::start(7), async |bench, [eu, ..]| {
        let (key, other) = (key_of(&eu, "changed"), key_of(&eu, "of-another-route"));
        bench.upstream(&eu, UpstreamMode::DropBeforeEffect);
        assert_eq!(bench.send(&eu, "/park", &key).await.status, 504);
        assert_eq!(bench.send(&eu, "/rerun", &other).await.status, 504);
        let gateway = bench.gateway(&eu);
        let by = Who { actor: "ada", reason: "the provider honours keys" };
        let change = async |route: &str, rule: &str, dry_run| {
            gateway.change_doubt_rule(route, rule, by, dry_run).await
        };
        for (route, rule) in [("park", "rerun"), ("park", "probe"), ("nothing", "park")] {
            let refused = change(route, rule, false).await;
            assert!(matches!(refused, Err(Refusal::Malformed(_))), "{route} {rule}: {refused:?}");
        }
        let unsigned = gateway.change_doubt_rule("park", "park", Who { reason: " ", ..by }, false).await;
        assert!(matches!(unsigned, Err(Refusal::Malformed(_))), "{unsigned:?}");
        let rerun = Recovery::Rerun { max_attempts: 3 };
        let now =
            [route("park", |policy| Policy { recovery: rerun, ..policy }), route("rerun", |policy| policy)];
        read(&bench, &now).await;
        let dry = change("park", "rerun", true).await.unwrap();
        assert_eq!((dry.changed, dry.same, dry.elsewhere, dry.recovery.as_str()), (1, 0, 0, "rerun 3"));
        bench.upstream(&eu, receipt(5));
        assert_eq!(bench.send(&eu, "/park", &key).await.said(), (409, "outcome-unknown"), "a dry run");
        assert_eq!(change("park", "rerun", false).await.unwrap().changed, 1);
        assert_eq!(change("park", "rerun", false).await.unwrap().same, 1);
        let shown = gateway.key_status(&id(&key)).await.unwrap();
        let acts: Vec<_> = shown.journal.iter().map(|entry| entry.kind.as_str()).collect();
        assert_eq!(acts, ["rule-by-hand"]);
        assert_eq!(bench.send(&eu, "/park", &key).await.status, 201);
        // The other way: what would run again waits for a person from now on.
        assert_eq!(change("rerun", "park", false).await.unwrap().changed, 1);
        assert_eq!(bench.send(&eu, "/rerun", &other).await.said(), (409, "outcome-unknown"));
    });
}

/// The name is that of a route that is asked about; the path's route waits for an operator.
#[test]
fn a_name_lets_nobody_ask_about_a_key_whose_path_is_parked() {
    served(Bench::start(2), async |bench, [eu, ..]| {
        let (probe, park) = (route("probe", |policy| policy), route("park", |policy| policy));
        read(&bench, &[Route { name: "park".into(), ..probe }, Route { name: "probe".into(), ..park }]).await;
        let key = key_of(&eu, "parked");
        abandon(&bench.world.cluster.store(&eu), "park", &key).await;
        // As the region's own requests write it: with the name of now.
        bench.upstream(&eu, UpstreamMode::EffectThenDrop);
        let other = key_of(&eu, "parked-too");
        assert_eq!(bench.send(&eu, "/park", &other).await.status, 504);
        sleep((HOLD + SETTLE_TIME) * 2).await;
        for key in [&key, &other] {
            assert_eq!(bench.state(&eu, key).await, "in-doubt");
        }
        assert_eq!(bench.world.upstreams.questions(&eu), 0);
    });
}

/// Which of two rules of one path is a key's only its request shows: nobody asks without it.
#[test]
fn a_path_with_two_rules_is_left_to_its_clients() {
    served(Bench::start(3), async |bench, [eu, ..]| {
        let probe = route("probe", |policy| policy);
        let patched = route("probe", |policy| Policy { recovery: Recovery::Park, ..policy });
        let patched = Route { name: "patched".into(), methods: vec![Method::PATCH], ..patched };
        read(&bench, &[patched, probe.clone()]).await;
        let key = key_of(&eu, "two-rules");
        abandon(&bench.world.cluster.store(&eu), "probe", &key).await;
        sleep((HOLD + SETTLE_TIME) * 2).await;
        assert_eq!((bench.state(&eu, &key).await, bench.world.upstreams.questions(&eu)), ("in-doubt", 0));
        assert_eq!(bench.gateway(&eu).doubts(None, 10).await.unwrap().doubts.len(), 1, "operators see it");
        let reply = bench.send(&eu, "/probe", &key).await;
        assert_eq!((reply.status, reply.replayed), (201, false), "its client's retry is asked about");
        // Where both do the same, nothing keeps the sweep from it.
        let alike = Route { name: "patched".into(), methods: vec![Method::PATCH], ..probe.clone() };
        read(&bench, &[alike, probe]).await;
        let key = key_of(&eu, "one-rule");
        abandon(&bench.world.cluster.store(&eu), "probe", &key).await;
        bench.until_state(&eu, &key, "released", (HOLD + SETTLE_TIME) * 2).await;
    });
}

#[test]
fn reloads_and_clock_steps_never_change_a_claims_hold() {
    served(Bench::start(4), async |bench, [eu, ..]| {
        let hold = Duration::from_secs(60);
        read(&bench, std::slice::from_ref(&route("park", |policy| Policy { hold, ..policy }))).await;
        let key = key_of(&eu, "held");
        let store = bench.world.cluster.store(&eu);
        abandon_for(&store, "park", &key, hold).await;
        // Shorter again: the claim of before has its hold.
        read_one(&bench, "park", |policy| policy).await;
        bench.world.cluster.step_clock(&eu, 3_600_000_000);
        let stepped = Instant::now();
        while stepped.elapsed() < hold - ms(100) {
            let row = store.look_up(&[id(&key)]).await.unwrap()[0][0].state.clone();
            assert!(matches!(row, State::Claimed { .. }), "{:?}: {row:?}", stepped.elapsed());
            sleep(ms(100)).await;
        }
        let is_listed = async || !store.doubts(None, 10).await.unwrap().is_empty();
        until("it to be listed in the end", hold, is_listed).await;
        bench.until_state(&eu, &key, "in-doubt", SWEEP).await;
        assert!(stepped.elapsed() < hold + SETTLE_TIME + SWEEP * 2, "{:?}", stepped.elapsed());
    });
}

/// Cut off, eu reads that keys are remembered for two days. Nobody agrees to that, so it promises
/// it to nobody, and answers for no other region's attempt for so long.
#[test]
fn no_key_is_promised_a_longer_life_than_was_agreed_on() {
    served(Bench::start(8), async |bench, [eu, us, _]| {
        let [new, foreign, short] = ["new", "foreign", "short"].map(|word| key_of(&eu, word));
        let store = bench.world.cluster.store(&us);
        store.doubt(&abandon(&store, "park", &foreign).await, UNCLEAR).await.unwrap();
        sleep(ms(500)).await;
        bench.links(&eu, LinkMode::Silent);
        let longer = route("park", |policy| Policy { retention: Retention::For(DAY * 2), ..policy });
        let routes = Routes(vec![longer, route("probe", |policy| policy)]);
        bench.gateway(&eu).reload(Reload { routes, ..reload() });
        assert_eq!(bench.send(&eu, "/park", &new).await.said(), (503, "not-authoritative"));
        let act =
            Act { ruling: Ruling::Settled(answer()), actor: "ada".to_owned(), reason: "asked".to_owned() };
        let refused = bench.gateway(&eu).rule(&id(&foreign), &act).await;
        assert!(matches!(refused, Err(Refusal::Changed)), "{refused:?}");
        assert_eq!(bench.send(&eu, "/probe", &short).await.status, 201, "it has its lease");
        assert!(bench.effects(&new).is_empty());
        bench.links(&eu, LinkMode::Up);
        until("it is agreed on", ms(20_000), async || bench.send(&eu, "/park", &new).await.status == 201)
            .await;
        assert_eq!(bench.gateway(&eu).rule(&id(&foreign), &act).await.unwrap().state, "settled");
    });
}
