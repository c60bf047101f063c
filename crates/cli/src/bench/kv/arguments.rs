//! Arguments of `esker kv bench`, converted to options of the library.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use esker_kv::{Options, Policy};
use serde_json::{Map, Value, json};

use crate::exit::{Failure, Outcome};
use crate::log_options::WritingArguments;
use crate::quantity;

const EXAMPLES: &str = "\
Examples:
  esker kv bench
  esker kv bench --policy periodic:10 --blocking --order random --what put,get,scan
  esker kv bench --writers 500 --seconds 10 --json
  esker kv bench --batch 100 --writers 8 --json

Under `always` a put is measured until it is durable; under the other policies until it is accepted. The \
last sync is timed. Before get, scan, mixed and open, all keys are put. Everything in the store is read \
back and compared at the end.";

/// The order in which keys are used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum KeyOrder {
    /// Each key as likely as any other
    #[default]
    Random,
    /// One after another
    Seq,
}

impl KeyOrder {
    pub fn name(self) -> &'static str {
        match self {
            KeyOrder::Random => "random",
            KeyOrder::Seq => "seq",
        }
    }
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum What {
    /// Puts
    Put,
    /// Reads of single keys
    Get,
    /// Scans of all keys
    Scan,
    /// A put for every read
    Mixed,
    /// Closing and opening
    Open,
}

/// Arguments of `esker kv bench`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct KvBenchArguments {
    /// Concurrent callers
    #[arg(long, value_name = "N", default_value = "1",
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub writers: u32,
    /// The size of a value, at least 8
    #[arg(long, value_name = "BYTES", default_value = "128", value_parser = quantity::small_bytes)]
    pub size: u32,
    /// The number of different keys
    #[arg(long, value_name = "N", default_value = "1000000", value_parser = quantity::count)]
    pub keys: u64,
    /// The size of a key, at least 8
    #[arg(long, value_name = "BYTES", default_value = "16", value_parser = quantity::small_bytes)]
    pub key_size: u32,
    /// The order in which keys are used
    #[arg(
        long,
        value_enum,
        default_value_t,
        hide_possible_values = true,
        value_name = "random|seq"
    )]
    pub order: KeyOrder,
    /// What to measure, in this order: put, get, scan, mixed, open
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "put",
        hide_possible_values = true,
        value_name = "WHAT,.."
    )]
    pub what: Vec<What>,
    /// Put atomic batches of this many keys
    #[arg(long, value_name = "N", default_value = "1",
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub batch: u32,
    /// Callers are OS threads instead of async tasks
    #[arg(long)]
    pub blocking: bool,
    /// The length of each timed part [default: 3]
    #[arg(long, value_name = "N", conflicts_with = "count", value_parser = quantity::seconds)]
    pub seconds: Option<f64>,
    /// The operations of each timed part
    #[arg(long, value_name = "N", value_parser = quantity::count)]
    pub count: Option<u64>,
    /// Working directory; created, and removed at the end
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Keep the store in --dir
    #[arg(long)]
    pub keep: bool,
    /// Print one JSON object per figure, and nothing else, on standard output
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub writing: WritingArguments,
}

impl KvBenchArguments {
    /// Refuses what the records of the benchmark cannot be made of.
    pub fn check(&self) -> Outcome {
        for (flag, size, most) in [
            ("--size", self.size as usize, esker_kv::VALUE_LIMIT),
            ("--key-size", self.key_size as usize, esker_kv::KEY_LIMIT),
        ] {
            if !(8..=most).contains(&size) {
                return Err(Failure::usage(format!("{flag} must be from 8 to {most} bytes")));
            }
        }
        if self.writing.record_limit.is_some() {
            return Err(Failure::usage("--record-limit is fixed for a store"));
        }
        Ok(())
    }

    /// Returns the defaults, changed by flags.
    pub fn options(&self) -> Options {
        let log = self.writing.options();
        let mut options = Options::on(log.disk);
        options.policy = log.policy;
        options.segment_size = log.segment_size;
        options.direct = log.direct;
        options.dsync = log.dsync;
        options
    }

    /// Whether a caller waits until its put is durable.
    pub fn waits(&self) -> bool {
        self.writing.policy == Policy::Always
    }

    /// Returns the parameters that every figure reports.
    pub fn params(&self, options: &Options) -> Map<String, Value> {
        let values = [
            ("policy", json!(quantity::policy_name(options.policy))),
            ("writers", json!(self.writers)),
            ("size", json!(self.size)),
            ("keys", json!(self.keys)),
            ("key_size", json!(self.key_size)),
            ("order", json!(self.order.name())),
            ("batch", json!(self.batch)),
            ("blocking", json!(self.blocking)),
            ("callers", json!(if self.blocking { "threads" } else { "tasks" })),
            ("count", json!(self.count)),
            ("seconds", json!(self.seconds)),
            ("cache_bytes", json!(options.cache_bytes)),
            ("segment_size", json!(options.segment_size)),
        ];
        values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}
