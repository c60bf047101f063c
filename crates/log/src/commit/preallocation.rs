//! Preallocates file space before records are placed in it: segments, and the reserve.
//!
//! A write into a preallocated range needs no space. So a full disk is detected here, before
//! anything was accepted, and never in a commit. A thread that preallocates holds the `reserve`
//! lock and not the state lock. The core is given the space only once it exists.
//!
//! # The crash argument
//!
//! The file of the next segment gets its size and its name durably before the core places a unit in
//! it. A segment in use is extended without a sync. The write that uses the new range makes it
//! durable, and after a crash the range past the last durable unit is ignored.
//!
//! A failed preallocation is undone by the same call. After a crash in between, opening removes the
//! file, which has no header.
//!
//! The reserve is a file that was never written to. One rename turns the larger part of it into a
//! segment, so a crash leaves that part whole under one of two names. Under neither name does
//! recovery use it before it has a header.

use esker_disk::planted::{Bug, is_planted};
use esker_disk::{File, OpenMode};

use crate::base::error::{Error, Result, with_causes};
use crate::base::lender::Lent;
use crate::base::operation_errors::AppendError;
use crate::base::options::Options;
use crate::commit::core::{BrokenInvariant, Need, PreallocatedSegment, SpaceDemand};
use crate::commit::preallocator::ReadySegment;
use crate::commit::retention::{may_free, retain_now};
use crate::commit::write_half::WriteHalf;
use crate::format::footer::{FOOTER_HEADER_BYTES, INDEX_ENTRY_BYTES};
use crate::format::{BLOCK_BYTES, SEGMENT_MAX, block_up};
use crate::store::paths::{self, RESERVE};
use crate::store::space_reserve::{RESERVE_LEAST, Reserve};

/// The outcome of an attempt to preallocate space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Space {
    Preallocated,
    /// The disk is full, and segments may leave the log once this unit is durable. The caller
    /// requests that commit.
    AfterCommit {
        unit: u64,
    },
    /// The disk is full, and another thread is changing the set of segments.
    AfterChange,
}

/// The smallest segment that is created when there is no room for a whole one.
const SEGMENT_BYTES_MIN: u32 = 1 << 20;
/// One log takes one part in `LENT_FRACTION` of a shared reserve for a segment, and at most
/// `LENT_BYTES_MAX`, unless one record needs more.
const LENT_FRACTION: u64 = 8;
const LENT_BYTES_MAX: u64 = 1 << 20;
/// The bytes preallocated for a segment's footer, after its units. Where records are so small that
/// the footer takes more, it is omitted if there is no room for it.
fn footer_room(options: &Options, limit: u32) -> u32 {
    let entries = limit / options.index_bytes + limit / 64 / options.index_records + 2;
    let bytes = u64::from(entries) * INDEX_ENTRY_BYTES as u64 + FOOTER_HEADER_BYTES as u64;
    block_up(bytes.min(u64::from(limit / 8)).max(u64::from(BLOCK_BYTES)) as u32)
}

/// The length of a file whose units end at `limit`.
fn file_len(options: &Options, limit: u32) -> u64 {
    u64::from(limit) + u64::from(footer_room(options, limit))
}

/// The offset at which units must end in a file of this length.
fn limit_of(options: &Options, len: u64) -> u32 {
    let len = len.min(u64::from(SEGMENT_MAX / 2)) as u32;
    len.saturating_sub(footer_room(options, len)) / BLOCK_BYTES * BLOCK_BYTES
}

/// The size to try after `size`, down to `least`: half of what is tried beyond that each time. So
/// on a disk that is nearly full, each step takes half of the rest.
fn smaller(size: u32, least: u32) -> Option<u32> {
    match size.saturating_sub(least) {
        0 => None,
        beyond if beyond <= 16 * BLOCK_BYTES => Some(least),
        beyond => Some(block_up(least + beyond / 2)),
    }
}

impl WriteHalf {
    /// Preallocates the space for a unit, on this thread. Where the disk is full, it first frees
    /// the segments that may leave the log. Never waits for a commit: an engine thread that calls
    /// this may be the one that has to run it. Such a thread `may_wait` for no other that changes
    /// the set of segments either, which hangs with the disk.
    ///
    /// # Errors
    /// [`Error::NoSpace`], after which the log stays usable; [`Error::Io`], after which it is
    /// poisoned.
    pub(crate) fn preallocate(&self, need: Need, may_wait: bool) -> Result<Space, AppendError> {
        self.preallocate_or_free(need, may_wait).map_err(AppendError::narrow)
    }

    fn preallocate_or_free(&self, need: Need, may_wait: bool) -> Result<Space> {
        loop {
            let drops = self.segments.drops();
            let full = match self.preallocate_now(need) {
                Err(error) if error.is_no_space() && !need.internal => error,
                outcome => return outcome.map(|()| Space::Preallocated),
            };
            // Read before the retention is applied: a commit that ends in between lets more go.
            let (last, durable) = self.last_and_durable();
            match retain_now(self, may_wait) {
                Ok(Some(())) => {}
                Ok(None) => return Ok(Space::AfterChange),
                Err(error) => {
                    self.fail(error.clone());
                    return Err(error);
                }
            }
            if self.segments.drops() != drops {
                continue;
            }
            if durable == last || !may_free(self) {
                if self.begin_in_reserve(need, last, full)? {
                    return Ok(Space::Preallocated);
                }
            } else if self.last_and_durable().1 < last {
                return Ok(Space::AfterCommit { unit: last });
            }
        }
    }

    /// The last unit, and the last durable one.
    fn last_and_durable(&self) -> (u64, u64) {
        let state = self.lock();
        (state.core.last_unit(), state.core.durable().unit)
    }

    fn preallocate_now(&self, need: Need) -> Result<()> {
        let mut reserve = self.space.lock_reserve();
        // At most one iteration each for a refusal, the reserve, this segment, and the next one;
        // more only if other appenders use the new space first.
        loop {
            let wanted = {
                let state = self.lock();
                if let Some(terminal) = state.core.terminal() {
                    return Err(terminal.refusal().into());
                }
                state.core.wanted(need)
            };
            let Some(wanted) = wanted else { return Ok(()) };
            let made = self.make(&mut reserve, wanted, need.internal);
            made.map_err(|error| self.not_preallocated(need, error))?;
        }
    }

    /// Poisons the log, unless the disk is only full.
    fn not_preallocated(&self, need: Need, error: Error) -> Error {
        let (bytes, durable) = (u64::from(need.bytes), self.watermark.seq());
        let error = error.for_want_of_space(self.dir.path(), bytes, durable);
        if !error.is_no_space() {
            self.fail(error.clone());
        }
        error
    }

    /// Warns where the system refused something: space, or the opening of a file. Any other failure
    /// poisons the log: a failed sync is reported once, and the next one could claim success.
    pub(super) fn unless_refused(&self, error: Error, failed: &'static str) {
        if error.is_no_space() || error.failed_to_open() {
            tracing::warn!(error = with_causes(&error), "{failed}");
        } else {
            self.fail(error);
        }
    }

    /// Preallocates space before it is needed. Space or descriptors that are missing may be
    /// available when it is needed, and if not, the caller gets the error then.
    pub(crate) fn preallocate_ahead(&self) {
        let mut reserve = self.space.lock_reserve();
        let wanted = {
            let state = self.lock();
            if state.core.terminal().is_some() {
                return;
            }
            state.core.ahead()
        };
        let Some(wanted) = wanted else { return self.space.preallocator().tried() };
        if let Err(error) = self.make(&mut reserve, wanted, false) {
            self.unless_refused(error, "failed to reserve space ahead");
            self.space.preallocator().tried();
        }
    }

    /// The bytes that the records which free space may use on a full disk.
    pub(crate) fn room_in_reserve(&self) -> u64 {
        let reserve = self.space.lock_reserve();
        let lends = self.lends(&reserve);
        self.lock().core.room_in_reserve(lends)
    }

    /// Whether ordinary appends are refused until space is freed: the reserve is low, and there is
    /// no room to fill it.
    pub(crate) fn is_full_disk(&self) -> bool {
        let mut reserve = self.space.lock_reserve();
        if let Err(error) = reserve.restore(&*self.dir, &self.options) {
            self.unless_refused(error, "failed to fill the reserve");
        }
        reserve.is_low(&self.options) || self.lender().is_some_and(|lender| lender.is_low())
    }

    /// The offset at which a segment must end that is made from a reserve.
    fn lends(&self, reserve: &Reserve) -> u32 {
        let shared = self.lender().map_or(0, |lender| lender.lends());
        limit_of(&self.options, reserve.lends().max(shared))
    }

    /// Fills the reserve after space was freed; with a retention only up to its former size.
    pub(crate) fn fill_reserve(&self) {
        let mut reserve = self.space.lock_reserve();
        // A ring takes again what it frees, also if this session only truncates it.
        let is_ring = self.retention().is_set() || self.manifest.lock().retention.is_set();
        let filled = match is_ring {
            true => reserve.restore(&*self.dir, &self.options),
            false => reserve.fill(&*self.dir, &self.options),
        };
        if let Err(error) = filled {
            self.unless_refused(error, "failed to fill the reserve");
        }
        if let Some(lender) = self.lender() {
            lender.fill(!is_ring);
        }
        let lends = self.lends(&reserve);
        self.lock().core.renew_share(lends);
        if let Err(error) = self.record_size(&mut reserve) {
            self.fail(error);
        }
    }

    /// Keeps the largest size of the reserve in the manifest. Without space for that it is tried
    /// again when the reserve is filled the next time.
    pub(super) fn record_size(&self, reserve: &mut Reserve) -> Result<()> {
        let blocks = reserve.had_blocks();
        if reserve.recorded >= blocks {
            return Ok(());
        }
        match self.change_manifest(|manifest| manifest.reserve_blocks = blocks) {
            Err(error) if error.is_no_space() => {
                tracing::warn!(error = with_causes(&error), "failed to record the reserve's size");
                Ok(())
            }
            changed => {
                changed?;
                reserve.recorded = blocks;
                Ok(())
            }
        }
    }

    fn make(&self, reserve: &mut Reserve, wanted: SpaceDemand, internal: bool) -> Result<()> {
        if !internal && !is_planted(Bug::SpaceReserveNotKept) {
            self.keep_reserve(reserve)?;
        }
        loop {
            let made = match wanted {
                SpaceDemand::Release => {
                    self.lock().core.release();
                    return Ok(());
                }
                SpaceDemand::Extend { segment, from: _, least, best } => {
                    self.extend(segment, least, best)
                }
                SpaceDemand::Make { segment, least, best } => {
                    self.make_next(segment, least, best, false)
                }
            };
            match made {
                Err(error) if error.is_no_space() => {
                    if self.delete_spare()? {
                        continue;
                    }
                    return if internal {
                        self.use_reserve(reserve, wanted, error)
                    } else {
                        Err(error)
                    };
                }
                made => return made,
            }
        }
    }

    /// Deletes a spare file, because its space is wanted; `false` if there is none.
    fn delete_spare(&self) -> Result<bool> {
        let Some(spare) = self.space.take_spare() else { return Ok(false) };
        self.dir.unlink(&paths::spare(spare))?;
        Ok(true)
    }

    /// Ordinary appends get space only while the reserve exists or can be created.
    fn keep_reserve(&self, reserve: &mut Reserve) -> Result<()> {
        reserve.restore(&*self.dir, &self.options)?;
        self.record_size(reserve)?;
        loop {
            let shared_is_low = || self.lender().is_some_and(|lender| lender.is_low());
            if !reserve.is_low(&self.options) && !shared_is_low() {
                return Ok(());
            }
            if !self.delete_spare()? {
                break;
            }
            reserve.restore(&*self.dir, &self.options)?;
        }
        let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
        let path = self.dir.path_of(RESERVE);
        let cause = esker_disk::Error::new(esker_disk::Op::Size, &path, None, full);
        Err(self.no_space(RESERVE_LEAST, cause))
    }

    fn no_space(&self, wanted: u64, cause: esker_disk::Error) -> Error {
        let (dir, durable) = (self.dir.path().into(), self.watermark.seq().into());
        Error::NoSpace { dir, wanted, durable, cause }
    }

    /// Preallocates more of a segment that is in use or comes next.
    fn extend(&self, segment: u64, least: u32, best: u32) -> Result<()> {
        let file = self.dir.open(&paths::segment(segment), OpenMode::write())?;
        let limit = self.preallocate_in(&*file, least, best)?;
        self.space.preallocator().extended(segment, limit);
        let extended = self.lock().core.extended(segment, limit);
        extended.map_err(|BrokenInvariant(invariant)| Error::Internal { invariant })
    }

    /// Preallocates as much of a file as there is room for, down to one megabyte or to what is
    /// needed. Returns the offset at which its units must end.
    fn preallocate_in(&self, file: &dyn File, least: u32, best: u32) -> Result<u32> {
        let before = file.len()?;
        let least = least.max(best.min(SEGMENT_BYTES_MIN));
        let mut limit = best.max(least);
        loop {
            let len = file_len(&self.options, limit);
            let cause = match file.preallocate(0, len) {
                Ok(()) => return Ok(limit),
                Err(cause) if cause.is_no_space() => cause,
                Err(cause) => return Err(cause.into()),
            };
            file.set_len(before)?;
            match smaller(limit, least) {
                Some(next) => limit = next,
                None => return Err(self.no_space(len.saturating_sub(before), cause)),
            }
        }
    }

    /// Creates the file of the next segment, from a spare if there is one.
    fn make_next(&self, number: u64, least: u32, best: u32, internal: bool) -> Result<()> {
        let spare = if internal { None } else { self.space.take_spare() };
        if let Some(spare) = spare
            && self.make_of_spare(spare, number, least, best)?
        {
            return Ok(());
        }
        let name = paths::segment(number);
        let file = self.dir.open(&name, OpenMode::create())?;
        let made = file.set_len(0).map_err(Error::from).and_then(|()| {
            let limit = self.preallocate_in(&*file, least, best)?;
            file.sync_data()?;
            self.open_next(number, limit, 0, internal)
        });
        drop(file);
        if made.is_err() {
            // Nothing was placed in it. If this fails, the next opening removes it.
            let _ = self.dir.unlink(&name);
        }
        made
    }

    /// Turns a spare file into the next segment. Returns `false` if the file cannot be made long
    /// enough; it is then deleted.
    fn make_of_spare(&self, spare: u64, number: u64, least: u32, best: u32) -> Result<bool> {
        let name = paths::segment(number);
        self.dir.rename(&paths::spare(spare), &name)?;
        let file = self.dir.open(&name, OpenMode::write())?;
        let before = file.len()?;
        let limit = match self.preallocate_in(&*file, best, best) {
            Ok(limit) => limit,
            Err(error) if error.is_no_space() => limit_of(&self.options, before),
            Err(error) => return Err(error),
        };
        if limit < least {
            drop(file);
            self.dir.unlink(&name)?;
            return Ok(false);
        }
        let written_to =
            before.min(u64::from(self.options.segment_size)) as u32 / BLOCK_BYTES * BLOCK_BYTES;
        self.enter_next(number, limit, Some(written_to)).map(|()| true)
    }

    /// Continues an internal append in the reserve.
    fn use_reserve(&self, reserve: &mut Reserve, wanted: SpaceDemand, full: Error) -> Result<()> {
        let limit = limit_of(&self.options, reserve.lends());
        let Some((next, bytes)) = self.following(wanted) else { return Err(full) };
        if limit < bytes || self.shares_its_reserve() {
            return self.use_part(reserve, next, bytes, true, full);
        }
        match reserve.lend(&*self.dir, &paths::segment(next)) {
            Err(error) if error.is_no_space() => return Err(full),
            lent => lent?,
        }
        self.open_next(next, limit, 0, true)
    }

    /// The segment after the one in use, if there is none yet, and the bytes that a unit needs
    /// there.
    fn following(&self, wanted: SpaceDemand) -> Option<(u64, u32)> {
        let (next, bytes) = match wanted {
            SpaceDemand::Make { segment, least, .. } => (segment, least),
            // The unit goes to the segment after this one instead.
            SpaceDemand::Extend { segment, from, least, .. } => {
                (segment + 1, least - from + BLOCK_BYTES)
            }
            SpaceDemand::Release => return None,
        };
        self.lock().core.has_no_next(next).then_some((next, bytes))
    }

    /// Begins another segment in the reserve for an ordinary append, if every record was dropped.
    /// The first commit there lets all other segments leave the log, and with their space the
    /// reserve is filled again. Returns `false` if a record was placed after unit `last`: the
    /// caller then looks again.
    fn begin_in_reserve(&self, need: Need, last: u64, full: Error) -> Result<bool> {
        let mut reserve = self.space.lock_reserve();
        let dropped = self.segments.trim_point().low().seq;
        let wanted = {
            let state = self.lock();
            // After a close the directory may have another writer.
            if let Some(terminal) = state.core.terminal() {
                return Err(terminal.refusal().into());
            }
            // Another caller may have begun it already.
            let Some(wanted) = state.core.wanted(need) else { return Ok(true) };
            if state.core.last_unit() != last {
                return Ok(false);
            }
            let seq = state.core.last_seq();
            (seq > 0 && seq == dropped).then_some(wanted)
        };
        let Some((next, bytes)) = wanted.and_then(|wanted| self.following(wanted)) else {
            return Err(full);
        };
        let made = self.use_part(&mut reserve, next, bytes, false, full);
        made.map(|()| true).map_err(|error| self.not_preallocated(need, error))
    }

    /// Continues in a part of the reserve: its own, or that of another log which several share.
    fn use_part(
        &self,
        reserve: &mut Reserve,
        next: u64,
        bytes: u32,
        internal: bool,
        full: Error,
    ) -> Result<()> {
        let lends = match self.lender() {
            Some(lender) if !self.shares_its_reserve() => lender.lends(),
            _ => reserve.lends(),
        };
        let part = file_len(&self.options, bytes).max((lends / LENT_FRACTION).min(LENT_BYTES_MAX));
        let best = limit_of(&self.options, part).max(bytes);
        let mut make = || self.make_next(next, bytes, best, internal);
        let lent = match self.lender() {
            Some(lender) if !self.shares_its_reserve() => lender.lend(Lent::Bytes(part), &mut make),
            _ => self.lend_part(reserve, Lent::Bytes(part), &mut make),
        };
        match lent {
            Ok(true) => Ok(()),
            Ok(false) | Err(Error::Closed) => Err(full),
            Err(error) if error.is_no_space() => Err(full),
            Err(error) => Err(error),
        }
    }

    fn enter_next(&self, number: u64, limit: u32, written_to: Option<u32>) -> Result<()> {
        self.open_next(number, limit, written_to.unwrap_or(0), false)
    }

    /// Makes the name of a preallocated file durable and passes the file to the core.
    fn open_next(&self, number: u64, limit: u32, written_to: u32, internal: bool) -> Result<()> {
        if !is_planted(Bug::DirectoryNotSynced) {
            self.dir.sync()?;
        }
        let name = paths::segment(number);
        let writer = self.dir.open(&name, self.mode.writing())?;
        let reader = self.dir.open(&name, self.mode.reading())?;
        self.space.preallocator().made(number, ReadySegment { writer, reader, written_to, limit });
        let full = if internal { limit } else { self.options.segment_size.max(limit) };
        let next = PreallocatedSegment { segment: number, limit, full, internal };
        let made = self.lock().core.made(next);
        made.map_err(|BrokenInvariant(invariant)| Error::Internal { invariant })
    }
}
