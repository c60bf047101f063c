//! Spans in a build without the feature `otlp`: there are none.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tokio::runtime::Handle;
use tracing_subscriber::layer::Identity;

use crate::serve_cmd::span_options::SpanOptions;
use esker_command::exit::{Failure, Outcome};

/// Never made.
#[derive(Debug)]
pub enum Spans {}

impl Spans {
    /// Refuses: spans that are asked for are not left out silently.
    pub fn start(_: &SpanOptions, _: &Handle) -> Outcome<Self> {
        Err(Failure::usage(
            "--otlp-endpoint (OTEL_EXPORTER_OTLP_ENDPOINT, or OLTP_ENDPOINT): this build sends no \
             spans; build esker with --features otlp, or leave the collector out",
        ))
    }

    /// Returns the number of lost spans.
    pub fn lost(&self) -> Arc<AtomicU64> {
        match *self {}
    }

    /// Returns what takes the spans of this process.
    pub fn layer(&self) -> Identity {
        match *self {}
    }
}

impl Drop for Spans {
    fn drop(&mut self) {
        match *self {}
    }
}
