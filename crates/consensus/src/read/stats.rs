//! Statistics of a log.

use esker_log::reclaim::Reclaimed;

use crate::base::ballot::Ballot;
use crate::base::slot::Slot;
use crate::read_only::ReadOnlyReason;
use crate::state::commit_tracker::CommittedRange;
use crate::state::inner::ConsensusLog;

/// The state of a consensus log, from memory alone.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Stats {
    /// The highest promised ballot; `None` if nothing was ever promised or accepted.
    pub promised: Option<Ballot>,
    /// Slots up to this one were truncated.
    pub floor: Option<Slot>,
    /// Slots up to this one are durably committed.
    pub frontier: Option<Slot>,
    /// The durably committed slots.
    pub committed: Option<CommittedRange>,
    /// Commits whose markers are not durable yet.
    pub committing: usize,
    /// Commits that were not counted yet in `frontier` and `committed` when the call began. The
    /// call counts those that are durable.
    pub uncounted: usize,
    /// Slots that are accepted and not committed.
    pub uncommitted: u64,
    /// Bytes in use in the mutable region; a small value is charged 64.
    pub mutable_used: u64,
    /// Free bytes in the mutable region.
    pub mutable_free: u64,
    /// Bytes of committed values in memory.
    pub cache_used: u64,
    /// Pages of the index in memory; 64 KiB each.
    pub pages: usize,
    /// Records since the last checkpoint of the index.
    pub since_checkpoint: u64,
    /// Background jobs, such as checkpoints, that failed since the log was opened. Each failure was
    /// logged, and the job is retried.
    pub background_failures: u64,
    /// Space reclaimed since the log was opened: segments dropped, and live values copied for that.
    pub reclaimed: Reclaimed,
    /// Why the log is read-only; `None` for an ordinary log.
    pub read_only: Option<ReadOnlyReason>,
    /// The metadata of the underlying log.
    pub log: esker_log::Metadata,
    /// The statistics of the underlying log, of this process.
    pub log_stats: esker_log::LogStats,
}

impl ConsensusLog {
    /// Returns the statistics of the log. As every call that counts what became durable, it may
    /// read an index page at the frontier that is not in memory.
    pub fn stats(&self) -> Stats {
        let inner = &*self.inner;
        let guard = crossbeam_epoch::pin();
        let uncounted = inner.frontier.lock().pending();
        inner.count_durable(&guard);
        let pages = inner.index.in_memory(&guard);
        let promised = inner.locks.promised();
        let tracker = inner.frontier.lock();
        Stats {
            promised,
            floor: tracker.kept().checked_sub(1).map(Slot),
            frontier: tracker.next().checked_sub(1).map(Slot),
            committed: tracker.range(),
            committing: tracker.pending(),
            uncounted,
            uncommitted: pages.iter().map(|page| page.open.get()).sum(),
            mutable_used: inner.budget.used(),
            mutable_free: inner.budget.size().saturating_sub(inner.budget.used()),
            cache_used: tracker.cached(),
            pages: pages.len(),
            since_checkpoint: inner.since_checkpoint(),
            background_failures: inner.background.failures(),
            reclaimed: inner.reclaiming.reclaimed(),
            read_only: inner.status.read_only(),
            log: inner.log.storage().metadata(),
            log_stats: inner.log.stats(),
        }
    }
}
