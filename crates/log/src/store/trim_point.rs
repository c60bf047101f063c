//! The lower end of what may be read.

use parking_lot::RwLock;

use crate::store::segment_table::SegmentTable;

/// Records up to `seq` were dropped. A reader at or behind `position` has missed none of the rest.
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

    /// Where the records above a number begin: at the start of the log, or behind the unit
    /// boundary below it.
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
        // One byte past the unit's start: a reader that stands at the start has not read the
        // records below the floor.
        let base = segment.header.base;
        let inside = || base + u64::from(segment.unit_before(seq.saturating_add(1))) + 1;
        let position = if seq <= segment.header.prev_seq { base } else { inside() };
        Trim { seq, position }
    }

    pub(crate) fn low(&self) -> Trim {
        *self.0.read()
    }

    /// Raises the floor; it never goes down.
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
