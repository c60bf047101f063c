//! The log and the vote.

use std::fmt::Debug;
use std::io;
use std::marker::PhantomData;
use std::ops::{Bound, ControlFlow, RangeBounds};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use esker_consensus::{
    Ballot, ConsensusLog, Error, IterateOptions, ReadOnlyReason, Slot, SnapshotBounds,
};
use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use openraft::{OptionalSend, RaftLogReader};
use parking_lot::Mutex;

use crate::base::ballots::{TERM_MAX, ballot_of, vote_of};
use crate::base::blocking::on_own_thread;
use crate::base::config::{Id, StoredConfig, VoteOf};
use crate::base::encoding::{Kept, decode, decode_id, encode};
use crate::base::failure::{Failure, failed, invalid};
use crate::base::unresolved::Unresolved;

/// Bytes of values that one read for replication returns at most, if it returns more than one.
const READ: usize = 1 << 20;
/// A slot above those that have entries: a promise lists none of them.
const NO_ENTRIES: Slot = Slot(u64::MAX - 1);

/// openraft's log and vote in a consensus log. Clones are handles of one log.
///
/// # Durability
/// A vote is durable when `save_vote` returns, and so are a truncation and a purge. Entries are
/// durable when openraft's callback is called. A saved commit index requests no sync: a crash may
/// lose those of the last 10 ms.
///
/// # Purging
/// With a [`MachineStore`](crate::MachineStore) on the same log, a purge keeps the entries after
/// the older of its two snapshots: they replace the newer one, should that be damaged. While it has
/// one snapshot, nothing is purged. So the log has at most three times the entries between two
/// snapshots. A purge that cannot find out what it may drop drops nothing, and the next one tries
/// again.
///
/// # Limits
/// Uncommitted entries are kept in memory, at most
/// [`Options::mutable_size`](esker_consensus::Options::mutable_size) bytes of them (64 MiB by
/// default). An entry above that is an error, at which openraft stops the node: bound the proposals
/// in flight. Terms go up to 2^63 - 1, and an entry to 64 MiB.
///
/// # Blocking
/// Reading blocks the task while values are read that are not in memory: those above
/// [`Options::cache_size`](esker_consensus::Options::cache_size). Nothing else blocks.
#[derive(Debug)]
pub struct LogStore<C> {
    log: ConsensusLog,
    /// The commit index, durable or not.
    committed: Arc<Mutex<Option<Id>>>,
    unresolved: Unresolved,
    /// Held while the state beside the entries is read and replaced.
    keeping: Arc<tokio::sync::Mutex<()>>,
    failure: Arc<OnceLock<Failure>>,
    config: PhantomData<fn() -> C>,
}

impl<C> Clone for LogStore<C> {
    fn clone(&self) -> Self {
        Self {
            log: self.log.clone(),
            committed: Arc::clone(&self.committed),
            unresolved: self.unresolved.clone(),
            keeping: Arc::clone(&self.keeping),
            failure: Arc::clone(&self.failure),
            config: PhantomData,
        }
    }
}

impl<C: StoredConfig> LogStore<C> {
    /// Opens the log in `dir` with the default options, and creates it if there is none.
    ///
    /// # Errors
    /// As [`ConsensusLog::open`], and as [`LogStore::new`].
    pub fn open(dir: impl AsRef<Path>) -> io::Result<Self> {
        Self::new(ConsensusLog::open(dir).map_err(failed)?)
    }

    /// Stores openraft's log in this one, which nothing else may write to.
    ///
    /// # Errors
    /// `InvalidData` when the log has entries that this crate did not write, and when it is
    /// read-only: repaired, or a copy, it may lack votes that were given. Those of reading.
    pub fn new(log: ConsensusLog) -> io::Result<Self> {
        match log.stats().read_only {
            None => {}
            Some(ReadOnlyReason::Copied) => {
                let why = "the log is a copy, and its node may have voted since: the node joins \
                           under a new number, with a new log or with this one renumbered";
                return Err(invalid(why.into()));
            }
            Some(_) => {
                let why = "the log was repaired, and may lack votes and entries: its node is \
                           removed, and joins under a new number with a new log";
                return Err(invalid(why.into()));
            }
        }
        let store = Self {
            log,
            committed: Arc::default(),
            unresolved: Unresolved::default(),
            keeping: Arc::default(),
            failure: Arc::default(),
            config: PhantomData,
        };
        // Up to the floor a snapshot says what is committed.
        let committed = store.log.frontier().filter(|frontier| frontier.0 >= store.first());
        let committed = committed.map(|slot| store.id_at(slot)).transpose()?;
        store.kept()?;
        *store.committed.lock() = committed;
        Ok(store)
    }

    /// The consensus log.
    pub fn log(&self) -> &ConsensusLog {
        &self.log
    }

    /// How long the oldest append has waited for the disk; `None` while none waits.
    pub fn oldest_unresolved(&self) -> Option<Duration> {
        self.unresolved.oldest()
    }

    /// Waits until an append waits for the disk.
    pub(crate) async fn until_unresolved(&self) {
        self.unresolved.until_any().await;
    }

    /// Why the node stops, if something beside openraft has found that.
    pub(crate) fn failure(&self) -> &OnceLock<Failure> {
        &self.failure
    }

    fn kept(&self) -> io::Result<Kept> {
        Kept::decode(&self.log.app_state().get())
    }

    /// The longest time for which this node may have promised a leader to give no vote, as far as
    /// it is stored.
    pub(crate) fn longest_lease(&self) -> Duration {
        let kept = self.kept().unwrap_or_default();
        Duration::from_millis(kept.lease_ms.into())
    }

    /// Stores the longest time for which this node promises a leader to give no vote, and waits
    /// until that is durable. A node that restarts with a shorter one waits for this one.
    ///
    /// # Errors
    /// Those of [`ConsensusLog::set_app_state`].
    pub(crate) async fn keep_lease(&self, longest: Duration) -> io::Result<()> {
        let _turn = self.keeping.lock().await;
        let kept = self.kept()?;
        // 49 days and more are as good as for ever.
        let lease_ms = u32::try_from(longest.as_millis()).unwrap_or(u32::MAX);
        if kept.lease_ms == lease_ms {
            return Ok(());
        }
        let kept = Kept { lease_ms, ..kept };
        self.log.app_state().set(&kept.encode()).map_err(failed)?.await.map_err(failed)
    }

    fn id_at(&self, slot: Slot) -> io::Result<Id> {
        let guard = self.log.pin();
        decode_id(slot, self.log.read(slot, &guard).map_err(failed)?.value())
    }

    fn ballot(&self) -> Ballot {
        self.log.promised().unwrap_or(Ballot::ZERO)
    }

    /// The entries of a range, from the first that the log has, up to so many bytes of them.
    fn entries(&self, from: u64, end: Bound<u64>, max_bytes: usize) -> io::Result<Vec<C::Entry>> {
        let from = from.max(self.first());
        let mut entries: Vec<C::Entry> = Vec::new();
        let (mut bytes, mut wrong) = (0, None);
        let mut visit = |slot: Slot, value: &[u8]| {
            bytes += value.len();
            if bytes > max_bytes && !entries.is_empty() {
                return Ok(ControlFlow::Break(()));
            }
            if entries.last().is_some_and(|last| last.log_id.index + 1 != slot.0) {
                return Err(invalid(format!("the log has no entry before the one at {slot}")));
            }
            entries.push(decode::<C>(slot, value)?);
            Ok(ControlFlow::Continue(()))
        };
        let range = (Bound::Included(Slot(from)), end.map(Slot));
        let options = IterateOptions::default().include_uncommitted(true);
        let visited = self.log.iterate(range, options, |entry| {
            visit(entry.slot(), entry.value()).unwrap_or_else(|error| {
                wrong = Some(error);
                ControlFlow::Break(())
            })
        });
        visited.map_err(failed)?;
        wrong.map_or(Ok(entries), Err)
    }

    /// Whether the log has no entry in the place of this one, or another. Blocks.
    pub(crate) fn lacks(&self, id: Id) -> io::Result<bool> {
        let (slot, guard) = (Slot(id.index), self.log.pin());
        if self.log.last_slot() < Some(slot) {
            return Ok(true);
        }
        match self.log.read(slot, &guard) {
            Ok(entry) => Ok(decode_id(slot, entry.value())? != id),
            Err(Error::SlotNotFound { .. }) => Ok(true),
            Err(error) => Err(failed(error)),
        }
    }

    /// The last entry up to this one that the log may drop and still be the state together with the
    /// oldest snapshot, should newer ones be damaged. `None` for none.
    ///
    /// Reads no snapshot: openraft waits meanwhile. The oldest of two or more was whole when the
    /// newest was stored: see [`MachineStore`](crate::MachineStore). Without a snapshot that has
    /// the entry, another state machine is on this log.
    fn purgeable(&self, id: Id) -> io::Result<Option<Id>> {
        let slot = Slot(id.index);
        match self.log.snapshots().list().map_err(failed)?[..] {
            [.., newest] if newest < slot => Ok(Some(id)),
            [] => Ok(Some(id)),
            [_only] => Ok(None),
            [oldest, ..] if oldest.0 < self.first() => Ok(None),
            [oldest, ..] => self.id_at(oldest.min(slot)).map(Some),
        }
    }

    /// The index of the first entry that was not purged.
    fn first(&self) -> u64 {
        self.log.floor().map_or(0, |floor| floor.0.saturating_add(1))
    }
}

impl<C: StoredConfig> RaftLogReader<C> for LogStore<C> {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> io::Result<Vec<C::Entry>> {
        let from = match range.start_bound() {
            Bound::Included(from) => *from,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        self.entries(from, range.end_bound().cloned(), usize::MAX)
    }

    async fn limited_get_log_entries(&mut self, from: u64, end: u64) -> io::Result<Vec<C::Entry>> {
        self.entries(from, Bound::Excluded(end), READ)
    }

    async fn read_vote(&mut self) -> io::Result<Option<VoteOf>> {
        Ok(vote_of(self.ballot()))
    }
}

impl<C: StoredConfig> RaftLogStorage<C> for LogStore<C> {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> io::Result<LogState<C>> {
        let last_purged_log_id = self.kept()?.purged;
        let last = self.log.last_slot().map(|slot| self.id_at(slot)).transpose()?;
        Ok(LogState { last_purged_log_id, last_log_id: last.or(last_purged_log_id) })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &VoteOf) -> io::Result<()> {
        let ballot =
            ballot_of(vote).ok_or_else(|| invalid(format!("a term above {TERM_MAX}: {vote}")))?;
        self.log.promise(ballot, NO_ENTRIES).map_err(failed)?.await.map(drop).map_err(failed)
    }

    async fn save_committed(&mut self, committed: Option<Id>) -> io::Result<()> {
        let Some(committed) = committed else { return Ok(()) };
        self.log.commit_through(Slot(committed.index)).map_err(failed)?.detach();
        *self.committed.lock() = Some(committed);
        Ok(())
    }

    async fn read_committed(&mut self) -> io::Result<Option<Id>> {
        Ok(*self.committed.lock())
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<C>) -> io::Result<()>
    where
        I: IntoIterator<Item = C::Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut values = Vec::new();
        for entry in entries {
            values.push((Slot(entry.log_id.index), encode::<C>(&entry)?));
        }
        let values: Vec<_> = values.iter().map(|(slot, value)| (*slot, &value[..])).collect();
        let accepted = self.log.accept_batch(self.ballot(), &values).map_err(failed)?;
        let unresolved = self.unresolved.begin();
        accepted.on_resolved(move |outcome| {
            unresolved.end();
            callback.io_completed(outcome.map_err(failed));
        });
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<Id>) -> io::Result<()> {
        let from = last.map_or(0, |last| last.index.saturating_add(1)).max(self.first());
        self.log.truncate_from(Slot(from)).map_err(failed)?.await.map_err(failed)
    }

    async fn purge(&mut self, id: Id) -> io::Result<()> {
        let _turn = self.keeping.lock().await;
        let kept = self.kept()?;
        if kept.purged.is_some_and(|purged| id.index <= purged.index) {
            return Ok(());
        }
        let store = self.clone();
        let through = on_own_thread(move || match store.lacks(id)? {
            // It continues after a snapshot of another replica.
            true => Ok(Some(id)),
            false => Ok(store.purgeable(id).unwrap_or_else(|error| {
                tracing::warn!(%error, "failed to find the entries to purge: they are kept");
                None
            })),
        });
        let Some(id) = through.await? else { return Ok(()) };
        let floor = Slot(id.index);
        let frontier = self.log.frontier().map_or(floor, |frontier| frontier.max(floor));
        let bounds = SnapshotBounds { floor, frontier };
        let kept = Kept { purged: Some(id), ..kept };
        let raised = self.log.app_state().set_and_install(&kept.encode(), bounds);
        raised.map_err(failed)?.await.map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use esker_disk::Op;
    use esker_disk::sim::{Effect, Fault, Gate, SimDisk};
    use futures_util::poll;

    use super::*;
    use crate::base::config::Committed;
    use crate::node::commands::Commands;

    /// The node answers nothing that a leader may count on before that.
    #[tokio::test]
    async fn a_lease_is_kept_when_it_is_durable() {
        let disk = SimDisk::new(1);
        let log = ConsensusLog::builder("/raft").disk(Arc::new(disk.clone())).open().unwrap();
        let store = LogStore::<Commands>::new(log).unwrap();
        let gate = Gate::new();
        disk.inject(Fault::on(Op::Write, Effect::Block(gate.clone())));
        let lease = Duration::from_secs(8);
        let mut keep = std::pin::pin!(store.keep_lease(lease));
        let early = poll!(&mut keep);
        gate.open();
        assert!(early.is_pending(), "{early:?}");
        keep.await.unwrap();
        assert_eq!(store.longest_lease(), lease);
    }

    /// Each keeps what the other one stores at the same time.
    #[tokio::test]
    async fn a_lease_and_a_purge_at_once_are_both_kept() {
        for lease_is_first in [true, false] {
            let disk = SimDisk::new(1);
            let log = ConsensusLog::builder("/raft").disk(Arc::new(disk.clone())).open().unwrap();
            let store = LogStore::<Commands>::new(log).unwrap();
            let gate = Gate::new();
            disk.inject(Fault::on(Op::Write, Effect::Block(gate.clone())));
            let id = Id { leader_id: Committed::new(1), index: 4 };
            let lease = Duration::from_secs(8);
            let mut purging = store.clone();
            let (purge, keep) = (purging.purge(id), store.keep_lease(lease));
            let open = async { gate.open() };
            let (purged, kept) = match lease_is_first {
                true => {
                    let (kept, purged, ()) = tokio::join!(biased; keep, purge, open);
                    (purged, kept)
                }
                false => {
                    let (purged, kept, ()) = tokio::join!(biased; purge, keep, open);
                    (purged, kept)
                }
            };
            purged.unwrap();
            kept.unwrap();
            assert_eq!((store.kept().unwrap().purged, store.longest_lease()), (Some(id), lease));
        }
    }
}
