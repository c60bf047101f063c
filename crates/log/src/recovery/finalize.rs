//! Makes the result of a scan durable and cuts the dead tail. See the crash argument in the parent
//! module.

use std::sync::Arc;

use esker_disk::Dir;
use esker_disk::planted::{Bug, is_planted};

use super::copy_tail::copy_tail;
use super::cut_tail::{cut_after_clean_end, finish_segment};
use super::live::{DirScan, LiveSegment};
use super::outcome::{PriorShutdown, Recovery};
use crate::base::error::Result;
use crate::base::error::corruption_at;
use crate::base::log_end::{LogEnd, Mark};
use crate::base::options::Retention;
use crate::base::position::Seq;
use crate::base::read_options::ReadOptions;
use crate::format::{BLOCK_BYTES, LogId, NUMBER_MAX};
use crate::store::manifest::Manifest;
use crate::store::paths;
use crate::store::segment_table::Segment;
use crate::store::watermark_page::WatermarkPage;

/// A log that is ready for appends.
#[derive(Debug)]
pub(crate) struct RecoveredLog {
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
    mut scan: DirScan,
    retention: Retention,
    time_ms: u64,
) -> Result<RecoveredLog> {
    let mut manifest = scan.manifest;
    refuse_last_number(dir, &scan)?;
    let clean = manifest.clean.take();
    unlink_leftovers(dir, &scan)?;
    let prior_retention = manifest.retention;
    begin_session(&mut manifest, &scan, retention);
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
        prior_retention,
        last: Seq::ZERO,
        truncated_tail: scan.cut.clone(),
        copied: 0,
    };
    let mut live = std::mem::take(&mut scan.live);
    if clean.is_some() {
        recovery.truncated_tail = cut_after_clean_end(dir, &live)?;
        unlink_segments(dir, &scan.dead)?;
    } else {
        recovery.copied =
            copy_to_new_segment(dir, options, &scan, &mut manifest, &mut live, time_ms)?;
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
    Ok(RecoveredLog {
        manifest,
        start: LogEnd {
            log: manifest.log,
            segment: number,
            base,
            offset: match &scan.cut {
                Some(_) if is_planted(Bug::CursorAtOldEnd) => state.end + BLOCK_BYTES,
                _ => state.end,
            },
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

fn refuse_last_number(dir: &dyn Dir, scan: &DirScan) -> Result<()> {
    if scan.highest_number.max(scan.manifest.session) >= NUMBER_MAX - 1 {
        // The next segment and session would have numbers that no reader accepts.
        return Err(corruption_at(
            &dir.path_of(paths::MANIFEST),
            0,
            0,
            "the number of a segment or session is the last possible one",
        ));
    }
    Ok(())
}

/// Removes files that have nothing of the log.
fn unlink_leftovers(dir: &dyn Dir, scan: &DirScan) -> Result<()> {
    for name in &scan.temporary {
        match dir.unlink(name) {
            // The process that made it has removed it meanwhile.
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => {}
            unlinked => unlinked?,
        }
    }
    // Blank segments hold nothing, and may be what fills the disk.
    unlink_segments(dir, &scan.blank)
}

fn unlink_segments<'a>(dir: &dyn Dir, numbers: impl IntoIterator<Item = &'a u64>) -> Result<()> {
    for number in numbers {
        dir.unlink(&paths::segment(*number))?;
    }
    Ok(())
}

/// Makes `manifest` that of the next session.
fn begin_session(manifest: &mut Manifest, scan: &DirScan, retention: Retention) {
    manifest.session += 1;
    if manifest.is_copy {
        manifest.begin_lineage(scan.durable_bound);
    }
    if retention.is_set() {
        // Otherwise a close of a session that appended clears it.
        manifest.retention = retention;
    }
    if let Some(oldest) = scan.live.first()
        && manifest.trim_segment > 0
    {
        // The preceding segments may have left the log before a manifest recorded it.
        manifest.trim_segment = oldest.segment.number();
    }
    // The clean end is dropped, but its durable lower bound must be kept.
    manifest.durable = manifest.durable.max(scan.durable_bound);
}

/// Continues the log in a new segment after anything but a clean close: copies the tail there, and
/// finishes the preceding segments. Returns the number of copied records.
fn copy_to_new_segment(
    dir: &dyn Dir,
    options: &ReadOptions,
    scan: &DirScan,
    manifest: &mut Manifest,
    live: &mut Vec<LiveSegment>,
    time_ms: u64,
) -> Result<u64> {
    let number = scan.highest_number + 1;
    let new = copy_tail(dir, options, manifest, live, number, scan.durable_bound, time_ms)?;
    let last = new.live.segment.state.read().last_seq;
    if manifest.trim_segment == 0 || manifest.durable < last {
        if manifest.trim_segment == 0 {
            manifest.trim_segment = live.first().map_or(number, |live| live.segment.number());
        }
        // The copy is durable now. Until the next commit only its own segment records that.
        manifest.durable = last;
        manifest.write(dir)?;
    }
    unlink_segments(dir, scan.dead.iter().chain(&new.dead))?;
    for live in &*live {
        finish_segment(dir, live)?;
    }
    live.push(new.live);
    Ok(new.copied)
}
