//! Completion of short reads and writes.
//!
//! A call may transfer fewer bytes than requested. A file opened for direct I/O continues only at
//! whole blocks. Where such a call stopped inside a block, that block is read or written again: the
//! bytes are the same, and no caller relies on an unfinished write.

use std::io;

use crate::error::{Error, Op, Result};
use crate::file::{BLOCK_BYTES, File};

/// Threads of one [`read_each`]. More of them were not faster on an NVMe disk, and each takes about
/// as long to start as one read.
const READ_THREADS: usize = 4;
/// Fewer reads than this take less time one after another than a thread takes to start.
const PARALLEL_READS_MIN: usize = 4;

/// A read among several, for [`Dir::read_each`](crate::Dir::read_each).
#[derive(Debug)]
pub struct Read<'a> {
    /// The file.
    pub file: &'a dyn File,
    /// The destination of the bytes. The read ends when it is full, or the file ends.
    pub buf: &'a mut [u8],
    /// The offset of the first byte in the file.
    pub offset: u64,
}

impl Read<'_> {
    pub(crate) fn run(&mut self) -> Result<usize> {
        read_full_at(self.file, self.buf, self.offset)
    }
}

/// Runs the reads on several threads. Without a thread, the caller's reads.
pub(crate) fn read_each(reads: &mut [Read<'_>]) -> Vec<Result<usize>> {
    if reads.len() < PARALLEL_READS_MIN {
        return reads.iter_mut().map(Read::run).collect();
    }
    let share = reads.len().div_ceil(READ_THREADS);
    let mut results: Vec<_> = reads.iter().map(|_| None).collect();
    std::thread::scope(|scope| {
        for (reads, results) in reads.chunks_mut(share).zip(results.chunks_mut(share)) {
            let all = move || {
                for (read, result) in reads.iter_mut().zip(results) {
                    *result = Some(read.run());
                }
            };
            // What it did not take is read below.
            let _ = std::thread::Builder::new().spawn_scoped(scope, all);
        }
    });
    reads.iter_mut().zip(results).map(|(read, done)| done.unwrap_or_else(|| read.run())).collect()
}

/// Direct calls in a row that may end within their first block before the transfer fails.
const STALLS_MAX: u32 = 8;

/// Reads from `offset` until `buf` is full or the file ends, and returns the number of bytes read.
///
/// # Errors
/// The first error of the file; `Interrupted` when a direct file keeps stopping inside a block.
pub fn read_full_at(file: &dyn File, buf: &mut [u8], offset: u64) -> Result<usize> {
    let mut done = 0;
    let mut stalls = 0;
    while done < buf.len() {
        let at = offset + done as u64;
        let got = file.read_at(&mut buf[done..], at)?;
        let end = done + got;
        if got == 0 || end >= buf.len() {
            return Ok(end);
        }
        if whole(file, got) == got {
            done = end;
            continue;
        }
        if file.len()? <= offset + end as u64 {
            return Ok(end);
        }
        stalls = stalled(file, Op::Read, got, at, stalls, io::ErrorKind::Interrupted)?;
        done += whole(file, got);
    }
    Ok(done)
}

/// Writes all of `buf` at `offset`.
///
/// # Errors
/// The first error of the file; `WriteZero` when a write accepts no bytes and returns no error, or
/// when a direct file keeps stopping inside a block.
pub fn write_all_at(file: &dyn File, buf: &[u8], offset: u64) -> Result<()> {
    let mut done = 0;
    let mut stalls = 0;
    while done < buf.len() {
        let at = offset + done as u64;
        let put = file.write_at(&buf[done..], at)?;
        if put == 0 {
            let zero = io::Error::from(io::ErrorKind::WriteZero);
            return Err(Error::new(Op::Write, file.path(), Some(at), zero));
        }
        if done + put >= buf.len() {
            return Ok(());
        }
        stalls = stalled(file, Op::Write, put, at, stalls, io::ErrorKind::WriteZero)?;
        done += whole(file, put);
    }
    Ok(())
}

/// Rounds `count` down to whole blocks for a direct file: the next call must start there.
fn whole(file: &dyn File, count: usize) -> usize {
    if file.is_direct() { count - count % BLOCK_BYTES } else { count }
}

/// Counts the calls in a row that made no progress, and fails when there are too many.
fn stalled(
    file: &dyn File,
    op: Op,
    count: usize,
    at: u64,
    stalls: u32,
    kind: io::ErrorKind,
) -> Result<u32> {
    if whole(file, count) > 0 {
        return Ok(0);
    }
    if stalls + 1 >= STALLS_MAX {
        return Err(Error::new(op, file.path(), Some(at), io::Error::from(kind)));
    }
    Ok(stalls + 1)
}
