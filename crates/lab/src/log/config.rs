//! The kinds of logs and disks that the suite goes through.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;

use esker_disk::Disk;
use esker_disk::sim::{CacheAfterFailedSync, Sector, SimDisk, SimOptions};
use esker_log::{Direct, Engine, OpenCheck, Options, Policy, Retention};
use esker_testkit::SplitMix64;

use super::{BATCH_RECORDS, SYNC_PERIOD};

/// A log's options and its disk's, small enough that segments turn often.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    pub policy: Policy,
    pub sector: Sector,
    pub direct: bool,
    pub dsync: bool,
    pub cache: CacheAfterFailedSync,
    pub buffer_size: u32,
    pub buffers: u32,
    pub tail_cache: u64,
    pub retention: Retention,
    pub segment_records: Option<u64>,
    pub reserve: Option<u64>,
    pub validate: OpenCheck,
}

pub const SEGMENT_BYTES: u32 = 64 << 10;
/// The usual size of a unit, where a buffer holds one and where it holds four.
pub const UNIT_BYTES: u32 = 8 << 10;

pub const fn batch() -> Policy {
    Policy::Batch(NonZeroU64::MIN.saturating_add(BATCH_RECORDS - 1))
}

pub fn policies() -> [Policy; 4] {
    [Policy::Always, batch(), Policy::Periodic(SYNC_PERIOD), Policy::OsBuffered]
}

pub const SECTORS: [Sector; 2] = [Sector::B512, Sector::B4096];

/// Direct I/O and O_DSYNC, on or off.
pub const WAYS: [(bool, bool); 4] = [(true, true), (true, false), (false, true), (false, false)];

/// Keeps so many segments.
pub fn segments(most: u64) -> Retention {
    let mut retention = Retention::NONE;
    retention.segments = Some(most);
    retention
}

/// Keeps so many bytes.
pub fn bytes(most: u64) -> Retention {
    let mut retention = Retention::NONE;
    retention.bytes = Some(most);
    retention
}

/// Keeps so many records.
pub fn records(most: u64) -> Retention {
    let mut retention = Retention::NONE;
    retention.records = Some(most);
    retention
}

impl Config {
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            sector: Sector::B4096,
            direct: true,
            dsync: true,
            cache: CacheAfterFailedSync::NewStaysReadable,
            buffer_size: 4 * UNIT_BYTES,
            buffers: 4,
            tail_cache: 32 << 10,
            retention: Retention::NONE,
            segment_records: None,
            reserve: None,
            validate: OpenCheck::Quick,
        }
    }

    pub fn sector(self, sector: Sector) -> Self {
        Self { sector, ..self }
    }

    pub fn way(self, (direct, dsync): (bool, bool)) -> Self {
        Self { direct, dsync, ..self }
    }

    pub fn cache(self, cache: CacheAfterFailedSync) -> Self {
        Self { cache, ..self }
    }

    pub fn retention(self, retention: Retention) -> Self {
        Self { retention, ..self }
    }

    /// Any of all.
    pub fn any(rng: &mut SplitMix64) -> Self {
        let caches = [CacheAfterFailedSync::NewStaysReadable, CacheAfterFailedSync::OldComesBack];
        let kept = [
            Retention::NONE,
            Retention::NONE,
            Retention::NONE,
            segments(2),
            segments(5),
            bytes(6 * u64::from(SEGMENT_BYTES)),
            records(20),
        ];
        Self {
            policy: rng.pick(&policies()),
            sector: rng.pick(&SECTORS),
            direct: rng.percent(50),
            dsync: rng.percent(50),
            cache: rng.pick(&caches),
            buffer_size: rng.pick(&[UNIT_BYTES, 2 * UNIT_BYTES, 4 * UNIT_BYTES, 4 * UNIT_BYTES]),
            buffers: 2 + rng.below(5) as u32,
            tail_cache: rng.pick(&[0, 32 << 10, 8 << 20]),
            retention: rng.pick(&kept),
            segment_records: rng.pick(&[None, None, Some(3), Some(9)]),
            reserve: None,
            validate: rng.pick(&[OpenCheck::Quick, OpenCheck::Quick, OpenCheck::Full]),
        }
    }

    /// All policies, sectors and ways, where the policy makes a difference of them.
    pub fn every() -> Vec<Self> {
        let mut all = Vec::new();
        for policy in policies() {
            for sector in SECTORS {
                for way in WAYS {
                    let os = policy == Policy::OsBuffered;
                    if os && way != (true, true) && way != (false, false) {
                        continue;
                    }
                    all.push(Self::new(policy).sector(sector).way(way));
                }
            }
        }
        all
    }

    pub fn disk(&self, seed: u64) -> SimDisk {
        let options = SimOptions::new(seed).sector(self.sector).cache_after_failed_sync(self.cache);
        SimDisk::with(options)
    }

    pub fn options(&self, disk: Arc<dyn Disk>, engine: &Engine) -> Options {
        let mut options = Options::on(disk);
        options.engine = Some(engine.clone());
        options.policy = self.policy;
        options.retention = self.retention;
        options.segment_size = SEGMENT_BYTES;
        options.segment_records = self.segment_records;
        options.reserve = self.reserve;
        options.buffer_size = self.buffer_size;
        options.buffers = self.buffers;
        options.tail_cache = self.tail_cache;
        options.index_bytes = 4096;
        options.index_records = 4;
        options.direct = if self.direct { Direct::Auto } else { Direct::Off };
        options.dsync = self.dsync;
        options.check = self.validate;
        options
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let policy = match self.policy {
            Policy::Always => "always",
            Policy::Batch(_) => "batch",
            Policy::Periodic(_) => "periodic",
            Policy::OsBuffered => "os",
            _ => "unknown",
        };
        write!(f, "{policy} {}", self.sector.bytes())?;
        for (on, what) in [(self.direct, "direct"), (self.dsync, "dsync")] {
            if on {
                write!(f, " {what}")?;
            }
        }
        if self.cache == CacheAfterFailedSync::OldComesBack {
            f.write_str(" old-cache")?;
        }
        write!(f, " buffers-of-{}", self.buffer_size)?;
        if let Some(records) = self.segment_records {
            write!(f, " segments-of-{records}")?;
        }
        let Retention { bytes, segments, records, .. } = self.retention;
        for (limit, what) in [(bytes, "bytes"), (segments, "segments"), (records, "records")] {
            if let Some(limit) = limit {
                write!(f, " {what}<={limit}")?;
            }
        }
        Ok(())
    }
}
