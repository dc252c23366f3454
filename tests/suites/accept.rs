//! Accepted requests by real processes: deaths and returns, and rows on the disk.
//!
//! Each test has one region alone: its gateway is killed, its Postgres restarted, its upstream
//! late. It must not wait where a condition can be watched.

use crate::net::support::{RawServer, Then};
use crate::support::solo::{add_lines, keyed};
use crate::support::*;
use tokio::net::TcpSocket;

/// The answer of the upstream, once it is there.
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

/// Runs a command against the region's admin listener. Returns its result, and all that it said.
async fn onceway(solo: &Solo, args: &[&str]) -> (Output, String) {
    let output = crate::support::onceway(&solo.region, args).await;
    let text = [output.stdout.clone(), output.stderr.clone()].concat();
    (output, String::from_utf8(text).unwrap())
}

async fn stored<T: for<'a> tokio_postgres::types::FromSql<'a>>(solo: &Solo, sql: &str) -> T {
    solo.region.cluster.connect("onceway").await.unwrap().query_one(sql, &[]).await.unwrap().get(0)
}

/// An upstream that is not there yet. Its port is held: connections to it are refused until it
/// listens, and no other socket of the machine gets it.
fn absent() -> (TcpSocket, SocketAddr) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

#[tokio::test(flavor = "multi_thread")]
async fn accepted_requests_outlive_gateway_and_postgres() {
    let (absent, address) = absent();
    let solo = Solo::start(&routes(), Some(address)).await;
    let key = key("waits");
    let request = || {
        post(&solo.public(), "/v1/emails", &key, BODY)
            .with("X-Canary", "in-the-open")
            .with("X-Api-Key", "sk_of_a_client")
    };
    let accepted = ask(request()).await;
    assert_eq!((accepted.status.as_u16(), &accepted.json()["state"]), (202, &"accepted".into()));
    assert_eq!(accepted.header("location"), format!("/.well-known/onceway/requests/{key}"));
    let open = "select position('in-the-open'::bytea in request) > 0 and position('sk_demo_acme'::bytea in request) = 0 \
                and position('sk_of_a_client'::bytea in request) = 0 \
                from onceway.jobs";
    assert!(stored::<bool>(&solo, open).await, "stored as it is, without what may be a secret");
    solo.region.act(Action::Kill, Part::Gateway).await.unwrap();
    solo.region.act(Action::Kill, Part::Postgres).await.unwrap();
    solo.region.act(Action::Start, Part::Postgres).await.unwrap();
    solo.region.act(Action::Start, Part::Gateway).await.unwrap();
    solo.serves().await;
    // The kill may have met a run between its claim and its failed connection. Then the key
    // waits for its hold, and is in doubt until the next run asks the upstream again.
    let state = key_status(&solo, &key).await.json()["state"].clone();
    assert!(["accepted", "running", "in_doubt"].iter().any(|open| state == *open), "{state}");
    let upstream = RawServer::on(absent.listen(128).unwrap(), Then::AnswerAndClose(MADE));
    becomes(&solo, &key, "settled").await;
    let [call] = &upstream.headers()[..] else { panic!("one call: {:?}", upstream.seen()) };
    assert_eq!(call["idempotency-key"], format!("\"{key}\""));
    assert_eq!((call["x-canary"].as_str(), call["onceway-tenant"].as_str()), ("in-the-open", "acme"));
    assert!(!call.contains_key("authorization"), "{call:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_its_own_key_reads_a_sealed_request() {
    let (absent, address) = absent();
    let seal = |dir: &Path, byte: u8| {
        use base64::Engine;
        fs::write(dir.join("seal.key"), base64::engine::general_purpose::STANDARD.encode([byte; 32]))
            .unwrap();
    };
    let solo = Solo::start_with(&routes(), Some(address), |dir| {
        seal(dir, 7);
        add_lines(dir, "[accept]\nkey_file = \"seal.key\"\n");
    })
    .await;
    let key = key("sealed");
    let request = post(&solo.public(), "/v1/emails", &key, BODY).with("X-Canary", "not-in-the-open");
    assert_eq!(ask(request).await.status, 202);
    let shut = "select sealed and position('not-in-the-open'::bytea in request) = 0 \
                and position('tok_visa'::bytea in request) = 0 and position('sk_demo'::bytea in request) = 0 from onceway.jobs";
    assert!(stored::<bool>(&solo, shut).await);
    solo.region.act(Action::Kill, Part::Gateway).await.unwrap();
    seal(&solo.dir, 8);
    solo.region.act(Action::Start, Part::Gateway).await.unwrap();
    solo.serves().await;
    becomes(&solo, &key, "dead").await;
    let (_, listed) = onceway(&solo, &["jobs", "--dead"]).await;
    assert!(listed.contains("sealed with another key") && listed.contains(&key), "{listed}");
    solo.region.act(Action::Stop, Part::Gateway).await.unwrap();
    seal(&solo.dir, 7);
    solo.region.act(Action::Start, Part::Gateway).await.unwrap();
    solo.serves().await;
    let upstream = RawServer::on(absent.listen(128).unwrap(), Then::AnswerAndClose(MADE));
    let (output, said) = onceway(&solo, &["jobs", "retry", "acme", &key, "--reason", "key restored"]).await;
    assert!(output.status.success(), "{said}");
    becomes(&solo, &key, "settled").await;
    let call = upstream.headers().remove(0);
    assert_eq!(call["authorization"], "Bearer sk_demo_acme", "what is sealed is stored whole");
}
