//! Permits for proposals, and for the bytes in them. An entry that is not committed stays in the
//! log's memory; an entry for which the log has no room would stop the node.

use std::sync::Arc;

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::base::failure::Internal;
use crate::node::commands::Command;

/// The most proposals at a time, and the most bytes in them.
const PROPOSALS_MAX: u32 = 4096;
const PROPOSED_BYTES_MAX: u32 = 4 << 20;
/// Bytes that a proposal takes beside its command.
const PROPOSAL_OVERHEAD_BYTES: usize = 64;

// A command that needs more permits than there are would wait for ever.
const _: () = assert!(Command::MAX + PROPOSAL_OVERHEAD_BYTES <= PROPOSED_BYTES_MAX as usize);
const _: () = assert!(PROPOSED_BYTES_MAX as usize <= Semaphore::MAX_PERMITS);

/// The permits of one node.
#[derive(Debug)]
pub(crate) struct ProposalPermits {
    proposals: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
}

/// The permits of one proposal, given back when it is resolved.
#[derive(Debug)]
#[must_use = "the permits are given back when this is dropped"]
pub(crate) struct ProposalPermit {
    _proposal: OwnedSemaphorePermit,
    _bytes: OwnedSemaphorePermit,
}

impl ProposalPermits {
    pub(crate) fn new() -> Self {
        let proposals = Arc::new(Semaphore::new(PROPOSALS_MAX as usize));
        let bytes = Arc::new(Semaphore::new(PROPOSED_BYTES_MAX as usize));
        Self { proposals, bytes }
    }

    /// Waits for the permits of a command of at most [`Command::MAX`] bytes.
    pub(crate) async fn acquire(&self, command_bytes: usize) -> Result<ProposalPermit, Internal> {
        if command_bytes > Command::MAX {
            return Err(Internal::new("the length of a command is checked before its permits"));
        }
        let bytes = (command_bytes + PROPOSAL_OVERHEAD_BYTES) as u32;
        let proposal = Arc::clone(&self.proposals).acquire_owned().await.map_err(closed)?;
        let bytes = Arc::clone(&self.bytes).acquire_many_owned(bytes).await.map_err(closed)?;
        Ok(ProposalPermit { _proposal: proposal, _bytes: bytes })
    }

    /// Waits until all earlier proposals are resolved, and keeps later ones waiting.
    pub(crate) async fn acquire_all(&self) -> Result<SemaphorePermit<'_>, Internal> {
        self.proposals.acquire_many(PROPOSALS_MAX).await.map_err(closed)
    }
}

fn closed(_: AcquireError) -> Internal {
    Internal::new("the permits of proposals are never closed")
}
