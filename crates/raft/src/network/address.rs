//! Where a node is reached. It may move while others are connected to it.

use std::sync::Arc;

use parking_lot::Mutex;

/// The address of one node. Clones are handles of it.
#[derive(Debug, Clone)]
pub(crate) struct Address(Arc<Mutex<Arc<str>>>);

impl Address {
    pub(crate) fn new(address: &str) -> Self {
        Self(Arc::new(Mutex::new(address.into())))
    }

    pub(crate) fn get(&self) -> Arc<str> {
        Arc::clone(&self.0.lock())
    }

    /// The next connection goes there.
    pub(crate) fn set(&self, address: &str) {
        let mut known = self.0.lock();
        if **known != *address {
            *known = address.into();
        }
    }
}
