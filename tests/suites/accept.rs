//! Accepted requests by real processes: deaths and returns, and rows on the disk.
//!
//! Each test has one region alone: its gateway is killed, its Postgres restarted, its upstream
//! late.

use crate::contract::Door;
use crate::net::support::{RawServer, Then};
use crate::support::solo::{add_lines, keyed};
use crate::support::*;

const MADE: &str = "HTTP/1.1 201 Created\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";

fn routes() -> String {
    let accepts = "mode = \"accept\"\nrecovery = \"rerun\"\n[route.accept]\nkeep_headers = [\"X-Canary\"]\n";
    keyed("emails", &format!("{accepts}max_runs = 1000\nbackoff = \"100ms\"\nbackoff_most = \"200ms\""))
}

async fn key_status(solo: &Solo, key: &str) -> Answer {
    let address = format!("{}/.well-known/onceway/requests/{key}", solo.public());
    ask(Ask::get(address).with("Authorization", "Bearer sk_demo_acme")).await
}

async fn becomes(solo: &Solo, key: &str, wanted: &str) {
    until(wanted, async || key_status(solo, key).await.json()["state"] == wanted).await;
}

async fn is_stored(solo: &Solo, what: &str) -> bool {
    let client = solo.region.cluster.connect(DATABASE).await.unwrap();
    client.query_one(&format!("select {what} from onceway.jobs"), &[]).await.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn accepted_requests_outlive_gateway_and_postgres() {
    let absent = Door::new();
    let solo = Solo::start(&routes(), Some(absent.address)).await;
    let key = key("waits");
    let request = || {
        post(&solo.public(), "/v1/emails", &key, BODY)
            .with("X-Canary", "in-the-open")
            .with("X-Api-Key", "sk_of_a_client")
    };
    let accepted = ask(request()).await;
    assert_eq!((accepted.status.as_u16(), &accepted.json()["state"]), (202, &"accepted".into()));
    assert_eq!(accepted.header("location"), format!("/.well-known/onceway/requests/{key}"));
    let open = "position('in-the-open'::bytea in request) > 0 and position('sk_demo_acme'::bytea in request) = 0 \
                and position('sk_of_a_client'::bytea in request) = 0";
    assert!(is_stored(&solo, open).await, "stored as it is, without what may be a secret");
    solo.region.act(Action::Kill, Part::Both).await.unwrap();
    solo.region.act(Action::Start, Part::Both).await.unwrap();
    solo.serves().await;
    // The kill may have met a run between its claim and its failed connection. Then the key
    // waits for its hold, and is in doubt until the next run asks the upstream again.
    let state = key_status(&solo, &key).await.json()["state"].clone();
    assert!(["accepted", "running", "in_doubt"].iter().any(|open| state == *open), "{state}");
    let upstream = RawServer::on(absent.open().unwrap(), Then::AnswerAndClose(MADE));
    becomes(&solo, &key, "settled").await;
    let [call] = &upstream.headers()[..] else { panic!("one call: {:?}", upstream.seen()) };
    assert_eq!(call["idempotency-key"], format!("\"{key}\""));
    assert_eq!((call["x-canary"].as_str(), call["onceway-tenant"].as_str()), ("in-the-open", "acme"));
    assert!(!call.contains_key("authorization"), "{call:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_its_own_key_reads_a_sealed_request() {
    let absent = Door::new();
    let seal = |dir: &Path, byte: u8| fs::write(dir.join("seal.key"), STANDARD.encode([byte; 32])).unwrap();
    let solo = Solo::start_with(&routes(), Some(absent.address), |dir| {
        seal(dir, 7);
        add_lines(dir, "[accept]\nkey_file = \"seal.key\"\n");
    })
    .await;
    let key = key("sealed");
    let request = post(&solo.public(), "/v1/emails", &key, BODY).with("X-Canary", "not-in-the-open");
    assert_eq!(ask(request).await.status, 202);
    let shut = "sealed and position('not-in-the-open'::bytea in request) = 0 \
                and position('tok_visa'::bytea in request) = 0 and position('sk_demo'::bytea in request) = 0";
    assert!(is_stored(&solo, shut).await);
    let sealed_by = async |byte| {
        solo.region.act(Action::Stop, Part::Gateway).await.unwrap();
        seal(&solo.dir, byte);
        solo.region.act(Action::Start, Part::Gateway).await.unwrap();
        solo.serves().await;
    };
    sealed_by(8).await;
    becomes(&solo, &key, "dead").await;
    let listed = onceway(&solo.region, &["jobs", "--dead"]).await;
    has(&(out(&listed) + &err(&listed)), &["sealed with another key", &key]);
    sealed_by(7).await;
    let upstream = RawServer::on(absent.open().unwrap(), Then::AnswerAndClose(MADE));
    let retry = ["jobs", "retry", "acme", &key, "--reason", "key restored"];
    ends(&onceway(&solo.region, &retry).await, 0, "");
    becomes(&solo, &key, "settled").await;
    let call = upstream.headers().remove(0);
    assert_eq!(call["authorization"], "Bearer sk_demo_acme", "what is sealed is stored whole");
}
