//! A network in virtual time. Connections carry bytes in their order, as TCP does; messages over
//! different connections overtake each other.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashSet, VecDeque};
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use esker_raft::simulation::{Connection, Listener, Transport};
use esker_testkit::SplitMix64;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{mpsc, oneshot};

use crate::trace::Trace;

/// Bytes on their way in one direction of a connection, and not read; above that a writer waits.
const WINDOW: usize = 256 << 10;

/// How often a node asks a silent peer whether it is still there, in milliseconds.
const KEEPALIVE: u64 = 1_000;

/// A life of a node: its number, and how often it has started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Life {
    pub(crate) node: u64,
    pub(crate) number: u32,
}

/// How long messages take. Times are in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weather {
    pub(crate) latency: (u64, u64),
    /// Of a thousand messages, those that are lost, and sent again by TCP.
    pub(crate) lost: u64,
}

impl Weather {
    pub(crate) const CALM: Self = Self { latency: (1, 3), lost: 0 };
}

/// The network of all nodes. Clones are handles of one.
#[derive(Clone)]
pub(crate) struct Network(Arc<Mutex<Inner>>);

struct Inner {
    now: u64,
    random: SplitMix64,
    weather: Weather,
    trace: Trace,
    next: u64,
    events: BinaryHeap<Reverse<Event>>,
    /// Directions in which nothing is sent any more, and what waits there. What was sent before
    /// arrives.
    cuts: BTreeMap<(u64, u64), Vec<What>>,
    /// Directions that take so many milliseconds more.
    slow: BTreeMap<(u64, u64), u64>,
    listeners: BTreeMap<u64, (Life, mpsc::UnboundedSender<Connection>)>,
    pipes: Vec<(Life, Life, Weak<Mutex<Pipe>>)>,
    /// Those that have ended.
    gone: HashSet<Life>,
}

/// What arrives at a time. Of several at one time the first that was sent is first.
struct Event {
    at: u64,
    number: u64,
    from: u64,
    to: u64,
    what: What,
}

enum What {
    /// The next bytes of this direction of a connection, or its end.
    Bytes(Weak<Mutex<Pipe>>),
    /// A connection is not known there.
    Reset(Weak<Mutex<Pipe>>),
    Opens {
        from: Life,
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
            weather: Weather::CALM,
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

    /// The network as one life of a node sees it, and the connections that arrive there from now
    /// on.
    pub(crate) fn join(&self, life: Life) -> (Carrier, Port) {
        let (sender, arrived) = mpsc::unbounded_channel();
        let mut inner = self.0.lock();
        inner.listeners.insert(life.node, (life, sender));
        inner.answer_keepalives(life.node);
        drop(inner);
        (Carrier { network: self.clone(), life }, Port { arrived })
    }

    /// The node ends. Its connections are closed, or, of a machine without power, they end
    /// silently.
    pub(crate) fn leave(&self, life: Life, is_silent: bool) {
        let pipes = {
            let mut inner = self.0.lock();
            if inner.listeners.get(&life.node).is_some_and(|(known, _)| *known == life) {
                inner.listeners.remove(&life.node);
            }
            // Its tasks are dropped in an order that is not determined: they do nothing.
            inner.gone.insert(life);
            inner.pipes.retain(|(.., pipe)| pipe.strong_count() > 0);
            inner.pipes.clone()
        };
        for (one, other, there) in pipes.into_iter().filter(|_| !is_silent) {
            let Some(there) = there.upgrade() else { continue };
            let Some(back) = there.lock().other.upgrade() else { continue };
            if one == life {
                self.close(one.node, other.node, &there, &back);
            } else if other == life {
                self.close(other.node, one.node, &back, &there);
            }
        }
    }

    /// Nothing more is written in one direction, and nothing is read in the other.
    fn close(&self, own: u64, peer: u64, write: &Arc<Mutex<Pipe>>, read: &Mutex<Pipe>) {
        let mut ends = write.lock();
        if ends.state == State::Open {
            self.send((own, peer), write, &mut ends, Sent::End);
        }
        drop(ends);
        let mut read = read.lock();
        if read.state == State::Open {
            read.state = State::Unread;
        }
        if let Some(writer) = read.writer.take() {
            writer.wake();
        }
    }

    fn send(&self, (from, to): (u64, u64), way: &Arc<Mutex<Pipe>>, pipe: &mut Pipe, sent: Sent) {
        let mut inner = self.0.lock();
        pipe.last = inner.arrival(from, to).max(pipe.last);
        pipe.sent.push_back(sent);
        inner.schedule(pipe.last, from, to, What::Bytes(Arc::downgrade(way)));
    }

    pub(crate) fn set_weather(&self, weather: Weather) {
        self.0.lock().weather = weather;
    }

    /// What is sent in this direction takes so many milliseconds more.
    pub(crate) fn slow_down(&self, from: u64, to: u64, by: u64) {
        self.0.lock().slow.insert((from, to), by);
    }

    /// Nothing more gets through in this direction.
    pub(crate) fn cut(&self, from: u64, to: u64) {
        self.0.lock().cuts.entry((from, to)).or_default();
    }

    /// All directions work again. What was sent meanwhile arrives within 200 ms.
    pub(crate) fn heal(&self) {
        let mut inner = self.0.lock();
        inner.slow.clear();
        for ((from, to), held) in std::mem::take(&mut inner.cuts) {
            for what in held {
                let at = inner.now + 1 + inner.random.below(200);
                inner.schedule(at, from, to, what);
            }
        }
    }

    /// A connection between two nodes ends with an error on both sides.
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

    /// Moves to this time, and lets arrive what is due. Reports each node where something did.
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

    fn arrive(&self, Event { from, to, what, .. }: Event) {
        match what {
            What::Bytes(pipe) => {
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
            What::Reset(pipe) => reset(&pipe),
            What::Opens { from: caller, opened } => {
                let mut inner = self.0.lock();
                let answer = match inner.listeners.get(&to).cloned() {
                    Some((life, listener)) => {
                        let (near, far) = self.pair(&mut inner, caller, life);
                        drop(listener.send(Box::new(far)));
                        Ok(Box::new(near) as Connection)
                    }
                    None => Err(io::ErrorKind::ConnectionRefused.into()),
                };
                let at = inner.arrival(to, from);
                inner.schedule(at, to, from, What::Opened { answer, opened });
            }
            What::Opened { answer, opened } => drop(opened.send(answer)),
        }
    }

    fn pair(&self, inner: &mut Inner, one: Life, other: Life) -> (End, End) {
        let (there, back) = (Pipe::new(), Pipe::new());
        there.lock().other = Arc::downgrade(&back);
        back.lock().other = Arc::downgrade(&there);
        inner.pipes.retain(|(.., pipe)| pipe.strong_count() > 0);
        inner.pipes.push((one, other, Arc::downgrade(&there)));
        let end = |own, peer, write: &Arc<_>, read: &Arc<_>| End {
            network: self.clone(),
            own,
            peer,
            write: Arc::clone(write),
            read: Arc::clone(read),
        };
        (end(one, other, &there, &back), end(other, one, &back, &there))
    }
}

/// A connection ends with an error on both sides.
fn reset(pipe: &Weak<Mutex<Pipe>>) {
    let Some(pipe) = pipe.upgrade() else { return };
    let other = pipe.lock().other.upgrade();
    pipe.lock().reset();
    if let Some(other) = other {
        other.lock().reset();
    }
}

impl Inner {
    /// When a message that is sent now arrives.
    fn arrival(&mut self, from: u64, to: u64) -> u64 {
        let (least, most) = self.weather.latency;
        let mut at = self.now + least + self.random.below(most - least + 1);
        if self.random.below(1000) < self.weather.lost {
            at += 200 + self.random.below(400);
        }
        at + self.slow.get(&(from, to)).copied().unwrap_or_default()
    }

    /// The peers of earlier lives of a node, which ask whether it is still there, learn that it is
    /// not: of a machine that lost its power they have heard nothing.
    fn answer_keepalives(&mut self, node: u64) {
        self.pipes.retain(|(.., pipe)| pipe.strong_count() > 0);
        for (one, other, pipe) in self.pipes.clone() {
            for (life, peer) in [(one, other), (other, one)] {
                if life.node == node && self.gone.contains(&life) && !self.gone.contains(&peer) {
                    let at = self.now + 1 + self.random.below(KEEPALIVE);
                    self.schedule(at, node, peer.node, What::Reset(pipe.clone()));
                }
            }
        }
    }

    fn schedule(&mut self, at: u64, from: u64, to: u64, what: What) {
        if let Some(held) = self.cuts.get_mut(&(from, to)) {
            return held.push(what);
        }
        let number = self.next;
        self.next += 1;
        self.events.push(Reverse(Event { at, number, from, to, what }));
    }
}

/// The network for one life of a node.
#[derive(Clone)]
pub(crate) struct Carrier {
    network: Network,
    life: Life,
}

impl fmt::Debug for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Carrier").field("life", &self.life).finish_non_exhaustive()
    }
}

impl Transport for Carrier {
    /// An address is the number of a node. Nothing is heard of one to which there is no way.
    fn connect<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Connection>> {
        let wrong = || io::Error::from(io::ErrorKind::AddrNotAvailable);
        Box::pin(async move {
            let to = address.parse().map_err(|_| wrong())?;
            let (opened, answer) = oneshot::channel();
            {
                let mut inner = self.network.0.lock();
                let at = inner.arrival(self.life.node, to);
                let what = What::Opens { from: self.life, opened };
                inner.schedule(at, self.life.node, to, what);
            }
            match answer.await {
                Ok(answer) => answer,
                Err(_) => std::future::pending().await,
            }
        })
    }
}

/// Where connections to a node arrive.
#[derive(Debug)]
pub(crate) struct Port {
    arrived: mpsc::UnboundedReceiver<Connection>,
}

impl Listener for Port {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<(Connection, Option<std::net::IpAddr>)>> {
        Box::pin(async move {
            match self.arrived.recv().await {
                Some(connection) => Ok((connection, None)),
                None => std::future::pending().await,
            }
        })
    }
}

/// One direction of a connection.
#[derive(Debug)]
struct Pipe {
    sent: VecDeque<Sent>,
    arrived: VecDeque<u8>,
    /// Bytes that were written and not read.
    unread: usize,
    /// When the last arrives of what was sent.
    last: u64,
    state: State,
    reader: Option<Waker>,
    writer: Option<Waker>,
    other: Weak<Mutex<Pipe>>,
}

#[derive(Debug)]
enum Sent {
    Bytes(Vec<u8>),
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// All has arrived, and no more comes.
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
            state: State::Open,
            reader: None,
            writer: None,
            other: Weak::new(),
        }))
    }

    fn arrive(&mut self) -> (usize, Option<Waker>) {
        let len = match self.sent.pop_front() {
            Some(Sent::Bytes(bytes)) => {
                self.arrived.extend(&bytes);
                bytes.len()
            }
            Some(Sent::End) => {
                self.state = State::Ended;
                0
            }
            None => 0,
        };
        (len, self.reader.take())
    }

    fn reset(&mut self) {
        self.state = State::Reset;
        self.sent.clear();
        self.arrived.clear();
        for waker in [self.reader.take(), self.writer.take()].into_iter().flatten() {
            waker.wake();
        }
    }
}

/// One end of a connection.
struct End {
    network: Network,
    own: Life,
    peer: Life,
    write: Arc<Mutex<Pipe>>,
    read: Arc<Mutex<Pipe>>,
}

impl fmt::Debug for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("End").field("own", &self.own).field("peer", &self.peer).finish()
    }
}

impl End {
    fn send(&self, pipe: &mut Pipe, sent: Sent) {
        self.network.send((self.own.node, self.peer.node), &self.write, pipe, sent);
    }
}

impl AsyncRead for End {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut pipe = self.read.lock();
        if pipe.state == State::Reset {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if pipe.arrived.is_empty() && pipe.state != State::Ended {
            pipe.reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        while into.remaining() > 0 && !pipe.arrived.is_empty() {
            let (first, _) = pipe.arrived.as_slices();
            let len = first.len().min(into.remaining());
            into.put_slice(&first[..len]);
            pipe.arrived.drain(..len);
            pipe.unread -= len;
        }
        if let Some(writer) = pipe.writer.take() {
            writer.wake();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for End {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut pipe = self.write.lock();
        match pipe.state {
            State::Open | State::Ended => {}
            State::Unread => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            State::Reset => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
        }
        let len = bytes.len().min(WINDOW - pipe.unread.min(WINDOW));
        if len == 0 && !bytes.is_empty() {
            pipe.writer = Some(context.waker().clone());
            return Poll::Pending;
        }
        pipe.unread += len;
        self.send(&mut pipe, Sent::Bytes(bytes[..len].to_vec()));
        Poll::Ready(Ok(len))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut pipe = self.write.lock();
        self.send(&mut pipe, Sent::End);
        Poll::Ready(Ok(()))
    }
}

impl Drop for End {
    fn drop(&mut self) {
        if !self.network.0.lock().gone.contains(&self.own) {
            self.network.close(self.own.node, self.peer.node, &self.write, &self.read);
        }
    }
}
