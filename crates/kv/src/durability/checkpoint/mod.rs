//! Checkpoints of the index: opening loads the last one and replays what came after.
//!
//! # The argument
//!
//! A checkpoint has a *replay point*: a record whose effect, and that of every record before it,
//! was in the index when the dump began. For each key the dump names the newest put at the moment
//! when it came to that key, in the order of the keys, while callers continue. Then it waits until
//! everything accepted is durable, and only then the checkpoint is published. So every record that
//! it names is durable, and a crash takes none of them.
//!
//! Opening takes what it names and is still in the log, and replays every record after the replay
//! point. A record that is older than what the checkpoint has for its key changes nothing. For each
//! key, call what the dump saw *s*:
//!
//! - A put or delete after *s* has its place after the replay point, or the dump would have seen
//!   it. So it is replayed.
//! - If *s* is not in the log any more, cleaning dropped it, after it copied it or something
//!   replaced it. The copy has its place after the replay point, too, so it is replayed, or what
//!   replaced the copy. Here the dump could go wrong: the index names the original until the copy
//!   is durable. So no copy is under way when the replay point is taken.
//! - A key that the dump did not see did not exist then, and records after the replay point decide.
//!
//! A place may be wrong, because recovery moves records that it copies. Reading then finds the
//! record by its number.
//!
//! A repair may take away records that were durable. A store that was repaired uses no checkpoint.
//! An operator may restore an older copy of the log and leave a newer checkpoint beside it. Opening
//! then finds that the log ends before the records of the checkpoint. Or the checkpoint may come
//! from a copy of the store that was written on its own: the log compares samples of its records
//! with those that the checkpoint was made from. An opening that does not use the checkpoint
//! removes it, before the log gets other records under the same numbers.
//!
//! A checkpoint that is lost, corrupt or not used costs a longer opening and nothing else.

mod dump;
mod format;
mod load;
mod threads;

pub(crate) use dump::DumpPace;
pub(crate) use format::CheckpointNote;
pub(crate) use load::{LoadedCheckpoint, decode_any, load};
