//! The committer: the state that one commit passes to the next.
//!
//! Each log has one. It passes from the thread that prepares a commit to the one that prepares the
//! next. It holds the file and the checksum to chain to. `commit_io` does the work.

use std::sync::Arc;

use esker_disk::{Dir, File};

use crate::base::error::Result;
use crate::store::file_mode::FileMode;
use crate::store::segment_table::Segment;

#[derive(Debug)]
pub(crate) struct Committer {
    /// The segment that is written to, and its file, open for writing.
    pub(super) segment: Arc<Segment>,
    pub(super) file: Arc<dyn File>,
    /// The same file without O_DSYNC, for grouped writes and their sync. Opened with the first of
    /// them in a segment.
    pub(super) grouped: Option<Arc<dyn File>>,
    /// Files of earlier segments with unsynced writes.
    pub(super) unsynced: Vec<Arc<dyn File>>,
    pub(super) chain: u32,
    pub(super) session: u64,
}

impl Committer {
    pub(crate) fn new(
        dir: &dyn Dir,
        mode: FileMode,
        segment: Arc<Segment>,
        chain: u32,
        session: u64,
    ) -> Result<Self> {
        let file = dir.open(&segment.name(), mode.writing())?;
        Ok(Self { segment, file, grouped: None, unsynced: Vec::new(), chain, session })
    }

    /// The file for grouped writes and for their sync. If it cannot be opened, that of all other
    /// writes, which makes each of them durable at once.
    pub(super) fn grouped_file(&mut self, dir: &dyn Dir, mode: FileMode) -> Arc<dyn File> {
        if self.grouped.is_none() {
            self.grouped = dir.open(&self.segment.name(), mode.grouped_writing()).ok();
        }
        Arc::clone(self.grouped.as_ref().unwrap_or(&self.file))
    }

    pub(crate) fn chain(&self) -> u32 {
        self.chain
    }

    /// Whether so much was written without a sync that recovery would have to copy too much.
    pub(crate) fn is_far_ahead(&self) -> bool {
        self.unsynced.len() >= 2
    }
}
