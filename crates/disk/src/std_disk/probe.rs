//! Probing of open modes.
//!
//! A file system may accept `O_DIRECT` at open and fail the first write, so a probe writes one
//! block and reads it back. In a directory without write permission the answer is "no": processes
//! that only read do not need these capabilities.

use std::sync::atomic::{AtomicU64, Ordering};

use super::StdDir;
use crate::aligned::AlignedBuf;
use crate::dir::Dir;
use crate::file::{BLOCK_BYTES, OpenMode};
use crate::io::{read_full_at, write_all_at};

/// Number of probe files this process has created.
static PROBES: AtomicU64 = AtomicU64::new(0);

/// Returns whether a file opened with `how` in the directory stores a block and returns it.
pub(super) fn works(dir: &StdDir, how: OpenMode) -> bool {
    let number = PROBES.fetch_add(1, Ordering::Relaxed);
    let name = format!(".esker-probe-{}-{number}", std::process::id());
    let answer = try_block(dir, &name, how).unwrap_or(false);
    // The file is missing when the open failed. A leftover probe file is harmless.
    let _ = dir.unlink(&name);
    answer
}

fn try_block(dir: &StdDir, name: &str, how: OpenMode) -> crate::error::Result<bool> {
    let file = dir.open(name, how)?;
    let mut sent = AlignedBuf::new(BLOCK_BYTES);
    sent.fill(0xA5);
    write_all_at(&*file, &sent, 0)?;
    let mut back = AlignedBuf::new(BLOCK_BYTES);
    Ok(read_full_at(&*file, &mut back, 0)? == BLOCK_BYTES && back[..] == sent[..])
}
