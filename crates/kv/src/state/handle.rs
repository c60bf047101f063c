//! The handles of a keyspace.

use std::sync::Arc;

use crate::index::keys::Keys;
use crate::state::view::View;
use crate::state::writer::Writer;

/// A named set of keys in a store. Cheap to clone.
///
/// This handle writes and reads. [`Keyspace::reader`] only reads.
#[derive(Debug, Clone)]
pub struct Keyspace {
    pub(crate) writer: Arc<Writer>,
    pub(crate) reader: KeyspaceReader,
}

/// A named set of keys, for reading. Cheap to clone.
#[derive(Debug, Clone)]
pub struct KeyspaceReader {
    pub(crate) view: Arc<View>,
    pub(crate) keys: Arc<Keys>,
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

impl View {
    pub(crate) fn reader(self: &Arc<Self>, keys: &Arc<Keys>) -> KeyspaceReader {
        KeyspaceReader { view: Arc::clone(self), keys: Arc::clone(keys) }
    }
}

impl Writer {
    pub(crate) fn handle(self: &Arc<Self>, keys: &Arc<Keys>) -> Keyspace {
        Keyspace { writer: Arc::clone(self), reader: self.view().reader(keys) }
    }
}
