//! Copies what may be only in the page cache into a new segment, which is the cut.
//!
//! # On a full disk
//!
//! The new segment takes its space from what is free, then from the reserve. If neither suffices,
//! the space after the last valid unit is freed: recovery found nothing there that counts, and
//! finds nothing there after a crash either. If that does not suffice, only the units above the
//! durable lower bound are copied. Those are few, and a part of the reserve is kept for them.
//!
//! A unit that is copied keeps its time, unless space is scarce: then units of several times become
//! one, and it gets the latest of them.

use std::sync::Arc;

use esker_disk::planted::{Bug, is_planted};
use esker_disk::{Dir, OpenMode};
use parking_lot::RwLock;

use super::cut_tail::cut_file;
use super::live::LiveSegment;
use super::rewrite::{Packing, Rewriter, RewrittenSegment, UNIT_BYTES};
use crate::base::error::Result;
use crate::base::options::Direct;
use crate::base::read_options::ReadOptions;
use crate::format::unit::UNIT_HEADER;
use crate::format::{BLOCK_BYTES, SegmentHeader, UnitHeader, UnitKind};
use crate::store::manifest::Manifest;
use crate::store::paths;
use crate::store::segment_scan::{Density, ValidUnit};
use crate::store::segment_table::Segment;

/// When a crash left no more than this in the newest segment, all of it is copied. So a program
/// that crashes repeatedly does not leave a segment each time.
const COPY_WHOLE: u32 = 256 << 10;

pub(super) struct CopiedTail {
    pub(super) live: LiveSegment,
    pub(super) copied: u64,
    /// Segments that the new one replaces completely.
    pub(super) dead: Vec<u64>,
}

/// The range that is copied: the segments from one on; of that one only the units from one on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tail {
    segment: usize,
    unit: usize,
}

impl Tail {
    /// From the end backward: whole segments above the durable lower bound, then part of one. Where
    /// less than `whole` bytes would stay in the segment, all of it is copied.
    fn choose(live: &[LiveSegment], durable_bound: u64, whole: u32) -> Self {
        let mut tail = Self { segment: live.len(), unit: 0 };
        for (n, newest) in live.iter().enumerate().rev() {
            let Some(units) = &newest.units else { break };
            let (durable_bound, whole) = match is_planted(Bug::PageCacheTrusted) {
                true => (u64::MAX, 0),
                false => (durable_bound, whole),
            };
            let above = units.partition_point(|unit| unit.header.last_seq <= durable_bound);
            let cut = match above.checked_sub(1).map(|below| &units[below]) {
                Some(below) => below.end(),
                None => BLOCK_BYTES,
            };
            tail.segment = n;
            if cut - BLOCK_BYTES > whole {
                tail.unit = above;
                break;
            }
            // Anything above the bound may be only in the page cache, in any segment.
            let above_before = n
                .checked_sub(1)
                .is_some_and(|before| live[before].segment.state.read().last_seq > durable_bound);
            let continues = above == 0 && above_before;
            if !continues {
                break;
            }
        }
        tail
    }

    fn copied<'a>(
        &self,
        live: &'a [LiveSegment],
    ) -> impl Iterator<Item = (&'a LiveSegment, &'a [ValidUnit])> {
        let Self { segment, unit } = *self;
        live[segment..].iter().enumerate().map(move |(n, live)| {
            let units = live.units.as_deref().unwrap_or_default();
            (live, &units[if n == 0 { unit } else { 0 }..])
        })
    }

    /// The last unit that stays in the segment of which a part is copied.
    fn below<'a>(&self, live: &'a [LiveSegment]) -> Option<(&'a LiveSegment, &'a ValidUnit)> {
        let newest = live.get(self.segment)?;
        let below = newest.units.as_deref()?.get(self.unit.checked_sub(1)?)?;
        Some((newest, below))
    }

    fn header(
        &self,
        live: &[LiveSegment],
        manifest: &Manifest,
        number: u64,
        time_ms: u64,
    ) -> SegmentHeader {
        let last = live.last().map_or(manifest.trim_seq, |live| live.segment.state.read().last_seq);
        let before = self.segment.checked_sub(1).map(|before| &live[before].segment);
        let (prev_segment, base, prev_seq, chain) = match (self.below(live), before) {
            (Some((newest, below)), _) => {
                let header = &newest.segment.header;
                let base = header.base + u64::from(below.end());
                (newest.segment.number(), base, below.header.last_seq, below.chain)
            }
            (None, Some(before)) => {
                let state = before.state.read();
                let end = before.header.base + u64::from(state.end);
                (before.number(), end, state.last_seq, state.chain)
            }
            // The oldest segment is replaced: the new one gets its predecessor.
            (None, None) => match live.first().map(|first| &first.segment.header) {
                Some(header) => (header.prev_segment, header.base, header.prev_seq, header.chain),
                None => (0, 0, manifest.trim_seq, 0),
            },
        };
        SegmentHeader {
            log: manifest.log,
            segment: number,
            session: manifest.session,
            base,
            prev_segment,
            prev_seq,
            durable_bound: last,
            time_ms: self.time(live, manifest.trim_seq, time_ms),
            chain,
            recovered: true,
            first_chain: 0,
        }
    }

    /// The time of the first unit that is copied. If there is none, `now`, or the time of the last
    /// unit before, if that is later and not dropped.
    fn time(&self, live: &[LiveSegment], trim_seq: u64, now: u64) -> u64 {
        if let Some(first) = self.copied(live).flat_map(|(_, units)| units).next() {
            return first.header.time_ms;
        }
        let below =
            self.below(live).map(|(_, below)| (below.header.last_seq, below.header.time_ms));
        let before = || {
            let state = live[..self.segment].last()?.segment.state.read();
            Some((state.last_seq, state.time_ms))
        };
        let kept = below.or_else(before).filter(|(last_seq, _)| *last_seq > trim_seq);
        kept.map_or(now, |(_, time_ms)| time_ms.max(now))
    }

    /// Frees the space after the last valid unit of each segment.
    fn free_dead(&self, dir: &dyn Dir, live: &[LiveSegment]) -> Result<()> {
        for (live, _) in self.copied(live) {
            let end = live.units.iter().flatten().last().map_or(BLOCK_BYTES, ValidUnit::end);
            if live.file_len > u64::from(end) {
                let file = dir.open(&live.segment.name(), OpenMode::write())?;
                cut_file(&*file, u64::from(end))?;
            }
        }
        Ok(())
    }
}

/// Writes the new segment, and shortens `live` to the segments before it.
pub(super) fn copy_tail(
    dir: &dyn Dir,
    options: &ReadOptions,
    manifest: &Manifest,
    live: &mut Vec<LiveSegment>,
    number: u64,
    durable_bound: u64,
    time_ms: u64,
) -> Result<CopiedTail> {
    let start = |tail: &Tail, packing: Packing| {
        let header = tail.header(live, manifest, number, time_ms);
        let room = room_for(tail.copied(live).flat_map(|(_, units)| units), packing);
        Rewriter::new(dir, header, Density::from_options(options), packing, room)
    };
    let mut tail = Tail::choose(live, durable_bound, COPY_WHOLE);
    let mut writer = start(&tail, Packing::OneTime);
    if writer.as_ref().is_err_and(|error| error.is_no_space()) {
        writer = start(&tail, Packing::Tight);
    }
    if writer.as_ref().is_err_and(|error| error.is_no_space()) {
        match tail.free_dead(dir, live) {
            Err(error) if !error.is_no_space() => return Err(error),
            _ => writer = start(&tail, Packing::Tight),
        }
    }
    if writer.as_ref().is_err_and(|error| error.is_no_space()) {
        tail = Tail::choose(live, durable_bound, 0);
        writer = start(&tail, Packing::Tight);
    }
    let mut writer = writer?;
    let mut copied = 0;
    for (live, units) in tail.copied(live) {
        let segment = &live.segment;
        writer.copy(&segment.reader, segment.salt, &segment.path, units, |seq| {
            copied += u64::from(seq > durable_bound);
        })?;
    }
    let new = writer.finish()?;

    let mut dead = Vec::new();
    let cut = tail.below(live).map(|(_, below)| {
        let UnitHeader { last_seq, time_ms, .. } = below.header;
        (below.end(), last_seq, below.chain, time_ms)
    });
    for (n, newest) in live.drain(tail.segment..).collect::<Vec<_>>().into_iter().enumerate() {
        match (n, cut) {
            (0, Some((end, last_seq, chain, time_ms))) => {
                let moved = newest.units.as_deref().unwrap_or_default()[tail.unit..].iter();
                let records: u64 = moved.clone().map(|unit| u64::from(unit.header.records)).sum();
                let payload: u32 = moved.map(|unit| unit.payload).sum();
                let mut state = newest.segment.state.write();
                (state.end, state.last_seq, state.chain) = (end, last_seq, chain);
                state.time_ms = time_ms;
                state.records -= records;
                state.payload = state.payload.map(|all| all - payload);
                state.index.retain(|entry| entry.unit < end);
                (state.full, state.footed) = (true, false);
                drop(state);
                live.push(LiveSegment { units: None, ..newest });
            }
            _ => dead.push(newest.segment.number()),
        }
    }
    let new = open_new(dir, options, new)?;
    Ok(CopiedTail { live: new, copied, dead })
}

/// An upper bound for the size of a rewritten segment with these units, in bytes.
pub(crate) fn room_for<'a>(units: impl Iterator<Item = &'a ValidUnit>, packing: Packing) -> u64 {
    let block = u64::from(BLOCK_BYTES);
    let (mut bytes, mut gaps, mut time_ms) = (0, 0, 0);
    for unit in units {
        // Where times decrease, because all before was dropped, a new unit begins, too.
        gaps += u64::from(unit.header.time_ms < time_ms);
        time_ms = unit.header.time_ms;
        match (unit.header.kind, packing) {
            (UnitKind::Data, Packing::OneTime) => bytes += u64::from(unit.header.span()),
            (UnitKind::Data, Packing::Tight) => bytes += u64::from(unit.header.used),
            (UnitKind::Gap, _) => gaps += 1,
        }
    }
    // After a gap and after each megabyte a new unit begins, with a header and in a new block.
    let units_max = bytes / u64::from(UNIT_BYTES) + gaps + 1;
    let room = block * (1 + gaps) + bytes + units_max * (block + u64::from(UNIT_HEADER));
    room.next_multiple_of(block)
}

fn open_new(dir: &dyn Dir, options: &ReadOptions, new: RewrittenSegment) -> Result<LiveSegment> {
    let direct = options.direct != Direct::Off;
    let direct = direct && dir.facts()?.direct;
    let name = paths::segment(new.header.segment);
    let reader = dir.open(&name, OpenMode::read().direct(direct))?;
    let file_len = u64::from(new.state.end);
    let segment = Arc::new(Segment {
        header: new.header,
        salt: new.header.salt(),
        path: dir.path_of(&name),
        reader,
        state: RwLock::new(new.state),
    });
    Ok(LiveSegment { segment, units: None, file_len })
}
