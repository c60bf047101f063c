//! Reclaims space, for components that keep an index of the records of a log.
//!
//! A log drops its oldest segments whole. A record is *live* when the component's index names it.
//! Before a segment is dropped, its live records are appended again at the tail, and the index is
//! moved to the copies. [`Plan`] decides which segments are worth dropping, without any I/O.
//! [`run`] drops them, for any implementation of [`Owner`].
//!
//! # The crash argument
//!
//! One pass takes these steps, in this order:
//!
//! 1. It lists the full segments. Then it waits until every earlier append is in the index
//!    ([`Owner::barrier`]). From here on, a record in those segments that the index does not name
//!    is dead for ever: an index entry never changes to an older record.
//! 2. It reads the live records of the segments in log order. It appends each again if, under the
//!    lock of its key, the index still names it ([`Owner::append_again`]). Otherwise a value that
//!    was overwritten meanwhile would come back.
//! 3. When the copies are durable, each index entry that still names the original is changed to
//!    name the copy ([`Owner::moved`]).
//! 4. Everything accepted so far becomes durable: a dead record is dropped only if the record that
//!    replaced it survives a crash.
//! 5. The owner makes durable everything else that an opening would look for before the cut
//!    ([`Owner::before_drop`]). For an index with checkpoints this is a checkpoint.
//! 6. The log drops its prefix, durably.
//!
//! After a crash before step 6 is durable, all originals are still there, and the copies repeat
//! them. Replaying both must reach the same state. After step 6, the copies are durable (step 3),
//! and so is what replaced the dead records (step 4), and what names the copies (step 5). A crash,
//! an error or a close may end a pass early. Then some copies are named by nothing, and the next
//! pass finds them dead. Two crashes in a row are two such passes.
//!
//! # A full disk
//!
//! Copies may use the reserve of the log only if all of a pass fit there. Otherwise a pass that
//! frees nothing would use it up. A pass that finds no space continues as one with
//! [`Effort::FullDisk`]: it drops the segments that it has emptied, or copies what fits. Where live
//! segments are in front of dead ones, it moves those away first, as many as fit at a time, until
//! it reaches the dead ones. They are live at the end of the log then, where no further pass moves
//! them again: a full segment of live records is copied only for dead ones behind it. Segments pay
//! there when copying them frees a thirty-second part of them, not only when half is dead.
//! Otherwise deletes of single keys, which take a block each, would use up their share of the
//! reserve before anything can be freed. Half it is for an owner whose checkpoint grows with the
//! copies ([`Owner::CHECKPOINT_GROWS`]): its own writes could take more than a pass frees.
//!
//! # Bounds
//!
//! A pass copies at most about [`COPY_BYTES_MAX`] bytes, or one step of the rule if that is more;
//! with [`Effort::FullDisk`], what fits in the reserve beside what [`Owner::before_drop`] writes.
//! It keeps at most [`LIVE_NUMBERS_MAX`] sequence numbers of live records in memory, and
//! one batch of records. After each [`COPY_BATCH_BYTES`] bytes it waits until the copies are
//! durable. It then calls [`Owner::pace`], which may pause or end the pass.

mod owner;
mod pass;
mod plan;

pub use owner::{
    COPY_BATCH_BYTES, COPY_BYTES_MAX, LIVE_NUMBERS_MAX, Live, Owner, Reclaimed, stored_size,
};
pub use pass::run;
pub use plan::{Effort, Plan, Usage};
