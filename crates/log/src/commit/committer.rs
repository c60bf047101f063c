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
        Ok(Self { segment, file, unsynced: Vec::new(), chain, session })
    }

    pub(crate) fn chain(&self) -> u32 {
        self.chain
    }

    /// Whether so much was written without a sync that recovery would have to copy too much.
    pub(crate) fn is_far_ahead(&self) -> bool {
        self.unsynced.len() >= 2
    }
}
