//! The flags of `esker-bench ts`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use esker_client::{ClientBuilder, NodeCaller, SequenceName};
use esker_oracle::TimestampWidth;

use crate::timestamp::answer_format::AnswerFormat;
use esker_command::endpoints::Endpoints;
use esker_command::exit::{Failure, Outcome};
use esker_command::quantity::{seconds, timeout};
use esker_command::tls_flags::TlsFlags;
use esker_command::token_file::TokenFile;

const EXAMPLES: &str = "\
Examples:
  # One request at a time on each of 100 connections
  esker-bench ts --connections 100

  # HTTP/2: 16 connections, 32 requests at a time on each
  esker-bench ts --protocol h2c --connections 16 --streams 32 --json

  # HTTP/3 in the same way
  esker-bench ts --protocol h3 --connections 16 --streams 32 --json

  # HTTP/1.1 over TLS
  esker-bench ts --endpoint https://127.0.0.1:8080 --ca ca.pem

  # Timestamps of 64 bits
  esker-bench ts --connections 100 --u64

  # 1,000 tasks that share one client of the Rust crate
  esker-bench ts --callers 1000

  # 64 tasks that take numbers of a sequence, each durable on a majority
  esker-bench ts --sequence orders --callers 64

  # How long a cluster of three is without timestamps when its leader is
  # killed
  esker-bench ts --failover 100

  # And when it gives its leadership away, or all use TLS
  esker-bench ts --failover 100 --planned
  esker-bench ts --failover 100 --tls

The order of up to 50 million calls is checked: of as many as half of the free memory has room for, at 160 bytes each, and \
of 1 million in any case. A run that makes more has `checked` false, and `unrecorded` says how many more. `verified` is \
true where all calls were checked and right; a violation is printed, and the exit status is 1.";

/// A protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Protocol {
    /// HTTP/1.1
    H1,
    /// HTTP/2 without TLS
    H2c,
    /// HTTP/3
    H3,
}

impl Protocol {
    pub fn name(self) -> &'static str {
        match self {
            Self::H1 => "h1",
            Self::H2c => "h2c",
            Self::H3 => "h3",
        }
    }
}

/// The format of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// All timestamps
    List,
    /// The first, and how many
    Range,
}

/// Benchmark a cluster of the timestamp service
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct TsBenchArguments {
    #[command(flatten)]
    endpoints: Endpoints,
    /// The protocol
    #[arg(long, value_name = "PROTOCOL", default_value = "h1")]
    pub protocol: Protocol,
    /// Connections
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub connections: u32,
    /// Requests at a time on each connection of HTTP/2 or HTTP/3
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=250))]
    pub streams: u32,
    /// Timestamps of a request
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub n: u32,
    /// The format of an answer
    #[arg(long, value_name = "FORMAT", default_value = "list")]
    format: Format,
    /// Ask for timestamps of 64 bits
    #[arg(long)]
    u64: bool,
    /// Callers that share one client of the Rust crate, each with one call at a time
    #[arg(long, value_name = "N", conflicts_with_all = ["protocol", "connections", "streams", "format", "rate", "failover"], value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub callers: Option<u32>,
    /// Have the callers, 64 by default, take numbers of this sequence, which is created if there is
    /// none; no other client may use it meanwhile
    #[arg(long, value_name = "NAME", conflicts_with_all = ["protocol", "connections", "streams", "format", "u64", "rate", "failover"])]
    pub sequence: Option<SequenceName>,
    #[command(flatten)]
    token: TokenFile,
    /// Requests a second, in all, at their times; otherwise each follows the answer of the last
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub rate: Option<u32>,
    /// How long to measure
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    pub seconds: f64,
    /// Start three nodes, and kill the leader in each of so many rounds
    #[arg(long, value_name = "ROUNDS", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub failover: Option<u32>,
    /// Transfer leadership in these rounds, instead of killing the leader
    #[arg(long, requires = "failover")]
    pub planned: bool,
    /// Have the nodes of --failover use TLS, with each other and with clients
    #[arg(long, requires = "failover")]
    pub tls: bool,
    /// The folder of the nodes of --failover [default: one in the current directory]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Keep the folder
    #[arg(long)]
    pub keep: bool,
    /// The first port of the nodes of --failover
    #[arg(long, value_name = "PORT", default_value_t = 18_080, value_parser = clap::value_parser!(u16).range(1..=65_000))]
    pub port: u16,
    /// How long to look for a leader
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = timeout)]
    pub timeout: Duration,
    /// Print a JSON object
    #[arg(long)]
    pub json: bool,
}

impl TsBenchArguments {
    pub fn check(&self) -> Outcome {
        match self.protocol == Protocol::H2c && self.endpoints.is_https() {
            true => Err(Failure::usage("--protocol h2c is without TLS: give h1 or h3")),
            false => Ok(()),
        }
    }

    /// Requests at a time on each connection.
    pub fn streams(&self) -> u32 {
        if self.protocol == Protocol::H1 { 1 } else { self.streams }
    }

    /// The caller of the members. With HTTP/3, the flags of TLS are for the load, too.
    pub fn caller(&self) -> Outcome<NodeCaller> {
        match self.protocol {
            Protocol::H3 => self.endpoints.caller_beside_http3(),
            _ => self.endpoints.caller(),
        }
    }

    /// The caller of the members, with the token for changes.
    pub fn admin_caller(&self) -> Outcome<NodeCaller> {
        self.token.apply(self.endpoints.caller()?)
    }

    /// The builder of a client of the members.
    pub fn client(&self) -> Outcome<ClientBuilder> {
        self.endpoints.client()
    }

    /// The flags of TLS, for HTTP/3. Without an authority it accepts any certificate on loopback.
    pub fn tls_flags(&self) -> &TlsFlags {
        self.endpoints.tls_flags()
    }

    /// Whether the connections of the load use TLS.
    pub fn uses_tls(&self) -> bool {
        self.protocol == Protocol::H3 || self.endpoints.is_https()
    }

    /// Whether the floor is the same stack: it is HTTP without TLS, and HTTP/3.
    pub fn has_floor(&self) -> bool {
        self.protocol == Protocol::H3 || !self.endpoints.is_https()
    }

    /// The format of an answer. A client of the Rust crate asks for ranges.
    pub fn format(&self) -> AnswerFormat {
        let width = if self.u64 { TimestampWidth::Bits64 } else { TimestampWidth::Bits128 };
        let is_range = self.format == Format::Range || self.callers.is_some();
        AnswerFormat { width, is_range }
    }
}
