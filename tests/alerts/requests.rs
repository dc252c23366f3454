//! What clients and their upstream do: keys reused, retries that find the first attempt running, dead letters, keys in doubt.
//!
//! All at us-east, whose two gateways count for themselves. Neighbours: `stage` looks. It must not break a process.

use std::time::{Duration, Instant};

use onceway::fleet::wait;
use tokio::task::JoinSet;

use crate::stage::Stage;
use crate::support::{BODY, OTHER_BODY, ask, post};

const US: (&str, &str) = ("region", "us-east");

/// What answers to a client that goes on.
async fn asked_on(stage: &Stage, done: &std::sync::atomic::AtomicBool) {
    let public = stage.fleet.regions[0].public();
    let reused = stage.key_of(0, None).await;
    assert_eq!(ask(post(&public, "/v1/charges", &reused, BODY)).await.status, 201);
    while !done.load(std::sync::atomic::Ordering::SeqCst) {
        let began = Instant::now();
        // A client that makes its keys of something that repeats ...
        for _ in 0..4 {
            assert_eq!(ask(post(&public, "/v1/charges", &reused, OTHER_BODY)).await.status, 422);
        }
        // ... and one that has less patience than its upstream takes.
        let slow = stage.key_of(0, None).await;
        let mut copies = JoinSet::new();
        for _ in 0..5 {
            let copy = post(&public, "/v1/payouts", &slow, BODY).with("Demo-Behave", "slow=800ms");
            copies.spawn(ask(copy));
        }
        let told: Vec<u16> = copies.join_all().await.iter().map(|told| told.status.as_u16()).collect();
        assert!(told.contains(&201) && told.contains(&409), "{told:?}");
        wait::pause(Duration::from_secs(1).saturating_sub(began.elapsed())).await;
    }
}

/// Keys whose upstream answers 500 on a route that parks.
pub async fn doubts(stage: &Stage, count: usize) -> Vec<String> {
    let mut keys = Vec::new();
    for _ in 0..count {
        let key = stage.key_of(0, None).await;
        let request = post(&stage.fleet.regions[0].public(), "/v1/payouts", &key, BODY);
        assert_eq!(ask(request.with("Demo-Behave", "status=500")).await.status, 500);
        keys.push(key);
    }
    keys
}

pub async fn ruled(stage: &Stage, keys: &[String]) {
    for key in keys {
        stage.operate(0, &["key", "release", "acme", key, "--reason", "no such payout"]).await;
    }
}

pub async fn play(stage: &Stage) {
    let public = stage.fleet.regions[0].public();
    let done = std::sync::atomic::AtomicBool::new(false);
    let seen = async {
        let dead = stage.key_of(0, None).await;
        let refused = post(&public, "/v1/emails", &dead, BODY).with("Demo-Behave", "status=503");
        assert_eq!(ask(refused).await.status, 202);
        let keys = doubts(stage, 14).await;
        stage.fires("OncewayDeadLetters", &[US]).await;
        stage.fires("OncewayDoubtsGrow", &[US]).await;
        stage.fires("OncewayKeysReused", &[US, ("tenant", "acme")]).await;
        stage.fires("OncewayInProgress", &[US, ("route", "payouts")]).await;
        done.store(true, std::sync::atomic::Ordering::SeqCst);
        (dead, keys)
    };
    let ((dead, keys), ()) = tokio::join!(seen, asked_on(stage, &done));
    ruled(stage, &keys).await;
    stage.operate(0, &["jobs", "drop", "acme", &dead, "--reason", "no such address"]).await;
    for name in ["OncewayDeadLetters", "OncewayDoubtsGrow", "OncewayKeysReused", "OncewayInProgress"] {
        stage.quiet(name, &[US]).await;
    }
}
