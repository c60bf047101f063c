//! The destination of log lines.

use std::fs::File;
use std::io::{stderr, stdout};
use std::os::fd::AsFd;

use esker_oracle::SPAN_TARGET;
use tokio::runtime::Handle;
use tracing::Dispatch;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Layer, Registry, fmt};

use crate::serve_cmd::background::Lines;
use crate::serve_cmd::log_lines::{Json, Pretty};
use crate::serve_cmd::span_options::SpanOptions;
use crate::serve_cmd::spans::Spans;
use esker_command::exit::{Failure, Outcome};

/// How much is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    Info,
    Debug,
    Trace,
}

/// How log lines look.
#[derive(Debug, Clone)]
pub struct LogOptions {
    pub level: Level,
    /// Lines for people, on standard error.
    pub is_pretty: bool,
    /// Times are Unix milliseconds.
    pub in_ms: bool,
    /// The name of the level.
    pub level_key: String,
}

/// Starts logging: JSON lines on standard output, or lines for people on standard error. A thread
/// writes them.
///
/// Spans go to a collector, if there is one.
pub fn start(
    options: &LogOptions,
    spans: Option<&SpanOptions>,
    runtime: &Handle,
) -> Outcome<(Lines, Option<Spans>)> {
    let of_io = |error| Failure::from_io("log", &error);
    let out = match options.is_pretty {
        true => stderr().as_fd().try_clone_to_owned(),
        false => stdout().as_fd().try_clone_to_owned(),
    };
    let writer = Lines::to(File::from(out.map_err(of_io)?)).map_err(of_io)?;
    let in_ms = options.in_ms;
    let lines = match options.is_pretty {
        true => fmt::layer().with_writer(writer.clone()).event_format(Pretty { in_ms }).boxed(),
        false => {
            let level_key = options.level_key.clone();
            let json = Json { in_ms, level_key };
            fmt::layer().with_writer(writer.clone()).event_format(json).boxed()
        }
    };
    let spans = spans.map(|options| Spans::start(options, runtime)).transpose()?;
    let subscriber = subscriber(lines, filter(options.level), spans.as_ref());
    let started = tracing::dispatcher::set_global_default(subscriber);
    started.map_err(|error| Failure::failed(error.to_string()))?;
    Ok((writer, spans))
}

/// The subscriber that takes log lines, and spans if there is a collector.
fn subscriber(
    lines: impl Layer<Registry> + Send + Sync,
    filter: Targets,
    spans: Option<&Spans>,
) -> Dispatch {
    let lines = tracing_subscriber::registry().with(lines.with_filter(filter));
    // Not an optional layer: with one that is `None` each span is made.
    match spans {
        None => lines.into(),
        Some(spans) => {
            let only = Targets::new().with_target(SPAN_TARGET, LevelFilter::INFO);
            lines.with(spans.layer().with_filter(only)).into()
        }
    }
}

/// The filter of log lines.
fn filter(level: Level) -> Targets {
    let own = match level {
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
        Level::Trace => LevelFilter::TRACE,
    };
    // openraft reports each election and each refused vote as an error of its own.
    let raft = match level {
        Level::Info => LevelFilter::OFF,
        Level::Debug => LevelFilter::WARN,
        Level::Trace => LevelFilter::TRACE,
    };
    Targets::new()
        .with_default(own)
        .with_target(SPAN_TARGET, LevelFilter::OFF)
        .with_target("openraft", raft)
        .with_target("hyper", raft)
        .with_target("h2", raft)
        .with_target("h3", raft)
        .with_target("quinn", raft)
        .with_target("quinn_proto", raft)
        .with_target("quinn_udp", raft)
        .with_target("rustls", raft)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A span costs a comparison without a collector.
    #[test]
    fn log_lines_want_no_spans() {
        for level in [Level::Info, Level::Debug, Level::Trace] {
            let lines = fmt::layer().with_writer(std::io::sink);
            tracing::dispatcher::with_default(&subscriber(lines, filter(level), None), || {
                assert!(tracing::info_span!(target: SPAN_TARGET, "request").is_disabled());
                assert!(!tracing::info_span!(target: "esker", "another").is_disabled());
            });
        }
    }
}
