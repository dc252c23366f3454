//! Causes by the store of ap-south: it answers errors, is slow, or is silent. Its keys stay with
//! it: no cause ends its lease.

use crate::alerts::stage::Stage;
use crate::support::*;

const AP: (&str, &str) = ("region", "ap-south");
pub const ERRORS: [&str; 2] = ["OncewayRequestsFail", "OncewayAvailabilityBurns"];
pub const SLOW: [&str; 2] = ["OncewayStoreSlow", "OncewayOverheadBurns"];
/// Longer than the bound of OncewayStoreSlow.
const STALL: Duration = Duration::from_millis(350);

/// Revokes the gateways' right to write ap-south's records: its store answers each claim with an
/// error. Its heartbeats go on, so its lease and its keys stay with it, and no breaker opens.
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

/// Locks ap-south's own records against writes, as while an index is built on them. Its heartbeats
/// go on, so its keys stay with it. Rows of others arrive, so no lag grows.
pub async fn silent(stage: &Stage) {
    let ap = &stage.fleet.regions[2];
    let client = ap.cluster.connect(files::DATABASE).await.unwrap();
    client.batch_execute("begin; lock table onceway.records_ap_south_g1 in share mode").await.unwrap();
    stage.fires("OncewayStoreSilent", &[AP, ("calls", "writes")]).await;
    let key = stage.key_of(2, None).await;
    let request = post(&ap.public(), "/v1/charges", &key, BODY);
    until("a key to be refused where it stays", async || {
        ask(request.clone()).await.text().contains("store-unavailable")
    })
    .await;
    client.batch_execute("rollback").await.unwrap();
    stage.quiet("OncewayStoreSilent", &[]).await;
    stage.expect_status(request, &[201]).await;
    ap.serves().await.unwrap();
}
