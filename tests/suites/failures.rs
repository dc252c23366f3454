//! Three real regions whose parts are killed, paused and cut off: they fail closed, say why, and
//! work again without help. By the ledger, nothing is sent without a durable claim, nor twice.

use crate::support::*;
use onceway::adapters::issue::{Purpose, add};

/// Three regions of the test's own: one test's damage must not be another one's beginning.
async fn three() -> Deployment {
    deployment(Duration::from_millis(20)).await
}

async fn charged(region: &Region, key: &str) {
    until("the charge to be answered 201", async || charge(region, key).await.status == 201).await;
}

async fn refused(region: &Region, key: &str, expected: &str) -> Answer {
    found(expected, async || {
        let answer = charge(region, key).await;
        assert!(answer.status.is_server_error(), "{}: {}", answer.status, answer.text());
        (code(&answer) == expected).then_some(answer)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_home_store_refuses_keys_and_recovers() {
    let three = three().await;
    let home = &three.regions[2];
    let before = homed_at(&three, 2, "before").await;
    assert_eq!(charge(home, &before).await.status, 201);
    let during = homed_at(&three, 2, "during").await;
    home.act(Action::Kill, Part::Postgres).await.unwrap();
    for region in &three.regions {
        let answer = refused(region, &during, "store-unavailable").await;
        assert_eq!(answer.status, 503);
        assert!(answer.header("retry-after").parse::<u64>().is_ok());
    }
    assert_eq!(effects(&three.ledger, &during), 0, "sent without a durable claim");
    until("the health check to notice, while it can still forward", async || {
        let ready = ask(Ask::get(format!("{}/readyz", home.admin()))).await;
        ready.status == 200 && ready.json()["serves"] == false
    })
    .await;
    home.act(Action::Start, Part::Postgres).await.unwrap();
    charged(&three.regions[0], &during).await;
    assert_eq!(charge(home, &before).await.header("idempotent-replayed"), "true");
    assert_eq!((effects(&three.ledger, &during), effects(&three.ledger, &before)), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_home_gateway_causes_no_second_effect() {
    let three = three().await;
    let [edge, home] = [&three.regions[0], &three.regions[2]];
    let key = homed_at(&three, 2, "paused").await;
    let request = post(&edge.public(), "/v1/charges", &key, BODY).with("Demo-Behave", "slow=1s");
    let waiting = tokio::spawn(request.send_owned(PATIENCE));
    becomes(home, &key, "in-progress").await;
    home.act(Action::Pause, Part::Gateway).await.unwrap();
    // The edge gives the silent home up by its pings, long before any time-out.
    let response = waiting.await.unwrap().unwrap();
    let expected = ["home-unavailable", "outcome-unknown"];
    assert!(expected.contains(&code(&response).as_str()), "{}", response.text());
    refused(edge, &key, "home-unavailable").await;
    home.act(Action::Resume, Part::Gateway).await.unwrap();
    charged(edge, &key).await;
    assert_eq!(effects(&three.ledger, &key), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_store_that_goes_back_is_closed() {
    let three = three().await;
    let home = &three.regions[1];
    let key = homed_at(&three, 1, "reverted").await;
    let store = home.cluster.connect(DATABASE).await.unwrap();
    store.batch_execute("update onceway.heartbeats set seq = 0 where origin = 'eu-west#1'").await.unwrap();
    until("the gateway to notice", async || {
        let ready = ask(Ask::get(format!("{}/readyz", home.admin()))).await.json();
        ready["serves"] == false && ready["reasons"].to_string().contains("went back while it ran")
    })
    .await;
    refused(home, &key, "store-unavailable").await;
    assert_eq!(effects(&three.ledger, &key), 0);
    // As an error: only a rebuild opens it again.
    let is_it = |line: &&str| line.contains("ERROR") && line.contains("the store went back while it ran: ");
    let logged = async || log(home).await.lines().filter(is_it).count();
    until("the error to be logged", async || logged().await == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stuck_store_keeps_its_lease_and_refuses_fast() {
    const OPEN: &str = "onceway_store_breaker_open{calls=\"writes\"}";
    const SPARED: &str = "onceway_store_spared_total{calls=\"writes\"}";
    let solo = Solo::start(&routes(), None).await;
    let (region, before) = (&solo.region, key("before"));
    assert_eq!(charge(region, &before).await.status, 201);
    let locking = region.cluster.connect(files::DATABASE).await.unwrap();
    locking.batch_execute("begin; lock table onceway.records in share mode").await.unwrap();
    let stuck = key("stuck");
    until("the store to be spared", async || {
        let one = |at| post(&region.public(), "/v1/charges", &format!("{stuck}-{at}"), BODY);
        let storm: JoinSet<_> = (0..40).map(|at| one(at).send_owned(PATIENCE)).collect();
        for response in storm.join_all().await {
            assert_eq!(code(&response.unwrap()), "store-unavailable");
        }
        series(region, OPEN).await == Some(1.0)
    })
    .await;
    let refused = charge(region, &stuck).await;
    assert_eq!((refused.status.as_u16(), code(&refused).as_str()), (503, "store-unavailable"));
    assert!(refused.json()["safe_to_retry"] == true && refused.header("retry-after").parse::<u64>().is_ok());
    assert!(series(region, SPARED).await >= Some(1.0));
    assert_eq!(charge(region, &before).await.header("idempotent-replayed"), "", "a retry claims, too");
    let status = status(region).await;
    assert!(status["store"]["spared"].as_str().unwrap().starts_with("writes of keys"), "{status}");
    assert_eq!((&status["store"]["open"], &status["readiness"]["serves"]), (&true.into(), &false.into()));
    // Far longer than a lease: heartbeats and renewals go on.
    let beat = status["store"]["heartbeat"].as_u64().unwrap();
    until("twenty heartbeats more", async || {
        assert_eq!(series(region, "onceway_lease_held").await, Some(1.0));
        series(region, "onceway_heartbeat_seq").await >= Some((beat + 20) as f64)
    })
    .await;
    locking.batch_execute("rollback").await.unwrap();
    charged(region, &stuck).await;
    solo.serves().await;
    assert_eq!(series(region, OPEN).await, Some(0.0));
    assert_eq!((effects(&solo.ledger, &stuck), effects(&solo.ledger, &before)), (1, 1));
}

/// The epoch of a region's gateways, the regions of their view, and their refusals of strangers.
async fn standing(region: &Region) -> (u64, Vec<String>, f64) {
    let status = status(region).await;
    let refused = series(region, "onceway_peer_refusals_total{sender=\"stranger\"}").await;
    let names = status["authority"]["regions"].as_array().unwrap().iter().map(|one| one["name"].to_string());
    (status["epoch"].as_u64().unwrap(), names.collect(), refused.unwrap())
}

fn refusals(region: &Region) -> u64 {
    let log = fs::read_to_string(region.gateway_log()).unwrap();
    log.lines().filter(|line| line.contains("a peer may not say this")).count() as u64
}

/// Each forbidden cell of the table. The runbook has a region that joins, and one that left.
#[tokio::test(flavor = "multi_thread")]
async fn strangers_may_say_nothing_and_takeover_still_works() {
    let three = three().await;
    let folder = three.dir().join("certificates");
    let [mallory, witness] = ["mallory", "w-1"].map(|name| RegionName::parse(name).unwrap());
    add(&folder, std::slice::from_ref(&mallory), Purpose::Region).unwrap();
    add(&folder, std::slice::from_ref(&witness), Purpose::Witness).unwrap();
    let identity = |name: &RegionName| PeerIdentity::load(name.clone(), &files_in(&folder, name)).unwrap();
    let (stranger, answers) = (identity(&mallory), identity(&witness));
    let key = homed_at(&three, 0, "right-after").await;
    for region in &three.regions {
        let address = said::listens(&three, region);
        let (_, regions, before) = standing(region).await;
        let begun = Instant::now();
        let count = said::forbidden(&stranger, Sender::Stranger, &region.name, &address).await;
        assert_eq!(count, Kind::ALL.len(), "it may say nothing");
        for (kind, request) in said::all(&witness, &witness, &region.name) {
            let response = said::say(&answers, &region.name, &address, request).await;
            assert!(response.is_err(), "{}: a witness's certificate opened a connection", kind.name());
        }
        let after = standing(region).await;
        // A busy machine may judge a region lost meanwhile: only what was said is looked for.
        assert!(after.0 < said::POISONED, "the view that {mallory} said is followed: {}", after.0);
        assert_eq!(after.1, regions, "the regions of {}'s view", region.name);
        assert!(after.2 >= before + count as f64, "{} then {}: each is counted", before, after.2);
        // The log is written behind the answers.
        until("the refusal's line in the log", async || refusals(region) > 0).await;
        let most = 1 + begun.elapsed().as_secs() / 60;
        assert!(refusals(region) <= most, "at most {most} lines of {}", region.name);
    }
    // A region of the ring, in the name of another one.
    let [to, from, named] = [0, 1, 2].map(|number: usize| &three.regions[number]);
    let address = said::listens(&three, to);
    let count = said::in_anothers_name(&identity(&from.name), &named.name, &to.name, &address).await;
    assert!(count > 4, "{count} messages must be of their sender");
    assert_eq!(effects(&three.ledger, "mallory-1"), 0);
    three.regions[0].act(Action::Kill, Part::Both).await.unwrap();
    charged(&three.regions[1], &key).await;
    assert_eq!(effects(&three.ledger, &key), 1);
    three.shut_down().await.unwrap();
}
