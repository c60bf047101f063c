//! The arguments of `esker-bench log`.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use esker_log::Options;
use serde_json::{Map, Value, json};

use crate::measure::keys::keys;
use crate::records::payload::{HEADER_BYTES, Recipe};
use crate::records::verify::Verify;
use esker_command::exit::{Failure, Outcome};
use esker_command::log_options::{RetentionArguments, WritingArguments};
use esker_command::quantity;

/// Records per call when writing the log for a catch-up.
const CATCHUP_BATCH: u32 = 64;

/// The default length of the timed part, in seconds.
pub const SECONDS: f64 = 5.0;

const EXAMPLES: &str = "\
Examples:
  # 100 concurrent callers, each waiting until its record of 900 bytes is
  # durable
  esker-bench log --writers 100 --size 900

  # One pipelined writer with one barrier at the end; JSON output
  esker-bench log --async --size 128 --seconds 2 --json

  # 20 threads, records of 512 bytes to 1 MiB, on another disk
  esker-bench log --writers 20 --size 512..1M --blocking --dir /data/bench

  # A ring of 4 segments, with these segment and index sizes; the retained
  # records are compared
  esker-bench log --retain-segments 4 --segment-size 16M \\
    --index-bytes 128K --count 1000000

  # The CPU cost of the log per record of 90 bytes, without a disk
  esker-bench log --no-disk --async --size 90 --buffer-size 1M

  # How long opening takes, after a clean close and after a kill
  esker-bench log --open --bytes 10000000000

  # 3,000 readers at the tip of a log that grows by 10 MB/s, in appends of
  # 2,048 records
  esker-bench log --readers 3000 --rate 10000000 --batch 2048 --size 1000

  # The memory of 10,000 idle readers (idle_bytes_per_reader), and the time
  # until one append has reached all of them (lag_max_us): with --rate 0 each
  # append starts when all are idle
  esker-bench log --readers 10000 --rate 0

  # How fast a reader catches up from the disk, alone and beside a writer at
  # full speed
  esker-bench log --catchup

  # The same in another process, from the disk and at the tip of a log that
  # grows by 100 MB/s
  esker-bench log --catchup --follower
  esker-bench log --readers 1 --rate 100000000 --batch 100 --follower

  # How long it takes to set the named offsets of consumers durably
  esker-bench log --offsets --seconds 3

All records are read back after the run and compared; with --catchup, while they are read. The hardware \
floor is sampled before, during and after the run.";

/// Arguments of `esker-bench log`.
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
    /// Callers are OS threads instead of async tasks
    #[arg(long)]
    pub blocking: bool,
    /// Callers do not wait for durability; one barrier at the end, inside the timed part
    #[arg(long = "async")]
    pub pipelined: bool,
    /// The pause of each caller between its calls, in milliseconds or as 1s; in no latency
    #[arg(long, value_name = "MS", default_value_t = 0, value_parser = quantity::millis(0..=60_000))]
    pub delay: u64,
    /// Discard segment writes, to measure the CPU cost of the log; never verified
    #[arg(long, conflicts_with_all = ["open", "keep", "disk"])]
    pub no_disk: bool,
    /// Staging buffers on huge pages; --buffer-size is then a multiple of their size, usually 2M
    #[arg(long)]
    pub huge_pages: bool,
    /// Pin the commit threads to this processor, counted from 0
    #[arg(long, value_name = "CORE")]
    pub pin: Option<usize>,
    /// Benchmark this many readers at the tip while one writer appends
    #[arg(long, value_name = "N", conflicts_with_all = ["pipelined", "open", "catchup"], value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub readers: Option<u32>,
    /// With --readers: payload bytes appended per second, evenly; 0: each append starts when all
    /// readers are idle [default: each append starts when the previous one is durable]
    #[arg(long, requires = "readers", value_name = "BYTES_PER_S", value_parser = quantity::bytes)]
    pub rate: Option<u64>,
    /// The check of each record: header is number and length of each record, and every 64th in full
    /// [default: header]
    #[arg(long, value_enum, hide_possible_values = true, value_name = "none|header|full")]
    pub verify: Option<Verify>,
    /// Benchmark a reader that catches up from the oldest record, alone and beside a writer
    #[arg(long, conflicts_with_all = ["open", "blocking", "pipelined", "count"])]
    pub catchup: bool,
    /// With --catchup or --readers: another process reads the log as well
    #[arg(long)]
    pub follower: bool,
    /// Benchmark named offsets of consumers: one caller that sets one or 1,000 in a call, and 100
    /// and 1,000 threads that each set their own
    #[arg(long, conflicts_with_all = ["open", "catchup", "readers", "pipelined", "blocking", "batch", "writers", "size", "no_disk"])]
    pub offsets: bool,
    /// Benchmark opening, after a clean close and after a kill
    #[arg(long, conflicts_with_all = ["pipelined", "blocking", "batch", "writers", "seconds", "count"])]
    pub open: bool,
    /// With --open: only after `close`, or only after `kill`
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
    /// The records of the timed part, over all callers; at least two per caller
    #[arg(long, value_name = "N", value_parser = quantity::count)]
    pub count: Option<u64>,
    /// Working directory; created, and removed at the end
    #[arg(long, alias = "path", value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Keep the log: in --dir, or in esker-bench-N of the current directory
    #[arg(long)]
    pub keep: bool,
    /// Print one JSON object per figure, and nothing else, on standard output
    #[arg(long)]
    pub json: bool,
    /// The size of a staging buffer, rounded down to a multiple of 4096 [default: 4M]
    #[arg(long, alias = "buf-capacity", value_name = "BYTES", value_parser = quantity::blocks)]
    pub buffer_size: Option<u32>,
    /// Staging buffers for records that are not yet durable [default: 8]
    #[arg(long, alias = "pool-size", value_name = "N")]
    pub buffers: Option<u32>,
    /// Bytes of durable records kept in memory for readers at the tip [default: 8M]
    #[arg(long, value_name = "BYTES", value_parser = quantity::bytes)]
    pub tail_cache: Option<u64>,
    /// The most commits in flight [default: 2]
    #[arg(long, value_name = "N")]
    pub commits_in_flight: Option<u32>,
    /// Bytes between two entries of the sparse index [default: 64K]
    #[arg(long, alias = "index-sparse-bytes", value_name = "BYTES", value_parser = quantity::small_bytes)]
    pub index_bytes: Option<u32>,
    /// Records between two entries of the sparse index [default: 1024]
    #[arg(long, alias = "index-sparse-count", value_name = "N")]
    pub index_records: Option<u32>,
    /// The records at which a segment is full as well [default: no such limit]
    #[arg(long, alias = "page-capacity", value_name = "N")]
    pub segment_records: Option<u64>,
    /// The seed of the records' bytes
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// The seed that readers expect, to test that they compare
    #[arg(long, hide = true, value_name = "N")]
    pub expect_seed: Option<u64>,
    // Last: what follows would be below their headings in the help.
    #[command(flatten)]
    pub retention: RetentionArguments,
    #[command(flatten)]
    pub writing: WritingArguments,
}

/// How the log was shut down before it is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum After {
    Close,
    Kill,
}

impl After {
    /// Returns the value of `params.after`.
    pub fn name(self) -> &'static str {
        match self {
            After::Close => "close",
            After::Kill => "kill",
        }
    }
}

impl LogBenchArguments {
    /// Rejects contradicting flags.
    pub fn check(&self) -> Outcome {
        let reads = self.readers.is_some() || self.catchup;
        if self.writers > 1 && reads {
            return Err(Failure::usage(
                "readers can verify the records of one writer only: use --writers 1 with --readers and --catchup",
            ));
        }
        if self.after.is_some() && !self.open {
            return Err(Failure::usage("--after needs --open"));
        }
        if self.verify.is_some() && !reads {
            return Err(Failure::usage("--verify needs --readers or --catchup"));
        }
        if self.follower && !reads {
            return Err(Failure::usage("--follower needs --readers or --catchup"));
        }
        if self.bytes.is_some() && !self.open && !self.catchup {
            return Err(Failure::usage("--bytes needs --open or --catchup"));
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
                "{} callers append at least {least} records: use --count {least} or more",
                self.writers
            )));
        }
        let has_retention = self.retention.retention() != esker_log::Retention::NONE;
        let appends_only = !self.open && !self.catchup && !self.offsets && self.readers.is_none();
        if !appends_only && (has_retention || self.delay > 0 || self.no_disk) {
            return Err(Failure::usage(
                "--retain-..., --delay and --no-disk cannot be combined with --open, --readers, --catchup or --offsets",
            ));
        }
        if self.writers > 1 && (*self.size.start() as usize) < HEADER_BYTES {
            return Err(Failure::usage(format!(
                "records of less than {HEADER_BYTES} bytes cannot name their writer and cannot be compared: use --size \
                 {HEADER_BYTES} or more, or one writer"
            )));
        }
        Ok(())
    }

    /// Returns the options of the log: the defaults, changed by flags and by the size of records.
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
        options.retention = self.retention.retention();
        options.huge_pages = self.huge_pages;
        options.pin = self.pin;
        options
    }

    /// Returns the records in one call.
    pub fn batch(&self) -> u32 {
        self.batch.unwrap_or(if self.catchup { CATCHUP_BATCH } else { 1 })
    }

    /// Returns what a reader checks.
    pub fn verify(&self) -> Verify {
        self.verify.unwrap_or_default()
    }

    /// Returns the chunks of one transfer in flight, with io_uring.
    pub fn queue_depth(&self) -> Option<usize> {
        let requested = self.writing.io.queue_depth.map(usize::from);
        #[cfg(target_os = "linux")]
        if self.writing.io.disk == esker_command::choices::DiskChoice::Uring {
            return requested.or(Some(esker_disk::uring::UringOptions::default().in_flight));
        }
        requested
    }

    /// Returns what determines the records.
    pub fn recipe(&self) -> Recipe {
        Recipe::new(self.seed, self.size.clone())
    }

    /// Returns what determines the records that readers expect.
    pub fn expected_recipe(&self) -> Recipe {
        Recipe { seed: self.expect_seed.unwrap_or(self.seed), ..self.recipe() }
    }

    /// Returns the size as typed on the command line.
    pub fn size_name(&self) -> Value {
        let (least, most) = (*self.size.start(), *self.size.end());
        if least == most { json!(least) } else { json!(format!("{least}..{most}")) }
    }

    /// Returns the parameters that every figure reports.
    pub fn params(&self, options: &Options) -> Map<String, Value> {
        keys([
            ("size", self.size_name()),
            ("policy", json!(quantity::policy_name(options.policy))),
            ("segment_size", json!(options.segment_size)),
            ("segment_records", json!(options.segment_records)),
            ("retain_segments", json!(options.retention.segments)),
            ("retain_bytes", json!(options.retention.bytes)),
            ("retain_age_s", json!(options.retention.age.map(|age| age.as_secs_f64()))),
            ("tail_cache", json!(options.tail_cache)),
            ("queue_depth", json!(self.queue_depth())),
            ("huge_pages", json!(options.huge_pages)),
            ("pin", json!(options.pin)),
            ("record_limit", json!(options.record_limit)),
            ("buffer_size", json!(options.buffer_size)),
            ("buffers", json!(options.buffers)),
            ("commits_in_flight", json!(options.commits_in_flight)),
            ("index_bytes", json!(options.index_bytes)),
            ("index_records", json!(options.index_records)),
            ("seed", json!(self.seed)),
        ])
    }
}
