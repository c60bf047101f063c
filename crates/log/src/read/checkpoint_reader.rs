//! Reading the checkpoint that a component keeps beside its log.

use std::sync::Arc;

use esker_disk::Dir;

use crate::base::error::Result;
#[cfg(doc)]
use crate::base::log_error::LogError;
use crate::base::operation_errors::ReadError;
use crate::format::LogId;
use crate::read::samples;
use crate::read::source::Source;
use crate::store::chunked_file::{Buffer, Kind, Reader};
use crate::store::paths::CHECKPOINT;

/// Reads the checkpoint of a log. From `checkpoint_reader` of
/// [`ComponentLog`](crate::component::ComponentLog) and
/// [`ReadOnlyComponentLog`](crate::component::ReadOnlyComponentLog). Several threads may read
/// chunks at a time. It keeps the file open: a checkpoint that is published later changes nothing
/// here.
#[derive(Debug)]
pub struct CheckpointReader {
    reader: Reader,
}

/// The memory for a chunk that is read. Use it again for the next one.
#[derive(Debug)]
pub struct CheckpointBuffer(Buffer);

impl Default for CheckpointBuffer {
    fn default() -> Self {
        Self(Buffer::new())
    }
}

impl CheckpointReader {
    /// Opens the checkpoint of a log; `None` if there is none. `records` returns the log as it is
    /// after that.
    pub(crate) fn open(
        dir: &dyn Dir,
        log: LogId,
        records: impl FnOnce() -> Result<Arc<dyn Source>>,
    ) -> Result<Option<Self>> {
        let Some(reader) = Reader::open(dir, CHECKPOINT, Kind::Checkpoint)? else {
            return Ok(None);
        };
        if reader.header.salt.log != log {
            return Err(reader.invalid_header("it belongs to another log"));
        }
        if !samples::matches(&*records()?, &reader.header.samples) {
            let what = "it was made from records that this log does not have";
            return Err(reader.invalid_header(what));
        }
        Ok(Some(Self { reader }))
    }

    /// Returns the note.
    pub fn note(&self) -> &[u8] {
        &self.reader.header.note
    }

    /// Returns the number of chunks.
    pub fn chunks(&self) -> u32 {
        self.reader.header.chunks
    }

    /// Returns the size of the file in bytes.
    pub fn bytes(&self) -> u64 {
        self.reader.bytes
    }

    /// Reads a chunk, from 0, and checks its checksum.
    ///
    /// # Errors
    /// [`ReadError::Corrupted`], [`LogError::Io`].
    pub fn chunk<'a>(
        &self,
        number: u32,
        buffer: &'a mut CheckpointBuffer,
    ) -> Result<&'a [u8], ReadError> {
        self.reader.chunk(number, &mut buffer.0).map_err(ReadError::narrow)
    }

    /// Returns the error for a chunk whose checksum matches, and whose content is not valid.
    pub fn invalid(&self, number: u32, what: &'static str) -> ReadError {
        ReadError::narrow(self.reader.invalid(number, what))
    }
}
