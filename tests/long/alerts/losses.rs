//! Causes by loss: rows that do not arrive, regions behind them, a dead subscriber, a lost
//! majority. The last group destroys the deployment, so it must be the last.

use crate::alerts::requests::US;
use crate::alerts::stage::Stage;
use crate::support::*;

pub const WINDOW: [&str; 3] = ["OncewayReplicationLag", "OncewayWindowRunning", "OncewayPeerSilent"];

async fn all_serve(stage: &Stage) {
    for region in &stage.fleet.regions {
        region.serves().await.unwrap();
    }
}

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
    all_serve(stage).await;
    stage.all_quiet(&WINDOW, &[]).await;
}

/// Rows of ap-south arrive nowhere for half a minute, and it dies with a key that it had run. An
/// operator accepts the risk, and the key runs again.
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
    all_serve(stage).await;
}

/// Two regions' rows say that they settled a key, and no claim names a risk: a bug of onceway.
pub async fn unexplained(stage: &Stage) {
    let us = &stage.fleet.regions[0];
    let client = us.cluster.connect(DATABASE).await.unwrap();
    let rows = "insert into onceway.records (tenant, key, origin, state, epoch, attempt, nonce, fp_raw, request_id, \
                answer_status, answer_headers, held_at, held_ms, hold_ms, settle_ms, recovery, settled_at, expires_at, due_ms) \
                select 'acme', 'silent', origin, 4, 1, 1, gen_random_uuid(), sha256('x'), gen_random_uuid(), 201, '\\x01', \
                now(), 0, 0, 0, 0, now(), now() + interval '1 day', 86400000 \
                from unnest(array['us-east#1', 'eu-west#1']) as origin";
    client.batch_execute(rows).await.unwrap();
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
