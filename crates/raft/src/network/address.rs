//! The address of a node, which may change while others are connected to it.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::network::transport::{Connection, Transport};

/// The address of one node, and what carries connections there. Clones are handles of it.
#[derive(Debug, Clone)]
pub(crate) struct Address {
    transport: Arc<dyn Transport>,
    current: Arc<Mutex<Arc<str>>>,
}

impl Address {
    pub(crate) fn new(transport: Arc<dyn Transport>, address: &str) -> Self {
        Self { transport, current: Arc::new(Mutex::new(address.into())) }
    }

    pub(crate) fn get(&self) -> Arc<str> {
        Arc::clone(&self.current.lock())
    }

    /// Sets the address of the next connection.
    pub(crate) fn set(&self, address: &str) {
        let mut current = self.current.lock();
        if **current != *address {
            *current = address.into();
        }
    }

    /// Connects to node `to` at the current address.
    pub(crate) async fn connect(&self, to: u64) -> io::Result<Connection> {
        self.transport.connect(&self.get(), to).await
    }
}
