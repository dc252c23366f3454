//! Traces from client to upstream, a line in the log for each request, and the metrics for alerts,
//! all of real gateways. `seeing.rs` compares alerts, dashboard and documents with the names in the
//! code; the simulation's `counted.rs` counts.

use crate::net::support::{RawServer, Then};
use crate::support::*;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const TOKEN: &str = "sk_demo_acme";
const JSON: &str = "[log]\nformat = \"json\"\n";

async fn lines(region: &Region, message: &str) -> Vec<Value> {
    let log = log(region).await;
    let all = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    all.filter(|line| line["message"] == message).collect()
}

/// The only one about a key.
async fn line_about(region: &Region, message: &str, key: &str) -> Value {
    let digest = key_status(region, key).await["digest"].clone();
    let mut lines = lines(region, message).await;
    lines.retain(|line| line["key"] == digest);
    assert_eq!(lines.len(), 1, "{lines:?}");
    lines.remove(0)
}

/// Refuses a stranger, and has one line about it.
async fn is_not_admitted(region: &Region, stranger: Ask) {
    assert_eq!(ask(stranger.with("Traceparent", PARENT)).await.status, 401);
    let lines = lines(region, "not admitted").await;
    let logged: Vec<_> = lines.iter().map(|line| (&line["code"], &line["trace"])).collect();
    assert_eq!(logged, [(&json!("credential-invalid"), &json!(TRACE))]);
}

fn check_line(line: &Value, trace: &str, verdict: &str, code: &str) {
    let logged = ["trace", "tenant", "region", "verdict", "code"].map(|field| &line[field]);
    assert_eq!(logged, [trace, "acme", "solo", verdict, code], "{line}");
}

/// It performs every effect, keeps headers, and hangs up on clients that only read.
async fn recording() -> RawServer {
    let answer = "HTTP/1.1 201 Created\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
    RawServer::start(Then::AnswerChanges(answer)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_request_has_a_trace_upstream_and_logged() {
    let upstream = recording().await;
    let solo = Solo::start_adding(&routes(), upstream.address.parse().ok(), JSON).await;
    let region = &solo.region;
    let (traced, begun) = (key("traced"), key("begun"));
    let request = |key: &str| post(&solo.public(), "/v1/charges", key, BODY);
    let with = request(&traced).with("Traceparent", PARENT).with("Tracestate", "vendor=1");
    assert_eq!(ask(with).await.status, 201);
    let with = request(&begun).with("Traceparent", "rubbish").with("Tracestate", "vendor=1");
    assert_eq!(ask(with).await.status, 201);
    let said = upstream.headers();
    assert_eq!((&*said[0]["traceparent"], &*said[0]["tracestate"]), (PARENT, "vendor=1"));
    let name = said[1]["onceway-request-id"].trim_start_matches("req_").to_owned();
    assert!(said[1]["traceparent"].starts_with(&format!("00-{name}-")), "{:?}", said[1]);
    assert!(said[1]["traceparent"].ends_with("-01") && !said[1].contains_key("tracestate"), "{:?}", said[1]);
    for (key, trace) in [(&traced, TRACE), (&begun, &name)] {
        let line = line_about(region, "answered", key).await;
        check_line(&line, trace, "settled", "-");
        assert!(line["epoch"].as_u64() >= Some(1) && line["status"] == 201, "{line}");
    }
    let stranger = Ask::post(format!("{}/v1/charges", solo.public()), BODY).with("Idempotency-Key", &*traced);
    is_not_admitted(region, stranger).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unkeyed_requests_and_status_questions_are_logged() {
    let upstream = recording().await;
    let solo = Solo::start_adding(&routes(), upstream.address.parse().ok(), JSON).await;
    let (region, public) = (&solo.region, solo.public());
    let to = |path: &str| Ask::post(format!("{public}{path}"), BODY);
    // A route without keys, one with an optional key, and a path that no route takes.
    assert_eq!(ask(to("/v1/blobs").with("Traceparent", PARENT)).await.status, 201);
    assert_eq!(ask(to("/v1/notes").with("Tracestate", "vendor=1")).await.status, 201);
    assert_eq!(ask(Ask::get(format!("{public}/v1/nothing"))).await.status, 502);
    let said = upstream.headers();
    assert_eq!(said[0]["traceparent"], PARENT);
    let begun = said[1]["traceparent"].split('-').nth(1).unwrap().to_owned();
    assert!(begun.len() == 32 && !said[1].contains_key("tracestate"), "{:?}", said[1]);
    let passed = lines(region, "passed").await;
    let fields = |line: &Value| ["route", "verdict", "code"].map(|field| line[field].clone());
    let logged: Vec<_> = passed.iter().map(fields).collect();
    let expected = [["blobs", "passed", "-"], ["notes", "passed", "-"], ["-", "refused", "upstream-broke"]];
    assert_eq!(logged, expected);
    assert_eq!((&passed[0]["trace"], &passed[1]["trace"]), (&TRACE.into(), &begun.clone().into()));
    let timed = async |route: &str, verdict: &str| {
        let labels = format!("route=\"{route}\",verdict=\"{verdict}\",where=\"here\"");
        series(region, &format!("onceway_request_seconds_count{{{labels}}}")).await
    };
    for (route, verdict) in [("blobs", "passed"), ("notes", "passed"), ("-", "failed")] {
        assert_eq!(timed(route, verdict).await, Some(1.0), "{route} {verdict}");
    }
    for line in &passed {
        assert!(line["region"] == "solo" && line["epoch"].as_u64() >= Some(1), "{line}");
        assert!(line["status"].is_u64() && line["ms"].is_u64(), "{line}");
    }

    let known = key("asked");
    assert_eq!(ask(post(&public, "/v1/charges", &known, BODY)).await.status, 201);
    let question = |key: &str| {
        let address = format!("{public}/.well-known/onceway/requests/{key}");
        Ask::get(address).with("Authorization", format!("Bearer {TOKEN}")).with("Traceparent", PARENT)
    };
    let unknown = key("never");
    for (key, status, verdict, code) in
        [(&known, 200, "settled", "-"), (&unknown, 404, "refused", "key-unknown")]
    {
        assert_eq!(ask(question(key)).await.status, status);
        let line = line_about(region, "looked up", key).await;
        check_line(&line, TRACE, verdict, code);
        assert_eq!(line["status"], status, "{line}");
    }
    assert_eq!(timed("-", "looked_up").await, Some(1.0));
    let before = timed("-", "refused").await.expect("the key that nobody knows");
    let malformed = Ask::get(format!("{public}/v1/nothing")).with("Connection", "Idempotency-Key");
    assert_eq!(ask(malformed).await.status, 400, "at the door");
    assert_eq!(timed("-", "refused").await, Some(before + 1.0));
    let stranger = Ask::get(format!("{public}/.well-known/onceway/requests/{known}"));
    is_not_admitted(region, stranger).await;
    let log = log(region).await;
    assert!(!log.contains(&known) && !log.contains(&unknown), "a key in the log");
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_show_slots_certificates_and_unexplained_doubles() {
    let otlp = "[otlp]\nendpoint = \"http://127.0.0.1:4318\"\n";
    let solo = Solo::start_adding(&routes(), None, otlp).await;
    let region = &solo.region;
    let log = log(region).await;
    let warned = log.matches("this onceway was built without the export of spans").count();
    assert_eq!(warned, usize::from(!cfg!(feature = "otlp")), "{log}");
    let retained = "onceway_slot_retained_bytes{slot=\"forgotten\"}";
    assert_eq!(series(region, retained).await, None);
    let client = region.cluster.connect(files::DATABASE).await.unwrap();
    client.query("select pg_create_physical_replication_slot('forgotten', true)", &[]).await.unwrap();
    // The gateway's heartbeats are WAL that nobody reads.
    until("the slot to keep something", async || series(region, retained).await > Some(0.0)).await;
    let before = series(region, retained).await;
    until("the slot to keep more", async || series(region, retained).await > before).await;
    assert_eq!(series(region, "onceway_slot_lost{slot=\"forgotten\"}").await, Some(0.0));
    client.query("select pg_drop_replication_slot('forgotten')", &[]).await.unwrap();
    until("the slot to be gone", async || series(region, retained).await == Some(0.0)).await;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64();
    let expires = async |of: &str| {
        series(region, &format!("onceway_certificate_expires_timestamp_seconds{{of=\"{of}\"}}")).await
    };
    for of in ["peer", "authority"] {
        let expires = expires(of).await.unwrap();
        assert!(expires > now + 86_400.0 && expires < now + 50.0 * 366.0 * 86_400.0, "{of}: {expires}");
    }
    let first_lines = Ask::get(format!("{}/console/now", region.admin()));
    assert!(ask(first_lines.clone()).await.text().contains("Nothing asks for you."));
    let double = "insert into onceway.journal (kind, tenant, key) values ('double', 'acme', 'k')";
    client.batch_execute(double).await.unwrap();
    let said = ask(first_lines).await.text();
    assert!(said.contains("1 key ran in two regions") && !said.contains("Nothing asks for you."), "{said}");
    found_though_no_claim_says_a_risk(&solo).await;
}

/// Two regions settled a key, and neither claim names a risk: counted, logged and shown.
async fn found_though_no_claim_says_a_risk(solo: &Solo) {
    let region = &solo.region;
    assert_eq!(series(region, "onceway_unexplained_doubles_total").await, Some(0.0));
    let client = region.cluster.connect(files::DATABASE).await.unwrap();
    settled_twice(&client, ["solo#1", "elsewhere#1!"]).await;
    let counted = async || series(region, "onceway_unexplained_doubles_total").await == Some(1.0);
    until("it to be counted", counted).await;
    assert_eq!(series(region, "onceway_doubles_total").await, Some(2.0), "the forged entry and this one");
    let message = "a key ran in two regions, and nothing explains it: this is a bug, see `onceway audit`";
    let log = log(region).await;
    assert_eq!(log.matches(message).count(), 1, "{log}");
    ends(&onceway(region, &["audit"]).await, 3, "1 keys ran twice, and nothing explains it");
    let page = ask(Ask::get(format!("{}/console/now", region.admin()))).await.text();
    assert!(page.contains("1 key ran in two regions, and nothing explains it: a bug"), "{page}");
    let age = series(region, "onceway_audit_age_seconds").await.unwrap();
    assert!((0.0..60.0).contains(&age), "{age}");
}
