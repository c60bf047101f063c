//! Opening a log: scan the directory, classify what it holds, and make the result durable before
//! any append. `verify` and `repair` use the same [`scan`], which is the only place that says what
//! is valid, torn or corrupt.
//!
//! There are three outcomes. The log is **clean**: it was closed cleanly, and ends where the
//! manifest says. It has a **torn tail** from a crash: valid units are kept, the rest is cut. It
//! is **corrupt**: durable bytes are not what was written.
//!
//! A log that was closed cleanly has the footer of its newest segment in the manifest. Then only
//! the last units of that segment are read, and have to end as the manifest says. Without that
//! footer, or if anything does not match, the segment is read whole. The footer is in the same
//! sealed file as the clean end, so one cannot outlive the other.
//!
//! A durable lower bound separates a torn tail from corruption. A unit records how far the log was
//! durable when the unit was submitted. So do a footer, a segment header, the watermark page and
//! the clean end in the manifest. Suppose the valid units end at record *n*. If no valid durable
//! lower bound is above *n*, nothing after *n* was known to be durable. A crash may leave any
//! subset of such units. If a bound is above *n*, durable records are missing: that is corruption.
//! A bound is a sequence number, not a position, because recovery moves the last records.
//!
//! # The crash argument
//!
//! [`scan_dir()`] only reads. [`finalize()`] then changes the directory in this order, each step
//! durable before the next:
//!
//! 1. The manifest gets the next session and loses the clean end. (After a crash here, the next
//!    opening finds a tail without a clean end and starts over.)
//! 2. After a clean close nothing else changes. The log continues after its last unit, in bytes
//!    that were never written. Otherwise the records above the highest durable lower bound are
//!    copied into a new segment, with a number that no file had. The new segment is written to a
//!    temporary file, synced and renamed, and the directory is synced.
//!
//!    The new header names the previous segment and the position where that ends. This header is
//!    the cut: anything after that position is dead, whichever segment number it has. Records at or
//!    below the bound were durable and stay in place. Records above it may have been only in the
//!    page cache, and are not trusted until their copy is synced. (After a crash before the rename
//!    the next opening removes the temporary file and starts over. After a crash that follows the
//!    rename, it finds the new segment as the newest.)
//!
//!    Then the manifest records that the copy is durable. (After a crash before that, the header of
//!    the new segment records it.)
//! 3. Only now the old tail is removed: dead segments are unlinked, and the cut segment is
//!    truncated at the cut.
//!
//! A full disk changes only where the copies get their space from; see [`copy_tail`].
//!
//! So a position in a segment file is written in one life only. The sole exception is continuing
//! after a clean close, where nothing follows the end. No dead unit can follow a new one and be
//! taken for its successor.

mod copy_tail;
mod cut_tail;
mod finalize;
mod live;
mod newer;
mod outcome;
mod range_sums;
pub(crate) mod repair;
mod rewrite;
pub(crate) mod salvage;
mod scan;

pub(crate) use copy_tail::room_for;
pub(crate) use finalize::{RecoveredLog, create, finalize};
pub(crate) use live::scan_dir;
pub(crate) use newer::{explained, intact};
pub use outcome::{PriorShutdown, ReadProgress, Recovery, TruncatedTail};
pub(crate) use rewrite::{Packing, Rewriter};
pub(crate) use scan::{read_footed, read_segment_header};
