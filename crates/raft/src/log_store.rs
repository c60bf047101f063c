//! openraft's log and vote, in a consensus log.

use std::fmt::Debug;
use std::io;
use std::marker::PhantomData;
use std::ops::{Bound, ControlFlow, RangeBounds};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use esker_consensus::{
    Ballot, ConsensusLog, IterateOptions, ReadError, ReadOnlyReason, Slot, SnapshotBounds,
};
use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use openraft::{OptionalSend, RaftLogReader};
use parking_lot::Mutex;

use crate::base::ballots::{TERM_MAX, ballot_to_vote, vote_to_ballot};
use crate::base::blocking::run_blocking;
use crate::base::encoding::{AppState, INDEX_MAX, decode, decode_id, encode, index_after};
use crate::base::failure::{Internal, TerminalState, invalid_data, to_io_error};
use crate::base::pending_appends::PendingAppends;
use crate::base::type_config::{EntryId, RaftVote, StoredConfig};

/// The most bytes of values that one read for replication returns, if it returns more than one.
const READ_BYTES_MAX: usize = 1 << 20;
/// A slot above all entries, from which on a promise lists none.
const SLOT_ABOVE_ENTRIES: Slot = Slot(u64::MAX - 1);

const _: () = assert!(SLOT_ABOVE_ENTRIES.0 > INDEX_MAX);

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
    committed: Arc<Mutex<Option<EntryId>>>,
    pending_appends: PendingAppends,
    /// Held while the application state is read and replaced.
    app_state_lock: Arc<tokio::sync::Mutex<()>>,
    terminal: TerminalState,
    config: PhantomData<fn() -> C>,
}

impl<C> Clone for LogStore<C> {
    fn clone(&self) -> Self {
        Self {
            log: self.log.clone(),
            committed: Arc::clone(&self.committed),
            pending_appends: self.pending_appends.clone(),
            app_state_lock: Arc::clone(&self.app_state_lock),
            terminal: self.terminal.clone(),
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
        Self::new(ConsensusLog::open(dir).map_err(to_io_error)?)
    }

    /// Stores openraft's log in this consensus log, which nothing else may write to.
    ///
    /// # Errors
    /// `InvalidData` when the log has entries that this crate did not write, and when it is
    /// read-only: a log that was repaired, or is a copy, may lack votes that were given. Errors of
    /// reading.
    pub fn new(log: ConsensusLog) -> io::Result<Self> {
        Self::with_terminal(log, TerminalState::default())
    }

    /// Creates the store of a node that has this terminal state.
    pub(crate) fn with_terminal(log: ConsensusLog, terminal: TerminalState) -> io::Result<Self> {
        match log.stats().read_only {
            None => {}
            Some(ReadOnlyReason::Copied) => {
                let why = "the log is a copy, and its node may have voted since: the node joins \
                           under a new number, with a new log or with this one renumbered";
                return Err(invalid_data(why.into()));
            }
            Some(_) => {
                let why = "the log was repaired, and may lack votes and entries: its node is \
                           removed, and joins under a new number with a new log";
                return Err(invalid_data(why.into()));
            }
        }
        let highest = log.last_slot().max(log.floor());
        if let Some(slot) = highest.filter(|slot| slot.0 > INDEX_MAX) {
            return Err(invalid_data(format!("the log has a slot above {INDEX_MAX}: {slot}")));
        }
        AppState::decode(&log.app_state().get())?;
        let store = Self {
            log,
            committed: Arc::default(),
            pending_appends: PendingAppends::default(),
            app_state_lock: Arc::default(),
            terminal,
            config: PhantomData,
        };
        // The entries up to the floor are gone: the snapshot there has the commit index.
        let committed = store.log.frontier().filter(|frontier| frontier.0 >= store.first_index());
        let committed = committed.map(|slot| store.read_entry_id(slot)).transpose()?;
        *store.committed.lock() = committed;
        Ok(store)
    }

    /// The consensus log.
    pub fn log(&self) -> &ConsensusLog {
        &self.log
    }

    /// The time for which the oldest append has waited for the disk; `None` while none waits.
    pub fn oldest_pending_append(&self) -> Option<Duration> {
        self.pending_appends.oldest()
    }

    /// Waits until an append waits for the disk.
    pub(crate) async fn wait_for_pending_append(&self) {
        self.pending_appends.wait_for_any().await;
    }

    /// The terminal state of the node, which openraft does not know of.
    pub(crate) fn terminal(&self) -> &TerminalState {
        &self.terminal
    }

    /// Forgets the appends that wait for the disk, as if they were resolved.
    #[cfg(test)]
    pub(crate) fn forget_pending_appends(&self) {
        self.pending_appends.forget_all();
    }

    /// Fails the node for good, because an invariant does not hold.
    fn fail(&self, invariant: &'static str) -> io::Error {
        self.terminal.fail_internal(Internal::new(invariant)).into()
    }

    fn app_state(&self) -> io::Result<AppState> {
        AppState::decode(&self.log.app_state().get())
    }

    /// The longest time for which this node may have promised a leader to give no vote, as the log
    /// has it.
    pub(crate) fn longest_lease(&self) -> Duration {
        let lease_ms = self.app_state().map_or_else(
            |_| {
                self.fail("the application state that was read at opening can be read");
                u32::MAX
            },
            |state| state.lease_ms,
        );
        Duration::from_millis(lease_ms.into())
    }

    /// Stores the longest time for which this node promises a leader to give no vote, and waits
    /// until that is durable. A node that restarts with a shorter one waits for this one.
    ///
    /// # Errors
    /// The errors of [`AppState::set`](esker_consensus::AppState::set).
    pub(crate) async fn store_lease(&self, longest: Duration) -> io::Result<()> {
        let _turn = self.app_state_lock.lock().await;
        let state = self.app_state()?;
        // The field holds 49 days, which no lease reaches.
        let lease_ms = u32::try_from(longest.as_millis()).unwrap_or(u32::MAX);
        if state.lease_ms == lease_ms {
            return Ok(());
        }
        let state = AppState { lease_ms, ..state };
        self.log.app_state().set(&state.encode()).map_err(to_io_error)?.await.map_err(to_io_error)
    }

    fn read_entry_id(&self, slot: Slot) -> io::Result<EntryId> {
        let guard = self.log.pin();
        decode_id(slot, self.log.read(slot, &guard).map_err(to_io_error)?.value())
    }

    fn ballot(&self) -> Ballot {
        self.log.promised().unwrap_or(Ballot::ZERO)
    }

    /// Reads the entries of a range, from the first that the log has, up to `max_bytes` of values.
    fn entries(&self, from: u64, end: Bound<u64>, max_bytes: usize) -> io::Result<Vec<C::Entry>> {
        let from = from.max(self.first_index());
        let mut entries: Vec<C::Entry> = Vec::new();
        let (mut bytes, mut failure) = (0, None);
        let mut visit = |slot: Slot, value: &[u8]| {
            bytes += value.len();
            if bytes > max_bytes && !entries.is_empty() {
                return Ok(ControlFlow::Break(()));
            }
            if entries.last().is_some_and(|last| last.log_id.index + 1 != slot.0) {
                return Err(invalid_data(format!("the log has no entry before the one at {slot}")));
            }
            entries.push(decode::<C>(slot, value)?);
            Ok(ControlFlow::Continue(()))
        };
        let range = (Bound::Included(Slot(from)), end.map(Slot));
        let options = IterateOptions::default().include_uncommitted(true);
        let visited = self.log.iterate(range, options, |entry| {
            visit(entry.slot(), entry.value()).unwrap_or_else(|error| {
                failure = Some(error);
                ControlFlow::Break(())
            })
        });
        visited.map_err(to_io_error)?;
        debug_assert!(
            entries.first().is_none_or(|first| first.log_id.index >= from),
            "a read begins where it was asked to"
        );
        failure.map_or(Ok(entries), Err)
    }

    /// Returns whether the log has no entry at this index, or another one. Blocks.
    pub(crate) fn lacks_entry(&self, id: EntryId) -> io::Result<bool> {
        let (slot, guard) = (Slot(id.index), self.log.pin());
        if self.log.last_slot() < Some(slot) {
            return Ok(true);
        }
        match self.log.read(slot, &guard) {
            Ok(entry) => Ok(decode_id(slot, entry.value())? != id),
            Err(ReadError::SlotNotFound { .. }) => Ok(true),
            Err(error) => Err(to_io_error(error)),
        }
    }

    /// The last entry up to this one that a purge may drop: what remains still gives the state
    /// together with the oldest snapshot, should newer ones be damaged. `None` for none.
    ///
    /// Reads no snapshot: openraft waits meanwhile. The oldest of two or more was whole when the
    /// newest was stored: see [`MachineStore`](crate::MachineStore). Without a snapshot that has
    /// the entry, another state machine is on this log.
    fn purge_limit(&self, id: EntryId) -> io::Result<Option<EntryId>> {
        let slot = Slot(id.index);
        match self.log.snapshots().list().map_err(to_io_error)?[..] {
            [.., newest] if newest < slot => Ok(Some(id)),
            [] => Ok(Some(id)),
            [_only] => Ok(None),
            [oldest, ..] if oldest.0 < self.first_index() => Ok(None),
            [oldest, ..] => self.read_entry_id(oldest.min(slot)).map(Some),
        }
    }

    /// The index of the first entry that was not purged.
    fn first_index(&self) -> u64 {
        self.log.floor().map_or(0, |floor| index_after(floor.0))
    }
}

impl<C: StoredConfig> RaftLogReader<C> for LogStore<C> {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> io::Result<Vec<C::Entry>> {
        let from = match range.start_bound() {
            Bound::Included(from) => *from,
            // No entry has an index above the highest.
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        self.entries(from, range.end_bound().cloned(), usize::MAX)
    }

    async fn limited_get_log_entries(&mut self, from: u64, end: u64) -> io::Result<Vec<C::Entry>> {
        self.entries(from, Bound::Excluded(end), READ_BYTES_MAX)
    }

    async fn read_vote(&mut self) -> io::Result<Option<RaftVote>> {
        Ok(ballot_to_vote(self.ballot()))
    }
}

impl<C: StoredConfig> RaftLogStorage<C> for LogStore<C> {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> io::Result<LogState<C>> {
        let last_purged_log_id = self.app_state()?.purged;
        let last = self.log.last_slot().map(|slot| self.read_entry_id(slot)).transpose()?;
        Ok(LogState { last_purged_log_id, last_log_id: last.or(last_purged_log_id) })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &RaftVote) -> io::Result<()> {
        let ballot = vote_to_ballot(vote)
            .ok_or_else(|| invalid_data(format!("a term above {TERM_MAX}: {vote}")))?;
        let promise = self.log.promise(ballot, SLOT_ABOVE_ENTRIES).map_err(to_io_error)?;
        promise.await.map(drop).map_err(to_io_error)?;
        match self.ballot() >= ballot {
            true => Ok(()),
            false => Err(self.fail("the promise of the log is not below a durable vote")),
        }
    }

    async fn save_committed(&mut self, committed: Option<EntryId>) -> io::Result<()> {
        let Some(committed) = committed else { return Ok(()) };
        debug_assert!(
            self.committed.lock().is_none_or(|before| before.index <= committed.index),
            "the commit index rises"
        );
        self.log.commit_through(Slot(committed.index)).map_err(to_io_error)?.detach();
        *self.committed.lock() = Some(committed);
        Ok(())
    }

    async fn read_committed(&mut self) -> io::Result<Option<EntryId>> {
        Ok(*self.committed.lock())
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<C>) -> io::Result<()>
    where
        I: IntoIterator<Item = C::Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut values: Vec<(Slot, Vec<u8>)> = Vec::new();
        for entry in entries {
            let slot = Slot(entry.log_id.index);
            if values.last().is_some_and(|(last, _)| index_after(last.0) != slot.0) {
                return Err(self.fail("openraft appends entries without a gap"));
            }
            values.push((slot, encode::<C>(&entry)?));
        }
        debug_assert!(
            values.first().is_none_or(|(first, _)| first.0 >= self.first_index()),
            "no entry is appended below the floor"
        );
        let values: Vec<_> = values.iter().map(|(slot, value)| (*slot, &value[..])).collect();
        let accepted = self.log.accept_batch(self.ballot(), &values).map_err(to_io_error)?;
        let (append, terminal) = (self.pending_appends.begin(), self.terminal.clone());
        accepted.on_resolved(move |outcome| {
            let broken = |internal| io::Error::from(terminal.fail_internal(internal));
            let resolved = append.resolve().map_err(broken);
            callback.io_completed(outcome.map_err(to_io_error).and(resolved));
        });
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<EntryId>) -> io::Result<()> {
        let from = last.map_or(0, |last| index_after(last.index)).max(self.first_index());
        self.log.truncate_from(Slot(from)).map_err(to_io_error)?.await.map_err(to_io_error)
    }

    async fn purge(&mut self, id: EntryId) -> io::Result<()> {
        let _turn = self.app_state_lock.lock().await;
        let state = self.app_state()?;
        if state.purged.is_some_and(|purged| id.index <= purged.index) {
            return Ok(());
        }
        let store = self.clone();
        let through = run_blocking(move || match store.lacks_entry(id)? {
            // It continues after a snapshot of another replica.
            true => Ok(Some(id)),
            false => Ok(store.purge_limit(id).unwrap_or_else(|error| {
                tracing::warn!(%error, "failed to find the entries to purge: they are kept");
                None
            })),
        });
        let Some(id) = through.await? else { return Ok(()) };
        if state.purged.is_some_and(|before| id.index <= before.index) {
            return Err(self.fail("a purge drops entries after the last purged one"));
        }
        let floor = Slot(id.index);
        let frontier = self.log.frontier().map_or(floor, |frontier| frontier.max(floor));
        let bounds = SnapshotBounds { floor, frontier };
        let state = AppState { purged: Some(id), ..state };
        let raised = self.log.app_state().set_and_install(&state.encode(), bounds);
        raised.map_err(to_io_error)?.await.map_err(to_io_error)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use esker_disk::Op;
    use esker_disk::sim::{Effect, Fault, Gate, SimDisk};
    use futures_util::poll;

    use super::*;
    use crate::base::type_config::CommittedLeader;
    use crate::node::commands::Commands;

    /// The node answers nothing that a leader may count on before the lease is durable.
    #[tokio::test]
    async fn a_lease_is_kept_when_it_is_durable() {
        let disk = SimDisk::new(1);
        let log = ConsensusLog::builder("/raft").disk(Arc::new(disk.clone())).open().unwrap();
        let store = LogStore::<Commands>::new(log).unwrap();
        let gate = Gate::new();
        disk.inject(Fault::on(Op::Write, Effect::Block(gate.clone())));
        let lease = Duration::from_secs(8);
        let mut keep = std::pin::pin!(store.store_lease(lease));
        let early = poll!(&mut keep);
        gate.open();
        assert!(early.is_pending(), "{early:?}");
        keep.await.unwrap();
        assert_eq!(store.app_state().unwrap().lease_ms, 8_000);
        assert_eq!(store.longest_lease(), lease);
    }

    /// A lease and a purge at the same time both stay.
    #[tokio::test]
    async fn a_lease_and_a_purge_at_once_are_both_kept() {
        for lease_is_first in [true, false] {
            let disk = SimDisk::new(1);
            let log = ConsensusLog::builder("/raft").disk(Arc::new(disk.clone())).open().unwrap();
            let store = LogStore::<Commands>::new(log).unwrap();
            let gate = Gate::new();
            disk.inject(Fault::on(Op::Write, Effect::Block(gate.clone())));
            let id = EntryId { leader_id: CommittedLeader::new(1), index: 4 };
            let lease = Duration::from_secs(8);
            let mut purging = store.clone();
            let (purge, keep) = (purging.purge(id), store.store_lease(lease));
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
            let expected = AppState { lease_ms: 8_000, purged: Some(id) };
            assert_eq!(store.app_state().unwrap(), expected);
        }
    }
}
