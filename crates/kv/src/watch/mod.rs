//! The change feed: what became durable, in order.

pub(crate) mod changes;
mod keyspace_names;

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use esker_log::{LogStream, ReadOnlyLog, Seq, Start};

use crate::base::corrupted_record::CorruptedRecord;
use crate::base::operation_errors::WatchError;
use crate::base::options::COMPONENT;
use crate::base::store_error::StoreError;
use crate::state::store_writer::StoreWriter;
use changes::Changes;
use keyspace_names::KeyspaceNames;

/// A feed of the durable changes of a store, in order. From [`Store::watch`](crate::Store::watch),
/// or [`Watch::from_log`] beside a writer in another process.
///
/// It is a [`futures_core::Stream`] that waits for new changes. Threads use
/// [`blocking_next`](Watch::blocking_next), [`blocking_iter`](Watch::blocking_iter) and
/// [`try_next`](Watch::try_next) instead. It returns [`Changes`], runs of one or more changes.
///
/// # What is delivered
/// Each durable put, delete, delete of a range, creation and drop of a keyspace, once, in the order
/// in which they were accepted. The copies that cleaning makes are never delivered. A delete of a
/// key that did not exist may be delivered or not.
///
/// Changes of a keyspace that was dropped since are delivered while its name is known. A writer
/// that opens the store after the drop does not know it: then those changes are left out. The drop
/// itself is always delivered.
///
/// After a repair, a watch that reaches quarantined records returns [`StoreError::Quarantined`]
/// once, and continues after them. A watch of a log leaves out the changes of a keyspace whose
/// creation is among them.
///
/// # Resuming
/// Store [`Changes::position`] (or [`Change::seq`](crate::Change::seq), for a part of them)
/// together with the effect of the changes, and watch from there after a restart. No change is
/// missed and none repeated. A batch is delivered whole, in one [`Changes`]: a consumer that
/// applies these atomically sees batches whole. Only a watch that resumes inside a batch, at the
/// `seq` of one of its changes, begins with the rest of it.
///
/// A watch that lags never holds up writers or cleaning. When cleaning has dropped changes that it
/// did not deliver, it returns [`WatchError::Trimmed`]. The consumer then reads a
/// [`durable_snapshot`](crate::Store::durable_snapshot) and watches from its
/// [`seq`](crate::Snapshot::seq).
///
/// # Memory
/// It holds no memory between two calls, beyond that of the stream; see [`LogStream`]. A
/// [`Changes`] keeps about a megabyte, or a whole batch, until it is dropped.
///
/// # Cancel safety
/// All methods are cancel-safe: changes are either delivered or still to come.
#[derive(Debug)]
pub struct Watch {
    stream: LogStream,
    names: KeyspaceNames,
    position: Seq,
    /// The record that is not valid. A watch does not continue past it.
    failed: Option<CorruptedRecord>,
    ended: bool,
}

fn refuse_above(durable: Seq, position: Seq) -> Result<(), WatchError> {
    if position > durable { Err(WatchError::NotDurable { position, durable }) } else { Ok(()) }
}

impl Watch {
    pub(crate) fn from_store(writer: &StoreWriter, from: Seq) -> Result<Self, WatchError> {
        writer.state().refuse_if_closing()?;
        refuse_above(writer.log.durable(), from)?;
        let stream = writer.log.stream(Start::After(from))?;
        Ok(Self::new(stream, KeyspaceNames::from_store(writer.state().keyspaces().names()), from))
    }

    /// Watches the store whose log this is, from a position on. Takes no lock, so that it works
    /// beside a writer in another process. Closing the reader ends the watch with
    /// [`StoreError::Closed`].
    ///
    /// Blocks: it reads the whole log once, for the names of the keyspaces. A position above what
    /// is durable as of [`ReadOnlyLog::refresh`] is refused.
    ///
    /// # Errors
    /// [`WatchError`]; [`WatchError::Trimmed`] also if cleaning dropped records a hundred times
    /// while the names were read.
    ///
    /// # Examples
    /// ```
    /// use esker_kv::{Store, Watch};
    /// use esker_log::ReadOnlyLog;
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let dir = dir.path().join("store");
    /// let store = Store::open(&dir)?; // often in another process
    /// let log = ReadOnlyLog::open(&dir)?;
    /// let mut watch = Watch::from_log(&log, log.durable())?;
    /// store.keyspace().put("colour", "blue")?.blocking_wait()?;
    /// for change in &watch.blocking_next()? {
    ///     println!("{}: {} {:?}", change.seq, change.keyspace, change.action);
    /// }
    /// # Ok::<(), esker_kv::Error>(())
    /// ```
    pub fn from_log(log: &ReadOnlyLog, from: impl Into<Seq>) -> Result<Self, WatchError> {
        let from = from.into();
        log.component().expect(COMPONENT)?;
        log.refresh()?;
        refuse_above(log.durable(), from)?;
        let names = KeyspaceNames::from_log(log)?;
        let stream = log.stream(Start::After(from))?;
        Ok(Self::new(stream, names, from))
    }

    fn new(stream: LogStream, names: KeyspaceNames, position: Seq) -> Self {
        Self { stream, names, position, failed: None, ended: false }
    }

    /// Returns the position up to which everything was delivered. It also passes what is never
    /// delivered, so it may be above the last change.
    pub fn position(&self) -> Seq {
        self.position
    }

    /// Returns the next changes without waiting for new ones. Blocks on the disk when they are not
    /// in memory. `None` when everything durable was delivered; for [`Watch::from_log`], as of the
    /// last poll, which [`ReadOnlyLog::refresh`] repeats.
    ///
    /// # Errors
    /// [`WatchError::Trimmed`]; and [`WatchError::Store`]: with [`StoreError::Quarantined`], after
    /// which it continues; with [`StoreError::CorruptedRecord`], which every later call returns
    /// again; with [`StoreError::Closed`] once the store or the reader is closed.
    pub fn try_next(&mut self) -> Result<Option<Changes>, WatchError> {
        loop {
            self.refuse_if_failed()?;
            let Some(batch) = self.stream.try_next()? else { return Ok(None) };
            if let Some(changes) = self.changes(batch)? {
                return Ok(Some(changes));
            }
        }
    }

    /// Returns the next changes. Blocks until there are some.
    ///
    /// # Errors
    /// As [`Watch::try_next`]. Also the reason why the store accepts no more writes, once
    /// everything durable was delivered.
    pub fn blocking_next(&mut self) -> Result<Changes, WatchError> {
        self.block(None)
    }

    /// Returns the next changes. Blocks until there are some, or the time has passed.
    ///
    /// # Errors
    /// [`WatchError::Timeout`], and as [`Watch::blocking_next`].
    pub fn blocking_next_timeout(&mut self, timeout: Duration) -> Result<Changes, WatchError> {
        self.block(Instant::now().checked_add(timeout))
    }

    /// Returns the changes as a blocking iterator. It ends after the first error other than
    /// [`StoreError::Quarantined`].
    pub fn blocking_iter(&mut self) -> impl Iterator<Item = Result<Changes, WatchError>> + '_ {
        std::iter::from_fn(|| {
            if self.ended {
                return None;
            }
            let next = self.blocking_next();
            self.ended = next.as_ref().is_err_and(is_final);
            Some(next)
        })
    }

    fn block(&mut self, deadline: Option<Instant>) -> Result<Changes, WatchError> {
        loop {
            self.refuse_if_failed()?;
            let batch = match deadline {
                None => self.stream.blocking_next(),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    self.stream.blocking_next_timeout(left)
                }
            };
            if let Some(changes) = self.changes(batch?)? {
                return Ok(changes);
            }
        }
    }

    fn refuse_if_failed(&self) -> Result<(), CorruptedRecord> {
        self.failed.map_or(Ok(()), Err)
    }

    /// The changes among these records; `None` if there are none.
    fn changes(&mut self, batch: esker_log::Batch) -> Result<Option<Changes>, CorruptedRecord> {
        match Changes::new(batch, &self.names) {
            Ok(changes) => {
                let position = changes.position();
                debug_assert!(self.position <= position, "changes are delivered in order");
                self.position = position;
                Ok(Some(changes).filter(|changes| !changes.is_empty()))
            }
            Err(error) => {
                self.failed = Some(error);
                Err(error)
            }
        }
    }
}

fn is_final(error: &WatchError) -> bool {
    !matches!(error, WatchError::Store(StoreError::Quarantined(_)))
}

impl futures_core::Stream for Watch {
    type Item = Result<Changes, WatchError>;

    /// Ends after the first error other than [`StoreError::Quarantined`].
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        while !this.ended {
            if let Err(error) = this.refuse_if_failed() {
                this.ended = true;
                return Poll::Ready(Some(Err(error.into())));
            }
            let Some(next) = ready!(Pin::new(&mut this.stream).poll_next(cx)) else { break };
            let next = next.map_err(WatchError::from).and_then(|batch| Ok(this.changes(batch)?));
            this.ended = next.as_ref().is_err_and(is_final);
            if let Some(next) = next.transpose() {
                return Poll::Ready(Some(next));
            }
        }
        this.ended = true;
        Poll::Ready(None)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, StreamExt};

    use super::*;
    use crate::Store;

    fn is_corrupted<T>(outcome: Result<T, WatchError>) -> bool {
        matches!(outcome, Err(WatchError::Store(StoreError::CorruptedRecord(_))))
    }

    /// Bug: the stream delivered the changes after the record that the other forms stop at.
    #[test]
    fn no_form_of_a_watch_continues_past_a_corrupted_record() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("store")).unwrap();
        let keys = store.keyspace();
        let mut watch = store.watch(0).unwrap();
        keys.writer.log.append([0xff; 40]).unwrap().blocking_wait().unwrap();
        assert!(is_corrupted(watch.try_next()));
        keys.put("after", "it").unwrap().blocking_wait().unwrap();
        let next = watch.next().now_or_never();
        assert!(next.flatten().is_some_and(is_corrupted));
        assert!(matches!(watch.next().now_or_never(), Some(None)), "it has ended");
        assert!(is_corrupted(watch.try_next()) && is_corrupted(watch.blocking_next()));
        store.close().unwrap();
    }
}
