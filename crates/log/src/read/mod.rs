//! Reading records of a log that is open in this process, or in another one.
//!
//! `source` is what they need of it; `cursor` goes through the units of a source in order; `stream` follows a log; `lookup` finds single records;
//! `batch` is what readers get; `cache` shares what is read from files among all readers.

pub(crate) mod batch;
pub(crate) mod cache;
pub(crate) mod cursor;
pub(crate) mod read_half;
pub(crate) mod source;
pub(crate) mod stream;
