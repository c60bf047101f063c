//! Reads in order what another process writes, with or without waiting for new records.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::follow::Follow;
use super::poller::{Depth, Watched};
use super::snapshot::{AGAIN, Snapshot, TRIES};
use crate::base::error::{Error, Result};
use crate::base::position::Seq;
use crate::read::batch::Batch;
use crate::read::cursor::{self, Cursor, Start};
use crate::read::source::{Source, Wait};
use crate::runtime::waiters::{For, Key, park, thread_waker};

/// The poll interval of a blocking call when there is no polling thread.
const PAUSE: Duration = Duration::from_millis(1);

/// Durable records of a log that another process may be writing, in order, in batches.
///
/// As a [`futures_core::Stream`] it waits for records to become durable. For threads there are
/// [`ReaderStream::next_blocking`], [`ReaderStream::next_timeout`] and [`ReaderStream::iter`].
/// [`ReaderStream::try_next`] does not wait.
///
/// A stream keeps waiting while there is no writer. When another writer has opened the log, after
/// a crash or a clean close, the stream continues after the last record that it delivered. Each
/// record is delivered once, and only if it was durable.
///
/// Streams of one [`Reader`](super::Reader) share what they read from the files: chunks of one
/// megabyte, up to three ahead. The option `cold_cache` bounds the chunks that are kept. Beyond it
/// there are at most four chunks being read, four buffers for the next, and the chunks that the
/// streams' batches hold.
///
/// While any stream waits, one thread polls the writer's watermark page for all of them, every 0.1
/// to 4 ms. A stream whose poll was pending counts as waiting until it is polled again or dropped.
///
/// # Cancel safety
/// All of these methods are cancel-safe: a batch is either delivered or still to come. Dropping a
/// future or a waiting stream loses only the wait.
#[derive(Debug)]
pub struct ReaderStream {
    follow: Arc<Follow>,
    snapshot: Arc<Snapshot>,
    cursor: Cursor,
    last: u64,
    key: Option<Key>,
    /// The number of polls when this stream began to wait.
    since: Option<u64>,
    /// The scan of everything that this stream requested because of a bad unit.
    whole: Option<u64>,
    /// The number of such scans for the same place.
    looks: usize,
    ended: bool,
}

impl ReaderStream {
    pub(super) fn new(follow: &Arc<Follow>, start: Start) -> Result<Self> {
        let snapshot = follow.snapshot();
        let cursor =
            Cursor::new(&*snapshot, start).map_err(|error| cursor::exactly(&*snapshot, error))?;
        let last = match start {
            Start::Tip => snapshot.limit().1,
            Start::Oldest => snapshot.low().seq,
            Start::After(seq) => seq.0,
            Start::From(seq) => seq.0.saturating_sub(1),
        };
        Ok(Self {
            follow: Arc::clone(follow),
            snapshot,
            cursor,
            last,
            key: None,
            since: None,
            whole: None,
            looks: 0,
            ended: false,
        })
    }

    /// Returns the next batch, or `None` at the durable watermark of the last poll. Call
    /// [`Reader::refresh`](super::Reader::refresh) to poll again. The reader polls by itself only
    /// while one of its streams waits.
    ///
    /// # Errors
    /// [`Error::Trimmed`]; [`Error::Quarantined`] once for each gap, after which the stream
    /// continues; [`Error::Corrupted`] after everything before the corruption was delivered;
    /// [`Error::Io`]; [`Error::Closed`] once the reader is closed.
    pub fn try_next(&mut self) -> Result<Option<Batch>> {
        match self.step(Wait::Block)? {
            Poll::Ready(batch) => Ok(batch),
            // A blocking caller never gets `Pending`.
            Poll::Pending => Ok(None),
        }
    }

    /// Returns the next batch. Blocks until there is one, however long there is no writer.
    ///
    /// # Errors
    /// As [`ReaderStream::try_next`]. Also [`Error::Io`] and the other errors of
    /// [`Reader::open`](super::Reader::open) when the directory cannot be polled.
    pub fn next_blocking(&mut self) -> Result<Batch> {
        self.block(None)
    }

    /// Returns the next batch. Blocks until there is one, or until the timeout.
    ///
    /// # Errors
    /// As [`ReaderStream::next_blocking`], and [`Error::Timeout`].
    pub fn next_timeout(&mut self, timeout: Duration) -> Result<Batch> {
        self.block(Instant::now().checked_add(timeout))
    }

    /// The batches as a blocking iterator. It ends after the first error other than
    /// [`Error::Quarantined`].
    pub fn iter(&mut self) -> impl Iterator<Item = Result<Batch>> + '_ {
        std::iter::from_fn(|| {
            if self.ended {
                return None;
            }
            let next = self.next_blocking();
            self.ended = next.as_ref().is_err_and(is_final);
            Some(next)
        })
    }

    /// The sequence number of the last record delivered, or of the one before the start.
    pub fn last(&self) -> Seq {
        Seq(self.last)
    }

    fn block(&mut self, deadline: Option<Instant>) -> Result<Batch> {
        let next = self.block_until(deadline);
        self.end_wait();
        next
    }

    fn block_until(&mut self, deadline: Option<Instant>) -> Result<Batch> {
        loop {
            if let Some(batch) = self.try_next()? {
                return Ok(batch);
            }
            self.refuse_if_failed()?;
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(Error::Timeout);
            }
            self.wait(&thread_waker())?;
            if let Some(batch) = self.try_next()? {
                return Ok(batch);
            }
            let soon = Instant::now() + PAUSE;
            let nobody_looks = self.follow.engine.is_manual();
            park(if nobody_looks {
                deadline.map(|at| at.min(soon)).or(Some(soon))
            } else {
                deadline
            });
        }
    }

    /// Registers a waker for new records and for a failed poll.
    fn wait(&mut self, waker: &Waker) -> Result<()> {
        if self.follow.engine.is_manual() {
            self.follow.look(Depth::Facts)?;
        }
        // A replaced snapshot may end before the last record that this stream delivered.
        let next = self.last.max(self.snapshot.limit().1).saturating_add(1);
        self.follow.watch.waiters.register(&mut self.key, For::Record(next), waker);
        if !self.follow.engine.is_manual() {
            let looks = self.follow.watch.begin(&self.follow)?;
            self.since.get_or_insert(looks);
        }
        Ok(())
    }

    fn end_wait(&mut self) {
        self.since = None;
        if let Some(key) = self.key.take() {
            self.follow.watch.waiters.remove(key);
        }
    }

    /// Returns the error of a poll that failed while this stream waited.
    fn refuse_if_failed(&self) -> Result<()> {
        let failure = self.since.and_then(|since| self.follow.watch.failure_since(since));
        failure.map_or(Ok(()), Err)
    }

    /// The next batch, or `None` at the durable watermark of the last poll. A caller that does not
    /// block may get `Pending`.
    fn step(&mut self, wait: Wait<'_>) -> Result<Poll<Option<Batch>>> {
        loop {
            self.follow.refuse_if_closed()?;
            if self.is_looked_for(wait)? {
                return Ok(Poll::Pending);
            }
            let error = match self.next_seen(wait) {
                Err(error @ (Error::Corrupted(_) | Error::Trimmed { .. })) => error,
                Ok(Poll::Pending) => return Ok(Poll::Pending),
                other => {
                    self.looks = 0;
                    return other;
                }
            };
            let snapshot = self.follow.snapshot();
            self.looks += 1;
            if self.last < snapshot.low().seq || self.looks > TRIES {
                self.looks = 0;
                return Err(cursor::exactly(&*snapshot, error));
            }
            // A recovering writer moves the last records under a reader. Only corruption that a new
            // scan of everything finds again is reported.
            if matches!(wait, Wait::Wake(_)) && !self.follow.engine.is_manual() {
                let (whole, looks) = self.follow.watch.ask_whole(&self.follow)?;
                self.whole = Some(whole);
                self.since.get_or_insert(looks);
            } else {
                std::thread::sleep(AGAIN);
                self.follow.look(Depth::Everything)?;
            }
        }
    }

    /// Whether the scan of everything that this stream requested is still pending.
    fn is_looked_for(&mut self, wait: Wait<'_>) -> Result<bool> {
        let (Some(whole), Wait::Wake(waker)) = (self.whole, wait) else { return Ok(false) };
        let watch = &self.follow.watch;
        if !watch.is_ended(whole) {
            watch.waiters.register(&mut self.key, For::Record(u64::MAX), waker);
            if !watch.is_ended(whole) {
                return Ok(true);
            }
        }
        self.whole = None;
        self.refuse_if_failed()?;
        Ok(false)
    }

    fn next_seen(&mut self, wait: Wait<'_>) -> Result<Poll<Option<Batch>>> {
        loop {
            let now = self.follow.snapshot();
            if !Arc::ptr_eq(&now, &self.snapshot) {
                // Recovery may have moved records. Their sequence numbers do not change.
                self.cursor = Cursor::new(&*now, Start::After(Seq(self.last)))
                    .map_err(|error| cursor::exactly(&*now, error))?;
                self.snapshot = now;
            }
            let next = self.cursor.step(&*self.snapshot, wait);
            if !Arc::ptr_eq(&self.follow.snapshot(), &self.snapshot) {
                continue;
            }
            return match next {
                Ok(Poll::Ready(Some(batch))) => {
                    self.last = batch.last().map_or(self.last, |seq| seq.0);
                    Ok(Poll::Ready(Some(batch)))
                }
                Ok(Poll::Ready(None)) => match &self.snapshot.damage {
                    Some(damage) => Err(Error::Corrupted(damage.clone())),
                    None => Ok(Poll::Ready(None)),
                },
                Err(Error::Quarantined { from, to }) => {
                    self.last = self.last.max(to.0);
                    Err(Error::Quarantined { from, to })
                }
                other => other,
            };
        }
    }
}

fn is_final(error: &Error) -> bool {
    !matches!(error, Error::Quarantined { .. })
}

impl futures_core::Stream for ReaderStream {
    type Item = Result<Batch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if this.ended {
            return Poll::Ready(None);
        }
        for registered in [false, true] {
            let next = match this.step(Wait::Wake(cx.waker())) {
                Ok(Poll::Pending) => return Poll::Pending,
                Ok(Poll::Ready(Some(batch))) => Some(Ok(batch)),
                Ok(Poll::Ready(None)) => this.refuse_if_failed().err().map(Err),
                Err(error) => Some(Err(error)),
            };
            let next = match next {
                None if !registered => this.wait(cx.waker()).err().map(Err),
                next => next,
            };
            if let Some(next) = next {
                this.end_wait();
                this.ended = next.as_ref().is_err_and(is_final);
                return Poll::Ready(Some(next));
            }
        }
        Poll::Pending
    }
}

impl Drop for ReaderStream {
    fn drop(&mut self) {
        self.end_wait();
    }
}
