//! The handles of a keyspace.

use std::sync::Arc;

use crate::index::keyspace_keys::KeyspaceKeys;
use crate::state::store_state::StoreState;
use crate::state::store_writer::StoreWriter;

/// A named set of keys in a store. Cheap to clone.
///
/// This handle writes and reads. [`Keyspace::reader`] only reads.
#[derive(Debug, Clone)]
pub struct Keyspace {
    pub(crate) writer: Arc<StoreWriter>,
    pub(crate) reader: KeyspaceReader,
}

/// A named set of keys, for reading. Cheap to clone.
#[derive(Debug, Clone)]
pub struct KeyspaceReader {
    pub(crate) state: Arc<StoreState>,
    pub(crate) keys: Arc<KeyspaceKeys>,
}

impl Keyspace {
    /// Returns a handle that only reads.
    #[inline]
    pub fn reader(&self) -> &KeyspaceReader {
        &self.reader
    }
}

impl AsRef<KeyspaceReader> for Keyspace {
    #[inline]
    fn as_ref(&self) -> &KeyspaceReader {
        &self.reader
    }
}

impl AsRef<Self> for KeyspaceReader {
    #[inline]
    fn as_ref(&self) -> &Self {
        self
    }
}

impl StoreState {
    pub(crate) fn reader(self: &Arc<Self>, keys: &Arc<KeyspaceKeys>) -> KeyspaceReader {
        KeyspaceReader { state: Arc::clone(self), keys: Arc::clone(keys) }
    }
}

impl StoreWriter {
    pub(crate) fn handle(self: &Arc<Self>, keys: &Arc<KeyspaceKeys>) -> Keyspace {
        Keyspace { writer: Arc::clone(self), reader: self.state().reader(keys) }
    }
}
