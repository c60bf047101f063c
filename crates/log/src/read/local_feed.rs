//! The feed of a stream that reads a log which is open in this process.

use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use esker_disk::process;

use crate::base::error::Result;
use crate::base::position::Seq;
use crate::read::batch::Batch;
use crate::read::cursor::{Cursor, Start, exactly};
use crate::read::read_half::ReadHalf;
use crate::read::source::{Source, Wait};
use crate::read::stream::Feed;
use crate::read::stream_table::Progress;
use crate::runtime::waiters::{Key, WaitCondition};

#[derive(Debug)]
pub(crate) struct LocalFeed {
    source: Arc<ReadHalf>,
    cursor: Cursor,
    key: Option<Key>,
    /// The entry in which others see how far a stream has come.
    progress: Option<(usize, Arc<Progress>)>,
}

impl LocalFeed {
    pub(crate) fn new(source: &Arc<ReadHalf>, start: Start) -> Result<Self> {
        source.refuse_if_closed()?;
        let cursor = Cursor::new(&**source, start).map_err(|error| exactly(&**source, error))?;
        Ok(Self { source: Arc::clone(source), cursor, key: None, progress: None })
    }

    /// Shows how far it has come to [`Log::metrics`](crate::Log::metrics) until it is dropped.
    pub(crate) fn registered(mut self) -> Self {
        let (after, position) = self.cursor.start();
        self.progress = Some(self.source.streams.add(after, position));
        self
    }
}

impl Feed for LocalFeed {
    fn next(&mut self, wait: Wait<'_>) -> Result<Poll<Option<Batch>>> {
        self.source.refuse_if_closed()?;
        let source = &*self.source;
        let next = self.cursor.step(source, wait).map_err(|error| exactly(source, error));
        if let Some((_, progress)) = &self.progress {
            progress.store_position(self.cursor.position());
        }
        next
    }

    fn delivered(&self, through: Seq) {
        if let Some((_, progress)) = &self.progress {
            progress.store_seq(through);
        }
    }

    fn refuse_to_wait(&self) -> Result<()> {
        if self.source.watermark.is_terminal()
            && let Some(terminal) = self.source.terminal.get()
        {
            return Err(terminal.refusal().into());
        }
        Ok(())
    }

    fn wait(&mut self, waker: &Waker) -> Result<()> {
        let (_, last) = self.source.limit();
        let next = WaitCondition::Record(last.saturating_add(1));
        self.source.waiters.register(&mut self.key, next, waker);
        Ok(())
    }

    /// Keeps the registration: the next wait renews it at a lower cost.
    fn end_wait(&mut self) {}

    fn poll_interval(&self) -> Option<Duration> {
        None
    }
}

impl Drop for LocalFeed {
    fn drop(&mut self) {
        if process::is_forked() {
            return;
        }
        if let Some(key) = self.key.take() {
            self.source.waiters.remove(key);
        }
        if let Some((key, _)) = self.progress.take() {
            self.source.streams.remove(key);
        }
    }
}
