//! The options of a store, and the builder that opens it with them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use esker_disk::Disk;
use esker_log::{
    Component, Direct, Engine, OnCorruption, OpenCheck, Policy, RESERVE_KEPT_MOST, RESERVE_MAX,
};

use crate::base::error::{Error, Result};
use crate::index::arena::{ENTRIES_BYTES_MAX, ENTRIES_BYTES_MIN};
use crate::record::RECORD_BYTES_MAX;

/// The component of stores.
pub const COMPONENT: Component = Component(*b"ESKRKV01");

/// Options of a store. [`Options::default`] commits every write, and suits an SSD.
///
/// Set them with a [`StoreBuilder`]. [`Store::options`](crate::Store::options) returns those of an
/// open store. No option must stay the same from one opening to the next.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// The policy: when a commit happens without a request, and so what a crash may lose. Default
    /// [`Policy::Always`].
    pub policy: Policy,
    /// The most bytes of values in the value cache. Default 256 MiB, or a quarter of the memory of
    /// the machine, whichever is less. Values of up to a quarter of it are cached.
    pub cache_bytes: u64,
    /// The most bytes of memory for versions that were overwritten while a snapshot was open.
    /// When there are more, the oldest snapshots expire. Default 64 MiB.
    pub history_bytes: u64,
    /// The most bytes of memory for the entries of the index, which is taken in slabs of 4 MiB.
    /// When the last slab that fits is begun, a put of a new key returns [`Error::IndexFull`].
    /// Opening does not obey it. From 8 MiB, which has room for about 75,000 keys of 16 bytes, to
    /// 31 GiB. Default 31 GiB.
    pub index_bytes: u64,
    /// The time for which a snapshot keeps cleaning from dropping what it may read. After that it
    /// expires if it is in the way. Default one minute.
    pub snapshot_timeout: Duration,
    /// The most bytes of the log that are cached for readers in order: opening, cleaning and watch.
    /// Default 16 MiB.
    pub read_cache: u64,
    /// Whether space is reclaimed in the background. Default `true`. Otherwise only
    /// [`Store::compact`](crate::Store::compact) reclaims it.
    pub clean: bool,
    /// The segment size of the log in bytes, 64 KiB to 512 MiB; cleaning frees whole segments.
    /// Default 64 MiB.
    pub segment_size: u32,
    /// Disk space kept reserved, in bytes, for opening, deleting and cleaning on a full disk; see
    /// [`esker_log::Options::reserve`]. Half of it, at most 16 MiB, is for opening; the rest is for
    /// deletes and cleaning, which copies a segment within it. Default 16 MiB and one and a half
    /// times `segment_size`; at least 33 MiB, at most 512 MiB.
    pub reserve: Option<u64>,
    /// The extent of the checks of opening. Default: what a crash may have left in doubt.
    pub check: OpenCheck,
    /// The reaction of opening to corruption. Default: it fails. With [`OnCorruption::Quarantine`]
    /// it checks everything, as with [`OpenCheck::Full`], and quarantines the corrupt records; see
    /// [`Store::quarantined`](crate::Store::quarantined).
    /// [`OnCorruption::Truncate`] is refused: it would lose keys of any age without a trace.
    pub on_corruption: OnCorruption,
    /// Whether opening fails where there is no store. Default `false`: opening creates one.
    pub must_exist: bool,
    /// Whether commits bypass the page cache.
    pub direct: Direct,
    /// Whether each write is durable by itself, where the file system supports it.
    pub dsync: bool,
    /// The disk that holds the store. Default: the real disk.
    pub disk: Arc<dyn Disk>,
    /// The engine that runs commits. Default: the one shared by all logs of the process.
    pub engine: Option<Engine>,
}

const _: () = assert!(ENTRIES_BYTES_MIN == 8 << 20, "the least of `index_bytes`, in its rule");
const _: () = assert!(ENTRIES_BYTES_MAX == 31 << 30, "the most of `index_bytes`, in its rule");
const _: () = assert!(RECORD_BYTES_MAX <= u32::MAX as usize, "the limit of a record is a u32");

impl Default for Options {
    fn default() -> Self {
        let log = esker_log::Options::default();
        Self {
            policy: Policy::Always,
            cache_bytes: (256 << 20).min(machine_memory() / 4),
            history_bytes: 64 << 20,
            index_bytes: ENTRIES_BYTES_MAX,
            snapshot_timeout: Duration::from_secs(60),
            read_cache: log.read_cache,
            clean: true,
            segment_size: log.segment_size,
            reserve: log.reserve,
            check: log.check,
            on_corruption: log.on_corruption,
            must_exist: false,
            direct: log.direct,
            dsync: log.dsync,
            disk: log.disk,
            engine: None,
        }
    }
}

/// The memory of the machine in bytes; the largest number where it is not known.
fn machine_memory() -> u64 {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = info.lines().find_map(|line| {
        line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    });
    kib.map_or(1 << 40, |kib| kib * 1024)
}

impl Options {
    /// Returns the default options on another disk.
    pub fn on(disk: Arc<dyn Disk>) -> Self {
        Self { disk, ..Self::default() }
    }

    pub(crate) fn validate(&self) -> Result<()> {
        let rule = |holds, option, rule: &str| {
            if holds { Ok(()) } else { Err(Error::InvalidOption { option, rule: rule.into() }) }
        };
        rule(self.history_bytes >= 64 << 10, "history_bytes", "at least 64 KiB")?;
        rule(
            (ENTRIES_BYTES_MIN..=ENTRIES_BYTES_MAX).contains(&self.index_bytes),
            "index_bytes",
            "from 8 MiB to 31 GiB",
        )?;
        rule(self.cache_bytes <= 1 << 40, "cache_bytes", "at most 1 TiB")?;
        rule(
            matches!(self.on_corruption, OnCorruption::Fail | OnCorruption::Quarantine),
            "on_corruption",
            "Fail or Quarantine: cleaning moves records, so cutting off a tail loses keys of any \
             age",
        )
    }

    /// The reserve in which cleaning a full disk can copy a whole segment, and no less than that of
    /// a log.
    fn default_reserve(&self, log: &esker_log::Options) -> u64 {
        let segment = u64::from(self.segment_size);
        log.reserve_bytes().max(RESERVE_KEPT_MOST + segment + segment / 2).min(RESERVE_MAX)
    }

    pub(crate) fn for_log(&self) -> esker_log::Options {
        let mut options = esker_log::Options::on(Arc::clone(&self.disk));
        options.policy = self.policy;
        options.record_limit = RECORD_BYTES_MAX as u32;
        options.segment_size = self.segment_size;
        options.read_cache = self.read_cache;
        options.reserve = self.reserve.or_else(|| Some(self.default_reserve(&options)));
        options.check = match self.on_corruption {
            OnCorruption::Fail => self.check,
            // Otherwise the log quarantines only what it finds, and the replay fails at the rest.
            _ => OpenCheck::Full,
        };
        options.on_corruption = self.on_corruption;
        options.must_exist = self.must_exist;
        options.component = Some(COMPONENT);
        options.direct = self.direct;
        options.dsync = self.dsync;
        options.engine.clone_from(&self.engine);
        options
    }
}

/// Opens a store with options; from [`Store::builder`](crate::Store::builder).
///
/// Each option has a setter of the same name. [`Options`] describes them.
#[derive(Debug, Clone)]
#[must_use = "a builder opens nothing until `open` is called"]
pub struct StoreBuilder {
    pub(crate) dir: PathBuf,
    pub(crate) options: Options,
}

impl StoreBuilder {
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self { dir, options: Options::default() }
    }

    esker_log::option_setters! { Options {
        policy: Policy,
        cache_bytes: u64,
        history_bytes: u64,
        index_bytes: u64,
        snapshot_timeout: Duration,
        read_cache: u64,
        clean: bool,
        segment_size: u32,
        check: OpenCheck,
        on_corruption: OnCorruption,
        must_exist: bool,
        direct: Direct,
        dsync: bool,
        disk: Arc<dyn Disk>,
        ;
        reserve: u64,
        engine: Engine,
    }}
}
