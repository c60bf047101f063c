//! The state of one connection of a client, and the memory that it may hold.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::idle::Traffic;
use crate::memory_budget::{
    ANSWER_BYTES_MAX, BudgetExhausted, ConnectionBudgets, MemoryBudget, Permit,
};
use crate::node_state::NodeState;
use crate::supervisor::FailureSignal;
use crate::tls::ConnectionAccess;

/// The longest list that needs no permit: a connection has few of them at a time.
pub(crate) const SHORT_LIST_BYTES: usize = 256;
/// The longest other answer that needs no permit: those with which clients find the leader.
const SHORT_ANSWER_BYTES: usize = 1024;

const _: () = assert!(SHORT_ANSWER_BYTES < ANSWER_BYTES_MAX);

/// The client of one connection.
#[derive(Debug)]
pub(crate) struct ClientConnection {
    from: SocketAddr,
    traffic: Arc<Traffic>,
    budgets: ConnectionBudgets,
    failures: FailureSignal,
}

/// The state that the requests of a connection share.
#[derive(Debug)]
pub(crate) struct ConnectionState {
    node: Arc<NodeState>,
    client: ClientConnection,
    access: ConnectionAccess,
    is_reserve: bool,
}

impl ConnectionState {
    /// Creates the state of a connection. One of the reserve is beyond the limit: it gets one
    /// request, and no timestamps.
    pub(crate) fn new(
        node: Arc<NodeState>,
        from: SocketAddr,
        access: ConnectionAccess,
        is_reserve: bool,
    ) -> Arc<Self> {
        let client = ClientConnection::new(node.memory(), from);
        Arc::new(Self { node, client, access, is_reserve })
    }

    pub(crate) fn node(&self) -> &NodeState {
        &self.node
    }

    pub(crate) fn client(&self) -> &ClientConnection {
        &self.client
    }

    pub(crate) fn access(&self) -> &ConnectionAccess {
        &self.access
    }

    pub(crate) fn is_reserve(&self) -> bool {
        self.is_reserve
    }

    /// Whether no request is being answered, and no long answer is being sent.
    pub(crate) fn is_quiet(&self) -> bool {
        self.client.traffic.is_quiet() && self.client.budgets.are_unused()
    }
}

impl ClientConnection {
    /// Creates the client at `from`, with its budgets of the node's memory.
    pub(crate) fn new(memory: &MemoryBudget, from: SocketAddr) -> Self {
        let traffic = Arc::default();
        let budgets = memory.add_connection(&traffic);
        Self { from, traffic, budgets, failures: memory.failures().clone() }
    }

    pub(crate) fn from(&self) -> SocketAddr {
        self.from
    }

    pub(crate) fn traffic(&self) -> &Arc<Traffic> {
        &self.traffic
    }

    pub(crate) fn failures(&self) -> &FailureSignal {
        &self.failures
    }

    /// Acquires memory for a list of `bytes` bytes. Waits for a while for other connections.
    pub(crate) async fn permit_list(&self, bytes: u32) -> Result<Permit, BudgetExhausted> {
        self.budgets.lists.acquire(bytes).await
    }

    /// Acquires memory for the body of a change.
    pub(crate) async fn permit_body(&self, bytes: u32) -> Result<Permit, BudgetExhausted> {
        self.budgets.bodies.acquire(bytes).await
    }

    /// Acquires memory for another answer of `bytes` bytes; a short one needs none.
    pub(crate) async fn permit_answer(
        &self,
        bytes: usize,
    ) -> Result<Option<Permit>, BudgetExhausted> {
        if bytes <= SHORT_ANSWER_BYTES {
            return Ok(None);
        }
        let bytes = u32::try_from(bytes).map_err(|_| BudgetExhausted)?;
        Ok(Some(self.budgets.answers.acquire(bytes).await?))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const MIB: u32 = 1 << 20;

    fn client(memory: &MemoryBudget) -> ClientConnection {
        ClientConnection::new(memory, SocketAddr::from(([127, 0, 0, 1], 1)))
    }

    #[tokio::test(start_paused = true)]
    async fn lists_take_no_memory_of_operators() {
        let memory = MemoryBudget::new(FailureSignal::default());
        let clients: Vec<_> = (0..16).map(|_| client(&memory)).collect();
        let mut lists = Vec::new();
        for client in &clients {
            lists.push(client.permit_list(16 * MIB).await.unwrap());
        }
        assert!(client(&memory).permit_list(1).await.is_err());
        let long = async || clients[0].permit_answer(2 << 20).await;
        // A connection has four MiB for other answers.
        let metrics = [long().await.unwrap(), long().await.unwrap()];
        assert!(long().await.is_err());
        drop((lists, metrics));
        assert!(clients[0].budgets.are_unused());
    }
}
