//! The server that answers the calls of other nodes.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use esker_consensus::Error;
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

use crate::base::failure::{Internal, StopCause, internal_cause, poison_cause};
use crate::base::panic_monitor::monitored;
use crate::base::tick_clock::TickClock;
use crate::base::type_config::{RaftVote, StoredConfig};
use crate::base::wall_clock::WallClock;
use crate::log_store::LogStore;
use crate::machine_store::{Machine, MachineStore, open_received_snapshot};
use crate::network::append_queue::AppendQueue;
use crate::network::callers::Callers;
use crate::network::connection_slots::{ConnectionSlot, ConnectionSlots};
use crate::network::failure_log::FailureLog;
use crate::network::frame::{FRAME_BYTES_MAX, Frame, FrameCodec};
use crate::network::handshake::{ClusterId, Handshake, Purpose};
use crate::network::leader_contact::LeaderContact;
use crate::network::message::{
    Answer, Request, checked_append, checked_leader, checked_transfer, checked_vote,
};
use crate::network::peer::CALLS_MAX;
use crate::network::proof;
use crate::network::timeouts::{
    SNAPSHOT_STALL_TIMEOUT, TimeoutConnection, with_deadline, with_timeouts,
};
use crate::network::transport::{
    Connection, IncomingConnection, Listener, NodeListener, SecuredConnection,
};

/// The most connections without a whole handshake. One more closes the oldest: a node's handshake
/// takes a round trip, and others may send nothing.
const HANDSHAKES_MAX: usize = 64;
/// The time that a caller has for its handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(1);
/// The time for which a caller may take no answer.
const ANSWER_STALL_TIMEOUT: Duration = Duration::from_secs(60);
/// The delay after a connection could not be accepted: there are no file descriptors left.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);
/// The delay between two tries to store a lease.
const LEASE_RETRY_DELAY: Duration = Duration::from_secs(1);

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

/// The state that all connections share.
struct Inner<C: StoredConfig, M: Machine<C>> {
    cluster: ClusterId,
    raft: Raft<C, MachineStore<C, M>>,
    store: LogStore<C>,
    clock: WallClock,
    /// The time of the first vote: before this node restarted, it may have acknowledged a
    /// heartbeat, and the leader may count on it for one lease.
    votes_from: Instant,
    /// The time for which the node gives no vote after a heartbeat.
    lease: Duration,
    slots: ConnectionSlots,
    callers: Callers<C, MachineStore<C, M>>,
    leader_contact: LeaderContact,
    failure_log: FailureLog,
    /// Dropped when another snapshot arrives: the transfer before it ends.
    receiving: Mutex<Option<oneshot::Sender<()>>>,
}

/// A connection whose handshake was answered, and its slot.
struct AcceptedConnection {
    stream: Connection,
    peer: Option<IpAddr>,
    handshake: Handshake,
    slot: ConnectionSlot,
}

/// Logs the panic of a connection's task, and returns the result of one that did not panic. A panic
/// ends its connection, which the caller opens again.
fn log_panic<T>(ended: Result<T, JoinError>) -> Option<T> {
    let panicked = ended.as_ref().err().is_some_and(JoinError::is_panic);
    if panicked {
        tracing::error!("the task of a connection panicked");
    }
    ended.ok()
}

async fn send_answer(
    frames: &mut Framed<Connection, FrameCodec>,
    call: u64,
    answer: &Answer,
) -> io::Result<()> {
    with_deadline(ANSWER_STALL_TIMEOUT, frames.send(Frame::new(call, answer)?)).await
}

/// The number of a call, its length, and its answer.
type PendingAnswer = Pin<Box<dyn Future<Output = (u64, usize, Answer)> + Send>>;

impl<C: StoredConfig, M: Machine<C>> Server<C, M> {
    /// Answers for this node, whose log this is.
    ///
    /// If the node has taken part in the cluster before, votes are refused for one lease, which is
    /// openraft's longest election timeout: a leader may count on what this node acknowledged
    /// before it restarted, and openraft does not remember that. If the node had a longer lease
    /// before, which the log has, votes are refused for that time. Keep elections of the node
    /// itself off for as long: start it with `enable_elect: false`, and wait for
    /// [`Server::votes_from`].
    pub fn new(cluster: ClusterId, raft: Raft<C, MachineStore<C, M>>, store: LogStore<C>) -> Self {
        Self::with_clock(cluster, raft, store, WallClock::default())
    }

    /// Creates a server with another wall clock than the system's. The answer to a query for a
    /// proof has its time.
    pub(crate) fn with_clock(
        cluster: ClusterId,
        raft: Raft<C, MachineStore<C, M>>,
        store: LogStore<C>,
        clock: WallClock,
    ) -> Self {
        let lease = Duration::from_millis(raft.config().election_timeout_max);
        let is_new = store.log().promised().is_none() && store.log().last_slot().is_none();
        let silent = if is_new { Duration::ZERO } else { lease.max(store.longest_lease()) };
        let leader_contact = LeaderContact::default();
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
            leader_contact,
            failure_log: FailureLog::default(),
            receiving: Mutex::new(None),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The contact with leaders that this server records.
    pub(crate) fn leader_contact(&self) -> LeaderContact {
        self.inner.leader_contact.clone()
    }

    /// The time from which votes may be given.
    pub fn votes_from(&self) -> Instant {
        self.inner.votes_from
    }

    /// Accepts connections and answers, until the future is dropped. Drop it before the runtime.
    ///
    /// A lease that is longer than the node had before is stored first.
    pub async fn serve(self, port: TcpListener) {
        self.serve_on(NodeListener { port, security: None }).await;
    }

    /// Accepts connections of any transport, as [`Server::serve`].
    pub(crate) async fn serve_on(self, mut listener: impl Listener) {
        self.store_lease(self.inner.lease.max(self.inner.store.longest_lease())).await;
        let (mut opening, mut tasks) = (JoinSet::new(), JoinSet::new());
        tasks.spawn(monitored("the task that stores a lease", self.clone().store_own_lease()));
        let mut oldest = VecDeque::<AbortHandle>::new();
        loop {
            let accepted = tokio::select! {
                biased;
                Some(opened) = opening.join_next() => {
                    if let Some(connection) = log_panic(opened).flatten() {
                        tasks.spawn(self.clone().run_connection(connection));
                    }
                    continue;
                }
                Some(ended) = tasks.join_next() => {
                    log_panic(ended);
                    continue;
                }
                accepted = Listener::accept(&mut listener) => accepted,
            };
            match accepted {
                Ok(incoming) => {
                    oldest.retain(|handshake| !handshake.is_finished());
                    if oldest.len() >= HANDSHAKES_MAX
                        && let Some(handshake) = oldest.pop_front()
                    {
                        handshake.abort();
                    }
                    oldest.push_back(opening.spawn(self.clone().open(incoming)));
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection cannot be accepted");
                    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                }
            }
        }
    }

    /// Stores a lease. Before that the node may make no promise of this length.
    async fn store_lease(&self, lease: Duration) {
        while let Err(error) = self.inner.store.store_lease(lease).await {
            tracing::warn!(%error, "the lease of this node cannot be stored");
            if let Some(why) = poison_cause(&error) {
                self.stop(StopCause::Stopped(why)).await;
            }
            tokio::time::sleep(LEASE_RETRY_DELAY).await;
        }
    }

    /// Stops the node, for a reason that openraft does not see: it stops when it cannot store an
    /// entry, and not when something else cannot be stored.
    async fn stop(&self, cause: StopCause) {
        self.inner.store.terminal().fail(cause);
        self.shut_down().await;
    }

    /// Stops the node, because an invariant does not hold.
    async fn stop_internal(&self, internal: Internal) {
        self.inner.store.terminal().fail_internal(internal);
        self.shut_down().await;
    }

    async fn shut_down(&self) {
        // Fails if openraft has panicked: then it has stopped.
        let _ = self.inner.raft.shutdown().await;
    }

    /// Stores the lease of this start when the promises of earlier starts are over.
    async fn store_own_lease(self) {
        tokio::time::sleep_until(self.inner.votes_from).await;
        self.store_lease(self.inner.lease).await;
    }

    /// Answers the handshake of a connection; `None` if the connection was refused or failed.
    async fn open(self, incoming: IncomingConnection) -> Option<AcceptedConnection> {
        let peer = incoming.peer;
        let opened = self.accept_handshake(incoming).await;
        opened.map_err(|error| self.report(peer, &error)).ok()
    }

    /// Answers the calls of a connection until it ends. A broken invariant stops the node.
    async fn run_connection(
        self,
        AcceptedConnection { stream, peer, handshake, mut slot }: AcceptedConnection,
    ) {
        let stream = slot.watch(stream);
        let ended = tokio::select! {
            biased;
            () = slot.replaced() => Err(io::Error::other("a newer connection replaced it")),
            ended = self.connection(stream, handshake) => ended,
        };
        if let Err(error) = ended {
            self.report(peer, &error);
            if let Some(internal) = internal_cause(&error) {
                self.stop_internal(internal).await;
            }
        }
    }

    fn report(&self, peer: Option<IpAddr>, error: &io::Error) {
        let now = std::time::Instant::now();
        if let Some(suppressed) = self.inner.failure_log.record(peer, &error.to_string(), now) {
            let peer = peer.map(tracing::field::display);
            tracing::warn!(peer, %error, suppressed, "the connection of a node ended");
        }
    }

    /// Answers a handshake.
    async fn accept_handshake(
        &self,
        IncomingConnection { peer, opening }: IncomingConnection,
    ) -> io::Result<AcceptedConnection> {
        let SecuredConnection { mut stream, node } =
            with_deadline(HANDSHAKE_TIMEOUT, opening).await?;
        let handshake = with_deadline(HANDSHAKE_TIMEOUT, Handshake::read(&mut stream)).await?;
        if let Some(node) = node
            && node != handshake.from
        {
            let what = format!("node {node} called as node {}", handshake.from);
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
        let mut answer = handshake.answer(self.inner.cluster, *self.inner.raft.node_id());
        let (caller, callers) = (handshake.from, &self.inner.callers);
        // A leader's requests may show a node that leads alone that its data is old.
        let is_heard = handshake.purpose == Purpose::Calls && callers.leads_alone();
        if answer.check_welcome().is_ok() && !is_heard && callers.check_member(caller).is_err() {
            answer.purpose = Purpose::NotMember;
        }
        with_deadline(HANDSHAKE_TIMEOUT, answer.write(&mut stream)).await?;
        if let Err(why) = answer.check_welcome() {
            let Handshake { version, cluster, from, to, .. } = handshake;
            let what = format!(
                "refused node {from} of the cluster {cluster}, which speaks version \
                 {version} and wants node {to}: here {why}"
            );
            return Err(io::Error::other(what));
        }
        let slot = self.inner.slots.take(self.inner.callers.is_known(caller).then_some(caller));
        Ok(AcceptedConnection { stream, peer, handshake, slot })
    }

    async fn connection(&self, stream: Connection, handshake: Handshake) -> io::Result<()> {
        match handshake.purpose {
            Purpose::Snapshot => {
                let stream = with_timeouts(stream, SNAPSHOT_STALL_TIMEOUT, SNAPSHOT_STALL_TIMEOUT);
                self.snapshot(handshake.from, Framed::new(stream, FrameCodec::default())).await
            }
            Purpose::Proofs => {
                let idle = self.inner.callers.idle_timeout(handshake.from);
                proof::answer(stream, self.inner.store.log(), &self.inner.clock, idle).await
            }
            Purpose::Calls => {
                self.calls(handshake.from, Framed::new(stream, FrameCodec::default())).await
            }
            _ => Err(Internal::new("only connections with a purpose are accepted").into()),
        }
    }

    async fn calls(
        &self,
        caller: u64,
        mut frames: Framed<Connection, FrameCodec>,
    ) -> io::Result<()> {
        let mut pending = FuturesUnordered::<PendingAnswer>::new();
        let mut appends = AppendQueue::new(&self.inner.raft);
        let mut bytes = 0;
        let idle_timeout = || self.inner.callers.idle_timeout(caller);
        loop {
            let has_room = pending.len() + appends.len() < CALLS_MAX && bytes < FRAME_BYTES_MAX;
            tokio::select! {
                biased;
                Some((call, len, answer)) = pending.next(), if !pending.is_empty() => {
                    debug_assert!(len <= bytes, "a call is counted until it is answered");
                    bytes -= len;
                    send_answer(&mut frames, call, &answer).await?;
                }
                ready = appends.ready(), if appends.len() > 0 => {
                    ready?;
                    while let Some((call, len, answer)) = appends.pop() {
                        debug_assert!(len <= bytes, "a request is counted until it is answered");
                        bytes -= len;
                        if matches!(answer, Answer::Appended(_)) {
                            self.inner.callers.record_contact();
                        }
                        let frame = Frame::new(call, &answer)?;
                        with_deadline(ANSWER_STALL_TIMEOUT, frames.feed(frame)).await?;
                    }
                    with_deadline(ANSWER_STALL_TIMEOUT, frames.flush()).await?;
                }
                frame = timeout(idle_timeout(), frames.next()), if has_room => {
                    let Ok(Some(frame)) = frame else { return Ok(()) };
                    let frame = frame?;
                    let (call, len) = (frame.call, frame.content.len());
                    bytes += len;
                    let request: Request = frame.message()?;
                    request.refuse_far_term(self.own_vote().leader_id.term)?;
                    if let Err(why) = self.inner.callers.check_member(caller) {
                        self.stop_if_stale(caller, request).await;
                        let answer = Answer::Refused(why.to_string());
                        send_answer(&mut frames, call, &answer).await?;
                        return Err(why);
                    }
                    match request {
                        Request::Append { vote, previous, commit, entries } => {
                            TickClock::tick_early();
                            let checked =
                                checked_append::<C>(caller, vote, previous, commit, &entries);
                            if let Ok(request) = &checked {
                                let term = request.vote.leader_id.term;
                                self.inner.leader_contact.record(caller, term);
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
    async fn stop_if_stale(&self, caller: u64, request: Request) {
        let Request::Append { vote, previous, commit, entries } = request else { return };
        let checked = checked_append::<C>(caller, vote, previous, commit, &entries);
        let Ok(leader) = checked else { return };
        if let Some(why) = self.inner.callers.find_stale_data(&leader).await {
            tracing::error!(node = *self.inner.raft.node_id(), why, "this node may not go on");
            self.stop(StopCause::OtherData(why)).await;
        }
    }

    async fn answer(&self, caller: u64, request: Request) -> Answer {
        match self.try_answer(caller, request).await {
            Ok(answer) => answer,
            Err(error) => {
                if let Some(internal) = internal_cause(&error) {
                    self.stop_internal(internal).await;
                }
                Answer::Refused(error.to_string())
            }
        }
    }

    async fn try_answer(&self, caller: u64, request: Request) -> io::Result<Answer> {
        let raft = &self.inner.raft;
        match request {
            Request::Vote { vote, last, is_transfer } => {
                let request = checked_vote::<C>(caller, vote, last, is_transfer)?;
                if !is_transfer {
                    self.check_votes_allowed()?;
                }
                let voted = raft.vote(request).await.map_err(io::Error::other)?;
                Ok(Answer::voted::<C>(&voted))
            }
            Request::PreVote { vote, last } => {
                let request = checked_vote::<C>(caller, vote, last, false)?;
                self.check_votes_allowed()?;
                let voted = raft.pre_vote(request).await.map_err(io::Error::other)?;
                Ok(Answer::voted::<C>(&voted))
            }
            Request::Transfer { vote, to, last } => {
                let request = checked_transfer::<C>(caller, vote, to, last)?;
                let transferred = raft.handle_transfer_leader(request).await;
                transferred.map(Answer::transferred::<C>).map_err(io::Error::other)
            }
            Request::Append { .. } => {
                Err(Internal::new("requests to append are queued in their order").into())
            }
            Request::Snapshot { .. } => {
                Err(io::Error::other("a snapshot needs a connection of its own"))
            }
        }
    }

    fn check_votes_allowed(&self) -> io::Result<()> {
        match Instant::now() < self.inner.votes_from {
            true => Err(io::Error::other("it restarted within a lease, and gives no vote yet")),
            false => Ok(()),
        }
    }

    /// The vote of this node.
    fn own_vote(&self) -> RaftVote {
        self.inner.raft.metrics().borrow_watched().vote
    }

    async fn snapshot(
        &self,
        caller: u64,
        mut frames: Framed<TimeoutConnection, FrameCodec>,
    ) -> io::Result<()> {
        let Some(frame) = frames.next().await.transpose()? else { return Ok(()) };
        let request: Request = frame.message()?;
        self.inner.callers.check_member(caller)?;
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
        let received = received.map_err(Error::from);
        if let Some(why) = received.as_ref().err().and_then(|error| poison_cause(error)) {
            self.stop(StopCause::Stopped(why)).await;
        }
        let slot = received.map_err(io::Error::other)?.slot;
        let snapshot = open_received_snapshot::<C>(self.inner.store.log(), slot).await?;
        let installed = self.inner.raft.install_full_snapshot(vote, snapshot).await;
        let vote = installed.map_err(io::Error::other)?.vote;
        frames.send(Frame::new(0, &Answer::Snapshot(vote.into()))?).await
    }
}
