//! The sealed file: the second of the two shapes that durable bytes have, for small facts that
//! change as a whole.
//!
//! Written to a temporary file, synced, exchanged with the old one, directory synced, and checksummed
//! whole: after a crash either the old content is there or the new, never a mixture, and anything else
//! is damage.
//!
//! The file that had the name before becomes the temporary file and keeps its blocks, so that replacing
//! a sealed file allocates nothing and works on a full disk. Where files cannot be exchanged the
//! temporary file is renamed over the old one, and made anew behind that while there is room.
//!
//! # The crash argument of the exchange
//!
//! The exchange is one step, so that a crash leaves each of the two files under one of the two names,
//! and both were synced whole before: the new one just now, the old one when it was written. Only the
//! next replacement overwrites a file, the temporary one, and not before the directory was synced:
//! until then the medium may still give that file the name. Nobody reads the temporary file. A reader
//! that opened the file before it was exchanged may meet the next replacement in it: what does not
//! check is opened and read again.
//!
//! ```text
//! 0        8         12    16       20              20+len
//! | magic  | version | crc | length | content ...   | zeros to the end of the block
//! ```

use std::io::ErrorKind;
use std::sync::Arc;

use esker_disk::{BLOCK, Dir, File, Open, Refusal, read_full_at, write_all_at};

use crate::base::error::{Corruption, Error, Result};
use crate::base::position::Seq;
use crate::format::{VERSION, crc};
use crate::store::paths;

/// How often a file is read that may be replaced meanwhile.
const READS: u32 = 4;
const HEADER: usize = 20;
/// In the length: zeros follow the content up to the end of its last block.
const PADDED: u32 = 1 << 31;
/// Larger than any content; a length above is nonsense and is not allocated.
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
    // Whole blocks: what a crash left there may not be readable, and what is allocated is to stay.
    bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
    blank(&*file, bytes.len())?;
    write_all_at(&*file, &bytes, 0)?;
    file.set_len(bytes.len() as u64)?;
    file.sync_data()?;
    drop(file);
    let exchanged = is_there(dir, name)? && exchange(dir, &next, name)?;
    if !exchanged {
        dir.rename(&next, name)?;
    }
    dir.sync()?;
    if !exchanged && let Err(error) = spare(dir, &next, bytes.len()) {
        // The next one is made when it is needed, if there is room.
        tracing::debug!(%error, name, "failed to keep a temporary file allocated");
    }
    Ok(())
}

fn is_there(dir: &dyn Dir, name: &str) -> Result<bool> {
    match dir.open(name, Open::read()) {
        Err(cause) if cause.kind() == ErrorKind::NotFound => Ok(false),
        file => Ok(file.map(|_| true)?),
    }
}

/// `false` where the file system cannot do that.
fn exchange(dir: &dyn Dir, a: &str, b: &str) -> Result<bool> {
    match dir.exchange(a, b) {
        Err(cause) if cause.refusal() == Some(Refusal::Exchange) => Ok(false),
        exchanged => Ok(exchanged.map(|()| true)?),
    }
}

/// Durably overwrites what the temporary file had. That is the version before the last, checksum and
/// all: a device that loses the write to come would bring it back, and nothing would tell.
fn blank(file: &dyn File, len: usize) -> Result<()> {
    write_all_at(file, &vec![0; len], 0)?;
    Ok(file.sync_data()?)
}

/// The temporary file, with room for so many bytes. Where it is there already this takes no space.
fn spare(dir: &dyn Dir, next: &str, len: usize) -> Result<Arc<dyn File>> {
    // What it is written over may have had the other name a moment ago.
    dir.sync()?;
    let file = dir.open(next, Open::create())?;
    let before = file.len()?;
    if let Err(cause) = file.preallocate(0, len.max(BLOCK) as u64) {
        // A full disk is met here, where nothing was written.
        file.set_len(before)?;
        return Err(cause.into());
    }
    Ok(file)
}

/// Gives a file that was written and synced aside its name, durably.
pub(crate) fn publish(dir: &dyn Dir, aside: &str, name: &str) -> Result<()> {
    dir.rename(aside, name)?;
    Ok(dir.sync()?)
}

/// The content of a sealed file with this magic number.
pub(crate) fn read(dir: &dyn Dir, name: &str, magic: [u8; 8]) -> Result<Vec<u8>> {
    Ok(read_where(dir, name, |found| found == magic)?.1)
}

/// The magic number and the content of a sealed file.
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
    let damaged = |what: &str| {
        let file = dir.path_of(name);
        Error::Corrupted(Corruption { file, offset: 0, after: Seq::ZERO, what: what.into() })
    };
    if file.len()? > (HEADER + LIMIT) as u64 {
        return Err(damaged("the file is far too long"));
    }
    let mut bytes = whole(&*file)?;
    let Some(magic) = bytes.first_chunk().copied().filter(|_| bytes.len() >= HEADER) else {
        return Err(damaged("the file is cut"));
    };
    if !ours(magic) {
        return Err(damaged("this is not a file of Esker's"));
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
        return Err(damaged("the checksum does not match"));
    }
    if version != VERSION {
        return Err(Error::UnsupportedVersion { file: dir.path_of(name), version });
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
    fn every_changed_byte_is_damage() {
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

    /// The two files change names. A rename would free the block of the old one, and another program on a
    /// full disk could take it before the next temporary file does.
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

    /// The process dies at any operation of a replacement, and the power goes at any of the next one.
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
