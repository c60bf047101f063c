//! Results of a directory scan.

use std::collections::BTreeMap;
use std::sync::Arc;

use esker_disk::{Dir, File};

use super::outcome::TruncatedTail;
use crate::base::error::Corruption;
use crate::base::read_options::ReadOptions;
use crate::format::segment::HeaderError;
use crate::format::{BLOCK, SegmentHeader};
use crate::store::manifest::Manifest;
use crate::store::segment_reader::ReadErrors;
use crate::store::segment_scan::ValidUnit;
use crate::store::segment_table::Segment;

/// A log as found in its files.
#[derive(Debug)]
pub(crate) struct DirScan {
    pub(crate) manifest: Manifest,
    /// The live segments, oldest first.
    pub(crate) live: Vec<Live>,
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
                return (header.base + u64::from(BLOCK), header.prev_seq, unproven);
            }
        }
        (0, 0, unproven)
    }
}

#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) segment: Arc<Segment>,
    /// Its units, if the segment was scanned; `None` if its footer was used.
    pub(crate) units: Option<Vec<ValidUnit>>,
    pub(crate) file_len: u64,
}

pub(super) type ParsedHeader = std::result::Result<(SegmentHeader, u32), HeaderError>;

pub(super) struct DirScanner<'a> {
    pub(super) dir: &'a dyn Dir,
    pub(super) options: &'a ReadOptions,
    pub(super) direct: bool,
    pub(super) manifest: Manifest,
    pub(super) headers: BTreeMap<u64, (Arc<dyn File>, ParsedHeader)>,
    pub(super) read_errors: ReadErrors,
    /// The segment that the watermark page names.
    pub(super) stored: Option<u64>,
}
