//! Writing and receiving snapshots of the application.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use esker_disk::process;

use crate::base::error::{Error, Result};
#[cfg(doc)]
use crate::base::log_error::LogError;
use crate::base::log_error::refuse_if_forked;
use crate::base::operation_errors::SnapshotError;
use crate::format::{BLOCK_BYTES, random_numbers};
use crate::log::Log;
use crate::read::snapshot_reader::into_io;
use crate::store::chunked_file::{self, CONTENT_MAX, Chunk, Kind, Names, Salt, Samples, Writer};
use crate::store::incoming_file::{IncomingFile, PREALLOCATION_BYTES};
use crate::store::paths;
use crate::store::snapshot_files::{self, SNAPSHOT_NOTE_MAX};

/// Chunks that wait for the thread that writes them.
const QUEUED_CHUNKS_MAX: usize = 2;

/// Writes a snapshot, from [`Snapshots::writer`](crate::Snapshots::writer), as an [`io::Write`]. A
/// thread of its own writes what exceeds 2 MiB, so that the caller continues meanwhile. Takes at
/// most 10 MiB of memory.
///
/// Dropping the writer before [`SnapshotWriter::publish`] changes nothing.
#[derive(Debug)]
pub struct SnapshotWriter {
    at: u64,
    len: u64,
    chunk: Chunk,
    output: Output,
    log: Log,
}

#[derive(Debug)]
enum Output {
    /// There is no file yet: nothing, or less than a chunk, was written.
    Nowhere,
    /// On a manual engine, the caller's thread writes.
    Here(Box<GrowingFile>),
    Thread(ChunkThread),
    Failed(Error),
}

/// A thread that writes chunks.
#[derive(Debug)]
struct ChunkThread {
    full: SyncSender<Chunk>,
    empty: Receiver<Chunk>,
    thread: JoinHandle<Result<GrowingFile>>,
}

impl ChunkThread {
    fn start(mut file: GrowingFile) -> Result<Self> {
        let (full, to_write) = sync_channel::<Chunk>(QUEUED_CHUNKS_MAX);
        let (written, empty) = sync_channel(QUEUED_CHUNKS_MAX + 2);
        let run = move || {
            for mut chunk in to_write {
                file.write(&mut chunk)?;
                // The other side is not waiting for one once it has written the last.
                drop(written.send(chunk));
            }
            Ok(file)
        };
        let thread = thread::Builder::new().name("esker-snapshot".into()).spawn(run);
        let thread = thread.map_err(Error::no_thread)?;
        Ok(Self { full, empty, thread })
    }

    fn end(self) -> Result<GrowingFile> {
        drop(self.full);
        self.thread.join().unwrap_or_else(|_| {
            let invariant = "the thread that writes a snapshot does not panic";
            tracing::error!(invariant, "an invariant of the log does not hold");
            Err(Error::Internal { invariant })
        })
    }
}

/// A file that preallocates space ahead of its chunks, and bounds what waits in the page cache.
#[derive(Debug)]
struct GrowingFile {
    writer: Writer,
    preallocated: u64,
    synced: u64,
}

impl GrowingFile {
    fn write(&mut self, chunk: &mut Chunk) -> Result<()> {
        let writer = &self.writer;
        while self.preallocated < writer.end() + chunk.padded() {
            writer.file.preallocate(self.preallocated, PREALLOCATION_BYTES)?;
            self.preallocated += PREALLOCATION_BYTES;
        }
        writer.write(chunk)?;
        if !writer.file.is_direct() && writer.end() - self.synced >= PREALLOCATION_BYTES {
            writer.file.sync_data()?;
            self.synced = writer.end();
        }
        Ok(())
    }
}

impl SnapshotWriter {
    /// The most bytes of the note.
    pub const NOTE: usize = SNAPSHOT_NOTE_MAX;

    pub(super) fn new(log: Log, at: u64) -> Self {
        Self { at, len: 0, chunk: Chunk::new(), output: Output::Nowhere, log }
    }

    /// Returns the number of bytes written.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Writes everything that a source has, without another copy. Returns the number of bytes.
    ///
    /// # Errors
    /// The error of the source; otherwise as writing.
    pub fn copy_from(&mut self, mut source: impl io::Read) -> io::Result<u64> {
        let before = self.len;
        loop {
            self.make_room()?;
            match self.chunk.fill(&mut source) {
                Ok(0) => return Ok(self.len - before),
                Ok(read) => self.len += read as u64,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Hands over the chunk if it is full.
    fn make_room(&mut self) -> io::Result<()> {
        refuse_if_forked().map_err(|error| into_io(error.into()))?;
        if let Output::Failed(error) = &self.output {
            return Err(into_io(error.clone()));
        }
        if self.chunk.room() > 0 {
            return Ok(());
        }
        self.flush_chunk().map_err(|error| into_io(self.fail(error)))
    }

    fn open(&self, preallocated: u64) -> Result<GrowingFile> {
        let dir = Arc::clone(&self.log.write.dir);
        let salt = Salt { log: self.log.write.id, numbers: random_numbers() };
        let temporary = paths::snapshot_aside(self.at, salt.numbers[0]);
        let names = Names { kind: Kind::Snapshot, temporary, name: paths::snapshot(self.at) };
        let direct = self.log.write.mode.direct;
        let writer = Writer::new(dir, names, direct, salt, preallocated)?;
        Ok(GrowingFile { writer, preallocated, synced: 0 })
    }

    /// Hands over the full chunk.
    fn flush_chunk(&mut self) -> Result<()> {
        if matches!(self.output, Output::Nowhere) {
            let file = self.open(PREALLOCATION_BYTES)?;
            self.output = if self.log.write.engine.is_manual() {
                Output::Here(Box::new(file))
            } else {
                Output::Thread(ChunkThread::start(file)?)
            };
        }
        match &mut self.output {
            Output::Nowhere => Ok(()),
            Output::Failed(error) => Err(error.clone()),
            Output::Here(file) => file.write(&mut self.chunk),
            Output::Thread(chunks) => {
                let next = chunks.empty.try_recv().unwrap_or_else(|_| Chunk::new());
                let full = std::mem::replace(&mut self.chunk, next);
                // The caller replaces this by the error of the thread, for which that ended.
                let invariant = "the thread that writes a snapshot ends after the last chunk";
                chunks.full.send(full).map_err(|_| Error::Internal { invariant })
            }
        }
    }

    fn fail(&mut self, error: Error) -> Error {
        let error = match std::mem::replace(&mut self.output, Output::Nowhere) {
            Output::Thread(chunks) => chunks.end().err().unwrap_or(error),
            Output::Failed(first) => first,
            Output::Nowhere | Output::Here(_) => error,
        };
        let error = self.log.for_want_of_space(error, CONTENT_MAX as u64);
        self.output = Output::Failed(error.clone());
        error
    }

    /// Replaces the last snapshot of this number, if there is one, with a note of at most
    /// [`SnapshotWriter::NOTE`] bytes. Returns the size of the file in bytes.
    ///
    /// # Durability
    /// Durable when it returns. A crash before that leaves this snapshot, or what was there before.
    ///
    /// # Errors
    /// [`SnapshotError::ContentTooLarge`] for the note; [`SnapshotError::NoSpace`], also when the
    /// name has no room, and [`LogError::Io`] when the content could not be written: the log is not
    /// affected. [`LogError::Io`] when the name could not be made durable: the log is poisoned.
    /// [`LogError::Closed`].
    pub fn publish(self, note: &[u8]) -> Result<u64, SnapshotError> {
        self.seal_and_publish(note).map_err(SnapshotError::narrow)
    }

    fn seal_and_publish(mut self, note: &[u8]) -> Result<u64> {
        if note.len() > SNAPSHOT_NOTE_MAX {
            let (size, limit) = (note.len() as u64, SNAPSHOT_NOTE_MAX as u64);
            return Err(Error::ContentTooLarge { size, limit });
        }
        refuse_if_forked()?;
        let log = self.log.clone();
        match self.seal(note) {
            Err(error) => Err(self.fail(error)),
            Ok(writer) => {
                let bytes = writer.end();
                log.publish_snapshot(|| writer.publish()).map(|()| bytes)
            }
        }
    }

    fn seal(&mut self, note: &[u8]) -> Result<Writer> {
        let note = snapshot_files::note(self.at, self.len, note);
        let mut file = match std::mem::replace(&mut self.output, Output::Nowhere) {
            Output::Nowhere => self.open(self.chunk.padded() + u64::from(BLOCK_BYTES))?,
            Output::Here(file) => *file,
            Output::Thread(chunks) => chunks.end()?,
            Output::Failed(error) => return Err(error),
        };
        if !self.chunk.content().is_empty() {
            file.write(&mut self.chunk)?;
        }
        let mut writer = file.writer;
        writer.seal(&note, Samples::default())?;
        Ok(writer)
    }
}

impl Drop for SnapshotWriter {
    fn drop(&mut self) {
        let output = std::mem::replace(&mut self.output, Output::Nowhere);
        if process::is_forked() {
            // The thread is not there, and may hold what dropping this waits for.
            std::mem::forget(output);
        } else if let Output::Thread(chunks) = output {
            // The file goes with its writer.
            drop(chunks.end());
        }
    }
}

impl io::Write for SnapshotWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.make_room()?;
        let part = bytes.len().min(self.chunk.room());
        self.chunk.push(&bytes[..part]);
        self.len += part as u64;
        Ok(part)
    }

    /// Does nothing: only [`SnapshotWriter::publish`] makes a snapshot durable.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A snapshot that another node sends, from [`Snapshots::receive`](crate::Snapshots::receive).
/// Dropping it keeps what was received.
#[derive(Debug)]
pub struct IncomingSnapshot {
    file: IncomingFile,
    log: Log,
    _receiving: ReceiveGuard,
}

/// Set while a snapshot is received.
#[derive(Debug)]
struct ReceiveGuard(Arc<AtomicBool>);

impl Drop for ReceiveGuard {
    fn drop(&mut self) {
        self.0.store(false, SeqCst);
    }
}

impl IncomingSnapshot {
    /// Continues to receive a snapshot, or begins to, as [`Snapshots::receive`] does.
    ///
    /// [`Snapshots::receive`]: crate::Snapshots::receive
    pub(super) fn new(
        log: &Log,
        header: &[u8],
        admits: impl FnOnce(u64, &[u8]) -> bool,
    ) -> Result<Self> {
        log.refuse_if_closed()?;
        if log.write.receiving.swap(true, SeqCst) {
            return Err(Error::Busy { what: "another snapshot is being received" });
        }
        let receiving = ReceiveGuard(Arc::clone(&log.write.receiving));
        let dir = Arc::clone(&log.write.dir);
        let found = IncomingFile::find(dir, log.write.mode.direct, header, admits);
        let begun = found.and_then(|found| {
            // After a close the directory may have another writer.
            let _not_closing = log.change_segments()?;
            found.begin(header)
        });
        let file = begun.map_err(|error| log.for_want_of_space(error, PREALLOCATION_BYTES))?;
        Ok(Self { file, log: log.clone(), _receiving: receiving })
    }

    /// The number up to which the application had applied.
    pub fn at(&self) -> u64 {
        self.file.header.at
    }

    /// The length of the content in bytes.
    pub fn len(&self) -> u64 {
        self.file.header.len
    }

    /// Whether there is no content.
    pub fn is_empty(&self) -> bool {
        self.file.header.len == 0
    }

    /// The application's note.
    pub fn note(&self) -> &[u8] {
        self.file.header.note()
    }

    /// The number of chunks.
    pub fn chunks(&self) -> u32 {
        self.file.header.header.chunks
    }

    /// The number of the chunk to send next.
    pub fn next(&self) -> u32 {
        self.file.next()
    }

    /// The length in bytes of a chunk, as it is sent.
    pub fn len_of(&self, chunk: u32) -> usize {
        chunked_file::CHUNK_HEADER + self.file.header.len_of(chunk)
    }

    /// Writes the next chunk, as [`sealed_chunk`](crate::SnapshotReader::sealed_chunk) returned it.
    ///
    /// # Errors
    /// [`SnapshotError::Corrupted`] when these bytes are not that chunk: nothing was written.
    /// [`SnapshotError::NoSpace`]; [`LogError::Io`], after which the transfer begins at its start;
    /// [`LogError::Closed`].
    pub fn write(&mut self, sealed: &[u8]) -> Result<(), SnapshotError> {
        self.log.refuse_if_closed()?;
        let outcome = self.file.write(sealed);
        let refused = |error| self.log.for_want_of_space(error, sealed.len() as u64);
        outcome.map_err(|error| SnapshotError::narrow(refused(error)))
    }

    /// Reads everything back, and makes it a snapshot of this log, in place of the last one of its
    /// number.
    ///
    /// # Durability
    /// Durable when it returns.
    ///
    /// # Errors
    /// [`SnapshotError::Corrupted`] if a chunk is missing, or does not read back;
    /// [`SnapshotError::NoSpace`], [`LogError::Io`], [`LogError::Closed`].
    pub fn publish(self) -> Result<(), SnapshotError> {
        let Self { file, log, _receiving } = self;
        file.seal()
            .map_err(|error| log.for_want_of_space(error, CONTENT_MAX as u64))
            .and_then(|()| log.publish_snapshot(|| file.publish()))
            .map_err(SnapshotError::narrow)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use esker_disk::Op;
    use esker_disk::sim::{Effect, Fault, Gate, SimDisk};

    use super::*;
    use crate::{Engine, Options};

    /// A name is in the directory before it is durable. What is dropped on the strength of a list
    /// that has such a name may be lost.
    #[test]
    fn snapshots_are_listed_under_the_lock_that_publishes_them() {
        let (disk, gate) = (SimDisk::new(1), Gate::new());
        let mut options = Options::on(Arc::new(disk.clone()));
        options.engine = Some(Engine::manual());
        let log = Log::builder("/log").options(options).open().unwrap();
        log.snapshots().writer(5).unwrap().publish(b"").unwrap();
        disk.inject(Fault::on(Op::List, Effect::Block(gate.clone())));
        let is_locked = || log.write.segments.try_lock().is_none();
        assert!(!is_locked());
        thread::scope(|scope| {
            let listing = scope.spawn(|| log.snapshots().list());
            let (reached, locked) = (gate.wait_for(1, Duration::from_secs(60)), is_locked());
            gate.open();
            assert!(reached && locked, "{reached}, {locked}");
            assert_eq!(listing.join().unwrap().unwrap(), [5]);
        });
    }
}
