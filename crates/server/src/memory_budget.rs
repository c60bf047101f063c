//! The memory that connections hold: a budget for all of them, and a share for each.
//!
//! A client that does not take its answers keeps their memory. So a connection has a sixteenth of a
//! budget at most. A request that finds no memory waits, and meanwhile the connection that has
//! stalled for longest is closed: its memory goes to those that wait, in the order in which they
//! came. A connection that takes something has not stalled, however slow its link is. While there
//! is memory, a connection may be as slow as `idle` allows.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};
use tokio::time::{Instant, timeout};

use crate::error::BrokenInvariant;
use crate::idle::{AnswerGuard, Traffic};
use crate::supervisor::FailureSignal;

/// The memory of long lists of timestamps that are being sent.
const LISTS_BYTES: usize = 256 << 20;
/// The memory of other long answers, and of the bodies of changes: clients of timestamps leave
/// operators theirs.
const ANSWERS_BYTES: usize = 64 << 20;
const BODIES_BYTES: usize = 64 << 20;
/// The number of connections whose shares make a whole budget.
const CONNECTION_SHARES: usize = 16;
/// The time that a request waits for memory.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(1);
/// A connection that took nothing in this time, and sent no body to its end, has stalled. A link
/// that many share, or that loses packets, may need a second between two chunks.
const STALL_TIMEOUT: Duration = Duration::from_secs(2);
/// The time between two connections that are closed for waiting requests: the memory of the first
/// is released meanwhile.
const EVICTION_INTERVAL: Duration = Duration::from_millis(50);

/// The longest list, other answer and body that a connection has memory for.
pub(crate) const LIST_BYTES_MAX: usize = LISTS_BYTES / CONNECTION_SHARES;
pub(crate) const ANSWER_BYTES_MAX: usize = ANSWERS_BYTES / CONNECTION_SHARES;
pub(crate) const REQUEST_BODY_BYTES_MAX: usize = BODIES_BYTES / CONNECTION_SHARES;

const _: () = assert!(LISTS_BYTES <= Semaphore::MAX_PERMITS);
const _: () = assert!(LISTS_BYTES <= u32::MAX as usize, "a permit counts bytes as u32");
const _: () = assert!(LISTS_BYTES.is_multiple_of(CONNECTION_SHARES));
const _: () = assert!(ANSWERS_BYTES.is_multiple_of(CONNECTION_SHARES));
const _: () = assert!(BODIES_BYTES.is_multiple_of(CONNECTION_SHARES));
// A request that waits sees several connections closed before it gives up.
const _: () = assert!(EVICTION_INTERVAL.as_millis() * 2 <= PERMIT_TIMEOUT.as_millis());

const BUDGET_CLOSED: BrokenInvariant = BrokenInvariant("a memory budget is never closed");

/// The memory budget of all connections.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    lists: Arc<Pool>,
    answers: Arc<Pool>,
    bodies: Arc<Pool>,
    failures: FailureSignal,
}

/// The budgets of one connection, by what they are for.
#[derive(Debug)]
pub(crate) struct ConnectionBudgets {
    pub(crate) lists: ConnectionBudget,
    pub(crate) answers: ConnectionBudget,
    pub(crate) bodies: ConnectionBudget,
}

impl ConnectionBudgets {
    /// Whether the connection holds no memory.
    pub(crate) fn are_unused(&self) -> bool {
        self.lists.is_unused() && self.answers.is_unused() && self.bodies.is_unused()
    }
}

impl MemoryBudget {
    /// Creates the budget of a node, whose broken invariants go to `failures`.
    pub(crate) fn new(failures: FailureSignal) -> Self {
        Self::with_bytes(LISTS_BYTES, ANSWERS_BYTES, BODIES_BYTES, failures)
    }

    /// Creates a budget of this many bytes for lists, for other answers and for bodies.
    pub(crate) fn with_bytes(
        lists: usize,
        answers: usize,
        bodies: usize,
        failures: FailureSignal,
    ) -> Self {
        let [lists, answers, bodies] =
            [lists, answers, bodies].map(|bytes| Arc::new(Pool::new(bytes, failures.clone())));
        Self { lists, answers, bodies, failures }
    }

    /// Creates the budgets of a new connection.
    pub(crate) fn add_connection(&self, traffic: &Arc<Traffic>) -> ConnectionBudgets {
        ConnectionBudgets {
            lists: ConnectionBudget::new(&self.lists, traffic),
            answers: ConnectionBudget::new(&self.answers, traffic),
            bodies: ConnectionBudget::new(&self.bodies, traffic),
        }
    }

    /// Counts the connections that were closed because they had stalled while requests waited.
    pub(crate) fn evictions(&self) -> u64 {
        let pools = [&self.lists, &self.answers, &self.bodies];
        pools.iter().map(|pool| pool.evictions.load(Relaxed)).sum()
    }

    pub(crate) fn failures(&self) -> &FailureSignal {
        &self.failures
    }
}

/// The error of a request for which there is no memory, neither in the share of its connection nor,
/// in time, in the budget of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BudgetExhausted;

/// A budget that all connections share.
#[derive(Debug)]
struct Pool {
    available: Arc<Semaphore>,
    capacity_bytes: usize,
    connections: Mutex<Connections>,
    evictions: AtomicU64,
    failures: FailureSignal,
}

#[derive(Debug, Default)]
struct Connections {
    next_id: u64,
    by_id: BTreeMap<u64, Arc<ConnectionUsage>>,
    last_eviction: Option<Instant>,
}

impl Pool {
    fn new(bytes: usize, failures: FailureSignal) -> Self {
        Self {
            available: Arc::new(Semaphore::new(bytes)),
            capacity_bytes: bytes,
            connections: Mutex::default(),
            evictions: AtomicU64::new(0),
            failures,
        }
    }

    /// Takes `bytes` bytes at once, from a semaphore of this pool.
    fn try_acquire(
        &self,
        semaphore: &Arc<Semaphore>,
        bytes: u32,
    ) -> Result<OwnedSemaphorePermit, BudgetExhausted> {
        Arc::clone(semaphore).try_acquire_many_owned(bytes).map_err(|error| {
            if error == TryAcquireError::Closed {
                self.failures.report_broken(BUDGET_CLOSED);
            }
            BudgetExhausted
        })
    }

    /// Waits for `bytes` bytes, after those that came before.
    async fn acquire(&self, bytes: u32) -> Result<OwnedSemaphorePermit, BudgetExhausted> {
        let deadline = Instant::now() + PERMIT_TIMEOUT;
        let mut permit = pin!(Arc::clone(&self.available).acquire_many_owned(bytes));
        loop {
            self.evict_stalled();
            match timeout(EVICTION_INTERVAL, &mut permit).await {
                Ok(Ok(permit)) => return Ok(permit),
                Ok(Err(_)) => {
                    self.failures.report_broken(BUDGET_CLOSED);
                    return Err(BudgetExhausted);
                }
                Err(_) if Instant::now() >= deadline => return Err(BudgetExhausted),
                Err(_) => {}
            }
        }
    }

    /// Closes the connection that has stalled for longest, if one has.
    fn evict_stalled(&self) {
        let now = Instant::now();
        let mut connections = self.connections.lock();
        if connections.last_eviction.is_some_and(|at| now < at + EVICTION_INTERVAL) {
            return;
        }
        connections.last_eviction = Some(now);
        let stalls =
            connections.by_id.values().filter_map(|usage| Some((usage.stall(now)?, usage)));
        let Some((stall, usage)) = stalls.max_by_key(|(stall, _)| *stall) else { return };
        if stall >= STALL_TIMEOUT {
            usage.evict(now);
            self.evictions.fetch_add(1, Relaxed);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        debug_assert_eq!(
            self.available.available_permits(),
            self.capacity_bytes,
            "all permits of a budget are returned before it is dropped"
        );
        debug_assert!(self.connections.lock().by_id.is_empty(), "connections hold their budget");
    }
}

/// The memory of a budget that one connection holds.
#[derive(Debug)]
struct ConnectionUsage {
    available: Arc<Semaphore>,
    capacity_bytes: usize,
    progress: Mutex<Progress>,
    traffic: Arc<Traffic>,
}

#[derive(Debug)]
struct Progress {
    /// The number of answers that wait for the client, and of bodies that it sends.
    waiting: usize,
    /// The time of the last progress, or when the first of these began to wait.
    last: Instant,
}

impl ConnectionUsage {
    fn used_bytes(&self) -> usize {
        let available = self.available.available_permits();
        debug_assert!(available <= self.capacity_bytes, "a share gets back what it gave");
        self.capacity_bytes - available
    }

    fn begin_wait(&self) {
        let mut progress = self.progress.lock();
        if progress.waiting == 0 {
            progress.last = Instant::now();
        }
        progress.waiting += 1;
    }

    fn end_wait(&self, failures: &FailureSignal) {
        let mut progress = self.progress.lock();
        match progress.waiting.checked_sub(1) {
            Some(waiting) => *progress = Progress { waiting, last: Instant::now() },
            None => failures.report_broken(BrokenInvariant("a wait for a client ends once")),
        }
    }

    fn record_progress(&self) {
        self.progress.lock().last = Instant::now();
    }

    /// Returns how long there was no progress; `None` if nothing waits for the client.
    fn stall(&self, now: Instant) -> Option<Duration> {
        let progress = self.progress.lock();
        (progress.waiting > 0).then(|| now.duration_since(progress.last))
    }

    fn evict(&self, now: Instant) {
        // Another connection is next, if this one takes its time to end.
        self.progress.lock().last = now;
        self.traffic.evict();
    }
}

/// The share of one connection in a budget.
#[derive(Debug)]
pub(crate) struct ConnectionBudget {
    pool: Arc<Pool>,
    id: u64,
    usage: Arc<ConnectionUsage>,
}

impl ConnectionBudget {
    fn new(pool: &Arc<Pool>, traffic: &Arc<Traffic>) -> Self {
        let capacity_bytes = pool.capacity_bytes / CONNECTION_SHARES;
        let usage = Arc::new(ConnectionUsage {
            available: Arc::new(Semaphore::new(capacity_bytes)),
            capacity_bytes,
            progress: Mutex::new(Progress { waiting: 0, last: Instant::now() }),
            traffic: Arc::clone(traffic),
        });
        let mut connections = pool.connections.lock();
        let id = connections.next_id;
        connections.next_id += 1;
        let former = connections.by_id.insert(id, Arc::clone(&usage));
        drop(connections);
        debug_assert!(former.is_none(), "each connection has an id of its own");
        Self { pool: Arc::clone(pool), id, usage }
    }

    /// Whether the connection holds nothing of it.
    pub(crate) fn is_unused(&self) -> bool {
        self.usage.used_bytes() == 0
    }

    /// Takes `bytes` bytes. Waits a second at most while other connections hold them.
    pub(crate) async fn acquire(&self, bytes: u32) -> Result<Permit, BudgetExhausted> {
        let own = self.pool.try_acquire(&self.usage.available, bytes)?;
        let all = match self.pool.try_acquire(&self.pool.available, bytes) {
            Ok(all) => all,
            Err(BudgetExhausted) => self.pool.acquire(bytes).await?,
        };
        debug_assert_eq!(own.num_permits(), all.num_permits(), "both count the same bytes");
        let untaken = AnswerGuard::new(&self.usage.traffic);
        let (pool, usage) = (Arc::clone(&self.pool), Arc::clone(&self.usage));
        Ok(Permit { own, _all: all, is_waiting: false, _untaken: untaken, usage, pool })
    }
}

impl Drop for ConnectionBudget {
    fn drop(&mut self) {
        let usage = self.pool.connections.lock().by_id.remove(&self.id);
        debug_assert!(usage.is_some(), "a connection is in its budget until it is dropped");
    }
}

/// The memory of a long answer or of a body. It is released when the permit is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
    /// Whether the client has to act: to take the answer, or to send the body.
    is_waiting: bool,
    /// Held because a connection may have handed the answer on, and not sent it.
    _untaken: AnswerGuard,
    usage: Arc<ConnectionUsage>,
    // After the semaphore permits: a pool is dropped with all of its bytes.
    pool: Arc<Pool>,
}

impl Permit {
    /// Returns the number of bytes that it allows.
    pub(crate) fn bytes(&self) -> usize {
        self.own.num_permits()
    }

    /// Sets whether the client has to act next.
    pub(crate) fn wait_for_client(&mut self, is_waiting: bool) {
        match (self.is_waiting, is_waiting) {
            (false, true) => self.usage.begin_wait(),
            (true, false) => self.usage.end_wait(&self.pool.failures),
            (true, true) | (false, false) => {}
        }
        self.is_waiting = is_waiting;
    }

    /// Turns it into the bytes of an answer, which hold it until the client took them.
    pub(crate) fn into_answer(mut self, bytes: Bytes) -> AnswerBytes {
        self.wait_for_client(true);
        let usage = Arc::clone(&self.usage);
        let rest = Bytes::from_owner(PermittedBytes { bytes, _permit: self });
        AnswerBytes { rest, usage }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.wait_for_client(false);
    }
}

struct PermittedBytes {
    bytes: Bytes,
    _permit: Permit,
}

impl AsRef<[u8]> for PermittedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The rest of a long answer. All chunks of it hold the permit together.
#[derive(Debug)]
pub(crate) struct AnswerBytes {
    rest: Bytes,
    usage: Arc<ConnectionUsage>,
}

impl AnswerBytes {
    /// Takes the next bytes, at most `bytes_max`.
    pub(crate) fn take(&mut self, bytes_max: usize) -> Bytes {
        let chunk = self.rest.split_to(bytes_max.min(self.rest.len()));
        if !chunk.is_empty() {
            self.usage.record_progress();
        }
        chunk
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

    fn budget() -> MemoryBudget {
        MemoryBudget::new(FailureSignal::default())
    }

    /// Returns the traffic of a new connection, and its budget of lists.
    fn connection(budget: &MemoryBudget) -> (Arc<Traffic>, ConnectionBudget) {
        let traffic = Arc::default();
        let lists = budget.add_connection(&traffic).lists;
        (traffic, lists)
    }

    /// Sends lists that use the whole share of a connection, and are not taken.
    async fn fill(share: &ConnectionBudget) -> Vec<AnswerBytes> {
        let mut lists = Vec::new();
        for _ in 0..16 {
            let list = Bytes::from(vec![0; MIB as usize]);
            lists.push(share.acquire(MIB).await.unwrap().into_answer(list));
        }
        lists
    }

    async fn is_evicted(traffic: &Traffic) -> bool {
        timeout(Duration::ZERO, traffic.evicted()).await.is_ok()
    }

    #[tokio::test]
    async fn a_connection_has_a_share_of_the_budget() {
        let budget = budget();
        let ConnectionBudgets { lists, answers, bodies } = budget.add_connection(&Arc::default());
        let (_, another) = connection(&budget);
        let mut held = fill(&lists).await;
        assert!(lists.acquire(1).await.is_err());
        assert!(another.acquire(MIB).await.is_ok());
        drop(held.pop());
        assert!(lists.acquire(MIB).await.is_ok());
        assert!(!lists.is_unused());
        drop(held);
        assert!(lists.is_unused());
        assert_eq!(budget.lists.available.available_permits(), LISTS_BYTES);
        let held = answers.acquire(4 * MIB).await.unwrap();
        assert!(answers.acquire(1).await.is_err() && bodies.acquire(1).await.is_ok());
        drop(held);
        assert_eq!(budget.answers.available.available_permits(), ANSWERS_BYTES);
        drop((lists, another));
        assert!(budget.lists.connections.lock().by_id.is_empty());
    }

    /// Four connections that took nothing had all the memory for up to 50 s.
    #[tokio::test(start_paused = true)]
    async fn the_connection_that_stalls_longest_is_closed_when_others_wait() {
        let budget = budget();
        let mut silent = Vec::new();
        for _ in 0..CONNECTION_SHARES {
            let (traffic, share) = connection(&budget);
            let lists = fill(&share).await;
            silent.push((traffic, share, lists));
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(STALL_TIMEOUT * 20).await;
        assert_eq!(budget.evictions(), 0, "no other connection waits");
        // One has taken some of its answers of late.
        let (_, _, lists) = &mut silent[0];
        let taken: Vec<_> = lists.iter_mut().map(|list| list.take(MIB as usize / 16)).collect();
        let (_, other) = connection(&budget);
        let waits = other.acquire(MIB);
        let ends = async {
            silent[1].0.evicted().await;
            silent[1].2.clear();
        };
        let both = timeout(PERMIT_TIMEOUT * 4, async { tokio::join!(waits, ends) }).await;
        assert!(both.is_ok_and(|(permit, ())| permit.is_ok()));
        assert_eq!(budget.evictions(), 1);
        for (at, (traffic, ..)) in silent.iter().enumerate() {
            assert!(!is_evicted(traffic).await, "connection {at}");
        }
        drop(taken);
    }

    /// A wait ends, also if no connection can be closed for it, and leaves nothing behind.
    #[tokio::test(start_paused = true)]
    async fn a_wait_for_memory_is_bounded() {
        let budget = budget();
        let mut answered = Vec::new();
        for _ in 0..CONNECTION_SHARES {
            let (traffic, share) = connection(&budget);
            // The node itself is slow: they wait for no client.
            let permit = share.acquire(16 * MIB).await.unwrap();
            answered.push((traffic, share, permit));
        }
        let (_, other) = connection(&budget);
        let begun = Instant::now();
        assert_eq!(other.acquire(MIB).await.err(), Some(BudgetExhausted));
        assert!(
            (PERMIT_TIMEOUT..PERMIT_TIMEOUT * 2).contains(&begun.elapsed()),
            "{:?}",
            begun.elapsed()
        );
        assert!(other.is_unused());
        for (traffic, ..) in &answered {
            assert!(!is_evicted(traffic).await);
        }
        drop(answered.pop());
        assert!(other.acquire(MIB).await.is_ok());
    }

    /// A client that took less than 256 KiB in 0.5 s was closed, and so were all healthy clients of
    /// a link that they fill.
    #[tokio::test(start_paused = true)]
    async fn clients_of_a_slow_link_stay_and_the_one_that_stops_is_closed() {
        let budget = budget();
        let mut slow = Vec::new();
        for _ in 0..CONNECTION_SHARES {
            let (traffic, share) = connection(&budget);
            let lists = fill(&share).await;
            slow.push((traffic, share, lists));
        }
        let (_, other) = connection(&budget);
        for second in 0..60 {
            slow.iter_mut().for_each(|(.., lists)| drop(lists[0].take(16 << 10)));
            assert_eq!(other.acquire(MIB).await.err(), Some(BudgetExhausted));
            assert_eq!(budget.evictions(), 0, "after {second} s");
        }
        while budget.evictions() == 0 {
            slow[1..].iter_mut().for_each(|(.., lists)| drop(lists[1].take(16 << 10)));
            assert!(slow[1].2[1].len() > 0, "none is closed");
            assert_eq!(other.acquire(MIB).await.err(), Some(BudgetExhausted));
        }
        for (at, (traffic, ..)) in slow.iter().enumerate() {
            assert_eq!(is_evicted(traffic).await, at == 0, "connection {at}");
        }
    }

    /// A connection that always had some body on its way had stalled since the first.
    #[tokio::test(start_paused = true)]
    async fn a_body_that_has_come_is_progress() {
        let bodies = budget().add_connection(&Arc::default()).bodies;
        let mut before = bodies.acquire(64 << 10).await.unwrap();
        before.wait_for_client(true);
        for _ in 0..20 {
            tokio::time::advance(STALL_TIMEOUT / 2).await;
            let mut next = bodies.acquire(64 << 10).await.unwrap();
            next.wait_for_client(true);
            before = next;
            let stall = bodies.usage.stall(Instant::now());
            assert_eq!(stall, Some(Duration::ZERO));
        }
        tokio::time::advance(STALL_TIMEOUT).await;
        assert_eq!(bodies.usage.stall(Instant::now()), Some(STALL_TIMEOUT));
        drop(before);
        assert_eq!(bodies.usage.stall(Instant::now()), None);
    }

    /// As long as it takes all that it holds, however little that is.
    #[tokio::test(start_paused = true)]
    async fn a_slow_client_of_short_lists_does_not_stall() {
        let budget = budget();
        let (_, share) = connection(&budget);
        let list = || Bytes::from(vec![0; 320]);
        let mut before = share.acquire(320).await.unwrap().into_answer(list());
        for _ in 0..20 {
            tokio::time::advance(STALL_TIMEOUT / 2).await;
            let next = share.acquire(320).await.unwrap().into_answer(list());
            before.take(320);
            before = next;
            let stall = share.usage.stall(Instant::now()).unwrap();
            assert!(stall < STALL_TIMEOUT, "{stall:?}");
        }
    }
}
