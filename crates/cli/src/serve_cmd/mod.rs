//! `esker serve`: a node of the timestamp service.

mod background;
mod file;
mod flags;
mod log_lines;
mod logging;
#[cfg_attr(not(feature = "profile"), path = "no_profile.rs")]
mod profile;
mod span_options;
#[cfg_attr(not(feature = "otlp"), path = "no_spans.rs")]
mod spans;

pub use flags::ServeArguments;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use esker_server::{FollowerAnswer, Server, ServerError, ServerOptions};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::serve_cmd::background::Lines;
use crate::serve_cmd::span_options::SpanOptions;
use esker_command::exit::{Failure, Outcome};
use esker_command::library_errors::with_causes;

/// How often dropped log lines are reported.
const DROPPED_REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Runs `esker serve`, until a signal or a failure ends it.
pub fn run(arguments: &ServeArguments) -> Outcome {
    let file = file::read(arguments.config.as_deref())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::from_io("start threads", &error))?;
    // First: a signal while the node starts stops it as one after it does.
    let (mut terminate, mut interrupt, hangups) = {
        let _entered = runtime.enter();
        let failed = |error| Failure::from_io("catch signals", &error);
        (
            signal(SignalKind::terminate()).map_err(failed)?,
            signal(SignalKind::interrupt()).map_err(failed)?,
            signal(SignalKind::hangup()).map_err(failed)?,
        )
    };
    arguments.end_with_parent()?;
    let log_options = arguments.log_options(&file)?;
    let span_options = arguments.span_options(&file)?;
    let (lines, spans) = logging::start(&log_options, span_options.as_ref(), runtime.handle())?;
    let _flushed = lines.flushed();
    let mut options = arguments.options(&file)?;
    options.spans_lost = spans.as_ref().map(spans::Spans::lost);
    let profile_listen = arguments.profile_listen(&file, &options)?;
    report(&options, span_options.as_ref(), profile_listen);
    if arguments.uses_old_collector_variable() {
        tracing::info!("OLTP_ENDPOINT is read; its standard name is OTEL_EXPORTER_OTLP_ENDPOINT");
    }
    let profiles = profile_listen.map(profile::Port::bind).transpose()?;
    let (data, log) = (options.data.clone(), options.log_dir());
    let of_server = |error| failure_of(error, &data, &log);
    let ended = runtime.block_on(async {
        tokio::spawn(report_dropped(lines));
        tokio::spawn(ignore(hangups));
        if let Some(profiles) = profiles {
            tokio::spawn(profiles.serve());
        }
        let mut signals = async || {
            tokio::select! {
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
            }
        };
        let server = tokio::select! {
            biased;
            server = Server::start(options) => server.map_err(of_server)?,
            // Nothing was promised yet. What blocks is not waited for.
            _ = signals() => return Ok(()),
        };
        let failure = tokio::select! {
            failure = server.failed() => {
                // What collects the lines may not get the command's own.
                tracing::error!(error = %failure, "the node ends by itself");
                Err(failure)
            }
            signal = signals() => {
                tracing::info!(signal, "stops");
                Ok(())
            }
        };
        // A second signal changes nothing: an interrupt of a terminal reaches all processes, and
        // their parent may send one of its own.
        let stopped = server.stop().await;
        failure.and(stopped).map_err(of_server)
    });
    // The tasks of the runtime send the last ones.
    drop(spans);
    // A disk that stalls keeps no process.
    runtime.shutdown_background();
    ended
}

/// The failure of a node whose data is in `data`, and its log in `log`.
fn failure_of(error: ServerError, data: &Path, log: &Path) -> Failure {
    match error {
        ServerError::InvalidOption(why) => Failure::usage(why),
        ServerError::Log(error) => {
            let failure = Failure::from_node(&error, log);
            match failure.is_locked() {
                true => failure.instead(format!(
                    "another process runs a node with --data {}: {error}",
                    data.display()
                )),
                false => failure,
            }
        }
        error @ ServerError::LogRepaired { .. } => Failure::corrupt(error.to_string()),
        error @ ServerError::IdentityMissing { .. } => Failure::corrupt(error.to_string()),
        error => Failure::failed(with_causes(&error)),
    }
}

/// Logs each SIGHUP, which ends no node: programs that rotate logs send it, and so does a terminal
/// that closes.
async fn ignore(mut hangups: Signal) {
    while hangups.recv().await.is_some() {
        tracing::info!(
            "SIGHUP has no effect: log lines are on standard output, and a new certificate is found \
             without it"
        );
    }
}

/// Logs how many lines were dropped, once lines are taken again.
async fn report_dropped(lines: Lines) {
    let mut reported = 0;
    loop {
        tokio::time::sleep(DROPPED_REPORT_INTERVAL).await;
        let dropped = lines.dropped();
        if dropped > reported {
            tracing::warn!(lines = dropped - reported, "log lines were dropped; none reads them");
            // Unless this line was.
            if lines.dropped() == dropped {
                reported = dropped;
            }
        }
    }
}

/// Logs what the node is started with, wherever it comes from, under the names of the flags.
fn report(options: &ServerOptions, spans: Option<&SpanOptions>, profiles: Option<SocketAddr>) {
    let oracle = &options.oracle;
    let files = options.certificate.as_ref();
    let peers = options.peer_certificates.as_ref();
    let shown = |file: &Path| tracing::field::display(file.display().to_string());
    let follower_answer = match options.follower_answer {
        FollowerAnswer::Redirect => "307",
        FollowerAnswer::Forward => "forward",
        _ => "409",
    };
    tracing::info!(
        data = %options.data.display(),
        listen = %options.listen,
        raft_listen = %options.raft_listen,
        advertise = options.advertise,
        raft_advertise = options.raft_advertise,
        node_id = options.node,
        join = options.join,
        cluster = (!options.cluster.is_empty()).then(|| options.cluster.join(",")),
        max_clock_step = %humantime::format_duration(oracle.max_clock_step),
        timestamp_request_buffer = oracle.buffer,
        max_timestamps = oracle.max_timestamps,
        epoch_interval_ms = oracle.epoch_interval.as_millis() as u64,
        epoch_deadline_limit = oracle.failed_advances,
        rtt_ms = options.round_trip.as_millis() as u64,
        connections = options.connections_max,
        http3 = if options.http3 { "on" } else { "off" },
        cert = files.map(|files| shown(&files.cert)),
        key = files.map(|files| shown(&files.key)),
        client_ca = options.client_ca.as_deref().map(shown),
        plain_http = options.plain_http.then_some("on"),
        admin_token_file = options.admin_token_file.as_deref().map(shown),
        peer_ca = peers.map(|files| shown(&files.ca)),
        peer_cert = peers.map(|files| shown(&files.own.cert)),
        peer_key = peers.map(|files| shown(&files.own.key)),
        plain_peers = options.plain_peers.then_some("on"),
        follower_answer,
        lease_reads = options.lease_reads,
        profile_listen = profiles.map(tracing::field::display),
        otlp_endpoint = spans.map(|spans| tracing::field::display(&spans.collector)),
        tracing_service_name = spans.map(|spans| &*spans.service),
        env = spans.and_then(|spans| spans.environment.as_deref()),
        "starts a node with these settings"
    );
    if let Some(listen) = profiles.filter(|listen| !listen.ip().is_loopback()) {
        tracing::warn!(%listen, "profiles can be had by every host that reaches this address");
    }
}
