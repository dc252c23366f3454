//! Causes by clients and their upstream, by the store of ap-south, and by loss. us-east's two
//! gateways count for themselves. No cause in the store ends its lease. The losses end with one
//! that destroys the deployment.

use crate::alerts::stage::Stage;
use crate::support::*;

pub const US: (&str, &str) = ("region", "us-east");

/// Runs two clients until their effect was seen. One reuses its keys, the other one has less
/// patience than its upstream takes. Their answers do not matter. Also makes keys in doubt, and
/// returns them.
async fn ask_on(stage: &Stage, seen: &AtomicBool) -> Vec<String> {
    let public = stage.fleet.regions[0].public();
    let reused = stage.key_of(0, None).await;
    stage.expect_status(post(&public, "/v1/charges", &reused, BODY), &[201]).await;
    let mut left = doubts(stage, 10).await;
    while !seen.load(SeqCst) {
        let began = Instant::now();
        let slow = stage.key_of(0, None).await;
        let mut asked = JoinSet::new();
        for _ in 0..5 {
            asked.spawn(ask(post(&public, "/v1/charges", &reused, OTHER_BODY)));
            asked.spawn(ask(post(&public, "/v1/payouts", &slow, BODY).with("Demo-Behave", "slow=800ms")));
        }
        left.extend(doubts(stage, 1).await);
        asked.join_all().await;
        second_after(began).await;
    }
    left
}

async fn second_after(began: Instant) {
    wait::pause(Duration::from_secs(1).saturating_sub(began.elapsed())).await;
}

/// Makes keys in doubt: their upstream answers 500 on a route that parks.
pub async fn doubts(stage: &Stage, count: usize) -> Vec<String> {
    let mut keys = Vec::new();
    for _ in 0..count {
        let key = stage.key_of(0, None).await;
        let request = post(&stage.fleet.regions[0].public(), "/v1/payouts", &key, BODY);
        stage.expect_status(request.with("Demo-Behave", "status=500"), &[500, 409]).await;
        keys.push(key);
    }
    keys
}

/// Rules as an operator that nothing happened.
pub async fn ruled(stage: &Stage, keys: &[String]) {
    for key in keys {
        stage.operate(0, &["key", "release", "acme", key, "--reason", "no such payout"]).await;
    }
}

pub async fn play(stage: &Stage) {
    let public = stage.fleet.regions[0].public();
    let over = AtomicBool::new(false);
    let seen = async {
        let dead = stage.key_of(0, None).await;
        let refused = post(&public, "/v1/emails", &dead, BODY).with("Demo-Behave", "status=429");
        stage.expect_status(refused, &[202]).await;
        stage.fires("OncewayDeadLetters", &[US]).await;
        stage.fires("OncewayDoubtsGrow", &[US]).await;
        stage.fires("OncewayKeysReused", &[US, ("tenant", "acme")]).await;
        stage.fires("OncewayInProgress", &[US, ("route", "payouts")]).await;
        over.store(true, SeqCst);
        dead
    };
    let (dead, keys) = tokio::join!(seen, ask_on(stage, &over));
    ruled(stage, &keys).await;
    stage.operate(0, &["jobs", "drop", "acme", &dead, "--reason", "no such address"]).await;
    let all = ["OncewayDeadLetters", "OncewayDoubtsGrow", "OncewayKeysReused", "OncewayInProgress"];
    stage.all_quiet(&all, &[US]).await;
}

/// eu-west takes one request at a time while it is watched: its gateway reads its file again.
pub async fn too_many(stage: &Stage) {
    let (file, public) = (stage.fleet.dir().join("eu-west.toml"), stage.fleet.regions[1].public());
    let before = fs::read_to_string(&file).unwrap();
    fs::write(&file, before.clone() + "\n[listen.limits]\nrequests = 1\n").unwrap();
    let over = AtomicBool::new(false);
    let crowd = async {
        while !over.load(SeqCst) {
            let began = Instant::now();
            let mut asked = JoinSet::new();
            for _ in 0..20 {
                let slow = post(&public, "/v1/search", &key("crowd"), BODY).with("Demo-Behave", "slow=500ms");
                asked.spawn(ask(slow));
            }
            asked.join_all().await;
            second_after(began).await;
        }
    };
    let seen = async {
        stage.fires("OncewayOverloaded", &[("region", "eu-west")]).await;
        over.store(true, SeqCst);
    };
    tokio::join!(crowd, seen);
    fs::write(&file, before).unwrap();
    stage.quiet("OncewayOverloaded", &[]).await;
}

const AP: (&str, &str) = ("region", "ap-south");
pub const ERRORS: [&str; 2] = ["OncewayRequestsFail", "OncewayAvailabilityBurns"];
pub const SLOW: [&str; 2] = ["OncewayStoreSlow", "OncewayOverheadBurns"];
/// Longer than the bound of OncewayStoreSlow.
const STALL: Duration = Duration::from_millis(350);

/// Each claim gets an error: no breaker opens, and heartbeats, lease and keys stay.
pub async fn of_errors(stage: &Stage) {
    let ap = &stage.fleet.regions[2];
    let client = ap.cluster.connect(files::DATABASE).await.unwrap();
    let right = |verb: &str, to: &str| {
        format!("{verb} insert on onceway.records_ap_south_g1 {to} {}", files::GATEWAY_ROLE)
    };
    client.batch_execute(&right("revoke", "from")).await.unwrap();
    let key = stage.key_of(2, None).await;
    let request = post(&ap.public(), "/v1/charges", &key, BODY);
    let answer = ask(request.clone()).await;
    assert!(answer.text().contains("store-unavailable"), "{} {}", answer.status, answer.text());
    for name in ERRORS {
        stage.fires(name, &[AP]).await;
    }
    ap.serves().await.unwrap();
    let breaker = series(ap, "onceway_store_breaker_open{calls=\"writes\"}").await;
    assert_eq!(breaker, Some(0.0), "no breaker opens for answers");
    client.batch_execute(&right("grant", "to")).await.unwrap();
    stage.all_quiet(&ERRORS, &[]).await;
    stage.expect_status(request, &[201]).await;
}

pub async fn slow(stage: &Stage) {
    let ap = &stage.fleet.regions[2];
    let over = AtomicBool::new(false);
    let stalls = async {
        while !over.load(SeqCst) {
            ap.act(Action::Pause, Part::Postgres).await.unwrap();
            wait::pause(STALL).await;
            ap.act(Action::Resume, Part::Postgres).await.unwrap();
            wait::pause(STALL).await;
        }
    };
    let seen = async {
        let alert = stage.fires("OncewayStoreSlow", &[AP]).await;
        assert!(alert.labels.contains_key("op"), "{alert:?}");
        stage.fires("OncewayOverheadBurns", &[AP]).await;
        over.store(true, SeqCst);
    };
    tokio::join!(stalls, seen);
    stage.all_quiet(&SLOW, &[AP]).await;
    ap.serves().await.unwrap();
}

/// Locked as while an index is built. Heartbeats go on, so keys stay; rows of others arrive.
pub async fn silent(stage: &Stage) {
    let ap = &stage.fleet.regions[2];
    let client = ap.cluster.connect(files::DATABASE).await.unwrap();
    client.batch_execute("begin; lock table onceway.records_ap_south_g1 in share mode").await.unwrap();
    stage.fires("OncewayStoreSilent", &[AP, ("calls", "writes")]).await;
    let key = stage.key_of(2, None).await;
    let request = post(&ap.public(), "/v1/charges", &key, BODY);
    let refused = async || ask(request.clone()).await.text().contains("store-unavailable");
    until("a key to be refused where it stays", refused).await;
    client.batch_execute("rollback").await.unwrap();
    stage.quiet("OncewayStoreSilent", &[]).await;
    stage.expect_status(request, &[201]).await;
    ap.serves().await.unwrap();
}

pub const WINDOW: [&str; 3] = ["OncewayReplicationLag", "OncewayWindowRunning", "OncewayPeerSilent"];

pub async fn window(stage: &Stage) {
    let (fleet, eu) = (&stage.fleet, &stage.fleet.regions[1]);
    for subscriber in [0, 2] {
        fleet.links.freeze_rows(subscriber, 1).unwrap();
    }
    stage.fires("OncewayReplicationLag", &[US, ("origin", "eu-west")]).await;
    eu.act(Action::Kill, Part::Both).await.unwrap();
    stage.fires("OncewayWindowRunning", &[US]).await;
    stage.fires("OncewayPeerSilent", &[US, ("peer", "eu-west")]).await;
    for subscriber in [0, 2] {
        fleet.links.heal(subscriber, 1, false).unwrap();
    }
    eu.act(Action::Start, Part::Both).await.unwrap();
    all_serve(&stage.fleet).await;
    stage.all_quiet(&WINDOW, &[]).await;
}

/// ap-south dies with a key whose row arrived nowhere, and an operator accepts the risk.
pub async fn beyond(stage: &Stage) {
    let (fleet, ap) = (&stage.fleet, &stage.fleet.regions[2]);
    for subscriber in [0, 1] {
        fleet.links.freeze_rows(subscriber, 2).unwrap();
    }
    let twice = stage.key_of(2, Some(0)).await;
    let request = |number: usize| post(&fleet.regions[number].public(), "/v1/payouts", &twice, BODY);
    stage.expect_status(request(2), &[201]).await;
    stage.fires("OncewayLossNeedsOperator", &[US, ("origin", "ap-south")]).await;
    ap.act(Action::Kill, Part::Both).await.unwrap();
    stage.fires("OncewayNeedsOperator", &[US]).await;
    stage.operate(0, &["takeover", "ap-south", "--accept-risk", "--reason", "a drill"]).await;
    stage.expect_status(request(0), &[201]).await;
    assert_eq!(effects(&fleet.ledger, &twice), 2);
    stage.quiet("OncewayNeedsOperator", &[US]).await;
    for subscriber in [0, 1] {
        fleet.links.heal(subscriber, 2, false).unwrap();
    }
    ap.act(Action::Start, Part::Both).await.unwrap();
    let doubles = stage.fires("OncewayDoubleRuns", &[US]).await;
    let said = &doubles.annotations["description"];
    // An increase is a guess between scrapes, what it counts is not.
    assert!(said.starts_with("1 keys "), "{said}");
    all_serve(&stage.fleet).await;
}

pub async fn unexplained(stage: &Stage) {
    let us = &stage.fleet.regions[0];
    let client = us.cluster.connect(DATABASE).await.unwrap();
    settled_twice(&client, ["us-east#1", "eu-west#1"]).await;
    stage.fires("OncewayUnexplainedDoubles", &[US]).await;
    client.batch_execute("delete from onceway.records where key = 'silent'").await.unwrap();
}

/// eu-west is dead and the others write on. Then ap-south dies, too, and no majority is left.
pub async fn ruins(stage: &Stage) {
    let [us, eu, ap] = [&stage.fleet.regions[0], &stage.fleet.regions[1], &stage.fleet.regions[2]];
    const SLOT: (&str, &str) = ("slot", "sub_eu_west_from_us_east");
    eu.act(Action::Kill, Part::Both).await.unwrap();
    let client = us.cluster.connect(DATABASE).await.unwrap();
    // A gibibyte of WAL is 64 files of it, and nobody needs to fill them.
    alter_system(&client, "set wal_init_zero = off").await;
    let switch = "select pg_logical_emit_message(false, 'drill', 'x'), pg_switch_wal()";
    let next = async || client.batch_execute(switch).await.unwrap();
    for _ in 0..66 {
        next().await;
    }
    stage.fires("OncewaySlotGrows", &[US, SLOT]).await;
    alter_system(&client, "set max_slot_wal_keep_size = '1MB'").await;
    until("the slot to be lost", async || {
        next().await;
        client.batch_execute("checkpoint").await.unwrap();
        series(us, &format!("onceway_slot_lost{{slot=\"{}\"}}", SLOT.1)).await == Some(1.0)
    })
    .await;
    stage.fires("OncewaySlotLost", &[US, SLOT]).await;
    stage.quiet("OncewaySlotGrows", &[US, SLOT]).await;
    ap.act(Action::Kill, Part::Both).await.unwrap();
    stage.fires("OncewayRegionRunsNothing", &[US]).await;
    // No region has taken its keys over, and it is dead and cannot report that itself.
    stage.fires("OncewayRegionRunsNothing", &[("region", "ap-south")]).await;
}
