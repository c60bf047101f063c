//! The options of a store, and the builder that opens it with them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use esker_disk::Disk;
use esker_log::{
    Component, Engine, InvalidOption, OnCorruption, OpenCheck, Options as LogOptions, Policy,
    RESERVE_KEPT_MOST, RESERVE_MAX, Retention,
};

#[cfg(doc)]
use crate::base::operation_errors::WriteError;
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
    /// The most bytes of values in the value cache. Default 256 MiB, or a quarter of the memory of
    /// the machine, whichever is less. Values of up to a quarter of it are cached.
    pub cache_bytes: u64,
    /// The most bytes of memory for versions that were overwritten while a snapshot was open.
    /// When there are more, the oldest snapshots expire. Default 64 MiB.
    pub history_bytes: u64,
    /// The most bytes of memory for the entries of the index, which is taken in slabs of 4 MiB.
    /// When the last slab that fits is begun, a put of a new key returns [`WriteError::IndexFull`].
    /// Opening does not obey it. From 8 MiB, which has room for about 75,000 keys of 16 bytes, to
    /// 31 GiB. Default 31 GiB.
    pub index_bytes: u64,
    /// The time for which a snapshot keeps cleaning from dropping what it may read. After that it
    /// expires if it is in the way. Default one minute.
    pub snapshot_timeout: Duration,
    /// Whether space is reclaimed in the background. Default `true`. Otherwise only
    /// [`Store::compact`](crate::Store::compact) reclaims it.
    pub clean: bool,
    /// The options of the log: policy, disk, engine, segments and memory. The store sets
    /// `component` and `record_limit` itself, and cleaning takes the place of `retention`; these
    /// stay at their defaults. Others have a meaning of their own in a store:
    ///
    /// - `segment_size`: cleaning frees whole segments.
    /// - `reserve`: half of it, at most 16 MiB, is for opening; the rest is for deletes and
    ///   cleaning, which copies a segment within it. Default 16 MiB and one and a half times
    ///   `segment_size`; at least 33 MiB, at most 512 MiB.
    /// - `read_cache`: for readers in order, which are opening, cleaning and watch.
    /// - `on_corruption`: with [`OnCorruption::Quarantine`] opening checks everything, as with
    ///   [`OpenCheck::Full`], and quarantines the corrupt records; see
    ///   [`Store::quarantined`](crate::Store::quarantined). [`OnCorruption::Truncate`] is refused:
    ///   it would lose keys of any age without a trace.
    pub log: LogOptions,
}

const _: () = assert!(ENTRIES_BYTES_MIN == 8 << 20, "the least of `index_bytes`, in its rule");
const _: () = assert!(ENTRIES_BYTES_MAX == 31 << 30, "the most of `index_bytes`, in its rule");
const _: () = assert!(RECORD_BYTES_MAX <= u32::MAX as usize, "the limit of a record is a u32");

impl Default for Options {
    fn default() -> Self {
        Self {
            cache_bytes: (256 << 20).min(machine_memory() / 4),
            history_bytes: 64 << 20,
            index_bytes: ENTRIES_BYTES_MAX,
            snapshot_timeout: Duration::from_secs(60),
            clean: true,
            log: LogOptions::default(),
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
        Self { log: LogOptions::on(disk), ..Self::default() }
    }

    pub(crate) fn validate(&self) -> Result<(), InvalidOption> {
        let rule = |holds, option, rule: &str| InvalidOption::unless(holds, option, rule);
        rule(self.history_bytes >= 64 << 10, "history_bytes", "at least 64 KiB")?;
        rule(
            (ENTRIES_BYTES_MIN..=ENTRIES_BYTES_MAX).contains(&self.index_bytes),
            "index_bytes",
            "from 8 MiB to 31 GiB",
        )?;
        rule(self.cache_bytes <= 1 << 40, "cache_bytes", "at most 1 TiB")?;
        let left = "left at its default: the store sets it";
        rule(self.log.component.is_none(), "component", left)?;
        rule(self.log.record_limit == LogOptions::default().record_limit, "record_limit", left)?;
        rule(
            self.log.retention == Retention::NONE,
            "retention",
            "left at its default: cleaning drops what is not live",
        )?;
        rule(
            matches!(self.log.on_corruption, OnCorruption::Fail | OnCorruption::Quarantine),
            "on_corruption",
            "Fail or Quarantine: cleaning moves records, so cutting off a tail loses keys of any \
             age",
        )
    }

    /// The reserve in which cleaning a full disk can copy a whole segment, and no less than that of
    /// a log.
    fn default_reserve(&self) -> u64 {
        let segment = u64::from(self.log.segment_size);
        self.log.reserve_bytes().max(RESERVE_KEPT_MOST + segment + segment / 2).min(RESERVE_MAX)
    }

    pub(crate) fn for_log(&self) -> LogOptions {
        let mut options = self.log.clone();
        options.component = Some(COMPONENT);
        options.record_limit = RECORD_BYTES_MAX as u32;
        options.reserve = options.reserve.or_else(|| Some(self.default_reserve()));
        if options.on_corruption != OnCorruption::Fail {
            // Otherwise the log quarantines only what it finds, and the replay fails at the rest.
            options.check = OpenCheck::Full;
        }
        options
    }
}

/// Opens a store with options; from [`Store::builder`](crate::Store::builder).
///
/// The options of the store, and those of the log that most programs set, have a setter of the same
/// name; [`StoreBuilder::log`] sets the others. [`Options`] describes them.
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

    /// Replaces all options.
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Replaces all options of the log, those with a setter here too; so call it before them.
    ///
    /// # Examples
    /// ```
    /// use esker_kv::{LogOptions, Store};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let dir = dir.path().join("store");
    /// let mut log = LogOptions::default();
    /// log.buffer_size = 1 << 20;
    /// let store = Store::builder(&dir).log(log).segment_size(16 << 20).open()?;
    /// # store.close()?;
    /// # Ok::<(), esker_kv::Error>(())
    /// ```
    pub fn log(mut self, log: LogOptions) -> Self {
        self.options.log = log;
        self
    }

    /// Sets [`Options::cache_bytes`].
    pub fn cache_bytes(mut self, cache_bytes: u64) -> Self {
        self.options.cache_bytes = cache_bytes;
        self
    }

    /// Sets [`Options::history_bytes`].
    pub fn history_bytes(mut self, history_bytes: u64) -> Self {
        self.options.history_bytes = history_bytes;
        self
    }

    /// Sets [`Options::index_bytes`].
    pub fn index_bytes(mut self, index_bytes: u64) -> Self {
        self.options.index_bytes = index_bytes;
        self
    }

    /// Sets [`Options::snapshot_timeout`].
    pub fn snapshot_timeout(mut self, snapshot_timeout: Duration) -> Self {
        self.options.snapshot_timeout = snapshot_timeout;
        self
    }

    /// Sets [`Options::clean`].
    pub fn clean(mut self, clean: bool) -> Self {
        self.options.clean = clean;
        self
    }

    /// Sets [`LogOptions::policy`].
    pub fn policy(mut self, policy: Policy) -> Self {
        self.options.log.policy = policy;
        self
    }

    /// Sets [`LogOptions::segment_size`].
    pub fn segment_size(mut self, segment_size: u32) -> Self {
        self.options.log.segment_size = segment_size;
        self
    }

    /// Sets [`LogOptions::reserve`].
    pub fn reserve(mut self, reserve: u64) -> Self {
        self.options.log.reserve = Some(reserve);
        self
    }

    /// Sets [`LogOptions::on_corruption`].
    pub fn on_corruption(mut self, on_corruption: OnCorruption) -> Self {
        self.options.log.on_corruption = on_corruption;
        self
    }

    /// Sets [`LogOptions::must_exist`].
    pub fn must_exist(mut self, must_exist: bool) -> Self {
        self.options.log.must_exist = must_exist;
        self
    }

    /// Sets [`LogOptions::disk`].
    pub fn disk(mut self, disk: Arc<dyn Disk>) -> Self {
        self.options.log.disk = disk;
        self
    }

    /// Sets [`LogOptions::engine`].
    pub fn engine(mut self, engine: Engine) -> Self {
        self.options.log.engine = Some(engine);
        self
    }
}
