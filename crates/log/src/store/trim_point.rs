//! The trim point: the lower end of what may be read.

use parking_lot::RwLock;

use crate::store::segment_table::SegmentTable;

/// Records up to `seq` were dropped. A reader at or after `position` has missed none of the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Trim {
    pub(crate) seq: u64,
    pub(crate) position: u64,
}

#[derive(Debug)]
pub(crate) struct TrimPoint(RwLock<Trim>);

impl TrimPoint {
    pub(crate) fn new(segments: &SegmentTable, seq: u64) -> Self {
        Self(RwLock::new(Self::locate(segments, seq)))
    }

    /// Locates the records above a sequence number: at the start of the log, or after the unit
    /// boundary below them.
    pub(crate) fn locate(segments: &SegmentTable, seq: u64) -> Trim {
        let oldest = segments.oldest();
        let (first, base) =
            oldest.map_or((0, 0), |oldest| (oldest.header.prev_seq, oldest.header.base));
        if seq <= first {
            return Trim { seq: first, position: base };
        }
        let Some(segment) = segments.of_seq(seq.saturating_add(1)) else {
            return Trim { seq, position: base };
        };
        // One byte past the unit's start: a reader at the start has not read the records below the
        // trim point.
        let base = segment.header.base;
        let inside = || base + u64::from(segment.unit_before(seq.saturating_add(1))) + 1;
        let position = if seq <= segment.header.prev_seq { base } else { inside() };
        Trim { seq, position }
    }

    pub(crate) fn low(&self) -> Trim {
        *self.0.read()
    }

    /// Raises the trim point. It is never lowered.
    pub(crate) fn raise(&self, low: Trim) {
        let mut current = self.0.write();
        if low.seq > current.seq || low.position > current.position {
            *current = Trim {
                seq: low.seq.max(current.seq),
                position: low.position.max(current.position),
            };
        }
    }
}
