//! Arguments of `esker-bench consensus`, converted to options of the library.

use std::path::PathBuf;

use clap::{Args, value_parser};
use esker_consensus::{Ballot, Mode, Options};
use serde_json::{Map, Value, json};

use crate::measure::keys::keys;
use esker_command::log_options::IoArguments;
use esker_command::quantity;

const EXAMPLES: &str = "\
Examples:
  esker-bench consensus
  esker-bench consensus --json --only accept,recover --dir /data/bench

Latencies of works in memory are sampled: every 16th operation. Written data is read back and compared. \
The hardware floor is sampled before, during and after the run.";

/// The works, as typed on the command line.
pub const WORKS: [&str; 12] = [
    "accept",
    "accept-commit",
    "read-committed",
    "read-uncommitted",
    "scan-1000",
    "durable-accept-commit",
    "batch-commit-100",
    "snapshot-create-1mib",
    "snapshot-read-1mib",
    "manager-get",
    "many-logs",
    "recover",
];
pub const BALLOT: Ballot = Ballot { number: 1, node: 1 };

/// Arguments of `esker-bench consensus`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ConsensusBenchArguments {
    /// Run only these: accept, accept-commit, read-committed, read-uncommitted, scan-1000,
    /// durable-accept-commit, batch-commit-100, snapshot-create-1mib, snapshot-read-1mib,
    /// manager-get, many-logs, recover
    #[arg(long, value_delimiter = ',', value_name = "WORK,..", value_parser = WORKS)]
    pub only: Vec<String>,
    /// The size of a value
    #[arg(long, value_name = "BYTES", default_value = "100", value_parser = quantity::small_bytes)]
    pub size: u32,
    /// The length of each timed part of the durable works [default: 2]
    #[arg(long, value_name = "N", conflicts_with = "count", value_parser = quantity::seconds)]
    pub seconds: Option<f64>,
    /// The operations of each timed part, rounded to the batch of the work [default: depends on
    /// the work]
    #[arg(long, value_name = "N", value_parser = quantity::count)]
    pub count: Option<u64>,
    /// Entries in the log that is opened
    #[arg(long, value_name = "N", default_value = "5000000", value_parser = quantity::count)]
    pub entries: u64,
    /// The logs of manager-get and of many-logs, 2 to 10000 [default: 256 and 1000]
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(2..=10_000))]
    pub logs: Option<u64>,
    /// Working directory; created, and removed at the end
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Keep the logs in --dir
    #[arg(long)]
    pub keep: bool,
    /// Print one JSON object per figure, and nothing else, on standard output
    #[arg(long)]
    pub json: bool,
    /// This is the process that another one started for the many logs, to work in this directory
    #[arg(long, hide = true)]
    pub in_child: Option<PathBuf>,
    #[command(flatten)]
    pub io: IoArguments,
}

impl ConsensusBenchArguments {
    /// Returns the defaults, changed by flags.
    pub fn options(&self, mode: Mode, sync_on_commit: bool) -> Options {
        consensus_options(&self.io, mode, sync_on_commit)
    }

    /// Returns the parameters that every figure reports.
    pub fn params(&self, options: &Options) -> Map<String, Value> {
        let mode = if options.mode == Mode::Durable { "durable" } else { "volatile" };
        keys([
            ("mode", json!(mode)),
            ("size", json!(self.size)),
            ("sync_on_commit", json!(options.sync_on_commit)),
            ("mutable_size", json!(options.mutable_size)),
            ("cache_size", json!(options.cache_size)),
            ("segment_size", json!(options.log.segment_size)),
            ("checkpoint_every", json!(options.checkpoint_every)),
        ])
    }
}

/// Adds the disk and its modes, as the log resolved the flags.
pub fn insert_disk(params: &mut Map<String, Value>, log: &esker_log::LogStats) {
    params.extend(keys([
        ("disk", json!(log.disk)),
        ("direct", json!(log.direct)),
        ("dsync", json!(log.dsync)),
    ]));
}

/// Returns the options that the flags for I/O set.
pub fn consensus_options(io: &IoArguments, mode: Mode, sync_on_commit: bool) -> Options {
    let mut options = Options::default();
    options.log = io.options();
    options.mode = mode;
    options.sync_on_commit = sync_on_commit;
    options
}
