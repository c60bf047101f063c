//! The live segments of a scan: those up to the first corruption, ready to be read.

use std::path::PathBuf;
use std::sync::Arc;

use esker_disk::Dir;
use parking_lot::RwLock;

use super::outcome::TruncatedTail;
use super::scan::{ClassifiedLog, ExaminedSegment, RetainedState, ScanMode, SegmentRange, scan};
use crate::base::error::{Corruption, Result};
use crate::base::read_options::ReadOptions;
use crate::format::{BLOCK_BYTES, UnitKind};
use crate::store::manifest::Manifest;
use crate::store::paths;
use crate::store::segment_reader::ReadErrors;
use crate::store::segment_scan::ValidUnit;
use crate::store::segment_table::{Segment, State};
use crate::store::watermark_page::PageReader;

/// A log as found in its files.
#[derive(Debug)]
pub(crate) struct DirScan {
    pub(crate) manifest: Manifest,
    /// The live segments, oldest first.
    pub(crate) live: Vec<LiveSegment>,
    /// Numbers of segment files that are not live.
    pub(crate) dead: Vec<u64>,
    /// Numbers of dead segment files that never got a header.
    pub(crate) blank: Vec<u64>,
    /// Numbers of spare files.
    pub(crate) spares: Vec<u64>,
    /// Temporary files that were never renamed.
    pub(crate) temporary: Vec<String>,
    pub(crate) highest_number: u64,
    /// The highest durable lower bound: records up to this number were durable at some time.
    pub(crate) durable_bound: u64,
    pub(crate) cut: Option<TruncatedTail>,
    /// The first corruption. `live` then ends before it.
    pub(crate) corruption: Option<Corruption>,
}

impl DirScan {
    /// The highest durable lower bound as a position and a sequence number, and the bytes of valid
    /// units after it.
    pub(crate) fn durable_end(&self) -> (u64, u64, u64) {
        let mut unproven = 0;
        for (n, live) in self.live.iter().enumerate().rev() {
            let header = &live.segment.header;
            let Some(units) = &live.units else {
                return (live.segment.end_position(), live.segment.state.read().last_seq, unproven);
            };
            let known = units.partition_point(|unit| unit.header.last_seq <= self.durable_bound);
            unproven +=
                units[known..].iter().map(|unit| u64::from(unit.header.span())).sum::<u64>();
            if let Some(last) = known.checked_sub(1).map(|last| &units[last]) {
                return (header.base + u64::from(last.end()), last.header.last_seq, unproven);
            }
            if n == 0 {
                return (header.base + u64::from(BLOCK_BYTES), header.prev_seq, unproven);
            }
        }
        (0, 0, unproven)
    }
}

#[derive(Debug)]
pub(crate) struct LiveSegment {
    pub(crate) segment: Arc<Segment>,
    /// Its units, if the segment was scanned; `None` if its footer was used.
    pub(crate) units: Option<Vec<ValidUnit>>,
    pub(crate) file_len: u64,
}

/// Scans the directory of a log with this manifest, for an opening. Reads only.
///
/// # Errors
/// `UnsupportedVersion` or `ForeignFile` for files that are not this log's, and disk errors.
/// Corruption is reported in the result.
pub(crate) fn scan_dir(
    dir: &dyn Dir,
    options: &ReadOptions,
    manifest: Manifest,
    direct: bool,
) -> Result<DirScan> {
    let reader = PageReader::of_any_log(dir)?;
    // Retry once, then ignore the page: a crash may have torn a slot for good.
    let page =
        reader.and_then(|reader| reader.stored().or_else(|_| reader.stored()).ok().flatten());
    let read_errors = ReadErrors::default();
    let how = ScanMode { direct, opening: Some(options), read_errors: &read_errors };
    let (files, found) = scan(dir, &manifest, page, &how, &mut |_| {})?;
    let manifest_path: PathBuf = dir.path_of(paths::MANIFEST);
    let corruption = found.corruption(&found.manifest, &manifest_path).into_iter().next();
    // A crash may leave one unreadable block in the tail that it tore. More blocks, a block where
    // records are missing, or one after a clean close is a device error, which may be transient.
    let (blocks, cause) = read_errors.seen();
    let torn = blocks == 1 && corruption.is_none() && manifest.clean.is_none();
    match cause {
        Some(cause) if !torn => return Err(cause.into()),
        _ => {}
    }
    let (durable_bound, manifest) = (found.durable_bound, found.manifest);
    let cut = found.cut().filter(|_| corruption.is_none() && manifest.clean.is_none());
    let live = live(found)?;
    let numbers: Vec<u64> = live.iter().map(|live| live.segment.number()).collect();
    let (dead, blank) = files.dead(&numbers);
    Ok(DirScan {
        manifest,
        live,
        dead,
        blank,
        spares: files.spares,
        temporary: files.temporary,
        highest_number: files.highest_number,
        durable_bound,
        cut,
        corruption,
    })
}

/// The segments up to the first corruption. Of a segment with a corrupt unit, what is before it.
fn live(found: ClassifiedLog) -> Result<Vec<LiveSegment>> {
    let mut live = Vec::new();
    // A gap in the place of a missing front has no file, and the segments after it are whole.
    for segment in found.segments.into_iter().skip(usize::from(found.is_front_missing)) {
        let is_corrupt = |range: &SegmentRange| matches!(range, SegmentRange::Corrupt { .. });
        let ends_here = segment.ranges.iter().any(is_corrupt);
        let Some(segment) = live_segment(segment, ends_here)? else { break };
        live.push(segment);
        if ends_here {
            break;
        }
    }
    Ok(live)
}

/// `None` without a header.
fn live_segment(segment: ExaminedSegment, is_corrupt: bool) -> Result<Option<LiveSegment>> {
    let (Some(header), Some(file)) = (segment.header, segment.file.clone()) else {
        return Ok(None);
    };
    // An error ends the opening: a segment that is left out counts as dead.
    let file_len = segment.file_len()?;
    let end = segment.valid_end();
    let full = segment.next.is_some() && !is_corrupt;
    let (state, units) = match segment.kept {
        RetainedState::Footer(state) => (state, None),
        RetainedState::Nothing => return Ok(None),
        RetainedState::Units(mut units, mut index, footed) => {
            units.retain(|unit| unit.end() <= end);
            index.retain(|entry| entry.unit < end);
            let last = units.last();
            let state = State {
                end: last.map_or(BLOCK_BYTES, ValidUnit::end),
                last_seq: last.map_or(header.prev_seq, |last| last.header.last_seq),
                chain: last.map_or_else(|| header.to_block().1, |last| last.chain),
                records: units.iter().map(|unit| u64::from(unit.header.records)).sum(),
                payload: Some(units.iter().map(|unit| unit.payload).sum()),
                has_gap: units.iter().any(|unit| unit.header.kind == UnitKind::Gap),
                time_ms: match last {
                    Some(last) if last.header.time_ms > 0 => last.header.time_ms,
                    _ => header.time_ms,
                },
                full,
                footed: footed && full,
                index,
            };
            (state, Some(units))
        }
    };
    let segment = Arc::new(Segment {
        header,
        salt: header.salt(),
        path: segment.path,
        reader: file,
        state: RwLock::new(state),
    });
    Ok(Some(LiveSegment { segment, units, file_len }))
}
