//! The client of one connection, and what it may hold of the node's memory.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::TryAcquireError;

use crate::looks::Traffic;
use crate::rooms::{Room, Rooms, Share};
use crate::shared::Shared;

/// A list of so many bytes needs no room: a connection has few of them at a time.
pub(crate) const SHORT: usize = 256;
/// Nor does another answer of so many: what clients ask for to find the leader.
const SHORT_OTHER: usize = 1024;

/// The client of one connection. Clones are of the same.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) from: SocketAddr,
    pub(crate) traffic: Arc<Traffic>,
    lists: Share,
    others: Share,
    bodies: Share,
}

/// What the requests of a connection use.
#[derive(Debug)]
pub(crate) struct Requests {
    pub(crate) shared: Arc<Shared>,
    pub(crate) client: Client,
}

impl Requests {
    pub(crate) fn new(shared: Arc<Shared>, from: SocketAddr) -> Arc<Self> {
        let client = Client::new(&shared.rooms, from);
        Arc::new(Self { shared, client })
    }

    /// Whether none is being answered, nor a long answer on its way.
    pub(crate) fn are_answered(&self) -> bool {
        self.client.traffic.is_quiet() && self.client.holds_nothing()
    }
}

impl Client {
    /// A client with a part of these rooms.
    pub(crate) fn new(rooms: &Rooms, from: SocketAddr) -> Self {
        let traffic = Arc::default();
        let [lists, others, bodies] = rooms.shares(&traffic);
        Self { from, traffic, lists, others, bodies }
    }

    /// Room for a list of so many bytes; none while others that are not taken have it.
    pub(crate) fn room(&self, bytes: u32) -> Result<Room, TryAcquireError> {
        self.lists.room(bytes)
    }

    /// Whether it has no long answer on its way, nor a body.
    pub(crate) fn holds_nothing(&self) -> bool {
        self.lists.is_free() && self.others.is_free() && self.bodies.is_free()
    }

    /// Room for the body of a change.
    pub(crate) fn room_for_body(&self, bytes: u32) -> Result<Room, TryAcquireError> {
        self.bodies.room(bytes)
    }

    /// The body of another answer, with room of its own until it is sent, unless it is short.
    pub(crate) fn hold(&self, body: Bytes) -> Result<Bytes, TryAcquireError> {
        if body.len() <= SHORT_OTHER {
            return Ok(body);
        }
        // A body of 4 GiB has no room, either.
        let room = self.others.room(u32::try_from(body.len()).unwrap_or(u32::MAX))?;
        Ok(room.holding(body))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const MIB: u32 = 1 << 20;

    fn client(rooms: &Rooms) -> Client {
        Client::new(rooms, SocketAddr::from(([127, 0, 0, 1], 1)))
    }

    #[test]
    fn lists_take_no_room_of_operators() {
        let rooms = Rooms::default();
        let clients: Vec<_> = (0..4).map(|_| client(&rooms)).collect();
        let lists: Vec<_> = clients.iter().map(|client| client.room(64 * MIB).unwrap()).collect();
        assert!(client(&rooms).room(1).is_err());
        let long = || bytes::Bytes::from(vec![0; 2 << 20]);
        let metrics = clients[0].hold(long()).unwrap();
        assert_eq!(metrics.len(), 2 << 20);
        // It has a room, of which a connection has four MiB.
        let more = clients[0].hold(long()).unwrap();
        assert!(clients[0].hold(long()).is_err());
        drop((lists, metrics, more));
        assert!(clients[0].holds_nothing());
    }
}
