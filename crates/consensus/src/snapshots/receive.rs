//! Receiving a snapshot from another replica.

use esker_log::{IncomingSnapshot, Log, SnapshotReader};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc::{self, Receiver, Sender};

use crate::base::slot::Slot;
use crate::errors::snapshot_errors::{SnapshotError, TransferError};
use crate::snapshots::stored::{self, SnapshotInfo, Snapshots};
use crate::snapshots::transfer_thread::{has_threads, run_transfer};
use crate::snapshots::wire::{Progress, read_whole};
use crate::storage_error::StorageError;

/// Chunks that were received and not written yet.
const CHUNKS_QUEUED_MAX: usize = 1;
/// Floor and frontier are below this slot.
const SNAPSHOT_SLOT_LIMIT: u64 = u64::MAX - 1;
const WRITER_STOPPED: TransferError =
    TransferError::Storage(StorageError::Log(esker_log::Error::Stopped));
const STREAM_ENDED: &str = "the sender ended the stream before the last chunk";

/// A report of the thread that writes.
enum WriterEvent {
    /// The thread continues after these chunks. The others have the first length, and the last the
    /// second.
    Started(Progress, [usize; 2]),
    Published,
}

impl Snapshots {
    /// Receives the snapshot that another replica sends with
    /// [`Snapshot::send`](crate::Snapshot::send), and publishes it when all of it was read back.
    /// What an interrupted transfer of the same snapshot left is kept, and only the rest is asked
    /// for. A thread writes the file; appends continue meanwhile. Takes 8 MiB of memory.
    ///
    /// Neither floor nor frontier moves: [`Snapshots::restore`] hands the snapshot to the state
    /// machine and moves both, or call [`Snapshots::install`] yourself.
    ///
    /// # Durability
    /// Durable when it returns, and before the sender gets its confirmation.
    ///
    /// # Cancel safety
    /// Dropping the future ends the transfer. What was received is kept for the next one, which may
    /// be refused as [`Busy`](esker_log::Error::Busy) for a moment, while the thread ends.
    ///
    /// # Errors
    /// [`TransferError::Stream`] when the stream failed, [`TransferError::Transfer`] when the
    /// sender stopped or sent something else; [`TransferError::Storage`], with
    /// [`Busy`](esker_log::Error::Busy) while another snapshot is being received, or when the
    /// snapshot cannot be written.
    ///
    /// # Examples
    /// ```
    /// # use esker_consensus::{Ballot, ConsensusLog, Error, Slot};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let old = ConsensusLog::open(dir.path().join("node-1"))?;
    /// # let new = ConsensusLog::open(dir.path().join("node-2"))?;
    /// # old.learn(Slot(0), Ballot { number: 1, node: 7 }, b"+1")?.await?;
    /// # old.snapshots().create(Slot(0), &b"the sum is 1"[..])?;
    /// // In place of a connection.
    /// let (mut here, mut there) = tokio::io::duplex(64 << 10);
    /// let latest = old.snapshots().latest()?;
    /// let (sent, received) =
    ///     tokio::join!(latest.send(&mut here), new.snapshots().receive(&mut there));
    /// sent?;
    /// assert_eq!(received?.slot, Slot(0));
    /// assert_eq!(new.snapshots().list()?, [Slot(0)]);
    /// # old.close()?;
    /// # Ok(new.close()?)
    /// # }
    /// ```
    pub async fn receive(
        self,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    ) -> Result<SnapshotInfo, TransferError> {
        self.log.inner.refuse_if_not_writable()?;
        let mut header = vec![0; SnapshotReader::HEADER];
        read_whole(stream, &mut header, STREAM_ENDED).await?;
        let (chunks, to_write) = mpsc::channel(CHUNKS_QUEUED_MAX);
        let (report, done) = mpsc::channel(2);
        let log = self.log.inner.log.clone();
        let has_threads = has_threads(&log);
        let writing = async move {
            let outcome = write(&log, &header, to_write, &report).await;
            // The other side may have given up.
            drop(report.send(outcome).await);
        };
        let received = self.receive_chunks(stream, chunks, done);
        run_transfer(has_threads, "esker-receive", writing, received).await
    }

    async fn receive_chunks(
        &self,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
        chunks: Sender<Vec<u8>>,
        mut done: Receiver<Result<(Slot, WriterEvent), TransferError>>,
    ) -> Result<SnapshotInfo, TransferError> {
        let (slot, progress, [full, last]) =
            match done.recv().await.unwrap_or(Err(WRITER_STOPPED))? {
                (slot, WriterEvent::Started(progress, lengths)) => (slot, progress, lengths),
                (_, WriterEvent::Published) => return Err(WRITER_STOPPED),
            };
        let transferred = async {
            progress.write(stream).await?;
            for number in progress.next..progress.chunks {
                let mut chunk = vec![0; if number + 1 < progress.chunks { full } else { last }];
                read_whole(stream, &mut chunk, STREAM_ENDED).await?;
                if chunks.send(chunk).await.is_err() {
                    // The thread has ended, and says why.
                    break;
                }
            }
            Ok(())
        };
        let transferred = transferred.await;
        drop(chunks);
        // Also where the stream broke: what it has is kept, and the next transfer does not find it
        // at work.
        let written = done.recv().await.unwrap_or(Err(WRITER_STOPPED));
        transferred.and(written)?;
        let info = self.info(slot).map_err(|error| self.published(error))?;
        Progress { next: progress.chunks, ..progress }.write(stream).await?;
        Ok(info)
    }

    /// The error for a snapshot that was published, and whose header is not found.
    fn published(&self, error: SnapshotError) -> TransferError {
        match error {
            SnapshotError::NoSnapshot => TransferError::NoSnapshot,
            SnapshotError::CorruptedSnapshot { slot, cause } => {
                TransferError::CorruptedSnapshot { slot, cause }
            }
            SnapshotError::Storage(error) => error.into(),
            SnapshotError::Gap { .. }
            | SnapshotError::Truncated { .. }
            | SnapshotError::SlotOutOfRange { .. }
            | SnapshotError::InvalidOption(_) => {
                self.log.inner.broken("reading a header decides nothing about slots").into()
            }
        }
    }
}

/// Whether a header is that of a consensus log's snapshot, at a slot that a log can have.
fn admits(slot: u64, note: &[u8]) -> bool {
    slot < SNAPSHOT_SLOT_LIMIT && stored::parse_note(Slot(slot), note).is_some()
}

/// Writes the chunks of a snapshot, and publishes it. Says how far it is before the first of them.
async fn write(
    log: &Log,
    header: &[u8],
    mut chunks: Receiver<Vec<u8>>,
    report: &Sender<Result<(Slot, WriterEvent), TransferError>>,
) -> Result<(Slot, WriterEvent), TransferError> {
    let mut incoming = log.snapshots().receive(header, admits).map_err(refused)?;
    let slot = Slot(incoming.at());
    let progress = Progress { next: incoming.next(), chunks: incoming.chunks() };
    let lengths = [0, progress.chunks.saturating_sub(1)].map(|chunk| incoming.len_of(chunk));
    drop(report.send(Ok((slot, WriterEvent::Started(progress, lengths)))).await);
    while let Some(chunk) = chunks.recv().await {
        incoming.write(&chunk).map_err(refused)?;
    }
    if incoming.next() < incoming.chunks() {
        return Err(TransferError::Transfer { what: STREAM_ENDED });
    }
    IncomingSnapshot::publish(incoming).map_err(StorageError::from_log)?;
    Ok((slot, WriterEvent::Published))
}

/// The error for bytes that are not what was to come.
fn refused(error: impl Into<esker_log::Error>) -> TransferError {
    match error.into() {
        esker_log::Error::Corrupted(_) => {
            TransferError::Transfer { what: "the sender sent something else than the next part" }
        }
        error => StorageError::from_log(error).into(),
    }
}
