//! ConnectionPlaces for connections over TCP: those of clients, and a few more for health checks.
//!
//! When all places of clients are taken, a load balancer and Prometheus still have to learn how the
//! node is. A connection is accepted before anyone knows what it is for, so each one beyond the
//! limit gets a place of the reserve, for one request and a short time.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// ConnectionPlaces of the reserve.
pub(crate) const RESERVE_PLACES: usize = 64;
/// How long a connection has a place of the reserve.
pub(crate) const RESERVE_TIME: Duration = Duration::from_secs(2);

/// The places of a listener.
#[derive(Debug)]
pub(crate) struct ConnectionPlaces {
    clients: Arc<Semaphore>,
    reserve: Arc<Semaphore>,
    connections: u32,
}

/// The place of a connection, until it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPlace {
    _permit: OwnedSemaphorePermit,
    /// Whether the places of clients were all taken.
    pub(crate) is_reserve: bool,
}

impl ConnectionPlaces {
    /// ConnectionPlaces for `connections` clients, and the reserve.
    pub(crate) fn new(connections: usize) -> Self {
        let limit = Semaphore::MAX_PERMITS.min(u32::MAX as usize);
        let connections = connections.clamp(1, limit);
        Self {
            clients: Arc::new(Semaphore::new(connections)),
            reserve: Arc::new(Semaphore::new(RESERVE_PLACES)),
            connections: connections as u32,
        }
    }

    /// Waits for a place for the next connection.
    pub(crate) async fn next(&self) -> Option<ConnectionPlace> {
        let clients = Arc::clone(&self.clients).acquire_owned();
        let reserve = Arc::clone(&self.reserve).acquire_owned();
        let (permit, is_reserve) = tokio::select! {
            biased;
            permit = clients => (permit, false),
            permit = reserve => (permit, true),
        };
        Some(ConnectionPlace { _permit: permit.ok()?, is_reserve })
    }

    /// The place of a connection that has come: one of clients may be free meanwhile.
    pub(crate) fn taken(&self, place: ConnectionPlace) -> ConnectionPlace {
        let clients = place.is_reserve.then(|| Arc::clone(&self.clients).try_acquire_owned());
        match clients {
            Some(Ok(permit)) => ConnectionPlace { _permit: permit, is_reserve: false },
            _ => place,
        }
    }

    /// Waits until all places are free.
    pub(crate) async fn all_free(&self) {
        drop(self.clients.acquire_many(self.connections).await);
        drop(self.reserve.acquire_many(RESERVE_PLACES as u32).await);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[tokio::test]
    async fn the_reserve_begins_above_the_limit() {
        let places = ConnectionPlaces::new(2);
        let clients = [places.next().await.unwrap(), places.next().await.unwrap()];
        assert!(clients.iter().all(|place| !place.is_reserve));
        let [first, second] = clients;
        let reserve = places.taken(places.next().await.unwrap());
        assert!(reserve.is_reserve);
        // Waited for while all were taken.
        let next = places.next().await.unwrap();
        drop(first);
        assert!(!places.taken(next).is_reserve);
        drop((second, reserve));
        places.all_free().await;
    }
}
