//! Causes by clients and their upstream: reused keys, early retries, dead letters, keys in doubt,
//! and too many requests at once. All but the last run at us-east, whose two gateways count for
//! themselves.

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
