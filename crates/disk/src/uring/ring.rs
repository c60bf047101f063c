//! An io_uring ring with blocking calls. A transfer is submitted as pieces and returns when all of
//! them have completed.
//!
//! # Why the unsafe code is sound
//!
//! The kernel accesses the caller's memory and descriptor from the submission of a piece until its
//! completion arrives. No such access outlives the call that lent them:
//!
//! * [`Ring::transfer`] borrows the buffer and the descriptor. It returns only when as many
//!   completions arrived as pieces were submitted. It is not a future, so it cannot be dropped
//!   halfway.
//! * It takes the ring by `&mut`, so no other call can take its completions.
//! * Between the first submission and the last completion nothing panics: no allocation, no
//!   indexing that can fail, no foreign code. [`InFlight`] aborts the process if that is ever
//!   violated.
//! * A failing `io_uring_enter` does not end a call. Pieces that the kernel accepted are waited
//!   for. Pieces that it did not accept are never submitted, because the ring is then discarded.
//! * A ring with entries still queued is never entered again.
//! * Registered buffers belong to the ring ([`Ring::register`]) and are unregistered with it.
//!
//! # Short and failed pieces
//!
//! A failed piece fails the transfer, whatever the results of the others. It must not be retried,
//! because the failure may be permanent. A short piece ends the byte count, as a short `pwrite`
//! does. Pieces after it may have been written, but only inside the range that the caller asked to
//! write. A sync is never linked to a preceding write: it would run after a short one.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::{IoUring, Probe, opcode, squeue, types};

use super::faults::Faults;
use crate::aligned::AlignedBuf;
use crate::error::Op;
use crate::file::BLOCK_BYTES;

/// The size of a piece, at most, while fewer than the queue takes are needed.
const PIECE_BYTES: usize = 256 << 10;
/// Attempts at a transfer while a signal or a memory shortage rejects its first piece.
const TURNED_AWAY: u32 = 64;
/// How often the kernel may reject queued entries before the call fails.
const REFUSALS_MAX: u32 = 100_000;

/// An io_uring ring, used by one thread at a time, with blocking calls.
pub(crate) struct Ring {
    ring: IoUring,
    in_flight: usize,
    usable: bool,
    buffers: Vec<AlignedBuf>,
    faults: Faults,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("in_flight", &self.in_flight).finish_non_exhaustive()
    }
}

/// Aborts the process if a call exits while the kernel still accesses the caller's memory.
struct InFlight;

impl Drop for InFlight {
    fn drop(&mut self) {
        std::process::abort();
    }
}

impl Ring {
    /// The maximum number of pieces in flight.
    pub(crate) const PIECES_MAX: usize = 16;

    /// Creates a ring for `in_flight` pieces in flight, at most [`Ring::PIECES_MAX`].
    ///
    /// # Errors
    /// The kernel's error; `Unsupported` when it lacks an operation.
    pub(crate) fn new(in_flight: usize) -> io::Result<Self> {
        let in_flight = in_flight.clamp(1, Self::PIECES_MAX);
        let entries = in_flight as u32;
        // The flag avoids interrupting this thread. Older kernels do not know it.
        let ring = IoUring::builder().setup_coop_taskrun().build(entries);
        let ring = ring.or_else(|_| IoUring::new(entries))?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [
            opcode::Read::CODE,
            opcode::Write::CODE,
            opcode::ReadFixed::CODE,
            opcode::WriteFixed::CODE,
            opcode::Fsync::CODE,
        ];
        if !needed.iter().all(|code| probe.is_supported(*code)) {
            let why = "the kernel's io_uring misses an operation";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        Ok(Self { ring, in_flight, usable: true, buffers: Vec::new(), faults: Faults::default() })
    }

    /// Adds injected faults to the ring.
    pub(crate) fn with(mut self, faults: Faults) -> Self {
        self.faults = faults;
        self
    }

    /// Reads at most `buf.len()` bytes from `offset`.
    ///
    /// # Errors
    /// The first error of a piece.
    pub(crate) fn read_at(
        &mut self,
        fd: BorrowedFd<'_>,
        buf: &mut [u8],
        offset: u64,
    ) -> io::Result<usize> {
        let fd = types::Fd(fd.as_raw_fd());
        let start = buf.as_mut_ptr();
        self.transfer(Op::Read, buf.len(), offset, |at, len| {
            let to = start.wrapping_add(at);
            opcode::Read::new(fd, to, len).offset(offset + at as u64).build()
        })
    }

    /// Writes at most `buf.len()` bytes at `offset`.
    ///
    /// # Errors
    /// The first error of a piece; the state of the range is then unknown.
    pub(crate) fn write_at(
        &mut self,
        fd: BorrowedFd<'_>,
        buf: &[u8],
        offset: u64,
    ) -> io::Result<usize> {
        let fd = types::Fd(fd.as_raw_fd());
        let start = buf.as_ptr();
        self.transfer(Op::Write, buf.len(), offset, |at, len| {
            let from = start.wrapping_add(at);
            opcode::Write::new(fd, from, len).offset(offset + at as u64).build()
        })
    }

    /// Makes the bytes of a file durable, as `fdatasync` does. Submitted once and never retried.
    ///
    /// # Errors
    /// The error of the sync.
    pub(crate) fn sync_data(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let fd = types::Fd(fd.as_raw_fd());
        let sync = opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build();
        let mut results = [0; Self::PIECES_MAX];
        let met = self.faults.meet(Op::Sync, 1);
        met.asked(0, 0);
        self.run(std::iter::once(sync), &mut results)?;
        met.over(&mut results);
        check(results[0]).map(|_| ())
    }

    /// Registers buffers and a file with the kernel, which then need not be looked up and pinned at
    /// each transfer. The ring owns the buffers from here on. Call it once per ring.
    ///
    /// # Errors
    /// The kernel's error; `OutOfMemory` when the limit on locked memory is too low.
    pub(crate) fn register(
        &mut self,
        fd: BorrowedFd<'_>,
        mut buffers: Vec<AlignedBuf>,
    ) -> io::Result<()> {
        let vectors: Vec<libc::iovec> = buffers
            .iter_mut()
            .map(|buffer| libc::iovec {
                iov_len: buffer.len(),
                iov_base: buffer.as_mut_ptr().cast(),
            })
            .collect();
        // SAFETY: the memory is valid as long as the buffers, and they are dropped after the ring:
        // `ring` is declared before `buffers`.
        unsafe { self.ring.submitter().register_buffers(&vectors)? };
        self.buffers = buffers;
        self.ring.submitter().register_files(&[fd.as_raw_fd()])
    }

    /// Returns a registered buffer.
    pub(crate) fn buffer(&mut self, index: usize) -> Option<&mut [u8]> {
        self.buffers.get_mut(index).map(|buffer| &mut **buffer)
    }

    /// Writes a whole registered buffer to the registered file.
    ///
    /// # Errors
    /// As [`Ring::write_at`]; `NotFound` when there is no such buffer.
    pub(crate) fn write_registered(&mut self, index: usize, offset: u64) -> io::Result<usize> {
        let (start, len) = self.registered(index)?;
        self.transfer(Op::Write, len, offset, |at, len| {
            let from = start.wrapping_add(at).cast_const();
            let write = opcode::WriteFixed::new(types::Fixed(0), from, len, index as u16);
            write.offset(offset + at as u64).build()
        })
    }

    /// Fills a whole registered buffer from the registered file.
    ///
    /// # Errors
    /// As [`Ring::read_at`]; `NotFound` when there is no such buffer.
    pub(crate) fn read_registered(&mut self, index: usize, offset: u64) -> io::Result<usize> {
        let (start, len) = self.registered(index)?;
        self.transfer(Op::Read, len, offset, |at, len| {
            let to = start.wrapping_add(at);
            let read = opcode::ReadFixed::new(types::Fixed(0), to, len, index as u16);
            read.offset(offset + at as u64).build()
        })
    }

    fn registered(&mut self, index: usize) -> io::Result<(*mut u8, usize)> {
        let buffer = self.buffers.get_mut(index).ok_or(io::ErrorKind::NotFound)?;
        Ok((buffer.as_mut_ptr(), buffer.len()))
    }

    /// Returns whether the ring can be used again.
    pub(crate) fn is_usable(&self) -> bool {
        self.usable
    }

    /// Splits a transfer of `len` bytes at `offset` into pieces that are in flight together.
    /// Returns the number of contiguous bytes transferred from its start.
    fn transfer(
        &mut self,
        op: Op,
        len: usize,
        offset: u64,
        piece_at: impl Fn(usize, u32) -> squeue::Entry,
    ) -> io::Result<usize> {
        // Positioned system calls reject such offsets too. To io_uring, offset `u64::MAX` would
        // mean the current file position.
        if offset.checked_add(len as u64).is_none_or(|end| i64::try_from(end).is_err()) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let pieces = len.div_ceil(PIECE_BYTES).clamp(1, self.in_flight);
        let each = len.div_ceil(pieces).next_multiple_of(BLOCK_BYTES).min(u32::MAX as usize / 2);
        let ranges = (0..pieces).map(|n| (n * each, each.min(len.saturating_sub(n * each))));
        let ranges = ranges.filter(|(at, len)| *at == 0 || *len > 0);
        for _ in 0..TURNED_AWAY {
            let mut results = [0; Self::PIECES_MAX];
            let met = self.faults.meet(op, ranges.clone().count());
            let asked = ranges.clone().enumerate().map(|(n, (at, len))| (at, met.asked(n, len)));
            self.run(asked.map(|(at, len)| piece_at(at, len as u32)), &mut results)?;
            met.over(&mut results);
            if let Some(moved) = count(ranges.clone().map(|(_, len)| len).zip(results))? {
                return Ok(moved);
            }
        }
        Err(io::ErrorKind::Interrupted.into())
    }

    /// Submits entries, at most [`Ring::PIECES_MAX`], and waits for all of them.
    fn run(
        &mut self,
        entries: impl Iterator<Item = squeue::Entry>,
        results: &mut [i32; Self::PIECES_MAX],
    ) -> io::Result<()> {
        if !self.usable {
            return Err(io::Error::other("the ring failed before"));
        }
        let mut queued = 0;
        for (n, entry) in entries.take(self.in_flight).enumerate() {
            // SAFETY: the caller keeps memory and descriptor borrowed until `run` returns, and by
            // then the kernel no longer uses them: see the module documentation.
            if unsafe { self.ring.submission().push(&entry.user_data(n as u64)) }.is_err() {
                break;
            }
            queued += 1;
        }
        let guard = InFlight;
        let outcome = self.wait(queued, results);
        std::mem::forget(guard);
        outcome
    }

    fn wait(&mut self, queued: usize, results: &mut [i32; Self::PIECES_MAX]) -> io::Result<()> {
        let mut submitted = queued;
        let mut arrived = 0;
        let mut failure = None;
        let mut refusals = 0;
        while arrived < submitted {
            let entered = self.ring.submit_and_wait(submitted - arrived);
            if let Err(error) = entered {
                let passing = [libc::EINTR, libc::EAGAIN, libc::EBUSY];
                let passes = error.raw_os_error().is_some_and(|code| passing.contains(&code));
                refusals += 1;
                if (!passes || refusals > REFUSALS_MAX) && failure.is_none() {
                    // The kernel never gets the entries it did not accept; completions of the
                    // others arrive.
                    submitted -= self.ring.submission().len();
                    self.usable = false;
                    failure = Some(error);
                }
                std::thread::yield_now();
            }
            for completion in self.ring.completion() {
                if let Some(result) = results.get_mut(completion.user_data() as usize) {
                    *result = completion.result();
                }
                arrived += 1;
            }
        }
        failure.map_or(Ok(()), Err)
    }
}

/// Combines the results of the pieces, given their lengths. Returns the number of contiguous bytes
/// transferred from the start, or `None` to restart the transfer because its first piece was
/// rejected.
fn count(pieces: impl Iterator<Item = (usize, i32)>) -> io::Result<Option<usize>> {
    let mut moved = Some(0);
    let mut whole = true;
    for (n, (len, result)) in pieces.enumerate() {
        let got = match result.checked_neg() {
            Some(libc::EINTR | libc::EAGAIN) => {
                moved = moved.filter(|_| n > 0);
                0
            }
            _ => check(result)?,
        };
        if whole {
            moved = moved.map(|moved| moved + got);
        }
        whole &= got == len;
    }
    Ok(moved)
}

fn check(result: i32) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(result.wrapping_neg()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(results: [i32; 4]) -> io::Result<Option<usize>> {
        count([100, 100, 100, 50].into_iter().zip(results))
    }

    #[test]
    fn a_transfer_ends_with_its_first_short_piece() {
        assert_eq!(counted([100, 100, 100, 50]).unwrap(), Some(350));
        for short in 0..4 {
            for left in [0, 10, 49] {
                let mut results = [100, 100, 100, 50];
                results[short] = left;
                let moved = short * 100 + left as usize;
                assert_eq!(counted(results).unwrap(), Some(moved), "{short} {left}");
            }
        }
    }

    #[test]
    fn a_failed_piece_fails_the_transfer_wherever_it_is() {
        for failed in 0..4 {
            for others in [100, 0, -libc::EINTR] {
                let mut results = [others; 4];
                results[failed] = -libc::EIO;
                let error = counted(results).unwrap_err();
                assert_eq!(error.raw_os_error(), Some(libc::EIO), "{failed} {others}");
            }
        }
    }

    #[test]
    fn only_a_transfer_that_moved_nothing_is_begun_again() {
        assert_eq!(counted([-libc::EAGAIN, 100, 100, 50]).unwrap(), None);
        assert_eq!(counted([100, -libc::EINTR, 100, 50]).unwrap(), Some(100));
        assert_eq!(counted([0, -libc::EINTR, 100, 50]).unwrap(), Some(0));
        assert!(counted([i32::MIN, 0, 0, 0]).is_err());
    }
}
