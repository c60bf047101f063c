//! Slots of connections over TCP: those of clients, and a reserve for health checks.
//!
//! When all slots of clients are taken, a load balancer and Prometheus still have to learn how the
//! node is. A connection is accepted before its purpose is known, so each one beyond the limit gets
//! a slot of the reserve, for one request and a short time.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::BrokenInvariant;
use crate::supervisor::FailureSignal;

/// The number of slots in the reserve.
pub(crate) const RESERVE_SLOTS: usize = 64;
/// The time for which a connection has a slot of the reserve; longer while its request is answered.
pub(crate) const RESERVE_TIMEOUT: Duration = Duration::from_secs(2);

/// The most slots that a semaphore can hand out at once.
const CONNECTIONS_MAX: usize = u32::MAX as usize;

const _: () = assert!(CONNECTIONS_MAX <= Semaphore::MAX_PERMITS);

const SLOTS_CLOSED: BrokenInvariant = BrokenInvariant("the slots of connections are never closed");

/// The slots of a listener.
#[derive(Debug)]
pub(crate) struct ConnectionSlots {
    clients: Arc<Semaphore>,
    reserve: Arc<Semaphore>,
    connections: u32,
    failures: FailureSignal,
}

/// The slot of a connection, which is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    _permit: OwnedSemaphorePermit,
    /// Whether it is of the reserve: all slots of clients were taken.
    pub(crate) is_reserve: bool,
}

impl ConnectionSlots {
    /// Creates slots for `connections` clients, and the reserve.
    pub(crate) fn new(connections: usize, failures: FailureSignal) -> Self {
        let connections = connections.clamp(1, CONNECTIONS_MAX);
        Self {
            clients: Arc::new(Semaphore::new(connections)),
            reserve: Arc::new(Semaphore::new(RESERVE_SLOTS)),
            connections: connections as u32,
            failures,
        }
    }

    /// Waits for a slot for the next connection. `None`: the node stops.
    pub(crate) async fn acquire(&self) -> Option<ConnectionSlot> {
        let clients = Arc::clone(&self.clients).acquire_owned();
        let reserve = Arc::clone(&self.reserve).acquire_owned();
        let (permit, is_reserve) = tokio::select! {
            biased;
            permit = clients => (permit, false),
            permit = reserve => (permit, true),
        };
        match permit {
            Ok(permit) => Some(ConnectionSlot { _permit: permit, is_reserve }),
            Err(_) => {
                self.failures.report_broken(SLOTS_CLOSED);
                None
            }
        }
    }

    /// Moves a connection that has come out of the reserve, if a slot of clients is free by now.
    pub(crate) fn leave_reserve(&self, slot: ConnectionSlot) -> ConnectionSlot {
        let clients = slot.is_reserve.then(|| Arc::clone(&self.clients).try_acquire_owned());
        match clients {
            Some(Ok(permit)) => ConnectionSlot { _permit: permit, is_reserve: false },
            _ => slot,
        }
    }

    /// Waits until all slots are free.
    pub(crate) async fn wait_all_free(&self) {
        let clients = self.clients.acquire_many(self.connections).await;
        let reserve = self.reserve.acquire_many(RESERVE_SLOTS as u32).await;
        if clients.is_err() || reserve.is_err() {
            self.failures.report_broken(SLOTS_CLOSED);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::pin::pin;

    use futures_util::poll;

    use super::*;

    #[tokio::test]
    async fn the_reserve_begins_above_the_limit() {
        let slots = ConnectionSlots::new(2, FailureSignal::default());
        let clients = [slots.acquire().await.unwrap(), slots.acquire().await.unwrap()];
        assert!(clients.iter().all(|slot| !slot.is_reserve));
        let [first, second] = clients;
        let reserve = slots.leave_reserve(slots.acquire().await.unwrap());
        assert!(reserve.is_reserve);
        // Waited for while all were taken.
        let next = slots.acquire().await.unwrap();
        drop(first);
        assert!(!slots.leave_reserve(next).is_reserve);
        drop((second, reserve));
        slots.wait_all_free().await;
    }

    /// Clients that send nothing cannot open connections without bound.
    #[tokio::test]
    async fn the_reserve_is_bounded() {
        let slots = ConnectionSlots::new(1, FailureSignal::default());
        let client = slots.acquire().await.unwrap();
        let mut reserve = Vec::new();
        for _ in 0..RESERVE_SLOTS {
            reserve.push(slots.acquire().await.unwrap());
        }
        assert!(!client.is_reserve && reserve.iter().all(|slot| slot.is_reserve));
        let mut next = pin!(slots.acquire());
        assert!(poll!(&mut next).is_pending(), "a connection beyond the reserve");
        drop(reserve.pop());
        assert!(next.await.unwrap().is_reserve);
    }
}
