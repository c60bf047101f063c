//! Sending a snapshot to another replica.

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::{self, Sender};

use crate::errors::snapshot_errors::TransferError;
use crate::snapshots::stored::Snapshot;
use crate::snapshots::transfer_thread::run_transfer;
use crate::snapshots::wire::{Progress, stream_failed};
use crate::storage_error::StorageError;

/// Chunks that were read and not sent yet.
const CHUNKS_READ_AHEAD: usize = 1;

impl Snapshot {
    /// Sends this snapshot over a stream to a replica that calls
    /// [`Snapshots::receive`](crate::Snapshots::receive), and waits until
    /// it is durable there. If the receiver has a part of it from an interrupted transfer, sends
    /// the rest. A thread reads the file; appends continue meanwhile. Takes 6 MiB of memory.
    ///
    /// The stream may be that of any async runtime, with both directions in one value. There is no
    /// deadline here: wrap the call in one, or let the stream have it.
    ///
    /// # Cancel safety
    /// Dropping the future ends the transfer. Send the snapshot again over another stream, and it
    /// continues where it stopped.
    ///
    /// # Errors
    /// [`TransferError::Stream`] when the stream failed, [`TransferError::Transfer`] when the
    /// receiver stopped or sent something else; [`TransferError::CorruptedSnapshot`] when the file
    /// cannot be read any more.
    pub async fn send(
        self,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    ) -> Result<(), TransferError> {
        let header = self.reader.sealed_header();
        stream.write_all(&header).await.map_err(stream_failed)?;
        stream.flush().await.map_err(stream_failed)?;
        let chunks = self.reader.chunks();
        let progress = progress(stream, chunks).await?;
        let (sender, mut read) = mpsc::channel(CHUNKS_READ_AHEAD);
        let has_threads = self.has_threads;
        let reading = async move { self.read_chunks(progress.next, &sender).await };
        let sent = async {
            for _ in progress.next..chunks {
                let chunk = read.recv().await;
                let chunk =
                    chunk.unwrap_or(Err(StorageError::Log(esker_log::Error::Stopped).into()))?;
                stream.write_all(&chunk).await.map_err(stream_failed)?;
            }
            stream.flush().await.map_err(stream_failed)?;
            match self::progress(stream, chunks).await?.next {
                next if next == chunks => Ok(()),
                _ => Err(TransferError::Transfer {
                    what: "the receiver did not confirm the snapshot",
                }),
            }
        };
        run_transfer(has_threads, "esker-send", reading, sent).await
    }

    /// Reads chunks until the last one, or until the transfer ends.
    async fn read_chunks(mut self, first: u32, sender: &Sender<Result<Vec<u8>, TransferError>>) {
        for number in first..self.reader.chunks() {
            let slot = self.slot();
            let chunk = self.reader.sealed_chunk(number).map(<[u8]>::to_vec);
            let chunk = chunk
                .map_err(|cause| TransferError::CorruptedSnapshot { slot, cause: cause.into() });
            let failed = chunk.is_err();
            if sender.send(chunk).await.is_err() || failed {
                return;
            }
        }
    }
}

/// Reads how far the receiver of this many chunks is.
async fn progress(
    stream: &mut (impl AsyncRead + Unpin),
    chunks: u32,
) -> Result<Progress, TransferError> {
    let progress = Progress::read(stream).await?;
    if progress.chunks == chunks {
        Ok(progress)
    } else {
        Err(TransferError::Transfer { what: "the receiver means another snapshot" })
    }
}
