//! Rewrites a corrupt segment, with gaps in place of its corrupt units.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use esker_disk::{AlignedBuf, Dir, File, OpenMode, write_all_at};

use super::report::QuarantinedRange;
use crate::base::error::{Error, Result, corruption_at};
use crate::base::log_end::Mark;
use crate::base::options::OnCorruption;
use crate::base::position::Seq;
use crate::base::read_options::ReadOptions;
use crate::format::decode::check_unit;
use crate::format::{BLOCK_BYTES, Salt, SegmentHeader, UnitHeader, UnitKind};
use crate::recovery::outcome::ReadProgress;
use crate::recovery::scan::{
    ClassifiedLog, ExaminedSegment, ScanMode, SegmentRange, ValidRun, cut_off, scan,
};
use crate::recovery::{Packing, Rewriter, room_for};
use crate::store::manifest::Manifest;
use crate::store::paths;
use crate::store::sealed_file;
use crate::store::segment_reader::{ReadErrors, SegmentReader};
use crate::store::segment_scan::{Density, ValidUnit};
use crate::store::watermark_page::{PageReader, StoredWatermark, WatermarkPage};

/// The number of times that the log is examined and repaired at most.
const ROUNDS_MAX: usize = 4;
/// The most corrupt bytes copied at once.
const COPY_BYTES_MAX: usize = 1 << 20;

/// Reads a log as a repair does: all of it.
pub(super) fn scan_all(
    dir: &dyn Dir,
    manifest: &Manifest,
    page: Option<StoredWatermark>,
    progress: &mut dyn FnMut(ReadProgress),
) -> Result<ClassifiedLog> {
    // Blocks that cannot be read are corrupt.
    let read_errors = ReadErrors::default();
    let how = ScanMode { direct: false, opening: None, read_errors: &read_errors };
    Ok(scan(dir, manifest, page, &how, progress)?.1)
}

/// Repairs every segment of a log, and returns the resulting manifest. Adds to `quarantined` what
/// each segment lost once it has its name, so that it is complete also after an error.
///
/// A rewritten segment may show that another is corrupt, or was of an earlier time. So the repair
/// is repeated until the log is valid, at most [`ROUNDS_MAX`] times.
///
/// # Errors
/// `Corrupted` if corruption is left after that.
pub(crate) fn repair_segments(
    dir: &dyn Dir,
    options: &ReadOptions,
    on_corruption: OnCorruption,
    mut manifest: Manifest,
    quarantined: &mut Vec<QuarantinedRange>,
    progress: &mut dyn FnMut(ReadProgress),
) -> Result<Manifest> {
    for round in 0.. {
        let found = scan_all(dir, &manifest, PageReader::stored_in(dir)?, progress)?;
        let manifest_path = dir.path_of(paths::MANIFEST);
        let corruption = found.corruption(&found.manifest, &manifest_path).into_iter().next();
        match corruption {
            Some(corruption) if round == ROUNDS_MAX => return Err(Error::Corrupted(corruption)),
            Some(_) => {
                manifest = repair_once(dir, options, on_corruption, found, quarantined)?;
            }
            None => break,
        }
    }
    Ok(manifest)
}

fn repair_once(
    dir: &dyn Dir,
    options: &ReadOptions,
    on_corruption: OnCorruption,
    mut found: ClassifiedLog,
    quarantined: &mut Vec<QuarantinedRange>,
) -> Result<Manifest> {
    let mut manifest = found.manifest;
    add_lost_end(&mut found);
    // Durable before anything changes: a crash may end the repair after any segment. A copy, too,
    // shares with its original only what comes before.
    if let Some(kept) = found.segments.iter().find_map(ExaminedSegment::before_corruption) {
        manifest.begin_lineage(kept);
        manifest.write(dir)?;
    }
    if on_corruption == OnCorruption::Truncate {
        truncate(dir, options, &mut manifest, &found, quarantined)?;
    } else {
        let mut before: Option<(u64, u32)> = None;
        for segment in &found.segments {
            let chain = match segment.header {
                Some(header) if !segment.is_corrupt() => segment.chain_after(&header),
                _ => rebuild(dir, &manifest, segment, before, found.durable_bound, quarantined)?,
            };
            before = Some((segment.number, chain));
        }
    }
    // Whatever was corrupt, the log does not end any more as it was closed.
    manifest.clean = None;
    manifest.write(dir)?;
    Ok(manifest)
}

/// Adds a gap at the end for durable records that are missing after the last unit.
fn add_lost_end(found: &mut ClassifiedLog) {
    let (durable_bound, last) = (found.durable_bound, found.last);
    if durable_bound > last
        && let Some(newest) = found.segments.last_mut()
    {
        let from = newest.ranges_end();
        let decode_error = crate::format::DecodeError::Blank;
        let to = newest.written_to.max(from + BLOCK_BYTES);
        newest.ranges.push(SegmentRange::Corrupt { from, to, after: last, decode_error });
    }
}

/// Rewrites one segment. Returns the chain value that the next segment must continue.
fn rebuild(
    dir: &dyn Dir,
    manifest: &Manifest,
    segment: &ExaminedSegment,
    before: Option<(u64, u32)>,
    durable_bound: u64,
    quarantined: &mut Vec<QuarantinedRange>,
) -> Result<u32> {
    let header = segment.valid_header().unwrap_or_else(|| new_header(manifest, segment, before));
    let salt = Salt::new(manifest.log, segment.number);
    let name = segment.name();
    let temporary = paths::temporary(&name);
    let new = dir.open(&temporary, OpenMode::create())?;
    new.set_len(0)?;
    let (block, mut chain) = header.to_block();
    write_aligned(&*new, &block, 0)?;
    let mut rewrite = Rewrite { dir, segment, salt, new, lost: Vec::new() };
    if segment.valid_header().is_none() {
        rewrite.quarantine(0..BLOCK_BYTES, segment.prev_seq, segment.prev_seq)?;
    }
    let mut image = segment.file.clone().map(SegmentReader::new).transpose()?;
    let mut session = header.session;
    let ranges = segment.ranges_by_unit(salt)?;
    for (n, range) in ranges.iter().enumerate() {
        match range {
            SegmentRange::Valid(ValidRun { first: unit, .. }) => {
                rewrite.copy_unit(&mut image, unit)?;
                chain = unit.chain;
                session = unit.header.session;
            }
            SegmentRange::Corrupt { from, to, after, .. } => {
                let (next_chain, last_seq) = match ranges.get(n + 1) {
                    Some(SegmentRange::Valid(next)) => {
                        (next.first.header.chain, next.first.header.prev_seq)
                    }
                    _ => segment.next.unwrap_or((0, durable_bound)),
                };
                rewrite.quarantine(*from..*to, *after, last_seq)?;
                let gap = UnitHeader {
                    kind: UnitKind::Gap,
                    used: to - from,
                    records: 0,
                    digest: u64::from(next_chain),
                    prev_seq: *after,
                    last_seq: last_seq.max(*after),
                    durable_bound: last_seq.max(*after),
                    session,
                    time_ms: header.time_ms,
                    chain,
                };
                rewrite.write_gap(&gap, *from)?;
                chain = next_chain;
            }
        }
    }
    let cut = match &segment.file {
        Some(file) => cut_off(file, salt, segment.ranges_end())?,
        None => None,
    };
    if let Some(cut) = cut {
        rewrite.quarantine(cut, segment.accounted_to(), segment.accounted_to())?;
    }
    let Rewrite { new, mut lost, .. } = rewrite;
    // The length matches the pieces, so that a gap at the end is complete.
    new.set_len(u64::from(segment.ranges_end()))?;
    new.sync_data()?;
    sealed_file::publish(dir, &temporary, &name)?;
    quarantined.append(&mut lost);
    Ok(chain)
}

/// A corrupt segment, and the file that takes its place.
struct Rewrite<'a> {
    dir: &'a dyn Dir,
    segment: &'a ExaminedSegment,
    salt: Salt,
    new: Arc<dyn File>,
    lost: Vec<QuarantinedRange>,
}

impl Rewrite<'_> {
    /// Keeps corrupt bytes of the segment, which had the records above `from` up to `to`.
    fn quarantine(&mut self, range: Range<u32>, from: u64, to: u64) -> Result<()> {
        let offset = u64::from(range.start);
        let len = u64::from(range.end - range.start);
        let (kept_in, bytes) = keep(self.dir, self.segment, offset, len)?;
        let file = self.segment.path.clone();
        self.lost.push(QuarantinedRange {
            file,
            offset,
            bytes,
            kept_in,
            from: Seq(from),
            to: Seq(to),
        });
        Ok(())
    }

    fn copy_unit(&self, image: &mut Option<SegmentReader<'_>>, unit: &ValidUnit) -> Result<()> {
        if unit.header.kind == UnitKind::Gap {
            return self.write_gap(&unit.header, unit.offset);
        }
        let Some(image) = image else { return Ok(()) };
        let bytes = image.at(u64::from(unit.offset), unit.header.span() as usize)?;
        check_unit(bytes, self.salt, unit.offset, |_| {}).map_err(|decode_error| {
            let (offset, after) = (unit.offset.into(), unit.header.prev_seq);
            corruption_at(&self.segment.path, offset, after, decode_error)
        })?;
        write_all_at(&*self.new, bytes, u64::from(unit.offset))?;
        Ok(())
    }

    fn write_gap(&self, gap: &UnitHeader, offset: u32) -> Result<()> {
        let (header_bytes, _) = gap.to_bytes(self.salt, offset);
        write_aligned(&*self.new, &header_bytes, offset)
    }
}

/// The original header, if the first unit proves it, or one that leads to that unit.
fn new_header(
    manifest: &Manifest,
    segment: &ExaminedSegment,
    before: Option<(u64, u32)>,
) -> SegmentHeader {
    let first = segment.ranges.iter().find_map(|range| match range {
        SegmentRange::Valid(run) => Some(run.first.header),
        SegmentRange::Corrupt { .. } => None,
    });
    let (prev_segment, chain) = before.unwrap_or((0, 0));
    let mut header = SegmentHeader {
        log: manifest.log,
        segment: segment.number,
        session: first.map_or(0, |first| first.session),
        base: segment.base,
        prev_segment,
        prev_seq: segment.prev_seq,
        durable_bound: first.map_or(0, |first| first.durable_bound),
        time_ms: first.map_or(0, |first| first.time_ms),
        chain,
        recovered: false,
        first_chain: 0,
    };
    let leads = matches!(segment.ranges.first(), Some(SegmentRange::Valid(_)));
    if let Some(first) = first.filter(|_| leads) {
        for recovered in [false, true] {
            header.recovered = recovered;
            if header.to_block().1 == first.chain {
                return header;
            }
        }
        header.first_chain = first.chain;
    }
    header.recovered = false;
    header
}

/// Copies corrupt bytes under `quarantine/`, durably, unless an earlier attempt did. Returns the
/// file, and how many bytes of these the segment has; `None` where it has none.
fn keep(
    dir: &dyn Dir,
    segment: &ExaminedSegment,
    offset: u64,
    bytes: u64,
) -> Result<(Option<PathBuf>, u64)> {
    // The directory's existence records that the log was repaired, even if no bytes are kept.
    let quarantine = dir.create_dir(paths::QUARANTINE)?;
    let Some(file) = &segment.file else { return Ok((None, 0)) };
    let bytes = file.len()?.saturating_sub(offset).min(bytes);
    if bytes == 0 {
        return Ok((None, 0));
    }
    let taken = quarantine.list()?;
    let names = (0u32..).map(|n| match n {
        0 => format!("{:020}-{offset}.bytes", segment.number),
        n => format!("{:020}-{offset}-{n}.bytes", segment.number),
    });
    for name in names.take(taken.len() + 1) {
        if taken.contains(&name) {
            // A repair that found the disk full, or was ended by a crash, has copied them already.
            let earlier = quarantine.open(&name, OpenMode::read())?;
            if !is_copy_of(&earlier, file, offset, bytes)? {
                continue;
            }
            earlier.sync_data()?;
            quarantine.sync()?;
        } else {
            let temporary = paths::temporary(&name);
            let kept = quarantine.open(&temporary, OpenMode::create())?;
            kept.set_len(0)?;
            let mut image = SegmentReader::new(Arc::clone(file))?;
            for at in (0..bytes).step_by(COPY_BYTES_MAX) {
                write_all_at(&*kept, image.at(offset + at, piece(bytes - at))?, at)?;
            }
            kept.sync_data()?;
            sealed_file::publish(&*quarantine, &temporary, &name)?;
        }
        return Ok((Some(quarantine.path_of(&name)), bytes));
    }
    Ok((None, 0))
}

/// Whether a file consists of these bytes of a segment.
fn is_copy_of(
    copy: &Arc<dyn File>,
    segment: &Arc<dyn File>,
    offset: u64,
    bytes: u64,
) -> Result<bool> {
    if copy.len()? != bytes {
        return Ok(false);
    }
    let mut copy = SegmentReader::new(Arc::clone(copy))?;
    let mut image = SegmentReader::new(Arc::clone(segment))?;
    for at in (0..bytes).step_by(COPY_BYTES_MAX) {
        if copy.at(at, piece(bytes - at))? != image.at(offset + at, piece(bytes - at))? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The bytes of the next piece to copy or compare.
fn piece(left: u64) -> usize {
    left.min(COPY_BYTES_MAX as u64) as usize
}

/// Cuts the log at its first corruption. Everything after the cut is quarantined.
fn truncate(
    dir: &dyn Dir,
    options: &ReadOptions,
    manifest: &mut Manifest,
    found: &ClassifiedLog,
    quarantined: &mut Vec<QuarantinedRange>,
) -> Result<()> {
    let Some(first) = found.segments.iter().position(ExaminedSegment::is_corrupt) else {
        return Ok(());
    };
    let corrupt = &found.segments[first];
    let kept = corrupt.valid_start(Salt::new(manifest.log, corrupt.number))?;
    let last = kept.last().map_or(corrupt.prev_seq, |unit| unit.header.last_seq);
    let cut = match kept.last() {
        Some(unit) => unit.end(),
        None if corrupt.valid_header().is_some() => BLOCK_BYTES,
        None => 0,
    };
    for segment in found.segments[first..].iter().chain(&found.dead) {
        let from = if segment.number == corrupt.number { u64::from(cut) } else { 0 };
        let len = segment.file.as_ref().map_or(Ok(0), |file| file.len())?;
        let (kept_in, bytes) = keep(dir, segment, from, len.saturating_sub(from))?;
        quarantined.push(QuarantinedRange {
            file: segment.path.clone(),
            offset: from,
            bytes,
            kept_in,
            from: Seq(last),
            to: Seq(found.durable_bound.max(found.last)),
        });
    }
    // No durable lower bound may still cover what is given up.
    // Records left below the trim point stay dropped. New sequence numbers continue above it.
    manifest.trim_seq = manifest.trim_seq.min(last);
    let mut page = WatermarkPage::open(dir, manifest.log, manifest.session, manifest.trim_seq)?;
    page.store_in_both_slots(Mark { unit: 0, position: 0, seq: last, segment: 0 })?;
    manifest.clean = None;
    manifest.durable = last;
    manifest.write(dir)?;
    for segment in found.segments[first + 1..].iter().chain(&found.dead).rev() {
        if segment.file.is_some() {
            dir.unlink(&segment.name())?;
        }
    }
    dir.sync()?;
    match corrupt.valid_header() {
        Some(header) => rewrite_units(dir, options, corrupt, header, &kept)?,
        None => {
            if corrupt.file.is_some() {
                dir.unlink(&corrupt.name())?;
                dir.sync()?;
            }
            if first == 0 {
                // Nothing is left: the log restarts after the numbers that it had.
                manifest.trim_segment = 0;
                manifest.trim_seq = last;
            }
        }
    }
    Ok(())
}

/// Syncs all segments, then stores their last record in the watermark page and syncs it. The page
/// may have been lost with the manifest, and readers in other processes read only up to it.
pub(super) fn store_watermark(
    dir: &dyn Dir,
    manifest: &Manifest,
    progress: &mut dyn FnMut(ReadProgress),
) -> Result<()> {
    let found = scan_all(dir, manifest, None, progress)?;
    for segment in found.segments.iter().filter(|segment| segment.file.is_some()) {
        dir.open(&segment.name(), OpenMode::write())?.sync_data()?;
    }
    if let Some(newest) = found.segments.last() {
        let position = newest.base + u64::from(newest.ranges_end());
        let mut page = WatermarkPage::open(dir, manifest.log, manifest.session, manifest.trim_seq)?;
        page.store_durably(Mark { unit: 0, position, seq: found.last, segment: newest.number })?;
        dir.sync()?;
    }
    Ok(())
}

/// Rewrites the records of these units to a segment that replaces their own. The old units carry
/// durable lower bounds for records that are gone.
fn rewrite_units(
    dir: &dyn Dir,
    options: &ReadOptions,
    segment: &ExaminedSegment,
    header: SegmentHeader,
    units: &[ValidUnit],
) -> Result<()> {
    let durable_bound = units.last().map_or(header.prev_seq, |unit| unit.header.last_seq);
    let header = SegmentHeader { durable_bound, recovered: true, first_chain: 0, ..header };
    let packing = Packing::OneTime;
    let room = room_for(units.iter(), packing);
    let mut writer = Rewriter::new(dir, header, Density::from_options(options), packing, room)?;
    if let Some(file) = &segment.file {
        writer.copy(file, header.salt(), &segment.path, units, |_| {})?;
    }
    writer.finish()?;
    Ok(())
}

/// Writes bytes at the start of a block and zeros to the rest of it.
fn write_aligned(file: &dyn File, bytes: &[u8], offset: u32) -> Result<()> {
    let mut block = AlignedBuf::new(BLOCK_BYTES as usize);
    block[..bytes.len()].copy_from_slice(bytes);
    Ok(write_all_at(file, &block, u64::from(offset))?)
}
