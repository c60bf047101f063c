//! A snapshot that another node sends, in order, with interruptions.
//!
//! # The crash argument
//!
//! The header is written first, under the name `incoming`, and then each chunk that its checksum
//! covers. Nothing is synced before all are there. So a crash leaves any subset of the blocks. The
//! next transfer continues after the longest run of chunks that are read back whole; their
//! checksums cover the salt of this snapshot. When every chunk is there, the file is cut to its
//! size, synced, and read back once more; then it is renamed, and the directory is synced. After a
//! failed write or sync the file is removed, because what reads back may not be on the medium.

use std::io::ErrorKind;
use std::sync::Arc;

use esker_disk::planted::{Bug, is_planted};
use esker_disk::{AlignedBuf, Dir, File, OpenMode, write_all_at};

use crate::base::error::{Error, Result};
use crate::format::BLOCK_BYTES;
use crate::store::chunked_file::{
    Buffer, CHUNK_BYTES, CHUNK_HEADER, Header, Kind, Reader, check_chunk, corrupt, place, remove,
};
use crate::store::paths::{self, INCOMING};
use crate::store::sealed_file;
use crate::store::snapshot_files::SnapshotHeader;

/// The number of bytes preallocated at a time.
pub(crate) const PREALLOCATION_BYTES: u64 = 64 << 20;

/// The part of a snapshot that is there, before anything is changed.
#[derive(Debug)]
pub(crate) struct ReceivedPart {
    dir: Arc<dyn Dir>,
    direct: bool,
    header: SnapshotHeader,
    /// The file, its name, and the chunks in it.
    file: Option<(Arc<dyn File>, String, u32)>,
}

#[derive(Debug)]
pub(crate) struct IncomingFile {
    dir: Arc<dyn Dir>,
    direct: bool,
    file: Arc<dyn File>,
    pub(crate) header: SnapshotHeader,
    /// Chunks that are there.
    next: u32,
    /// The name that the file has. It is the final one if it was published before.
    name: String,
    /// The number of bytes preallocated.
    preallocated: u64,
    block: AlignedBuf,
}

impl ReceivedPart {
    /// Continues the transfer, or begins it.
    pub(crate) fn begin(self, header: &[u8]) -> Result<IncomingFile> {
        let ReceivedPart { dir, direct, header: decoded, file } = self;
        let (file, name, next) = match file {
            Some(found) => found,
            None => {
                remove(&*dir, INCOMING)?;
                (dir.open(INCOMING, OpenMode::create_new().direct(direct))?, INCOMING.into(), 0)
            }
        };
        let block = AlignedBuf::lazy(CHUNK_BYTES);
        let mut incoming =
            IncomingFile { dir, direct, file, header: decoded, next, name, preallocated: 0, block };
        if next == 0 && incoming.name == INCOMING {
            let written = incoming.write_at(0, header);
            incoming.unless_failed(written)?;
        }
        Ok(incoming)
    }
}

impl IncomingFile {
    /// Looks for the snapshot that this header describes: published, if the sender did not learn
    /// that, or partly received.
    pub(crate) fn find(
        dir: Arc<dyn Dir>,
        direct: bool,
        header: &[u8],
        admits: impl FnOnce(u64, &[u8]) -> bool,
    ) -> Result<ReceivedPart> {
        let path = dir.path_of(INCOMING);
        let header = Header::decode(Kind::Snapshot, header)
            .and_then(SnapshotHeader::new)
            .and_then(|header| match admits(header.at, header.note()) {
                true => Ok(header),
                false => Err("it is no snapshot of this application"),
            })
            .map_err(|what| crate::base::error::corruption_at(&path, 0, 0, what))?;
        let published = paths::snapshot(header.at);
        let whole = chunks_in(&*dir, &published, direct, &header.header)?
            .filter(|(_, chunks)| *chunks == header.header.chunks)
            .map(|(file, chunks)| (file, published, chunks));
        let file = match whole {
            Some(whole) => Some(whole),
            None => chunks_in(&*dir, INCOMING, direct, &header.header)?
                .map(|(file, chunks)| (file, INCOMING.into(), chunks)),
        };
        Ok(ReceivedPart { dir, direct, header, file })
    }

    /// After a failed write or sync, what can be read may be in the page cache only: nothing of the
    /// file is used again.
    fn unless_failed(&self, outcome: Result<()>) -> Result<()> {
        if matches!(&outcome, Err(Error::Io(cause)) if !cause.is_no_space())
            && self.name == INCOMING
            && let Err(error) = remove(&*self.dir, INCOMING)
        {
            tracing::warn!(%error, "failed to remove a snapshot that was partly received");
        }
        outcome
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
        let written = self.write_at(offset, sealed);
        self.unless_failed(written)?;
        self.next += 1;
        Ok(())
    }

    /// Writes bytes, in whole blocks.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let padded = bytes.len().next_multiple_of(BLOCK_BYTES as usize);
        self.preallocate_to(offset + padded as u64)?;
        self.block[..bytes.len()].copy_from_slice(bytes);
        self.block[bytes.len()..padded].fill(0);
        Ok(write_all_at(&*self.file, &self.block[..padded], offset)?)
    }

    fn preallocate_to(&mut self, end: u64) -> Result<()> {
        while self.preallocated < end {
            let step = PREALLOCATION_BYTES
                .min(self.header.bytes().saturating_sub(self.preallocated))
                .max(1);
            self.file.preallocate(self.preallocated, step)?;
            self.preallocated += step;
        }
        Ok(())
    }

    /// Makes the content durable, and reads it back.
    pub(crate) fn seal(&self) -> Result<()> {
        if self.next < self.header.header.chunks {
            return Err(corrupt(&*self.file, place(self.next), "the rest was not received"));
        }
        if is_planted(Bug::ReceivedSnapshotNotSynced) {
            return Ok(self.file.set_len(self.header.bytes())?);
        }
        let synced = self.file.set_len(self.header.bytes()).and_then(|()| self.file.sync_data());
        self.unless_failed(synced.map_err(Error::from))?;
        match chunks_in(&*self.dir, &self.name, self.direct, &self.header.header)? {
            Some((_, chunks)) if chunks == self.header.header.chunks => Ok(()),
            _ => Err(corrupt(&*self.file, 0, "it does not read back as it was written")),
        }
    }

    /// Gives the sealed file its name, durably.
    pub(crate) fn publish(self) -> Result<()> {
        let name = paths::snapshot(self.header.at);
        self.rename_to(&name).map(drop)
    }

    /// Gives the sealed file this temporary name, durably. Returns `false` where it was published
    /// before, and stays.
    pub(crate) fn stage(self, temporary: &str) -> Result<bool> {
        self.rename_to(temporary)
    }

    fn rename_to(self, name: &str) -> Result<bool> {
        if self.name != INCOMING {
            self.dir.sync()?;
            return Ok(false);
        }
        sealed_file::publish(&*self.dir, INCOMING, name).map(|()| true)
    }
}

/// Opens the file of this snapshot, whole or not, and counts the chunks in it.
fn chunks_in(
    dir: &dyn Dir,
    name: &str,
    direct: bool,
    header: &Header,
) -> Result<Option<(Arc<dyn File>, u32)>> {
    let file = match dir.open(name, OpenMode::write().direct(direct)) {
        Err(cause) if cause.kind() == ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    // A crash may leave blocks that cannot be read.
    let reader = match Reader::from_file(Arc::clone(&file), Kind::Snapshot) {
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
