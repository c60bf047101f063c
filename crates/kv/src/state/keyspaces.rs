//! The keyspaces of a store, by name and by number.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::index::keyspace::Keys;

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
}

impl Keyspaces {
    pub(crate) fn new(
        catalog: Arc<Keys>,
        default: Arc<Keys>,
        named: impl IntoIterator<Item = Arc<Keys>>,
    ) -> Self {
        let named = named.into_iter().map(|keys| (keys.name.clone(), keys)).collect();
        Self { catalog, default, named: RwLock::new(named) }
    }

    pub(crate) fn find(&self, name: &str) -> Option<Arc<Keys>> {
        if name == DEFAULT_NAME {
            return Some(Arc::clone(&self.default));
        }
        self.named.read().get(name).cloned()
    }

    pub(crate) fn insert(&self, keys: Arc<Keys>) {
        self.named.write().insert(keys.name.clone(), keys);
    }

    pub(crate) fn remove(&self, name: &str) {
        self.named.write().remove(name);
    }

    /// All keyspaces but the catalog, in the order of their names.
    pub(crate) fn all(&self) -> Vec<Arc<Keys>> {
        let mut all: Vec<_> = self.named.read().values().cloned().collect();
        all.push(Arc::clone(&self.default));
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }
}
