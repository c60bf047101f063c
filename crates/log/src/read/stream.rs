//! Streams: read a log in order, and wait for new records if requested.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::base::error::Result;
#[cfg(doc)]
use crate::base::log_error::LogError;
use crate::base::operation_errors::ReadError;
use crate::base::position::Seq;
use crate::read::batch::{Batch, View};
use crate::read::source::Wait;
use crate::runtime::parked_thread::{park, thread_waker};

/// The log that a [`LogStream`] reads, and how the stream waits for its next records.
pub(crate) trait Feed: Send + Sync + std::fmt::Debug {
    /// The next batch, or `None` at the durable watermark. `Pending` only with [`Wait::Wake`].
    fn next(&mut self, wait: Wait<'_>) -> Result<Poll<Option<Batch>>>;
    /// The stream has delivered everything up to this number.
    fn delivered(&self, _through: Seq) {}
    /// Returns the reason why no batch may ever come, if there is one.
    fn refuse_to_wait(&self) -> Result<()>;
    /// Registers a waker for the next record.
    fn wait(&mut self, waker: &Waker) -> Result<()>;
    /// Ends the wait of a stream that returns to its caller.
    fn end_wait(&mut self);
    /// The interval at which a waiting thread polls, where nothing wakes it.
    fn poll_interval(&self) -> Option<Duration>;
}

/// A stream of durable records, in order and in batches, from a start point on.
///
/// It is a [`futures_core::Stream`] that waits for new records. Threads use
/// [`blocking_next`](LogStream::blocking_next), [`blocking_iter`](LogStream::blocking_iter) and
/// [`try_next`](LogStream::try_next) instead. A stream holds no buffer between two batches. A
/// stream that lags never slows a writer. One that lags past the retention gets
/// [`ReadError::Trimmed`]; the reader can continue with a new stream from
/// [`Start::Oldest`](crate::Start::Oldest).
///
/// # A log that another process writes
/// A stream of a [`ReadOnlyLog`](crate::ReadOnlyLog) keeps waiting while there is no writer. When a
/// writer has opened the log again, after a crash or a clean close, the stream continues after the
/// last record that it delivered. Each record is delivered once, and only if it was durable.
///
/// Streams of one reader share what they read from the files: chunks of one megabyte, up to six
/// ahead. The option [`read_cache`](crate::ReadOptions::read_cache) bounds the chunks that are
/// kept. Beyond it there are at most four chunks being read, and the chunks that the streams'
/// batches hold.
///
/// While any of them waits, one thread polls the writer's watermark page for all of them, every 0.1
/// to 4 ms. A stream whose poll was pending counts as waiting until it is polled again or dropped.
///
/// # Cancel safety
/// All methods are cancel-safe: a batch is either delivered or still to come. Dropping a future or
/// a waiting stream loses only the wait.
#[derive(Debug)]
pub struct LogStream {
    feed: Box<dyn Feed>,
    ended: bool,
    last: Option<Seq>,
}

impl LogStream {
    pub(crate) fn new(feed: Box<dyn Feed>) -> Self {
        Self { feed, ended: false, last: None }
    }

    /// Returns the number up to which this stream has delivered everything: that of the last record
    /// of the last batch, or of the last record of a gap that it reported. `None` before the first.
    /// A new stream from [`Start::After`](crate::Start::After) this number continues it.
    ///
    /// # Examples
    /// ```
    /// # use esker_log::{Append, Log, Seq, Start};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = Log::open(dir.path().join("log"))?;
    /// log.write(Append::records(&["a", "b"]))?.blocking_wait()?;
    /// let mut stream = log.stream(Start::Oldest)?;
    /// assert_eq!(stream.last(), None);
    /// stream.blocking_next()?;
    /// assert_eq!(stream.last(), Some(Seq(2)));
    /// # Ok::<(), esker_log::Error>(())
    /// ```
    pub fn last(&self) -> Option<Seq> {
        self.last
    }

    /// Returns the next batch without waiting for new records. Blocks on the disk when the records
    /// are not in memory. `None` at the durable watermark; for
    /// a [`ReadOnlyLog`](crate::ReadOnlyLog), at that of its last poll, which
    /// [`refresh`](crate::ReadOnlyLog::refresh) repeats.
    ///
    /// # Errors
    /// [`ReadError::Trimmed`]; [`ReadError::Quarantined`] once for each gap, after which the stream
    /// continues; [`ReadError::Corrupted`] after everything before the corruption was delivered;
    /// [`LogError::Io`]; [`LogError::Closed`] once the log or the reader is closed.
    pub fn try_next(&mut self) -> Result<Option<Batch>, ReadError> {
        match self.next(Wait::Block)? {
            Poll::Ready(batch) => Ok(batch),
            // A blocking caller never gets `Pending`.
            Poll::Pending => Ok(None),
        }
    }

    fn next(&mut self, wait: Wait<'_>) -> Result<Poll<Option<Batch>>, ReadError> {
        let next = self.feed.next(wait).map_err(ReadError::narrow);
        let through = match &next {
            Ok(Poll::Ready(Some(batch))) => batch.last(),
            Err(ReadError::Quarantined(range)) => Some(range.to),
            _ => None,
        };
        if let Some(through) = through {
            self.last = Some(through);
            self.feed.delivered(through);
        }
        next
    }

    /// Returns the next batch. Blocks until there is one; for a
    /// [`ReadOnlyLog`](crate::ReadOnlyLog), however long there is no writer.
    ///
    /// # Errors
    /// As [`LogStream::try_next`]. Also the reason why the log accepts no more records, once
    /// everything durable was delivered, and the errors of
    /// [`ReadOnlyLog::open`](crate::ReadOnlyLog::open) when the directory cannot be polled.
    pub fn blocking_next(&mut self) -> Result<Batch, ReadError> {
        self.block(None)
    }

    /// Returns the next batch. Blocks until there is one or the time has passed.
    ///
    /// # Errors
    /// As [`LogStream::blocking_next`], and [`ReadError::Timeout`].
    pub fn blocking_next_timeout(&mut self, timeout: Duration) -> Result<Batch, ReadError> {
        self.block(Instant::now().checked_add(timeout))
    }

    /// Returns the batches as a blocking iterator. It ends after the first error other than
    /// [`ReadError::Quarantined`].
    pub fn blocking_iter(&mut self) -> impl Iterator<Item = Result<Batch, ReadError>> + '_ {
        std::iter::from_fn(|| {
            if self.ended {
                return None;
            }
            let next = self.blocking_next();
            self.ended = next.as_ref().is_err_and(is_final);
            Some(next)
        })
    }

    fn block(&mut self, deadline: Option<Instant>) -> Result<Batch, ReadError> {
        let next = self.block_until(deadline);
        self.feed.end_wait();
        next
    }

    fn block_until(&mut self, deadline: Option<Instant>) -> Result<Batch, ReadError> {
        loop {
            if let Some(batch) = self.try_next()? {
                return Ok(batch);
            }
            self.feed.refuse_to_wait().map_err(ReadError::narrow)?;
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(ReadError::Timeout);
            }
            self.feed.wait(&thread_waker()).map_err(ReadError::narrow)?;
            // What arrived before the registration woke no one.
            if let Some(batch) = self.try_next()? {
                return Ok(batch);
            }
            if self.feed.refuse_to_wait().is_ok() {
                let poll = self.feed.poll_interval().map(|interval| Instant::now() + interval);
                park(deadline.into_iter().chain(poll).min());
            }
        }
    }
}

/// Returns one record, from a feed that begins with it. Does not wait for it to become durable.
pub(crate) async fn read_one(mut feed: impl Feed, seq: Seq) -> Result<View, ReadError> {
    let batch = poll_fn(|cx| match feed.next(Wait::Wake(cx.waker())) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(batch)) => Poll::Ready(Ok(batch)),
        Err(error) => Poll::Ready(Err(error)),
    });
    let batch = batch.await.map_err(ReadError::narrow)?;
    batch.and_then(|batch| batch.view_of(seq)).ok_or(ReadError::NotFound { seq })
}

fn is_final(error: &ReadError) -> bool {
    !matches!(error, ReadError::Quarantined(_))
}

impl futures_core::Stream for LogStream {
    type Item = Result<Batch, ReadError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if this.ended {
            return Poll::Ready(None);
        }
        for registered in [false, true] {
            let next = match this.next(Wait::Wake(cx.waker())) {
                Ok(Poll::Pending) => return Poll::Pending,
                Ok(Poll::Ready(Some(batch))) => Some(Ok(batch)),
                Ok(Poll::Ready(None)) => {
                    this.feed.refuse_to_wait().map_err(ReadError::narrow).err().map(Err)
                }
                Err(error) => Some(Err(error)),
            };
            let next = match next {
                None if !registered => {
                    this.feed.wait(cx.waker()).map_err(ReadError::narrow).err().map(Err)
                }
                next => next,
            };
            if let Some(next) = next {
                this.feed.end_wait();
                this.ended = next.as_ref().is_err_and(is_final);
                return Poll::Ready(Some(next));
            }
        }
        Poll::Pending
    }
}
