//! The owner of the records of a log: the component that knows which are live.

use std::time::Duration;

use super::plan;
use crate::base::error::Error;
use crate::base::position::Seq;
use crate::base::purpose::Purpose;
use crate::read::batch::Record;
use crate::write::ticket::Ticket;

/// The number of bytes copied between two calls of [`Owner::pace`].
pub const COPY_BATCH_BYTES: u64 = 256 << 10;
/// About the most bytes that one pass copies.
pub const COPY_BYTES_MAX: u64 = 64 << 20;
/// The most sequence numbers of live records kept in memory at a time.
pub const LIVE_NUMBERS_MAX: usize = 1 << 19;

/// The size of a record with a payload of this length in a segment, in bytes. Excludes the padding
/// of whole commit units.
pub fn stored_size(payload: usize) -> u64 {
    (u64::from(crate::format::record::RECORD_HEADER) + payload as u64).next_multiple_of(8)
}

/// A record that its owner still needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Live {
    /// Its sequence number.
    pub seq: Seq,
    /// About its size in the log, in bytes; see [`stored_size`]. Never 0.
    pub bytes: u64,
    /// [`Owner::before_drop`] rewrites it, so it is not copied: a part of a checkpoint.
    pub rewritten: bool,
}

impl Live {
    /// A record that is copied.
    pub const fn copied(seq: Seq, bytes: u64) -> Self {
        Self { seq, bytes, rewritten: false }
    }

    /// A record that [`Owner::before_drop`] rewrites.
    pub const fn rewritten(seq: Seq, bytes: u64) -> Self {
        Self { seq, bytes, rewritten: true }
    }
}

/// A component with an index of the records of a log.
///
/// Any method may end the pass with an error. No record is lost by that.
pub trait Owner {
    /// The error type of the component.
    type Error: From<Error>;
    /// The key under which the index names a record, such as a slot.
    type Key;
    /// Whether copies make larger what [`Owner::before_drop`] writes. Then segments are freed on a
    /// full disk only where half of them is dead, as elsewhere.
    const CHECKPOINT_GROWS: bool;

    /// Returns when every append that began before this call is in the index, or has failed.
    ///
    /// # Errors
    /// Ends the pass.
    fn barrier(&self) -> Result<(), Self::Error>;

    /// Visits every live record, in any order. A record that is live throughout the call is
    /// visited. A record whose state changes meanwhile may or may not be.
    ///
    /// # Errors
    /// Ends the pass.
    fn each_live(&self, visit: &mut dyn FnMut(Live)) -> Result<(), Self::Error>;

    /// Appends the record again for this purpose, under the lock of its key, if the index still
    /// names it; `None` if not. The copy must have the same effect on a replay.
    /// [`ComponentLog`](crate::component::ComponentLog) has the methods for that.
    ///
    /// # Errors
    /// Ends the pass.
    fn append_again(
        &self,
        record: &Record<'_>,
        purpose: Purpose,
    ) -> Result<Option<(Self::Key, Ticket)>, Self::Error>;

    /// About how many bytes [`Owner::before_drop`] would append now, besides the records that
    /// [`Owner::each_live`] visits as rewritten. Copies leave as much of the reserve.
    fn bytes_before_drop(&self) -> u64 {
        0
    }

    /// Whether the cause is [`Error::NoSpace`].
    fn is_no_space(error: &Self::Error) -> bool;

    /// Reports that the copy is durable. The index must name it now, if it still names the
    /// original.
    ///
    /// # Errors
    /// Ends the pass.
    fn moved(&self, key: Self::Key, from: Seq, to: Seq) -> Result<(), Self::Error>;

    /// Makes durable everything that an opening would look for before `cut`, except the records
    /// that were copied.
    ///
    /// # Errors
    /// Ends the pass.
    fn before_drop(&self, cut: Seq) -> Result<(), Self::Error>;

    /// Reports how long a part of the work took. A background pass pauses here. It returns an error
    /// when the component is being closed.
    ///
    /// # Errors
    /// Ends the pass.
    fn pace(&self, took: Duration) -> Result<(), Self::Error>;
}

/// The result of a pass, or the sum of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Reclaimed {
    /// Segments dropped.
    pub segments: u64,
    /// Bytes in the dropped segments.
    pub bytes_freed: u64,
    /// Live records that were appended again.
    pub records_copied: u64,
    /// Bytes of these in the log. Excludes what [`Owner::before_drop`] wrote.
    pub bytes_copied: u64,
}

impl Reclaimed {
    /// About the bytes that are free now and were not before. Excludes what
    /// [`Owner::before_drop`] wrote.
    pub fn gained(&self) -> u64 {
        let copies = match self.bytes_copied {
            0 => 0,
            copied => plan::space_of_copies(copied, self.segments),
        };
        self.bytes_freed.saturating_sub(copies)
    }
}

impl std::ops::AddAssign for Reclaimed {
    fn add_assign(&mut self, other: Self) {
        self.segments += other.segments;
        self.bytes_freed += other.bytes_freed;
        self.records_copied += other.records_copied;
        self.bytes_copied += other.bytes_copied;
    }
}
