//! The handles of a keyspace.

use std::ops::Deref;
use std::sync::Arc;

use crate::index::keys::Keys;
use crate::state::view::View;
use crate::state::writer::Writer;

/// A named set of keys in a store. Cheap to clone.
///
/// This handle writes; its methods that read are those of [`KeyspaceReader`].
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

impl Deref for Keyspace {
    type Target = KeyspaceReader;

    #[inline]
    fn deref(&self) -> &KeyspaceReader {
        &self.reader
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
