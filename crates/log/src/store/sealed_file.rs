//! The sealed file: the second of the two shapes of durable bytes, for small data that changes as a
//! whole.
//!
//! The content is written to a temporary file and synced. Then that file is exchanged with the old
//! one, and the directory is synced. A checksum covers the whole file. After a crash either the old
//! content is there or the new, never a mixture; anything else is corruption.
//!
//! The old file becomes the temporary file and keeps its blocks, so that replacing a sealed file
//! allocates nothing and works on a full disk. Where files cannot be exchanged, the temporary file
//! is renamed over the old one. A new temporary file is then created afterwards, while there is
//! room.
//!
//! # The crash argument of the exchange
//!
//! The exchange is one step, so that a crash leaves each of the two files under one of the two
//! names. Both were synced whole before: the new one just now, the old one when it was written.
//!
//! Only the temporary file is overwritten, and only after a sync of the directory. Until then the
//! medium may still give that file the final name. No reader opens the temporary file. (Only
//! `repair` does, which holds the lock: it asks which log a lost manifest was of.) A reader that
//! opened the file before the exchange may see the zeros or the next replacement being written to
//! it. A read whose checksum does not match therefore opens the file and reads again.
//!
//! # A temporary file of zeros
//!
//! Before the content is written, the temporary file is overwritten with zeros, durably. Its bytes
//! are the version before the last, with a valid checksum. If the device lost the next write, they
//! would come back undetected.
//!
//! A file that is replaced often ([`write_often`]) gets these zeros at the end of a replacement,
//! without a sync. The next replacement then only syncs them. It does not sync the directory
//! before: zeros under the temporary name prove that a process did.
//!
//! - Every process writes zeros under the lock, after a sync of the directory.
//! - An exchange gives the temporary name to a file that begins with a magic number.
//! - A new file never had the final name, and its own name is durable before its blocks, which read
//!   as zeros, are reserved.
//! - After a power cut, the names that are visible are those on the medium.
//!
//! `write` keeps the version before the last, because `repair` reads it.
//!
//! # Blocks of the temporary file
//!
//! A temporary file of the right length is overwritten as it is. Reserving its blocks or setting
//! its length again would change nothing, but each makes ext4 write metadata in the next sync: a
//! commit of the journal or, without a journal, the inode. A file of any other length gets its
//! blocks reserved before it is written, and its length set before it is synced.
//!
//! The length promises neither blocks nor content: a crash may leave any bytes, and a copy of the
//! directory may leave holes, which read as zeros. A write allocates what is missing. On a full
//! disk that write fails, or its sync where the file system allocates late. Only the temporary file
//! has changed by then, because the names are exchanged last. The content in place stays, and the
//! error is that of a full disk.
//!
//! ```text
//! 0        8         12    16       20              20+len
//! | magic  | version | crc | length | content ...   | zeros to the end of the block
//! ```

use std::io::ErrorKind;

use esker_disk::planted::{Bug, is_planted};
use esker_disk::{BLOCK_BYTES, Dir, File, OpenMode, Refusal, read_full_at, write_all_at};

use crate::base::error::{Error, Result, corruption_at, with_causes};
use crate::format::{FORMAT_VERSION, crc, is_zero};
use crate::store::paths;

/// The most reads of a file that may be replaced meanwhile.
const READS_MAX: u32 = 4;
const HEADER_BYTES: usize = 20;
/// A flag in the length: zeros follow the content up to the end of its last block.
const PADDED_FLAG: u32 = 1 << 31;
/// An upper bound of any content. A longer file is corrupt, and no memory is allocated for it.
const CONTENT_BYTES_MAX: usize = 1 << 20;

/// Replaces the content of a file, durably. The temporary file keeps the content before.
pub(crate) fn write(dir: &dyn Dir, name: &str, magic: [u8; 8], content: &[u8]) -> Result<()> {
    replace(dir, name, magic, content, false).map(drop)
}

/// Replaces the content of a file, durably, and prepares the next replacement, which then makes one
/// sync less. The caller holds the lock under which all processes replace this file.
pub(crate) fn write_often(dir: &dyn Dir, name: &str, magic: [u8; 8], content: &[u8]) -> Result<()> {
    let len = replace(dir, name, magic, content, true)?;
    let prepared = dir.open(&paths::next(name), OpenMode::write()).map_err(Error::from);
    // A file of another length gets its zeros once its blocks are reserved.
    let prepared = prepared.and_then(|file| match file.len()? == len {
        true => blank(&*file, len),
        false => Ok(()),
    });
    if let Err(error) = prepared {
        tracing::debug!(error = with_causes(&error), name, "failed to prepare a temporary file");
    }
    Ok(())
}

/// Replaces the content. `may_be_blank`: whether the temporary file may have zeros already. Returns
/// the length of the file.
fn replace(
    dir: &dyn Dir,
    name: &str,
    magic: [u8; 8],
    content: &[u8],
    may_be_blank: bool,
) -> Result<u64> {
    let mut bytes =
        Vec::with_capacity((HEADER_BYTES + content.len()).next_multiple_of(BLOCK_BYTES));
    bytes.extend_from_slice(&magic);
    bytes.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&(content.len() as u32 | PADDED_FLAG).to_le_bytes());
    bytes.extend_from_slice(content);
    let sum = crc(&bytes);
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());

    // Whole blocks: what a crash left there may be unreadable, and the allocated block is to stay.
    bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES), 0);
    let len = bytes.len() as u64;
    let next = paths::next(name);
    let file = dir.open(&next, OpenMode::create())?;
    if !may_be_blank || !is_blank(&*file, len)? {
        // It may be new, or may have had the final name a moment ago.
        dir.sync()?;
        allocate(&*file, len)?;
        blank(&*file, len)?;
    }
    file.sync_data()?;
    write_all_at(&*file, &bytes, 0)?;
    if file.len()? != len {
        file.set_len(len)?;
    }
    if !is_planted(Bug::RenamedBeforeSync) {
        file.sync_data()?;
    }
    drop(file);
    let exchanged = is_there(dir, name)? && exchange(dir, &next, name)?;
    if !exchanged {
        dir.rename(&next, name)?;
    }
    dir.sync()?;
    if !exchanged && let Err(error) = create(dir, &next, len) {
        // The next replacement creates the temporary file if there is room.
        tracing::debug!(
            error = with_causes(&error),
            name,
            "failed to keep a temporary file allocated"
        );
    }
    Ok(len)
}

fn is_there(dir: &dyn Dir, name: &str) -> Result<bool> {
    match dir.open(name, OpenMode::read()) {
        Err(cause) if cause.kind() == ErrorKind::NotFound => Ok(false),
        file => Ok(file.map(|_| true)?),
    }
}

/// Exchanges the names of two files. Returns `false` where the file system does not support that.
fn exchange(dir: &dyn Dir, a: &str, b: &str) -> Result<bool> {
    match dir.exchange(a, b) {
        Err(cause) if cause.refusal() == Some(Refusal::Exchange) => Ok(false),
        exchanged => Ok(exchanged.map(|()| true)?),
    }
}

/// Overwrites the content of the temporary file with zeros, not yet durably.
fn blank(file: &dyn File, len: u64) -> Result<()> {
    Ok(write_all_at(file, &vec![0; len as usize], 0)?)
}

/// Whether the temporary file has this length and nothing but zeros: then the directory was synced
/// after the last exchange. Not one that cannot be read.
fn is_blank(file: &dyn File, len: u64) -> Result<bool> {
    if file.len()? != len {
        return Ok(false);
    }
    let mut bytes = vec![1; len as usize];
    let read = read_full_at(file, &mut bytes, 0);
    Ok(read.is_ok_and(|read| read == bytes.len()) && is_zero(&bytes))
}

/// Creates a temporary file with blocks for this many bytes.
fn create(dir: &dyn Dir, next: &str, len: u64) -> Result<()> {
    let file = dir.open(next, OpenMode::create())?;
    dir.sync()?;
    allocate(&*file, len)
}

/// Allocates the blocks of a temporary file. One of this length already has them, unless it was
/// copied with holes: then they are allocated when it is written.
fn allocate(file: &dyn File, len: u64) -> Result<()> {
    let before = file.len()?;
    if before != len
        && let Err(cause) = file.preallocate(0, len)
    {
        // A full disk fails here, where nothing was written.
        file.set_len(before)?;
        return Err(cause.into());
    }
    Ok(())
}

/// Durably renames a file that was written and synced under a temporary name.
pub(crate) fn publish(dir: &dyn Dir, temporary: &str, name: &str) -> Result<()> {
    dir.rename(temporary, name)?;
    Ok(dir.sync()?)
}

/// Reads the content of a sealed file with this magic number.
pub(crate) fn read(dir: &dyn Dir, name: &str, magic: [u8; 8]) -> Result<Vec<u8>> {
    Ok(read_where(dir, name, |found| found == magic)?.1)
}

/// Reads the magic number and the content of a sealed file.
pub(crate) fn read_any(dir: &dyn Dir, name: &str) -> Result<([u8; 8], Vec<u8>)> {
    read_where(dir, name, |_| true)
}

fn read_where(
    dir: &dyn Dir,
    name: &str,
    ours: impl Fn([u8; 8]) -> bool,
) -> Result<([u8; 8], Vec<u8>)> {
    let mut before = None;
    for _ in 1..READS_MAX {
        match read_once(dir, name, &ours)? {
            // A file that is being replaced has other bytes when it is read again.
            FileRead::Corrupt { checksum, .. } if before != Some(checksum) => {
                before = Some(checksum);
            }
            read => return read.into_result(),
        }
    }
    read_once(dir, name, &ours)?.into_result()
}

/// The outcome of one read of a sealed file.
enum FileRead {
    Valid([u8; 8], Vec<u8>),
    /// The length of the file and the checksum of its bytes.
    Corrupt {
        checksum: (u64, u32),
        error: Error,
    },
}

impl FileRead {
    fn into_result(self) -> Result<([u8; 8], Vec<u8>)> {
        match self {
            Self::Valid(magic, content) => Ok((magic, content)),
            Self::Corrupt { error, .. } => Err(error),
        }
    }
}

fn read_once(dir: &dyn Dir, name: &str, ours: impl Fn([u8; 8]) -> bool) -> Result<FileRead> {
    let file = dir.open(name, OpenMode::read())?;
    let corrupt = |checksum, what: &str| {
        let error = corruption_at(&dir.path_of(name), 0, 0, what);
        Ok(FileRead::Corrupt { checksum, error })
    };
    let len = file.len()?;
    if len > (HEADER_BYTES + CONTENT_BYTES_MAX) as u64 {
        return corrupt((len, 0), "the file is far too long");
    }
    let bytes = whole(&*file)?;
    let checksum = (bytes.len() as u64, crc(&bytes));
    match parse(bytes, ours) {
        Ok((magic, content)) => Ok(FileRead::Valid(magic, content)),
        Err(SealError::Corrupt(what)) => corrupt(checksum, what),
        Err(SealError::Version(version)) => {
            Err(Error::UnsupportedVersion { file: dir.path_of(name), version })
        }
    }
}

/// Why bytes are not a sealed file of this version.
#[derive(Debug)]
pub(crate) enum SealError {
    Corrupt(&'static str),
    Version(u32),
}

/// The magic number and the content of a sealed file, given all of its bytes.
pub(crate) fn parse(
    mut bytes: Vec<u8>,
    ours: impl Fn([u8; 8]) -> bool,
) -> std::result::Result<([u8; 8], Vec<u8>), SealError> {
    let corrupt = SealError::Corrupt;
    let Some(magic) = bytes.first_chunk().copied().filter(|_| bytes.len() >= HEADER_BYTES) else {
        return Err(corrupt("the file is cut"));
    };
    if !ours(magic) {
        return Err(corrupt("this is not a file of Esker's"));
    }
    let word = |at: usize| {
        bytes[at..at + 4].first_chunk().map_or(0, |chunk: &[u8; 4]| u32::from_le_bytes(*chunk))
    };
    let (version, sum, length) = (word(8), word(12), word(16));
    bytes[12..16].fill(0);
    let end = HEADER_BYTES + (length & !PADDED_FLAG) as usize;
    let padded = if length & PADDED_FLAG != 0 { end.next_multiple_of(BLOCK_BYTES) } else { end };
    let whole = bytes.len() == padded;
    if !whole || crc(&bytes[..end]) != sum || !is_zero(&bytes[end..]) {
        return Err(corrupt("the checksum does not match"));
    }
    if version != FORMAT_VERSION {
        return Err(SealError::Version(version));
    }
    bytes.truncate(end);
    Ok((magic, bytes.split_off(HEADER_BYTES)))
}

fn whole(file: &dyn File) -> Result<Vec<u8>> {
    let mut bytes = vec![0; (file.len()? as usize).next_multiple_of(BLOCK_BYTES)];
    let got = read_full_at(file, &mut bytes, 0)?;
    bytes.truncate(got);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use esker_disk::sim::{CutPoint, Effect, Fault, Persist, SimDisk};
    use esker_disk::{Disk, Op};

    use super::*;

    const MAGIC: [u8; 8] = *b"ESKERTST";
    const DIR: &str = "/log";
    /// The error number of a full disk.
    const NO_SPACE: i32 = 28;

    type Write = fn(&dyn Dir, &str, [u8; 8], &[u8]) -> Result<()>;

    fn read_one(disk: &SimDisk) -> Result<Vec<u8>> {
        read(&*disk.open_dir(Path::new(DIR)).unwrap(), "file", MAGIC)
    }

    #[test]
    fn any_changed_byte_is_reported_as_corruption() {
        let disk = SimDisk::new(1);
        let dir = disk.create_dir(Path::new(DIR)).unwrap();
        write(&*dir, "file", MAGIC, b"some content").unwrap();
        let path = Path::new(DIR).join("file");
        for byte in 0..BLOCK_BYTES as u64 {
            let disk = disk.fork(byte);
            disk.flip_bit(&path, byte * 8 + byte % 8).unwrap();
            let answer = read_one(&disk);
            assert!(matches!(answer, Err(Error::Corrupted(_))), "byte {byte}: {answer:?}");
        }
    }

    /// The two files exchange names. A rename would free the block of the old one, and another
    /// program on a full disk could take it before the next temporary file does.
    #[test]
    fn the_file_that_is_replaced_is_the_next_temporary_one() {
        let disk = SimDisk::new(1);
        let dir = disk.create_dir(Path::new(DIR)).unwrap();
        write(&*dir, "file", MAGIC, b"first").unwrap();
        for content in [b"older", b"newer"] {
            let before = disk.contents(&Path::new(DIR).join("file")).unwrap();
            let used = disk.used();
            write(&*dir, "file", MAGIC, content).unwrap();
            let next = Path::new(DIR).join(paths::next("file"));
            assert_eq!(disk.contents(&next).unwrap(), before);
            assert_eq!(disk.used(), used);
        }
    }

    /// The process is killed at any operation of a replacement, and the power fails at any
    /// operation of the next one. The file keeps its length, grows, and shrinks.
    #[test]
    fn two_replacements_and_two_crashes_leave_one_of_the_three() {
        for blocks in [[1, 1, 1], [1, 2, 2], [1, 2, 3], [3, 1, 2], [2, 2, 1]] {
            let contents: [Vec<u8>; 3] = std::array::from_fn(|n| {
                vec![b'a' + n as u8; (blocks[n] - 1) * BLOCK_BYTES + 100 + n]
            });
            for write in [write as Write, write_often] {
                assert!(crashes_twice(&contents, write) > 100, "{blocks:?}");
            }
        }
    }

    /// Returns how many pairs of crashes were tried.
    fn crashes_twice([whole, next, last]: &[Vec<u8>; 3], write: Write) -> u32 {
        let disk = SimDisk::new(1);
        let dir = disk.create_dir(Path::new(DIR)).unwrap();
        for content in [&b"first"[..], b"older", whole] {
            write(&*dir, "file", MAGIC, content).unwrap();
        }
        let mut tried = 0;
        for killed in 0.. {
            let disk = disk.fork(killed);
            disk.kill_at(CutPoint::During(disk.operations() + killed));
            let dir = disk.open_dir(Path::new(DIR)).unwrap();
            let over = write(&*dir, "file", MAGIC, next).is_ok();
            disk.cancel_cut();
            disk.power_on();
            for cut in 0.. {
                let disk = disk.fork(killed * 1000 + cut);
                let how = [Persist::Random, Persist::Nothing, Persist::Torn][cut as usize % 3];
                disk.cut_power_at(CutPoint::During(disk.operations() + cut / 3), how);
                let dir = disk.open_dir(Path::new(DIR)).unwrap();
                let over = write(&*dir, "file", MAGIC, last).is_ok();
                disk.cancel_cut();
                disk.power_on();
                let found = read_one(&disk).map_err(|error| error.to_string());
                let one = [whole, next, last].iter().any(|one| found.as_ref() == Ok(one));
                assert!(
                    one,
                    "killed at {killed}, power cut at {cut}: {:?}",
                    found.map(|c| c.len())
                );
                tried += 1;
                if over {
                    break;
                }
            }
            if over {
                break;
            }
        }
        tried
    }

    /// A replacement of the same length reserved its blocks and set its length again, and each made
    /// the next sync write metadata.
    #[test]
    fn a_replacement_of_the_same_length_changes_no_length() {
        for (write, dir_syncs) in [(write as Write, 2), (write_often, 1)] {
            let disk = SimDisk::new(1);
            let dir = disk.create_dir(Path::new(DIR)).unwrap();
            for content in [&b"first"[..], b"older", b"newer"] {
                write(&*dir, "file", MAGIC, content).unwrap();
            }
            let (begin, content) = (disk.stats(), vec![7; BLOCK_BYTES - HEADER_BYTES]);
            write(&*dir, "file", MAGIC, &content).unwrap();
            let end = disk.stats();
            assert_eq!(end.resizes, begin.resizes);
            let syncs = (end.syncs - begin.syncs, end.dir_syncs - begin.dir_syncs);
            assert_eq!(syncs, (2, dir_syncs));
            assert_eq!(read_one(&disk).unwrap(), content);
            // One byte more is one block more.
            write(&*dir, "file", MAGIC, &vec![7; BLOCK_BYTES - HEADER_BYTES + 1]).unwrap();
            assert!(disk.stats().resizes > end.resizes);
        }
    }

    /// A process exchanged the files and died before it synced the directory. What it left under
    /// the temporary name still has the final name on the medium.
    #[test]
    fn an_exchange_that_is_not_durable_is_synced_before_the_file_is_overwritten() {
        // The syncs of the directory before the last one of a replacement.
        for (write, before) in [(write as Write, 1), (write_often, 0)] {
            let disk = SimDisk::new(1);
            let dir = disk.create_dir(Path::new(DIR)).unwrap();
            for content in [b"first", b"older", b"whole"] {
                write(&*dir, "file", MAGIC, content).unwrap();
            }
            disk.inject(Fault::on(Op::SyncDir, Effect::Io).after(before).times(1));
            write(&*dir, "file", MAGIC, b"other").unwrap_err();
            assert_eq!(read_one(&disk).unwrap(), b"other");
            let begin = disk.stats().dir_syncs;
            write(&*dir, "file", MAGIC, b"newer").unwrap();
            assert_eq!(disk.stats().dir_syncs - begin, 2);
        }
    }

    /// The device loses a write that it acknowledged. The version before the last must not come
    /// back in place of the new one.
    #[test]
    fn a_lost_sync_is_corruption_and_no_older_version() {
        for write in [write as Write, write_often] {
            let disk = SimDisk::new(1);
            let dir = disk.create_dir(Path::new(DIR)).unwrap();
            for content in [b"first", b"older", b"whole"] {
                write(&*dir, "file", MAGIC, content).unwrap();
            }
            disk.inject(Fault::on(Op::Sync, Effect::Lost).path("file.next").nth(2));
            write(&*dir, "file", MAGIC, b"newer").unwrap();
            disk.power_cut(Persist::Nothing);
            disk.power_on();
            let found = read_one(&disk);
            assert!(matches!(found, Err(Error::Corrupted(_))), "{found:?}");
        }
    }

    /// On a full disk a file that has to grow stays as it is, and so does the temporary one.
    #[test]
    fn a_replacement_that_grows_reserves_its_blocks_first() {
        let disk = SimDisk::new(1);
        let dir = disk.create_dir(Path::new(DIR)).unwrap();
        for content in [b"first", b"older", b"whole"] {
            write(&*dir, "file", MAGIC, content).unwrap();
        }
        let next = Path::new(DIR).join(paths::next("file"));
        let temporary = disk.contents(&next).unwrap();
        let large = vec![7; 3 * BLOCK_BYTES];
        for free in 0..3 {
            disk.set_capacity(Some(disk.used() + free * BLOCK_BYTES as u64));
            let refused = write(&*dir, "file", MAGIC, &large).unwrap_err();
            assert!(refused.is_no_space(), "{refused}");
            assert_eq!(read_one(&disk).unwrap(), b"whole");
            assert_eq!(disk.contents(&next).unwrap(), temporary, "{free} blocks free");
        }
        // Content that needs no block is replaced all the same.
        disk.set_capacity(Some(disk.used()));
        write(&*dir, "file", MAGIC, b"small").unwrap();
        assert_eq!(read_one(&disk).unwrap(), b"small");
        disk.set_capacity(None);
        write(&*dir, "file", MAGIC, &large).unwrap();
        assert_eq!(read_one(&disk).unwrap(), large);
    }

    /// A disk with a whole file of two blocks, and a temporary file in some state.
    fn with_temporary(change: impl FnOnce(&SimDisk, &Path)) -> SimDisk {
        let disk = SimDisk::new(1);
        let dir = disk.create_dir(Path::new(DIR)).unwrap();
        for byte in [1, 2] {
            write(&*dir, "file", MAGIC, &[byte; BLOCK_BYTES]).unwrap();
        }
        change(&disk, &Path::new(DIR).join(paths::next("file")));
        disk
    }

    /// A crash left the temporary file short, long, empty, or with other bytes; a copy of the
    /// directory left holes in it.
    #[test]
    fn a_temporary_file_in_any_state_is_used() {
        const LEN: u64 = 2 * BLOCK_BYTES as u64;
        type State = (&'static str, fn(&SimDisk, &Path), bool);
        let states: [State; 7] = [
            ("missing", |disk, path| disk.remove(path).unwrap(), false),
            ("empty", |disk, path| disk.truncate(path, 0).unwrap(), false),
            ("short", |disk, path| disk.truncate(path, 100).unwrap(), false),
            (
                "sparse",
                |disk, path| {
                    disk.truncate(path, 0).unwrap();
                    disk.truncate(path, LEN).unwrap();
                },
                false,
            ),
            ("long", |disk, path| disk.overwrite(path, LEN, &[9; 5000]).unwrap(), true),
            (
                "other bytes",
                |disk, path| disk.overwrite(path, 0, &[9; LEN as usize]).unwrap(),
                true,
            ),
            ("unreadable", |disk, path| disk.make_unreadable(path, 0).unwrap(), true),
        ];
        for (state, change, has_blocks) in states {
            let disk = with_temporary(change);
            let dir = disk.open_dir(Path::new(DIR)).unwrap();
            disk.set_capacity(Some(disk.used()));
            let outcome = write_often(&*dir, "file", MAGIC, &[3; BLOCK_BYTES]);
            assert_eq!(outcome.is_ok(), has_blocks, "{state}, on a full disk: {outcome:?}");
            assert!(outcome.is_ok() || outcome.is_err_and(|error| error.is_no_space()), "{state}");
            let whole = if has_blocks { 3 } else { 2 };
            assert_eq!(read_one(&disk).unwrap(), [whole; BLOCK_BYTES], "{state}");
            disk.set_capacity(None);
            for byte in [4, 5] {
                let dir = disk.open_dir(Path::new(DIR)).unwrap();
                write_often(&*dir, "file", MAGIC, &[byte; BLOCK_BYTES]).unwrap();
                disk.power_cut(Persist::Nothing);
                disk.power_on();
                assert_eq!(read_one(&disk).unwrap(), [byte; BLOCK_BYTES], "{state}");
            }
        }
    }

    /// Where blocks are allocated late, a full disk fails a sync.
    #[test]
    fn a_full_disk_that_fails_a_sync_is_reported_and_loses_nothing() {
        for (write, nth) in [(write as Write, 1), (write, 2), (write_often, 1), (write_often, 2)] {
            let disk = with_temporary(|_, _| {});
            let dir = disk.open_dir(Path::new(DIR)).unwrap();
            let full = Effect::Os(NO_SPACE);
            disk.inject(Fault::on(Op::Sync, full).path("file.next").nth(nth));
            let refused = write(&*dir, "file", MAGIC, &[3; BLOCK_BYTES]).unwrap_err();
            assert!(refused.is_no_space(), "{refused}");
            for cut in [false, true] {
                if cut {
                    disk.power_cut(Persist::Random);
                    disk.power_on();
                }
                assert_eq!(read_one(&disk).unwrap(), [2; BLOCK_BYTES]);
            }
            let dir = disk.open_dir(Path::new(DIR)).unwrap();
            write(&*dir, "file", MAGIC, &[4; BLOCK_BYTES]).unwrap();
            assert_eq!(read_one(&disk).unwrap(), [4; BLOCK_BYTES]);
        }
    }
}
