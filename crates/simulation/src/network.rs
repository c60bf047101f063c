//! A network in virtual time. Connections carry bytes in their order, as TCP does; messages over
//! different connections overtake each other.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashSet, VecDeque};
use std::fmt;
use std::future::ready;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use esker_raft::simulation::{
    Connection, IncomingConnection, Listener, SecuredConnection, Transport,
};
use esker_testkit::SplitMix64;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{mpsc, oneshot};

use crate::trace::Trace;

/// The most bytes in one direction of a connection that are not read; above that a writer waits.
const WINDOW_BYTES: usize = 256 << 10;

/// The interval in which a node probes a silent peer, in milliseconds.
const KEEPALIVE_INTERVAL_MS: u64 = 1_000;

/// An incarnation of a node: the number of the node, and of its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Incarnation {
    pub(crate) node: u64,
    pub(crate) number: u32,
}

/// The latency and loss of messages. Times are in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LinkConditions {
    pub(crate) latency: (u64, u64),
    /// The messages in a thousand that are lost, and that TCP sends again.
    pub(crate) lost: u64,
}

impl LinkConditions {
    pub(crate) const CALM: Self = Self { latency: (1, 3), lost: 0 };
}

/// The network of all nodes. Clones are handles of one.
#[derive(Clone)]
pub(crate) struct Network(Arc<Mutex<Inner>>);

/// The state of the network.
struct Inner {
    now: u64,
    random: SplitMix64,
    conditions: LinkConditions,
    trace: Trace,
    next: u64,
    events: BinaryHeap<Reverse<Event>>,
    /// Directions that are cut, and the messages that wait there. Messages that were sent before
    /// arrive.
    cuts: BTreeMap<(u64, u64), Vec<EventKind>>,
    /// Directions that are slow, and the milliseconds that they add.
    slow: BTreeMap<(u64, u64), u64>,
    listeners: BTreeMap<u64, (Incarnation, mpsc::UnboundedSender<Connection>)>,
    pipes: Vec<(Incarnation, Incarnation, Weak<Mutex<Pipe>>)>,
    /// The incarnations that have ended.
    gone: HashSet<Incarnation>,
}

/// An arrival at a time. Events of one time arrive in the order in which they were sent.
struct Event {
    at: u64,
    number: u64,
    from: u64,
    to: u64,
    kind: EventKind,
}

/// The content of an event.
enum EventKind {
    /// The next bytes of this direction of a connection, or its end.
    Bytes(Weak<Mutex<Pipe>>),
    /// The receiver does not know the connection.
    Reset(Weak<Mutex<Pipe>>),
    Opens {
        from: Incarnation,
        opened: oneshot::Sender<io::Result<Connection>>,
    },
    Opened {
        answer: io::Result<Connection>,
        opened: oneshot::Sender<io::Result<Connection>>,
    },
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl Network {
    pub(crate) fn new(seed: u64, trace: Trace) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            now: 0,
            random: SplitMix64::new(seed),
            conditions: LinkConditions::CALM,
            trace,
            next: 0,
            events: BinaryHeap::new(),
            cuts: BTreeMap::new(),
            slow: BTreeMap::new(),
            listeners: BTreeMap::new(),
            pipes: Vec::new(),
            gone: HashSet::new(),
        })))
    }

    /// Joins the network with an incarnation of a node. Returns its transport and its listener.
    pub(crate) fn join(&self, incarnation: Incarnation) -> (NodeTransport, NodeListener) {
        let (sender, arrived) = mpsc::unbounded_channel();
        let mut inner = self.0.lock();
        inner.listeners.insert(incarnation.node, (incarnation, sender));
        inner.answer_keepalives(incarnation.node);
        drop(inner);
        (NodeTransport { network: self.clone(), incarnation }, NodeListener { arrived })
    }

    /// Ends an incarnation. Its connections are closed; those of a machine without power end
    /// silently.
    pub(crate) fn leave(&self, incarnation: Incarnation, is_silent: bool) {
        let pipes = {
            let mut inner = self.0.lock();
            if inner
                .listeners
                .get(&incarnation.node)
                .is_some_and(|(known, _)| *known == incarnation)
            {
                inner.listeners.remove(&incarnation.node);
            }
            // Its tasks are dropped in an order that is not determined: they do nothing.
            inner.gone.insert(incarnation);
            inner.pipes.retain(|(.., pipe)| pipe.strong_count() > 0);
            inner.pipes.clone()
        };
        for (one, other, there) in pipes.into_iter().filter(|_| !is_silent) {
            let Some(there) = there.upgrade() else { continue };
            let Some(back) = there.lock().other.upgrade() else { continue };
            if one == incarnation {
                self.close(one.node, other.node, &there, &back);
            } else if other == incarnation {
                self.close(other.node, one.node, &back, &there);
            }
        }
    }

    /// Ends one direction for writing, and the other for reading.
    fn close(&self, own: u64, peer: u64, write: &Arc<Mutex<Pipe>>, read: &Mutex<Pipe>) {
        let mut ends = write.lock();
        if ends.state == PipeState::Open {
            self.send((own, peer), write, &mut ends, PipeItem::End);
        }
        drop(ends);
        let mut read = read.lock();
        if read.state == PipeState::Open {
            read.state = PipeState::Unread;
        }
        if let Some(writer) = read.writer.take() {
            writer.wake();
        }
    }

    fn send(
        &self,
        (from, to): (u64, u64),
        way: &Arc<Mutex<Pipe>>,
        pipe: &mut Pipe,
        sent: PipeItem,
    ) {
        let mut inner = self.0.lock();
        pipe.last = inner.arrival(from, to).max(pipe.last);
        pipe.sent.push_back(sent);
        inner.schedule(pipe.last, from, to, EventKind::Bytes(Arc::downgrade(way)));
    }

    pub(crate) fn set_conditions(&self, conditions: LinkConditions) {
        self.0.lock().conditions = conditions;
    }

    /// Slows a direction down by `by` milliseconds.
    pub(crate) fn slow_down(&self, from: u64, to: u64, by: u64) {
        self.0.lock().slow.insert((from, to), by);
    }

    /// Cuts a direction.
    pub(crate) fn cut(&self, from: u64, to: u64) {
        self.0.lock().cuts.entry((from, to)).or_default();
    }

    /// Restores all directions. Messages that were sent meanwhile arrive within 200 ms.
    pub(crate) fn heal(&self) {
        let mut inner = self.0.lock();
        inner.slow.clear();
        for ((from, to), held) in std::mem::take(&mut inner.cuts) {
            for kind in held {
                let at = inner.now + 1 + inner.random.below(200);
                inner.schedule(at, from, to, kind);
            }
        }
    }

    /// Resets a connection between two nodes: it ends with an error on both sides.
    pub(crate) fn reset_one(&self) {
        let mut inner = self.0.lock();
        inner.pipes.retain(|(.., pipe)| pipe.strong_count() > 0);
        if inner.pipes.is_empty() {
            return;
        }
        let count = inner.pipes.len();
        let chosen = inner.random.index(count);
        let (from, to, pipe) = inner.pipes[chosen].clone();
        inner.trace.event(inner.now, format_args!("reset {} {}", from.node, to.node));
        drop(inner);
        reset(&pipe);
    }

    /// Moves to this time, and delivers the events that are due. Reports their receivers.
    pub(crate) fn advance(&self, now: u64, mut arrives_at: impl FnMut(u64)) {
        self.0.lock().now = now;
        loop {
            let event = {
                let mut inner = self.0.lock();
                let is_due = inner.events.peek().is_some_and(|Reverse(next)| next.at <= now);
                if !is_due {
                    return;
                }
                let Some(Reverse(event)) = inner.events.pop() else { return };
                event
            };
            arrives_at(event.to);
            self.arrive(event);
        }
    }

    fn arrive(&self, Event { from, to, kind, .. }: Event) {
        match kind {
            EventKind::Bytes(pipe) => {
                if let Some(pipe) = pipe.upgrade() {
                    let (len, reader) = pipe.lock().arrive();
                    let inner = self.0.lock();
                    inner.trace.event(inner.now, format_args!("{from} to {to}: {len} bytes"));
                    drop(inner);
                    if let Some(reader) = reader {
                        reader.wake();
                    }
                }
            }
            EventKind::Reset(pipe) => reset(&pipe),
            EventKind::Opens { from: caller, opened } => {
                let mut inner = self.0.lock();
                let answer = match inner.listeners.get(&to).cloned() {
                    Some((incarnation, listener)) => {
                        let (near, far) = self.pair(&mut inner, caller, incarnation);
                        drop(listener.send(Box::new(far)));
                        Ok(Box::new(near) as Connection)
                    }
                    None => Err(io::ErrorKind::ConnectionRefused.into()),
                };
                let at = inner.arrival(to, from);
                inner.schedule(at, to, from, EventKind::Opened { answer, opened });
            }
            EventKind::Opened { answer, opened } => drop(opened.send(answer)),
        }
    }

    fn pair(
        &self,
        inner: &mut Inner,
        one: Incarnation,
        other: Incarnation,
    ) -> (ConnectionEnd, ConnectionEnd) {
        let (there, back) = (Pipe::new(), Pipe::new());
        there.lock().other = Arc::downgrade(&back);
        back.lock().other = Arc::downgrade(&there);
        inner.pipes.retain(|(.., pipe)| pipe.strong_count() > 0);
        inner.pipes.push((one, other, Arc::downgrade(&there)));
        let end = |own, peer, write: &Arc<_>, read: &Arc<_>| ConnectionEnd {
            network: self.clone(),
            own,
            peer,
            write: Arc::clone(write),
            read: Arc::clone(read),
        };
        (end(one, other, &there, &back), end(other, one, &back, &there))
    }
}

/// Ends a connection with an error on both sides.
fn reset(pipe: &Weak<Mutex<Pipe>>) {
    let Some(pipe) = pipe.upgrade() else { return };
    let other = pipe.lock().other.upgrade();
    pipe.lock().reset();
    if let Some(other) = other {
        other.lock().reset();
    }
}

impl Inner {
    /// The arrival time of a message that is sent now.
    fn arrival(&mut self, from: u64, to: u64) -> u64 {
        let (least, most) = self.conditions.latency;
        let mut at = self.now + least + self.random.below(most - least + 1);
        if self.random.below(1000) < self.conditions.lost {
            at += 200 + self.random.below(400);
        }
        at + self.slow.get(&(from, to)).copied().unwrap_or_default()
    }

    /// Answers the probes of peers of earlier incarnations of a node: they get a reset. A machine
    /// that lost its power has ended no connection.
    fn answer_keepalives(&mut self, node: u64) {
        self.pipes.retain(|(.., pipe)| pipe.strong_count() > 0);
        for (one, other, pipe) in self.pipes.clone() {
            for (incarnation, peer) in [(one, other), (other, one)] {
                if incarnation.node == node
                    && self.gone.contains(&incarnation)
                    && !self.gone.contains(&peer)
                {
                    let at = self.now + 1 + self.random.below(KEEPALIVE_INTERVAL_MS);
                    self.schedule(at, node, peer.node, EventKind::Reset(pipe.clone()));
                }
            }
        }
    }

    fn schedule(&mut self, at: u64, from: u64, to: u64, kind: EventKind) {
        if let Some(held) = self.cuts.get_mut(&(from, to)) {
            return held.push(kind);
        }
        debug_assert!(at >= self.now, "a message arrives after it is sent");
        let number = self.next;
        self.next += 1;
        self.events.push(Reverse(Event { at, number, from, to, kind }));
    }
}

/// The transport of one incarnation of a node.
#[derive(Clone)]
pub(crate) struct NodeTransport {
    network: Network,
    incarnation: Incarnation,
}

impl fmt::Debug for NodeTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeTransport")
            .field("incarnation", &self.incarnation)
            .finish_non_exhaustive()
    }
}

impl Transport for NodeTransport {
    /// Connects to the node whose number is the address. Waits for ever while the direction is cut.
    fn connect<'a>(&'a self, address: &'a str, _: u64) -> BoxFuture<'a, io::Result<Connection>> {
        let wrong = || io::Error::from(io::ErrorKind::AddrNotAvailable);
        Box::pin(async move {
            let to = address.parse().map_err(|_| wrong())?;
            let (opened, answer) = oneshot::channel();
            {
                let mut inner = self.network.0.lock();
                let at = inner.arrival(self.incarnation.node, to);
                let kind = EventKind::Opens { from: self.incarnation, opened };
                inner.schedule(at, self.incarnation.node, to, kind);
            }
            match answer.await {
                Ok(answer) => answer,
                Err(_) => std::future::pending().await,
            }
        })
    }
}

/// The listener of one incarnation of a node.
#[derive(Debug)]
pub(crate) struct NodeListener {
    arrived: mpsc::UnboundedReceiver<Connection>,
}

impl Listener for NodeListener {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<IncomingConnection>> {
        Box::pin(async move {
            match self.arrived.recv().await {
                Some(stream) => {
                    let opened = Ok(SecuredConnection { stream, node: None });
                    Ok(IncomingConnection { peer: None, opening: Box::pin(ready(opened)) })
                }
                None => std::future::pending().await,
            }
        })
    }
}

/// A direction of a connection.
#[derive(Debug)]
struct Pipe {
    sent: VecDeque<PipeItem>,
    arrived: VecDeque<u8>,
    /// Bytes that were written and not read.
    unread: usize,
    /// The arrival time of the last item that was sent.
    last: u64,
    state: PipeState,
    reader: Option<Waker>,
    writer: Option<Waker>,
    other: Weak<Mutex<Pipe>>,
}

/// An item on its way in a direction of a connection.
#[derive(Debug)]
enum PipeItem {
    Bytes(Vec<u8>),
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PipeState {
    Open,
    /// The end has arrived.
    Ended,
    /// The reader is gone.
    Unread,
    Reset,
}

impl Pipe {
    fn new() -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self {
            sent: VecDeque::new(),
            arrived: VecDeque::new(),
            unread: 0,
            last: 0,
            state: PipeState::Open,
            reader: None,
            writer: None,
            other: Weak::new(),
        }))
    }

    fn arrive(&mut self) -> (usize, Option<Waker>) {
        let len = match self.sent.pop_front() {
            Some(PipeItem::Bytes(bytes)) => {
                self.arrived.extend(&bytes);
                bytes.len()
            }
            Some(PipeItem::End) => {
                self.state = PipeState::Ended;
                0
            }
            None => 0,
        };
        (len, self.reader.take())
    }

    fn reset(&mut self) {
        self.state = PipeState::Reset;
        self.sent.clear();
        self.arrived.clear();
        for waker in [self.reader.take(), self.writer.take()].into_iter().flatten() {
            waker.wake();
        }
    }
}

/// An end of a connection.
struct ConnectionEnd {
    network: Network,
    own: Incarnation,
    peer: Incarnation,
    write: Arc<Mutex<Pipe>>,
    read: Arc<Mutex<Pipe>>,
}

impl fmt::Debug for ConnectionEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionEnd").field("own", &self.own).field("peer", &self.peer).finish()
    }
}

impl ConnectionEnd {
    fn send(&self, pipe: &mut Pipe, sent: PipeItem) {
        self.network.send((self.own.node, self.peer.node), &self.write, pipe, sent);
    }
}

impl AsyncRead for ConnectionEnd {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut pipe = self.read.lock();
        if pipe.state == PipeState::Reset {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if pipe.arrived.is_empty() && pipe.state != PipeState::Ended {
            pipe.reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        while into.remaining() > 0 && !pipe.arrived.is_empty() {
            let (first, _) = pipe.arrived.as_slices();
            let len = first.len().min(into.remaining());
            into.put_slice(&first[..len]);
            pipe.arrived.drain(..len);
            debug_assert!(len <= pipe.unread, "bytes are read once");
            pipe.unread -= len;
        }
        if let Some(writer) = pipe.writer.take() {
            writer.wake();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ConnectionEnd {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut pipe = self.write.lock();
        match pipe.state {
            PipeState::Open | PipeState::Ended => {}
            PipeState::Unread => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            PipeState::Reset => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
        }
        let len = bytes.len().min(WINDOW_BYTES - pipe.unread.min(WINDOW_BYTES));
        if len == 0 && !bytes.is_empty() {
            pipe.writer = Some(context.waker().clone());
            return Poll::Pending;
        }
        pipe.unread += len;
        self.send(&mut pipe, PipeItem::Bytes(bytes[..len].to_vec()));
        Poll::Ready(Ok(len))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut pipe = self.write.lock();
        self.send(&mut pipe, PipeItem::End);
        Poll::Ready(Ok(()))
    }
}

impl Drop for ConnectionEnd {
    fn drop(&mut self) {
        if !self.network.0.lock().gone.contains(&self.own) {
            self.network.close(self.own.node, self.peer.node, &self.write, &self.read);
        }
    }
}
