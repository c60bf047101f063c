//! What connections hold of the node's memory, together and each.
//!
//! A client that does not take its answers keeps its room. So a connection has a sixteenth of it at
//! most. When there is no room for a request, the request waits, and meanwhile the connection that
//! has stalled for longest is closed: what it held is for those that wait, in the order in which
//! they came. A connection that takes something has not stalled, however slow its link is. While
//! there is room, a connection may be as slow as `looks` allows.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use crate::looks::{Traffic, Waits};

/// Bytes of long lists of timestamps on their way.
const LISTS_BYTES: usize = 256 << 20;
/// Bytes of other long answers, and of the bodies of changes: clients of timestamps leave operators
/// their room.
const OTHERS_BYTES: usize = 64 << 20;
const BODIES_BYTES: usize = 64 << 20;
/// The number of connections that have all of it.
const SHARES: usize = 16;
/// How long a request waits for room.
const ROOM_WAIT: Duration = Duration::from_secs(1);
/// A connection that took nothing in this time, and sent no body to its end, has stalled. A link
/// that many share, or that loses packets, may well need a second between two pieces.
const STALL_TIME: Duration = Duration::from_secs(2);
/// How often a connection is closed while requests wait: what the one before held comes meanwhile.
const EVICTION_INTERVAL: Duration = Duration::from_millis(50);

/// What all connections hold together.
#[derive(Debug)]
pub(crate) struct Rooms {
    lists: Arc<Budget>,
    others: Arc<Budget>,
    bodies: Arc<Budget>,
}

impl Default for Rooms {
    fn default() -> Self {
        Self::new(LISTS_BYTES, OTHERS_BYTES, BODIES_BYTES)
    }
}

impl Rooms {
    /// Room for so many bytes of lists, of other answers, and of bodies.
    pub(crate) fn new(lists: usize, others: usize, bodies: usize) -> Self {
        let [lists, others, bodies] =
            [lists, others, bodies].map(|bytes| Arc::new(Budget::new(bytes)));
        Self { lists, others, bodies }
    }

    /// The part of a new connection in the room of lists, of other answers, and of bodies.
    pub(crate) fn shares(&self, traffic: &Arc<Traffic>) -> [Share; 3] {
        [&self.lists, &self.others, &self.bodies].map(|budget| Share::new(budget, traffic))
    }

    /// Connections that were closed because they had stalled while others waited.
    pub(crate) fn evictions(&self) -> u64 {
        [&self.lists, &self.others, &self.bodies]
            .iter()
            .map(|all| all.evictions.load(Relaxed))
            .sum()
    }
}

/// Neither the connection has room, nor did any come in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoRoom;

/// Memory that connections share.
#[derive(Debug)]
struct Budget {
    bytes: Arc<Semaphore>,
    share_bytes: usize,
    holders: Mutex<Holders>,
    evictions: AtomicU64,
}

#[derive(Debug, Default)]
struct Holders {
    next_id: u64,
    by_id: BTreeMap<u64, Arc<Holder>>,
    /// When a connection was closed last.
    evicted: Option<Instant>,
}

impl Budget {
    fn new(bytes: usize) -> Self {
        Self {
            bytes: Arc::new(Semaphore::new(bytes)),
            share_bytes: bytes / SHARES,
            holders: Mutex::default(),
            evictions: AtomicU64::new(0),
        }
    }

    /// Waits for so many bytes, behind those that came before.
    async fn wait(&self, bytes: u32) -> Result<OwnedSemaphorePermit, NoRoom> {
        let deadline = Instant::now() + ROOM_WAIT;
        let mut permit = pin!(Arc::clone(&self.bytes).acquire_many_owned(bytes));
        loop {
            self.evict_stalled();
            match timeout(EVICTION_INTERVAL, &mut permit).await {
                Ok(permit) => return permit.map_err(|_| NoRoom),
                Err(_) if Instant::now() >= deadline => return Err(NoRoom),
                Err(_) => {}
            }
        }
    }

    /// Closes the connection that has stalled for longest, if one has.
    fn evict_stalled(&self) {
        let now = Instant::now();
        let mut holders = self.holders.lock();
        if holders.evicted.is_some_and(|at| now < at + EVICTION_INTERVAL) {
            return;
        }
        holders.evicted = Some(now);
        let stalls = holders.by_id.values().filter_map(|holder| Some((holder.stall(now)?, holder)));
        let Some((stall, holder)) = stalls.max_by_key(|(stall, _)| *stall) else { return };
        if stall >= STALL_TIME {
            holder.evict(now);
            self.evictions.fetch_add(1, Relaxed);
        }
    }
}

/// The share of a budget that one connection holds.
#[derive(Debug)]
struct Holder {
    own: Arc<Semaphore>,
    share_bytes: usize,
    progress: Mutex<Progress>,
    traffic: Arc<Traffic>,
}

#[derive(Debug, Default)]
struct Progress {
    /// Answers that wait for the client, and bodies.
    waiting: usize,
    /// When the first of these began to wait, or when there last was progress.
    at: Option<Instant>,
}

impl Holder {
    fn held(&self) -> usize {
        self.share_bytes.saturating_sub(self.own.available_permits())
    }

    fn begins_to_wait(&self) {
        let mut progress = self.progress.lock();
        if progress.waiting == 0 {
            progress.at = Some(Instant::now());
        }
        progress.waiting += 1;
    }

    fn ends_to_wait(&self) {
        let mut progress = self.progress.lock();
        progress.waiting -= 1;
        progress.at = Some(Instant::now());
    }

    fn takes_some(&self) {
        self.progress.lock().at = Some(Instant::now());
    }

    /// How long there was no progress, if anything waits for it.
    fn stall(&self, now: Instant) -> Option<Duration> {
        let progress = self.progress.lock();
        (progress.waiting > 0).then(|| now.duration_since(progress.at.unwrap_or(now)))
    }

    fn evict(&self, now: Instant) {
        // Another one is next, if this one takes its time to end.
        self.progress.lock().at = Some(now);
        self.traffic.evict();
    }
}

/// The part of one connection.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<Budget>,
    id: u64,
    holder: Arc<Holder>,
}

impl Share {
    fn new(budget: &Arc<Budget>, traffic: &Arc<Traffic>) -> Self {
        let share_bytes = budget.share_bytes;
        let holder = Arc::new(Holder {
            own: Arc::new(Semaphore::new(share_bytes)),
            share_bytes,
            progress: Mutex::default(),
            traffic: Arc::clone(traffic),
        });
        let mut holders = budget.holders.lock();
        let id = holders.next_id;
        holders.next_id += 1;
        holders.by_id.insert(id, Arc::clone(&holder));
        drop(holders);
        Self { budget: Arc::clone(budget), id, holder }
    }

    /// Whether none of it is taken.
    pub(crate) fn is_free(&self) -> bool {
        self.holder.held() == 0
    }

    /// Room for so many bytes. Waits a second at most while others have it.
    pub(crate) async fn room(&self, bytes: u32) -> Result<Room, NoRoom> {
        let own = Arc::clone(&self.holder.own).try_acquire_many_owned(bytes);
        let own = own.map_err(|_| NoRoom)?;
        let all = match Arc::clone(&self.budget.bytes).try_acquire_many_owned(bytes) {
            Ok(all) => all,
            Err(_) => self.budget.wait(bytes).await?,
        };
        let (holder, waits) = (Arc::clone(&self.holder), Waits::new(&self.holder.traffic));
        Ok(Room { _all: all, own, holder, is_waiting: false, _waits: waits })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.holders.lock().by_id.remove(&self.id);
    }
}

/// Room for a long answer, or for a body. It is given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Room {
    _all: OwnedSemaphorePermit,
    own: OwnedSemaphorePermit,
    holder: Arc<Holder>,
    /// Whether the client is to do something: to take the answer, or to send the body.
    is_waiting: bool,
    /// A connection may have handed the answer on, and not sent it.
    _waits: Waits,
}

impl Room {
    /// The bytes of the answer.
    pub(crate) fn bytes(&self) -> usize {
        self.own.num_permits()
    }

    /// From now on it is for the client to go on, or it no longer is.
    pub(crate) fn wait_for_client(&mut self, is_waiting: bool) {
        match (self.is_waiting, is_waiting) {
            (false, true) => self.holder.begins_to_wait(),
            (true, false) => self.holder.ends_to_wait(),
            _ => {}
        }
        self.is_waiting = is_waiting;
    }

    /// The answer, which has the room until the client took it.
    pub(crate) fn holding(mut self, bytes: Bytes) -> HeldBytes {
        self.wait_for_client(true);
        let holder = Arc::clone(&self.holder);
        HeldBytes { rest: Bytes::from_owner(Long { bytes, _room: self }), holder }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.wait_for_client(false);
    }
}

struct Long {
    bytes: Bytes,
    _room: Room,
}

impl AsRef<[u8]> for Long {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The rest of a long answer. All its pieces have the room together.
#[derive(Debug)]
pub(crate) struct HeldBytes {
    rest: Bytes,
    holder: Arc<Holder>,
}

impl HeldBytes {
    /// Takes the next bytes, `most` of them at most.
    pub(crate) fn take(&mut self, most: usize) -> Bytes {
        let piece = self.rest.split_to(most.min(self.rest.len()));
        if !piece.is_empty() {
            self.holder.takes_some();
        }
        piece
    }

    pub(crate) fn len(&self) -> usize {
        self.rest.len()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const MIB: u32 = 1 << 20;

    /// The traffic of a new connection, and its share of lists.
    fn connection(rooms: &Rooms) -> (Arc<Traffic>, Share) {
        let traffic = Arc::default();
        let [lists, ..] = rooms.shares(&traffic);
        (traffic, lists)
    }

    /// Lists that take all the share of a connection, and are not taken.
    async fn fill(share: &Share) -> Vec<HeldBytes> {
        let mut lists = Vec::new();
        for _ in 0..16 {
            let list = Bytes::from(vec![0; MIB as usize]);
            lists.push(share.room(MIB).await.unwrap().holding(list));
        }
        lists
    }

    async fn is_evicted(traffic: &Traffic) -> bool {
        timeout(Duration::ZERO, traffic.evicted()).await.is_ok()
    }

    #[tokio::test]
    async fn a_connection_has_a_part_of_the_room() {
        let rooms = Rooms::default();
        let [lists, others, bodies] = rooms.shares(&Arc::default());
        let (_, of_another) = connection(&rooms);
        let mut held = fill(&lists).await;
        assert!(lists.room(1).await.is_err());
        assert!(of_another.room(MIB).await.is_ok());
        drop(held.pop());
        assert!(lists.room(MIB).await.is_ok());
        assert!(!lists.is_free());
        drop(held);
        assert!(lists.is_free());
        assert_eq!(rooms.lists.bytes.available_permits(), LISTS_BYTES);
        let held = others.room(4 * MIB).await.unwrap();
        assert!(others.room(1).await.is_err() && bodies.room(1).await.is_ok());
        drop(held);
        assert_eq!(rooms.others.bytes.available_permits(), OTHERS_BYTES);
        drop((lists, of_another));
        assert!(rooms.lists.holders.lock().by_id.is_empty());
    }

    /// Four connections that took nothing had all the room for up to 50 s.
    #[tokio::test(start_paused = true)]
    async fn the_connection_that_stalls_longest_is_closed_when_others_wait() {
        let rooms = Rooms::default();
        let mut silent = Vec::new();
        for _ in 0..SHARES {
            let (traffic, share) = connection(&rooms);
            let lists = fill(&share).await;
            silent.push((traffic, share, lists));
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(STALL_TIME * 20).await;
        assert_eq!(rooms.evictions(), 0, "no other connection waits");
        // One has taken some of its answers of late.
        let (_, _, lists) = &mut silent[0];
        let taken: Vec<_> = lists.iter_mut().map(|list| list.take(MIB as usize / 16)).collect();
        let (_, other) = connection(&rooms);
        let waits = other.room(MIB);
        let ends = async {
            silent[1].0.evicted().await;
            silent[1].2.clear();
        };
        let both = timeout(ROOM_WAIT * 4, async { tokio::join!(waits, ends) }).await;
        assert!(both.is_ok_and(|(room, ())| room.is_ok()));
        assert_eq!(rooms.evictions(), 1);
        for (at, (traffic, ..)) in silent.iter().enumerate() {
            assert!(!is_evicted(traffic).await, "connection {at}");
        }
        drop(taken);
    }

    /// A wait ends, also if no connection can be closed for it, and leaves nothing behind.
    #[tokio::test(start_paused = true)]
    async fn a_wait_for_room_is_bounded() {
        let rooms = Rooms::default();
        let mut answered = Vec::new();
        for _ in 0..SHARES {
            let (traffic, share) = connection(&rooms);
            // The node itself is slow: they wait for no client.
            let room = share.room(16 * MIB).await.unwrap();
            answered.push((traffic, share, room));
        }
        let (_, other) = connection(&rooms);
        let begun = Instant::now();
        assert_eq!(other.room(MIB).await.err(), Some(NoRoom));
        assert!((ROOM_WAIT..ROOM_WAIT * 2).contains(&begun.elapsed()), "{:?}", begun.elapsed());
        assert!(other.is_free());
        for (traffic, ..) in &answered {
            assert!(!is_evicted(traffic).await);
        }
        drop(answered.pop());
        assert!(other.room(MIB).await.is_ok());
    }

    /// A client that took less than 256 KiB in 0.5 s was closed, and so were all healthy clients of
    /// a link that they fill.
    #[tokio::test(start_paused = true)]
    async fn clients_of_a_slow_link_stay_and_the_one_that_stops_is_closed() {
        let rooms = Rooms::default();
        let mut slow = Vec::new();
        for _ in 0..SHARES {
            let (traffic, share) = connection(&rooms);
            let lists = fill(&share).await;
            slow.push((traffic, share, lists));
        }
        let (_, other) = connection(&rooms);
        for second in 0..60 {
            slow.iter_mut().for_each(|(.., lists)| drop(lists[0].take(16 << 10)));
            assert_eq!(other.room(MIB).await.err(), Some(NoRoom));
            assert_eq!(rooms.evictions(), 0, "after {second} s");
        }
        while rooms.evictions() == 0 {
            slow[1..].iter_mut().for_each(|(.., lists)| drop(lists[1].take(16 << 10)));
            assert!(slow[1].2[1].len() > 0, "none is closed");
            assert_eq!(other.room(MIB).await.err(), Some(NoRoom));
        }
        for (at, (traffic, ..)) in slow.iter().enumerate() {
            assert_eq!(is_evicted(traffic).await, at == 0, "connection {at}");
        }
    }

    /// A connection that always had some body on its way had stalled since the first.
    #[tokio::test(start_paused = true)]
    async fn a_body_that_has_come_is_progress() {
        let [.., bodies] = Rooms::default().shares(&Arc::default());
        let mut before = bodies.room(64 << 10).await.unwrap();
        before.wait_for_client(true);
        for _ in 0..20 {
            tokio::time::advance(STALL_TIME / 2).await;
            let mut next = bodies.room(64 << 10).await.unwrap();
            next.wait_for_client(true);
            before = next;
            let stall = bodies.holder.stall(Instant::now());
            assert_eq!(stall, Some(Duration::ZERO));
        }
        tokio::time::advance(STALL_TIME).await;
        assert_eq!(bodies.holder.stall(Instant::now()), Some(STALL_TIME));
        drop(before);
        assert_eq!(bodies.holder.stall(Instant::now()), None);
    }

    /// As long as it takes all that it holds, however little that is.
    #[tokio::test(start_paused = true)]
    async fn a_slow_client_of_short_lists_does_not_stall() {
        let rooms = Rooms::default();
        let (_, share) = connection(&rooms);
        let list = || Bytes::from(vec![0; 320]);
        let mut before = share.room(320).await.unwrap().holding(list());
        for _ in 0..20 {
            tokio::time::advance(STALL_TIME / 2).await;
            let next = share.room(320).await.unwrap().holding(list());
            before.take(320);
            before = next;
            let stall = share.holder.stall(Instant::now()).unwrap();
            assert!(stall < STALL_TIME, "{stall:?}");
        }
    }
}
