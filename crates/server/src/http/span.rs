//! The span of a request, for a subscriber that collects spans. Without one it costs a comparison.

use esker_oracle::SPAN_TARGET;
use hyper::{Method, Request, StatusCode, Version};
use tracing::Span;
use tracing::field::Empty;

/// The bytes of `tracestate` that have to be taken. A longer one is ignored.
#[cfg(feature = "otlp")]
const TRACE_STATE_MAX: usize = 512;

/// A request that is answered. Ends when it is dropped.
pub(crate) struct RequestSpan(Span);

impl RequestSpan {
    /// `route` is the path, if it is one that the node has: anything else may be long.
    pub(crate) fn of<B>(request: &Request<B>, route: Option<&str>) -> Option<Box<Self>> {
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

/// As OpenTelemetry names it. What a client invents may be long.
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

/// The client may have a trace that the request belongs to: `traceparent` says so.
#[cfg(feature = "otlp")]
fn continue_trace<B>(span: &Span, request: &Request<B>) {
    use tracing_opentelemetry::OpenTelemetrySpanExt;

    let headers = Headers(request.headers());
    let parent = opentelemetry::global::get_text_map_propagator(|known| known.extract(&headers));
    // Fails for a span that no layer of OpenTelemetry has seen.
    let _ = span.set_parent(parent);
}

/// What clients say of their traces, as far as it is short: spans keep it until they are sent.
#[cfg(feature = "otlp")]
struct Headers<'a>(&'a hyper::HeaderMap);

#[cfg(feature = "otlp")]
impl opentelemetry::propagation::Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        let value = self.0.get(key).filter(|value| value.len() <= TRACE_STATE_MAX)?;
        value.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(hyper::header::HeaderName::as_str).collect()
    }
}
