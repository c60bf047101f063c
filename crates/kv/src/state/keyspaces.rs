//! The keyspaces of a store, by name and by number.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use parking_lot::{Mutex, RwLock};

use crate::index::keyspace::Keys;
use crate::index::table::Table;

/// The keyspace that holds the names and numbers of the others.
pub(crate) const CATALOG: u32 = 0;
/// The default keyspace.
pub(crate) const DEFAULT: u32 = 1;
/// The name of the default keyspace.
pub(crate) const DEFAULT_NAME: &str = "default";
/// The first number for other keyspaces.
pub(crate) const FIRST: u32 = 2;

#[derive(Debug)]
pub(crate) struct Keyspaces {
    pub(crate) catalog: Arc<Keys>,
    pub(crate) default: Arc<Keys>,
    named: RwLock<HashMap<String, Arc<Keys>>>,
    /// The highest number that any record names, or a keyspace has.
    highest: AtomicU32,
    /// Dropped keyspaces whose entries are not all removed.
    dropped: Mutex<Vec<Arc<Keys>>>,
}

impl Keyspaces {
    pub(crate) fn new(
        catalog: Arc<Keys>,
        default: Arc<Keys>,
        named: impl IntoIterator<Item = Arc<Keys>>,
        highest: u32,
    ) -> Self {
        let named = named.into_iter().map(|keys| (keys.name.clone(), keys)).collect();
        let highest = AtomicU32::new(highest.max(FIRST - 1));
        Self { catalog, default, named: RwLock::new(named), highest, dropped: Mutex::default() }
    }

    pub(crate) fn find(&self, name: &str) -> Option<Arc<Keys>> {
        if name == DEFAULT_NAME {
            return Some(Arc::clone(&self.default));
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

    pub(crate) fn insert(&self, keys: Arc<Keys>) {
        self.highest.fetch_max(keys.id, SeqCst);
        self.named.write().insert(keys.name.clone(), keys);
    }

    /// Removes a dropped keyspace. Its entries are removed by [`Keyspaces::remove_dropped`].
    pub(crate) fn remove(&self, name: &str) {
        let removed = self.named.write().remove(name);
        self.dropped.lock().extend(removed);
    }

    /// Removes the entries of dropped keyspaces that no reader needs.
    pub(crate) fn remove_dropped(&self, table: &Table, horizon: u64) {
        self.dropped.lock().retain(|keys| {
            keys.remove_deleted(table, horizon);
            keys.has_deleted()
        });
    }

    /// All keyspaces but the catalog, in the order of their names.
    pub(crate) fn all(&self) -> Vec<Arc<Keys>> {
        let mut all: Vec<_> = self.named.read().values().cloned().collect();
        all.push(Arc::clone(&self.default));
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }
}
