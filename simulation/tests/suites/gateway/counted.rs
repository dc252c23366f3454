//! Counts by route, tenant and verdict, and never one tenant's requests under another's name.
//!
//! A recorder of its own per test holds the counts of all three regions together.

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

use super::bench::*;
use super::outcomes::take_over;

/// Plays a test whose metrics are its own.
fn counted(seed: u64, test: impl AsyncFnOnce(PrometheusHandle, Arc<Bench>, RegionName)) {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    metrics::with_local_recorder(&recorder, || {
        play(async { test(handle, Bench::start(seed).await, region("eu")).await });
    });
}

/// All series of a metric that are not zero, by their labels as Prometheus prints them.
fn series(handle: &PrometheusHandle, metric: &str) -> BTreeMap<String, u64> {
    let page = handle.render();
    let lines = page.lines().filter_map(|line| line.strip_prefix(metric)?.strip_prefix('{'));
    let one = |line: &str| {
        let (labels, value) = line.split_once("} ").unwrap();
        (labels.to_owned(), value.parse::<u64>().unwrap())
    };
    lines.map(one).filter(|(_, value)| *value > 0).collect()
}

/// Checks all series of a metric, written as labels, blank, value.
fn check(handle: &PrometheusHandle, metric: &str, expected: &[&str]) {
    let one = |line: &&str| {
        let (labels, value) = line.rsplit_once(' ').unwrap();
        (labels.to_owned(), value.parse().unwrap())
    };
    assert_eq!(series(handle, metric), expected.iter().map(one).collect(), "{metric}");
}

#[test]
fn answers_and_duplicates_are_counted_for_their_own_tenant() {
    counted(1, async |handle, bench, eu| {
        let (gateway, key) = (bench.gateway(&eu), key_of(&eu, "counted"));
        for (status, body) in [(201, "{}"), (201, "{}"), (422, "[]")] {
            assert_eq!(ask(&gateway, "/probe", &key, body).await.status, status);
        }
        // The same key of another tenant is another one, and counts once, wherever it runs.
        assert_eq!(ask_as("globex", &gateway, "/probe", &key, "{}").await.status, 201);
        check(
            &handle,
            "onceway_answers_total",
            &[
                r#"route="probe",tenant="acme",verdict="settled" 1"#,
                r#"route="probe",tenant="acme",verdict="replayed" 1"#,
                r#"route="probe",tenant="acme",verdict="key_reused" 1"#,
                r#"route="probe",tenant="globex",verdict="settled" 1"#,
            ],
        );
        check(&handle, "onceway_duplicates_total", &[r#"tenant="acme" 2"#]);
        check(&handle, "onceway_claims_lost_total", &[]);
        check(&handle, "onceway_claims_failed_total", &[]);
    });
}

#[test]
fn a_conflict_a_doubt_and_a_copy_answered_elsewhere_are_duplicates() {
    counted(2, async |handle, bench, eu| {
        let (slow, parked, copied) = (key_of(&eu, "slow"), key_of(&eu, "parked"), key_of(&eu, "copied"));
        bench.upstream(&eu, UpstreamMode::Receipt { after: UPSTREAM - ms(100) });
        let first = bench.begun(&eu, "/park", &slow, ms(100)).await;
        assert_eq!(bench.send(&eu, "/park", &slow).await.said(), (409, "in-progress"));
        assert_eq!(first.await.unwrap().status, 201);
        bench.upstream(&eu, UpstreamMode::EffectThenDrop);
        assert_eq!(bench.send(&eu, "/park", &parked).await.said(), (504, "outcome-unknown"));
        assert_eq!(bench.send(&eu, "/park", &parked).await.said(), (409, "outcome-unknown"));
        bench.upstream(&eu, receipt(50));
        assert_eq!(bench.send(&eu, "/rerun", &copied).await.status, 201);
        sleep(ms(1_000)).await;
        assert!(bench.send(&region("us"), "/rerun", &copied).await.replayed);
        check(
            &handle,
            "onceway_answers_total",
            &[
                r#"route="park",tenant="acme",verdict="settled" 1"#,
                r#"route="park",tenant="acme",verdict="in_progress" 1"#,
                r#"route="park",tenant="acme",verdict="in_doubt" 2"#,
                r#"route="rerun",tenant="acme",verdict="settled" 1"#,
                r#"route="rerun",tenant="acme",verdict="replayed" 1"#,
            ],
        );
        check(&handle, "onceway_duplicates_total", &[r#"tenant="acme" 3"#]);
    });
}

#[test]
fn store_failures_and_call_times_carry_their_labels() {
    counted(3, async |handle, bench, eu| {
        assert_eq!(bench.send(&eu, "/park", &key_of(&eu, "failed")).await.status, 201);
        bench.store(&eu, StoreMode::Refuse);
        let other = key_of(&eu, "failed-too");
        assert_eq!(bench.send(&eu, "/rerun", &other).await.said(), (503, "store-unavailable"));
        check(&handle, "onceway_claims_failed_total", &[r#"route="rerun",tenant="acme" 1"#]);
        check(&handle, "onceway_duplicates_total", &[]);
        let timed = series(&handle, "onceway_store_seconds_count");
        for labels in [r#"op="claim",route="park""#, r#"op="settle",route="park""#] {
            assert_eq!(timed.get(labels), Some(&1), "{labels} in {timed:?}");
        }
    });
}

#[test]
fn a_lost_claim_is_counted_for_its_route_and_tenant() {
    counted(4, async |handle, bench, eu| {
        let key = key_of(&eu, "lost");
        bench.upstream(&eu, receipt(1_000));
        let sent = bench.begun(&eu, "/park", &key, ms(500)).await;
        take_over(&bench, &key).await;
        sent.await.unwrap();
        check(&handle, "onceway_claims_lost_total", &[r#"route="park",tenant="acme" 1"#]);
    });
}

/// The sum of a histogram's series with these labels, in seconds.
fn seconds(handle: &PrometheusHandle, metric: &str, labels: &str) -> f64 {
    let (page, start) = (handle.render(), format!("{metric}_sum{{{labels}}} "));
    let line = page.lines().find_map(|line| line.strip_prefix(&start)).expect(labels);
    line.parse().unwrap()
}

#[test]
fn the_entry_gateway_times_requests_and_their_own_overhead() {
    counted(2, async |handle, bench, eu| {
        let took_upstream = ms(400);
        let (slow, forwarded, other) = (key_of(&eu, "slow"), key_of(&eu, "sent-on"), key_of(&eu, "refused"));
        bench.upstream(&eu, UpstreamMode::Receipt { after: took_upstream });
        let first = bench.begun(&eu, "/probe", &slow, ms(100)).await;
        let copy = bench.begin(&eu, "/probe", &slow);
        assert_eq!(first.await.unwrap().status, 201);
        assert!(copy.await.unwrap().replayed, "it waited for the first one");
        assert_eq!(bench.send(&region("us"), "/rerun", &forwarded).await.status, 201);
        bench.store(&eu, StoreMode::Refuse);
        assert_eq!(bench.send(&eu, "/park", &other).await.said(), (503, "store-unavailable"));
        assert_eq!(ask(&bench.gateway(&eu), "/probe", "a b", "{}").await.status, 400);
        check(
            &handle,
            "onceway_request_seconds_count",
            &[
                r#"route="probe",verdict="settled",where="here" 1"#,
                r#"route="probe",verdict="replayed",where="here" 1"#,
                r#"route="rerun",verdict="settled",where="forwarded" 1"#,
                r#"route="park",verdict="failed",where="here" 1"#,
                r#"route="probe",verdict="refused",where="here" 1"#,
            ],
        );
        let took =
            seconds(&handle, "onceway_request_seconds", r#"route="probe",verdict="settled",where="here""#);
        assert!(took >= took_upstream.as_secs_f64(), "{took}");
        check(&handle, "onceway_overhead_seconds_count", &[r#"route="probe" 2"#, r#"route="park" 1"#]);
        let own = seconds(&handle, "onceway_overhead_seconds", r#"route="probe""#);
        assert!(own < took / 4.0, "{own} s of two requests, each of which waited for {took} s");
    });
}
