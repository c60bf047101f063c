//! Streams: read a log in order, and wait for new records if requested.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::base::error::{Error, Result};
use crate::read::batch::Batch;
use crate::read::cursor::{Cursor, Start, exactly};
use crate::read::read_half::ReadHalf;
use crate::read::source::{Source, Wait};
use crate::runtime::waiters::{For, Key, park, thread_waker};

/// A stream of durable records, in order and in batches, from a start point on.
///
/// It is a [`futures_core::Stream`] that waits for new records. Threads use
/// [`Stream::next_blocking`], [`Stream::try_next`] and [`Stream::iter`] instead. A stream holds no
/// buffer between two batches. A stream that lags never slows a writer. One that lags past the
/// retention gets [`Error::Trimmed`]; the reader can continue with a new stream from
/// [`Start::Oldest`].
///
/// # Cancel safety
/// All methods are cancel-safe: a cancelled call loses no batch.
#[derive(Debug)]
pub struct Stream {
    source: Arc<ReadHalf>,
    cursor: Cursor,
    key: Option<Key>,
    ended: bool,
}

impl Stream {
    pub(crate) fn new(source: &Arc<ReadHalf>, start: Start) -> Result<Self> {
        source.refuse_if_closed()?;
        let cursor = Cursor::new(&**source, start).map_err(|error| exactly(&**source, error))?;
        Ok(Self { source: Arc::clone(source), cursor, key: None, ended: false })
    }

    /// Returns the next batch without waiting for new records; `None` when the stream has caught up
    /// with the log.
    ///
    /// # Errors
    /// [`Error::Trimmed`]; [`Error::Quarantined`] once for each gap, after which the stream
    /// continues; [`Error::Corrupted`] and [`Error::Io`]; [`Error::Closed`] once the log is closed.
    pub fn try_next(&mut self) -> Result<Option<Batch>> {
        if self.source.is_closed() {
            return Err(Error::Closed);
        }
        let source = &*self.source;
        self.cursor.next(source).map_err(|error| exactly(source, error))
    }

    /// Returns the next batch; blocks until there is one.
    ///
    /// # Errors
    /// As [`Stream::try_next`], and the reason why the log accepts no more records, once everything
    /// durable was delivered.
    pub fn next_blocking(&mut self) -> Result<Batch> {
        self.block(None)
    }

    /// Returns the next batch; blocks until there is one or the time has passed.
    ///
    /// # Errors
    /// As [`Stream::next_blocking`], and [`Error::Timeout`].
    pub fn next_timeout(&mut self, timeout: Duration) -> Result<Batch> {
        self.block(Instant::now().checked_add(timeout))
    }

    /// Returns the batches as a blocking iterator. It ends after the first error other than
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

    fn block(&mut self, deadline: Option<Instant>) -> Result<Batch> {
        loop {
            if let Some(batch) = self.try_next()? {
                return Ok(batch);
            }
            self.refuse_if_over()?;
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(Error::Timeout);
            }
            let (_, last) = self.source.limit();
            self.source.waiters.register(
                &mut self.key,
                For::Record(last.saturating_add(1)),
                &thread_waker(),
            );
            match self.try_next()? {
                Some(batch) => return Ok(batch),
                None if self.is_over() => {}
                None => {
                    park(deadline);
                }
            }
        }
    }

    /// As [`Stream::try_next`], but returns `Pending` instead of blocking on a disk read.
    fn step(&mut self, cx: &Context<'_>) -> Result<Poll<Option<Batch>>> {
        if self.source.is_closed() {
            return Err(Error::Closed);
        }
        let source = &*self.source;
        let step = self.cursor.step(source, Wait::Wake(cx.waker()));
        step.map_err(|error| exactly(source, error))
    }

    fn is_over(&self) -> bool {
        self.source.watermark.is_terminal()
    }

    /// Returns the reason if no more records can follow.
    fn refuse_if_over(&self) -> Result<()> {
        if self.is_over()
            && let Some(terminal) = self.source.terminal.get()
        {
            return Err(terminal.refusal());
        }
        Ok(())
    }
}

fn is_final(error: &Error) -> bool {
    !matches!(error, Error::Quarantined { .. })
}

impl futures_core::Stream for Stream {
    type Item = Result<Batch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if this.ended {
            return Poll::Ready(None);
        }
        for registered in [false, true] {
            let next = match this.step(cx) {
                Ok(Poll::Pending) => return Poll::Pending,
                Ok(Poll::Ready(None)) => this.refuse_if_over().err().map(Err),
                Ok(Poll::Ready(Some(batch))) => Some(Ok(batch)),
                Err(error) => Some(Err(error)),
            };
            if let Some(next) = next {
                this.ended = next.as_ref().is_err_and(is_final);
                return Poll::Ready(Some(next));
            }
            if !registered {
                let (_, last) = this.source.limit();
                let what = For::Record(last.saturating_add(1));
                this.source.waiters.register(&mut this.key, what, cx.waker());
            }
        }
        Poll::Pending
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.source.waiters.remove(key);
        }
    }
}
