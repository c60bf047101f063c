//! Spans go to a collector, with OTLP over HTTP.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{CONTENT_LENGTH, HOST, HeaderValue};
use hyper::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider;
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracerProvider,
};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tracing_subscriber::Layer;
use tracing_subscriber::registry::LookupSpan;

use crate::exit::{Failure, Outcome};

/// Spans that wait for the collector: more are dropped.
const WAITING_MAX: usize = 8192;
const BATCH_MAX: usize = 512;
const EVERY: Duration = Duration::from_secs(1);
/// How long the collector may take for a batch.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long the end of the process waits for the last batch.
const FLUSH: Duration = Duration::from_secs(1);
/// Bytes of an answer of the collector.
const ANSWER_MAX: usize = 64 << 10;

/// Where spans go, and what they say of the process.
#[derive(Debug, Clone)]
pub struct SpanOptions {
    pub collector: Uri,
    pub service: String,
    pub environment: Option<String>,
}

/// Sends spans in batches. When it is dropped, waits until the last are sent: one second at most.
#[derive(Debug)]
pub struct Spans(SdkTracerProvider);

impl Spans {
    /// Spans that are sent by tasks of this runtime.
    pub fn start(options: &SpanOptions, runtime: &Handle) -> Outcome<Self> {
        let collector = Collector { runtime: runtime.clone(), is_failing: AtomicBool::new(false) };
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(collector)
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(options.collector.to_string())
            .with_timeout(PATIENCE)
            .build();
        let exporter = exporter
            .map_err(|error| Failure::usage(format!("--otlp-endpoint (OLTP_ENDPOINT): {error}")))?;
        let batches = BatchConfigBuilder::default()
            .with_max_queue_size(WAITING_MAX)
            .with_max_export_batch_size(BATCH_MAX)
            .with_scheduled_delay(EVERY)
            .build();
        let environment = options.environment.clone();
        let resource = Resource::builder_empty()
            .with_service_name(options.service.clone())
            .with_attributes(
                environment.map(|name| KeyValue::new("deployment.environment.name", name)),
            )
            .build();
        opentelemetry::global::set_text_map_propagator(TraceContextPropagator::new());
        let processor = BatchSpanProcessor::builder(exporter).with_batch_config(batches).build();
        let provider = SdkTracerProvider::builder()
            .with_span_processor(processor)
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::AlwaysOn)))
            .with_resource(resource)
            .build();
        Ok(Self(provider))
    }

    /// What takes the spans of this process.
    pub fn layer<S: tracing::Subscriber + for<'a> LookupSpan<'a>>(&self) -> impl Layer<S> + use<S> {
        tracing_opentelemetry::layer()
            .with_tracer(self.0.tracer("esker"))
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_target(false)
    }
}

impl Drop for Spans {
    fn drop(&mut self) {
        // Late or not, the process ends.
        let _ = self.0.shutdown_with_timeout(FLUSH);
    }
}

/// Sends batches. The thread that has them is none of the runtime's.
#[derive(Debug)]
struct Collector {
    runtime: Handle,
    is_failing: AtomicBool,
}

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let collector = request.uri().clone();
        let sent = async move { tokio::time::timeout(PATIENCE, send(request)).await };
        let sent = self.runtime.spawn(sent).await;
        let answer = match sent {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err("no answer in time".into()),
            Err(error) => Err(error.into()),
        };
        let failure = match &answer {
            Ok(answer) if answer.status().is_success() => None,
            Ok(answer) => Some(answer.status().to_string()),
            Err(error) => Some(error.to_string()),
        };
        match (&failure, self.is_failing.swap(failure.is_some(), SeqCst)) {
            (Some(why), false) => {
                tracing::warn!(%collector, why, "the collector does not take spans; they are lost");
            }
            (None, true) => tracing::info!(%collector, "the collector takes spans again"),
            _ => {}
        }
        answer
    }
}

async fn send(request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    let (mut head, body) = request.into_parts();
    let authority = head.uri.authority().ok_or("no host")?.clone();
    let host = authority.host().trim_matches(['[', ']']);
    let stream = TcpStream::connect((host, authority.port_u16().unwrap_or(80))).await?;
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

/// Where spans go when this is the setting: to `/v1/traces` of it, if it names no path.
pub fn collector(text: &str) -> Result<Uri, String> {
    let uri: Uri = text.parse().map_err(|error| format!("{error}"))?;
    // No user, and a port that is one.
    let is_host = uri.authority().is_some_and(|authority| {
        let port = authority.as_str().strip_prefix(authority.host());
        let port = port.filter(|_| !authority.host().is_empty());
        port.is_some_and(|port| port.is_empty() || authority.port_u16().is_some())
    });
    match uri.scheme_str() {
        Some("http") if is_host && !text.contains('#') => {}
        _ => return Err("not a URL like http://127.0.0.1:4318".into()),
    }
    if uri.path() != "/" || uri.query().is_some() {
        return Ok(uri);
    }
    let whole = format!("{}/v1/traces", text.trim_end_matches('/'));
    whole.parse().map_err(|error| format!("{error}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_path_is_added_where_there_is_none() {
        let shown = |text| collector(text).map(|uri| uri.to_string());
        let whole = Ok("http://localhost:4318/v1/traces".to_owned());
        assert_eq!(shown("http://localhost:4318"), whole);
        assert_eq!(shown("http://localhost:4318/"), whole);
        assert_eq!(shown("http://10.0.0.1/otlp"), Ok("http://10.0.0.1/otlp".into()));
        assert_eq!(shown("http://[::1]:1"), Ok("http://[::1]:1/v1/traces".into()));
        for text in ["https://localhost:4318", "localhost:4318", "http://", "grpc://a", ""] {
            shown(text).unwrap_err();
        }
        for text in ["http://a:99999", "http://a:", "http://a#b", "http://user:word@a", "http://:1"]
        {
            shown(text).unwrap_err();
        }
    }
}
