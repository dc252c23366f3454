//! Accepted requests by real processes: deaths and returns, rows on the disk, and an operator's
//! acts on dead letters.
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
use crate::support::{self, BODY, ask, code, effects, key, post, run, until};
use onceway::fleet::client::{Answer, Ask};
use onceway::fleet::region::{Action, Part};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// All routes accept requests. Three runs lead to a dead letter, so that tests are short.
fn routes() -> String {
    let route = |name: &str, rest: &str| {
        format!(
            "[[route]]\nname = \"{name}\"\nmethods = [\"POST\"]\npath = \"/v1/{name}\"\nkey = \"required\"\n{POLICY}{rest}\n"
        )
    };
    let keep = "[route.accept]\nkeep_headers = [\"X-Canary\", \"Demo-Behave\"]\n";
    let few = "max_runs = 3\nbackoff = \"100ms\"\nbackoff_most = \"200ms\"\n";
    let many = "max_runs = 1000\nbackoff = \"100ms\"\nbackoff_most = \"200ms\"\n";
    [
        route(
            "charges",
            &format!("mode = \"accept\"\nrecovery = \"probe\"\nprobe = \"/onceway/effects\"\n{keep}"),
        ),
        route("emails", &format!("mode = \"accept\"\nrecovery = \"rerun\"\n{keep}{many}")),
        route("notes", &format!("mode = \"prefer\"\nrecovery = \"park\"\n{keep}{few}")),
    ]
    .join("\n")
}

async fn told(solo: &Solo, key: &str) -> Answer {
    let address = format!("{}/.well-known/onceway/requests/{key}", solo.public());
    ask(Ask::get(address).with("Authorization", "Bearer sk_demo_acme")).await
}

async fn is_told(solo: &Solo, key: &str, wanted: &str) {
    until(wanted, async || told(solo, key).await.json()["state"] == wanted).await;
}

async fn no_job_is_left(solo: &Solo) {
    until("the job to go", async || {
        let page = ask(Ask::get(format!("{}/v1/jobs", solo.region.admin()))).await;
        page.json()["jobs"].as_array().is_some_and(Vec::is_empty)
    })
    .await;
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

#[test]
fn poison_ends_in_the_dead_letters_and_an_operator_decides() {
    run(async {
        let solo = Solo::start(&routes(), None).await;
        let key = key("poison");
        let poison = || {
            let request = post(&solo.public(), "/v1/notes", &key, BODY).with("Demo-Behave", "status=429");
            request.with("Prefer", "respond-async")
        };
        let accepted = ask(poison()).await;
        assert_eq!((accepted.status.as_u16(), accepted.header("preference-applied")), (202, "respond-async"));
        is_told(&solo, &key, "dead").await;
        let refused = ask(poison()).await;
        assert_eq!((refused.status.as_u16(), code(&refused).as_str()), (409, "dead-letter"));
        assert_eq!(refused.json()["safe_to_retry"], false);
        let (output, listed) = onceway(&solo, &["jobs", "--dead"]).await;
        assert_eq!(output.status.code(), Some(3), "{listed}");
        assert!(
            listed.contains(&key) && listed.contains("answered 429") && listed.contains("run 3 times"),
            "{listed}"
        );
        let first_lines = Ask::get(format!("{}/console/now", solo.region.admin()));
        until("the console to ask for somebody", async || {
            let said = ask(first_lines.clone()).await.text();
            said.contains("1 accepted request failed for good") && !said.contains("Nothing asks for you")
        })
        .await;

        let (output, said) = onceway(&solo, &["jobs", "retry", "acme", "no-such-key", "--reason", "x"]).await;
        assert!(!output.status.success() && said.contains("no job of that key"), "{said}");
        let (output, said) =
            onceway(&solo, &["jobs", "retry", "acme", &key, "--reason", "it is up again"]).await;
        assert!(output.status.success(), "{said}");
        is_told(&solo, &key, "dead").await;
        let (output, said) = onceway(&solo, &["jobs", "drop", "acme", &key, "--reason", "cancelled"]).await;
        assert!(output.status.success(), "{said}");
        let journal =
            "select string_agg(kind || ' ' || actor || ' ' || reason, ', ' order by id) from onceway.journal";
        let expected = "job-retried ada it is up again, job-dropped ada cancelled";
        assert_eq!(stored::<String>(&solo, journal).await, expected);
        no_job_is_left(&solo).await;
        let page = support::metrics(&solo.region).await;
        assert!(page.contains("onceway_jobs_total{route=\"notes\",result=\"dead\"} 2"), "{page}");

        // The key is free again, and an ordinary request runs while its client waits.
        let told = ask(post(&solo.public(), "/v1/notes", &key, BODY).with("Demo-Behave", "status=429")).await;
        assert_eq!(told.status, 429, "its client sends the same request again");
        assert_eq!(effects(&solo.ledger, &key), 0);
    });
}
