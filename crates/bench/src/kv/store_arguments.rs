//! Arguments of `esker-bench kv`, converted to options of the library.

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use esker_disk::{Disk, Latency, SlowDisk};
use esker_kv::{Options, Policy};
use serde_json::{Map, Value, json};

use crate::measure::keys::keys;
use esker_command::exit::{Failure, Outcome};
use esker_command::log_options::IoArguments;
use esker_command::quantity;

const EXAMPLES: &str = "\
Examples:
  esker-bench kv
  esker-bench kv --policy periodic:10 --blocking --order random \\
    --what put,get,scan
  esker-bench kv --writers 500 --seconds 10 --json
  esker-bench kv --batch 100 --writers 8 --json

  # The modes of the experiment as CSV, and the model beside the measurement
  # on standard error
  esker-bench kv --csv

  # 16 callers that read values from the disk, next to the disk's own random
  # reads
  esker-bench kv --what get --cold --writers 16 --keys 4000000

Under `always` a put is measured until it is durable; under the other policies until it is accepted. The \
last sync is timed. Before get, scan, mixed and open, all keys are put. At the end the store is opened \
again, and everything in it is read back and compared.

With --csv or several policies, each policy has a store of its own, and every put is timed. Without --count \
and --seconds a policy is measured for at least 10,000 puts, one second, 100 syncs and 20 periods.";

/// The policies of `--csv`: those of the experiment.
const EXPERIMENT: [&str; 5] = ["always", "batch:100", "batch:1000", "periodic:10", "periodic:100"];
/// The puts before the timed part.
const WARM_UP: u64 = 1000;
/// The value cache with `--cold`: too small to matter.
const COLD_CACHE: u64 = 1 << 20;

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

/// The operation that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Operation {
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

/// A device to emulate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DiskModel {
    /// A hard disk
    Hdd,
    /// An SSD behind SATA
    Sata,
}

impl DiskModel {
    pub fn name(self) -> &'static str {
        match self {
            DiskModel::Hdd => "hdd",
            DiskModel::Sata => "sata",
        }
    }

    fn latency(self) -> Latency {
        match self {
            DiskModel::Hdd => Latency::HDD,
            DiskModel::Sata => Latency::SATA_SSD,
        }
    }
}

/// Arguments of `esker-bench kv`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct KvBenchArguments {
    /// When a commit happens without a request: always, batch:N, periodic:MS, os; several, one
    /// after the other [default: always; with --csv those of the experiment: always, batch:100,
    /// batch:1000, periodic:10, periodic:100]
    #[arg(long, value_name = "POLICY,..", value_delimiter = ',', value_parser = quantity::policy)]
    pub policy: Vec<Policy>,
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
    /// The operations to measure, in this order: put, get, scan, mixed, open
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "put",
        hide_possible_values = true,
        value_name = "WHAT,.."
    )]
    pub what: Vec<Operation>,
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
    /// Print one line of CSV per policy, and nothing else, on standard output; callers are threads
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
    /// Read from the disk: neither the page cache nor the value cache has the values; callers that
    /// read are threads
    #[arg(long)]
    pub cold: bool,
    /// Emulate the latency of a slower device
    #[arg(long, value_enum, hide_possible_values = true, value_name = "hdd|sata")]
    pub slow_disk: Option<DiskModel>,
    #[command(flatten)]
    pub io: IoArguments,
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
        if self.csv && self.what != [Operation::Put] {
            return Err(Failure::usage("--csv measures puts only: leave out --what"));
        }
        let writes = |what: &Operation| matches!(what, Operation::Put | Operation::Open);
        if self.cold && self.what.iter().all(writes) {
            return Err(Failure::usage("--cold needs --what get, scan or mixed"));
        }
        if self.policies().len() > 1 && self.keep {
            return Err(Failure::usage("--keep needs a single --policy"));
        }
        Ok(())
    }

    /// Returns the policies to measure, in order.
    pub fn policies(&self) -> Vec<Policy> {
        if !self.policy.is_empty() {
            return self.policy.clone();
        }
        let default = if self.csv { &EXPERIMENT[..] } else { &EXPERIMENT[..1] };
        default.iter().filter_map(|name| quantity::policy(name).ok()).collect()
    }

    /// Whether policies are compared: each put is timed, and the runs are long enough.
    pub fn compares(&self) -> bool {
        self.csv || self.policies().len() > 1
    }

    /// The puts before the timed part.
    pub fn warm_up(&self) -> u64 {
        self.count.map_or(WARM_UP, |count| count.min(WARM_UP))
    }

    /// Whether the callers of this work are threads.
    pub fn has_threads(&self, what: Operation) -> bool {
        let reads = what == Operation::Get || what == Operation::Mixed;
        self.blocking || self.csv || self.cold && reads
    }

    /// Returns the defaults, changed by flags.
    pub fn options(&self, policy: Policy) -> Options {
        let mut options = Options::default();
        options.log = self.io.options();
        options.log.disk = self.on_device(options.log.disk);
        options.log.policy = policy;
        if self.cold {
            options.cache_bytes = options.cache_bytes.min(COLD_CACHE);
        }
        options
    }

    /// Returns the disk behind the emulated device, if one is emulated.
    fn on_device(&self, disk: Arc<dyn Disk>) -> Arc<dyn Disk> {
        match self.slow_disk {
            Some(device) => Arc::new(SlowDisk::new(disk, device.latency())),
            None => disk,
        }
    }

    /// Returns the parameters that every figure reports.
    pub fn params(&self, options: &Options, what: Operation) -> Map<String, Value> {
        let callers = if self.has_threads(what) { "threads" } else { "tasks" };
        let warm_up = if what == Operation::Put { self.warm_up() } else { 0 };
        keys([
            ("policy", json!(quantity::policy_name(options.log.policy))),
            ("writers", json!(self.writers)),
            ("size", json!(self.size)),
            ("keys", json!(self.keys)),
            ("key_size", json!(self.key_size)),
            ("order", json!(self.order.name())),
            ("batch", json!(self.batch)),
            ("blocking", json!(self.blocking)),
            ("callers", json!(callers)),
            ("cold", json!(self.cold)),
            ("slow_disk", json!(self.slow_disk.map(DiskModel::name))),
            ("warm_up", json!(warm_up)),
            ("count", json!(self.count)),
            ("seconds", json!(self.seconds)),
            ("cache_bytes", json!(options.cache_bytes)),
            ("segment_size", json!(options.log.segment_size)),
        ])
    }
}
