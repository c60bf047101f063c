//! Reading and classifying a log: the one scan of opening, `verify` and `repair`.
//!
//! `files` lists the directory and reads the headers. `live_numbers` finds the segments of the log
//! and where each ends at most; `locate` finds where a segment begins that lost its header.
//! `read_segments` reads them in order: by their `footers` for a quick opening, otherwise each with
//! `split_segment` into the ranges that `examined_segment` has. `classify` decides what that means.
//! It is a pure function of what was read, and the only place that decides.

mod classify;
mod examined_segment;
mod files;
mod footers;
mod live_numbers;
mod locate;
mod number_range;
mod read_segments;
mod split_segment;

use esker_disk::Dir;

use crate::base::error::Result;
use crate::recovery::outcome::ReadProgress;
use crate::store::manifest::Manifest;
use crate::store::watermark_page::{StoredWatermark, refuse_foreign_page};

pub(crate) use classify::ClassifiedLog;
pub(crate) use examined_segment::{ExaminedSegment, RetainedState, SegmentRange, ValidRun};
pub(crate) use files::{Files, ScanMode, read_segment_header};
pub(crate) use footers::read_footed;
pub(crate) use locate::{cut_off, find_footer, known_start};

/// Reads a log with this manifest, and classifies what it finds. `page` is the content of the
/// watermark page in its directory. Changes nothing.
///
/// # Errors
/// `UnsupportedVersion` or `ForeignFile` for files that are not this log's, and disk errors.
/// Corruption is reported in the result.
pub(crate) fn scan(
    dir: &dyn Dir,
    manifest: &Manifest,
    page: Option<StoredWatermark>,
    how: &ScanMode<'_>,
    progress: &mut dyn FnMut(ReadProgress),
) -> Result<(Files, ClassifiedLog)> {
    let mut files = Files::read(dir, manifest, how)?;
    if !files.has_valid_header() {
        refuse_foreign_page(dir, page, manifest.log)?;
    }
    let page = page.filter(|stored| stored.log == manifest.log);
    let manifests = read_segments::Manifests::new(manifest, page);
    let contents = read_segments::read_segments(dir, &mut files, &manifests, page, how, progress)?;
    Ok((files, classify::classify(manifests.now, contents)))
}
