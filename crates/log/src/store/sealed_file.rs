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
//! Only the next replacement overwrites a file, the temporary one, and only after it synced the
//! directory. Until then the medium may still give that file the final name. No reader opens the
//! temporary file. (Only `repair` does, which holds the lock: it asks which log a lost manifest
//! was of.) A reader that opened the file before the exchange may see the next replacement being
//! written to it. A read whose checksum does not match therefore opens the file and reads again.
//!
//! ```text
//! 0        8         12    16       20              20+len
//! | magic  | version | crc | length | content ...   | zeros to the end of the block
//! ```

use std::io::ErrorKind;
use std::sync::Arc;

use esker_disk::planted::{Bug, is_planted};
use esker_disk::{BLOCK, Dir, File, Open, Refusal, read_full_at, write_all_at};

use crate::base::error::{Corruption, Error, Result, with_causes};
use crate::base::position::Seq;
use crate::format::{VERSION, crc};
use crate::store::paths;

/// The most reads of a file that may be replaced meanwhile.
const READS: u32 = 4;
const HEADER: usize = 20;
/// A flag in the length: zeros follow the content up to the end of its last block.
const PADDED: u32 = 1 << 31;
/// An upper bound of any content. A longer file is corrupt, and no memory is allocated for it.
const LIMIT: usize = 1 << 20;

/// Replaces the content of a file, durably.
pub(crate) fn write(dir: &dyn Dir, name: &str, magic: [u8; 8], content: &[u8]) -> Result<()> {
    let mut bytes = Vec::with_capacity(HEADER + content.len());
    bytes.extend_from_slice(&magic);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&(content.len() as u32 | PADDED).to_le_bytes());
    bytes.extend_from_slice(content);
    let sum = crc(&bytes);
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());

    let next = paths::next(name);
    let file = spare(dir, &next, bytes.len())?;
    // Whole blocks: what a crash left there may be unreadable, and the allocated block is to stay.
    bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
    blank(&*file, bytes.len())?;
    write_all_at(&*file, &bytes, 0)?;
    file.set_len(bytes.len() as u64)?;
    if !is_planted(Bug::RenamedBeforeSync) {
        file.sync_data()?;
    }
    drop(file);
    let exchanged = is_there(dir, name)? && exchange(dir, &next, name)?;
    if !exchanged {
        dir.rename(&next, name)?;
    }
    dir.sync()?;
    if !exchanged && let Err(error) = spare(dir, &next, bytes.len()) {
        // The next replacement creates the temporary file if there is room.
        tracing::debug!(
            error = with_causes(&error),
            name,
            "failed to keep a temporary file allocated"
        );
    }
    Ok(())
}

fn is_there(dir: &dyn Dir, name: &str) -> Result<bool> {
    match dir.open(name, Open::read()) {
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

/// Durably overwrites the content of the temporary file with zeros. That content is the version
/// before the last, with a valid checksum. If the device lost the next write, it would come back
/// undetected.
fn blank(file: &dyn File, len: usize) -> Result<()> {
    write_all_at(file, &vec![0; len], 0)?;
    Ok(file.sync_data()?)
}

/// Opens the temporary file with room for this many bytes. An existing one needs no new space.
fn spare(dir: &dyn Dir, next: &str, len: usize) -> Result<Arc<dyn File>> {
    // The file to overwrite may have had the final name a moment ago.
    dir.sync()?;
    let file = dir.open(next, Open::create())?;
    let before = file.len()?;
    if let Err(cause) = file.preallocate(0, len.max(BLOCK) as u64) {
        // A full disk fails here, where nothing was written.
        file.set_len(before)?;
        return Err(cause.into());
    }
    Ok(file)
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
    for _ in 0..READS - 1 {
        match read_once(dir, name, &ours) {
            Err(Error::Corrupted(_)) => std::thread::yield_now(),
            outcome => return outcome,
        }
    }
    read_once(dir, name, &ours)
}

fn read_once(
    dir: &dyn Dir,
    name: &str,
    ours: impl Fn([u8; 8]) -> bool,
) -> Result<([u8; 8], Vec<u8>)> {
    let file = dir.open(name, Open::read())?;
    let corrupt = |what: &str| {
        let file = dir.path_of(name);
        Error::Corrupted(Corruption { file, offset: 0, after: Seq::ZERO, what: what.into() })
    };
    if file.len()? > (HEADER + LIMIT) as u64 {
        return Err(corrupt("the file is far too long"));
    }
    parse(whole(&*file)?, ours).map_err(|error| match error {
        SealError::Corrupt(what) => corrupt(what),
        SealError::Version(version) => {
            Error::UnsupportedVersion { file: dir.path_of(name), version }
        }
    })
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
    let Some(magic) = bytes.first_chunk().copied().filter(|_| bytes.len() >= HEADER) else {
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
    let end = HEADER + (length & !PADDED) as usize;
    let padded = if length & PADDED != 0 { end.next_multiple_of(BLOCK) } else { end };
    let whole = bytes.len() == padded;
    if !whole || crc(&bytes[..end]) != sum || bytes[end..].iter().any(|&byte| byte != 0) {
        return Err(corrupt("the checksum does not match"));
    }
    if version != VERSION {
        return Err(SealError::Version(version));
    }
    bytes.truncate(end);
    Ok((magic, bytes.split_off(HEADER)))
}

fn whole(file: &dyn File) -> Result<Vec<u8>> {
    let mut bytes = vec![0; (file.len()? as usize).next_multiple_of(BLOCK)];
    let got = read_full_at(file, &mut bytes, 0)?;
    bytes.truncate(got);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use esker_disk::Disk;
    use esker_disk::sim::{CutPoint, Persist, SimDisk};

    use super::*;

    const MAGIC: [u8; 8] = *b"ESKERTST";
    const DIR: &str = "/log";

    fn read_one(disk: &SimDisk) -> Result<Vec<u8>> {
        read(&*disk.open_dir(Path::new(DIR)).unwrap(), "file", MAGIC)
    }

    #[test]
    fn any_changed_byte_is_reported_as_corruption() {
        let disk = SimDisk::new(1);
        let dir = disk.create_dir(Path::new(DIR)).unwrap();
        write(&*dir, "file", MAGIC, b"some content").unwrap();
        let path = Path::new(DIR).join("file");
        for byte in 0..BLOCK as u64 {
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
    /// operation of the next one.
    #[test]
    fn two_replacements_and_two_crashes_leave_one_of_the_three() {
        let disk = SimDisk::new(1);
        let dir = disk.create_dir(Path::new(DIR)).unwrap();
        for content in [b"first", b"older", b"whole"] {
            write(&*dir, "file", MAGIC, content).unwrap();
        }
        let mut tried = 0;
        for killed in 0.. {
            let disk = disk.fork(killed);
            disk.kill_at(CutPoint::During(disk.operations() + killed));
            let dir = disk.open_dir(Path::new(DIR)).unwrap();
            let over = write(&*dir, "file", MAGIC, b"next!").is_ok();
            disk.cancel_cut();
            disk.power_on();
            for cut in 0.. {
                let disk = disk.fork(killed * 1000 + cut);
                let how = [Persist::Random, Persist::Nothing, Persist::Torn][cut as usize % 3];
                disk.cut_power_at(CutPoint::During(disk.operations() + cut / 3), how);
                let dir = disk.open_dir(Path::new(DIR)).unwrap();
                let over = write(&*dir, "file", MAGIC, b"last!").is_ok();
                disk.cancel_cut();
                disk.power_on();
                let found = read_one(&disk).map_err(|error| error.to_string());
                let one =
                    [b"whole", b"next!", b"last!"].iter().any(|one| found == Ok(one.to_vec()));
                assert!(one, "killed at {killed}, power cut at {cut}: {found:?}");
                tried += 1;
                if over {
                    break;
                }
            }
            if over {
                break;
            }
        }
        assert!(tried > 100, "{tried}");
    }
}
