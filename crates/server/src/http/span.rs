//! The span of a request, for a subscriber that collects spans. Without one it costs a comparison.

use esker_oracle::SPAN_TARGET;
use hyper::{Method, Request, StatusCode, Version};
use tracing::Span;
use tracing::field::Empty;

/// The longest `tracestate` that is accepted. A longer one is ignored.
#[cfg(feature = "otlp")]
const TRACE_STATE_BYTES_MAX: usize = 512;

/// The span of a request. It ends when this is dropped.
pub(crate) struct RequestSpan(Span);

impl RequestSpan {
    /// Starts the span of a request, if a subscriber takes it. `route` is the path, if it is one of
    /// the node's: any other may be long.
    pub(crate) fn start<B>(request: &Request<B>, route: Option<&str>) -> Option<Box<Self>> {
        if !tracing::span_enabled!(target: SPAN_TARGET, tracing::Level::INFO) {
            return None;
        }
        let method = method(request.method());
        let name = route.map_or_else(|| method.to_owned(), |route| format!("{method} {route}"));
        let span = tracing::info_span!(
            target: SPAN_TARGET,
            "request",
            otel.name = name,
            otel.kind = "server",
            http.request.method = method,
            url.path = route,
            network.protocol.version = version(request.version()),
            http.response.status_code = Empty,
        );
        #[cfg(feature = "otlp")]
        continue_trace(&span, request);
        Some(Box::new(Self(span)))
    }

    pub(crate) fn answered(&self, status: StatusCode) {
        self.0.record("http.response.status_code", status.as_u16());
    }
}

/// Returns the name of a method for OpenTelemetry. A method that a client invents may be long.
fn method(method: &Method) -> &str {
    match *method {
        Method::GET | Method::HEAD | Method::POST | Method::OPTIONS => method.as_str(),
        Method::PUT | Method::PATCH | Method::DELETE => method.as_str(),
        _ => "_OTHER",
    }
}

fn version(version: Version) -> &'static str {
    match version {
        Version::HTTP_3 => "3",
        Version::HTTP_2 => "2",
        Version::HTTP_11 => "1.1",
        _ => "1.0",
    }
}

/// Continues the trace of the client, if `traceparent` has one.
#[cfg(feature = "otlp")]
fn continue_trace<B>(span: &Span, request: &Request<B>) {
    use tracing_opentelemetry::OpenTelemetrySpanExt;

    let headers = TraceHeaders(request.headers());
    let parent = opentelemetry::global::get_text_map_propagator(|known| known.extract(&headers));
    // Fails for a span that no layer of OpenTelemetry has seen.
    let _ = span.set_parent(parent);
}

/// The headers of a trace. Long ones are left out: spans keep them until they are sent.
#[cfg(feature = "otlp")]
struct TraceHeaders<'a>(&'a hyper::HeaderMap);

#[cfg(feature = "otlp")]
impl opentelemetry::propagation::Extractor for TraceHeaders<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        let value = self.0.get(key).filter(|value| value.len() <= TRACE_STATE_BYTES_MAX)?;
        value.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(hyper::header::HeaderName::as_str).collect()
    }
}
