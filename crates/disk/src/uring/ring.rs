//! One ring: a transfer goes in as pieces, and comes out when the kernel has given all of them back.
//!
//! # Why this is sound
//!
//! The kernel reads and writes the caller's memory, and uses the caller's descriptor, from the moment
//! a piece is submitted until its completion arrives. Here nothing of that outlives the call that lent
//! it:
//!
//! * [`Ring::transfer`] holds the borrow of buffer and descriptor, and returns only when as many
//!   completions arrived as pieces were submitted. No future is involved that could be dropped.
//! * It takes the ring by `&mut`, so that no other call can take its completions.
//! * Between the first submission and the last completion nothing panics: no allocation, no indexing
//!   that can fail, no foreign code. [`InFlight`] ends the process should that ever become false.
//! * A failing `io_uring_enter` is not the end of a call: what the kernel took is waited for, what it
//!   did not take is never submitted, because the ring is then thrown away.
//! * A ring that was left with something queued is never entered again.
//! * Buffers that are registered belong to the ring ([`Ring::register`]), and are unregistered with it.
//!
//! # Short and failed pieces
//!
//! A piece that failed fails the transfer, whatever became of the others: nobody may try again what
//! may have failed for good. A short piece ends the count there, as a short `pwrite` does; pieces
//! behind it may have been written, to places that the caller asked to be written. A sync is never
//! linked behind a write: it would run behind a short one.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::{IoUring, Probe, opcode, squeue, types};

use super::faults::Faults;
use crate::{AlignedBuf, BLOCK, Op};

/// A smaller transfer is one piece.
const PIECE: usize = 256 << 10;
/// How often in a row a signal, or a kernel short of memory, may turn a piece away.
const TURNED_AWAY: u32 = 64;
/// How often the kernel may refuse to take what was queued, before that is a failure.
const REFUSALS: u32 = 100_000;

/// A ring of io_uring, used by one thread at a time, with calls that block.
pub(crate) struct Ring {
    ring: IoUring,
    in_flight: usize,
    sound: bool,
    buffers: Vec<AlignedBuf>,
    faults: Faults,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("in_flight", &self.in_flight).finish_non_exhaustive()
    }
}

/// Ends the process if a call is left while the kernel holds the caller's memory.
struct InFlight;

impl Drop for InFlight {
    fn drop(&mut self) {
        std::process::abort();
    }
}

impl Ring {
    /// The most pieces in flight.
    pub(crate) const MOST: usize = 16;

    /// A ring for this many pieces in flight, [`Ring::MOST`] at most.
    ///
    /// # Errors
    /// Why the kernel gives none; `Unsupported` when it misses an operation.
    pub(crate) fn new(in_flight: usize) -> io::Result<Self> {
        let in_flight = in_flight.clamp(1, Self::MOST);
        let entries = in_flight as u32;
        // Older kernels do not know the flag, which saves an interruption of this thread.
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
        Ok(Self { ring, in_flight, sound: true, buffers: Vec::new(), faults: Faults::default() })
    }

    /// The same ring, with what is to go wrong on it.
    pub(crate) fn with(mut self, faults: Faults) -> Self {
        self.faults = faults;
        self
    }

    /// Reads at most `buf.len()` bytes from `offset`.
    ///
    /// # Errors
    /// The first failure of a piece.
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
    /// The first failure of a piece; then nothing is known about the range.
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

    /// Makes the bytes of a file durable, as `fdatasync` does. Asked for once, whatever comes of it.
    ///
    /// # Errors
    /// The failure of the sync.
    pub(crate) fn sync_data(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let fd = types::Fd(fd.as_raw_fd());
        let sync = opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build();
        let mut results = [0; Self::MOST];
        let met = self.faults.meet(Op::Sync, 1);
        met.asked(0, 0);
        self.run(std::iter::once(sync), &mut results)?;
        met.over(&mut results);
        check(results[0]).map(|_| ())
    }

    /// Registers buffers and a file with the kernel, so that it need not look them up and pin them at
    /// each transfer. The buffers are the ring's from here on. Once in the life of a ring.
    ///
    /// # Errors
    /// What the kernel says; `OutOfMemory` when the limit on locked memory is too low.
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
        // SAFETY: the memory is valid for as long as the buffers are, and they go when the ring has
        // gone: see the order of the fields' drop below.
        unsafe { self.ring.submitter().register_buffers(&vectors)? };
        self.buffers = buffers;
        self.ring.submitter().register_files(&[fd.as_raw_fd()])
    }

    /// A registered buffer.
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

    /// Whether the ring can be used again.
    pub(crate) fn is_sound(&self) -> bool {
        self.sound
    }

    /// Cuts a transfer of `len` bytes at `offset` into pieces that are in flight together, and counts the bytes
    /// from the start on that were moved.
    fn transfer(
        &mut self,
        op: Op,
        len: usize,
        offset: u64,
        piece_at: impl Fn(usize, u32) -> squeue::Entry,
    ) -> io::Result<usize> {
        // As a positioned call does; to io_uring the last offset of all would mean "where the file
        // stands".
        if offset.checked_add(len as u64).is_none_or(|end| i64::try_from(end).is_err()) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let pieces = len.div_ceil(PIECE).clamp(1, self.in_flight);
        let each = len.div_ceil(pieces).next_multiple_of(BLOCK).min(u32::MAX as usize / 2);
        let ranges = (0..pieces).map(|n| (n * each, each.min(len.saturating_sub(n * each))));
        let ranges = ranges.filter(|(at, len)| *at == 0 || *len > 0);
        for _ in 0..TURNED_AWAY {
            let mut results = [0; Self::MOST];
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

    /// Submits entries, [`Ring::MOST`] at most, and waits for all of them.
    fn run(
        &mut self,
        entries: impl Iterator<Item = squeue::Entry>,
        results: &mut [i32; Self::MOST],
    ) -> io::Result<()> {
        if !self.sound {
            return Err(io::Error::other("the ring failed before"));
        }
        let mut queued = 0;
        for (n, entry) in entries.take(self.in_flight).enumerate() {
            // SAFETY: memory and descriptor stay borrowed by our caller until `run` returns, and that
            // is when the kernel has given them back: see the module.
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

    fn wait(&mut self, queued: usize, results: &mut [i32; Self::MOST]) -> io::Result<()> {
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
                if (!passes || refusals > REFUSALS) && failure.is_none() {
                    // What the kernel did not take it never will; the rest comes back.
                    submitted -= self.ring.submission().len();
                    self.sound = false;
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

/// What became of a transfer whose pieces, of these lengths, had these results: the bytes moved from
/// its start on, or `None` when it should be begun again because its first piece was turned away.
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
