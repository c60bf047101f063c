//! The messages between two replicas while one sends a snapshot to the other. The stream between
//! them is the caller's; the sender learns from the last frame that the snapshot is durable.
//!
//! ```text
//! sender    the header of the file, 4096 bytes: it has the version, and a checksum
//! receiver  a frame: the number of the chunk to send next
//! sender    that chunk and each one after it, as in the file; the header implies their lengths
//! receiver  a frame, once the snapshot is durable: the number of chunks
//!
//! frame: magic "ESRP", number of a chunk u32, number of chunks u32
//! ```
//!
//! Numbers are little-endian. A frame has no checksum: a wrong number only leads to a chunk that
//! the receiver refuses.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::errors::snapshot_errors::{TransferError, from_stream};

const FRAME_MAGIC: [u8; 4] = *b"ESRP";
const FRAME_BYTES: usize = 12;

/// The progress of the receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Progress {
    pub(super) next: u32,
    pub(super) chunks: u32,
}

impl Progress {
    fn encode(self) -> [u8; FRAME_BYTES] {
        debug_assert!(self.next <= self.chunks, "a chunk after the last one is asked for");
        let mut frame = [0; FRAME_BYTES];
        frame[..4].copy_from_slice(&FRAME_MAGIC);
        frame[4..8].copy_from_slice(&self.next.to_le_bytes());
        frame[8..].copy_from_slice(&self.chunks.to_le_bytes());
        frame
    }

    fn decode(frame: [u8; FRAME_BYTES]) -> Result<Self, TransferError> {
        let [m0, m1, m2, m3, n0, n1, n2, n3, c0, c1, c2, c3] = frame;
        let next = u32::from_le_bytes([n0, n1, n2, n3]);
        let chunks = u32::from_le_bytes([c0, c1, c2, c3]);
        if [m0, m1, m2, m3] != FRAME_MAGIC || next > chunks {
            return Err(TransferError::Transfer {
                what: "the receiver sent no frame of this protocol",
            });
        }
        Ok(Self { next, chunks })
    }

    pub(super) async fn write(
        self,
        stream: &mut (impl AsyncWrite + Unpin),
    ) -> Result<(), TransferError> {
        stream.write_all(&self.encode()).await.map_err(stream_failed)?;
        stream.flush().await.map_err(stream_failed)
    }

    pub(super) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Result<Self, TransferError> {
        let mut frame = [0; FRAME_BYTES];
        let ended = "the receiver ended the stream before the snapshot was durable";
        read_whole(stream, &mut frame, ended).await?;
        Self::decode(frame)
    }
}

/// The error of a stream between two replicas.
pub(super) fn stream_failed(error: io::Error) -> TransferError {
    from_stream(error, TransferError::Stream)
}

/// Fills a buffer from a stream that may end only after it.
pub(super) async fn read_whole(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut [u8],
    ended: &'static str,
) -> Result<(), TransferError> {
    match stream.read_exact(buffer).await {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Err(TransferError::Transfer { what: ended })
        }
        Err(error) => Err(stream_failed(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_round_trip_and_impossible_ones_are_refused() {
        for progress in [(7, 300), (0, 0), (u32::MAX, u32::MAX)] {
            let progress = Progress { next: progress.0, chunks: progress.1 };
            assert_eq!(Progress::decode(progress.encode()).unwrap(), progress);
        }
        assert!(Progress::decode(*b"ESRP\x04\0\0\0\x03\0\0\0").is_err());
        assert!(Progress::decode(*b"ESRQ\0\0\0\0\0\0\0\0").is_err());
    }
}
