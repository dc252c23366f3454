//! Shadow mode: every request passes unchanged, no matter what store and peers do, and its would-be
//! verdict is counted.
//!
//! A gateway in shadow mode must not decide, delay or change anything.

use metrics_exporter_prometheus::PrometheusBuilder;
use onceway::gateway::shadow::Counts;
use onceway::ports::body;

use super::bench::*;

fn shadow(bench: &Bench, name: &RegionName) -> Gate {
    bench.process(Settings { shadow: true, ..settings(name) })
}

fn counts(gateway: &Gateway<SimPorts>, route: &str) -> Counts {
    gateway.shadow_report().unwrap().routes.remove(route).unwrap_or_default()
}

#[test]
fn everything_passes_as_it_came_while_store_and_peers_are_gone() {
    served(Bench::start(1), async |bench, [eu, ..]| {
        let gateway = shadow(&bench, &eu);
        bench.store(&eu, StoreMode::Stall(ms(60_000)));
        bench.links(&eu, LinkMode::Refuse);
        let ready = gateway.readiness();
        assert!(ready.ready && !ready.serves, "{ready:?}");
        let before = (bench.arrived(&eu), Instant::now());
        let post = |path: &str| Request::post(path).header("x-client", "1");
        let plain = |request: http::request::Builder| request.body(body::full("{}")).unwrap();
        let requests: Vec<Request<Body>> = vec![
            request("/park", &key_of(&region("us"), "elsewhere"), "{}"),
            plain(post("/park")),
            plain(post("/park").header("authorization", "Bearer sk")),
            plain(post("/park").header("authorization", "Bearer sk").header("idempotency-key", "")),
            plain(post("/nowhere")),
            request("/park", "large", &"x".repeat((1 << 16) + 1)),
            plain(post("/.well-known/onceway/problems")),
        ];
        let sent = requests.len();
        for request in requests {
            let expected: Vec<_> = request.headers().clone().into_iter().collect();
            assert_eq!(read_answer(gateway.handle(request).await).await.status, 201);
            let arrival = bench.world.upstreams.arrivals(&eu).pop().unwrap();
            assert!(arrival.attempt.is_none());
            assert_eq!(arrival.headers.into_iter().collect::<Vec<_>>(), expected, "passed as it came");
        }
        assert_eq!(bench.arrived(&eu), before.0 + sent);
        assert!(before.1.elapsed() < ms(1_000), "nothing waited for the store");
        let park = counts(&gateway, "park");
        let codes: Vec<_> = park.refused.into_iter().collect();
        let expected =
            [("body-too-large", 1), ("credential-invalid", 1), ("key-empty", 1), ("key-missing", 1)];
        assert_eq!((park.run, codes), (1, expected.to_vec()));
        assert_eq!(counts(&gateway, "-").refused.into_iter().collect::<Vec<_>>(), [("no-route", 2)]);
        bench.store(&eu, StoreMode::Up);
        bench.links(&eu, LinkMode::Up);
        sleep(ms(2_000)).await;
        let status = gateway.status().await;
        let asked = status.peers.values().any(|peer| peer.up) || status.store.heartbeat.is_some();
        assert!(!asked && status.subscriptions.is_none(), "neither store nor peers are asked: {status:?}");
        let covered = gateway.coverage().seen;
        assert!(covered.iter().all(|line| !line.seen.refused), "nothing was refused: {covered:?}");
    });
}

/// Alerts use these series, and nothing sets them later if neither store nor peers are asked.
#[test]
fn neither_store_nor_peers_are_said_to_be_away() {
    served(Bench::start(1), async |bench, [eu, ..]| {
        let begun = |shadow: bool| {
            let recorder = PrometheusBuilder::new().build_recorder();
            let settings = Settings { shadow, ..settings(&eu) };
            metrics::with_local_recorder(&recorder, || {
                Gateway::new(bench.world.ports(&eu), settings, View::unfounded(view().ring().clone()))
                    .unwrap();
            });
            let page = recorder.handle().render();
            ["onceway_epoch", "onceway_store_up", "onceway_peer_up"]
                .map(|name| page.lines().any(|line| line.starts_with(name)))
        };
        assert_eq!(begun(false), [true; 3]);
        assert_eq!(begun(true), [true, false, false]);
    });
}

#[test]
fn copies_of_a_running_request_are_judged_when_it_ends() {
    served(Bench::start(3), async |bench, [eu, ..]| {
        let gateway = shadow(&bench, &eu);
        let begin = || {
            let gateway = gateway.clone();
            tokio::spawn(async move { ask(&gateway, "/park", "k", "{}").await })
        };
        bench.upstream(&eu, receipt(3_000));
        let first = begin();
        sleep(ms(500)).await;
        bench.upstream(&eu, receipt(10));
        assert_eq!(begin().await.unwrap().status, 201, "copies do not wait");
        assert_eq!(counts(&gateway, "park").run, 1);
        sleep(ms(1_000)).await;
        begin().await.unwrap();
        first.await.unwrap();
        let found = counts(&gateway, "park");
        assert_eq!((found.run, found.replayed), (1, 1), "the route waits for two seconds");
        assert_eq!(found.refused.into_iter().collect::<Vec<_>>(), [("in-progress", 1)]);

        bench.upstream(&eu, UpstreamMode::Hang);
        let gone = gateway.clone();
        let hung = tokio::spawn(async move { ask(&gone, "/rerun", "hung", "{}").await });
        sleep(ms(100)).await;
        hung.abort();
        let holds = async || gateway.shadow_report().unwrap().remembered == 1;
        until("the given-up run to be forgotten", ms(1_000), holds).await;
    });
}
