//! The keys that a manager knows, durably: a log of its own in which each key is added and removed.
//!
//! # The crash argument
//!
//! A key is added, durably, before the directory of its log is created. Its removal is announced,
//! durably, before the first file of the log is removed, and recorded after the last one is. So
//! after a crash every log has its key here, and a removal that began is completed by the next
//! opening.
//!
//! The creation of a key's log is recorded after its files are durable. From then on, a
//! directory without a log is an error: it was removed, with what the node promised.
//!
//! Compaction appends every key again, and then drops the records before these. Replaying both
//! gives the same keys as either.
//!
//! A registry counts only once it was recorded as whole. It is recorded when it is created, after
//! the labels of the logs that were there had been added. So a registry that was lost is made
//! again, whenever a crash interrupts that.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use esker_disk::DirDisk;
use esker_disk::planted::{Bug, is_planted};
use esker_log::component::{Purpose, SharedReserve};
use esker_log::{Append, Component, Log, Start, Ticket};
use parking_lot::Mutex;

use crate::backup;
use crate::component::{REGISTRY_COMPONENT, REGISTRY_COPY_COMPONENT, UNFINISHED_BACKUP};
use crate::errors::manager_errors::{BackupError, OpenError};
use crate::manager::directory_names::REGISTRY_DIR;
use crate::manager::glob::Glob;
use crate::manager::registry_state::{Kind, RegistryState};
use crate::options::{LABEL_LIMIT, Options};
use crate::read_only::ReadOnlyReason;
use crate::storage_error::StorageError;

const SEGMENT_BYTES: u32 = 1 << 20;
const BUFFER_BYTES: u32 = 64 << 10;
/// Records that are dead before the registry compacts itself.
const DEAD_RECORDS_MAX: u64 = 4096;
/// Keys in one batch of a compaction.
const KEYS_PER_BATCH: usize = 256;

// A record of the longest key fits in the staging memory.
const _: () = assert!(LABEL_LIMIT < BUFFER_BYTES as usize && BUFFER_BYTES < SEGMENT_BYTES);

#[derive(Debug)]
pub(super) struct Registry {
    log: Log,
    state: Mutex<LockedState>,
    /// Whether it is that of a backup, to which no key is added.
    copied: AtomicBool,
}

/// The keys, and whether they may be changed.
#[derive(Debug)]
struct LockedState {
    keys: RegistryState,
    closed: bool,
    /// A change may not have become durable. The log refuses every other one.
    failed: bool,
}

impl LockedState {
    fn refuse_if_closed(&self) -> Result<(), StorageError> {
        if self.closed { Err(StorageError::Closed) } else { Ok(()) }
    }
}

impl Registry {
    /// Opens the registry in a manager's directory, and creates it if there is none, unless it has
    /// to be there.
    pub(super) fn open(
        disk: &DirDisk,
        options: &Options,
        must_exist: bool,
    ) -> Result<Self, OpenError> {
        let mut own = log_options(disk, options, REGISTRY_COMPONENT);
        own.must_exist = must_exist;
        let dir = disk.dir().path_of(REGISTRY_DIR);
        let open = |own| Log::builder(REGISTRY_DIR).options(own).open();
        let (log, copied) = match open(own.clone()) {
            Err(esker_log::OpenError::WrongComponent {
                found: Some(REGISTRY_COPY_COMPONENT),
                ..
            }) => {
                own.component = Some(REGISTRY_COPY_COMPONENT);
                (open(own), true)
            }
            log => (log, false),
        };
        let log = log.map_err(|error| unreadable(&dir, StorageError::from_log(error)))?;
        let records = log.stream(Start::Oldest).map_err(StorageError::from_log);
        let state = records.and_then(RegistryState::read);
        let keys = state.map_err(|error| unreadable(&dir, error))?;
        let state = LockedState { keys, closed: false, failed: false };
        Ok(Self { log, state: Mutex::new(state), copied: copied.into() })
    }

    /// Whether it is that of a backup.
    pub(super) fn is_copied(&self) -> bool {
        self.copied.load(Relaxed)
    }

    /// Refuses a change of the keys of a backup.
    pub(super) fn refuse_if_copied(&self) -> Result<(), StorageError> {
        let reason = ReadOnlyReason::Copied;
        if self.is_copied() { Err(StorageError::ReadOnly { reason }) } else { Ok(()) }
    }

    /// Makes that of a backup an ordinary one, durably.
    pub(super) fn renumber(&self) -> Result<(), StorageError> {
        if self.is_copied() {
            self.log
                .component()
                .set_component(REGISTRY_COPY_COMPONENT, REGISTRY_COMPONENT, &[])
                .map_err(StorageError::from_log)?;
            self.copied.store(false, Relaxed);
        }
        Ok(())
    }

    /// The reserve of the registry, which all logs use.
    pub(super) fn shared_reserve(&self) -> SharedReserve {
        self.log.component().shared_reserve()
    }

    /// Whether every log in the directory has its key here.
    pub(super) fn is_whole(&self) -> bool {
        self.state.lock().keys.is_whole()
    }

    /// Records that it is whole.
    pub(super) fn make_whole(&self) -> Result<(), StorageError> {
        self.change(Kind::Whole, &[])
    }

    /// Adds a key, durably.
    pub(super) fn add(&self, key: &[u8]) -> Result<(), StorageError> {
        let is_durable = {
            let state = self.state.lock();
            state.keys.is_kept(key) && !state.failed
        };
        if is_durable { Ok(()) } else { self.change(Kind::Added, key) }
    }

    /// Records that the log of a key that was added is created and durable. Requests no sync: until
    /// it is durable, the loss of the log's directory is not noticed, and nothing else depends on
    /// it.
    pub(super) fn note_created(&self, key: &[u8]) {
        let mut state = self.state.lock();
        if state.closed || !state.keys.is_added(key) {
            return;
        }
        let record = Kind::Created.record(key);
        let noted = self.log.append(&*record).map_err(StorageError::from_log).and_then(|ticket| {
            state.keys.replay(ticket.seq(), &record)?;
            ticket.detach();
            Ok(())
        });
        if let Err(error) = noted {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                key = %key.escape_ascii(),
                "failed to record that a log was created"
            );
        }
    }

    /// Whether the log of a key was created, and its removal did not begin.
    pub(super) fn is_created(&self, key: &[u8]) -> bool {
        self.state.lock().keys.is_created(key)
    }

    /// Announces that a key is removed.
    pub(super) fn begin_removal(&self, key: &[u8]) -> Result<(), StorageError> {
        self.change(Kind::Removing, key)
    }

    /// Records that a key was removed.
    pub(super) fn end_removal(&self, key: &[u8]) -> Result<(), StorageError> {
        self.change(Kind::Removed, key)
    }

    fn change(&self, kind: Kind, key: &[u8]) -> Result<(), StorageError> {
        let ticket = {
            let mut state = self.state.lock();
            state.refuse_if_closed()?;
            match self.compact_if_due(&mut state) {
                // Later, when there is room: removals make some.
                Err(error) if error.is_no_space() => {}
                compacted => compacted?,
            }
            let record = kind.record(key);
            let ticket = match kind {
                // Removals free space: they must succeed on a full disk.
                Kind::Removing | Kind::Removed => {
                    self.log.component().append(Purpose::Internal, &*record)
                }
                _ => self.log.append(&*record),
            };
            let ticket = ticket.map_err(StorageError::from_log)?;
            state.keys.replay(ticket.seq(), &record)?;
            ticket
        };
        if kind == Kind::Added && is_planted(Bug::KeyNotDurable) {
            ticket.detach();
            return Ok(());
        }
        ticket.blocking_wait().map(drop).map_err(|error| {
            self.state.lock().failed = true;
            StorageError::from_log(error)
        })
    }

    /// Whether the removal of a key durably began and did not end.
    pub(super) fn is_removing(&self, key: &[u8]) -> bool {
        let state = self.state.lock();
        state.keys.is_removing(key) && !state.failed
    }

    /// The directories of all keys, those that are being removed too.
    pub(super) fn directories(&self) -> BTreeSet<String> {
        self.state.lock().keys.directories()
    }

    /// The keys whose removal began.
    pub(super) fn removing(&self) -> Vec<Arc<[u8]>> {
        self.state.lock().keys.removing().cloned().collect()
    }

    /// All keys, in order.
    pub(super) fn keys(&self) -> Result<Vec<Arc<[u8]>>, StorageError> {
        let state = self.state.lock();
        state.refuse_if_closed()?;
        Ok(state.keys.kept().cloned().collect())
    }

    pub(super) fn count(&self) -> Result<usize, StorageError> {
        let state = self.state.lock();
        state.refuse_if_closed()?;
        Ok(state.keys.kept().count())
    }

    pub(super) fn has(&self, key: &[u8]) -> Result<bool, StorageError> {
        let state = self.state.lock();
        state.refuse_if_closed()?;
        Ok(state.keys.is_kept(key))
    }

    /// Whether a key was added, and the end of its removal was not recorded.
    pub(super) fn is_known(&self, key: &[u8]) -> Result<bool, StorageError> {
        let state = self.state.lock();
        state.refuse_if_closed()?;
        Ok(state.keys.is_known(key))
    }

    /// The keys that a pattern matches, in order.
    pub(super) fn glob(&self, pattern: &[u8]) -> Result<Vec<Arc<[u8]>>, StorageError> {
        Ok(Glob::parse(pattern).matching(&self.keys()?))
    }

    fn compact_if_due(&self, state: &mut LockedState) -> Result<(), StorageError> {
        if state.keys.records > 2 * state.keys.live_records() + DEAD_RECORDS_MAX {
            self.compact_locked(state)
        } else {
            Ok(())
        }
    }

    /// Drops the records of keys that were removed, or added before. Other changes wait.
    pub(super) fn compact(&self) -> Result<(), StorageError> {
        let mut state = self.state.lock();
        state.refuse_if_closed()?;
        self.compact_locked(&mut state)
    }

    fn compact_locked(&self, state: &mut LockedState) -> Result<(), StorageError> {
        let records = state.keys.compacted();
        let first = self.log.accepted().next();
        let mut last: Option<Ticket> = None;
        for batch in records.chunks(KEYS_PER_BATCH) {
            let ticket = self.log.write(Append::records(batch)).map_err(StorageError::from_log)?;
            // One sync for all: the last one's.
            if let Some(before) = last.replace(ticket) {
                before.detach();
            }
        }
        if is_planted(Bug::RegistryDroppedTooEarly) {
            last.take().into_iter().for_each(Ticket::detach);
        }
        if let Some(ticket) = last {
            ticket.blocking_wait().map_err(StorageError::from_log)?;
        }
        self.log.retention().truncate_before(first).map_err(StorageError::from_log)?;
        debug_assert!(state.keys.last() < first, "a change was made during the compaction");
        state.keys.records = records.len() as u64;
        Ok(())
    }

    /// Refuses everything from here on, and closes the log.
    pub(super) fn close(&self) -> Result<(), StorageError> {
        let mut state = self.state.lock();
        state.refuse_if_closed()?;
        state.closed = true;
        self.log.close().map_err(StorageError::from_log)
    }
}

/// The error for a registry that cannot be read, in the words of a manager.
pub(super) fn unreadable(dir: &Path, error: StorageError) -> OpenError {
    use esker_log::Error as Below;
    match error {
        StorageError::Log(Below::WrongComponent { found: Some(UNFINISHED_BACKUP), .. }) => {
            let dir = dir.parent().unwrap_or(dir);
            OpenError::UnfinishedBackup { dir: dir.into() }
        }
        StorageError::Log(
            Below::Corrupted(_)
            | Below::Quarantined { .. }
            | Below::NotALog { .. }
            | Below::WrongComponent { found: None, .. },
        )
        | StorageError::CorruptedRecord { .. } => {
            OpenError::CorruptedRegistry { dir: dir.into(), cause: Box::new(error) }
        }
        error => error.into(),
    }
}

/// Creates the registry of a backup, which no manager opens before [`finish_copy`].
pub(super) fn begin_copy(disk: &DirDisk, options: &Options) -> Result<Log, BackupError> {
    let own = log_options(disk, options, UNFINISHED_BACKUP);
    backup::begin(REGISTRY_DIR.as_ref(), &own)
}

/// Writes the keys of a backup, which has a log of each, and makes it the registry of a manager
/// that is read-only, durably.
pub(super) fn finish_copy(log: &Log, keys: &[Arc<[u8]>]) -> Result<(), StorageError> {
    for keys in keys.chunks(KEYS_PER_BATCH) {
        let records: Vec<_> = keys.iter().map(|key| Kind::Created.record(key)).collect();
        log.write(Append::records(&records)).map_err(StorageError::from_log)?.detach();
    }
    log.append(Kind::Whole.record(&[]))
        .map_err(StorageError::from_log)?
        .blocking_wait()
        .map_err(StorageError::from_log)?;
    log.component()
        .set_component(UNFINISHED_BACKUP, REGISTRY_COPY_COMPONENT, &[])
        .map_err(StorageError::from_log)?;
    backup::close(log);
    Ok(())
}

fn log_options(disk: &DirDisk, options: &Options, component: Component) -> esker_log::Options {
    let mut own = esker_log::Options::on(Arc::new(disk.clone()));
    own.component = Some(component);
    own.segment_size = SEGMENT_BYTES;
    own.buffer_size = BUFFER_BYTES;
    own.reserve = options.log.reserve;
    own.direct = options.log.direct;
    own.dsync = options.log.dsync;
    own.engine.clone_from(&options.log.engine);
    own
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use esker_disk::sim::{Effect, Fault, SimDisk};
    use esker_disk::{Disk, Op};
    use esker_log::{Engine, Seq};

    use super::*;

    const DIR: &str = "/logs";

    fn open(disk: &SimDisk) -> Registry {
        let base = disk.create_dir(Path::new(DIR)).unwrap();
        let mut options = Options::on(Arc::new(disk.clone()));
        options.log.engine = Some(Engine::manual());
        Registry::open(&DirDisk::new(base), &options, false).unwrap()
    }

    fn key(number: usize) -> Vec<u8> {
        format!("table/{number:04}").into_bytes()
    }

    /// From 1,000 keys on, several threads match them, and the order stays.
    #[test]
    fn many_keys_are_matched_in_order() {
        let registry = open(&SimDisk::new(1));
        for count in [999, 1000, 1001, 1500] {
            for number in registry.count().unwrap()..count {
                registry.add(&key(number)).unwrap();
            }
            let found = |pattern: &str| registry.glob(pattern.as_bytes()).unwrap();
            assert_eq!(found("table/*"), registry.keys().unwrap());
            assert_eq!((found("table/01??").len(), found("*[!0-9]").len()), (100, 0));
            assert!(found("*").is_sorted() && found("*").len() == count);
        }
    }

    /// The same keys again and again: the registry compacts itself, and stays small.
    #[test]
    fn a_registry_compacts_itself() {
        let disk = SimDisk::new(1);
        let registry = open(&disk);
        registry.make_whole().unwrap();
        registry.add(b"stays").unwrap();
        for round in 0..3 * DEAD_RECORDS_MAX {
            registry.add(&key(round as usize % 3)).unwrap();
            registry.begin_removal(&key(round as usize % 3)).unwrap();
            if round % 2 == 0 {
                registry.end_removal(&key(round as usize % 3)).unwrap();
            }
            assert!(registry.state.lock().keys.records <= DEAD_RECORDS_MAX + 20);
        }
        let (keys, removing) = (registry.keys().unwrap(), registry.removing());
        assert_eq!(keys, [Arc::from(&b"stays"[..])]);
        assert!(!removing.is_empty());
        registry.compact().unwrap();
        let oldest = registry.log.oldest();
        assert!(oldest > Seq(1000), "{oldest}");
        registry.close().unwrap();
        assert!(matches!(registry.add(b"more"), Err(StorageError::Closed)));
        let registry = open(&disk);
        assert!(registry.is_whole());
        assert_eq!((registry.keys().unwrap(), registry.removing()), (keys, removing));
    }

    /// A change whose commit failed may be lost: nothing is done on the strength of it.
    #[test]
    fn a_change_that_may_not_be_durable_does_not_count() {
        for removal in [false, true] {
            let disk = SimDisk::new(1);
            let registry = open(&disk);
            registry.add(b"kept").unwrap();
            disk.inject(Fault::on(Op::Write, Effect::Io).path(REGISTRY_DIR).nth(1));
            let failed =
                if removal { registry.begin_removal(b"kept") } else { registry.add(b"new") };
            assert!(
                matches!(failed, Err(StorageError::Log(esker_log::Error::Io(_)))),
                "{failed:?}"
            );
            assert!(!registry.is_removing(b"kept"));
            // The disk is well again, but the record may be lost.
            assert!(registry.add(b"new").is_err() && registry.begin_removal(b"kept").is_err());
            assert!(!registry.is_removing(b"kept"));
        }
    }

    /// On a full disk there may be no room for all keys again, but a removal makes some.
    #[test]
    fn a_compaction_without_room_stops_no_removal() {
        let disk = SimDisk::new(1);
        let registry = open(&disk);
        // More than fits beside the records of a segment.
        let long = |number: usize| [&*key(number), &[b'x'; LABEL_LIMIT - 20]].concat();
        (0..300).for_each(|number| registry.add(&long(number)).unwrap());
        let due = 100 * DEAD_RECORDS_MAX;
        registry.state.lock().keys.records = due;
        disk.set_capacity(Some(disk.used()));
        for number in 0..5 {
            registry.begin_removal(&long(number)).unwrap();
            registry.end_removal(&long(number)).unwrap();
        }
        assert!(registry.state.lock().keys.records > due, "it was compacted");
        let refused = registry.compact();
        assert!(
            matches!(&refused, Err(StorageError::Log(error)) if error.is_no_space()),
            "{refused:?}"
        );
        // With room, the next change compacts.
        disk.set_capacity(None);
        registry.add(&long(0)).unwrap();
        assert!(registry.state.lock().keys.records < DEAD_RECORDS_MAX);
        assert_eq!(registry.count().unwrap(), 296);
        registry.close().unwrap();
        assert_eq!(open(&disk).count().unwrap(), 296);
    }
}
