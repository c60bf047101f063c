//! A snapshot that another node sends, in order, with interruptions.
//!
//! # The crash argument
//!
//! The header is written first, under the name `incoming`, and then each chunk that its checksum
//! covers. Nothing is synced before all are there. So a crash leaves any subset of the blocks. The
//! next transfer continues after the longest run of chunks that are read back whole; their
//! checksums cover the salt of this snapshot. When every chunk is there, the file is cut to its
//! size, synced, and read back once more; then it is renamed, and the directory is synced.

use std::io::ErrorKind;
use std::sync::Arc;

use esker_disk::{AlignedBuf, Dir, File, Open, write_all_at};

use crate::base::error::{Error, Result};
use crate::format::BLOCK;
use crate::store::chunked_file::{
    Buffer, CHUNK, CHUNK_HEADER, Header, Kind, Reader, check_chunk, corrupt, place, remove,
};
use crate::store::paths::{self, INCOMING};
use crate::store::sealed_file;
use crate::store::snapshot_files::SnapshotHeader;

/// So many bytes are reserved at a time.
pub(crate) const STEP: u64 = 64 << 20;

#[derive(Debug)]
pub(crate) struct IncomingFile {
    dir: Arc<dyn Dir>,
    direct: bool,
    file: Arc<dyn File>,
    pub(crate) header: SnapshotHeader,
    /// Chunks that are there.
    next: u32,
    /// The name that the file has.
    name: String,
    /// Bytes that are reserved.
    reserved: u64,
    block: AlignedBuf,
}

impl IncomingFile {
    /// Continues the snapshot that this header describes, or begins it. If it was published, and
    /// the sender did not learn that, nothing is to be sent.
    pub(crate) fn begin(dir: Arc<dyn Dir>, direct: bool, header: &[u8]) -> Result<Self> {
        let path = dir.path_of(INCOMING);
        let invalid = |what: &str| crate::base::error::corruption_at(&path, 0, 0, what);
        let decoded = Header::decode(Kind::Snapshot, header)
            .and_then(SnapshotHeader::new)
            .map_err(invalid)?;
        let chunks = decoded.header.chunks;
        let published = paths::snapshot(decoded.at);
        let is_there = chunks_in(&*dir, &published, direct, &decoded.header)?;
        if let Some((file, _)) = is_there.filter(|(_, found)| *found == chunks) {
            let (block, name) = (AlignedBuf::new(0), published);
            return Ok(Self {
                dir,
                direct,
                file,
                header: decoded,
                name,
                next: chunks,
                reserved: 0,
                block,
            });
        }
        let (file, next) = match chunks_in(&*dir, INCOMING, direct, &decoded.header)? {
            Some(found) => found,
            None => {
                remove(&*dir, INCOMING)?;
                (dir.open(INCOMING, Open::create_new().direct(direct))?, 0)
            }
        };
        let block = AlignedBuf::new(CHUNK);
        let name = INCOMING.into();
        let mut incoming =
            Self { dir, direct, file, header: decoded, name, next, reserved: 0, block };
        incoming.reserve(place(0))?;
        incoming.block[..BLOCK as usize].copy_from_slice(header);
        write_all_at(&*incoming.file, &incoming.block[..BLOCK as usize], 0)?;
        Ok(incoming)
    }

    /// The number of the chunk that comes next.
    pub(crate) fn next(&self) -> u32 {
        self.next
    }

    /// Writes the next chunk, header included.
    pub(crate) fn write(&mut self, sealed: &[u8]) -> Result<()> {
        let (number, offset) = (self.next, place(self.next));
        let checked = check_chunk(sealed, self.header.header.salt, number);
        let content = checked.map_err(|what| corrupt(&*self.file, offset, what))?;
        let expected = self.header.len_of(number);
        if content.len() != expected || sealed.len() != CHUNK_HEADER + expected || expected == 0 {
            return Err(corrupt(&*self.file, offset, "a chunk does not have its length"));
        }
        let padded = sealed.len().next_multiple_of(BLOCK as usize);
        self.reserve(offset + padded as u64)?;
        self.block[..sealed.len()].copy_from_slice(sealed);
        self.block[sealed.len()..padded].fill(0);
        write_all_at(&*self.file, &self.block[..padded], offset)?;
        self.next += 1;
        Ok(())
    }

    fn reserve(&mut self, end: u64) -> Result<()> {
        while self.reserved < end {
            let step = STEP.min(self.header.bytes().saturating_sub(self.reserved)).max(1);
            self.file.preallocate(self.reserved, step)?;
            self.reserved += step;
        }
        Ok(())
    }

    /// Makes the content durable, and reads it back.
    pub(crate) fn seal(&self) -> Result<()> {
        if self.next < self.header.header.chunks {
            return Err(corrupt(&*self.file, place(self.next), "the rest was not received"));
        }
        self.file.set_len(self.header.bytes())?;
        self.file.sync_data()?;
        match chunks_in(&*self.dir, &self.name, self.direct, &self.header.header)? {
            Some((_, chunks)) if chunks == self.header.header.chunks => Ok(()),
            _ => Err(corrupt(&*self.file, 0, "it does not read back as it was written")),
        }
    }

    /// Gives the sealed file its name, durably.
    pub(crate) fn publish(self) -> Result<()> {
        sealed_file::publish(&*self.dir, &self.name, &paths::snapshot(self.header.at))
    }
}

/// Opens the file of this snapshot, whole or not, and counts the chunks in it.
fn chunks_in(
    dir: &dyn Dir,
    name: &str,
    direct: bool,
    header: &Header,
) -> Result<Option<(Arc<dyn File>, u32)>> {
    let file = match dir.open(name, Open::write().direct(direct)) {
        Err(cause) if cause.kind() == ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    // A crash may leave blocks that cannot be read.
    let reader = match Reader::of(Arc::clone(&file), Kind::Snapshot) {
        Ok(reader) if reader.header == *header => reader,
        Ok(_) | Err(Error::Corrupted(_) | Error::Io(_)) => return Ok(None),
        Err(error) => return Err(error),
    };
    let (mut buffer, mut chunks) = (Buffer::new(), 0);
    while chunks < header.chunks && reader.chunk(chunks, &mut buffer).is_ok() {
        chunks += 1;
    }
    Ok(Some((file, chunks)))
}
