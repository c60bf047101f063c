//! The checkpoint that a component keeps beside its log.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::ReentrantMutexGuard;

use super::component_log::ComponentLog;
use crate::base::error::{Error, Result};
use crate::base::log_error::LogError;
use crate::base::operation_errors::{ReadError, SnapshotError};
use crate::log::Log;
use crate::read::checkpoint_reader::CheckpointReader;
use crate::read::samples;
use crate::store::chunked_file::{self, CONTENT_MAX, Chunk, Kind, NOTE_MAX, Names, Salt, Writer};
use crate::store::paths::{self, CHECKPOINT};

/// Writes a checkpoint: a large file, in chunks, that replaces the last checkpoint of this log when
/// it is published. From [`ComponentLog::checkpoint_writer`].
///
/// A checkpoint makes a component open faster. It must hold nothing that the records do not:
/// readers get the last one, an older one, or none.
///
/// Dropping the writer before [`CheckpointWriter::publish`] changes nothing.
#[derive(Debug)]
pub struct CheckpointWriter<'a> {
    log: &'a Log,
    writer: Writer,
    /// One is written at a time.
    _writing: ReentrantMutexGuard<'a, AtomicU64>,
}

/// A chunk of a checkpoint, from [`CheckpointWriter::chunk`]. Use it again for the next one.
#[derive(Debug)]
pub struct CheckpointChunk<'a> {
    writer: &'a CheckpointWriter<'a>,
    chunk: Chunk,
}

impl CheckpointWriter<'_> {
    /// The most bytes of the note.
    pub const NOTE: usize = NOTE_MAX;

    /// Returns an empty chunk. Several threads may fill and write chunks at a time.
    pub fn chunk(&self) -> CheckpointChunk<'_> {
        CheckpointChunk { writer: self, chunk: Chunk::new() }
    }

    /// Replaces the last checkpoint, with a note of at most [`CheckpointWriter::NOTE`] bytes.
    /// Returns the size of the file in bytes.
    ///
    /// # Durability
    /// Durable when it returns. A crash before that leaves this checkpoint or the last one.
    ///
    /// # Errors
    /// [`SnapshotError::ContentTooLarge`] for the note; [`SnapshotError::NoSpace`],
    /// [`LogError::Io`] and [`LogError::Closed`], after which this checkpoint or the last one is
    /// there. The log itself is not affected.
    pub fn publish(self, note: &[u8]) -> Result<u64, SnapshotError> {
        if note.len() > NOTE_MAX {
            return Err(SnapshotError::ContentTooLarge {
                size: note.len() as u64,
                limit: NOTE_MAX as u64,
            });
        }
        let Self { log, mut writer, _writing } = self;
        log.refuse_if_closed()?;
        let samples = samples::take(&*log.read, log.durable().0);
        let bytes = writer.end();
        let sealed: Result<()> = writer.seal(note, samples).and_then(|()| {
            // After a close the directory may have another writer.
            let _not_closing = log.change_segments()?;
            writer.publish()
        });
        sealed.map(|()| bytes).map_err(|error| refused(log, error, CONTENT_MAX as u64))
    }
}

impl CheckpointChunk<'_> {
    /// The most bytes of a chunk's content, a little less than 2 MiB.
    pub const LIMIT: usize = CONTENT_MAX;

    /// Returns how many more bytes fit.
    pub fn room(&self) -> usize {
        self.chunk.room()
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// [`SnapshotError::ContentTooLarge`] if they exceed [`CheckpointChunk::room`].
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), SnapshotError> {
        let limit = self.chunk.room();
        if bytes.len() > limit {
            return Err(SnapshotError::ContentTooLarge {
                size: bytes.len() as u64,
                limit: limit as u64,
            });
        }
        self.chunk.push(bytes);
        Ok(())
    }

    /// Returns the content so far, to be changed.
    pub fn content(&mut self) -> &mut [u8] {
        self.chunk.content()
    }

    /// Writes the chunk to the file, and empties it. Chunks are numbered in the order of these
    /// calls. An empty one is not written.
    ///
    /// # Errors
    /// [`SnapshotError::NoSpace`], [`LogError::Io`]. The log itself is not affected: drop the
    /// writer.
    pub fn write(&mut self) -> Result<(), SnapshotError> {
        if self.content().is_empty() {
            return Ok(());
        }
        let CheckpointWriter { log, writer, .. } = self.writer;
        let outcome = writer.write(&mut self.chunk);
        outcome.map_err(|error| refused(log, error, CONTENT_MAX as u64))
    }
}

impl<'a> ComponentLog<'a> {
    /// Begins a checkpoint of about this many bytes. Blocks while another thread writes one.
    ///
    /// # Errors
    /// [`SnapshotError::Busy`] while this thread writes one: it waits for a commit, and a waker
    /// calls this. [`SnapshotError::NoSpace`], [`LogError::Io`], [`LogError::Closed`]. The log
    /// itself is not affected.
    ///
    /// # Examples
    /// ```
    /// use esker_log::{Log, component::CheckpointBuffer};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = Log::open(dir.path().join("log"))?;
    /// let writer = log.component().checkpoint_writer(64 << 10)?;
    /// let mut chunk = writer.chunk();
    /// chunk.push(b"the state after record 7")?;
    /// chunk.write()?;
    /// writer.publish(b"7")?; // durable
    ///
    /// let reader = log.component().checkpoint_reader()?.expect("there is one");
    /// assert_eq!((reader.note(), reader.chunks()), (&b"7"[..], 1));
    /// let mut buffer = CheckpointBuffer::default();
    /// assert_eq!(reader.chunk(0, &mut buffer)?, b"the state after record 7");
    /// # Ok::<(), esker_log::Error>(())
    /// ```
    pub fn checkpoint_writer(self, bytes: u64) -> Result<CheckpointWriter<'a>, SnapshotError> {
        let log = self.log;
        log.refuse_if_closed()?;
        if log.write.checkpoints.is_owned_by_current_thread() {
            return Err(SnapshotError::Busy { what: "this thread writes a checkpoint" });
        }
        let writing = log.write.checkpoints.lock();
        let number = writing.fetch_add(1, Relaxed) + 1;
        let session = log.storage().recovery().session;
        let salt = Salt { log: log.write.id, numbers: [session, number] };
        let dir = Arc::clone(&log.write.dir);
        let (temporary, name) = (paths::temporary(CHECKPOINT), CHECKPOINT.into());
        let names = Names { kind: Kind::Checkpoint, temporary, name };
        let direct = dir.facts().map_err(LogError::from)?.direct;
        let writer = Writer::new(dir, names, direct, salt, bytes);
        let writer = writer.map_err(|error| refused(log, error, bytes))?;
        Ok(CheckpointWriter { log, writer, _writing: writing })
    }

    /// Opens the checkpoint; `None` if there is none.
    ///
    /// # Errors
    /// [`ReadError::Corrupted`], also if it was made from other records, such as those of a copy of
    /// this log that was written; [`LogError::Io`], [`LogError::Closed`]. A component then opens
    /// without it.
    pub fn checkpoint_reader(self) -> Result<Option<CheckpointReader>, ReadError> {
        let log = self.log;
        log.refuse_if_closed()?;
        CheckpointReader::open(&*log.write.dir, log.write.id, || Ok(Arc::clone(&log.read) as _))
            .map_err(ReadError::narrow)
    }

    /// Removes the checkpoint, if there is one. A component that does not use it has to remove it
    /// before it appends: the log might get other records under the numbers that it names.
    ///
    /// # Durability
    /// Durable when it returns.
    ///
    /// # Errors
    /// [`LogError::Io`], [`LogError::Closed`].
    pub fn discard_checkpoint(self) -> Result<(), LogError> {
        self.log.refuse_if_closed()?;
        let _no_writer = self.log.write.checkpoints.lock();
        chunked_file::discard(&*self.log.write.dir, CHECKPOINT)
            .map_err(|error| LogError::narrow(error, "discarding a checkpoint reads nothing"))
    }
}

fn refused(log: &Log, error: Error, bytes: u64) -> SnapshotError {
    SnapshotError::narrow(log.for_want_of_space(error, bytes))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use esker_disk::sim::SimDisk;

    use super::*;
    use crate::{Engine, Options};

    /// Guards: a waker that wrote a checkpoint on the thread of another one waited for that thread.
    #[test]
    fn a_thread_writes_one_checkpoint_at_a_time() {
        let (done, ended) = channel();
        std::thread::spawn(move || {
            let mut options = Options::on(Arc::new(SimDisk::new(1)));
            options.engine = Some(Engine::manual());
            let log = Log::builder("/log").options(options).open().unwrap();
            let begin = || log.component().checkpoint_writer(64 << 10);
            let (writer, refused) = (begin().unwrap(), begin());
            assert!(matches!(refused, Err(SnapshotError::Busy { .. })), "{refused:?}");
            writer.publish(b"first").unwrap();
            begin().unwrap().publish(b"second").unwrap();
            log.close().unwrap();
            done.send(()).unwrap();
        });
        ended.recv_timeout(Duration::from_secs(60)).unwrap();
    }
}
