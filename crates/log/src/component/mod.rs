//! Methods and types for the author of a component; users of a log need none of them.
//!
//! A component is a data structure that is stored as a log: the key-value store and the consensus
//! log are two. It keeps an index of the records in memory, builds the index again from the records
//! at opening, and drops old records once nothing names them. A program that appends and reads
//! records needs nothing of this module.
//!
//! [`Log::component`](crate::Log::component) returns the handle [`ComponentLog`], and
//! [`ReadOnlyLog::component`](crate::ReadOnlyLog::component) the one for readers.
//!
//! | a component | with |
//! |---|---|
//! | marks the directory as its own | [`Options::component`], [`identify`], [`set_component`] |
//! | keeps a few values beside the records | [`put_app_metadata`] |
//! | changes its index in the order of the log | [`append_locked`] |
//! | reads a record whose place its index knows | [`read_placed`], [`read_placed_many`] |
//! | reads what is accepted and not yet durable | [`pending_records`] |
//! | opens without reading all records | [`checkpoint_writer`], [`checkpoint_reader`] |
//! | frees space | [`reclaim`](crate::reclaim) |
//! | frees space on a full disk | the [`Purpose`] of an append, and the reserve |
//! | has many logs, and one reserve for all of them | [`shared_reserve`] |
//! | copies several logs as of one moment | [`accepted_at_one_moment`] |
//! | gives up a log that it just created | [`discard`] |
//! | calls the log, or wakes tasks, under a lock of its own | [`DeferredWakes`], [`wake`] |
//!
//! [`Options::component`]: crate::Options::component
//! [`set_component`]: ComponentLog::set_component
//! [`put_app_metadata`]: ComponentLog::put_app_metadata
//! [`append_locked`]: ComponentLog::append_locked
//! [`read_placed`]: ComponentLog::read_placed
//! [`read_placed_many`]: ComponentLog::read_placed_many
//! [`pending_records`]: ComponentLog::pending_records
//! [`checkpoint_writer`]: ComponentLog::checkpoint_writer
//! [`checkpoint_reader`]: ComponentLog::checkpoint_reader
//! [`shared_reserve`]: ComponentLog::shared_reserve
//!
//! # Examples
//!
//! An index from keys to the places of their records:
//!
//! ```
//! use std::{collections::HashMap, sync::Mutex};
//! use esker_log::component::{RecordPlace, Purpose};
//! use esker_log::{Component, Log};
//!
//! # let dir = tempfile::tempdir().unwrap();
//! # let dir = dir.path().join("log");
//! let log = Log::builder(&dir).component(Component(*b"MYSTORE1")).open()?;
//! let index: Mutex<HashMap<&str, RecordPlace>> = Mutex::default();
//!
//! let ticket = log.component().append_locked(|log| {
//!     let mut index = index.lock().unwrap();
//!     log.append(Purpose::Ordinary, "a value", |place| drop(index.insert("a key", place)))
//! })?;
//! ticket.blocking_wait()?;
//! let place = index.lock().unwrap()["a key"];
//! assert_eq!(&*log.component().read_placed(place)?, b"a value");
//! # Ok::<(), esker_log::Error>(())
//! ```

mod accepted;
mod checkpoint_writer;
mod component_log;
mod discard;
mod identity;
mod locked_append;
mod placed_reads;

pub use crate::base::component::{Component, UNFINISHED_BACKUP};
pub use crate::base::lender::SharedReserve;
pub use crate::base::position::RecordPlace;
pub use crate::base::purpose::Purpose;
pub use crate::follower::component_reads::ReadOnlyComponentLog;
pub use crate::read::checkpoint_reader::{CheckpointBuffer, CheckpointReader};
pub use crate::runtime::deferred_wakes::{DeferredWakes, wake};
pub use crate::store::app_metadata::{app_metadata, identify};
pub use accepted::accepted_at_one_moment;
pub use checkpoint_writer::{CheckpointChunk, CheckpointWriter};
pub use component_log::ComponentLog;
pub use discard::discard;
pub use locked_append::{AppendRefusal, LockedAppender};
