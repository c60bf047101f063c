//! Finding out by trying.
//!
//! A file system may take `O_DIRECT` at the open and refuse the first write, so a probe writes one
//! block and reads it back. A directory that cannot be written answers "no": nobody who only reads
//! needs these facts.

use std::sync::atomic::{AtomicU64, Ordering};

use super::StdDir;
use crate::{AlignedBuf, BLOCK, Dir, Open, read_full_at, write_all_at};

/// Probe files of this process so far.
static PROBES: AtomicU64 = AtomicU64::new(0);

/// Whether a file opened so in the directory takes a block and gives it back.
pub(super) fn works(dir: &StdDir, how: Open) -> bool {
    let number = PROBES.fetch_add(1, Ordering::Relaxed);
    let name = format!(".esker-probe-{}-{number}", std::process::id());
    let answer = try_block(dir, &name, how).unwrap_or(false);
    // It is not there when the open was refused; and a probe that stays does no harm.
    let _ = dir.unlink(&name);
    answer
}

fn try_block(dir: &StdDir, name: &str, how: Open) -> crate::Result<bool> {
    let file = dir.open(name, how)?;
    let mut sent = AlignedBuf::new(BLOCK);
    sent.fill(0xA5);
    write_all_at(&*file, &sent, 0)?;
    let mut back = AlignedBuf::new(BLOCK);
    Ok(read_full_at(&*file, &mut back, 0)? == BLOCK && back[..] == sent[..])
}
