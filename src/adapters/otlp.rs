//! Export of spans to a collector: OTLP over HTTP, in protobuf (feature `otlp`).
//!
//! Ended spans go into a bounded queue that never waits: a span that finds it full is dropped and
//! counted. One task sends them in batches. `cli::serve` starts the task, and at the end has it
//! send the remaining spans. Only plain HTTP is spoken: a collector runs beside its gateway.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{Request, StatusCode};
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use opentelemetry::trace::TracerProvider;
use opentelemetry::{Context, KeyValue};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider, Span, SpanData, SpanProcessor};
use prost::Message;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::{Layer, Registry};

use crate::ports::observe;
use crate::protocol::region::RegionName;

/// Most ended spans that wait for the collector.
const QUEUE: usize = 8_192;
/// Most spans of one message.
const BATCH: usize = 512;
/// Time between two looks at the queue.
const EVERY: Duration = Duration::from_millis(500);
/// Longest time for one message.
const WITHIN: Duration = Duration::from_secs(5);

/// Layer that makes spans of `tracing` into spans for the collector.
pub type SpanLayer = Box<dyn Layer<Registry> + Send + Sync>;

/// Makes a layer for the process's subscriber, and the exporter of its spans. `endpoint` is the
/// collector, `http://host:port`. Of the traces that begin here, `percent` are sampled; of the
/// others, those whose parent is sampled.
pub fn set_up(endpoint: &str, percent: u8, region: &RegionName) -> (SpanLayer, Exporter) {
    let (queue, spans) = mpsc::channel(QUEUE);
    let named = [("service.name", "onceway"), ("onceway.region", region.as_str())];
    let named = named.map(|(name, value)| KeyValue::new(name, value.to_owned()));
    let resource = Resource::builder_empty().with_attributes(named).build();
    let begun_here = Sampler::TraceIdRatioBased(f64::from(percent) / 100.0);
    let authority = endpoint.trim_start_matches("http://").trim_end_matches('/').to_owned();
    let exporter = Exporter { spans, resource: (&resource).into(), authority, trouble: None };
    let provider = SdkTracerProvider::builder()
        .with_span_processor(Queue(queue))
        .with_sampler(Sampler::ParentBased(Box::new(begun_here)))
        .with_resource(resource)
        .build();
    let layer = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("onceway"))
        .with_context_activation(false)
        .with_location(false)
        .with_threads(false)
        .with_tracked_inactivity(false)
        .with_filter(filter_fn(|meta| meta.is_span() && meta.target() == observe::SPANS));
    (layer.boxed(), exporter)
}

#[derive(Debug)]
struct Queue(mpsc::Sender<SpanData>);

impl SpanProcessor for Queue {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if self.0.try_send(span).is_err() {
            count("dropped", 1);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

fn count(result: &'static str, spans: usize) {
    metrics::counter!(observe::OTLP_SPANS, "result" => result).increment(spans as u64);
}

#[derive(Debug)]
pub struct Exporter {
    spans: mpsc::Receiver<SpanData>,
    resource: ResourceAttributesWithSchema,
    authority: String,
    /// Reason why the last message was not taken.
    trouble: Option<String>,
}

#[derive(Debug)]
pub struct Exporting {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Exporter {
    pub fn start(self) -> Exporting {
        let (stop, stopped) = oneshot::channel();
        Exporting { stop, task: tokio::spawn(self.run(stopped)) }
    }

    async fn run(mut self, mut stopped: oneshot::Receiver<()>) {
        loop {
            let stopping = tokio::select! {
                biased;
                _ = &mut stopped => true,
                () = sleep(EVERY) => false,
            };
            let mut batch = Vec::new();
            while let Ok(span) = self.spans.try_recv() {
                batch.push(span);
                if batch.len() == BATCH {
                    self.export(std::mem::take(&mut batch)).await;
                }
            }
            if !batch.is_empty() {
                self.export(batch).await;
            }
            if stopping {
                return;
            }
        }
    }

    async fn export(&mut self, batch: Vec<SpanData>) {
        let spans = batch.len();
        let resource_spans = group_spans_by_resource_and_scope(batch, &self.resource);
        let message = ExportTraceServiceRequest { resource_spans }.encode_to_vec();
        let sent = timeout(WITHIN, post(&self.authority, message.into())).await;
        let trouble = sent.unwrap_or_else(|_| Err(format!("no answer within {WITHIN:?}"))).err();
        count(if trouble.is_none() { "exported" } else { "failed" }, spans);
        if trouble != self.trouble {
            match &trouble {
                Some(why) => tracing::warn!(collector = self.authority, why, "spans cannot be exported"),
                None => tracing::info!(collector = self.authority, "the collector takes spans again"),
            }
            self.trouble = trouble;
        }
    }
}

impl Exporting {
    /// Sends the remaining spans, as far as one message's time allows.
    pub async fn stop(self) {
        // The task may have ended already. Either way the wait is right.
        let _ = self.stop.send(());
        drop(timeout(WITHIN, self.task).await);
    }
}

/// Sends one message over its own connection: at most two a second while there are few spans.
async fn post(authority: &str, message: Bytes) -> Result<(), String> {
    let dialled = match authority.rsplit_once(':') {
        Some((_, port)) if port.parse::<u16>().is_ok() => authority.to_owned(),
        Some(_) | None => format!("{authority}:80"),
    };
    let stream = TcpStream::connect(dialled).await.map_err(|error| error.kind().to_string())?;
    let shaken = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.map_err(|error| error.to_string())?;
    let driving = tokio::spawn(connection);
    let request = Request::post("/v1/traces")
        .header(HOST, authority)
        .header(CONTENT_TYPE, "application/x-protobuf")
        .body(Full::new(message))
        .map_err(|error| error.to_string())?;
    let answered = sender.send_request(request).await;
    driving.abort();
    match answered.map_err(|error| error.to_string())?.status() {
        StatusCode::OK | StatusCode::ACCEPTED => Ok(()),
        status => Err(format!("it answered {status}")),
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[test]
    fn a_share_of_new_traces_is_sampled() {
        let region = RegionName::parse("eu").unwrap();
        // A quarter, give or take seven standard deviations.
        for (percent, share) in [(0, 0..=0), (25, 150..=350), (100, 1_000..=1_000)] {
            let (layer, exporter) = set_up("http://127.0.0.1:4318", percent, &region);
            tracing::subscriber::with_default(Registry::default().with(layer), || {
                for _ in 0..1_000 {
                    drop(tracing::trace_span!(target: observe::SPANS, "request"));
                }
            });
            let sampled = exporter.spans.len();
            assert!(share.contains(&sampled), "{percent} percent: {sampled} of 1000");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_queue_drops_spans_and_waits_for_nobody() {
        let (queue, mut spans) = mpsc::channel(1);
        let provider = SdkTracerProvider::builder().with_span_processor(Queue(queue)).build();
        let tracer = provider.tracer("test");
        for name in ["first", "second", "third"] {
            drop(opentelemetry::trace::Tracer::start(&tracer, name));
        }
        assert_eq!(spans.recv().await.unwrap().name, "first");
        assert!(spans.try_recv().is_err());
    }
}
