//! Snapshots that an application keeps beside its log.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use esker_disk::{Op, process};

use crate::base::error::{Error, Result, refuse_if_forked};
use crate::base::position::Seq;
use crate::format::{BLOCK, random_numbers};
use crate::log::Log;
use crate::read::snapshot::{self, SnapshotReader, into_io};
use crate::store::chunked_file::{self, CONTENT_MAX, Chunk, Kind, Names, Salt, Samples, Writer};
use crate::store::incoming_file::{IncomingFile, STEP};
use crate::store::paths;
use crate::store::snapshot_files::{self, SNAPSHOT_NOTE_MAX};

/// Chunks that wait for the thread that writes them.
const QUEUED: usize = 2;

/// Writes a snapshot, from [`Log::snapshot_writer`], as an [`io::Write`]. A thread of its own
/// writes what exceeds 2 MiB, so that the caller continues meanwhile. Takes at most 10 MiB of
/// memory.
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
    Here(Box<Growing>),
    Thread(ChunkThread),
    Failed(Error),
}

/// A thread that writes chunks.
#[derive(Debug)]
struct ChunkThread {
    full: SyncSender<Chunk>,
    empty: Receiver<Chunk>,
    thread: JoinHandle<Result<Growing>>,
}

impl ChunkThread {
    fn start(mut file: Growing) -> Result<Self> {
        let (full, to_write) = sync_channel::<Chunk>(QUEUED);
        let (written, empty) = sync_channel(QUEUED + 2);
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

    fn end(self) -> Result<Growing> {
        drop(self.full);
        self.thread.join().unwrap_or(Err(Error::Stopped))
    }
}

/// A file that reserves space ahead of its chunks, and bounds what waits in the page cache.
#[derive(Debug)]
struct Growing {
    writer: Writer,
    reserved: u64,
    synced: u64,
}

impl Growing {
    fn write(&mut self, chunk: &mut Chunk) -> Result<()> {
        let writer = &self.writer;
        while self.reserved < writer.end() + chunk.padded() {
            writer.file.preallocate(self.reserved, STEP)?;
            self.reserved += STEP;
        }
        writer.write(chunk)?;
        if !writer.file.is_direct() && writer.end() - self.synced >= STEP {
            writer.file.sync_data()?;
            self.synced = writer.end();
        }
        Ok(())
    }
}

impl SnapshotWriter {
    /// The most bytes of the note.
    pub const NOTE: usize = SNAPSHOT_NOTE_MAX;

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
    /// That of the source; otherwise as writing.
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
        refuse_if_forked().map_err(into_io)?;
        if let Output::Failed(error) = &self.output {
            return Err(into_io(error.clone()));
        }
        if self.chunk.room() > 0 {
            return Ok(());
        }
        self.flush_chunk().map_err(|error| into_io(self.fail(error)))
    }

    fn open(&self, reserved: u64) -> Result<Growing> {
        let dir = Arc::clone(&self.log.write.dir);
        let salt = Salt { log: self.log.write.id, numbers: random_numbers() };
        let temporary = paths::snapshot_aside(self.at, salt.numbers[0]);
        let names = Names { kind: Kind::Snapshot, temporary, name: paths::snapshot(self.at) };
        let direct = self.log.write.mode.direct;
        let writer = Writer::new(dir, names, direct, salt, reserved)?;
        Ok(Growing { writer, reserved, synced: 0 })
    }

    /// Hands over the full chunk.
    fn flush_chunk(&mut self) -> Result<()> {
        if matches!(self.output, Output::Nowhere) {
            let file = self.open(STEP)?;
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
                // If the thread has ended, its error comes with the writer.
                chunks.full.send(full).map_err(|_| Error::Stopped)
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
    /// [`Error::TooLarge`] for the note; [`Error::NoSpace`], also when the name has no room,
    /// and [`Error::Io`] when the content could not be written: the log is not affected.
    /// [`Error::Io`] when the name could not be made durable: the log is poisoned.
    /// [`Error::Closed`].
    pub fn publish(mut self, note: &[u8]) -> Result<u64> {
        if note.len() > SNAPSHOT_NOTE_MAX {
            let (size, limit) = (note.len() as u64, SNAPSHOT_NOTE_MAX as u64);
            return Err(Error::TooLarge { size, limit });
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
            Output::Nowhere => self.open(self.chunk.padded() + u64::from(BLOCK))?,
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

/// A snapshot that another node sends, from [`Log::receive_snapshot`]. Dropping it keeps what was
/// received.
#[derive(Debug)]
pub struct IncomingSnapshot {
    file: IncomingFile,
    log: Log,
    _receiving: Receiving,
}

/// Set while a snapshot is received.
#[derive(Debug)]
struct Receiving(Arc<AtomicBool>);

impl Drop for Receiving {
    fn drop(&mut self) {
        self.0.store(false, SeqCst);
    }
}

impl IncomingSnapshot {
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

    /// Writes the next chunk, as [`SnapshotReader::sealed_chunk`] returned it.
    ///
    /// # Errors
    /// [`Error::Corrupted`] when these bytes are not that chunk: nothing was written.
    /// [`Error::NoSpace`]; [`Error::Io`], after which the transfer begins at its start;
    /// [`Error::Closed`].
    pub fn write(&mut self, sealed: &[u8]) -> Result<()> {
        self.log.refuse_if_closed()?;
        let outcome = self.file.write(sealed);
        outcome.map_err(|error| self.log.for_want_of_space(error, sealed.len() as u64))
    }

    /// Reads everything back, and makes it a snapshot of this log, in place of the last one of its
    /// number.
    ///
    /// # Durability
    /// Durable when it returns.
    ///
    /// # Errors
    /// [`Error::Corrupted`] if a chunk is missing, or does not read back; [`Error::NoSpace`],
    /// [`Error::Io`], [`Error::Closed`].
    pub fn publish(self) -> Result<()> {
        let Self { file, log, _receiving } = self;
        file.seal().map_err(|error| log.for_want_of_space(error, CONTENT_MAX as u64))?;
        log.publish_snapshot(|| file.publish())
    }
}

/// # Snapshots of the application
impl Log {
    /// Begins a snapshot of the application's state, after it applied everything up to `at`: a
    /// number of the application's own, such as that of a record. Several may be written at a time.
    ///
    /// # Errors
    /// [`Error::Closed`].
    ///
    /// # Examples
    /// ```
    /// use std::io::{Read, Write};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = esker_log::Log::open(dir.path().join("log"))?;
    /// let mut writer = log.snapshot_writer(7)?;
    /// writer.write_all(b"the state after record 7")?;
    /// writer.publish(b"written by version 2")?; // durable
    ///
    /// let mut reader = log.snapshot_reader(7)?.expect("there is one");
    /// reader.verify()?;
    /// let mut state = String::new();
    /// reader.read_to_string(&mut state)?;
    /// assert_eq!((&*state, log.snapshots()?), ("the state after record 7", vec![7]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn snapshot_writer(&self, at: u64) -> Result<SnapshotWriter> {
        self.refuse_if_closed()?;
        let (chunk, output) = (Chunk::new(), Output::Nowhere);
        Ok(SnapshotWriter { at, len: 0, chunk, output, log: self.clone() })
    }

    /// Writes a snapshot of the application's state after it applied everything up to the record
    /// `at`: all that `state` has. Returns the size of the file in bytes. Blocks; takes 10 MiB of
    /// memory.
    ///
    /// # Durability
    /// Durable when it returns. A crash before that leaves what was there before.
    ///
    /// # Errors
    /// [`Error::NotFound`] for a record that is not durable: a crash would leave a state ahead of
    /// the log. [`Error::Io`] when `state` fails; otherwise as [`SnapshotWriter::publish`].
    ///
    /// # Examples
    /// ```
    /// use std::io::Read;
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = esker_log::Log::open(dir.path().join("log"))?;
    /// # log.append("one")?.blocking_wait()?;
    /// log.put_snapshot(1, &b"the state after record 1"[..])?;
    ///
    /// // At the next start: the state, and then the records after it.
    /// let (mut state, mut after) = (String::new(), 0);
    /// if let Some(mut snapshot) = log.newest_snapshot()? {
    ///     snapshot.read_to_string(&mut state)?;
    ///     after = snapshot.at();
    /// }
    /// let records = log.stream(esker_log::Start::From((after + 1).into()))?;
    /// # drop(records);
    /// assert_eq!((&*state, after), ("the state after record 1", 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn put_snapshot(&self, at: impl Into<Seq>, state: impl io::Read) -> Result<u64> {
        let at = at.into();
        if at > self.durable() {
            return Err(Error::NotFound { seq: at });
        }
        let mut writer = self.snapshot_writer(at.0)?;
        match writer.copy_from(state) {
            Ok(_) => writer.publish(&[]),
            Err(error) => Err(match error.downcast::<Error>() {
                Ok(error) => error,
                Err(source) => {
                    let path = self.write.dir.path_of(&paths::snapshot(at.0));
                    Error::Io(esker_disk::Error::new(Op::Read, &path, None, source))
                }
            }),
        }
    }

    /// Opens the newest snapshot that is valid, after reading all of it; `None` if there is none.
    /// One that is corrupt is passed over, with a warning. Blocks for the time of reading it.
    ///
    /// # Errors
    /// [`Error::Busy`] if others are removed and published again and again meanwhile;
    /// [`Error::Io`], [`Error::Closed`].
    pub fn newest_snapshot(&self) -> Result<Option<SnapshotReader>> {
        snapshot::newest(|| self.snapshots(), |at| self.snapshot_reader(at))
    }

    /// Returns the numbers of all snapshots, in ascending order. Reads no file. Waits while one of
    /// them is being published: their names are durable, unless publishing failed and poisoned the
    /// log. An opening syncs the names that a process left when it died.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Closed`].
    pub fn snapshots(&self) -> Result<Vec<u64>> {
        let _not_publishing = self.change_segments()?;
        snapshot_files::list(&*self.write.dir)
    }

    /// Opens the snapshot of this number, and checks its header; `None` if there is none.
    ///
    /// # Errors
    /// [`Error::Corrupted`], [`Error::Io`], [`Error::Closed`].
    pub fn snapshot_reader(&self, at: u64) -> Result<Option<SnapshotReader>> {
        self.refuse_if_closed()?;
        SnapshotReader::open(&*self.write.dir, at)
    }

    /// Removes the snapshot of this number, if there is one.
    ///
    /// # Durability
    /// Durable when it returns.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Closed`]; [`Error::Poisoned`] after a failure: the name of a newer
    /// snapshot may not be durable.
    pub fn remove_snapshot(&self, at: u64) -> Result<()> {
        let _not_closing = self.change_segments()?;
        if let Some(terminal) = self.write.lock().core.failure() {
            return Err(terminal.refusal());
        }
        chunked_file::discard(&*self.write.dir, &paths::snapshot(at))
    }

    /// Continues to receive the snapshot whose header another node sent, or begins to, if `admits`
    /// accepts its number and its note. What was received of another snapshot before is dropped.
    ///
    /// # Errors
    /// [`Error::Corrupted`] if the header is not valid or not admitted; [`Error::Busy`] while
    /// another one is being received; [`Error::NoSpace`], [`Error::Io`], [`Error::Closed`].
    pub fn receive_snapshot(
        &self,
        header: &[u8],
        admits: impl FnOnce(u64, &[u8]) -> bool,
    ) -> Result<IncomingSnapshot> {
        self.refuse_if_closed()?;
        if self.write.receiving.swap(true, SeqCst) {
            return Err(Error::Busy { what: "another snapshot is being received" });
        }
        let receiving = Receiving(Arc::clone(&self.write.receiving));
        let dir = Arc::clone(&self.write.dir);
        let found = IncomingFile::find(dir, self.write.mode.direct, header, admits);
        let begun = found.and_then(|found| {
            // After a close the directory may have another writer.
            let _not_closing = self.change_segments()?;
            found.begin(header)
        });
        let file = begun.map_err(|error| self.for_want_of_space(error, STEP))?;
        Ok(IncomingSnapshot { file, log: self.clone(), _receiving: receiving })
    }

    /// Changes the names in the directory, unless the log was closed: then the directory may have
    /// another writer. A failure poisons the log, because nothing may be dropped on the strength of
    /// a name that is not durable. A rename that a full directory refuses changes no name.
    fn publish_snapshot(&self, publish: impl FnOnce() -> Result<()>) -> Result<()> {
        let _not_closing = self.change_segments()?;
        let outcome = publish();
        if let Err(Error::Io(cause)) = &outcome {
            if cause.op() == Op::Rename && cause.is_no_space() {
                return outcome.map_err(|error| self.for_want_of_space(error, u64::from(BLOCK)));
            }
            self.write.fail(Error::Io(cause.clone()));
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
        log.snapshot_writer(5).unwrap().publish(b"").unwrap();
        disk.inject(Fault::on(Op::List, Effect::Block(gate.clone())));
        let is_locked = || log.write.segment_set_lock.try_lock().is_none();
        assert!(!is_locked());
        thread::scope(|scope| {
            let listing = scope.spawn(|| log.snapshots());
            let (reached, locked) = (gate.wait_for(1, Duration::from_secs(60)), is_locked());
            gate.open();
            assert!(reached && locked, "{reached}, {locked}");
            assert_eq!(listing.join().unwrap().unwrap(), [5]);
        });
    }
}
