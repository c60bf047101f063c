//! Reading records of a log that this process has open, or that another process writes.
//!
//! `source` is the interface to the log. `cursor` iterates over its units in order and finds single
//! records. `placed` reads a record whose place is known, and `placed_many` several of them. A
//! caller reads from a `stream`, over a `local_feed`. `batch` holds the records that readers get.
//! `cache` shares file reads among all readers, and `read_counts` counts them. `checkpoint_reader`
//! reads a component's checkpoint, and `samples` compares the records that it was made from with
//! those of this log.

pub(crate) mod batch;
pub(crate) mod cache;
pub(crate) mod checkpoint_reader;
pub(crate) mod cursor;
pub(crate) mod local_feed;
pub(crate) mod metadata;
pub(crate) mod placed;
pub(crate) mod placed_many;
pub(crate) mod read_counts;
pub(crate) mod read_half;
pub(crate) mod samples;
pub(crate) mod snapshot_reader;
pub(crate) mod source;
pub(crate) mod stream;
pub(crate) mod stream_table;
