//! The connections that a node has from others, with their owners.
//!
//! Each member has slots of its own, and all other callers share a few. A new connection is never
//! refused: it replaces the connection of the same owner that was silent for longest. So callers
//! that hold connections and send nothing keep no node away, whichever number they give.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

use crate::network::transport::Connection;

/// The most connections of one member. A leader has three, and one for each snapshot; those that a
/// network dropped silently are noticed after a while.
const SLOTS_PER_MEMBER: usize = 8;
/// The most connections of all callers that are no members, together.
const STRANGER_SLOTS: usize = 8;

const _: () = assert!(SLOTS_PER_MEMBER > 3 && STRANGER_SLOTS > 0);

/// The connections of a node. Clones are handles of one table.
#[derive(Debug, Clone, Default)]
pub(super) struct ConnectionSlots(Arc<SlotTable>);

#[derive(Debug, Default)]
struct SlotTable {
    /// The number of reads: a clock for `last_read`.
    reads: AtomicU64,
    open: Mutex<Vec<OpenConnection>>,
}

#[derive(Debug)]
struct OpenConnection {
    /// The member; `None` for all callers that are none.
    owner: Option<u64>,
    last_read: Arc<AtomicU64>,
    /// Dropped when another connection takes the slot.
    _end: oneshot::Sender<Infallible>,
}

/// The slot of one connection, free again when this is dropped.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    table: Arc<SlotTable>,
    last_read: Arc<AtomicU64>,
    end: oneshot::Receiver<Infallible>,
}

impl ConnectionSlots {
    /// Takes a slot for a connection of this member, or of a caller that is none.
    pub(super) fn take(&self, owner: Option<u64>) -> ConnectionSlot {
        let most = if owner.is_some() { SLOTS_PER_MEMBER } else { STRANGER_SLOTS };
        let table = Arc::clone(&self.0);
        let last_read = Arc::new(AtomicU64::new(table.reads.fetch_add(1, Relaxed)));
        let (sender, end) = oneshot::channel();
        let mut open = table.open.lock();
        let of_owner = open.iter().enumerate().filter(|(_, other)| other.owner == owner);
        if of_owner.clone().count() >= most
            && let Some((silent, _)) =
                of_owner.min_by_key(|(_, other)| other.last_read.load(Relaxed))
        {
            open.swap_remove(silent);
        }
        open.push(OpenConnection { owner, last_read: Arc::clone(&last_read), _end: sender });
        debug_assert!(
            open.iter().filter(|other| other.owner == owner).count() <= most,
            "an owner has its slots and no more"
        );
        drop(open);
        ConnectionSlot { table, last_read, end }
    }
}

impl ConnectionSlot {
    /// Wraps the connection, so that its reads are counted.
    pub(super) fn watch(&self, stream: Connection) -> Connection {
        let (table, last_read) = (Arc::clone(&self.table), Arc::clone(&self.last_read));
        Box::new(WatchedConnection { stream, table, last_read })
    }

    /// Waits until another connection takes the slot.
    pub(super) async fn replaced(&mut self) {
        drop((&mut self.end).await);
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.table.open.lock().retain(|open| !Arc::ptr_eq(&open.last_read, &self.last_read));
    }
}

#[derive(Debug)]
struct WatchedConnection {
    stream: Connection,
    table: Arc<SlotTable>,
    last_read: Arc<AtomicU64>,
}

impl AsyncRead for WatchedConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, into);
        if into.filled().len() > before {
            self.last_read.store(self.table.reads.fetch_add(1, Relaxed), Relaxed);
        }
        read
    }
}

impl AsyncWrite for WatchedConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use futures_util::FutureExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn is_replaced(slot: &mut ConnectionSlot) -> bool {
        slot.replaced().now_or_never().is_some()
    }

    /// Sixty-four connections that sent nothing kept the nodes of a cluster away for a minute.
    #[test]
    fn strangers_take_no_slot_of_a_member() {
        let slots = ConnectionSlots::default();
        let mut member = slots.take(Some(2));
        let mut strangers: Vec<_> = (0..64).map(|_| slots.take(None)).collect();
        let replaced = strangers.iter_mut().filter_map(|slot| is_replaced(slot).then_some(()));
        assert_eq!(replaced.count(), 64 - STRANGER_SLOTS);
        assert!(!is_replaced(&mut member));
        assert_eq!(slots.0.open.lock().len(), STRANGER_SLOTS + 1);
        drop((strangers, member));
        assert!(slots.0.open.lock().is_empty());
    }

    #[tokio::test]
    async fn the_connection_that_was_silent_for_longest_is_replaced() {
        let slots = ConnectionSlots::default();
        let mut taken: Vec<_> = (0..SLOTS_PER_MEMBER).map(|_| slots.take(Some(2))).collect();
        let (mut near, far) = tokio::io::duplex(16);
        let mut watched = taken[0].watch(Box::new(far));
        near.write_all(b"?").await.unwrap();
        watched.read_exact(&mut [0]).await.unwrap();
        let mut other = slots.take(Some(3));
        let mut newest = slots.take(Some(2));
        let replaced: Vec<_> = taken.iter_mut().map(is_replaced).collect();
        assert_eq!(replaced.iter().position(|is| *is), Some(1), "{replaced:?}");
        assert_eq!(replaced.iter().filter(|is| **is).count(), 1);
        assert!(!is_replaced(&mut newest) && !is_replaced(&mut other));
    }
}
