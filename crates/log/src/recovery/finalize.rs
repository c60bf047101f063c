//! Makes the result of a scan durable and cuts the dead tail. See the crash argument in the parent
//! module.

use std::sync::Arc;

use esker_disk::{Dir, Open};
use parking_lot::RwLock;

use super::findings::{DirScan, Live};
use super::outcome::{PriorShutdown, Recovery, TruncatedTail};
use super::rewrite::{Rewriter, Rewritten, UNIT};
use super::scan_dir::density;
use crate::base::error::Result;
use crate::base::error::corruption_at;
use crate::base::log_end::{LogEnd, Mark};
use crate::base::options::Direct;
use crate::base::position::Seq;
use crate::base::read_options::ReadOptions;
use crate::format::unit::UNIT_HEADER;
use crate::format::{BLOCK, LogId, NUMBER_MAX, SegmentHeader, UnitKind};
use crate::store::manifest::Manifest;
use crate::store::paths;
use crate::store::segment_footer::write_footer;
use crate::store::segment_scan::ValidUnit;
use crate::store::segment_table::Segment;
use crate::store::watermark_page::WatermarkPage;

/// When a crash left no more than this in the newest segment, all of it is copied. So a program
/// that crashes repeatedly does not leave a segment each time.
const COPY_WHOLE: u32 = 256 << 10;

/// A log that is ready for appends.
#[derive(Debug)]
pub(crate) struct Finalized {
    pub(crate) manifest: Manifest,
    pub(crate) segments: Vec<Arc<Segment>>,
    pub(crate) start: LogEnd,
    /// The checksum that the next unit chains to.
    pub(crate) chain: u32,
    pub(crate) page: WatermarkPage,
    pub(crate) spares: Vec<u64>,
    pub(crate) recovery: Recovery,
}

/// Writes the manifest of a log that has no segment yet.
pub(crate) fn create(dir: &dyn Dir, log: LogId) -> Result<Manifest> {
    let manifest = Manifest::new(log);
    manifest.write(dir)?;
    Ok(manifest)
}

/// Opens a scanned log for writing.
pub(crate) fn finalize(
    dir: &dyn Dir,
    options: &ReadOptions,
    scan: DirScan,
    time_ms: u64,
) -> Result<Finalized> {
    let mut manifest = scan.manifest;
    if scan.highest_number.max(manifest.session) >= NUMBER_MAX - 1 {
        // What would be written next could not be read again.
        return Err(corruption_at(
            &dir.path_of(paths::MANIFEST),
            0,
            0,
            "the number of a segment or session is the last possible one",
        ));
    }
    let clean = manifest.clean.take();
    for name in &scan.temporary {
        dir.unlink(name)?;
    }
    // Blank segments hold nothing, and may be what fills the disk.
    for number in &scan.blank {
        dir.unlink(&paths::segment(*number))?;
    }
    manifest.session += 1;
    if let Some(oldest) = scan.live.first()
        && manifest.trim_segment > 0
    {
        // The preceding segments may have left the log before a manifest recorded it.
        manifest.trim_segment = oldest.segment.number();
    }
    // The clean end is dropped, but its durable lower bound must be kept.
    manifest.durable = manifest.durable.max(scan.durable_bound);
    manifest.write(dir)?;
    // After the manifest is durable: a page without a manifest means that a log was lost. The
    // page's name is synced with those of the segments.
    let mut page = WatermarkPage::open(dir, manifest.log, manifest.session, manifest.trim_seq)?;

    let mut recovery = Recovery {
        prior_shutdown: match (clean, scan.live.is_empty()) {
            (_, true) => PriorShutdown::New,
            (Some(_), _) => PriorShutdown::Clean,
            (None, _) => PriorShutdown::Unclean,
        },
        session: manifest.session,
        last: Seq::ZERO,
        truncated_tail: scan.cut.clone(),
        copied: 0,
    };
    let mut live = scan.live;
    if clean.is_some() {
        recovery.truncated_tail = trim(dir, &live)?;
        for number in &scan.dead {
            dir.unlink(&paths::segment(*number))?;
        }
    } else {
        let number = scan.highest_number + 1;
        let new =
            copy_tail(dir, options, &manifest, &mut live, number, scan.durable_bound, time_ms)?;
        recovery.copied = new.copied;
        let last = new.live.segment.state.read().last_seq;
        if manifest.trim_segment == 0 || manifest.durable < last {
            if manifest.trim_segment == 0 {
                manifest.trim_segment = live.first().map_or(number, |live| live.segment.number());
            }
            // The copy is durable now. Until the next commit only its own segment records that.
            manifest.durable = last;
            manifest.write(dir)?;
        }
        for number in scan.dead.iter().chain(&new.dead) {
            dir.unlink(&paths::segment(*number))?;
        }
        for live in &live {
            finish(dir, live)?;
        }
        live.push(new.live);
    }
    dir.sync()?;

    let segments: Vec<_> = live.into_iter().map(|live| live.segment).collect();
    let Some(newest) = segments.last() else {
        return Err(corruption_at(dir.path(), 0, 0, "no segment is left"));
    };
    let (number, base) = (newest.number(), newest.header.base);
    let state = newest.state.read().clone();
    recovery.last = Seq(state.last_seq);
    let position = base + u64::from(state.end);
    page.store(Mark { unit: 0, position, seq: state.last_seq, segment: number })?;
    Ok(Finalized {
        manifest,
        start: LogEnd {
            log: manifest.log,
            segment: number,
            base,
            offset: state.end,
            records: state.records,
            last_seq: state.last_seq,
        },
        chain: state.chain,
        segments,
        page,
        spares: scan.spares,
        recovery,
    })
}

/// Cuts off the bytes after the end of a cleanly closed log: they do not belong to it.
fn trim(dir: &dyn Dir, live: &[Live]) -> Result<Option<TruncatedTail>> {
    let Some(newest) = live.last() else {
        return Ok(None);
    };
    let end = u64::from(newest.segment.state.read().end);
    if newest.file_len <= end {
        return Ok(None);
    }
    let file = dir.open(&newest.segment.name(), Open::write())?;
    file.set_len(end)?;
    file.sync_data()?;
    let what = "the log was closed before these bytes".into();
    let file = newest.segment.path.clone();
    Ok(Some(TruncatedTail { file, offset: end, bytes: newest.file_len - end, what }))
}

struct Copied {
    live: Live,
    copied: u64,
    /// Segments that the new one replaces completely.
    dead: Vec<u64>,
}

/// Writes the new segment, and shortens `live` to the segments before it.
fn copy_tail(
    dir: &dyn Dir,
    options: &ReadOptions,
    manifest: &Manifest,
    live: &mut Vec<Live>,
    number: u64,
    durable_bound: u64,
    time_ms: u64,
) -> Result<Copied> {
    // From the end backward: whole segments above the durable lower bound, then part of one.
    let mut tail: Vec<(Live, Vec<ValidUnit>)> = Vec::new();
    let mut dead = Vec::new();
    let mut last = live.last().map_or(0, |live| live.segment.state.read().last_seq);
    while let Some(newest) = live.pop() {
        let Some(units) = &newest.units else {
            live.push(newest);
            break;
        };
        let above = units.partition_point(|unit| unit.header.last_seq <= durable_bound);
        let cut = match above.checked_sub(1).map(|below| &units[below]) {
            Some(below) => below.end(),
            None => BLOCK,
        };
        if cut - BLOCK <= COPY_WHOLE {
            dead.push(newest.segment.number());
            let units = units.clone();
            // Anything above the bound may be only in the page cache, in any segment.
            let above_before = live
                .last()
                .is_some_and(|before| before.segment.state.read().last_seq > durable_bound);
            let go_on = above == 0 && above_before;
            tail.push((newest, units));
            if go_on {
                continue;
            }
            break;
        }
        let units = units[above..].to_vec();
        let (seq, chain) = match above.checked_sub(1) {
            Some(below) => {
                let below = &newest.units.as_ref().map_or(&[][..], |units| units)[below];
                (below.header.last_seq, below.chain)
            }
            None => (newest.segment.header.prev_seq, newest.segment.header_crc),
        };
        let copied = units.iter().map(|unit| u64::from(unit.header.records)).sum::<u64>();
        {
            let mut state = newest.segment.state.write();
            state.end = cut;
            state.last_seq = seq;
            state.chain = chain;
            state.records -= copied;
            state.index.retain(|entry| entry.unit < cut);
            state.full = true;
            state.footed = false;
        }
        let kept =
            Live { segment: Arc::clone(&newest.segment), units: None, file_len: newest.file_len };
        tail.push((newest, units));
        live.push(kept);
        break;
    }
    tail.reverse();

    let before = live.last().map(|live| Arc::clone(&live.segment));
    let (prev_segment, base, prev_seq, chain) = match (&before, tail.first()) {
        (Some(before), _) => {
            let state = before.state.read();
            let end = before.header.base + u64::from(state.end);
            (before.number(), end, state.last_seq, state.chain)
        }
        // The oldest segment is replaced: the new one gets its predecessor.
        (None, Some((first, _))) => {
            let header = &first.segment.header;
            (header.prev_segment, header.base, header.prev_seq, header.chain)
        }
        (None, None) => (0, 0, manifest.trim_seq, 0),
    };
    if tail.is_empty() {
        last = prev_seq;
    }
    let header = SegmentHeader {
        log: manifest.log,
        segment: number,
        session: manifest.session,
        base,
        prev_segment,
        prev_seq,
        durable_bound: last,
        time_ms,
        chain,
        recovered: true,
        first_chain: 0,
    };
    let room = room_for(tail.iter().flat_map(|(_, units)| units));
    let mut writer = Rewriter::new(dir, header, density(options), room)?;
    let mut copied = 0;
    for (live, units) in &tail {
        let segment = &live.segment;
        writer.copy(&segment.reader, segment.salt, &segment.path, units, |seq| {
            copied += u64::from(seq > durable_bound);
        })?;
    }
    let new = writer.finish()?;
    let live = open_new(dir, options, new)?;
    Ok(Copied { live, copied, dead })
}

/// An upper bound for the size of a rewritten segment with these units, in bytes.
pub(crate) fn room_for<'a>(units: impl Iterator<Item = &'a ValidUnit>) -> u64 {
    let block = u64::from(BLOCK);
    let (mut bytes, mut gaps) = (0, 0);
    for unit in units {
        match unit.header.kind {
            UnitKind::Data => bytes += u64::from(unit.header.used),
            UnitKind::Gap => gaps += 1,
        }
    }
    // After a gap and after each megabyte a new unit begins, with a header and in a new block.
    let units_max = bytes / u64::from(UNIT) + gaps + 1;
    let room = block * (1 + gaps) + bytes + units_max * (block + u64::from(UNIT_HEADER));
    room.next_multiple_of(block)
}

fn open_new(dir: &dyn Dir, options: &ReadOptions, new: Rewritten) -> Result<Live> {
    let direct = options.direct != Direct::Off;
    let direct = direct && dir.facts()?.direct;
    let name = paths::segment(new.header.segment);
    let reader = dir.open(&name, Open::read().direct(direct))?;
    let file_len = u64::from(new.state.end);
    let segment = Arc::new(Segment {
        header: new.header,
        header_crc: new.header_crc,
        salt: new.header.salt(),
        path: dir.path_of(&name),
        reader,
        state: RwLock::new(new.state),
    });
    Ok(Live { segment, units: None, file_len })
}

/// Truncates a segment that is not the newest at its end, and writes its footer.
fn finish(dir: &dyn Dir, live: &Live) -> Result<()> {
    let segment = &live.segment;
    if segment.state.read().footed {
        return Ok(());
    }
    let file = dir.open(&segment.name(), Open::write())?;
    let end = segment.state.read().end;
    if live.file_len > u64::from(end) {
        file.set_len(u64::from(end))?;
        file.sync_data()?;
    }
    match write_footer(&*file, segment) {
        // The footer is optional.
        Err(error) if error.is_no_space() => Ok(()),
        end => end.map(drop),
    }
}
