//! The side that is called.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{SinkExt, StreamExt};
use openraft::Raft;
use openraft::async_runtime::watch::WatchReceiver;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::{Instant, timeout};
use tokio_util::codec::Framed;

use crate::base::clock::WallClock;
use crate::base::config::{StoredConfig, VoteOf};
use crate::base::failure::{Failure, poisoned};
use crate::base::panics::noted;
use crate::base::ticks::Ticks;
use crate::log_store::LogStore;
use crate::machine::{Machine, MachineStore, received_snapshot};
use crate::network::appends::Appends;
use crate::network::callers::Callers;
use crate::network::connection_slots::{ConnectionSlot, ConnectionSlots};
use crate::network::deadline::{Guarded, guarded, within};
use crate::network::frame::{FRAME_MAX, Frame, Frames};
use crate::network::handshake::{ClusterId, Handshake, Purpose};
use crate::network::heard::Heard;
use crate::network::message::{
    Answer, Request, checked_append, checked_leader, checked_transfer, checked_vote,
};
use crate::network::peer::CALLS_MAX;
use crate::network::proof;
use crate::network::refusals::Refusals;
use crate::network::transport::{Connection, Listener};

/// Connections without a whole handshake at a time. One more closes the oldest: a node's handshake
/// takes a round trip, and others may send nothing.
const HANDSHAKES_MAX: usize = 64;
/// How long a caller may take for its handshake.
const HANDSHAKE: Duration = Duration::from_secs(1);
/// How long a caller may take no answer.
const ANSWER_STALL: Duration = Duration::from_secs(60);
/// How long a sender of a snapshot may stall.
const STALL: Duration = Duration::from_secs(5);
/// The pause after a connection could not be accepted: there are no file descriptors left.
const PAUSE: Duration = Duration::from_millis(100);
/// Between two tries to store a lease.
const AGAIN: Duration = Duration::from_secs(1);

/// Answers the calls of other nodes. Clones answer for one node.
pub struct Server<C: StoredConfig, M: Machine<C>> {
    inner: Arc<Inner<C, M>>,
}

impl<C: StoredConfig, M: Machine<C>> Clone for Server<C, M> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<C: StoredConfig, M: Machine<C>> fmt::Debug for Server<C, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("node", self.inner.raft.node_id()).finish_non_exhaustive()
    }
}

struct Inner<C: StoredConfig, M: Machine<C>> {
    cluster: ClusterId,
    raft: Raft<C, MachineStore<C, M>>,
    store: LogStore<C>,
    clock: WallClock,
    /// Until then no vote is given: before this node restarted, it may have acknowledged a
    /// heartbeat, and the leader may count on it for one lease.
    votes_from: Instant,
    /// For how long it gives no vote after a heartbeat.
    lease: Duration,
    slots: ConnectionSlots,
    callers: Callers<C, MachineStore<C, M>>,
    heard: Heard,
    refusals: Refusals,
    /// Dropped when another snapshot arrives: the transfer before it ends.
    receiving: Mutex<Option<oneshot::Sender<()>>>,
}

/// A connection whose handshake was answered, and its slot.
struct Welcome {
    stream: Connection,
    peer: Option<IpAddr>,
    handshake: Handshake,
    slot: ConnectionSlot,
}

/// What the task of a connection returned. A panic ends its connection, which the caller opens
/// again.
fn unless_panicked<T>(ended: Result<T, JoinError>) -> Option<T> {
    let panicked = ended.as_ref().err().is_some_and(JoinError::is_panic);
    if panicked {
        tracing::error!("the task of a connection panicked");
    }
    ended.ok()
}

type Pending = Pin<Box<dyn Future<Output = (u64, usize, Answer)> + Send>>;

impl<C: StoredConfig, M: Machine<C>> Server<C, M> {
    /// Answers for this node, whose log this is.
    ///
    /// If the node has taken part in the cluster before, votes are refused for one lease, which is
    /// openraft's longest election timeout: a leader may count on what this node acknowledged
    /// before it restarted, and openraft does not remember that. If it had a longer lease before,
    /// for that one: it is in the log. Keep elections of the node itself off for as long: start it
    /// with `enable_elect: false`, and wait for [`Server::votes_from`].
    pub fn new(cluster: ClusterId, raft: Raft<C, MachineStore<C, M>>, store: LogStore<C>) -> Self {
        Self::with_clock(cluster, raft, store, WallClock::default())
    }

    /// As [`Server::new`], with another wall clock than the system's. What it shows is in the
    /// answer to a query for a proof.
    pub(crate) fn with_clock(
        cluster: ClusterId,
        raft: Raft<C, MachineStore<C, M>>,
        store: LogStore<C>,
        clock: WallClock,
    ) -> Self {
        let lease = Duration::from_millis(raft.config().election_timeout_max);
        let is_new = store.log().promised().is_none() && store.log().last_slot().is_none();
        let silent = if is_new { Duration::ZERO } else { lease.max(store.longest_lease()) };
        let heard = Heard::default();
        let callers = Callers::new(raft.clone(), store.clone(), lease);
        let inner = Inner {
            cluster,
            raft,
            store,
            clock,
            votes_from: Instant::now() + silent,
            lease,
            slots: ConnectionSlots::default(),
            callers,
            heard,
            refusals: Refusals::default(),
            receiving: Mutex::new(None),
        };
        Self { inner: Arc::new(inner) }
    }

    pub(crate) fn heard(&self) -> Heard {
        self.inner.heard.clone()
    }

    /// When the first vote may be given.
    pub fn votes_from(&self) -> Instant {
        self.inner.votes_from
    }

    /// Accepts connections and answers, until the future is dropped. Drop it before the runtime.
    ///
    /// If its lease is longer than the node had before, it is stored first.
    pub async fn serve(self, listener: TcpListener) {
        self.serve_on(listener).await;
    }

    /// The same, for connections that something else than TCP carries.
    pub(crate) async fn serve_on(self, mut listener: impl Listener) {
        self.keep_lease(self.inner.lease.max(self.inner.store.longest_lease())).await;
        let (mut opening, mut tasks) = (JoinSet::new(), JoinSet::new());
        tasks.spawn(noted("the task that stores a lease", self.clone().shorten_lease()));
        let mut oldest = VecDeque::<AbortHandle>::new();
        loop {
            let accepted = tokio::select! {
                biased;
                Some(opened) = opening.join_next() => {
                    if let Some(welcome) = unless_panicked(opened).flatten() {
                        tasks.spawn(self.clone().converse(welcome));
                    }
                    continue;
                }
                Some(ended) = tasks.join_next() => {
                    unless_panicked(ended);
                    continue;
                }
                accepted = Listener::accept(&mut listener) => accepted,
            };
            match accepted {
                Ok((stream, peer)) => {
                    oldest.retain(|handshake| !handshake.is_finished());
                    if oldest.len() >= HANDSHAKES_MAX
                        && let Some(handshake) = oldest.pop_front()
                    {
                        handshake.abort();
                    }
                    oldest.push_back(opening.spawn(self.clone().open(stream, peer)));
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection cannot be accepted");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Stores a lease. Until that is done, nothing may be promised for as long.
    async fn keep_lease(&self, lease: Duration) {
        while let Err(error) = self.inner.store.keep_lease(lease).await {
            tracing::warn!(%error, "the lease of this node cannot be stored");
            if let Some(why) = poisoned(&error) {
                self.stop(Failure::Stopped(why)).await;
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Stops the node, for a reason that openraft does not see: it stops when it cannot store an
    /// entry, and not when something else cannot be stored.
    async fn stop(&self, why: Failure) {
        // The first is the reason.
        let _ = self.inner.store.failure().set(why);
        // Fails if openraft has panicked: then it has stopped.
        let _ = self.inner.raft.shutdown().await;
    }

    /// What was promised before this start is over when votes are given again.
    async fn shorten_lease(self) {
        tokio::time::sleep_until(self.inner.votes_from).await;
        self.keep_lease(self.inner.lease).await;
    }

    /// The connection after its handshake, if it is welcome.
    async fn open(self, stream: Connection, peer: Option<IpAddr>) -> Option<Welcome> {
        let opened = self.welcome(stream, peer).await;
        opened.map_err(|error| self.report(peer, &error)).ok()
    }

    /// Answers what comes over a connection, until it ends.
    async fn converse(self, Welcome { stream, peer, handshake, mut slot }: Welcome) {
        let stream = slot.watch(stream);
        let ended = tokio::select! {
            biased;
            () = slot.replaced() => Err(io::Error::other("a newer connection replaced it")),
            ended = self.connection(stream, handshake) => ended,
        };
        if let Err(error) = ended {
            self.report(peer, &error);
        }
    }

    fn report(&self, peer: Option<IpAddr>, error: &io::Error) {
        let now = std::time::Instant::now();
        if let Some(silent) = self.inner.refusals.line(peer, &error.to_string(), now) {
            let peer = peer.map(tracing::field::display);
            tracing::warn!(peer, %error, silent, "the connection of a node ended");
        }
    }

    /// Answers a handshake.
    async fn welcome(&self, mut stream: Connection, peer: Option<IpAddr>) -> io::Result<Welcome> {
        let handshake = within(HANDSHAKE, Handshake::read(&mut stream)).await?;
        let mut answer = handshake.answer(self.inner.cluster, *self.inner.raft.node_id());
        let (caller, callers) = (handshake.from, &self.inner.callers);
        // What a leader sends may show one that leads alone that its data is old.
        let is_heard = handshake.purpose == Purpose::Calls && callers.leads_alone();
        if answer.refusal().is_ok() && !is_heard && callers.refuse_stranger(caller).is_err() {
            answer.purpose = Purpose::NotMember;
        }
        within(HANDSHAKE, answer.write(&mut stream)).await?;
        if let Err(why) = answer.refusal() {
            let Handshake { version, cluster, from, to, .. } = handshake;
            let what = format!(
                "refused node {from} of the cluster {cluster}, which speaks version \
                 {version} and wants node {to}: here {why}"
            );
            return Err(io::Error::other(what));
        }
        let slot = self.inner.slots.take(self.inner.callers.is_known(caller).then_some(caller));
        Ok(Welcome { stream, peer, handshake, slot })
    }

    async fn connection(&self, stream: Connection, handshake: Handshake) -> io::Result<()> {
        match handshake.purpose {
            Purpose::Snapshot => {
                let stream = guarded(stream, STALL, STALL);
                self.snapshot(handshake.from, Framed::new(stream, Frames::default())).await
            }
            Purpose::Proofs => {
                let idle = self.inner.callers.idle(handshake.from);
                proof::answer(stream, self.inner.store.log(), &self.inner.clock, idle).await
            }
            _ => self.calls(handshake.from, Framed::new(stream, Frames::default())).await,
        }
    }

    async fn calls(&self, caller: u64, mut frames: Framed<Connection, Frames>) -> io::Result<()> {
        let mut pending = FuturesUnordered::<Pending>::new();
        let mut appends = Appends::new(&self.inner.raft);
        let mut bytes = 0;
        loop {
            let has_room = pending.len() + appends.len() < CALLS_MAX && bytes < FRAME_MAX;
            tokio::select! {
                biased;
                Some((call, len, answer)) = pending.next(), if !pending.is_empty() => {
                    bytes -= len;
                    within(ANSWER_STALL, frames.send(Frame::new(call, &answer)?)).await?;
                }
                () = appends.ready(), if appends.len() > 0 => {
                    while let Some((call, len, answer)) = appends.pop() {
                        bytes -= len;
                        if matches!(answer, Answer::Appended(_)) {
                            self.inner.callers.accepted();
                        }
                        within(ANSWER_STALL, frames.feed(Frame::new(call, &answer)?)).await?;
                    }
                    within(ANSWER_STALL, frames.flush()).await?;
                }
                frame = timeout(self.inner.callers.idle(caller), frames.next()), if has_room => {
                    let Ok(Some(frame)) = frame else { return Ok(()) };
                    let frame = frame?;
                    let (call, len) = (frame.call, frame.content.len());
                    bytes += len;
                    let request: Request = frame.message()?;
                    request.refuse_far_term(self.own_vote().leader_id.term)?;
                    if let Err(why) = self.inner.callers.refuse_stranger(caller) {
                        self.heed(caller, request).await;
                        let answer = Answer::Refused(why.to_string());
                        within(ANSWER_STALL, frames.send(Frame::new(call, &answer)?)).await?;
                        return Err(why);
                    }
                    match request {
                        Request::Append { vote, previous, commit, entries } => {
                            Ticks::is_awake();
                            let checked =
                                checked_append::<C>(caller, vote, previous, commit, &entries);
                            if let Ok(request) = &checked {
                                self.inner.heard.from(caller, request.vote.leader_id.term);
                            }
                            appends.push(call, len, checked);
                        }
                        request => {
                            let server = self.clone();
                            pending.push(Box::pin(async move {
                                (call, len, server.answer(caller, request).await)
                            }));
                        }
                    }
                }
            }
        }
    }

    /// Stops the node if a request that it refuses shows that its data is of an earlier time.
    async fn heed(&self, caller: u64, request: Request) {
        let Request::Append { vote, previous, commit, entries } = request else { return };
        let checked = checked_append::<C>(caller, vote, previous, commit, &entries);
        let Ok(leader) = checked else { return };
        if let Some(why) = self.inner.callers.refuted_by(&leader).await {
            tracing::error!(node = *self.inner.raft.node_id(), why, "this node may not go on");
            self.stop(Failure::OtherData(why)).await;
        }
    }

    async fn answer(&self, caller: u64, request: Request) -> Answer {
        let answer = self.try_answer(caller, request).await;
        answer.unwrap_or_else(|error| Answer::Refused(error.to_string()))
    }

    async fn try_answer(&self, caller: u64, request: Request) -> io::Result<Answer> {
        let raft = &self.inner.raft;
        match request {
            Request::Vote { vote, last, is_transfer } => {
                let request = checked_vote::<C>(caller, vote, last, is_transfer)?;
                if !is_transfer {
                    self.refuse_early()?;
                }
                let voted = raft.vote(request).await.map_err(io::Error::other)?;
                Ok(Answer::voted::<C>(&voted))
            }
            Request::PreVote { vote, last } => {
                let request = checked_vote::<C>(caller, vote, last, false)?;
                self.refuse_early()?;
                let voted = raft.pre_vote(request).await.map_err(io::Error::other)?;
                Ok(Answer::voted::<C>(&voted))
            }
            Request::Transfer { vote, to, last } => {
                let request = checked_transfer::<C>(caller, vote, to, last)?;
                let transferred = raft.handle_transfer_leader(request).await;
                transferred.map(Answer::transferred::<C>).map_err(io::Error::other)
            }
            Request::Append { .. } | Request::Snapshot { .. } => {
                Err(io::Error::other("a call that has a way of its own"))
            }
        }
    }

    fn refuse_early(&self) -> io::Result<()> {
        match Instant::now() < self.inner.votes_from {
            true => Err(io::Error::other("it restarted within a lease, and gives no vote yet")),
            false => Ok(()),
        }
    }

    /// The vote of this node.
    fn own_vote(&self) -> VoteOf {
        self.inner.raft.metrics().borrow_watched().vote
    }

    async fn snapshot(&self, caller: u64, mut frames: Framed<Guarded, Frames>) -> io::Result<()> {
        let Some(frame) = frames.next().await.transpose()? else { return Ok(()) };
        let request: Request = frame.message()?;
        self.inner.callers.refuse_stranger(caller)?;
        request.refuse_far_term(self.own_vote().leader_id.term)?;
        let Request::Snapshot { vote } = request else {
            return Err(io::Error::other("a connection for a snapshot began with another call"));
        };
        let vote = checked_leader(caller, vote)?;
        let ours = self.own_vote();
        frames.send(Frame::new(0, &Answer::Snapshot(ours.into()))?).await?;
        if ours > vote {
            return Ok(());
        }
        let (sender, replaced) = oneshot::channel();
        *self.inner.receiving.lock() = Some(sender);
        let received = tokio::select! {
            biased;
            _ = replaced => return Err(io::Error::other("another snapshot came")),
            received = self.inner.store.log().snapshots().receive(frames.get_mut()) => received,
        };
        if let Some(why) = received.as_ref().err().and_then(|error| poisoned(error)) {
            self.stop(Failure::Stopped(why)).await;
        }
        let slot = received.map_err(io::Error::other)?.slot;
        let snapshot = received_snapshot::<C>(self.inner.store.log(), slot).await?;
        let installed = self.inner.raft.install_full_snapshot(vote, snapshot).await;
        let vote = installed.map_err(io::Error::other)?.vote;
        frames.send(Frame::new(0, &Answer::Snapshot(vote.into()))?).await
    }
}
