//! The span of a request, for a subscriber that collects spans. Without one it costs a comparison.

use hyper::{Request, StatusCode};
use tracing::Span;
use tracing::field::Empty;

/// A request that is answered. Ends when it is dropped.
pub(crate) struct RequestSpan(Span);

impl RequestSpan {
    /// `route` is the path, if it is one that the node has: anything else may be long.
    pub(crate) fn of<B>(request: &Request<B>, route: Option<&str>) -> Option<Box<Self>> {
        if !tracing::span_enabled!(target: "esker::spans", tracing::Level::INFO) {
            return None;
        }
        let method = request.method().as_str();
        let span = tracing::info_span!(
            target: "esker::spans",
            "request",
            otel.name = route.map(|route| format!("{method} {route}")),
            otel.kind = "server",
            http.request.method = method,
            url.path = route,
            network.protocol.version = ?request.version(),
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

/// The client may have a trace that the request belongs to: `traceparent` says so.
#[cfg(feature = "otlp")]
fn continue_trace<B>(span: &Span, request: &Request<B>) {
    use opentelemetry_http::HeaderExtractor;
    use tracing_opentelemetry::OpenTelemetrySpanExt;

    let headers = HeaderExtractor(request.headers());
    let parent = opentelemetry::global::get_text_map_propagator(|known| known.extract(&headers));
    // Fails for a span that no layer of OpenTelemetry has seen.
    let _ = span.set_parent(parent);
}
