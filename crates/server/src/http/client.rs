//! The client of one connection, and what it may hold of the node's memory.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::looks::Traffic;
use crate::rooms::{NoRoom, Room, Rooms, Share};
use crate::shared::Shared;

/// A list of so many bytes needs no room: a connection has few of them at a time.
pub(crate) const SHORT: usize = 256;
/// Nor does another answer of so many: what clients ask for to find the leader.
const SHORT_OTHER: usize = 1024;

/// The client of one connection.
#[derive(Debug)]
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
    /// Whether the connection is beyond the limit: for one request, and not for every kind.
    pub(crate) is_reserve: bool,
}

impl Requests {
    pub(crate) fn new(shared: Arc<Shared>, from: SocketAddr, is_reserve: bool) -> Arc<Self> {
        let client = Client::new(&shared.rooms, from);
        Arc::new(Self { shared, client, is_reserve })
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

    /// Room for a list of so many bytes. Waits for others that have it, for a while.
    pub(crate) async fn room(&self, bytes: u32) -> Result<Room, NoRoom> {
        self.lists.room(bytes).await
    }

    /// Whether it has no long answer on its way, nor a body.
    pub(crate) fn holds_nothing(&self) -> bool {
        self.lists.is_free() && self.others.is_free() && self.bodies.is_free()
    }

    /// Room for the body of a change.
    pub(crate) async fn room_for_body(&self, bytes: u32) -> Result<Room, NoRoom> {
        self.bodies.room(bytes).await
    }

    /// Room for another answer of so many bytes; a short one needs none.
    pub(crate) async fn room_for_other(&self, bytes: usize) -> Result<Option<Room>, NoRoom> {
        if bytes <= SHORT_OTHER {
            return Ok(None);
        }
        // A body of 4 GiB has no room, either.
        let room = self.others.room(u32::try_from(bytes).unwrap_or(u32::MAX)).await?;
        Ok(Some(room))
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

    #[tokio::test(start_paused = true)]
    async fn lists_take_no_room_of_operators() {
        let rooms = Rooms::default();
        let clients: Vec<_> = (0..16).map(|_| client(&rooms)).collect();
        let mut lists = Vec::new();
        for client in &clients {
            lists.push(client.room(16 * MIB).await.unwrap());
        }
        assert!(client(&rooms).room(1).await.is_err());
        let long = async || clients[0].room_for_other(2 << 20).await;
        // Of this room a connection has four MiB.
        let metrics = [long().await.unwrap(), long().await.unwrap()];
        assert!(long().await.is_err());
        drop((lists, metrics));
        assert!(clients[0].holds_nothing());
    }
}
