//! Command line flags for log options, and messages about recovery at open.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
#[cfg(target_os = "linux")]
use esker_disk::uring::{UringDisk, UringOptions};
use esker_disk::{Disk, Readers, StdDisk};
use esker_log::{Direct, Log, Options, Policy, PriorShutdown, Retention};

use crate::choices::{Choice, DiskChoice, ReadableBy};
use crate::exit::{Failure, Outcome, complain};
use crate::quantity;

/// When commits happen, and how they are written.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Storage")]
pub struct WritingArguments {
    /// When a commit happens without a request: always, batch:N, periodic:MS, os
    #[arg(long, value_name = "POLICY", default_value = "always", value_parser = quantity::policy)]
    pub policy: Policy,
    /// The largest record, at most 64M and 4K [default: 1M]
    #[arg(long, value_name = "BYTES", value_parser = quantity::small_bytes)]
    pub record_limit: Option<u32>,
    /// How files are read and written.
    #[command(flatten)]
    pub io: IoArguments,
}

/// How commits are written.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Storage")]
pub struct IoArguments {
    /// The size at which a segment is full, 64K to 512M, rounded down to a multiple of 4096. M is
    /// 2^20 bytes, MB 10^6 [default: 64M]
    #[arg(long, value_name = "BYTES", value_parser = quantity::blocks)]
    pub segment_size: Option<u32>,
    /// Standard I/O, io_uring, or the faster one (standard I/O)
    #[arg(
        long,
        value_enum,
        default_value_t,
        hide_possible_values = true,
        value_name = "std|uring|auto"
    )]
    pub disk: DiskChoice,
    /// Bypass the page cache (O_DIRECT)
    #[arg(
        long,
        value_enum,
        default_value_t,
        hide_possible_values = true,
        value_name = "on|off|auto"
    )]
    pub direct: Choice,
    /// Open segments with O_DSYNC, so that a commit is one write; off: a write and an fdatasync
    /// [default: on where the policy makes every commit durable]
    #[arg(
        long,
        alias = "o-dsync",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "on",
        hide_possible_values = true,
        value_name = "on|off|auto"
    )]
    pub dsync: Option<Choice>,
    /// Who may read what is created, besides its owner: no one, the group (0640, 0750), or all
    /// (0644, 0755)
    #[arg(
        long,
        value_enum,
        default_value_t,
        hide_possible_values = true,
        value_name = "owner|group|all"
    )]
    pub readable_by: ReadableBy,
    /// With --disk uring: chunks of one transfer in flight, 1 to 16 [default: 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=16))]
    pub queue_depth: Option<u8>,
}

/// Retention limits.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Retention")]
pub struct RetentionArguments {
    /// Retain at most this many bytes, in whole segments; the oldest are removed first. G is 2^30
    /// bytes, GB 10^9
    #[arg(long, value_name = "BYTES", value_parser = quantity::bytes)]
    pub retain_bytes: Option<u64>,
    /// Retain at most this many segments
    #[arg(long, alias = "ring-size", value_name = "N")]
    pub retain_segments: Option<u64>,
    /// Remove records that are older than this: 90 (seconds), 15m, 12h, 7d
    #[arg(long, value_name = "TIME", value_parser = quantity::time)]
    pub retain_age: Option<Duration>,
}

impl RetentionArguments {
    /// Converts to the library's type; without limits everything is retained.
    pub fn retention(&self) -> Retention {
        let mut retention = Retention::NONE;
        retention.bytes = self.retain_bytes;
        retention.segments = self.retain_segments;
        retention.age = self.retain_age;
        retention
    }
}

impl WritingArguments {
    /// Converts to the library's options.
    pub fn options(&self) -> Options {
        let mut options = self.io.options();
        options.policy = self.policy;
        options.record_limit = self.record_limit.unwrap_or(options.record_limit);
        options
    }
}

impl IoArguments {
    /// Converts to the library's options.
    pub fn options(&self) -> Options {
        let mut options = Options::default();
        options.segment_size = self.segment_size.unwrap_or(options.segment_size);
        options.direct = match self.direct {
            Choice::On => Direct::On,
            Choice::Off => Direct::Off,
            Choice::Auto => Direct::Auto,
        };
        options.dsync = match self.dsync {
            Some(Choice::On) => true,
            Some(Choice::Off) => false,
            Some(Choice::Auto) | None => options.dsync,
        };
        if self.queue_depth.is_some() && self.disk != DiskChoice::Uring {
            complain("note: --queue-depth has no effect without --disk uring");
        }
        let readers = self.readable_by.into();
        options.disk = match self.disk {
            DiskChoice::Uring => uring(self.queue_depth, readers),
            DiskChoice::Std | DiskChoice::Auto => Arc::new(StdDisk::new().readable_by(readers)),
        };
        options
    }
}

#[cfg(target_os = "linux")]
fn uring(queue_depth: Option<u8>, readers: Readers) -> Arc<dyn Disk> {
    let mut options = UringOptions::default();
    options.in_flight = queue_depth.map_or(options.in_flight, usize::from);
    options.readers = readers;
    let (disk, unavailable) = UringDisk::or_std(options);
    if let Some(why) = unavailable {
        complain(&format!("note: io_uring unavailable ({why}); using standard I/O"));
    }
    disk
}

#[cfg(not(target_os = "linux"))]
fn uring(_: Option<u8>, readers: Readers) -> Arc<dyn Disk> {
    complain("note: io_uring is available on Linux only; using standard I/O");
    Arc::new(StdDisk::new().readable_by(readers))
}

/// Opens a log for writing. Prints a note when the last writer did not close it.
pub fn for_writing(dir: &Path, options: Options) -> Outcome<Log> {
    let log = Log::builder(dir)
        .options(options)
        .open()
        .map_err(|error| Failure::from_log(&error.into(), dir))?;
    let recovery = log.storage().recovery();
    if recovery.prior_shutdown == PriorShutdown::Unclean {
        let cut = match &recovery.truncated_tail {
            Some(cut) => format!(
                "; cut {} bytes that were never durable from {} at byte {} ({})",
                cut.bytes,
                cut.file.display(),
                cut.offset,
                cut.what
            ),
            None => String::new(),
        };
        // A repair clears the mark of the clean close as well.
        let (was, repaired) = match log.storage().was_repaired() {
            Ok(true) => (
                "was repaired or not closed cleanly",
                "; `esker verify` lists the records that a repair quarantined",
            ),
            Ok(false) | Err(_) => ("was not closed cleanly", ""),
        };
        complain(&format!(
            "note: {} {was}; recovered through record {}{cut}{repaired}",
            dir.display(),
            recovery.last
        ));
    }
    Ok(log)
}
