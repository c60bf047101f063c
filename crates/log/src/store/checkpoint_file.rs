//! The file of a checkpoint: a sealed file that is written and read in chunks, because it may be
//! larger than memory allows twice.
//!
//! A component writes one from time to time, so that it opens faster. It holds nothing that the
//! records do not: a lost or corrupt one costs a longer opening and nothing else.
//!
//! # The crash argument
//!
//! The chunks and then the header are written to a temporary file, which is synced, and renamed
//! over the last checkpoint; then the directory is synced. A crash leaves the old file or the new
//! one under the name. Opening removes a temporary file.
//!
//! Every checksum covers the number of the chunk and the salt of the header: the session, and the
//! number of the checkpoint in it. So a block of an earlier checkpoint, which a lost write may
//! leave in the file, is never taken for one of this checkpoint.
//!
//! ```text
//! header, one block            chunk n, at 4096 + n * 2 MiB
//! 0   magic "ESKRCKPT"         0   crc of what follows
//! 8   version            u32   4   length of the content  u32
//! 12  crc of the block   u32   8   number of the chunk    u32
//! 16  log id        16 bytes   12  zero                   u32
//! 32  session            u64   16  session                u64
//! 40  number in it       u64   24  number in it           u64
//! 48  chunks             u32   32  content ...
//! 52  length of the note u32       zeros
//! 56  note ...
//!
//! 3824  last record        u64
//! 3832  samples            u32
//! 3836  zero               u32
//! 3840  checksum of each   u32
//! ```

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

use esker_disk::{AlignedBuf, Dir, File, Open, read_full_at, write_all_at};

use crate::base::error::{Corruption, Error, Result};
use crate::base::position::Seq;
use crate::format::{BLOCK, LogId, VERSION, crc};
use crate::store::directory;
use crate::store::paths::{self, CHECKPOINT};
use crate::store::sealed_file;

const MAGIC: [u8; 8] = *b"ESKRCKPT";
/// Bytes of a chunk in the file.
const CHUNK: usize = 2 << 20;
const CHUNK_HEADER: usize = 32;
const HEADER: usize = 56;
/// The most samples.
pub(crate) const SAMPLES: usize = 64;
const SAMPLED: usize = BLOCK as usize - 16 - 4 * SAMPLES;
/// The most bytes of content in a chunk.
pub(crate) const CONTENT_MAX: usize = CHUNK - CHUNK_HEADER;
/// The most bytes of a note.
pub(crate) const NOTE_MAX: usize = SAMPLED - HEADER;

/// What makes the checksums of a file its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Salt {
    pub(crate) log: LogId,
    pub(crate) session: u64,
    /// The number of the checkpoint in its session, from 1.
    pub(crate) number: u64,
}

/// The header of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) salt: Salt,
    pub(crate) chunks: u32,
    pub(crate) note: Vec<u8>,
    pub(crate) samples: Samples,
}

/// Checksums of some records up to the last one that was durable when the file was written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Samples {
    pub(crate) last: u64,
    /// At most [`SAMPLES`].
    pub(crate) crcs: Vec<u32>,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |field| u32::from_le_bytes(*field))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |field| u64::from_le_bytes(*field))
}

impl Header {
    /// Encodes the header; the note is at most [`NOTE_MAX`] long.
    fn encode(&self, block: &mut [u8]) {
        debug_assert!(self.note.len() <= NOTE_MAX, "the caller limits the note");
        block.fill(0);
        block[..8].copy_from_slice(&MAGIC);
        block[8..12].copy_from_slice(&VERSION.to_le_bytes());
        block[16..32].copy_from_slice(&self.salt.log.0);
        block[32..40].copy_from_slice(&self.salt.session.to_le_bytes());
        block[40..48].copy_from_slice(&self.salt.number.to_le_bytes());
        block[48..52].copy_from_slice(&self.chunks.to_le_bytes());
        block[52..56].copy_from_slice(&(self.note.len() as u32).to_le_bytes());
        block[HEADER..HEADER + self.note.len()].copy_from_slice(&self.note);
        let Samples { last, crcs } = &self.samples;
        let (numbers, places) = block[SAMPLED..].split_at_mut(16);
        numbers[..8].copy_from_slice(&last.to_le_bytes());
        numbers[8..12].copy_from_slice(&(crcs.len() as u32).to_le_bytes());
        for (place, crc) in places.as_chunks_mut::<4>().0.iter_mut().zip(crcs) {
            *place = crc.to_le_bytes();
        }
        let sum = crc(block);
        block[12..16].copy_from_slice(&sum.to_le_bytes());
    }

    /// Decodes the first block of a file; otherwise says what is wrong with it.
    pub(crate) fn decode(block: &[u8]) -> std::result::Result<Self, &'static str> {
        if block.len() != BLOCK as usize || block[..8] != MAGIC {
            return Err("this is not a checkpoint");
        }
        let mut blank = block.to_vec();
        blank[12..16].fill(0);
        if crc(&blank) != u32_at(block, 12) {
            return Err("the checksum of the header does not match");
        }
        if u32_at(block, 8) != VERSION {
            return Err("its version is not supported");
        }
        let len = u32_at(block, 52) as usize;
        let note = block[HEADER..SAMPLED].get(..len).ok_or("its note exceeds the header")?.to_vec();
        let (numbers, places) = block[SAMPLED..].split_at(16);
        let (last, count) = (u64_at(numbers, 0), u32_at(numbers, 8) as usize);
        let places = places.as_chunks().0.get(..count).ok_or("it has too many samples")?;
        let crcs = places.iter().map(|crc| u32::from_le_bytes(*crc)).collect();
        let samples = Samples { last, crcs };
        let mut log = [0; 16];
        log.copy_from_slice(&block[16..32]);
        let salt = Salt { log: LogId(log), session: u64_at(block, 32), number: u64_at(block, 40) };
        Ok(Self { salt, chunks: u32_at(block, 48), note, samples })
    }
}

fn seal_chunk(chunk: &mut [u8], salt: Salt, number: u32, len: usize) {
    chunk[4..8].copy_from_slice(&(len as u32).to_le_bytes());
    chunk[8..12].copy_from_slice(&number.to_le_bytes());
    chunk[12..16].fill(0);
    chunk[16..24].copy_from_slice(&salt.session.to_le_bytes());
    chunk[24..32].copy_from_slice(&salt.number.to_le_bytes());
    let sum = crc(&chunk[4..CHUNK_HEADER + len]);
    chunk[..4].copy_from_slice(&sum.to_le_bytes());
}

/// The content of a chunk, given its bytes in the file; otherwise says what is wrong with it.
pub(crate) fn check_chunk(
    chunk: &[u8],
    salt: Salt,
    number: u32,
) -> std::result::Result<&[u8], &'static str> {
    let len = u32_at(chunk, 4) as usize;
    let end = len.checked_add(CHUNK_HEADER).filter(|end| *end <= CHUNK);
    let Some(sealed) = end.and_then(|end| chunk.get(4..end)) else {
        return Err("a chunk is cut");
    };
    if crc(sealed) != u32_at(chunk, 0) {
        return Err("the checksum of a chunk does not match");
    }
    let own = (number, salt.session, salt.number);
    if (u32_at(chunk, 8), u64_at(chunk, 16), u64_at(chunk, 24)) != own {
        return Err("a chunk belongs to another checkpoint");
    }
    Ok(&sealed[CHUNK_HEADER - 4..])
}

/// Decodes bytes as a header and as a chunk, as they are and with a checksum that matches. Returns
/// how many of these are valid.
pub(crate) fn decode_any(bytes: &[u8]) -> usize {
    let own = |chunk: &[u8]| {
        let salt =
            Salt { log: LogId([0; 16]), session: u64_at(chunk, 16), number: u64_at(chunk, 24) };
        check_chunk(chunk, salt, u32_at(chunk, 8)).is_ok()
    };
    let mut valid = usize::from(Header::decode(bytes).is_ok()) + usize::from(own(bytes));
    let mut sealed = bytes.to_vec();
    if let Some(block) = sealed.get_mut(..BLOCK as usize) {
        block[..8].copy_from_slice(&MAGIC);
        block[8..12].copy_from_slice(&VERSION.to_le_bytes());
        block[12..16].fill(0);
        let sum = crc(block);
        block[12..16].copy_from_slice(&sum.to_le_bytes());
        valid += usize::from(Header::decode(block).is_ok());
    }
    sealed.clone_from_slice(bytes);
    let len = u32_at(bytes, 4) as usize;
    if let Some(sum) = sealed.get(4..).and_then(|rest| rest.get(..len.saturating_add(28))).map(crc)
    {
        sealed[..4].copy_from_slice(&sum.to_le_bytes());
        valid += usize::from(own(&sealed));
    }
    valid
}

fn place(number: u32) -> u64 {
    u64::from(BLOCK) + u64::from(number) * CHUNK as u64
}

/// Writes a file. Dropping it before it is published removes the temporary file. Several threads
/// may write chunks at a time.
#[derive(Debug)]
pub(crate) struct Writer {
    dir: Arc<dyn Dir>,
    file: Arc<dyn File>,
    salt: Salt,
    /// Chunks that have a number.
    chunks: AtomicU32,
    /// The end of the last one.
    end: AtomicU64,
    published: bool,
}

/// A chunk that is being filled.
#[derive(Debug)]
pub(crate) struct Chunk {
    bytes: AlignedBuf,
    /// Bytes of content.
    len: usize,
}

impl Chunk {
    pub(crate) fn new() -> Self {
        Self { bytes: AlignedBuf::new(CHUNK), len: 0 }
    }

    /// Bytes that still fit.
    pub(crate) fn room(&self) -> usize {
        CONTENT_MAX - self.len
    }

    /// Adds bytes. There is room for them.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        debug_assert!(bytes.len() <= self.room(), "the caller writes the chunk in time");
        let start = CHUNK_HEADER + self.len;
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    pub(crate) fn content(&mut self) -> &mut [u8] {
        &mut self.bytes[CHUNK_HEADER..CHUNK_HEADER + self.len]
    }
}

impl Writer {
    /// Begins a file of about this many bytes.
    pub(crate) fn new(dir: Arc<dyn Dir>, salt: Salt, bytes: u64) -> Result<Self> {
        let temporary = paths::temporary(CHECKPOINT);
        remove(&*dir, &temporary)?;
        let direct = dir.facts()?.direct;
        let file = dir.open(&temporary, Open::create_new().direct(direct))?;
        let (chunks, end) = (AtomicU32::new(0), AtomicU64::new(place(0)));
        let writer = Self { dir, file, salt, chunks, end, published: false };
        writer.file.preallocate(0, bytes.max(1).next_multiple_of(u64::from(BLOCK)))?;
        Ok(writer)
    }

    /// Writes a chunk, and empties it.
    pub(crate) fn write(&self, chunk: &mut Chunk) -> Result<()> {
        let number = self.chunks.fetch_add(1, SeqCst);
        let used = CHUNK_HEADER + chunk.len;
        seal_chunk(&mut chunk.bytes, self.salt, number, chunk.len);
        let padded = used.next_multiple_of(BLOCK as usize);
        chunk.bytes[used..padded].fill(0);
        chunk.len = 0;
        write_all_at(&*self.file, &chunk.bytes[..padded], place(number))?;
        self.end.fetch_max(place(number) + padded as u64, SeqCst);
        Ok(())
    }

    /// Replaces the last checkpoint, durably. Returns the size of the file in bytes.
    pub(crate) fn publish(mut self, note: &[u8], samples: Samples) -> Result<u64> {
        let (chunks, bytes) = (*self.chunks.get_mut(), *self.end.get_mut());
        let mut block = AlignedBuf::new(BLOCK as usize);
        Header { salt: self.salt, chunks, note: note.to_vec(), samples }.encode(&mut block);
        write_all_at(&*self.file, &block, 0)?;
        self.file.set_len(bytes)?;
        self.file.sync_data()?;
        sealed_file::publish(&*self.dir, &paths::temporary(CHECKPOINT), CHECKPOINT)?;
        self.published = true;
        Ok(bytes)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.published
            && let Err(error) = remove(&*self.dir, &paths::temporary(CHECKPOINT))
        {
            tracing::debug!(%error, "failed to remove an unfinished checkpoint");
        }
    }
}

fn remove(dir: &dyn Dir, name: &str) -> Result<()> {
    match dir.unlink(name) {
        Err(cause) if cause.kind() != ErrorKind::NotFound => Err(cause.into()),
        _ => Ok(()),
    }
}

/// Reads a file. Chunks may be read by several threads at a time.
#[derive(Debug)]
pub(crate) struct Reader {
    file: Arc<dyn File>,
    pub(crate) header: Header,
    /// The size of the file in bytes.
    pub(crate) bytes: u64,
}

/// Memory for one chunk, to be used again.
#[derive(Debug)]
pub(crate) struct Buffer(AlignedBuf);

impl Buffer {
    pub(crate) fn new() -> Self {
        Self(AlignedBuf::new(CHUNK))
    }
}

impl Reader {
    /// Opens the checkpoint of a log; `None` if there is none.
    pub(crate) fn open(dir: &dyn Dir, log: LogId) -> Result<Option<Self>> {
        let direct = directory::reads_directly(dir);
        let file = match dir.open(CHECKPOINT, Open::read().direct(direct)) {
            Err(cause) if cause.kind() == ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mut block = AlignedBuf::new(BLOCK as usize);
        let got = read_full_at(&*file, &mut block, 0)?;
        let header = Header::decode(&block[..got]).map_err(|what| corrupt(&*file, 0, what))?;
        if header.salt.log != log {
            return Err(corrupt(&*file, 0, "it belongs to another log"));
        }
        let bytes = file.len()?;
        if bytes <= place(header.chunks).saturating_sub(CHUNK as u64) && header.chunks > 0 {
            return Err(corrupt(&*file, 0, "the file is cut"));
        }
        Ok(Some(Self { file, header, bytes }))
    }

    /// Reads and checks a chunk.
    pub(crate) fn chunk<'a>(&self, number: u32, buffer: &'a mut Buffer) -> Result<&'a [u8]> {
        let offset = place(number);
        let got = read_full_at(&*self.file, &mut buffer.0, offset)?;
        check_chunk(&buffer.0[..got], self.header.salt, number)
            .map_err(|what| corrupt(&*self.file, offset, what))
    }

    /// The error for a file that was made from records that the log does not have.
    pub(crate) fn of_other_records(&self) -> Error {
        corrupt(&*self.file, 0, "it was made from records that this log does not have")
    }

    /// The error for content that its checksum covers and its component does not accept.
    pub(crate) fn invalid(&self, number: u32, what: &'static str) -> Error {
        corrupt(&*self.file, place(number), what)
    }
}

/// Removes the checkpoint, durably, if there is one.
pub(crate) fn discard(dir: &dyn Dir) -> Result<()> {
    match dir.unlink(CHECKPOINT) {
        Err(cause) if cause.kind() == ErrorKind::NotFound => Ok(()),
        unlinked => Ok(unlinked.and_then(|()| dir.sync())?),
    }
}

fn corrupt(file: &dyn File, offset: u64, what: &str) -> Error {
    let file = file.path().into();
    Error::Corrupted(Corruption { file, offset, after: Seq::ZERO, what: what.into() })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use esker_disk::Disk;
    use esker_disk::sim::{CutPoint, Persist, SimDisk};

    use super::*;

    const DIR: &str = "/log";
    const LOG: LogId = LogId([7; 16]);

    fn write(dir: &Arc<dyn Dir>, number: u64, contents: &[&[u8]]) -> Result<u64> {
        let salt = Salt { log: LOG, session: 3, number };
        let (writer, mut chunk) = (Writer::new(Arc::clone(dir), salt, 1)?, Chunk::new());
        for content in contents {
            chunk.push(content);
            writer.write(&mut chunk)?;
        }
        let samples = Samples { last: number, crcs: vec![1, 2, 3] };
        writer.publish(&number.to_le_bytes(), samples)
    }

    /// The note and all chunks.
    fn read(disk: &SimDisk) -> Result<Option<(u64, Vec<Vec<u8>>)>> {
        let dir = disk.open_dir(Path::new(DIR)).unwrap();
        let Some(reader) = Reader::open(&*dir, LOG)? else { return Ok(None) };
        let mut chunks = Vec::new();
        for number in 0..reader.header.chunks {
            chunks.push(reader.chunk(number, &mut Buffer::new())?.to_vec());
        }
        Ok(Some((u64_at(&reader.header.note, 0), chunks)))
    }

    #[test]
    fn chunks_round_trip() {
        let disk = SimDisk::new(1);
        let dir = disk.create_dir(Path::new(DIR)).unwrap();
        assert_eq!(read(&disk).unwrap(), None);
        let full = &vec![5; CONTENT_MAX][..];
        let one: &[u8] = b"one";
        for contents in [&[][..], &[one], &[one, b"two"], &[full], &[full, full, one]] {
            let bytes = write(&dir, 9, contents).unwrap();
            let contents: Vec<_> = contents.iter().map(|content| content.to_vec()).collect();
            assert_eq!(read(&disk).unwrap(), Some((9, contents)));
            assert_eq!(dir.open(CHECKPOINT, Open::read()).unwrap().len().unwrap(), bytes);
        }
        let file = Path::new(DIR).join(paths::temporary(CHECKPOINT));
        assert!(disk.contents(&file).is_err(), "the temporary file was renamed");
    }

    #[test]
    fn any_changed_byte_is_reported_as_corruption() {
        let disk = SimDisk::new(1);
        let dir = disk.create_dir(Path::new(DIR)).unwrap();
        write(&dir, 9, &[&[3; 100]]).unwrap();
        let path = Path::new(DIR).join(CHECKPOINT);
        let header = 0..u64::from(BLOCK);
        for byte in header.chain(place(0)..place(0) + (CHUNK_HEADER + 100) as u64) {
            let disk = disk.fork(byte);
            disk.flip_bit(&path, byte * 8 + byte % 8).unwrap();
            let answer = read(&disk);
            assert!(matches!(answer, Err(Error::Corrupted(_))), "byte {byte}: {answer:?}");
        }
    }

    /// A chunk at its place in an earlier checkpoint, or at another place, is refused.
    #[test]
    fn a_chunk_of_another_place_or_checkpoint_is_refused() {
        let salt = Salt { log: LOG, session: 3, number: 9 };
        let mut chunk = vec![0; 100];
        seal_chunk(&mut chunk, salt, 4, 50);
        assert_eq!(check_chunk(&chunk, salt, 4), Ok(&[0; 50][..]));
        assert!(check_chunk(&chunk, salt, 5).is_err());
        assert!(check_chunk(&chunk, Salt { number: 8, ..salt }, 4).is_err());
        assert!(check_chunk(&chunk, Salt { session: 4, ..salt }, 4).is_err());
        assert!(check_chunk(&chunk[..60], salt, 4).is_err());
    }

    #[test]
    fn a_crash_leaves_the_old_checkpoint_or_the_new_one() {
        let disk = SimDisk::new(1);
        let dir = disk.create_dir(Path::new(DIR)).unwrap();
        write(&dir, 1, &[b"old", b"older"]).unwrap();
        let mut seen = [0; 2];
        for cut in 0.. {
            let disk = disk.fork(cut);
            let how = [Persist::Random, Persist::Nothing, Persist::Torn][cut as usize % 3];
            disk.cut_power_at(CutPoint::During(disk.operations() + cut / 3), how);
            let dir = disk.open_dir(Path::new(DIR)).unwrap();
            let done = write(&dir, 2, &[b"new", b"newer", b"newest"]).is_ok();
            drop(dir);
            disk.cancel_cut();
            disk.power_on();
            let (number, chunks) = read(&disk).unwrap().unwrap();
            assert_eq!(chunks.len() as u64, number + 1, "cut at {cut}");
            assert!(number == 2 || !done, "it was durable");
            seen[number as usize - 1] += 1;
            if done {
                break;
            }
        }
        assert!(seen[0] > 10 && seen[1] > 1, "{seen:?}");
    }

    #[test]
    fn a_full_disk_leaves_the_old_checkpoint_and_no_temporary_file() {
        let disk = SimDisk::new(1);
        let dir = disk.create_dir(Path::new(DIR)).unwrap();
        write(&dir, 1, &[b"old"]).unwrap();
        let used = disk.used();
        disk.set_capacity(Some(used + 8 * u64::from(BLOCK)));
        assert!(write(&dir, 2, &[&[1; 100_000]]).is_err());
        assert_eq!(read(&disk).unwrap(), Some((1, vec![b"old".to_vec()])));
        assert_eq!(disk.used(), used);
    }
}
