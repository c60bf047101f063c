//! A connection in memory, over which a snapshot is sent, and which may break.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use esker_consensus::{ConsensusLog, Snapshot, SnapshotInfo, TransferError};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf, duplex};
use tokio::runtime;

/// Bytes on their way.
const BUFFER_BYTES: usize = 64 << 10;

/// Sends a snapshot to another log, and breaks the connection after this many bytes.
pub(super) fn transfer(
    snapshot: Snapshot,
    to: &ConsensusLog,
    breaks_after: u64,
) -> (Result<(), TransferError>, Result<SnapshotInfo, TransferError>) {
    let (here, there) = duplex(BUFFER_BYTES);
    let mut here = Breaking { stream: here, left: breaks_after };
    let runtime = runtime::Builder::new_current_thread().build().unwrap();
    // Each side closes its end when it is done, so that the other one does not wait for it.
    let sending = async move { snapshot.send(&mut here).await };
    let receiving = async move {
        let mut there = there;
        to.snapshots().receive(&mut there).await
    };
    runtime.block_on(async { tokio::join!(sending, receiving) })
}

/// The end of the sender.
struct Breaking {
    stream: DuplexStream,
    left: u64,
}

impl AsyncRead for Breaking {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Breaking {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.left == 0 {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let most = usize::try_from(self.left).map_or(bytes.len(), |left| left.min(bytes.len()));
        let written = Pin::new(&mut self.stream).poll_write(context, &bytes[..most]);
        if let Poll::Ready(Ok(written)) = &written {
            self.left -= *written as u64;
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
