//! Requests for space by callers that may not block.

use crate::base::error::Error;
use crate::commit::core::Need;

/// What was asked of the engine by callers that may not block, and what became of it.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    pub(super) need: Option<Need>,
    /// How often space was asked for, and how often that was dealt with.
    pub(super) asked: u64,
    pub(super) dealt: u64,
    /// The last failure, and the bytes that it was about.
    pub(super) failed: Option<(u32, Error)>,
}

/// A caller that asked, and when.
#[derive(Debug, Default)]
pub(crate) struct Asking(pub(super) Option<u64>);
