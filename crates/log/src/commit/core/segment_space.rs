//! Tracks which bytes of which segment files are preallocated.
//!
//! A record is placed only in a file that is fully preallocated up to the end of its unit. A write
//! there needs no space, so a full disk is detected before anything was accepted. If space is
//! missing, the answer is [`Refusal::NeedsSpace`](super::Refusal). The caller then preallocates it
//! without the state lock, reports it with [`Core::extended`] or [`Core::made`], and retries.
//! Preallocating ahead makes that rare. At most one segment is preallocated ahead of the current
//! one. The segment in which opening continues grows from 1 MiB by doubling, so that an idle log
//! does not occupy a whole segment.

use super::{BrokenInvariant, Core, Frontier, Need, PreallocatedSegment, SpaceDemand};
use crate::format::{BLOCK_BYTES, block_up};

/// The segment that a unit fits in: the current one, the next one, or neither.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    Here,
    Next,
    Nowhere,
}

/// The most bytes that deletes and the like use of a segment made from the reserve.
const LENT_BYTES_MAX: u32 = 8 << 20;
/// Bytes that copies of a segment may take beside its own size and an eighth of that.
const COPY_SLACK: u32 = 64 << 10;
/// The least number of bytes that a segment is extended by.
const EXTENSION_BYTES_MIN: u32 = 1 << 20;

impl Core {
    /// Returns the segment that a unit of this size fits in, if the open unit ends at `offset`.
    pub(super) fn fit(&self, offset: u32, need: Need) -> Fit {
        let here = &self.frontier;
        let ends = self.ends(offset, need);
        let fits = offset.saturating_add(need.bytes) <= here.limit;
        if !ends && fits && need.may_use(here.internal) {
            return Fit::Here;
        }
        match self.next {
            Some(next)
                if BLOCK_BYTES.saturating_add(need.bytes) <= next.limit
                    && need.may_use(next.internal) =>
            {
                Fit::Next
            }
            _ => Fit::Nowhere,
        }
    }

    /// Whether the segment is too full for a unit of this size, however much is preallocated.
    fn ends(&self, offset: u32, need: Need) -> bool {
        let here = &self.frontier;
        offset > BLOCK_BYTES
            && (here.records >= self.limits.segment_records
                || offset.saturating_add(need.bytes) > here.full)
    }

    /// Returns the space that a unit of this size needs before it is placed; `None` if it fits now.
    pub(crate) fn wanted(&self, need: Need) -> Option<SpaceDemand> {
        let (segment, offset) = self.frontier();
        if self.fit(offset, need) != Fit::Nowhere {
            return None;
        }
        let here = &self.frontier;
        if !need.may_use(here.internal)
            || self.next.is_some_and(|next| !need.may_use(next.internal))
        {
            return Some(SpaceDemand::Release);
        }
        let least = BLOCK_BYTES.saturating_add(need.bytes);
        // Never the segment in use once there is a next one: a smaller record may go there while
        // this one is extended, and then it gets its footer, or leaves the log.
        if let Some(next) = self.next {
            return Some(extension(next.segment, next.limit, next.full, least));
        }
        Some(match self.ends(offset, need) {
            true => SpaceDemand::Make {
                segment: segment + 1,
                least,
                best: self.limits.segment.max(least),
            },
            false => extension(segment, here.limit, here.full, offset.saturating_add(need.bytes)),
        })
    }

    /// Returns the space to preallocate ahead: more of the segment once half of that is used, and
    /// the next segment once this one is half full.
    pub(crate) fn ahead(&self) -> Option<SpaceDemand> {
        let (segment, offset) = self.frontier();
        let here = &self.frontier;
        if self.next.is_some() || here.internal || offset <= here.limit / 2 {
            return None;
        }
        if here.limit < here.full {
            let least = here.limit + BLOCK_BYTES;
            return Some(extension(segment, here.limit, here.full, least));
        }
        let best = self.limits.segment;
        Some(SpaceDemand::Make { segment: segment + 1, least: 2 * BLOCK_BYTES, best })
    }

    /// Records that a segment is preallocated up to this offset.
    pub(crate) fn extended(&mut self, segment: u64, limit: u32) -> Result<(), BrokenInvariant> {
        if self.frontier.segment == segment {
            self.frontier.limit = self.frontier.limit.max(limit);
        } else if let Some(next) = self.next.as_mut().filter(|next| next.segment == segment) {
            next.limit = next.limit.max(limit);
        } else {
            return Err(self.broken("a segment that is extended is in use or comes next"));
        }
        Ok(())
    }

    /// Adds the next segment, which was created.
    pub(crate) fn made(&mut self, next: PreallocatedSegment) -> Result<(), BrokenInvariant> {
        if !self.has_no_next(next.segment) {
            return Err(self.broken("a segment is made once, and comes next"));
        }
        self.next = Some(next);
        Ok(())
    }

    /// Whether this segment comes next and is not yet created.
    pub(crate) fn has_no_next(&self, segment: u64) -> bool {
        self.next.is_none() && segment == self.frontier.segment + 1
    }

    /// Whether a record that lets a component free space later, such as a delete, may use the
    /// reserve. At least three quarters of what was made a segment are left to the records that
    /// free space.
    pub(crate) fn lends_reserve(&self) -> bool {
        !self.frontier.internal || self.frontier.lent <= lent_bytes(self.frontier.limit)
    }

    /// Counts the blocks that the next record of the open unit takes from the part that is lent.
    /// Also the rest of its last block: a commit of this record may end there, and not in a full
    /// unit of copies.
    pub(super) fn count_lent(&mut self, stored: u32) {
        let Some(open) = self.units.open().filter(|_| self.frontier.internal) else { return };
        let from = if open.records == 0 { open.start } else { open.end() };
        let until = block_up(open.end() + stored);
        let here = &mut self.frontier;
        here.lent += until.saturating_sub(from.max(here.lent_until));
        here.lent_until = until;
    }

    /// The bytes left to the records that free space: in segments made from the reserve, and in one
    /// of `lends` bytes that can be made from it.
    pub(crate) fn room_in_reserve(&self, lends: u32) -> u64 {
        let (_, offset) = self.frontier();
        let Frontier { limit, lent, internal, .. } = self.frontier;
        let here = Some((limit, offset, lent)).filter(|_| internal);
        let next = self.next.filter(|next| next.internal).map(|next| (next.limit, BLOCK_BYTES, 0));
        let segments = [here, next, Some((lends, BLOCK_BYTES, 0))];
        let (mut room, mut deletes) = (0, 0);
        for (limit, from, lent) in segments.into_iter().flatten() {
            room += u64::from(limit.saturating_sub(from));
            deletes = lent_bytes(limit).saturating_sub(lent).max(deletes);
        }
        room.saturating_sub(deletes.into())
    }

    /// Lends another share after space was freed, if a whole segment can still be copied beside it.
    /// `lends`: as for [`Core::room_in_reserve`].
    pub(crate) fn renew_share(&mut self, lends: u32) {
        let segment = u64::from(self.limits.segment);
        let lent = std::mem::take(&mut self.frontier.lent);
        if self.room_in_reserve(lends) < segment + segment / 8 + u64::from(COPY_SLACK) {
            self.frontier.lent = lent;
        }
    }

    /// The reserve is filled again: segments made from it become ordinary space.
    pub(crate) fn release(&mut self) {
        self.frontier.internal = false;
        if let Some(next) = &mut self.next {
            next.internal = false;
        }
    }
}

/// The bytes that are lent to deletes and the like, of a segment that was made from the reserve and
/// ends at `limit`.
fn lent_bytes(limit: u32) -> u32 {
    (limit / 4).min(LENT_BYTES_MAX)
}

impl Need {
    fn may_use(self, internal: bool) -> bool {
        self.internal || !internal
    }
}

fn extension(segment: u64, from: u32, full: u32, least: u32) -> SpaceDemand {
    let best =
        from.saturating_mul(2).max(from.saturating_add(EXTENSION_BYTES_MIN)).min(full).max(least);
    SpaceDemand::Extend { segment, from, least, best }
}
