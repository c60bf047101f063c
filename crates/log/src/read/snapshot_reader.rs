//! Reading a snapshot of the application of a log.

use std::io;

use esker_disk::Dir;

use crate::base::error::{Error, Result};
#[cfg(doc)]
use crate::base::log_error::LogError;
use crate::base::operation_errors::SnapshotError;
use crate::format::{BLOCK_BYTES, is_zero};
use crate::store::chunked_file::{Buffer, CHUNK_HEADER, CONTENT_MAX, Reader};
use crate::store::snapshot_files::{self, SnapshotHeader};

/// Reads a snapshot, from [`Snapshots::reader`](crate::Snapshots::reader), as an
/// [`io::Read`]. Each chunk of 2 MiB is checked before the first of its bytes is returned. It keeps
/// the file open: a snapshot that is replaced or removed later changes nothing here. Takes 2 MiB
/// of memory.
#[derive(Debug)]
pub struct SnapshotReader {
    reader: Reader,
    header: SnapshotHeader,
    buffer: Buffer,
    /// The chunk whose content the buffer holds.
    loaded: Option<u32>,
    /// The bytes of the content that were returned.
    returned: u64,
}

impl SnapshotReader {
    /// Opens a snapshot; `None` if there is none.
    pub(crate) fn open(dir: &dyn Dir, at: u64) -> Result<Option<Self>> {
        let opened = snapshot_files::open(dir, at)?;
        Ok(opened.map(|(reader, header)| {
            let buffer = Buffer::new();
            Self { reader, header, buffer, loaded: None, returned: 0 }
        }))
    }

    /// The number up to which the application had applied.
    pub fn at(&self) -> u64 {
        self.header.at
    }

    /// The length of the content in bytes.
    pub fn len(&self) -> u64 {
        self.header.len
    }

    /// Whether there is no content.
    pub fn is_empty(&self) -> bool {
        self.header.len == 0
    }

    /// The size of the file in bytes.
    pub fn file_size(&self) -> u64 {
        self.reader.bytes
    }

    /// The application's note.
    pub fn note(&self) -> &[u8] {
        self.header.note()
    }

    /// Reads everything and checks it; then begins at the start again.
    ///
    /// # Errors
    /// [`SnapshotError::Corrupted`], [`LogError::Io`].
    pub fn verify(&mut self) -> Result<(), SnapshotError> {
        self.returned = 0;
        let loaded = (0..self.chunks()).try_for_each(|number| self.load(number));
        loaded.map_err(SnapshotError::narrow)
    }

    /// Returns the error for a note that is not valid.
    pub fn invalid(&self, what: &'static str) -> SnapshotError {
        SnapshotError::narrow(self.reader.invalid_header(what))
    }

    fn load(&mut self, number: u32) -> Result<()> {
        self.loaded = None;
        let (expected, invalid) = (self.header.len_of(number), self.reader.invalid_at(number));
        let (sealed, rest) = self.reader.sealed_chunk(number, &mut self.buffer)?;
        if sealed.len() != CHUNK_HEADER + expected {
            return Err(invalid("a chunk does not have its length"));
        }
        if number + 1 == self.header.header.chunks && !is_zero(rest) {
            return Err(invalid("zeros have to follow the last chunk"));
        }
        self.loaded = Some(number);
        Ok(())
    }

    /// The number of chunks.
    pub fn chunks(&self) -> u32 {
        self.header.header.chunks
    }

    /// The header, to be sent to another node: [`SnapshotReader::HEADER`] bytes.
    pub fn sealed_header(&self) -> Vec<u8> {
        let mut block = vec![0; Self::HEADER];
        self.header.header.encode(&mut block);
        block
    }

    /// The length of a header in bytes.
    pub const HEADER: usize = BLOCK_BYTES as usize;

    /// Reads a chunk and checks it. Returns it as it is in the file, to be sent to another node.
    ///
    /// # Errors
    /// [`SnapshotError::Corrupted`], [`LogError::Io`].
    pub fn sealed_chunk(&mut self, number: u32) -> Result<&[u8], SnapshotError> {
        self.load(number).map_err(SnapshotError::narrow)?;
        let end = CHUNK_HEADER + self.header.len_of(number);
        Ok(self.buffer.bytes(0..end))
    }
}

/// The most searches, of which each starts over because the snapshot found was removed meanwhile.
const SEARCHES_MAX: usize = 100;

/// Opens the newest snapshot that is valid, of those that `list` returns, after reading all of it.
pub(crate) fn newest(
    list: impl Fn() -> Result<Vec<u64>, SnapshotError>,
    open: impl Fn(u64) -> Result<Option<SnapshotReader>, SnapshotError>,
) -> Result<Option<SnapshotReader>, SnapshotError> {
    for _ in 0..SEARCHES_MAX {
        let mut is_gone = false;
        for at in list()?.into_iter().rev() {
            let opened = open(at).and_then(|found| {
                let checked = found.map(|mut found| found.verify().map(|()| found));
                checked.transpose()
            });
            match opened {
                Err(SnapshotError::Corrupted(corruption)) => {
                    tracing::warn!(%corruption, "passing over a corrupt snapshot");
                }
                // It was removed after it was listed: a newer one may be there by now.
                Ok(None) => is_gone = true,
                found => return found,
            }
        }
        if !is_gone {
            return Ok(None);
        }
    }
    Err(SnapshotError::Busy { what: "the snapshots are removed faster than they are read" })
}

impl io::Read for SnapshotReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() || self.returned >= self.len() {
            return Ok(0);
        }
        let number = (self.returned / CONTENT_MAX as u64) as u32;
        let done = (self.returned % CONTENT_MAX as u64) as usize;
        if self.loaded != Some(number) {
            // After an error the next call reads the same chunk again.
            self.load(number).map_err(into_io)?;
        }
        let part = out.len().min(self.header.len_of(number) - done);
        let start = CHUNK_HEADER + done;
        out[..part].copy_from_slice(self.buffer.bytes(start..start + part));
        self.returned += part as u64;
        Ok(part)
    }
}

/// As the error of a stream; [`io::Error::downcast`] returns the original.
pub(crate) fn into_io(error: Error) -> io::Error {
    let kind = match &error {
        // A caller would take it for a call to repeat.
        Error::Io(cause) if cause.kind() == io::ErrorKind::Interrupted => io::ErrorKind::Other,
        Error::Io(cause) => cause.kind(),
        Error::Corrupted(_) => io::ErrorKind::InvalidData,
        Error::NoSpace { .. } => io::ErrorKind::StorageFull,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}
