//! The log that a backup copies: one that is open, or one of another process.

use std::sync::Arc;

use esker_disk::Dir;

use crate::base::error::Result;
use crate::format::LogId;
use crate::read::cursor::Start;
use crate::read::source::Source;
use crate::read::stream::LogStream;

/// The log that is copied.
pub(super) struct Origin<'a> {
    pub(super) dir: &'a dyn Dir,
    pub(super) id: LogId,
    pub(super) session: u64,
    /// Returns the records that are durable now.
    pub(super) now: &'a dyn Fn() -> Result<Arc<dyn Source>>,
    pub(super) stream: &'a dyn Fn(Start) -> Result<LogStream>,
}
