//! The arguments of `esker log bench`.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use esker_log::Options;
use serde_json::{Map, Value, json};

use crate::bench::records::payload::{HEAD, Recipe};
use crate::bench::records::verify::Verify;
use crate::exit::{Failure, Outcome};
use crate::log_options::{KeepingArguments, WritingArguments};
use crate::quantity;

/// Records per call when writing the log that a reader then catches up with.
const CATCHUP_BATCH: u32 = 64;

/// The default length of the timed part, in seconds.
pub const SECONDS: f64 = 5.0;

const EXAMPLES: &str = "\
Examples:
  # 100 concurrent callers, each waiting until its record of 900 bytes is durable
  esker log bench --writers 100 --size 900

  # One writer that waits for nothing, and one flush at the end; for a program
  esker log bench --async --size 128 --seconds 2 --json

  # 20 threads, records of 512 bytes to 1 MiB, on another disk
  esker log bench --writers 20 --size 512..1M --blocking --dir /data/bench

  # A ring of 4 segments, with these segment and index sizes; what it kept is compared
  esker log bench --retain-segments 4 --segment-size 16M --index-bytes 128K --count 1000000

  # The log's own work on a record of 90 bytes, without a disk
  esker log bench --no-disk --async --size 90 --buffer-size 1M

  # How long opening takes, after a clean close and after a kill
  esker log bench --open --bytes 10000000000

  # 3,000 readers at the tip of a log that grows by 10 MB a second, in appends of 2,048 records
  esker log bench --readers 3000 --rate 10000000 --batch 2048 --size 1000

  # What 10,000 idle readers cost (idle_bytes_per_reader), and how long one append takes to reach all of
  # them (lag_max_us): with --rate 0 an append comes only when every reader has the one before and waits
  esker log bench --readers 10000 --rate 0

  # How fast a reader catches up from the disk, alone and beside a writer at full speed
  esker log bench --catchup

  # The same by a process that does not write, from the disk and at the tip of 100 MB a second
  esker log bench --catchup --follower
  esker log bench --readers 1 --rate 100000000 --batch 100 --follower

What was written is read back after the run and compared; with --catchup, as it is read. The floor of \
this machine is sampled before, during and after.";

/// Arguments of `esker log bench`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct LogBenchArguments {
    /// Concurrent callers
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub writers: u32,
    /// The size of a record, or MIN..MAX
    #[arg(long, alias = "log-size", value_name = "BYTES", default_value = "900", value_parser = quantity::size_range)]
    pub size: RangeInclusive<u32>,
    /// Records in one call [default: 1, with --catchup 64]
    #[arg(long, value_name = "RECORDS", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub batch: Option<u32>,
    /// Callers are threads of the system instead of async tasks
    #[arg(long)]
    pub blocking: bool,
    /// Callers do not wait for durability; one flush at the end, inside the timed part
    #[arg(long = "async")]
    pub pipelined: bool,
    /// Each caller rests so long between its calls; the rest is no part of a latency
    #[arg(long, value_name = "MS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=60_000))]
    pub delay: u64,
    /// What is written to segments goes nowhere, so that the log's own work is left; never verified
    #[arg(long, conflicts_with_all = ["open", "keep", "disk"])]
    pub no_disk: bool,
    /// Staging buffers on huge pages; --buffer-size is then a multiple of their size, usually 2M
    #[arg(long)]
    pub huge_pages: bool,
    /// The threads that commit stay on this processor, counted from 0
    #[arg(long, value_name = "CORE")]
    pub pin: Option<usize>,
    /// Measure tasks that read at the tip while one writer appends
    #[arg(long, value_name = "N", conflicts_with_all = ["pipelined", "open", "catchup"], value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub readers: Option<u32>,
    /// With --readers: payload bytes that are appended in a second, evenly; 0: an append only when
    /// all readers are idle [default: as many as become durable, one append after another]
    #[arg(long, requires = "readers", value_name = "BYTES_PER_S", value_parser = quantity::bytes)]
    pub rate: Option<u64>,
    /// How much a reader checks: header is number and length of each record, and every 64th in full
    /// [default: header]
    #[arg(long, value_enum, hide_possible_values = true, value_name = "none|header|full")]
    pub verify: Option<Verify>,
    /// Measure a reader that catches up from the oldest record, alone and beside a writer
    #[arg(long, conflicts_with_all = ["open", "blocking", "pipelined", "count"])]
    pub catchup: bool,
    /// With --catchup or --readers: another process reads the log, too
    #[arg(long)]
    pub follower: bool,
    /// Measure opening, after a clean close and after a kill
    #[arg(long, conflicts_with_all = ["pipelined", "blocking", "batch", "writers", "seconds", "count"])]
    pub open: bool,
    /// With --open: after `close` or after `kill` alone
    #[arg(
        long,
        value_enum,
        requires = "open",
        value_name = "close|kill",
        hide_possible_values = true
    )]
    pub after: Option<After>,
    /// With --open or --catchup: payload bytes in the log [default: 10000000000]
    #[arg(long, value_name = "BYTES", value_parser = quantity::bytes)]
    pub bytes: Option<u64>,
    /// The length of the timed part [default: 5]
    #[arg(long, value_name = "N", conflicts_with = "count", value_parser = quantity::seconds)]
    pub seconds: Option<f64>,
    /// The records of the timed part, over all callers; two of each, at least
    #[arg(long, value_name = "N", value_parser = quantity::count)]
    pub count: Option<u64>,
    /// Where to work; made, and removed at the end
    #[arg(long, alias = "path", value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Leave the log at the end: in --dir, or in esker-bench-N of this directory
    #[arg(long)]
    pub keep: bool,
    /// Print one JSON object a figure, and nothing else, on standard output
    #[arg(long)]
    pub json: bool,
    /// The size of a staging buffer [default: 4M]
    #[arg(long, alias = "buf-capacity", value_name = "BYTES", value_parser = quantity::small_bytes)]
    pub buffer_size: Option<u32>,
    /// Staging buffers for what is not durable [default: 8]
    #[arg(long, alias = "pool-size", value_name = "N")]
    pub buffers: Option<u32>,
    /// Bytes of durable records kept in memory for readers at the tip [default: 8M]
    #[arg(long, value_name = "BYTES", value_parser = quantity::bytes)]
    pub tail_cache: Option<u64>,
    /// Commits in flight, at most [default: 2]
    #[arg(long, value_name = "N")]
    pub commits_in_flight: Option<u32>,
    /// An entry of the sparse index for so many bytes [default: 64K]
    #[arg(long, alias = "index-sparse-bytes", value_name = "BYTES", value_parser = quantity::small_bytes)]
    pub index_bytes: Option<u32>,
    /// ... and for so many records [default: 1024]
    #[arg(long, alias = "index-sparse-count", value_name = "N")]
    pub index_records: Option<u32>,
    /// The records after which a segment is full, too [default: no such limit]
    #[arg(long, alias = "page-capacity", value_name = "N")]
    pub segment_records: Option<u64>,
    #[command(flatten)]
    pub keeping: KeepingArguments,
    /// What the records' bytes follow from
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// What the readers expect, when that shall not be what is written: shows that they look
    #[arg(long, hide = true, value_name = "N")]
    pub expect_seed: Option<u64>,
    #[command(flatten)]
    pub writing: WritingArguments,
}

/// How a log was left before it is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum After {
    Close,
    Kill,
}

impl After {
    /// As in `params.after`.
    pub fn name(self) -> &'static str {
        match self {
            After::Close => "close",
            After::Kill => "kill",
        }
    }
}

impl LogBenchArguments {
    /// Refuses what makes no sense.
    pub fn check(&self) -> Outcome {
        let reads = self.readers.is_some() || self.catchup;
        if self.writers > 1 && reads {
            return Err(Failure::usage(
                "readers know what to expect of one writer: use --writers 1 with --readers and --catchup",
            ));
        }
        if self.after.is_some() && !self.open {
            return Err(Failure::usage("--after is for --open"));
        }
        if self.verify.is_some() && !reads {
            return Err(Failure::usage("--verify is for --readers and --catchup"));
        }
        if self.follower && !reads {
            return Err(Failure::usage("--follower is for --readers and --catchup"));
        }
        if self.bytes.is_some() && !self.open && !self.catchup {
            return Err(Failure::usage("--bytes is for --open and --catchup"));
        }
        if let Some(rate @ 1..) = self.rate {
            let append = u64::from(self.batch()) * u64::from(*self.size.end());
            let seconds = self.seconds.unwrap_or(SECONDS);
            if self.count.is_none() && rate as f64 * seconds < (2 * append) as f64 {
                return Err(Failure::usage(format!(
                    "at --rate {rate} two appends of {append} bytes take more than {seconds} s: use a \
                     smaller --batch, more --seconds, or --rate 0"
                )));
            }
        }
        let least = 2 * u64::from(self.writers);
        if self.readers.is_none() && self.count.is_some_and(|count| count < least) {
            return Err(Failure::usage(format!(
                "{} callers make {least} records at least: use --count {least} or more",
                self.writers
            )));
        }
        let keeps = self.keeping.retention() != esker_log::Retention::NONE;
        let more = self.open || self.catchup || self.readers.is_some();
        if more && (keeps || self.delay > 0 || self.no_disk) {
            return Err(Failure::usage(
                "--retain-..., --delay and --no-disk are for appending, not for --open, --readers or \
                 --catchup",
            ));
        }
        if self.writers > 1 && (*self.size.start() as usize) < HEAD {
            return Err(Failure::usage(format!(
                "records of less than {HEAD} bytes cannot tell their writer, so that they could not be \
                 compared: use --size {HEAD} or more, or one writer"
            )));
        }
        Ok(())
    }

    /// The options of the log: the defaults, but for what was asked for and what the size needs.
    pub fn options(&self) -> Options {
        let mut options = self.writing.options();
        if self.writing.record_limit.is_none() {
            options.record_limit = options.record_limit.max(*self.size.end());
        }
        options.buffer_size = self.buffer_size.unwrap_or(options.buffer_size);
        options.buffers = self.buffers.unwrap_or(options.buffers);
        options.commits_in_flight = self.commits_in_flight.unwrap_or(options.commits_in_flight);
        options.index_bytes = self.index_bytes.unwrap_or(options.index_bytes);
        options.index_records = self.index_records.unwrap_or(options.index_records);
        options.tail_cache = self.tail_cache.unwrap_or(options.tail_cache);
        options.segment_records = self.segment_records;
        options.retention = self.keeping.retention();
        options.huge_pages = self.huge_pages;
        options.pin = self.pin;
        options
    }

    /// Records in one call.
    pub fn batch(&self) -> u32 {
        self.batch.unwrap_or(if self.catchup { CATCHUP_BATCH } else { 1 })
    }

    /// How much a reader checks.
    pub fn verify(&self) -> Verify {
        self.verify.unwrap_or_default()
    }

    /// Pieces of one transfer in flight, where there is a ring to have them.
    pub fn queue_depth(&self) -> Option<usize> {
        let asked = self.writing.queue_depth.map(usize::from);
        #[cfg(target_os = "linux")]
        if self.writing.disk == crate::choices::DiskChoice::Uring {
            return asked.or(Some(esker_disk::uring::UringOptions::default().in_flight));
        }
        asked
    }

    /// What the records follow from.
    pub fn recipe(&self) -> Recipe {
        Recipe { seed: self.seed, sizes: self.size.clone() }
    }

    /// What the readers expect.
    pub fn expected_recipe(&self) -> Recipe {
        Recipe { seed: self.expect_seed.unwrap_or(self.seed), ..self.recipe() }
    }

    /// The size as it is typed.
    pub fn size_name(&self) -> Value {
        let (least, most) = (*self.size.start(), *self.size.end());
        if least == most { json!(least) } else { json!(format!("{least}..{most}")) }
    }

    /// The parameters that every figure carries.
    pub fn params(&self, options: &Options) -> Map<String, Value> {
        let mut params = Map::new();
        let mut put = |name: &str, value: Value| {
            params.insert(name.into(), value);
        };
        put("size", self.size_name());
        put("policy", json!(quantity::policy_name(options.policy)));
        put("segment_size", json!(options.segment_size));
        put("segment_records", json!(options.segment_records));
        put("retain_segments", json!(options.retention.segments));
        put("retain_bytes", json!(options.retention.bytes));
        put("retain_age_s", json!(options.retention.age.map(|age| age.as_secs_f64())));
        put("tail_cache", json!(options.tail_cache));
        put("queue_depth", json!(self.queue_depth()));
        put("huge_pages", json!(options.huge_pages));
        put("pin", json!(options.pin));
        put("record_limit", json!(options.record_limit));
        put("buffer_size", json!(options.buffer_size));
        put("buffers", json!(options.buffers));
        put("commits_in_flight", json!(options.commits_in_flight));
        put("index_bytes", json!(options.index_bytes));
        put("index_records", json!(options.index_records));
        put("seed", json!(self.seed));
        params
    }
}
