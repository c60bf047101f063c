//! Where a node is reached. It may move while others are connected to it.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::network::transport::{Connection, Transport};

/// The address of one node, and what carries connections there. Clones are handles of it.
#[derive(Debug, Clone)]
pub(crate) struct Address {
    transport: Arc<dyn Transport>,
    place: Arc<Mutex<Arc<str>>>,
}

impl Address {
    pub(crate) fn new(transport: Arc<dyn Transport>, address: &str) -> Self {
        Self { transport, place: Arc::new(Mutex::new(address.into())) }
    }

    pub(crate) fn get(&self) -> Arc<str> {
        Arc::clone(&self.place.lock())
    }

    /// The next connection goes there.
    pub(crate) fn set(&self, address: &str) {
        let mut known = self.place.lock();
        if **known != *address {
            *known = address.into();
        }
    }

    /// Connects to where the node is now.
    pub(crate) async fn connect(&self) -> io::Result<Connection> {
        self.transport.connect(&self.get()).await
    }
}
