//! Esker's log-structured key-value store: every write is a record of one durable log, and an
//! index in memory finds the newest record of each key.
//!
//! ```
//! use esker_kv::{Policy, Store};
//! # fn main() -> Result<(), esker_kv::Error> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let dir = dir.path().join("store");
//! let store = Store::builder(&dir).policy(Policy::Always).open()?;
//! let keys = store.keyspace();
//! keys.put("colour", "blue")?.blocking_wait()?; // durable
//! assert_eq!(keys.get("colour")?.as_deref(), Some(&b"blue"[..]));
//! keys.delete("colour")?.blocking_wait()?;
//! store.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! A write is **accepted** when its call returns: readers of this process see it. It is **durable**
//! when its [`Ticket`] resolves. After any crash, every durable write is recovered, every recovered
//! write was accepted, and the recovered writes are a prefix of the accepted ones.
//!
//! # Errors
//!
//! Each kind of call has an error of its own, with what can happen there: [`OpenError`],
//! [`ReadError`], [`WriteError`], [`KeyspaceError`], [`WatchError`] and [`BackupError`]. Match it
//! without a wildcard. Its variant `Store` has what every call can meet, such as a closed store or
//! a full disk: [`StoreError`], which is also the error of tickets. All of them become [`Error`] by
//! `?`.
//!
//! # Limits
//!
//! Keys must fit in memory; values need not. There are no transactions over several reads and
//! writes beyond a [`Batch`] with conditions, and values are not compressed.

mod backup;
mod base;
mod cache;
mod durability;
#[doc(hidden)]
pub mod fuzzing;
mod health;
mod index;
mod limits;
mod memory;
mod read;
mod read_only;
mod record;
mod state;
mod store;
mod sync;
mod watch;
mod write;

pub use backup::{UNFINISHED_BACKUP, backup_log};
pub use base::corrupted_record::CorruptedRecord;
pub use base::error::{Error, Result};
pub use base::operation_errors::{
    BackupError, KeyspaceError, OpenError, ReadError, WatchError, WriteError,
};
pub use base::options::{COMPONENT, Options, StoreBuilder};
pub use base::read_only_options::{ReadOnlyOptions, ReadOnlyStoreBuilder};
pub use base::stats::{ReadOnlyStats, Stats};
pub use base::store_error::StoreError;
pub use base::ticket::Ticket;
#[doc(no_inline)]
pub use bytes::Bytes;
pub use cache::value::Value;
/// The options of the log, in [`Options::log`].
#[doc(no_inline)]
pub use esker_log::Options as LogOptions;
pub use esker_log::reclaim::Reclaimed;
#[doc(no_inline)]
pub use esker_log::{
    Direct, Engine, InvalidOption, OnCorruption, OpenCheck, ReadOnlyLog, ReadOptions, Trimmed,
};
pub use esker_log::{Policy, Seq, SeqRange};
pub use limits::{KEY_LIMIT, NAME_LIMIT, VALUE_LIMIT};
pub use read::check_records::check_records;
pub use read::key_range::KeyRange;
pub use read::scan::Scan;
pub use read::snapshot::{Snapshot, SnapshotScan};
pub use read_only::ReadOnlyStore;
pub use state::handle::{Keyspace, KeyspaceReader};
pub use store::Store;
pub use watch::Watch;
pub use watch::changes::{Action, Change, Changes, ChangesIter};
pub use write::batch::Batch;
