//! Accepted requests by real processes: deaths and returns, and rows on the disk.
//!
//! Each test has one region alone: its gateway is killed, its Postgres restarted, its upstream
//! late. An upstream that honours keys is defined below, because the sample one does not
//! deduplicate. It must not wait where a condition can be watched.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::process::Output;
use std::sync::{Arc, Mutex};

use crate::support::solo::{POLICY, Solo, add_lines};
use crate::support::{self, BODY, ask, key, post, run, until};
use onceway::fleet::client::{Answer, Ask};
use onceway::fleet::region::{Action, Part};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A route that accepts requests.
fn routes() -> String {
    format!(
        "[[route]]\nname = \"emails\"\nmethods = [\"POST\"]\npath = \"/v1/emails\"\nkey = \"required\"\n{POLICY}\
         mode = \"accept\"\nrecovery = \"rerun\"\n[route.accept]\nkeep_headers = [\"X-Canary\"]\nmax_runs = 1000\n\
         backoff = \"100ms\"\nbackoff_most = \"200ms\"\n"
    )
}

async fn told(solo: &Solo, key: &str) -> Answer {
    let address = format!("{}/.well-known/onceway/requests/{key}", solo.public());
    ask(Ask::get(address).with("Authorization", "Bearer sk_demo_acme")).await
}

async fn is_told(solo: &Solo, key: &str, wanted: &str) {
    until(wanted, async || told(solo, key).await.json()["state"] == wanted).await;
}

/// Runs a command against the region's admin listener. Returns its result, and all that it said.
async fn onceway(solo: &Solo, args: &[&str]) -> (Output, String) {
    let output = support::onceway(&solo.region, args).await;
    let text = [output.stdout.clone(), output.stderr.clone()].concat();
    (output, String::from_utf8(text).unwrap())
}

/// One value from the region's store.
async fn stored<T: for<'a> tokio_postgres::types::FromSql<'a>>(solo: &Solo, sql: &str) -> T {
    solo.region.cluster.connect("onceway").await.unwrap().query_one(sql, &[]).await.unwrap().get(0)
}

/// An upstream that honours keys: one effect per key, however often it is asked.
struct Honest {
    calls: Arc<Mutex<BTreeMap<String, Vec<String>>>>,
}

impl Honest {
    fn start(listener: TcpListener) -> Self {
        let calls: Arc<Mutex<BTreeMap<String, Vec<String>>>> = Arc::default();
        let all = calls.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(Self::answer(stream, all.clone()));
            }
        });
        Self { calls }
    }

    async fn answer(mut stream: TcpStream, calls: Arc<Mutex<BTreeMap<String, Vec<String>>>>) {
        let mut request = Vec::new();
        while !request.windows(BODY.len()).any(|bytes| bytes == BODY.as_bytes()) {
            if stream.read_buf(&mut request).await.is_ok_and(|read| read == 0) {
                return;
            }
        }
        let text = String::from_utf8(request).unwrap();
        let key = header(&text, "idempotency-key");
        calls.lock().unwrap().entry(key.clone()).or_default().push(text);
        let receipt = format!("receipt of {key}");
        let answer = format!(
            "HTTP/1.1 201 Created\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{receipt}",
            receipt.len()
        );
        stream.write_all(answer.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
    }

    fn calls(&self, key: &str) -> Vec<String> {
        self.calls.lock().unwrap().get(&format!("\"{key}\"")).cloned().unwrap_or_default()
    }
}

fn header(request: &str, name: &str) -> String {
    let line =
        request.lines().find_map(|line| line.split_once(':').filter(|(of, _)| of.eq_ignore_ascii_case(name)));
    line.map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
}

/// An address without a listener yet.
async fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

#[test]
fn accepted_requests_outlive_gateway_and_postgres() {
    run(async {
        let address = nobody().await;
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
        let state = told(&solo, &key).await.json()["state"].clone();
        assert!(["accepted", "running", "in_doubt"].iter().any(|open| state == *open), "{state}");
        let upstream = Honest::start(TcpListener::bind(address).await.unwrap());
        is_told(&solo, &key, "settled").await;
        let calls = upstream.calls(&key);
        assert_eq!(calls.len(), 1);
        assert_eq!(header(&calls[0], "x-canary"), "in-the-open");
        assert_eq!(
            (header(&calls[0], "onceway-tenant").as_str(), header(&calls[0], "authorization").as_str()),
            ("acme", "")
        );
    });
}

#[test]
fn a_sealed_request_is_unreadable_at_rest_and_to_another_key() {
    run(async {
        let address = nobody().await;
        let seal = |dir: &std::path::Path, byte: u8| {
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
        is_told(&solo, &key, "dead").await;
        let (_, listed) = onceway(&solo, &["jobs", "--dead"]).await;
        assert!(listed.contains("sealed with another key") && listed.contains(&key), "{listed}");
        solo.region.act(Action::Stop, Part::Gateway).await.unwrap();
        seal(&solo.dir, 7);
        solo.region.act(Action::Start, Part::Gateway).await.unwrap();
        solo.serves().await;
        let upstream = Honest::start(TcpListener::bind(address).await.unwrap());
        let (output, said) =
            onceway(&solo, &["jobs", "retry", "acme", &key, "--reason", "key restored"]).await;
        assert!(output.status.success(), "{said}");
        is_told(&solo, &key, "settled").await;
        let call = upstream.calls(&key).remove(0);
        assert_eq!(header(&call, "authorization"), "Bearer sk_demo_acme", "what is sealed is stored whole");
    });
}
