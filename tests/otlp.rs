//! Spans that gateways export, in real protobuf, to a collector in this process: one trace over two
//! regions, and over the runs of an accepted request. Only in builds with the feature `otlp`;
//! `watched.rs` has traces in headers and logs.

#![cfg(feature = "otlp")]

mod support;

use std::convert::Infallible;
use std::fs::OpenOptions;
use std::io::Write;

use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use prost::Message;
use support::solo::{POLICY, routes};
use support::*;

/// The span of a client that begins a trace.
const CALLER: &str = "00f067aa0ba902b7";

/// One span as the collector received it.
#[derive(Clone, Debug)]
struct Seen {
    region: String,
    name: String,
    kind: SpanKind,
    trace: String,
    id: String,
    parent: String,
    words: BTreeMap<String, String>,
}

/// A collector of spans at a port of its own.
struct Collector {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    /// While a test holds this lock, the collector answers nothing.
    answers: Arc<tokio::sync::Mutex<()>>,
}

/// Answers every request to a port of its own. Returns its address.
async fn serve<A, R>(answer: A) -> SocketAddr
where
    A: Fn(Request<Incoming>) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Result<Response<Full<Bytes>>, Infallible>> + Send + 'static,
{
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = service_fn(answer.clone());
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    address
}

impl Collector {
    async fn start() -> Collector {
        let (seen, answers) = (Arc::new(Mutex::new(Vec::new())), Arc::new(tokio::sync::Mutex::new(())));
        let (all, held) = (seen.clone(), answers.clone());
        let take = move |request| {
            let (all, held) = (all.clone(), held.clone());
            async move {
                let answer = take(all, request).await;
                drop(held.lock().await);
                answer
            }
        };
        Collector { address: serve(take).await, seen, answers }
    }

    /// The spans of a trace, so far.
    fn of(&self, trace: &str) -> Vec<Seen> {
        self.seen.lock().unwrap().iter().filter(|span| span.trace == trace).cloned().collect()
    }
}

async fn take(
    all: Arc<Mutex<Vec<Seen>>>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    assert_eq!(request.uri().path(), "/v1/traces");
    assert_eq!(request.headers()["content-type"], "application/x-protobuf");
    let body = request.into_body().collect().await.expect("a body").to_bytes();
    let message = ExportTraceServiceRequest::decode(body).expect("protobuf");
    let text = |value: Option<&Value>| match value {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    };
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    for of in message.resource_spans {
        let named = of.resource.expect("a resource").attributes;
        let region = named.iter().find(|one| one.key == "onceway.region").expect("a region");
        let region = text(region.value.as_ref().and_then(|value| value.value.as_ref()));
        for span in of.scope_spans.into_iter().flat_map(|scope| scope.spans) {
            let word = |one: opentelemetry_proto::tonic::common::v1::KeyValue| {
                (one.key, text(one.value.as_ref().and_then(|value| value.value.as_ref())))
            };
            all.lock().unwrap().push(Seen {
                region: region.clone(),
                kind: span.kind(),
                name: span.name,
                trace: hex(&span.trace_id),
                id: hex(&span.span_id),
                parent: hex(&span.parent_span_id),
                words: span.attributes.into_iter().map(word).collect(),
            });
        }
    }
    Ok(Response::new(Full::new(Bytes::new())))
}

/// Lets a gateway export its spans from its next start on.
fn export(dir: &Path, region: &str, endpoint: SocketAddr, more: &str) {
    let file = dir.join(format!("{region}.toml"));
    let mut file = OpenOptions::new().append(true).open(file).unwrap();
    writeln!(file, "\n[otlp]\nendpoint = \"http://{endpoint}\"\n{more}").unwrap();
}

async fn spans(region: &Region, result: &str) -> f64 {
    let name = format!("onceway_otlp_spans_total{{result=\"{result}\"}}");
    series(region, &name).await.expect(&name)
}

#[tokio::test(flavor = "multi_thread")]
async fn one_trace_spans_two_regions_and_honours_the_flag() {
    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const QUIET: &str = "5bf92f3577b34da6a3ce929d0e0e4736";
    let (three, collector) = (deployment(Duration::from_millis(5)).await, Collector::start().await);
    let [edge, home] = [&three.regions[0], &three.regions[1]];
    for region in [edge, home] {
        export(three.dir(), region.name.as_str(), collector.address, "");
        restart(region).await;
    }
    edge.serves().await.unwrap();
    let traced = homed_at(&three, 1, "traced").await;
    let from_caller = |trace: &str, flags: &str| {
        post(&edge.public(), "/v1/charges", &traced, BODY)
            .with("traceparent", format!("00-{trace}-{CALLER}-{flags}"))
    };
    let until_charged = async || ask(from_caller(TRACE, "01")).await.status == 201;
    until("the charge", until_charged).await;
    // The edge replays a settled copy. Sampling does not depend on the client's flag.
    assert_eq!(ask(from_caller(QUIET, "00")).await.status, 201);

    let part = |region: &Region, name: &str| {
        let is = |span: &Seen| span.region == region.name.as_str() && span.name == name;
        collector.of(TRACE).into_iter().rfind(is)
    };
    until("all spans of the charge", async || {
        let edges = ["request", "forward"].iter().all(|name| part(edge, name).is_some());
        let homes = ["forwarded request", "claim", "upstream", "settle"];
        edges && homes.iter().all(|name| part(home, name).is_some())
    })
    .await;
    let (request, forwarded) = (part(edge, "request").unwrap(), part(home, "forwarded request").unwrap());
    assert_eq!((request.parent.as_str(), &forwarded.parent), (CALLER, &request.id));
    assert_eq!(part(edge, "forward").unwrap().parent, request.id);
    for child in ["claim", "upstream", "settle"] {
        assert_eq!(part(home, child).unwrap().parent, forwarded.id, "{child}");
    }
    let words = &forwarded.words;
    let status = key_status(home, &traced).await;
    let expected = [
        ("tenant", "acme"),
        ("route", "charges"),
        ("verdict", "settled"),
        ("code", "-"),
        ("status", "201"),
        ("region", home.name.as_str()),
        ("key", status["digest"].as_str().unwrap()),
        ("request", status["rows"][0]["request_id"].as_str().unwrap()),
    ];
    for (word, is) in expected {
        assert_eq!(words.get(word).map(String::as_str), Some(is), "{word} in {words:?}");
    }
    assert!(words["epoch"].parse::<u64>().unwrap() >= 1);
    assert_eq!(request.words.get("owner").map(String::as_str), Some(home.name.as_str()));
    assert!(collector.of(QUIET).is_empty(), "the client said that it is not sampled");
    for span in collector.seen.lock().unwrap().iter() {
        assert!(!format!("{span:?}").contains(&traced), "a key in a span: {span:?}");
    }
}

/// An upstream that does nothing at the first call and performs the effect at later ones. It keeps
/// the key and the trace of each request.
async fn reluctant() -> (SocketAddr, Arc<Mutex<Vec<[String; 2]>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let all = seen.clone();
    let answer = move |request: Request<Incoming>| {
        let said = |name| request.headers()[name].to_str().unwrap().to_owned();
        let mut all = all.lock().unwrap();
        all.push([said("idempotency-key"), said("traceparent")]);
        let mut response = Response::new(Full::new(Bytes::new()));
        *response.status_mut() =
            if all.len() == 1 { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::CREATED };
        std::future::ready(Ok(response))
    };
    (serve(answer).await, seen)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_accepted_requests_runs_are_in_its_trace() {
    const TRACE: &str = "6bf92f3577b34da6a3ce929d0e0e4736";
    const QUIET: &str = "7bf92f3577b34da6a3ce929d0e0e4736";
    let (collector, (upstream, seen)) = (Collector::start().await, reluctant().await);
    let route = format!(
        "[[route]]\nname = \"charges\"\nmethods = [\"POST\"]\npath = \"/v1/charges\"\nkey = \"required\"\n{POLICY}\
         recovery = \"park\"\nmode = \"accept\"\n[route.accept]\nbackoff = \"100ms\"\nbackoff_most = \"200ms\"\n"
    );
    let edit = |dir: &Path| export(dir, "solo", collector.address, "sample_percent = 0");
    let solo = Solo::start_with(&route, Some(upstream), edit).await;
    let (accepted, quiet, begun) = (key("accepted"), key("quiet"), key("begun"));
    let from = |trace, flags| Some(format!("00-{trace}-{CALLER}-{flags}"));
    for (key, parent, runs) in
        [(&accepted, from(TRACE, "01"), 2), (&quiet, from(QUIET, "00"), 3), (&begun, None, 4)]
    {
        let asked = post(&solo.public(), "/v1/charges", key, BODY);
        let asked = parent.into_iter().fold(asked, |asked, line| asked.with("traceparent", line));
        assert_eq!(ask(asked).await.status, 202);
        until("its last run", async || seen.lock().unwrap().len() == runs).await;
    }
    let of = |name: &str| {
        let all = collector.of(TRACE).into_iter().filter(|span| span.name == name);
        all.collect::<Vec<_>>()
    };
    // It finishes running work and sends the rest: every span has arrived then.
    solo.region.act(Action::Stop, Part::Gateway).await.unwrap();
    let (request, jobs, seen) = (&of("request")[0], of("job"), seen.lock().unwrap().clone());
    assert_eq!((of("request").len(), jobs.len(), of("settle").len()), (1, 2, 1));
    assert_eq!((request.parent.as_str(), request.words["status"].as_str()), (CALLER, "202"));
    let runs = [
        ["1", "released", "-", "429", "retried", "the upstream answered 429: nothing happened"],
        ["2", "settled", "-", "201", "settled", ""],
    ];
    for ((job, sent), expected) in jobs.iter().zip(&seen).zip(runs) {
        assert_eq!((job.kind, &job.parent), (SpanKind::Consumer, &request.id), "{job:?}");
        let said =
            ["runs", "verdict", "code", "status", "result", "trouble"].map(|word| job.words[word].as_str());
        assert_eq!(said, expected, "{job:?}");
        for word in ["request", "route", "tenant", "key", "region", "epoch"] {
            assert_eq!(job.words[word], request.words[word], "{word}");
        }
        assert_eq!(sent[1], format!("00-{TRACE}-{}-01", job.id), "the parent that the upstream sees");
        for name in ["claim", "upstream"] {
            assert_eq!(of(name).iter().filter(|span| span.parent == job.id).count(), 1, "{name}");
        }
    }
    assert_eq!(of("settle")[0].parent, jobs[1].id);
    assert_eq!(seen[2], [format!("\"{quiet}\""), format!("00-{QUIET}-{CALLER}-00")], "as it came");
    assert!(seen[3][1].ends_with("-00"), "of traces that begin here none is sampled: {:?}", seen[3]);
    for span in collector.seen.lock().unwrap().iter() {
        assert_eq!(span.trace, TRACE, "{span:?}");
        assert!(!format!("{span:?}").contains(&accepted), "a key in a span: {span:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_collector_delays_nothing_and_stops_flush_spans() {
    // Bound and not listening: nobody else gets the port, and connections are refused.
    let absent = tokio::net::TcpSocket::new_v4().unwrap();
    absent.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let nobody = absent.local_addr().unwrap();
    let solo =
        Solo::start_with(&routes(), None, |dir| export(dir, "solo", nobody, "sample_percent = 100")).await;
    let region = &solo.region;
    assert_eq!(ask(post(&solo.public(), "/v1/charges", &key("alone"), BODY)).await.status, 201);
    until("spans to be given up", async || spans(region, "failed").await >= 3.0).await;
    assert_eq!((spans(region, "exported").await, spans(region, "dropped").await), (0.0, 0.0));

    let collector = Collector::start().await;
    let file = solo.dir.join("solo.toml");
    let text = fs::read_to_string(&file).unwrap();
    let there = text.replace(&nobody.to_string(), &collector.address.to_string());
    fs::write(&file, there).unwrap();
    restart(region).await;
    solo.serves().await;
    // The exporter waits for an answer until only the last spans are left.
    let held = collector.answers.lock().await;
    assert_eq!(ask(post(&solo.public(), "/v1/charges", &key("first"), BODY)).await.status, 201);
    until("the first message", async || !collector.seen.lock().unwrap().is_empty()).await;
    let last = key("last");
    assert_eq!(ask(post(&solo.public(), "/v1/charges", &last, BODY)).await.status, 201);
    let unkeyed = ask(Ask::post(format!("{}/v1/charges", solo.public()), BODY)).await;
    assert_eq!(code(&unkeyed), "credential-invalid");
    let digest = key_status(region, &last).await["digest"].clone();
    let stopped = || fs::read_to_string(region.gateway_log()).unwrap().matches(" stopped").count();
    let before = stopped();
    let letting_go = async {
        until("the gateway to have stopped", async || stopped() > before).await;
        drop(held);
    };
    let (ended, ()) = tokio::join!(region.act(Action::Stop, Part::Gateway), letting_go);
    ended.unwrap();
    let seen = collector.seen.lock().unwrap().clone();
    let mine = seen.iter().find(|span| span.words.get("key").map(String::as_str) == digest.as_str());
    let mine = mine.expect("flushed at the stop");
    assert_eq!((mine.name.as_str(), mine.parent.as_str()), ("request", ""), "a trace that begins here");
    assert!(seen.iter().any(|span| span.name == "settle" && span.parent == mine.id));
    let refused = seen.iter().find(|span| span.words.get("verdict").is_some_and(|word| word == "refused"));
    assert_eq!(refused.expect("what is not admitted has a span").words["code"], "credential-invalid");
}
