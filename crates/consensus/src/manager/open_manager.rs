//! A manager, and the builder that opens it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use esker_disk::{Dir, DirDisk, Disk};
use esker_log::{Engine, InvalidOption, ReadOptions};
use parking_lot::RwLock;

use crate::errors::manager_errors::{ManagerError, OpenError};
use crate::manager::directory_names::{REGISTRY_DIR, is_log, label_of};
use crate::manager::open_log_table::OpenLogs;
use crate::manager::registry::Registry;
use crate::options::{Mode, Options, SharedResources};
use crate::storage_error::StorageError;

/// Open logs of a manager, unless the builder says otherwise.
const OPEN_LOGS_DEFAULT: usize = 256;
/// The mutable region of one of many logs in bytes.
const MUTABLE_BYTES_DEFAULT: u64 = 2 << 20;
/// The cache of one of many logs in bytes.
const CACHE_BYTES_DEFAULT: u64 = 2 << 20;
/// Disk space that all logs keep together for a full disk.
const RESERVE_BYTES_DEFAULT: u64 = 16 << 20;

/// Many consensus logs in one directory, by key: consensus for each table, or each shard, in
/// parallel, without code of yours that opens and closes logs. Cheap to clone: all clones are the
/// same manager, and every operation may be called from any thread.
///
/// A key is any bytes, up to [`LABEL_LIMIT`](crate::LABEL_LIMIT) of them. Its log is created at its
/// first use. At most [`LogManagerBuilder::max_open`] logs stay open: above that, the ones that
/// were not used for the longest time are closed, but never one that is in use. Recency is counted
/// in openings: of the logs used since the last opening, any may be closed.
///
/// [`LogManager::get`] returns a guard. Hold it while you use the log, and release it soon: logs in
/// use cannot make room for others. Call [`LogManager::close_all`] to learn which guards are left.
///
/// # Blocking
/// `get`, `init`, `remove`, `close` and `close_all` block on the disk, `get` only for a log that is
/// not open. Run them where blocking is allowed; [`LogManager::get_if_open`] never blocks on the
/// disk. The methods about keys do no I/O.
///
/// # Examples
/// ```
/// use esker_consensus::{Ballot, LogManager, Slot};
/// # fn main() -> Result<(), esker_consensus::Error> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let dir = dir.path().join("tables");
/// let manager = LogManager::open(&dir)?;
/// let ballot = Ballot { number: 1, node: 7 };
/// for table in ["users", "orders"] {
///     let log = manager.get(table)?; // opened, or created
///     log.accept(Slot(0), ballot, b"a row")?.blocking_wait()?;
///     log.commit(Slot(0), ballot)?.blocking_wait()?;
/// } // each guard is released here
/// assert_eq!(manager.glob("user*")?, [b"users".to_vec()]);
/// Ok(manager.close_all()?)
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct LogManager {
    pub(super) inner: Arc<ManagerInner>,
}

#[derive(Debug)]
pub(super) struct ManagerInner {
    /// The directory that was opened and whose registry is locked, even if it was moved since.
    pub(super) disk: DirDisk,
    /// The options of each log.
    pub(super) options: Options,
    pub(super) max_open: usize,
    pub(super) logs: OpenLogs,
    pub(super) registry: Registry,
    pub(super) closed: AtomicBool,
    /// Held while a log is opened, and by a backup while none may be.
    pub(super) openings: RwLock<()>,
    pub(super) shared: SharedResources,
    /// The disk that the directory is on.
    pub(super) root: Arc<dyn Disk>,
}

/// Opens a manager with options; from [`LogManager::builder`].
#[derive(Debug, Clone)]
#[must_use = "a builder opens nothing until `open` is called"]
pub struct LogManagerBuilder {
    dir: PathBuf,
    max_open: usize,
    must_exist: bool,
    renumber: bool,
    options: Options,
}

impl LogManager {
    /// Opens the manager in `dir` with the default options, and creates it if there is none.
    ///
    /// In a child that `fork` makes from here on, the manager and its logs refuse every call with
    /// [`StorageError::Forked`], as [`ConsensusLog::open`](crate::ConsensusLog::open) says.
    ///
    /// # Errors
    /// As [`LogManagerBuilder::open`].
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::builder(dir).open()
    }

    /// Returns a builder that opens the manager in `dir` with other options.
    pub fn builder(dir: impl AsRef<Path>) -> LogManagerBuilder {
        let mut options = Options {
            mutable_size: MUTABLE_BYTES_DEFAULT,
            cache_size: CACHE_BYTES_DEFAULT,
            ..Options::default()
        };
        options.log.reserve = Some(RESERVE_BYTES_DEFAULT);
        let (dir, max_open) = (dir.as_ref().to_owned(), OPEN_LOGS_DEFAULT);
        LogManagerBuilder { dir, max_open, must_exist: false, renumber: false, options }
    }
}

impl LogManagerBuilder {
    /// The most logs that stay open when they are idle. Default 256; at least 1. When more are in
    /// use, more are open.
    pub fn max_open(mut self, max_open: usize) -> Self {
        self.max_open = max_open;
        self
    }

    /// Whether opening fails where there is no manager. Default `false`: opening creates one. Set
    /// it for a directory that should hold one, such as a backup.
    pub fn must_exist(mut self, must_exist: bool) -> Self {
        self.must_exist = must_exist;
        self
    }

    /// Declares that the node of these logs has a new number, which no node of its group ever had.
    /// A backup becomes an ordinary manager then, durably, before it is returned: each log in turn,
    /// as by [`ConsensusLogBuilder::renumber`](crate::ConsensusLogBuilder::renumber), and then the
    /// set of keys. After a crash some logs may be ordinary ones, and the others read-only:
    /// call it again. Logs that were repaired stay read-only, and one that is missing is passed
    /// over.
    pub fn renumber(mut self) -> Self {
        self.renumber = true;
        self
    }

    /// Sets the options of each log. The label and `must_exist` are the manager's own, and the
    /// `reserve` is one for all logs together. The manager's defaults are those of [`Options`],
    /// with a `mutable_size` and a `cache_size` of 2 MiB each and a `reserve` of 16 MiB.
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// The options so far, to be changed and passed to [`LogManagerBuilder::options`].
    pub fn current_options(&self) -> &Options {
        &self.options
    }

    /// When an accept is acknowledged: see [`Options::mode`].
    pub fn mode(mut self, mode: Mode) -> Self {
        self.options.mode = mode;
        self
    }

    /// The disk that holds the logs.
    pub fn disk(mut self, disk: Arc<dyn Disk>) -> Self {
        self.options.log.disk = disk;
        self
    }

    /// The engine that runs the commits of all logs. Default: the one shared by all logs of the
    /// process.
    pub fn engine(mut self, engine: Engine) -> Self {
        self.options.log.engine = Some(engine);
        self
    }

    /// Opens the manager, completes removals that a crash interrupted, and makes the registry again
    /// from the labels of the logs if it was lost.
    ///
    /// # Errors
    /// [`OpenError::InvalidOption`]; [`OpenError::CorruptedRegistry`],
    /// [`OpenError::UnfinishedBackup`]; [`OpenError::Storage`] with [`StorageError::Log`] when the
    /// directory is in use by another manager, holds something else, or cannot be read. With
    /// [`LogManagerBuilder::renumber`], what opening a log returns.
    pub fn open(self) -> Result<LogManager, OpenError> {
        let Self { dir, max_open, must_exist, renumber, mut options } = self;
        InvalidOption::unless(max_open > 0, "max_open", "at least 1")?;
        options.validate()?;
        InvalidOption::unless(
            options.log.shared_reserve.is_none(),
            "shared_reserve",
            "unset: the logs of a manager share its own reserve",
        )?;
        let dir = if must_exist {
            options.log.disk.open_dir(&dir)
        } else {
            options.log.disk.create_dir(&dir)
        };
        let dir = dir.map_err(StorageError::from_log)?;
        let has_registry = refuse_another(&*dir, must_exist)?;
        let (disk, root) = (DirDisk::new(dir), Arc::clone(&options.log.disk));
        options.log.disk = Arc::new(disk.clone());
        let registry = Registry::open(&disk, &options, must_exist && has_registry)?;
        if has_registry && !registry.is_whole() {
            tracing::warn!("the registry is made again from the labels of the logs");
        }
        collect_labels(&disk, &registry)?;
        let (logs, closed, openings) = (OpenLogs::new(), AtomicBool::new(false), RwLock::new(()));
        let shared = SharedResources {
            reserve: Some(registry.shared_reserve()),
            ..SharedResources::default()
        };
        let inner = ManagerInner {
            disk,
            options,
            max_open,
            logs,
            registry,
            closed,
            openings,
            shared,
            root,
        };
        for key in inner.registry.removing() {
            // If it fails, the next use of the key, or the next opening, tries again.
            if let Err(error) = inner.complete_removal::<ManagerError>(&key) {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    key = %key.escape_ascii(),
                    "failed to complete the removal of a log"
                );
            }
        }
        if renumber {
            inner.renumber()?;
        }
        Ok(LogManager { inner: Arc::new(inner) })
    }
}

/// Refuses a directory that holds something else than a manager. Returns whether it has a registry.
fn refuse_another(dir: &dyn Dir, must_exist: bool) -> Result<bool, StorageError> {
    let names = dir.list().map_err(StorageError::from_log)?;
    let has_registry = names.iter().any(|name| name == REGISTRY_DIR);
    let other = names.iter().find(|name| !is_log(name));
    let found = match (has_registry, other) {
        (false, Some(other)) => format!("it holds something else: {other}"),
        (false, None) if must_exist && names.is_empty() => "it is empty".into(),
        _ => return Ok(has_registry),
    };
    Err(StorageError::Log(esker_log::Error::NotALog { dir: dir.path().into(), found }))
}

/// Adds the label of each log that the registry does not know: all of them if it was lost, and some
/// if an older copy of it was put back. A log in the place of another counts under its own key: an
/// access to that key is an error then, and creates no empty log.
fn collect_labels(disk: &DirDisk, registry: &Registry) -> Result<(), StorageError> {
    let names = disk.dir().list().map_err(StorageError::from_log)?;
    let known = registry.directories();
    let options = ReadOptions::on(Arc::new(disk.clone()));
    for name in names.iter().filter(|name| is_log(name) && !known.contains(*name)) {
        let label = match label_of(name, &options) {
            Err(error @ StorageError::Log(esker_log::Error::Io(_))) => return Err(error),
            // Its next use registers it again.
            label => label.unwrap_or(None),
        };
        match label {
            Some(key) => {
                registry.add(&key)?;
                registry.note_created(&key);
            }
            // A crash interrupted the creation, or the removal, of a log.
            None => tracing::warn!(name, "a directory has no log with a label, and is passed over"),
        }
    }
    if registry.is_whole() { Ok(()) } else { registry.make_whole() }
}
