//! Finding out by trying.
//!
//! A file system may take `O_DIRECT` at the open and refuse the first write, so a probe writes one
//! block and reads it back. A directory that cannot be written answers "no": nobody who only reads
//! needs these facts.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::StdDisk;
use crate::{AlignedBuf, BLOCK, Disk, Open, read_full_at, write_all_at};

/// Probe files of this process so far.
static PROBES: AtomicU64 = AtomicU64::new(0);

/// Whether a file opened so in `dir` takes a block and gives it back.
pub(super) fn works(disk: &StdDisk, dir: &Path, how: Open) -> bool {
    let number = PROBES.fetch_add(1, Ordering::Relaxed);
    let path = dir.join(format!(".esker-probe-{}-{number}", std::process::id()));
    let answer = try_block(disk, &path, how).unwrap_or(false);
    // It is not there when the open was refused; and a probe that stays does no harm.
    let _ = disk.unlink(&path);
    answer
}

fn try_block(disk: &StdDisk, path: &Path, how: Open) -> crate::Result<bool> {
    let file = disk.open(path, how)?;
    let mut sent = AlignedBuf::new(BLOCK);
    sent.fill(0xA5);
    write_all_at(&*file, &sent, 0)?;
    let mut back = AlignedBuf::new(BLOCK);
    Ok(read_full_at(&*file, &mut back, 0)? == BLOCK && back[..] == sent[..])
}
