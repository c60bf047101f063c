//! The snapshots of a log's application: chunked files, each named after the number up to which the
//! application had applied.
//!
//! The note of the header begins with that number and with the length of the content, both u64.

use esker_disk::{Dir, OpenMode};

use crate::base::error::Result;
use crate::format::BLOCK_BYTES;
use crate::store::chunked_file::{
    CHUNK_BYTES, CHUNK_HEADER, CONTENT_MAX, Header, Kind, NOTE_MAX, Reader, place, u64_at,
};
use crate::store::paths;

/// Bytes of the header's note before the application's own.
const OWN_NOTE_BYTES: usize = 16;
/// The most bytes of the application's note.
pub(crate) const SNAPSHOT_NOTE_MAX: usize = NOTE_MAX - OWN_NOTE_BYTES;
/// Snapshots of at most this many chunks go through the page cache.
pub(crate) const CACHED_CHUNKS: u32 = 1;

/// Encodes the note of a header.
pub(crate) fn note(at: u64, len: u64, note: &[u8]) -> Vec<u8> {
    [&at.to_le_bytes(), &len.to_le_bytes(), note].concat()
}

/// The header of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SnapshotHeader {
    pub(crate) header: Header,
    pub(crate) at: u64,
    /// The length of the content in bytes.
    pub(crate) len: u64,
}

impl SnapshotHeader {
    pub(crate) fn new(header: Header) -> std::result::Result<Self, &'static str> {
        if header.note.len() < OWN_NOTE_BYTES {
            return Err("its header says too little");
        }
        let (at, len) = (u64_at(&header.note, 0), u64_at(&header.note, 8));
        if len.div_ceil(CONTENT_MAX as u64) != u64::from(header.chunks) {
            return Err("its length is not that of its chunks");
        }
        Ok(Self { header, at, len })
    }

    pub(crate) fn note(&self) -> &[u8] {
        self.header.note.get(OWN_NOTE_BYTES..).unwrap_or_default()
    }

    /// The length of the content of a chunk.
    pub(crate) fn len_of(&self, chunk: u32) -> usize {
        let before = u64::from(chunk) * CONTENT_MAX as u64;
        self.len.saturating_sub(before).min(CONTENT_MAX as u64) as usize
    }

    /// The size of the file in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let Some(last) = self.header.chunks.checked_sub(1) else { return place(0) };
        let padded = (CHUNK_HEADER + self.len_of(last)).next_multiple_of(BLOCK_BYTES as usize);
        place(last) + padded as u64
    }
}

/// The numbers of all snapshots, in ascending order.
pub(crate) fn list(dir: &dyn Dir) -> Result<Vec<u64>> {
    let mut all: Vec<u64> =
        dir.list()?.iter().filter_map(|name| paths::snapshot_at(name)).collect();
    all.sort_unstable();
    Ok(all)
}

/// Opens a snapshot, and reads its header; `None` if there is none.
pub(crate) fn open(dir: &dyn Dir, at: u64) -> Result<Option<(Reader, SnapshotHeader)>> {
    let name = paths::snapshot(at);
    let file = match dir.open(&name, OpenMode::read()) {
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let cached = place(0) + u64::from(CACHED_CHUNKS) * CHUNK_BYTES as u64;
    let reader = if file.len()? > cached {
        Reader::open(dir, &name, Kind::Snapshot)?
    } else {
        Some(Reader::from_file(file, Kind::Snapshot)?)
    };
    let Some(reader) = reader else { return Ok(None) };
    let invalid = |what| reader.invalid_header(what);
    let header = SnapshotHeader::new(reader.header.clone()).map_err(invalid)?;
    if header.at != at {
        return Err(invalid("it is the snapshot of another number than its name says"));
    }
    if header.bytes() != reader.bytes {
        return Err(invalid("the file does not have the size that its header says"));
    }
    Ok(Some((reader, header)))
}
