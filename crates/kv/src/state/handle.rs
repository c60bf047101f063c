//! The handle of a keyspace.

use std::sync::Arc;

use crate::index::keyspace::Keys;
use crate::state::inner::Inner;

/// A named set of keys in a store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Keyspace {
    pub(crate) inner: Arc<Inner>,
    pub(crate) keys: Arc<Keys>,
}

impl Inner {
    pub(crate) fn handle(self: &Arc<Self>, keys: &Arc<Keys>) -> Keyspace {
        Keyspace { inner: Arc::clone(self), keys: Arc::clone(keys) }
    }
}
