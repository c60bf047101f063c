//! The store of the state machine and of its snapshots.

use std::fmt::{self, Debug};
use std::io::{self, Read};
use std::sync::Arc;

use esker_consensus::{ConsensusLog, Slot, Snapshot, SnapshotError};
use futures_util::{Stream, TryStreamExt};
use openraft::entry::EntryPayload;
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};
use openraft::{OptionalSend, StoredMembership};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::base::blocking::run_blocking;
use crate::base::encoding::INDEX_MAX;
use crate::base::failure::{Internal, TerminalState, invalid_data, to_io_error};
use crate::base::type_config::{CommittedLeader, EntryId, StoredConfig};

type Membership<C> = StoredMembership<CommittedLeader, u64, <C as openraft::RaftTypeConfig>::Node>;
type SnapshotMeta<C> =
    openraft::SnapshotMeta<CommittedLeader, u64, <C as openraft::RaftTypeConfig>::Node>;
type RaftSnapshot<C> =
    openraft::Snapshot<CommittedLeader, u64, <C as openraft::RaftTypeConfig>::Node, Snapshot>;

/// A state machine that is in memory, and that [`MachineStore`] drives. All replicas apply the same
/// commands in the same order, and have to get the same state from them.
pub trait Machine<C: StoredConfig>: Send + 'static {
    /// Applies a command. Its effect may depend on nothing but the state and the command: not on a
    /// clock, and not on how many commands come at once.
    ///
    /// # Errors
    /// A command that this build does not know. The state is then as it was before, and the node
    /// stops: one that skipped the command would have another state than the other nodes.
    fn apply(&mut self, command: C::D) -> io::Result<C::R>;

    /// The answer to an entry that has no command: a blank one, or a membership.
    fn answer(&self) -> C::R;

    /// The state as it is now, as bytes. Commands that are applied while they are read do not
    /// change them.
    ///
    /// # Errors
    /// Any: the snapshot is given up.
    fn state(&self) -> io::Result<Box<dyn Read + Send>>;

    /// Replaces the state by that of a snapshot.
    ///
    /// # Errors
    /// Bytes that [`Machine::state`] did not return. The state is then as it was before.
    fn restore(&mut self, state: &mut dyn Read) -> io::Result<()>;
}

/// A snapshot that cannot be restored, and the reason: with the file, if that is damaged.
struct UnusableSnapshot {
    slot: Slot,
    why: String,
}

/// The snapshot that an error of reading is about.
fn to_unusable(error: &SnapshotError) -> Option<UnusableSnapshot> {
    let SnapshotError::CorruptedSnapshot { slot, cause } = error else { return None };
    Some(UnusableSnapshot { slot: *slot, why: format!("the snapshot at slot {slot}: {cause}") })
}

/// The note of a snapshot.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
struct SnapshotNote<C: StoredConfig> {
    last_log_id: Option<EntryId>,
    last_membership: Membership<C>,
}

/// The state machine, and the last entry that it has applied.
struct AppliedState<C: StoredConfig, M> {
    machine: M,
    last: Option<EntryId>,
    membership: Membership<C>,
    /// The newest snapshot that the machine has restored or written.
    snapshot: Option<Slot>,
}

/// A state machine in memory, whose snapshots are in the consensus log's directory. The newest is
/// kept, and one to fall back to if that is damaged. Clones are handles of one state machine.
///
/// Opening restores the newest snapshot that is whole, or else begins with the first entry.
/// openraft then applies the entries after it: a purge of [`LogStore`](crate::LogStore) keeps those
/// that the older snapshot needs.
pub struct MachineStore<C: StoredConfig, M> {
    log: ConsensusLog,
    applied: Arc<Mutex<AppliedState<C, M>>>,
    terminal: TerminalState,
}

impl<C: StoredConfig, M> Clone for MachineStore<C, M> {
    fn clone(&self) -> Self {
        let (log, applied) = (self.log.clone(), Arc::clone(&self.applied));
        Self { log, applied, terminal: self.terminal.clone() }
    }
}

impl<C: StoredConfig, M> Debug for MachineStore<C, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MachineStore").field("log", &self.log).finish_non_exhaustive()
    }
}

impl<C: StoredConfig, M: Machine<C>> MachineStore<C, M> {
    /// Restores `machine` from the newest snapshot in the directory of this log that is whole and
    /// that the machine takes; if there are no snapshots, it stays as it is. Blocks.
    ///
    /// # Errors
    /// `InvalidData` if a snapshot is damaged, missing, or refused by the machine, and the
    /// snapshots before it do not give its state with the log: the error names the file and the
    /// remedy. Errors of reading.
    pub fn new(log: ConsensusLog, machine: M) -> io::Result<Self> {
        Self::with_terminal(log, machine, TerminalState::default())
    }

    /// Creates the store of a node that has this terminal state.
    pub(crate) fn with_terminal(
        log: ConsensusLog,
        machine: M,
        terminal: TerminalState,
    ) -> io::Result<Self> {
        let membership = Membership::<C>::default();
        let applied = AppliedState { machine, last: None, membership, snapshot: None };
        let store = Self { log, applied: Arc::new(Mutex::new(applied)), terminal };
        let unusable = store.restore_newest()?;
        store.check_no_gap(unusable)?;
        Ok(store)
    }

    /// Restores the newest snapshot that is whole and that the machine takes. Returns the newest
    /// snapshot of all if it is another one.
    fn restore_newest(&self) -> io::Result<Option<UnusableSnapshot>> {
        let (snapshots, mut below, mut newest) = (self.log.snapshots(), Slot(u64::MAX), None);
        loop {
            let (slot, why) = match snapshots.at_or_before(below) {
                Ok(snapshot) => {
                    if let Some(error) = snapshot.skipped().first() {
                        newest = newest.or_else(|| to_unusable(error));
                    }
                    let slot = snapshot.slot();
                    match self.restore(snapshot) {
                        Ok(()) => return Ok(newest),
                        Err(error) => (slot, error),
                    }
                }
                Err(SnapshotError::NoSnapshot) => return Ok(newest),
                Err(error) => match to_unusable(&error) {
                    Some(damaged) => return Ok(newest.or(Some(damaged))),
                    None => return Err(to_io_error(error)),
                },
            };
            tracing::warn!(%slot, error = %why, "the state machine refuses a snapshot");
            let why = format!("the state machine refuses the snapshot at slot {slot}: {why}");
            newest.get_or_insert(UnusableSnapshot { slot, why });
            match slot.0.checked_sub(1) {
                Some(slot) => below = Slot(slot),
                None => return Ok(newest),
            }
        }
    }

    /// Fails unless the log has the entries after the restored state, up to the last one of the
    /// newest snapshot. Otherwise entries would be lost that this node has acknowledged.
    fn check_no_gap(&self, newest: Option<UnusableSnapshot>) -> io::Result<()> {
        let next = self.applied.lock().last.map_or(0, |last| last.index.saturating_add(1));
        let first = self.log.floor().map_or(0, |floor| floor.0.saturating_add(1));
        let end = self.log.last_slot().map_or(first, |last| last.0.saturating_add(1)).max(first);
        let needed = newest.as_ref().map_or(next, |newest| newest.slot.0.saturating_add(1));
        if first <= next && needed <= end.max(next) {
            return Ok(());
        }
        let why = newest.map_or_else(|| "a snapshot's file is missing".into(), |newest| newest.why);
        Err(invalid_data(format!(
            "the state of this node cannot be rebuilt: {why}; what is left is the state before \
             entry {next}, and a log from entry {first} to before {end}. Put the file back from a \
             backup of this directory; or remove the node, and let it join under a new number, in \
             an empty directory"
        )))
    }

    /// Calls `read` with the state machine, between two commands.
    pub fn with<T>(&self, read: impl FnOnce(&M) -> T) -> T {
        read(&self.applied.lock().machine)
    }

    /// Claims that the entry at this index was applied.
    #[cfg(test)]
    pub(crate) fn set_applied_index(&self, index: u64) {
        let mut applied = self.applied.lock();
        applied.last = applied.last.map(|last| EntryId { index, ..last });
    }

    /// Fails the node for good, because an invariant does not hold.
    fn fail(&self, invariant: &'static str) -> io::Error {
        self.terminal.fail_internal(Internal::new(invariant)).into()
    }

    fn restore(&self, mut snapshot: Snapshot) -> io::Result<()> {
        let note = read_note::<C>(&snapshot)?;
        let mut applied = self.applied.lock();
        applied.machine.restore(&mut snapshot)?;
        applied.last = note.last_log_id;
        applied.membership = note.last_membership;
        applied.snapshot = Some(snapshot.slot());
        Ok(())
    }

    /// Writes a snapshot, durably, and reads it back.
    fn write(&self, meta: &SnapshotMeta<C>, state: impl Read) -> io::Result<Snapshot> {
        let slot = snapshot_slot(meta.last_log_id);
        let note = SnapshotNote::<C> {
            last_log_id: meta.last_log_id,
            last_membership: meta.last_membership.clone(),
        };
        let mut writer = self.log.snapshots().applied_writer(slot).map_err(to_io_error)?;
        writer.copy_from(state)?;
        writer.finish(&serde_json::to_vec(&note)?).map_err(to_io_error)?;
        let written = self.log.snapshots().verify(slot).map_err(to_io_error)?;
        if read_note::<C>(&written)?.last_log_id != meta.last_log_id {
            return Err(self.fail("a stored snapshot has the note that was written"));
        }
        Ok(written)
    }

    /// Restores a snapshot from another replica, then stores it here, unless it was received into
    /// this directory. So a state that the machine refuses is not stored.
    fn install(&self, meta: &SnapshotMeta<C>, mut snapshot: Snapshot) -> io::Result<()> {
        let own = self.log.snapshots().verify(snapshot_slot(meta.last_log_id));
        let is_here = own.is_ok_and(|own| own.info() == snapshot.info());
        let mut applied = self.applied.lock();
        applied.machine.restore(&mut snapshot)?;
        applied.last = meta.last_log_id;
        applied.membership = meta.last_membership.clone();
        let state = applied.machine.state()?;
        drop(applied);
        if !is_here {
            self.write(meta, state)?;
        }
        self.retain_fallback(snapshot_slot(meta.last_log_id))
    }

    /// Makes the snapshot at this slot, which is whole, the newest, and removes the snapshots
    /// before the fallback: the newest one before it that is whole and that the machine took.
    /// Without a fallback, all before it are removed. A purge drops what the oldest has, and does
    /// not read it.
    fn retain_fallback(&self, slot: Slot) -> io::Result<()> {
        let before = {
            let mut applied = self.applied.lock();
            let before = applied.snapshot;
            applied.snapshot = before.max(Some(slot));
            before
        };
        let fallback = match before {
            Some(before) if before == slot => slot.0.checked_sub(1).map(Slot),
            before => before.map(|before| before.min(slot)),
        };
        let snapshots = self.log.snapshots();
        let count = match fallback.map(|fallback| snapshots.at_or_before(fallback)) {
            None
            | Some(Err(SnapshotError::NoSnapshot | SnapshotError::CorruptedSnapshot { .. })) => 1,
            Some(Ok(fallback)) => {
                let all = snapshots.list().map_err(to_io_error)?;
                all.into_iter().filter(|slot| *slot >= fallback.slot()).count()
            }
            Some(Err(error)) => return Err(to_io_error(error)),
        };
        if count == 0 {
            return Err(self.fail("the newest snapshot is kept"));
        }
        self.log.snapshots().keep(count).map(drop).map_err(to_io_error)
    }
}

/// The slot that a snapshot is stored at. A snapshot of no entry is at the first slot, and its note
/// says that it does not have that entry.
fn snapshot_slot(last: Option<EntryId>) -> Slot {
    Slot(last.map_or(0, |last| last.index))
}

fn read_note<C: StoredConfig>(snapshot: &Snapshot) -> io::Result<SnapshotNote<C>> {
    let note: SnapshotNote<C> = serde_json::from_slice(&snapshot.info().note)?;
    match snapshot_slot(note.last_log_id) == snapshot.slot() {
        true => Ok(note),
        false => Err(invalid_data(format!("the note of the snapshot at {}", snapshot.slot()))),
    }
}

fn to_raft_snapshot<C: StoredConfig>(snapshot: Snapshot) -> io::Result<RaftSnapshot<C>> {
    let SnapshotNote { last_log_id, last_membership } = read_note::<C>(&snapshot)?;
    Ok(RaftSnapshot::<C> { meta: SnapshotMeta::<C> { last_log_id, last_membership }, snapshot })
}

/// Opens a snapshot that was received into this log's directory.
pub(crate) async fn open_received_snapshot<C: StoredConfig>(
    log: &ConsensusLog,
    slot: Slot,
) -> io::Result<RaftSnapshot<C>> {
    if slot.0 > INDEX_MAX {
        return Err(invalid_data(format!("the snapshot at {slot} is above {INDEX_MAX}")));
    }
    let snapshots = log.snapshots();
    to_raft_snapshot::<C>(run_blocking(move || snapshots.verify(slot).map_err(to_io_error)).await?)
}

/// Writes one snapshot of the state as it was when openraft asked for this builder.
pub struct MachineSnapshotBuilder<C: StoredConfig, M> {
    store: MachineStore<C, M>,
    meta: SnapshotMeta<C>,
    /// The state until it is written. The lock makes the builder `Sync`, as openraft demands.
    state: Mutex<Option<io::Result<Box<dyn Read + Send>>>>,
}

impl<C: StoredConfig, M> Debug for MachineSnapshotBuilder<C, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MachineSnapshotBuilder").field("meta", &self.meta).finish_non_exhaustive()
    }
}

impl<C: StoredConfig, M: Machine<C>> RaftSnapshotBuilder<C> for MachineSnapshotBuilder<C, M> {
    type SnapshotData = Snapshot;

    async fn build_snapshot(&mut self) -> io::Result<RaftSnapshot<C>> {
        let built = || io::Error::other("this builder has built its snapshot");
        let state = self.state.get_mut().take().ok_or_else(built)??;
        let (store, meta) = (self.store.clone(), self.meta.clone());
        let written = run_blocking(move || {
            let written = store.write(&meta, state)?;
            store.retain_fallback(written.slot())?;
            Ok(written)
        });
        to_raft_snapshot::<C>(written.await?)
    }
}

impl<C: StoredConfig, M: Machine<C>> RaftStateMachine<C> for MachineStore<C, M> {
    type SnapshotData = Snapshot;
    type SnapshotBuilder = MachineSnapshotBuilder<C, M>;

    async fn applied_state(&mut self) -> io::Result<(Option<EntryId>, Membership<C>)> {
        let applied = self.applied.lock();
        Ok((applied.last, applied.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<C>>> + Unpin + OptionalSend,
    {
        while let Some((entry, responder)) = entries.try_next().await? {
            let mut applied = self.applied.lock();
            if applied.last >= Some(entry.log_id) {
                drop(applied);
                return Err(self.fail("entries are applied once, in their order"));
            }
            let answer = match entry.payload {
                EntryPayload::Normal(command) => {
                    let (index, answer) = (entry.log_id.index, applied.machine.apply(command));
                    // An error stops the node.
                    let why =
                        |error: io::Error| format!("entry {index} cannot be applied: {error}");
                    answer.map_err(|error| invalid_data(why(error)))?
                }
                EntryPayload::Blank => applied.machine.answer(),
                EntryPayload::Membership(membership) => {
                    applied.membership = StoredMembership::new(Some(entry.log_id), membership);
                    applied.machine.answer()
                }
            };
            applied.last = Some(entry.log_id);
            drop(applied);
            if let Some(responder) = responder {
                responder.send(answer);
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> MachineSnapshotBuilder<C, M> {
        let applied = self.applied.lock();
        debug_assert!(
            applied.snapshot.is_none_or(|newest| newest <= snapshot_slot(applied.last)),
            "no snapshot is newer than the state"
        );
        let meta = SnapshotMeta::<C> {
            last_log_id: applied.last,
            last_membership: applied.membership.clone(),
        };
        let state = Mutex::new(Some(applied.machine.state()));
        MachineSnapshotBuilder { store: self.clone(), meta, state }
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta<C>,
        snapshot: Snapshot,
    ) -> io::Result<()> {
        let (store, meta) = (self.clone(), meta.clone());
        run_blocking(move || store.install(&meta, snapshot)).await
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<RaftSnapshot<C>>> {
        // The machine refused a newer one: openraft would install it again.
        let Some(newest) = self.applied.lock().snapshot else { return Ok(None) };
        let snapshots = self.log.snapshots();
        let latest = run_blocking(move || match snapshots.at_or_before(newest) {
            // If all are corrupt, the log begins with the first entry: opening has checked that.
            Err(SnapshotError::NoSnapshot | SnapshotError::CorruptedSnapshot { .. }) => Ok(None),
            latest => latest.map(Some).map_err(to_io_error),
        });
        latest.await?.map(to_raft_snapshot::<C>).transpose()
    }
}
