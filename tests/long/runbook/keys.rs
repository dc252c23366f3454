//! Requests that fail or are slow, a stuck key, and a suspected double charge, with a provider's
//! ledger of the test's own.

use crate::runbook::book::Section;
use crate::support::*;
use std::time::{SystemTime, UNIX_EPOCH};

/// Makes a key in doubt at its owner, by a 500 on a route that parks. Returns the owner.
async fn in_doubt<'a>(fleet: &'a Deployment, path: &str, key: &str, accepted: bool) -> &'a Region {
    let owner = key_status(&fleet.regions[0], key).await["owner"].as_str().unwrap().to_owned();
    let owner = fleet.region(&owner).unwrap();
    let mut request = post(&owner.public(), path, key, BODY).with("Demo-Behave", "status=500");
    if accepted {
        request = request.with("Prefer", "respond-async");
    }
    let answer = ask(request).await;
    assert_eq!(answer.status, if accepted { 202 } else { 500 }, "{}", answer.text());
    becomes(owner, key, "in-doubt").await;
    owner
}

pub async fn stuck(mut section: Section<'_>, fleet: &Deployment) {
    let stuck = "order-1001";
    let owner = in_doubt(fleet, "/v1/payouts", stuck, false).await;
    let again = ask(post(&owner.public(), "/v1/payouts", stuck, BODY)).await;
    assert_eq!(again.json()["code"], "outcome-unknown", "how one notices");
    section.ask(owner);
    section.well("onceway ring explain", &[&format!("home    {}", owner.name)]).await;
    section.run("onceway doubts").await.ends(&[3]).shows(stuck).shows("payouts").shows("over");
    section.well("onceway key show", &["in-doubt"]).await;
    section.well("onceway audit key", &["record of"]).await;
    section.well("onceway key settle", &["settled: every retry is given this answer"]).await;
    let answer = ask(post(&owner.public(), "/v1/payouts", stuck, BODY)).await;
    assert_eq!((answer.status.as_u16(), answer.text().as_str()), (201, "{\"id\":\"po_17\"}"));
    // The other case takes another key.
    let (other, dead) = (key("released"), key("dead"));
    section.ask(in_doubt(fleet, "/v1/payouts", &other, false).await);
    section.put(stuck, &other);
    // Until the attempt is over: a status alone does not end it.
    section.run_until("onceway key release", "released: nothing was sent").await.ends(&[0]);
    let owner = in_doubt(fleet, "/v1/notes", &dead, true).await;
    let release = ["key", "release", "acme", &dead, "--reason", "no such note"];
    operated(owner, &release).await;
    section.ask(owner);
    section.put(stuck, &dead);
    section.run_until("onceway jobs --dead", &dead).await.ends(&[3]);
    section.well("onceway jobs retry", &["a worker runs it again"]).await;
    // The same request is sent again, so it is a dead letter again in the end. A player of later
    // sections finds none.
    let is_dead = async || owner.operate(&["jobs", "--dead"]).await.unwrap().status.code() == Some(3);
    until("the job to be dead again", is_dead).await;
    operated(owner, &release).await;
    let words = ["jobs", "drop", "acme", &dead, "--reason", "the test is over"];
    assert!(owner.operate(&words).await.unwrap().status.success());
    section.end();
}

/// An upstream that answers 500 on a route that parks: its keys count against availability.
pub async fn fail(mut section: Section<'_>, fleet: &Deployment) {
    let doubtful = key("doubtful");
    let owner = in_doubt(fleet, "/v1/payouts", &doubtful, false).await;
    let counted = "onceway_request_seconds_count{route=\"payouts\",verdict=\"in_doubt\",where=\"here\"}";
    assert!(series(owner, counted).await >= Some(1.0), "how one notices");
    section.ask(owner);
    section.well("onceway status", &["store      open"]).await;
    section.run("onceway doubts").await.ends(&[3]).shows(&doubtful);
    operated(owner, &["key", "release", "acme", &doubtful, "--reason", "no such payout"]).await;
    section.end();
}

pub async fn slow(mut section: Section<'_>, fleet: &Deployment) {
    let eu = &fleet.regions[1];
    assert_eq!(ask(post(&eu.public(), "/v1/charges", &key("timed"), BODY)).await.status, 201);
    section.ask(eu);
    section.well("onceway status", &["in flight"]).await;
    section.run_again("onceway store check --config config/eu-west.toml").await;
    section.end();
}

pub async fn double(mut section: Section<'_>, fleet: &Deployment) {
    let (twice, once) = (key("twice"), key("once"));
    for key in [&twice, &once] {
        let answer = ask(post(&fleet.regions[0].public(), "/v1/charges", key, BODY)).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let ledger = format!("idempotency_key,at\n{twice},{now}\n{twice},{now}\n{once},{now}\n");
    fs::write(fleet.dir().join("desk/provider.csv"), ledger).unwrap();
    section.put("order-1001", &twice);
    // The example's month is the hour in which the test runs.
    section.put("2026-01-01", (now - 3_600).to_string());
    section.put("2026-02-01", (now + 3_600).to_string());
    let life = section.run("onceway audit key").await;
    life.ends(&[0]).shows("us-east: settled").shows("eu-west: settled").shows("ap-south: settled");
    section.run("onceway audit ").await.ends(&[0, 3]);
    section.well("onceway audit export > onceway.csv", &[]).await;
    let export = fs::read_to_string(fleet.dir().join("desk/onceway.csv")).unwrap();
    assert!(export.contains(&twice) && export.starts_with("tenant,key,key_state,kind"), "{export}");
    let found = section.run("onceway audit compare provider.csv").await;
    found.ends(&[1]).shows("double").shows(&twice).hides(&once);
    section.end();
}
