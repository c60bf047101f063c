//! The keyspaces of a store, by name and by number.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use esker_disk::process;
use esker_log::Seq;
use parking_lot::{Mutex, RwLock};

use crate::index::keyspace_keys::KeyspaceKeys;
use crate::index::table::Table;
use crate::limits::NAME_LIMIT;
use crate::record::{Change, Record};

/// The keyspace that holds the names and numbers of the others.
pub(crate) const CATALOG_ID: u32 = 0;
/// The default keyspace.
pub(crate) const DEFAULT_ID: u32 = 1;
/// The name of the default keyspace.
pub(crate) const DEFAULT_NAME: &str = "default";
/// The first number for other keyspaces.
pub(crate) const FIRST_ID: u32 = 2;

const _: () = assert!(CATALOG_ID < DEFAULT_ID && DEFAULT_ID < FIRST_ID, "the numbers differ");
const _: () = assert!(DEFAULT_NAME.len() <= NAME_LIMIT, "the default name is a name");

/// The number in a value of the catalog.
pub(crate) fn number(value: &[u8]) -> Option<u32> {
    value.try_into().ok().map(u32::from_le_bytes)
}

/// A change of the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CatalogChange<'a> {
    pub(crate) name: &'a str,
    /// The number of the keyspace; `None` if it was dropped.
    pub(crate) id: Option<u32>,
}

impl<'a> CatalogChange<'a> {
    /// Decodes a record of the catalog: one that creates a keyspace, copies its entry, or drops it.
    /// `None` for the counter of the catalog, and for records of other keyspaces.
    pub(crate) fn from_record(record: &Record<'a>) -> Result<Option<Self>, &'static str> {
        if record.keyspace != CATALOG_ID || record.key.is_empty() {
            return Ok(None);
        }
        let name = std::str::from_utf8(record.key).map_err(|_| "a keyspace's name is invalid")?;
        if name.len() > NAME_LIMIT || name == DEFAULT_NAME {
            return Err("a keyspace's name is invalid");
        }
        let id = match record.change {
            Change::Put { value, .. } => {
                let id = number(value).filter(|id| *id >= FIRST_ID);
                Some(id.ok_or("the number of a keyspace is invalid")?)
            }
            Change::Delete | Change::DeleteRange { .. } => None,
        };
        Ok(Some(Self { name, id }))
    }
}

/// The names of keyspaces by their numbers: those that exist, and those that were dropped while
/// records of theirs may be in the log.
#[derive(Debug, Default)]
pub(crate) struct Names {
    names: RwLock<HashMap<u32, KeyspaceName>>,
}

/// The name of a keyspace.
#[derive(Debug)]
struct KeyspaceName {
    name: Arc<str>,
    /// The record that dropped the keyspace.
    dropped_by: Option<Seq>,
}

impl Names {
    pub(crate) fn get(&self, id: u32) -> Option<Arc<str>> {
        self.names.read().get(&id).map(|entry| Arc::clone(&entry.name))
    }

    pub(crate) fn insert(&self, id: u32, name: &str) {
        let entry = KeyspaceName { name: name.into(), dropped_by: None };
        self.names.write().insert(id, entry);
    }

    /// Stores which record dropped the keyspace of this number.
    fn set_dropped(&self, id: u32, by: Seq) {
        if let Some(entry) = self.names.write().get_mut(&id) {
            entry.dropped_by = Some(by);
        }
    }

    /// Removes the keyspaces that a record before `oldest` dropped: no record of theirs is left.
    fn forget_before(&self, oldest: Seq) {
        self.names.write().retain(|_, entry| entry.dropped_by.is_none_or(|by| by >= oldest));
    }

    /// Removes the oldest keyspace of this name.
    pub(crate) fn forget_one(&self, name: &str) {
        let mut names = self.names.write();
        let ids = names.iter().filter(|(_, entry)| *entry.name == *name).map(|(id, _)| *id);
        if let Some(oldest) = ids.min() {
            names.remove(&oldest);
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.names.read().len()
    }
}

/// The keyspaces of a store.
#[derive(Debug)]
pub(crate) struct Keyspaces {
    catalog: Arc<KeyspaceKeys>,
    default: Arc<KeyspaceKeys>,
    names: Arc<Names>,
    named: RwLock<HashMap<String, Arc<KeyspaceKeys>>>,
    /// The highest number that any record names, or a keyspace has.
    highest: AtomicU32,
    /// Dropped keyspaces whose entries are not all removed.
    dropped: Mutex<Vec<Arc<KeyspaceKeys>>>,
}

impl Keyspaces {
    pub(crate) fn new(
        catalog: Arc<KeyspaceKeys>,
        default: Arc<KeyspaceKeys>,
        named: impl IntoIterator<Item = Arc<KeyspaceKeys>>,
        highest: u32,
    ) -> Self {
        let named: HashMap<_, _> =
            named.into_iter().map(|keys| (keys.name().into(), keys)).collect();
        debug_assert_eq!((catalog.id, default.id), (CATALOG_ID, DEFAULT_ID));
        let names = Arc::new(Names::default());
        for keys in named.values().chain([&default]) {
            names.insert(keys.id, keys.name());
        }
        let highest = AtomicU32::new(highest.max(FIRST_ID - 1));
        let named = RwLock::new(named);
        Self { catalog, default, names, named, highest, dropped: Mutex::default() }
    }

    /// The keyspace that holds the names and numbers of the others.
    pub(crate) fn catalog(&self) -> &Arc<KeyspaceKeys> {
        &self.catalog
    }

    pub(crate) fn default_keys(&self) -> &Arc<KeyspaceKeys> {
        &self.default
    }

    pub(crate) fn names(&self) -> &Arc<Names> {
        &self.names
    }

    /// The keyspace of this name. A child process takes no lock, and finds the default one only.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<KeyspaceKeys>> {
        if name == DEFAULT_NAME {
            return Some(Arc::clone(&self.default));
        }
        if process::is_forked() {
            return None;
        }
        self.named.read().get(name).cloned()
    }

    /// The highest number that any record names, or a keyspace has.
    pub(crate) fn highest(&self) -> u32 {
        self.highest.load(SeqCst)
    }

    /// The number for a new keyspace: no record names it.
    pub(crate) fn unused(&self) -> Option<u32> {
        self.highest.load(SeqCst).checked_add(1)
    }

    pub(crate) fn insert(&self, keys: Arc<KeyspaceKeys>) {
        debug_assert!(keys.id >= FIRST_ID && !keys.name().is_empty(), "the catalog names it");
        self.highest.fetch_max(keys.id, SeqCst);
        self.names.insert(keys.id, keys.name());
        let replaced = self.named.write().insert(keys.name().into(), keys);
        debug_assert!(replaced.is_none(), "a name is of one keyspace at a time");
    }

    /// Removes a keyspace that the record `by` dropped. Its entries are removed by
    /// [`Keyspaces::remove_dropped`].
    pub(crate) fn remove(&self, name: &str, by: Seq) {
        let removed = self.named.write().remove(name);
        debug_assert!(removed.is_some(), "a keyspace that is dropped has its name");
        if let Some(keys) = &removed {
            self.names.set_dropped(keys.id, by);
        }
        self.dropped.lock().extend(removed);
    }

    /// Removes the entries of a keyspace that has no name, as [`Keyspaces::remove`] does.
    pub(crate) fn discard(&self, keys: Arc<KeyspaceKeys>) {
        self.dropped.lock().push(keys);
    }

    /// Removes the entries of dropped keyspaces that no reader needs, and the names of those that
    /// have no record in the log, which begins with `oldest`.
    pub(crate) fn remove_dropped(&self, table: &Table, horizon: u64, oldest: Seq) {
        self.names.forget_before(oldest);
        self.dropped.lock().retain(|keys| {
            keys.remove_deleted(table, horizon);
            keys.has_deleted()
        });
    }

    /// All keyspaces but the catalog, in the order of their names. In a child process as for
    /// [`Keyspaces::find`].
    pub(crate) fn all(&self) -> Vec<Arc<KeyspaceKeys>> {
        if process::is_forked() {
            return vec![Arc::clone(&self.default)];
        }
        let mut all: Vec<_> = self.named.read().values().cloned().collect();
        all.push(Arc::clone(&self.default));
        all.sort_by(|a, b| a.name().cmp(b.name()));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_the_catalog_names_a_keyspace() {
        let value = |id: u32| id.to_le_bytes();
        let decode = |keyspace, key, change| {
            let change = CatalogChange::from_record(&Record { keyspace, key, change });
            change.map(|change| change.map(|CatalogChange { name, id }| (name, id)))
        };
        let put = |value, moved| Change::Put { value, moved };
        let (first, default) = (value(FIRST_ID), value(DEFAULT_ID));
        assert_eq!(
            decode(CATALOG_ID, b"left", put(&first, false)),
            Ok(Some(("left", Some(FIRST_ID))))
        );
        assert_eq!(
            decode(CATALOG_ID, b"left", put(&first, true)),
            Ok(Some(("left", Some(FIRST_ID))))
        );
        assert_eq!(decode(CATALOG_ID, b"left", Change::Delete), Ok(Some(("left", None))));
        assert_eq!(decode(CATALOG_ID, b"", put(&first, false)), Ok(None), "the counter");
        assert_eq!(decode(DEFAULT_ID, b"left", put(b"", false)), Ok(None), "another keyspace");
        for value in [&default[..], b"", &[0; 5]] {
            let invalid = decode(CATALOG_ID, b"left", put(value, false));
            assert_eq!(invalid, Err("the number of a keyspace is invalid"), "{value:?}");
        }
        let invalid = decode(CATALOG_ID, b"\xff", Change::Delete);
        assert_eq!(invalid, Err("a keyspace's name is invalid"));
    }

    #[test]
    fn the_name_of_a_dropped_keyspace_is_kept_while_its_records_are() {
        let names = Names::default();
        names.insert(2, "left");
        names.set_dropped(2, Seq(9));
        names.insert(3, "left");
        names.forget_before(Seq(9));
        assert_eq!(names.get(2).as_deref(), Some("left"));
        names.forget_before(Seq(10));
        assert_eq!((names.get(2), names.len()), (None, 1));
    }

    #[test]
    fn of_two_keyspaces_with_one_name_the_older_is_forgotten() {
        let names = Names::default();
        for id in [3, 2, 4] {
            names.insert(id, if id == 4 { "right" } else { "left" });
        }
        names.forget_one("left");
        assert_eq!((names.get(2), names.len()), (None, 2));
        names.forget_one("absent");
        assert_eq!(names.len(), 2);
    }
}
