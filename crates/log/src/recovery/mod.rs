//! Opening a log: what is there, what of it counts, and making that durable before anything new.
//!
//! Three answers are possible. The log is **whole**: it was closed cleanly, and ends where the
//! manifest says. It has a **tail** that a crash left: what is sound is kept, what is torn is cut.
//! It is **damaged**: bytes that were durable are not what was written.
//!
//! The difference between a torn tail and damage is a claim. A unit says how far the log was
//! durable when it was submitted; so do a footer, a segment's header, the mark page and the clean
//! end. When units stop making sense behind record *n*, and nothing that is sound claims more than
//! *n*, then everything behind was never durable: a crash may leave such units in any subset. When
//! something claims more, durable records are missing: damage.
//!
//! # The crash argument
//!
//! [`scan()`] only reads. [`finalize()`] then changes the directory in this order, each step durable
//! before the next:
//!
//! 1. The manifest gets the next session and loses the clean end. (A crash here: the next opening
//!    finds a tail without a clean end and does all this again.)
//! 2. After a clean close that is all: the log goes on behind its last unit, where nothing was ever
//!    written. Otherwise the records above the highest claim are copied into a new segment, under a
//!    number that no file had: written aside, synced, renamed, directory synced. Its header names
//!    the segment before it and the place where that ends. This header is the cut: whatever stands
//!    behind that place is dead, whichever number it has. What is below the claim was durable and
//!    stays where it is; what was above may have been in the page cache alone, and is not trusted
//!    until its copy is synced. (A crash before the rename: as before, the file aside is removed. A
//!    crash behind it: the next opening finds the new segment as the newest.) Then the manifest says
//!    that the copy is durable. (A crash before that: the header of the new segment says it.)
//! 3. Only now the old tail goes: dead segments are removed, and the cut one ends at the cut.
//!
//! So a position in a segment file is written in one life only: the sole exception, going on after
//! a clean close, has nothing behind the end. No dead unit can ever lie behind a new one and be
//! taken for its successor.

mod classify;
mod finalize;
mod findings;
mod outcome;
pub(crate) mod repair;
mod rewrite;
mod scan_dir;

pub(crate) use classify::{
    MISSING, begins_with, is_current_session, is_damage, is_front_missing, never_began,
};
pub(crate) use finalize::{create, finalize, room_for};
pub use outcome::{PriorShutdown, Recovery, TruncatedTail};
pub(crate) use rewrite::Rewriter;
pub(crate) use scan_dir::{density, read_footed, read_head, scan_dir};
