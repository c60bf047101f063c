//! Named offsets of the consumers of a log.
//!
//! All offsets of a log are in one sealed file, in a directory of its own, `consumers`, whose lock
//! a process holds while it replaces the file. So a process that follows the log can commit an
//! offset beside the writer. Threads that commit at a time share one replacement.
//!
//! # The crash argument
//!
//! The sealed file has the offsets before a change or those after it. A change is made to the
//! content that was read under the lock. A process that died may have left that content visible and
//! not yet durable. A replacement overwrites the other file only after some process synced the
//! directory, so a power cut cannot take the content back from under the change. A call returns
//! after the replacement is durable.

mod changes;
pub(crate) mod offsets;

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use esker_disk::{Dir, Lock};

use crate::base::error::{Error, Result};
#[cfg(doc)]
use crate::base::log_error::LogError;
use crate::base::log_error::refuse_if_forked;
use crate::base::operation_errors::ConsumerError;
use crate::base::position::Seq;
use crate::format::LogId;
use crate::store::paths::CONSUMERS;
use changes::{Change, Changes};
use offsets::{CONSUMERS_MAX, NAME_MAX, Offsets};

/// How long a change waits for other processes.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(10);
/// The longest pause between two attempts to take the lock.
const PAUSE_MOST: Duration = Duration::from_millis(20);

/// The named offsets of the consumers of a log, from [`Log::consumers`](crate::Log::consumers) or
/// [`ReadOnlyLog::consumers`](crate::ReadOnlyLog::consumers).
///
/// An offset is the number of the last record that a consumer is done with, by convention: start
/// the next stream with [`Start::After`](crate::Start::After). The log does not interpret it, and
/// an offset does not keep records: retention drops them as if there were none.
///
/// Any process that may write in the directory can change offsets, also while another process has
/// the log open for writing. At most 1,024 names, of 1 to 255 bytes each.
///
/// # Durability
/// A change is durable when its call returns. It replaces a small file, with three syncs: two of
/// the file and one of its directory. The first change of a handle makes one or two more, and a
/// change of the number of blocks of the file, each of 4 KiB, one. Changes of other threads that
/// arrive meanwhile share the next replacement. A power cut may take back an offset that
/// [`Consumers::get`] returned while another process was still making it durable.
///
/// Changes block. Cheap to clone; works after the log was closed.
///
/// # Examples
/// ```
/// use esker_log::{Log, Seq, Start};
/// # let dir = tempfile::tempdir().unwrap();
/// # let dir = dir.path().join("log");
/// let log = Log::open(&dir)?;
/// for n in 0..3 {
///     log.append(format!("order {n}"))?.blocking_wait()?;
/// }
/// let consumers = log.consumers();
/// let after = consumers.get("billing")?.unwrap_or(Seq::ZERO);
/// let mut stream = log.stream(Start::After(after))?;
/// for record in &stream.blocking_next()? {
///     // Bill the order, then say so.
///     consumers.set("billing", record.seq)?;
/// }
/// # Ok::<(), esker_log::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Consumers {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// The directory of the log.
    dir: Arc<dyn Dir>,
    log: LogId,
    changes: Changes,
    /// Whether this handle made the name of the directory of offsets durable.
    is_durable: AtomicBool,
}

impl Consumers {
    pub(crate) fn new(dir: Arc<dyn Dir>, log: LogId) -> Self {
        let (changes, is_durable) = (Changes::default(), AtomicBool::new(false));
        Self { shared: Arc::new(Shared { dir, log, changes, is_durable }) }
    }

    /// Returns the offset of a consumer; `None` if it has none. Reads a small file, without a lock.
    ///
    /// # Errors
    /// [`ConsumerError::Corrupted`]; [`ConsumerError::ForeignFile`] if the file is that of another
    /// log; [`ConsumerError::UnsupportedVersion`]; [`LogError::Io`].
    pub fn get(&self, name: &str) -> Result<Option<Seq>, ConsumerError> {
        Ok(self.shared.read().map_err(ConsumerError::narrow)?.remove(name))
    }

    /// Returns the offsets of all consumers, in the order of their names.
    ///
    /// # Errors
    /// As [`Consumers::get`].
    pub fn list(&self) -> Result<Vec<(String, Seq)>, ConsumerError> {
        Ok(self.shared.read().map_err(ConsumerError::narrow)?.into_iter().collect())
    }

    /// Sets the offset of a consumer, whatever it was. Returns the one before.
    ///
    /// # Errors
    /// [`ConsumerError::InvalidConsumer`] for a name that is empty or too long;
    /// [`ConsumerError::TooManyConsumers`]; [`ConsumerError::Busy`] if other processes held the
    /// lock for ten seconds; those of [`Consumers::get`]. After [`LogError::Io`] either offset may
    /// be there.
    pub fn set(&self, name: &str, offset: Seq) -> Result<Option<Seq>, ConsumerError> {
        self.change(name, None, Some(offset))
    }

    /// Sets the offsets of several consumers in one replacement: all of them, or none. Other
    /// consumers keep theirs. If a name occurs more than once, its last offset counts. Without any
    /// name nothing is written.
    ///
    /// # Durability
    /// All offsets are durable when the call returns, after as many syncs as [`Consumers::set`]
    /// makes for one. After a crash during the call all of them are there, or none.
    ///
    /// # Errors
    /// The errors of [`Consumers::set`]. After [`LogError::Io`] all of them may be there, or none;
    /// after any other error, none.
    ///
    /// # Examples
    /// ```
    /// use esker_log::{Log, Seq};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = Log::open(dir.path().join("log"))?;
    /// let consumers = log.consumers();
    /// consumers.set_all([("billing", Seq(7)), ("shipping", Seq(4))])?;
    /// assert_eq!(consumers.get("shipping")?, Some(Seq(4)));
    ///
    /// // A name that is not valid: nothing changes.
    /// assert!(consumers.set_all([("billing", Seq(8)), ("", Seq(8))]).is_err());
    /// assert_eq!(consumers.get("billing")?, Some(Seq(7)));
    /// # Ok::<(), esker_log::Error>(())
    /// ```
    pub fn set_all(
        &self,
        offsets: impl IntoIterator<Item = (impl Into<String>, Seq)>,
    ) -> Result<(), ConsumerError> {
        let mut all = Offsets::new();
        for (name, offset) in offsets {
            let name = name.into();
            check(&name)?;
            all.insert(name, offset);
            // However many an iterator returns.
            if all.len() > CONSUMERS_MAX {
                return Err(ConsumerError::TooManyConsumers { limit: CONSUMERS_MAX });
            }
        }
        if all.is_empty() {
            return Ok(());
        }
        self.make(Change::All(all)).map(drop)
    }

    /// Sets the offset of a consumer if it is `expected`; `None` is that of a new one.
    ///
    /// # Errors
    /// [`ConsumerError::OffsetChanged`] if it is another; those of [`Consumers::set`].
    pub fn compare_and_set(
        &self,
        name: &str,
        expected: Option<Seq>,
        offset: Seq,
    ) -> Result<(), ConsumerError> {
        self.change(name, Some(expected), Some(offset)).map(drop)
    }

    /// Removes a consumer. Returns its offset, if it had one.
    ///
    /// # Errors
    /// As [`Consumers::set`].
    pub fn remove(&self, name: &str) -> Result<Option<Seq>, ConsumerError> {
        if self.get(name)?.is_none() {
            return Ok(None);
        }
        self.change(name, None, None)
    }

    fn change(
        &self,
        name: &str,
        expected: Option<Option<Seq>>,
        offset: Option<Seq>,
    ) -> Result<Option<Seq>, ConsumerError> {
        check(name)?;
        self.make(Change::One { name: name.into(), expected, offset })
    }

    fn make(&self, change: Change) -> Result<Option<Seq>, ConsumerError> {
        refuse_if_forked()?;
        let made = self.shared.changes.make(change, |changes| self.shared.write(changes));
        made.map_err(ConsumerError::narrow)
    }
}

/// Refuses a name that no consumer can have.
fn check(name: &str) -> Result<(), ConsumerError> {
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(ConsumerError::InvalidConsumer { bytes: name.len(), limit: NAME_MAX });
    }
    Ok(())
}

impl Shared {
    fn read(&self) -> Result<Offsets> {
        read(&*self.dir, self.log)
    }

    /// Opens the directory. The process that created it may have died before its name was durable,
    /// so the first change makes it durable.
    fn enter(&self) -> Result<Arc<dyn Dir>> {
        if self.is_durable.load(SeqCst) {
            match self.dir.open_dir(CONSUMERS) {
                Err(cause) if cause.kind() == ErrorKind::NotFound => {}
                dir => return Ok(dir?),
            }
        }
        let dir = self.dir.create_dir(CONSUMERS)?;
        self.is_durable.store(true, SeqCst);
        Ok(dir)
    }

    /// Makes these changes in one replacement, under the lock.
    fn write(&self, changes: &[&Change]) -> Result<Vec<Result<Option<Seq>>>> {
        let dir = self.enter()?;
        let _changing = lock(&*dir)?;
        let mut offsets = offsets::read(&*dir, self.log)?;
        let outcomes: Vec<_> = changes.iter().map(|change| change.apply(&mut offsets)).collect();
        if outcomes.iter().any(Result::is_ok) {
            offsets::write(&*dir, self.log, &offsets)?;
        }
        Ok(outcomes)
    }
}

/// Takes the lock of the offsets; waits for other processes.
fn lock(dir: &dyn Dir) -> Result<Box<dyn Lock>> {
    let begin = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        match dir.lock() {
            Err(cause) if cause.kind() == ErrorKind::WouldBlock => {
                if begin.elapsed() > LOCK_WAIT_MAX {
                    return Err(Error::Busy { what: "another process changes the offsets" });
                }
                std::thread::sleep(pause);
                pause = (pause * 2).min(PAUSE_MOST);
            }
            lock => return Ok(lock?),
        }
    }
}

/// Reads the offsets of the log in a directory.
pub(crate) fn read(dir: &dyn Dir, log: LogId) -> Result<Offsets> {
    let dir = match dir.open_dir(CONSUMERS) {
        Err(cause) if cause.kind() == ErrorKind::NotFound => return Ok(Offsets::new()),
        dir => dir?,
    };
    match offsets::read(&*dir, log) {
        // It may have been replaced again and again meanwhile.
        Err(Error::Corrupted(_)) => {
            let _lock = lock(&*dir)?;
            offsets::read(&*dir, log)
        }
        offsets => offsets,
    }
}

/// Copies the offsets of a log to a copy of it that ends with the record `last`, durably. An offset
/// after it would skip the records that the copy appends next, so it becomes `last`.
pub(crate) fn copy(from: &dyn Dir, to: &dyn Dir, log: LogId, last: Seq) -> Result<()> {
    let mut offsets = read(from, log)?;
    offsets.values_mut().for_each(|offset| *offset = last.min(*offset));
    if read(to, log).is_ok_and(|there| there == offsets) {
        // The process that wrote them may have died before their name was durable.
        return match to.open_dir(CONSUMERS) {
            Err(cause) if cause.kind() == ErrorKind::NotFound => Ok(()),
            dir => Ok(dir?.sync()?),
        };
    }
    let dir = to.create_dir(CONSUMERS)?;
    let _lock = lock(&*dir)?;
    offsets::write(&*dir, log, &offsets)
}
