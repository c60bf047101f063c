//! Which bytes of which segment files are reserved, and so may be given.
//!
//! A place is given only in a file that is fully reserved up to the end of its unit: a write there
//! needs no space, and a full disk is met before anything was accepted. Where space is missing the
//! answer is [`Refusal::NeedsSpace`](super::Refusal); the caller reserves it without the state lock,
//! says so by [`Core::extended`] or [`Core::made`], and tries again. At most one segment is reserved
//! ahead of the one that records are placed in.

use super::{Core, Need, Reserved, Wanted};
use crate::format::BLOCK;

/// Where a unit goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    Here,
    Next,
    Nowhere,
}

/// The least that a segment is extended by.
const STEP: u32 = 1 << 20;

impl Core {
    /// Where a unit of this size goes, if the one that is open ends at `offset`.
    pub(super) fn fit(&self, offset: u32, need: Need) -> Fit {
        let here = &self.frontier;
        let ends = self.ends(offset, need);
        let fits = offset.saturating_add(need.bytes) <= here.limit;
        if !ends && fits && need.may_use(here.internal) {
            return Fit::Here;
        }
        match self.next {
            Some(next)
                if BLOCK.saturating_add(need.bytes) <= next.limit
                    && need.may_use(next.internal) =>
            {
                Fit::Next
            }
            _ => Fit::Nowhere,
        }
    }

    /// Whether the segment is full for a unit of this size, however much is reserved.
    fn ends(&self, offset: u32, need: Need) -> bool {
        let here = &self.frontier;
        offset > BLOCK
            && (here.records >= self.limits.segment_records
                || offset.saturating_add(need.bytes) > here.full)
    }

    /// What has to be reserved before a unit of this size gets its place; `None` where it would.
    pub(crate) fn wanted(&self, need: Need) -> Option<Wanted> {
        let (segment, offset) = self.frontier();
        if self.fit(offset, need) != Fit::Nowhere {
            return None;
        }
        let here = &self.frontier;
        if !need.may_use(here.internal)
            || self.next.is_some_and(|next| !need.may_use(next.internal))
        {
            return Some(Wanted::Release);
        }
        if !self.ends(offset, need) {
            let least = offset.saturating_add(need.bytes);
            return Some(extension(segment, here.limit, here.full, least));
        }
        let least = BLOCK.saturating_add(need.bytes);
        Some(match self.next {
            Some(next) => extension(next.segment, next.limit, next.full, least),
            None => {
                Wanted::Make { segment: segment + 1, least, best: self.limits.segment.max(least) }
            }
        })
    }

    /// What is worth reserving before it is needed: more of the segment once half of what is
    /// reserved is used, and the next segment once this one is half full.
    pub(crate) fn ahead(&self) -> Option<Wanted> {
        let (segment, offset) = self.frontier();
        let here = &self.frontier;
        if self.next.is_some() || here.internal || offset <= here.limit / 2 {
            return None;
        }
        if here.limit < here.full {
            let least = here.limit + BLOCK;
            return Some(extension(segment, here.limit, here.full, least));
        }
        let best = self.limits.segment;
        Some(Wanted::Make { segment: segment + 1, least: 2 * BLOCK, best })
    }

    /// A segment is reserved up to this offset now.
    pub(crate) fn extended(&mut self, segment: u64, limit: u32) {
        if self.frontier.segment == segment {
            self.frontier.limit = self.frontier.limit.max(limit);
        } else if let Some(next) = self.next.as_mut().filter(|next| next.segment == segment) {
            next.limit = next.limit.max(limit);
        }
    }

    /// The next segment is made.
    pub(crate) fn made(&mut self, next: Reserved) {
        debug_assert!(self.next.is_none() && next.segment == self.frontier.segment + 1);
        self.next = Some(next);
    }

    /// Whether this segment comes next and is not made.
    pub(crate) fn has_no_next(&self, segment: u64) -> bool {
        self.next.is_none() && segment == self.frontier.segment + 1
    }

    /// The reserve is filled again: what was taken of it is ordinary space.
    pub(crate) fn release(&mut self) {
        self.frontier.internal = false;
        if let Some(next) = &mut self.next {
            next.internal = false;
        }
    }
}

impl Need {
    fn may_use(self, internal: bool) -> bool {
        self.internal || !internal
    }
}

fn extension(segment: u64, from: u32, full: u32, least: u32) -> Wanted {
    let best = from.saturating_mul(2).max(from.saturating_add(STEP)).min(full).max(least);
    Wanted::Extend { segment, from, least, best }
}
