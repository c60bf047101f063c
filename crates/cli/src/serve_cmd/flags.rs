//! The flags of `esker serve`, and what they come to.
//!
//! A flag comes before the environment variable, that before the file, and that before the default.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};
use esker_oracle::COUNT_MAX;
use esker_server::{
    CertificateFiles, FollowerAnswer, PeerCertificateFiles, ServerOptions, is_address,
};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use crate::serve_cmd::file::ConfigFile;
use crate::serve_cmd::logging::{Level, LogOptions};
use crate::serve_cmd::span_options::{SpanOptions, collector};
use esker_command::exit::{Failure, Outcome};
use esker_command::quantity::{millis, number, time};

const NODES: RangeInclusive<u64> = 1..=u64::MAX;
const BUFFER: RangeInclusive<u64> = 1..=10_000_000;
const TIMESTAMPS: RangeInclusive<u64> = 1..=COUNT_MAX as u64;
const INTERVAL_MS: RangeInclusive<u64> = 1..=86_400_000;
const LIMIT: RangeInclusive<u64> = 1..=u32::MAX as u64;
const RTT_MS: RangeInclusive<u64> = 1..=10_000;
const CLUSTER_FLAG: &str = "--cluster (ESKER_CLUSTER)";
const CONNECTIONS: RangeInclusive<u64> = 1..=1_000_000;
/// The keys of log lines beside the level.
const LOG_LINE_KEYS: [&str; 9] =
    ["time", "message", "target", "node", "cluster", "id", "address", "error", "why"];

const EXAMPLES: &str = "\
Examples:
  # A node that works alone, and a timestamp
  esker serve
  curl -sf http://127.0.0.1:8080/timestamp | xxd -p

  # Three nodes: each start of each node, with its own folder and address
  all=127.0.0.1:8080,127.0.0.1:8180,127.0.0.1:8280
  esker serve --data ./one --cluster $all
  esker serve --data ./two --cluster $all --listen 127.0.0.1:8180
  esker serve --data ./three --cluster $all --listen 127.0.0.1:8280

Never delete the data of a node while it is a member: it holds its votes. A node
that lost its data joins under a new number, after `esker cluster remove` of the
old one. Never start a copy of it, either.

A flag comes before its environment variable, that before the file of --config,
and that before the default.";

/// Start a node of the timestamp service
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ServeArguments {
    /// The folder of the node's data; created where there is none
    #[arg(long, env = "ESKER_DATA", value_name = "DIR")]
    data: Option<PathBuf>,
    /// Where clients connect, host and port [default: 127.0.0.1:8080]
    #[arg(long, env = "ESKER_LISTEN", value_name = "ADDR")]
    listen: Option<String>,
    /// The port of --listen
    #[arg(long, env = "HTTP_PORT", value_name = "PORT", allow_negative_numbers = true, value_parser = number::<u16>(0..=65_535))]
    http_port: Option<u16>,
    /// Where the other nodes connect [default: the port above that of --listen, on loopback]
    #[arg(long, visible_alias = "raft-addr", env = "RAFT_ADDR", value_name = "ADDR")]
    raft_listen: Option<String>,
    /// The address that clients get, if it is not that of --listen
    #[arg(long, env = "ESKER_ADVERTISE", value_name = "ADDR")]
    advertise: Option<String>,
    /// The address that the other nodes get, if it is not that of --raft-listen
    #[arg(long, env = "ESKER_RAFT_ADVERTISE", value_name = "ADDR")]
    raft_advertise: Option<String>,
    /// The number of the node, which no other node has or had [default: that of the data, or 1]
    #[arg(long, env = "NODE_ID", value_name = "N", allow_negative_numbers = true, value_parser = number::<u64>(NODES))]
    node_id: Option<u64>,
    /// The client address of any member of the cluster to join
    #[arg(long, env = "ESKER_JOIN", value_name = "ADDR")]
    join: Option<String>,
    /// The client addresses of all nodes, in the order of their numbers, with commas between them:
    /// the same for each node and each start. The first founds the cluster when all others have no
    /// data
    #[arg(long, env = "ESKER_CLUSTER", value_name = "ADDR,ADDR,...")]
    cluster: Option<String>,
    /// A file with these settings, TOML
    #[arg(long, env = "ESKER_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// How far the clock may step forward and be followed at once [default: 10s]
    #[arg(long, env = "ESKER_MAX_CLOCK_STEP", value_name = "DURATION", allow_negative_numbers = true, value_parser = time)]
    max_clock_step: Option<Duration>,
    /// Requests that wait for a timestamp; more are answered 503 [default: 10000]
    #[arg(long, env = "TIMESTAMP_REQUEST_BUFFER", value_name = "N", allow_negative_numbers = true, value_parser = number::<usize>(BUFFER))]
    timestamp_request_buffer: Option<usize>,
    /// The most timestamps of one request; more are answered 400 [default: 65536]
    #[arg(long, env = "MAX_TIMESTAMPS", value_name = "N", allow_negative_numbers = true, value_parser = number::<u32>(TIMESTAMPS))]
    max_timestamps: Option<u32>,
    /// While requests come, an epoch is replaced after this time, and is never older than twice
    /// this, in milliseconds or as 100ms [default: 100]
    #[arg(long, env = "EPOCH_INTERVAL_MS", value_name = "MS", allow_negative_numbers = true, value_parser = millis(INTERVAL_MS))]
    epoch_interval_ms: Option<u64>,
    /// Deadlines in a row, of a second each, by which a leader gets no epoch, until the node stops
    /// [default: 100]
    #[arg(long, env = "EPOCH_DEADLINE_LIMIT", value_name = "N", allow_negative_numbers = true, value_parser = number::<u32>(LIMIT))]
    epoch_deadline_limit: Option<u32>,
    /// The round-trip time between nodes, in milliseconds or as 10ms: elections follow from it
    /// [default: 10]
    #[arg(long, env = "RTT_MS", value_name = "MS", allow_negative_numbers = true, value_parser = millis(RTT_MS))]
    rtt_ms: Option<u64>,
    /// Connections of clients at a time [default: 10000]
    #[arg(long, env = "ESKER_CONNECTIONS", value_name = "N", allow_negative_numbers = true, value_parser = number::<usize>(CONNECTIONS))]
    connections: Option<usize>,
    /// Whenever this node leads, let leaders answer under their lease, without a round trip, or
    /// with =off not [default: as it was]
    #[arg(long, env = "ESKER_LEASE_READS", value_name = "on|off", num_args = 0..=1, default_missing_value = "on", value_parser = on_or_off, action = ArgAction::Set)]
    lease_reads: Option<bool>,
    /// Answer over HTTP/3, too, on the same port over UDP [default: on]
    #[arg(long, env = "ESKER_HTTP3", value_name = "on|off", num_args = 0..=1, default_missing_value = "on", value_parser = on_or_off, action = ArgAction::Set)]
    http3: Option<bool>,
    /// The certificate for clients, PEM: they connect with TLS [default: without; HTTP/3 has a
    /// certificate that the node makes]
    #[arg(long, env = "ESKER_CERT", value_name = "FILE")]
    cert: Option<PathBuf>,
    /// The key of --cert, PEM
    #[arg(long, env = "ESKER_KEY", value_name = "FILE")]
    key: Option<PathBuf>,
    /// The authority of clients' certificates, PEM: over TLS, no client without one is answered
    #[arg(long, env = "ESKER_CLIENT_CA", value_name = "FILE")]
    client_ca: Option<PathBuf>,
    /// Answer clients without TLS, too: while they move to TLS, or in a network that is trusted
    /// whole
    #[arg(long, env = "ESKER_PLAIN_HTTP", value_name = "on|off", num_args = 0..=1, default_missing_value = "on", value_parser = on_or_off, action = ArgAction::Set)]
    plain_http: Option<bool>,
    /// The tokens of those who may change the cluster, one on each line; mode 0600
    #[arg(long, env = "ESKER_ADMIN_TOKEN_FILE", value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
    /// The authority of the nodes' certificates, PEM: connections between nodes are encrypted, and
    /// each side proves which node it is
    #[arg(long, env = "ESKER_PEER_CA", value_name = "FILE")]
    peer_ca: Option<PathBuf>,
    /// The certificate of this node for the others, PEM; see `esker cluster certs`
    #[arg(long, env = "ESKER_PEER_CERT", value_name = "FILE")]
    peer_cert: Option<PathBuf>,
    /// The key of --peer-cert, PEM
    #[arg(long, env = "ESKER_PEER_KEY", value_name = "FILE")]
    peer_key: Option<PathBuf>,
    /// Talk to other nodes without certificates, too: for the time in which a cluster gets them, or
    /// in a network that is trusted whole
    #[arg(long, env = "ESKER_PLAIN_PEERS", value_name = "on|off", num_args = 0..=1, default_missing_value = "on", value_parser = on_or_off, action = ArgAction::Set)]
    plain_peers: Option<bool>,
    /// How to answer requests for timestamps while another node leads [default: 409]
    #[arg(long, env = "ESKER_FOLLOWER_ANSWER", value_name = "409|307|forward", value_parser = follower_answer)]
    follower_answer: Option<FollowerAnswer>,
    /// Log what each request does
    #[arg(long, env = "DEBUG", value_name = "0|1", num_args = 0..=1, default_missing_value = "1", value_parser = switch, action = ArgAction::Set)]
    debug: Option<bool>,
    /// Log everything
    #[arg(long, env = "TRACE", value_name = "0|1", num_args = 0..=1, default_missing_value = "1", value_parser = switch, action = ArgAction::Set)]
    trace: Option<bool>,
    /// Log lines for people, on standard error; otherwise JSON on standard output
    #[arg(long, env = "PRETTY", value_name = "0|1", num_args = 0..=1, default_missing_value = "1", value_parser = switch, action = ArgAction::Set)]
    pretty: Option<bool>,
    /// Log times in Unix milliseconds; otherwise RFC 3339
    #[arg(long, env = "LOG_TIME_MS", value_name = "0|1", num_args = 0..=1, default_missing_value = "1", value_parser = switch, action = ArgAction::Set)]
    log_time_ms: Option<bool>,
    /// The name of the level in log lines [default: level]
    #[arg(long, env = "LOG_LEVEL_KEY", value_name = "NAME")]
    log_level_key: Option<String>,
    /// Send spans to this collector, with OTLP over HTTP, like http://127.0.0.1:4318
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT", value_name = "URL")]
    otlp_endpoint: Option<String>,
    /// The seed's name of the variable of --otlp-endpoint
    #[arg(long, env = "OLTP_ENDPOINT", value_name = "URL", hide = true)]
    oltp_endpoint: Option<String>,
    /// The name of the service in spans [default: esker]
    #[arg(long, env = "TRACING_SERVICE_NAME", value_name = "NAME")]
    tracing_service_name: Option<String>,
    /// The environment in spans, like production [default: none]
    #[arg(long, env = "ENV", value_name = "NAME")]
    env: Option<String>,
    /// Give CPU profiles at this address, in the format of pprof; never a public one
    #[arg(long, env = "ESKER_PROFILE_LISTEN", value_name = "ADDR")]
    profile_listen: Option<String>,
    /// Stop when this process ends, which started the node
    #[arg(long, value_name = "PID", hide = true)]
    parent: Option<u32>,
}

fn switch(text: &str) -> Result<bool, String> {
    match text {
        "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        _ => Err("0 or 1".into()),
    }
}

fn on_or_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        text => switch(text).map_err(|_| "on or off".into()),
    }
}

fn follower_answer(text: &str) -> Result<FollowerAnswer, String> {
    match text {
        "409" => Ok(FollowerAnswer::Refuse),
        "307" => Ok(FollowerAnswer::Redirect),
        "forward" => Ok(FollowerAnswer::Forward),
        _ => Err("409, 307 or forward".into()),
    }
}

/// A socket address, or a host and a port.
fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let is_port = |port: &str| port.parse::<u16>().is_ok();
    let has_both = text
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && !host.contains('/') && is_port(port));
    if !has_both {
        return Err("not a host:port, like 127.0.0.1:8080 or 0.0.0.0:8080".into());
    }
    let mut found = text.to_socket_addrs().map_err(|error| error.to_string())?;
    found.next().ok_or_else(|| "no such host".into())
}

impl ServeArguments {
    /// Has the system stop this process, as SIGTERM does, when the one that started it ends.
    pub fn end_with_parent(&self) -> Outcome {
        let Some(parent) = self.parent else { return Ok(()) };
        set_parent_process_death_signal(Some(Signal::TERM))
            .map_err(|error| Failure::from_io("watch the parent", &error.into()))?;
        // It may have ended before.
        match getppid().map(|pid| pid.as_raw_nonzero().get().cast_unsigned()) {
            Some(pid) if pid == parent => Ok(()),
            _ => Err(Failure::failed("the process that started this node has ended")),
        }
    }

    pub fn log_options(&self, file: &ConfigFile) -> Outcome<LogOptions> {
        let on = |flag: Option<bool>, filed: Option<bool>| flag.or(filed).unwrap_or(false);
        let level = match (on(self.trace, file.trace), on(self.debug, file.debug)) {
            (true, _) => Level::Trace,
            (_, true) => Level::Debug,
            _ => Level::Info,
        };
        let key = self.log_level_key.clone().or_else(|| file.log_level_key.clone());
        let level_key = key.unwrap_or_else(|| "level".into());
        if level_key.is_empty() || LOG_LINE_KEYS.contains(&&*level_key) {
            return Err(Failure::usage(format!(
                "--log-level-key (LOG_LEVEL_KEY) {level_key:?}: log lines have another field of \
                 that name; not empty, and none of {}",
                LOG_LINE_KEYS.join(", ")
            )));
        }
        Ok(LogOptions {
            level,
            is_pretty: on(self.pretty, file.pretty),
            in_ms: on(self.log_time_ms, file.log_time_ms),
            level_key,
        })
    }

    /// The collector of spans, if there is one.
    pub fn span_options(&self, file: &ConfigFile) -> Outcome<Option<SpanOptions>> {
        let text = |flag: &Option<String>, filed: &Option<String>| {
            flag.as_ref().or(filed.as_ref()).filter(|text| !text.is_empty()).cloned()
        };
        let given = self.standard_collector().or(self.oltp_endpoint.as_ref()).cloned();
        let Some(url) = text(&given, &file.otlp_endpoint) else { return Ok(None) };
        let collector = collector(&url).map_err(|why| {
            Failure::usage(format!("--otlp-endpoint (OTEL_EXPORTER_OTLP_ENDPOINT) {url}: {why}"))
        })?;
        let service = text(&self.tracing_service_name, &file.tracing_service_name);
        let service = service.unwrap_or_else(|| "esker".into());
        let environment = text(&self.env, &file.env);
        Ok(Some(SpanOptions { collector, service, environment }))
    }

    /// The collector of the flag or the standard's variable, which counts as unset if it is empty.
    fn standard_collector(&self) -> Option<&String> {
        self.otlp_endpoint.as_ref().filter(|text| !text.is_empty())
    }

    /// Returns whether the collector comes from the variable with the seed's name.
    pub fn uses_old_collector_variable(&self) -> bool {
        self.standard_collector().is_none() && self.oltp_endpoint.is_some()
    }

    /// The address that serves profiles, if any: none of the node's own ports.
    pub fn profile_listen(
        &self,
        file: &ConfigFile,
        options: &ServerOptions,
    ) -> Outcome<Option<SocketAddr>> {
        let listen = self.profile_listen.as_ref().or(file.profile_listen.as_ref());
        let flag = "--profile-listen (ESKER_PROFILE_LISTEN)";
        let Some(listen) = listen.map(|listen| address(flag, listen)).transpose()? else {
            return Ok(None);
        };
        for (other, taken) in [("--listen", options.listen), ("--raft-listen", options.raft_listen)]
        {
            if is_same_port(listen, taken) {
                return Err(Failure::usage(format!(
                    "{flag} {listen} and {other} {taken} are the same port: give each its own"
                )));
            }
        }
        Ok(Some(listen))
    }

    /// The options of the node.
    pub fn options(&self, file: &ConfigFile) -> Outcome<ServerOptions> {
        let data = self.data.clone().or_else(|| file.data.clone());
        let mut options = ServerOptions::new(data.unwrap_or_else(|| "./esker-data".into()));
        let text = |flag: &Option<String>, filed: &Option<String>| {
            flag.as_ref().or(filed.as_ref()).cloned()
        };
        if let Some(listen) = text(&self.listen, &file.listen) {
            options.listen = address("--listen (ESKER_LISTEN)", &listen)?;
        }
        // A flag comes before a variable, also one for the same thing under another name.
        let is_of_env = |name: &str| std::env::var_os(name).is_some();
        let is_overruled =
            is_of_env("HTTP_PORT") && self.listen.is_some() && !is_of_env("ESKER_LISTEN");
        // Beside --listen or its variable, the file's is for another address.
        let filed = file.http_port.filter(|_| self.listen.is_none());
        if let Some(port) = self.http_port.filter(|_| !is_overruled).or(filed) {
            options.listen.set_port(port);
        }
        options.raft_listen = match text(&self.raft_listen, &file.raft_listen) {
            Some(listen) => address("--raft-listen (RAFT_ADDR)", &listen)?,
            None => beside(options.listen)?,
        };
        if is_same_port(options.listen, options.raft_listen) {
            return Err(Failure::usage(format!(
                "--listen {} and --raft-listen {} are the same port: give each its own",
                options.listen, options.raft_listen
            )));
        }
        options.advertise = text(&self.advertise, &file.advertise);
        options.raft_advertise = text(&self.raft_advertise, &file.raft_advertise);
        for (flag, advertised, listen) in [
            ("--advertise (ESKER_ADVERTISE)", &options.advertise, options.listen),
            (
                "--raft-advertise (ESKER_RAFT_ADVERTISE)",
                &options.raft_advertise,
                options.raft_listen,
            ),
        ] {
            match advertised {
                Some(advertised) if !is_address(advertised) => {
                    return Err(Failure::usage(format!(
                        "{flag} {advertised}: not the host:port of one host"
                    )));
                }
                None if listen.ip().is_unspecified() => {
                    return Err(Failure::usage(format!(
                        "{listen} is every address of this host; say with {flag} which one others \
                         connect to"
                    )));
                }
                _ => {}
            }
        }
        options.node = self.node_id.or(file.node_id);
        in_bounds("--node-id (NODE_ID)", options.node, NODES)?;
        if let Some(join) = text(&self.join, &file.join) {
            options.join = Some(member("--join (ESKER_JOIN)", &join, &options)?);
        }
        if let Some(cluster) = text(&self.cluster, &file.cluster) {
            let members = cluster.split(',').map(|one| member(CLUSTER_FLAG, one.trim(), &options));
            options.cluster = members.collect::<Outcome<_>>()?;
            if options.join.is_some() {
                let why = "--cluster (ESKER_CLUSTER) says whom to join: leave out --join";
                return Err(Failure::usage(why));
            }
        }
        self.peers(file, &mut options)?;
        self.clients(file, &mut options)?;
        self.timing(file, options)
    }

    /// The certificates of the connections between nodes.
    fn peers(&self, file: &ConfigFile, options: &mut ServerOptions) -> Outcome {
        let ca = self.peer_ca.as_ref().or(file.peer_ca.as_ref());
        let cert = self.peer_cert.as_ref().or(file.peer_cert.as_ref());
        let key = self.peer_key.as_ref().or(file.peer_key.as_ref());
        options.plain_peers = self.plain_peers.or(file.plain_peers).unwrap_or_default();
        options.peer_certificates = match (ca, cert, key) {
            (Some(ca), Some(cert), Some(key)) => {
                let own = CertificateFiles { cert: cert.clone(), key: key.clone() };
                Some(PeerCertificateFiles { ca: ca.clone(), own })
            }
            (None, None, None) => None,
            _ => {
                return Err(Failure::usage(
                    "--peer-ca (ESKER_PEER_CA), --peer-cert (ESKER_PEER_CERT) and --peer-key \
                     (ESKER_PEER_KEY) are given together",
                ));
            }
        };
        Ok(())
    }

    /// How clients are answered.
    fn clients(&self, file: &ConfigFile, options: &mut ServerOptions) -> Outcome {
        let http3 = self.http3.or(file.http3);
        let cert = self.cert.as_ref().or(file.cert.as_ref());
        let key = self.key.as_ref().or(file.key.as_ref());
        options.http3 = http3.unwrap_or(options.http3);
        options.certificate = match (cert, key) {
            (Some(cert), Some(key)) => {
                Some(CertificateFiles { cert: cert.clone(), key: key.clone() })
            }
            (None, None) => None,
            _ => {
                let why = "--cert (ESKER_CERT) and --key (ESKER_KEY) are given together";
                return Err(Failure::usage(why));
            }
        };
        options.client_ca = self.client_ca.clone().or_else(|| file.client_ca.clone());
        options.plain_http = self.plain_http.or(file.plain_http).unwrap_or_default();
        let tokens = self.admin_token_file.as_ref().or(file.admin_token_file.as_ref());
        options.admin_token_file = tokens.cloned();
        let filed = file.follower_answer.as_ref().map(|filed| follower_answer(&filed.text()));
        let filed = filed.transpose();
        let filed = filed.map_err(|why| Failure::usage(format!("follower_answer: {why}")))?;
        options.follower_answer = self.follower_answer.or(filed).unwrap_or_default();
        Ok(())
    }

    fn timing(&self, file: &ConfigFile, mut options: ServerOptions) -> Outcome<ServerOptions> {
        let filed = file.max_clock_step.as_ref().map(|step| time(&step.text())).transpose();
        let filed = filed.map_err(|why| Failure::usage(format!("max_clock_step: {why}")))?;
        if let Some(step) = self.max_clock_step.or(filed) {
            options.oracle.max_clock_step = step;
        }
        let buffer = self.timestamp_request_buffer.or(file.timestamp_request_buffer);
        if let Some(buffer) = buffer {
            let flag = "--timestamp-request-buffer (TIMESTAMP_REQUEST_BUFFER)";
            in_bounds(flag, Some(buffer as u64), BUFFER)?;
            options.oracle.buffer = buffer;
        }
        if let Some(most) = self.max_timestamps.or(file.max_timestamps) {
            in_bounds("--max-timestamps (MAX_TIMESTAMPS)", Some(most.into()), TIMESTAMPS)?;
            options.oracle.max_timestamps = most;
        }
        if let Some(interval) = self.epoch_interval_ms.or(file.epoch_interval_ms) {
            in_bounds("--epoch-interval-ms (EPOCH_INTERVAL_MS)", Some(interval), INTERVAL_MS)?;
            options.oracle.epoch_interval = Duration::from_millis(interval);
        }
        if let Some(limit) = self.epoch_deadline_limit.or(file.epoch_deadline_limit) {
            in_bounds("--epoch-deadline-limit (EPOCH_DEADLINE_LIMIT)", Some(limit.into()), LIMIT)?;
            options.oracle.failed_advances = limit;
        }
        if let Some(rtt) = self.rtt_ms.or(file.rtt_ms) {
            in_bounds("--rtt-ms (RTT_MS)", Some(rtt), RTT_MS)?;
            options.round_trip = Duration::from_millis(rtt);
        }
        if let Some(connections) = self.connections.or(file.connections) {
            let flag = "--connections (ESKER_CONNECTIONS)";
            in_bounds(flag, Some(connections as u64), CONNECTIONS)?;
            options.connections_max = connections;
        }
        options.lease_reads = self.lease_reads.or(file.lease_reads);
        Ok(options)
    }
}

/// The client address of a member, as it is often given, for a node with these options.
fn member(flag: &str, given: &str, options: &ServerOptions) -> Outcome<String> {
    let bare = given.strip_prefix("http://").or_else(|| given.strip_prefix("https://"));
    let bare = bare.unwrap_or(given).trim_end_matches('/');
    if !is_address(bare) {
        return Err(Failure::usage(format!("{flag} {given}: not the host:port of one host")));
    }
    let is_elsewhere = |host: &str| host.parse::<IpAddr>().is_ok_and(|ip| !ip.is_loopback());
    let host = bare.rsplit_once(':').map_or(bare, |(host, _)| host.trim_matches(['[', ']']));
    if is_elsewhere(host)
        && options.raft_advertise.is_none()
        && options.raft_listen.ip().is_loopback()
    {
        let (flag, _) = flag.split_once(' ').unwrap_or((flag, ""));
        return Err(Failure::usage(format!(
            "{flag} {bare} is on another host, and the other nodes would look for this one at {}: \
             give --raft-listen",
            options.raft_listen
        )));
    }
    Ok(bare.to_owned())
}

/// Also of what the file says.
fn in_bounds(flag: &str, value: Option<u64>, bounds: RangeInclusive<u64>) -> Outcome {
    match value.filter(|value| !bounds.contains(value)) {
        None => Ok(()),
        Some(value) => {
            let (least, most) = bounds.into_inner();
            Err(Failure::usage(format!("{flag} is {value}: a number from {least} to {most}")))
        }
    }
}

fn address(flag: &str, text: &str) -> Outcome<SocketAddr> {
    parse_address(text).map_err(|why| Failure::usage(format!("{flag} {text}: {why}")))
}

/// Whether only one of these can be listened on.
fn is_same_port(a: SocketAddr, b: SocketAddr) -> bool {
    let meet = a.ip() == b.ip() || a.ip().is_unspecified() || b.ip().is_unspecified();
    a.port() != 0 && a.port() == b.port() && meet
}

/// On loopback, so that no other host reaches it unless the operator says so.
fn beside(listen: SocketAddr) -> Outcome<SocketAddr> {
    let port = match listen.port() {
        0 => 0,
        port => port.checked_add(1).ok_or_else(|| {
            Failure::usage("there is no port above that of --listen: give --raft-listen")
        })?,
    };
    Ok(SocketAddr::from(([127, 0, 0, 1], port)))
}
