//! The chunked file: a sealed file that is written and read in chunks, because it may be larger
//! than memory. Two kinds of data are stored in one:
//!
//! - *A checkpoint*, which a component writes from time to time so that it opens faster. It holds
//!   nothing that the records do not: a lost or corrupt one costs a longer opening and nothing
//!   else.
//! - *A snapshot* of the state of an application, after which records may be truncated.
//!
//! # The crash argument
//!
//! The chunks and then the header are written to a temporary file, which is synced, and renamed
//! over the last file of that name; then the directory is synced. A crash leaves the old file or
//! the new one under the name. Opening removes a temporary file.
//!
//! Every checksum covers the number of the chunk and the salt of the header: two numbers that no
//! other file of this name has. So a block of an earlier file, which a lost write may leave there,
//! is never taken for one of this file.
//!
//! ```text
//! header, one block            chunk n, at 4096 + n * 2 MiB
//! 0   magic                    0   crc of what follows
//! 8   version            u32   4   length of the content  u32
//! 12  crc of the block   u32   8   number of the chunk    u32
//! 16  log id        16 bytes   12  zero                   u32
//! 32  salt          2 x u64    16  salt               2 x u64
//! 48  chunks             u32   32  content ...
//! 52  length of the note u32       zeros
//! 56  note ...
//!
//! 3824  last record        u64
//! 3832  samples            u32
//! 3836  zero               u32
//! 3840  checksum of each   u32
//! ```

mod chunk;
mod layout;

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

use esker_disk::planted::{Bug, is_planted};
use esker_disk::{AlignedBuf, Dir, File, OpenMode, read_full_at, write_all_at};

use crate::base::error::{Error, Result, corruption_at};
use crate::format::BLOCK_BYTES;
pub(crate) use crate::store::chunked_file::chunk::{Buffer, Chunk};
pub(crate) use crate::store::chunked_file::layout::{
    CHUNK_BYTES, CHUNK_HEADER, CONTENT_MAX, Header, Kind, NOTE_MAX, SAMPLES_MAX, Salt, Samples,
    check_chunk, decode_any, place, u64_at,
};
use crate::store::directory;
use crate::store::sealed_file;

/// The names of a file, and what it is.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    pub(crate) kind: Kind,
    /// The name while it is written.
    pub(crate) temporary: String,
    pub(crate) name: String,
}

/// Writes a file. Dropping it before it is published removes the temporary file. Several threads
/// may write chunks at a time.
#[derive(Debug)]
pub(crate) struct Writer {
    dir: Arc<dyn Dir>,
    pub(crate) file: Arc<dyn File>,
    names: Names,
    salt: Salt,
    /// Chunks that have a number.
    chunks: AtomicU32,
    /// The end of the last one.
    end: AtomicU64,
    published: bool,
}

impl Writer {
    /// Begins a file of about this many bytes.
    pub(crate) fn new(
        dir: Arc<dyn Dir>,
        names: Names,
        direct: bool,
        salt: Salt,
        bytes: u64,
    ) -> Result<Self> {
        remove(&*dir, &names.temporary)?;
        let file = dir.open(&names.temporary, OpenMode::create_new().direct(direct))?;
        let (chunks, end) = (AtomicU32::new(0), AtomicU64::new(place(0)));
        let writer = Self { dir, file, names, salt, chunks, end, published: false };
        writer.file.preallocate(0, bytes.max(1).next_multiple_of(u64::from(BLOCK_BYTES)))?;
        Ok(writer)
    }

    /// Writes a chunk, and empties it.
    pub(crate) fn write(&self, chunk: &mut Chunk) -> Result<()> {
        let number = self.chunks.fetch_add(1, SeqCst);
        let blocks = chunk.seal(self.salt, number);
        write_all_at(&*self.file, blocks, place(number))?;
        self.end.fetch_max(place(number) + blocks.len() as u64, SeqCst);
        Ok(())
    }

    /// The size of the file so far, in bytes.
    pub(crate) fn end(&self) -> u64 {
        self.end.load(SeqCst)
    }

    /// Writes the header, and makes the content durable under its temporary name.
    pub(crate) fn seal(&mut self, note: &[u8], samples: Samples) -> Result<()> {
        let (chunks, bytes) = (*self.chunks.get_mut(), *self.end.get_mut());
        let mut block = AlignedBuf::new(BLOCK_BYTES as usize);
        let (kind, note) = (self.names.kind, note.to_vec());
        Header { kind, salt: self.salt, chunks, note, samples }.encode(&mut block);
        write_all_at(&*self.file, &block, 0)?;
        self.file.set_len(bytes)?;
        if is_planted(Bug::SnapshotRenamedBeforeSync) && self.names.kind == Kind::Snapshot {
            return Ok(());
        }
        Ok(self.file.sync_data()?)
    }

    /// Durably gives a sealed file its name, in place of the last file of that name.
    pub(crate) fn publish(mut self) -> Result<()> {
        if is_planted(Bug::SnapshotNameNotSynced) && self.names.kind == Kind::Snapshot {
            self.dir.rename(&self.names.temporary, &self.names.name)?;
        } else {
            sealed_file::publish(&*self.dir, &self.names.temporary, &self.names.name)?;
        }
        self.published = true;
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.published
            && let Err(error) = remove(&*self.dir, &self.names.temporary)
        {
            let name = &self.names.temporary;
            tracing::debug!(%error, name, "failed to remove an unfinished file");
        }
    }
}

/// Removes a file if it is there. Not durable.
pub(crate) fn remove(dir: &dyn Dir, name: &str) -> Result<()> {
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

impl Reader {
    /// Opens a file of this kind; `None` if there is none.
    pub(crate) fn open(dir: &dyn Dir, name: &str, kind: Kind) -> Result<Option<Self>> {
        let direct = directory::reads_directly(dir);
        let file = match dir.open(name, OpenMode::read().direct(direct)) {
            Err(cause) if cause.kind() == ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        Self::from_file(file, kind).map(Some)
    }

    /// Reads the header of an open file.
    pub(crate) fn from_file(file: Arc<dyn File>, kind: Kind) -> Result<Self> {
        let mut block = AlignedBuf::new(BLOCK_BYTES as usize);
        let got = read_full_at(&*file, &mut block, 0)?;
        let header =
            Header::decode(kind, &block[..got]).map_err(|what| corrupt(&*file, 0, what))?;
        let bytes = file.len()?;
        if bytes <= place(header.chunks).saturating_sub(CHUNK_BYTES as u64) && header.chunks > 0 {
            return Err(corrupt(&*file, 0, "the file is cut"));
        }
        Ok(Self { file, header, bytes })
    }

    /// Reads and checks a chunk.
    pub(crate) fn chunk<'a>(&self, number: u32, buffer: &'a mut Buffer) -> Result<&'a [u8]> {
        let (sealed, _) = self.sealed_chunk(number, buffer)?;
        Ok(&sealed[CHUNK_HEADER..])
    }

    /// Reads and checks a chunk, and returns it with its header, and what follows it.
    pub(crate) fn sealed_chunk<'a>(
        &self,
        number: u32,
        buffer: &'a mut Buffer,
    ) -> Result<(&'a [u8], &'a [u8])> {
        let offset = place(number);
        let got = read_full_at(&*self.file, &mut buffer.0, offset)?;
        let content = check_chunk(&buffer.0[..got], self.header.salt, number)
            .map_err(|what| corrupt(&*self.file, offset, what))?;
        Ok(buffer.0[..got].split_at(CHUNK_HEADER + content.len()))
    }

    /// The error for a file whose header is not valid here.
    pub(crate) fn invalid_header(&self, what: &'static str) -> Error {
        corrupt(&*self.file, 0, what)
    }

    /// The error for a chunk that is not valid.
    pub(crate) fn invalid_at(&self, number: u32) -> impl Fn(&'static str) -> Error + use<> {
        let file = Arc::clone(&self.file);
        move |what| corrupt(&*file, place(number), what)
    }

    /// The error for content that its checksum covers and its component does not accept.
    pub(crate) fn invalid(&self, number: u32, what: &'static str) -> Error {
        corrupt(&*self.file, place(number), what)
    }
}

/// Removes a file, durably, if it is there.
pub(crate) fn discard(dir: &dyn Dir, name: &str) -> Result<()> {
    match dir.unlink(name) {
        Err(cause) if cause.kind() == ErrorKind::NotFound => Ok(()),
        unlinked => Ok(unlinked.and_then(|()| dir.sync())?),
    }
}

/// The error for a corrupt file.
pub(crate) fn corrupt(file: &dyn File, offset: u64, what: &str) -> Error {
    corruption_at(file.path(), offset, 0, what)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use esker_disk::Disk;
    use esker_disk::sim::{CutPoint, Persist, SimDisk};

    use super::layout::seal_chunk;
    use super::*;
    use crate::format::LogId;
    use crate::store::paths::{self, CHECKPOINT};

    const DIR: &str = "/log";
    const LOG: LogId = LogId([7; 16]);

    fn names() -> Names {
        let (temporary, name) = (paths::temporary(CHECKPOINT), CHECKPOINT.into());
        Names { kind: Kind::Checkpoint, temporary, name }
    }

    fn write(dir: &Arc<dyn Dir>, number: u64, contents: &[&[u8]]) -> Result<u64> {
        let salt = Salt { log: LOG, numbers: [3, number] };
        let direct = dir.facts()?.direct;
        let mut writer = Writer::new(Arc::clone(dir), names(), direct, salt, 1)?;
        let mut chunk = Chunk::new();
        for content in contents {
            chunk.push(content);
            writer.write(&mut chunk)?;
        }
        let samples = Samples { last: number, crcs: vec![1, 2, 3] };
        writer.seal(&number.to_le_bytes(), samples)?;
        let bytes = writer.end();
        writer.publish().map(|()| bytes)
    }

    /// The note and all chunks.
    fn read(disk: &SimDisk) -> Result<Option<(u64, Vec<Vec<u8>>)>> {
        let dir = disk.open_dir(Path::new(DIR)).unwrap();
        let Some(reader) = Reader::open(&*dir, CHECKPOINT, Kind::Checkpoint)? else {
            return Ok(None);
        };
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
            assert_eq!(dir.open(CHECKPOINT, OpenMode::read()).unwrap().len().unwrap(), bytes);
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
        let header = 0..u64::from(BLOCK_BYTES);
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
        let salt = Salt { log: LOG, numbers: [3, 9] };
        let mut chunk = vec![0; 100];
        seal_chunk(&mut chunk, salt, 4, 50);
        assert_eq!(check_chunk(&chunk, salt, 4), Ok(&[0; 50][..]));
        assert!(check_chunk(&chunk, salt, 5).is_err());
        assert!(check_chunk(&chunk, Salt { numbers: [3, 8], ..salt }, 4).is_err());
        assert!(check_chunk(&chunk, Salt { numbers: [4, 9], ..salt }, 4).is_err());
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
        disk.set_capacity(Some(used + 8 * u64::from(BLOCK_BYTES)));
        assert!(write(&dir, 2, &[&[1; 100_000]]).is_err());
        assert_eq!(read(&disk).unwrap(), Some((1, vec![b"old".to_vec()])));
        assert_eq!(disk.used(), used);
    }
}
