//! Space requests of callers that must not block.

use crate::base::error::Error;
use crate::commit::core::Need;

/// The space requested from the engine by callers that must not block, and the outcome.
#[derive(Debug, Default)]
pub(crate) struct SpaceRequests {
    pub(super) need: Option<Need>,
    /// How many requests were made, and how many of them were handled.
    pub(super) made: u64,
    pub(super) handled: u64,
    /// The last failure, and the bytes that were requested.
    pub(super) failed: Option<(u32, Error)>,
    /// The disk is full, and the end of the next commit, or of the next change of the set of
    /// segments, may let segments leave the log.
    pub(super) waits: bool,
}

impl SpaceRequests {
    /// Requests space; for several requests as much as the largest of them needs.
    pub(super) fn ask(&mut self, need: Need) {
        let bytes = self.need.map_or(need.bytes, |other| other.bytes.max(need.bytes));
        self.need = Some(Need { bytes, ..need });
    }
}

/// The number of a caller's latest request; `None` before the first.
#[derive(Debug, Default)]
pub(crate) struct SpaceRequest(pub(super) Option<u64>);
