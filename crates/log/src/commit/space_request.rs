//! Space requests of callers that must not block.

use crate::base::operation_errors::AppendError;
use crate::commit::core::Need;

/// The space requested from the engine by callers that must not block, and the outcomes. Those of
/// internal appends are kept apart: they may use the reserve, and ordinary ones may not.
#[derive(Debug, Default)]
pub(crate) struct SpaceRequests {
    internal: Requests,
    ordinary: Requests,
    /// The disk is full, and the end of the next commit, or of the next change of the set of
    /// segments, may let segments leave the log.
    pub(super) waits: bool,
}

/// The requests of one kind.
#[derive(Debug, Default)]
pub(super) struct Requests {
    pub(super) need: Option<Need>,
    /// How many requests were made, and how many of them were handled.
    pub(super) made: u64,
    pub(super) handled: u64,
    pub(super) failed: Option<Failed>,
}

/// The last failure.
#[derive(Debug, Clone)]
pub(super) struct Failed {
    /// The bytes that were requested.
    pub(super) bytes: u32,
    /// How often segments had left the log before.
    pub(super) drops: u64,
    pub(super) error: AppendError,
}

impl SpaceRequests {
    pub(super) fn like(&mut self, need: Need) -> &mut Requests {
        if need.internal { &mut self.internal } else { &mut self.ordinary }
    }

    /// Takes the space to preallocate, and the number of the last request for it. Internal appends
    /// come first: some of them free space.
    pub(super) fn take(&mut self) -> [Option<(Need, u64)>; 2] {
        [&mut self.internal, &mut self.ordinary]
            .map(|requests| requests.need.take().map(|need| (need, requests.made)))
    }
}

impl Requests {
    /// Requests space; for several requests as much as the largest of them needs.
    pub(super) fn ask(&mut self, need: Need) {
        let bytes = self.need.map_or(need.bytes, |other| other.bytes.max(need.bytes));
        self.need = Some(Need { bytes, ..need });
    }
}

/// The number of a caller's latest request; `None` before the first.
#[derive(Debug, Default)]
pub(crate) struct SpaceRequest(pub(super) Option<u64>);
