//! The sealed file: the second of the two shapes that durable bytes have, for small facts that
//! change as a whole.
//!
//! Written aside, synced, renamed over the old one, directory synced, and checksummed whole: after a
//! crash either the old content is there or the new, never a mixture, and anything else is damage.
//!
//! ```text
//! 0        8         12    16       20              20+len
//! | magic  | version | crc | length | content ...   |
//! ```

use esker_disk::{BLOCK, Dir, File, Open, read_full_at, write_all_at};

use crate::error::{Damage, Error, Result};
use crate::format::{VERSION, crc};
use crate::layout;
use crate::position::Seq;

const HEADER: usize = 20;
/// Larger than any content; a length above is nonsense and is not allocated.
const LIMIT: usize = 1 << 20;

/// Replaces the content of a file, durably.
pub(crate) fn write(dir: &dyn Dir, name: &str, magic: [u8; 8], content: &[u8]) -> Result<()> {
    let mut bytes = Vec::with_capacity(HEADER + content.len());
    bytes.extend_from_slice(&magic);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&(content.len() as u32).to_le_bytes());
    bytes.extend_from_slice(content);
    let sum = crc(&bytes);
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());

    let aside = layout::aside(name);
    let file = dir.open(&aside, Open::create())?;
    file.set_len(0)?;
    write_all_at(&*file, &bytes, 0)?;
    file.sync_data()?;
    publish(dir, &aside, name)
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
    ours: impl FnOnce([u8; 8]) -> bool,
) -> Result<([u8; 8], Vec<u8>)> {
    let file = dir.open(name, Open::read())?;
    let damaged = |what: &str| {
        let file = dir.path_of(name);
        Error::Damaged(Damage { file, offset: 0, after: Seq::ZERO, what: what.into() })
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
    if crc(&bytes) != sum || bytes.len() - HEADER != length as usize {
        return Err(damaged("the checksum does not match"));
    }
    if version != VERSION {
        return Err(Error::Version { file: dir.path_of(name), version });
    }
    Ok((magic, bytes.split_off(HEADER)))
}

fn whole(file: &dyn File) -> Result<Vec<u8>> {
    let mut bytes = vec![0; (file.len()? as usize).next_multiple_of(BLOCK)];
    let got = read_full_at(file, &mut bytes, 0)?;
    bytes.truncate(got);
    Ok(bytes)
}
