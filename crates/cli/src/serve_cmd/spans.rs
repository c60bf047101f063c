//! Spans go to a collector, with OTLP over HTTP.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{CONTENT_LENGTH, HOST, HeaderValue};
use hyper::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use opentelemetry::trace::TracerProvider;
use opentelemetry::{Context, KeyValue};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracerProvider, Span, SpanData,
    SpanExporter as Export, SpanProcessor,
};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tracing_subscriber::Layer;
use tracing_subscriber::registry::LookupSpan;

use crate::serve_cmd::span_options::SpanOptions;
use esker_command::exit::{Failure, Outcome};

/// Spans that wait for the collector: more are dropped.
const WAITING_MAX: usize = 8192;
const BATCH_MAX: usize = 512;
const EXPORT_INTERVAL: Duration = Duration::from_secs(1);
/// How long the collector may take for a batch.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long the end of the process waits for the last batch.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes of an answer of the collector.
const ANSWER_MAX: usize = 64 << 10;

/// Sends spans in batches. When it is dropped, waits until the last are sent: one second at most.
#[derive(Debug)]
pub struct Spans {
    provider: SdkTracerProvider,
    lost: Arc<AtomicU64>,
}

impl Spans {
    /// Spans that are sent by tasks of this runtime.
    pub fn start(options: &SpanOptions, runtime: &Handle) -> Outcome<Self> {
        let collector = Collector(runtime.clone());
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(collector)
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(options.collector.to_string())
            .with_timeout(EXPORT_TIMEOUT)
            .build();
        let exporter = exporter.map_err(|error| {
            Failure::usage(format!("--otlp-endpoint (OTEL_EXPORTER_OTLP_ENDPOINT): {error}"))
        })?;
        let batches = BatchConfigBuilder::default()
            .with_max_queue_size(WAITING_MAX)
            .with_max_export_batch_size(BATCH_MAX)
            .with_scheduled_delay(EXPORT_INTERVAL)
            .build();
        let environment = options.environment.clone();
        let resource = Resource::builder_empty()
            .with_service_name(options.service.clone())
            .with_attributes(
                environment.map(|name| KeyValue::new("deployment.environment.name", name)),
            )
            .build();
        opentelemetry::global::set_text_map_propagator(TraceContextPropagator::new());
        let (lost, waiting) = (Arc::<AtomicU64>::default(), Arc::<AtomicUsize>::default());
        let counted = CountingExporter {
            exporter,
            collector: options.collector.clone(),
            waiting: Arc::clone(&waiting),
            lost: Arc::clone(&lost),
            before: Mutex::new(None),
        };
        let batches = BatchSpanProcessor::builder(counted).with_batch_config(batches).build();
        let provider = SdkTracerProvider::builder()
            .with_span_processor(SpanQueue { batches, waiting, lost: Arc::clone(&lost) })
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::AlwaysOn)))
            .with_resource(resource)
            .build();
        Ok(Self { provider, lost })
    }

    /// How many were dropped, or not taken by the collector.
    pub fn lost(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.lost)
    }

    /// The layer that takes the spans of this process.
    pub fn layer<S: tracing::Subscriber + for<'a> LookupSpan<'a>>(&self) -> impl Layer<S> + use<S> {
        tracing_opentelemetry::layer()
            .with_tracer(self.provider.tracer("esker"))
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_target(false)
    }
}

impl Drop for Spans {
    fn drop(&mut self) {
        // Late or not, the process ends.
        let _ = self.provider.shutdown_with_timeout(FLUSH_TIMEOUT);
    }
}

/// Passes spans on to be sent in batches, and drops those that find too many waiting.
#[derive(Debug)]
struct SpanQueue {
    batches: BatchSpanProcessor,
    waiting: Arc<AtomicUsize>,
    lost: Arc<AtomicU64>,
}

impl SpanProcessor for SpanQueue {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.batches.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        if !span.span_context.is_sampled() {
            return;
        }
        // The queue has as many places: it drops none without a count.
        let one_more = |waiting: usize| (waiting < WAITING_MAX).then_some(waiting + 1);
        match self.waiting.fetch_update(Relaxed, Relaxed, one_more) {
            Ok(_) => self.batches.on_end(span),
            Err(_) => drop(self.lost.fetch_add(1, Relaxed)),
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.batches.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.batches.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.batches.set_resource(resource);
    }
}

/// Counts the spans that the collector does not take, and logs when that begins and ends.
#[derive(Debug)]
struct CountingExporter<E> {
    exporter: E,
    collector: Uri,
    waiting: Arc<AtomicUsize>,
    lost: Arc<AtomicU64>,
    /// While the collector takes none: how many were lost before.
    before: Mutex<Option<u64>>,
}

impl<E: Export> Export for CountingExporter<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        self.waiting.fetch_sub(spans, Relaxed);
        let sent = self.exporter.export(batch).await;
        let collector = &self.collector;
        let mut before = self.before.lock();
        match &sent {
            Err(error) => {
                let lost = self.lost.fetch_add(spans as u64, Relaxed);
                if before.is_none() {
                    *before = Some(lost);
                    let why = error.to_string();
                    tracing::warn!(%collector, why, "the collector does not take spans; they are lost");
                }
            }
            Ok(()) => {
                if let Some(before) = before.take() {
                    let lost = self.lost.load(Relaxed).saturating_sub(before);
                    tracing::info!(%collector, lost, "the collector takes spans again");
                }
            }
        }
        sent
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

/// Sends batches. The thread that has them is none of the runtime's.
#[derive(Debug)]
struct Collector(Handle);

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let sent = async move { tokio::time::timeout(EXPORT_TIMEOUT, send(request)).await };
        match self.0.spawn(sent).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err("no answer in time".into()),
            Err(error) => Err(error.into()),
        }
    }
}

async fn send(request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    let (mut head, body) = request.into_parts();
    let authority = head.uri.authority().ok_or("no host")?.clone();
    let port = authority.port_u16().unwrap_or(80);
    let stream = esker_server::connect(&format!("{}:{port}", authority.host())).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str()).parse()?;
    head.uri = path;
    head.headers.insert(HOST, HeaderValue::from_str(authority.as_str())?);
    head.headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    let answer = async {
        let answer = sender.send_request(Request::from_parts(head, Full::new(body))).await?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, ANSWER_MAX).collect().await?.to_bytes();
        Ok(Response::from_parts(head, body))
    };
    let answer = answer.await;
    connection.abort();
    answer
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[derive(Debug)]
    struct Nowhere;

    impl Export for Nowhere {
        async fn export(&self, _: Vec<SpanData>) -> OTelSdkResult {
            Ok(())
        }
    }

    /// Bug: they were dropped silently.
    #[test]
    fn spans_beyond_the_queue_are_counted() {
        use opentelemetry::trace::Tracer;
        let (lost, waiting) = (Arc::<AtomicU64>::default(), Arc::<AtomicUsize>::default());
        waiting.store(WAITING_MAX - 1, Relaxed);
        let batches = BatchSpanProcessor::builder(Nowhere).build();
        let bounded = SpanQueue { batches, waiting: Arc::clone(&waiting), lost: Arc::clone(&lost) };
        let provider = SdkTracerProvider::builder().with_span_processor(bounded).build();
        for before in 0..3_u64 {
            assert_eq!(lost.load(Relaxed), before.saturating_sub(1));
            drop(provider.tracer("test").start("one"));
        }
        assert_eq!((lost.load(Relaxed), waiting.load(Relaxed)), (2, WAITING_MAX));
    }
}
