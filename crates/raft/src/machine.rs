//! The state machine, and its snapshots.

use std::fmt::{self, Debug};
use std::io::{self, Read};
use std::sync::Arc;

use esker_consensus::{ConsensusLog, Error, Slot, Snapshot};
use futures_util::{Stream, TryStreamExt};
use openraft::entry::EntryPayload;
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};
use openraft::{OptionalSend, StoredMembership};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::base::config::{Committed, Id, StoredConfig};
use crate::base::failure::{failed, invalid};
use crate::base::surroundings::is_simulated;

/// Snapshots that are kept: the newest, and one to fall back to if that is damaged.
const KEPT: usize = 2;

type Membership<C> = StoredMembership<Committed, u64, <C as openraft::RaftTypeConfig>::Node>;
type Meta<C> = openraft::SnapshotMeta<Committed, u64, <C as openraft::RaftTypeConfig>::Node>;
type Built<C> = openraft::Snapshot<Committed, u64, <C as openraft::RaftTypeConfig>::Node, Snapshot>;

/// A state machine that is in memory, and that [`MachineStore`] drives. All replicas apply the same
/// commands in the same order, and have to get the same state from them.
pub trait Machine<C: StoredConfig>: Send + 'static {
    /// Applies a command. Its effect may depend on nothing but the state and the command: not on a
    /// clock, and not on how many commands come at once.
    fn apply(&mut self, command: C::D) -> C::R;

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

/// What a snapshot's note says.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
struct Note<C: StoredConfig> {
    last_log_id: Option<Id>,
    last_membership: Membership<C>,
}

struct Applied<C: StoredConfig, M> {
    machine: M,
    last: Option<Id>,
    membership: Membership<C>,
}

/// A state machine in memory, whose snapshots are in the consensus log's directory. The two newest
/// are kept. Clones are handles of one state machine.
///
/// Opening restores the newest snapshot that is whole. openraft then applies the entries after it.
pub struct MachineStore<C: StoredConfig, M> {
    log: ConsensusLog,
    applied: Arc<Mutex<Applied<C, M>>>,
}

impl<C: StoredConfig, M> Clone for MachineStore<C, M> {
    fn clone(&self) -> Self {
        Self { log: self.log.clone(), applied: Arc::clone(&self.applied) }
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
    /// Why the newest was refused, when snapshots are there and none of them can be restored; those
    /// of reading.
    pub fn new(log: ConsensusLog, machine: M) -> io::Result<Self> {
        let applied = Applied { machine, last: None, membership: Membership::<C>::default() };
        let store = Self { log, applied: Arc::new(Mutex::new(applied)) };
        let (snapshots, mut below, mut refused) = (store.log.snapshots(), Slot(u64::MAX), None);
        loop {
            let (slot, error) = match snapshots.at_or_before(below) {
                Ok(snapshot) => {
                    let slot = snapshot.slot();
                    match store.restore(snapshot) {
                        Ok(()) => return Ok(store),
                        Err(error) => (slot, error),
                    }
                }
                Err(Error::NoSnapshot) => return refused.map_or(Ok(store), Err),
                Err(error) => return Err(refused.unwrap_or_else(|| failed(error))),
            };
            tracing::warn!(%slot, %error, "the state machine refuses a snapshot");
            refused.get_or_insert(error);
            match slot.0.checked_sub(1) {
                Some(slot) => below = Slot(slot),
                None => return refused.map_or(Ok(store), Err),
            }
        }
    }

    /// Calls `look` with the state machine, between two commands.
    pub fn with<T>(&self, look: impl FnOnce(&M) -> T) -> T {
        look(&self.applied.lock().machine)
    }

    fn restore(&self, mut snapshot: Snapshot) -> io::Result<()> {
        let note = note_of::<C>(&snapshot)?;
        let mut applied = self.applied.lock();
        applied.machine.restore(&mut snapshot)?;
        applied.last = note.last_log_id;
        applied.membership = note.last_membership;
        Ok(())
    }

    /// Writes a snapshot, durably, and reads it back.
    fn write(&self, meta: &Meta<C>, state: impl Read) -> io::Result<Snapshot> {
        let slot = slot_of(meta.last_log_id);
        let note = Note::<C> {
            last_log_id: meta.last_log_id,
            last_membership: meta.last_membership.clone(),
        };
        let mut writer = self.log.applied_snapshot_writer(slot).map_err(failed)?;
        writer.copy_from(state)?;
        writer.finish(&serde_json::to_vec(&note)?).map_err(failed)?;
        self.log.snapshots().verify(slot).map_err(failed)
    }

    /// Restores a snapshot from another replica, then stores it here, unless it was received into
    /// this directory. So a state that the machine refuses is not stored.
    fn install(&self, meta: &Meta<C>, mut snapshot: Snapshot) -> io::Result<()> {
        let own = self.log.snapshots().verify(slot_of(meta.last_log_id));
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
        self.log.keep_snapshots(KEPT).map(drop).map_err(failed)
    }
}

/// The slot that a snapshot is stored at. One of no entry is at the first, and its note says that
/// it has not even that.
fn slot_of(last: Option<Id>) -> Slot {
    Slot(last.map_or(0, |last| last.index))
}

fn note_of<C: StoredConfig>(snapshot: &Snapshot) -> io::Result<Note<C>> {
    let note: Note<C> = serde_json::from_slice(&snapshot.info().note)?;
    match slot_of(note.last_log_id) == snapshot.slot() {
        true => Ok(note),
        false => Err(invalid(format!("the note of the snapshot at {}", snapshot.slot()))),
    }
}

fn snapshot_of<C: StoredConfig>(snapshot: Snapshot) -> io::Result<Built<C>> {
    let Note { last_log_id, last_membership } = note_of::<C>(&snapshot)?;
    Ok(Built::<C> { meta: Meta::<C> { last_log_id, last_membership }, snapshot })
}

/// A snapshot that was received into this log's directory.
pub(crate) async fn received_snapshot<C: StoredConfig>(
    log: &ConsensusLog,
    slot: Slot,
) -> io::Result<Built<C>> {
    let snapshots = log.snapshots();
    snapshot_of::<C>(aside(move || snapshots.verify(slot).map_err(failed)).await?)
}

/// Runs blocking work on a thread of its own, and waits without blocking. A simulation waits.
async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    if is_simulated() {
        return work();
    }
    let (sender, done) = oneshot::channel();
    std::thread::Builder::new()
        .name("esker-snapshot".into())
        .spawn(move || drop(sender.send(work())))?;
    done.await.map_err(|_| io::Error::other("the thread of a snapshot panicked"))?
}

/// Writes one snapshot of the state as it was when openraft asked for this builder.
pub struct MachineSnapshot<C: StoredConfig, M> {
    store: MachineStore<C, M>,
    meta: Meta<C>,
    /// Until it is written. The lock is there because openraft wants a builder that is `Sync`.
    state: Mutex<Option<io::Result<Box<dyn Read + Send>>>>,
}

impl<C: StoredConfig, M> Debug for MachineSnapshot<C, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MachineSnapshot").field("meta", &self.meta).finish_non_exhaustive()
    }
}

impl<C: StoredConfig, M: Machine<C>> RaftSnapshotBuilder<C> for MachineSnapshot<C, M> {
    type SnapshotData = Snapshot;

    async fn build_snapshot(&mut self) -> io::Result<Built<C>> {
        let taken = || io::Error::other("this builder has built its snapshot");
        let state = self.state.get_mut().take().ok_or_else(taken)??;
        let (store, meta) = (self.store.clone(), self.meta.clone());
        let written = aside(move || {
            let written = store.write(&meta, state)?;
            store.log.keep_snapshots(KEPT).map_err(failed)?;
            Ok(written)
        });
        snapshot_of::<C>(written.await?)
    }
}

impl<C: StoredConfig, M: Machine<C>> RaftStateMachine<C> for MachineStore<C, M> {
    type SnapshotData = Snapshot;
    type SnapshotBuilder = MachineSnapshot<C, M>;

    async fn applied_state(&mut self) -> io::Result<(Option<Id>, Membership<C>)> {
        let applied = self.applied.lock();
        Ok((applied.last, applied.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<C>>> + Unpin + OptionalSend,
    {
        while let Some((entry, responder)) = entries.try_next().await? {
            let mut applied = self.applied.lock();
            let answer = match entry.payload {
                EntryPayload::Normal(command) => applied.machine.apply(command),
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

    async fn get_snapshot_builder(&mut self) -> MachineSnapshot<C, M> {
        let applied = self.applied.lock();
        let meta =
            Meta::<C> { last_log_id: applied.last, last_membership: applied.membership.clone() };
        let state = Mutex::new(Some(applied.machine.state()));
        MachineSnapshot { store: self.clone(), meta, state }
    }

    async fn install_snapshot(&mut self, meta: &Meta<C>, snapshot: Snapshot) -> io::Result<()> {
        let (store, meta) = (self.clone(), meta.clone());
        aside(move || store.install(&meta, snapshot)).await
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<Built<C>>> {
        let snapshots = self.log.snapshots();
        let latest = aside(move || match snapshots.latest() {
            Err(Error::NoSnapshot) => Ok(None),
            latest => latest.map(Some).map_err(failed),
        });
        latest.await?.map(snapshot_of::<C>).transpose()
    }
}
