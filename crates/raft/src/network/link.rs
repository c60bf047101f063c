//! The connections of a node to the others: openraft's network.

use std::collections::HashMap;
use std::fmt::Debug;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use esker_consensus::{Error, Snapshot};
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use futures_util::{SinkExt, StreamExt};
use openraft::error::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::type_config::alias::SnapshotOf;
use openraft::{BasicNode, OptionalSend};
use parking_lot::Mutex;
use tokio_util::codec::Framed;

use crate::base::encoding::index_after;
use crate::base::failure::TerminalState;
use crate::base::type_config::{EntryId, RaftVote, StoredConfig};
use crate::network::address::Address;
use crate::network::frame::{Frame, FrameCodec};
use crate::network::handshake::{ClusterId, Handshake, PROTOCOL_VERSION, Purpose};
use crate::network::lease_acks::LeaseAcks;
use crate::network::message::{Answer, Request};
use crate::network::peer::{CALLS_MAX, Peer, connect};
use crate::network::proof_link::ProofLink;
use crate::network::reversion::{MatchIndex, Reversions};
use crate::network::timeouts::{
    SNAPSHOT_STALL_TIMEOUT, TimeoutConnection, with_deadline, with_timeouts,
};
use crate::network::transport::{TcpTransport, Transport};

/// The most requests for entries that are on their way to one node. Each has 1 MiB, unless one
/// entry is longer.
const PIPELINED_REQUESTS_MAX: usize = 16;
/// The least time that a call about an election gets: a vote waits for a sync.
const VOTE_TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// The time in which a receiver of a snapshot has to install it.
const SNAPSHOT_INSTALL_TIMEOUT: Duration = Duration::from_secs(300);

const _: () = assert!(PIPELINED_REQUESTS_MAX < CALLS_MAX);
const _: () = assert!(SNAPSHOT_STALL_TIMEOUT.as_secs() < SNAPSHOT_INSTALL_TIMEOUT.as_secs());

/// A member with the address at which the others reach it.
pub trait RaftAddress {
    /// Host and port of its [`Server`](crate::Server).
    fn raft_address(&self) -> &str;
}

impl RaftAddress for BasicNode {
    fn raft_address(&self) -> &str {
        &self.addr
    }
}

/// The connections to one node: votes, heartbeats and transfers do not wait for entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Lane {
    Control,
    Entries,
}

/// The addresses of nodes, and the connections to them.
#[derive(Debug, Default)]
struct PeerTable {
    addresses: HashMap<u64, Address>,
    peers: HashMap<(u64, Lane), Peer>,
    matched: HashMap<u64, MatchIndex>,
}

/// The connections of a node to the others: openraft's network, over TCP.
///
/// Give it to [`openraft::Raft::new`]; a [`Server`](crate::Server) is for the other direction. Both
/// need a tokio runtime with I/O and time.
#[derive(Debug, Clone)]
pub struct Network {
    cluster: ClusterId,
    node: u64,
    transport: Arc<dyn Transport>,
    peers: Arc<Mutex<PeerTable>>,
    lease_acks: LeaseAcks,
    reversions: Reversions,
    terminal: TerminalState,
}

impl Network {
    /// Creates the connections of this node of this cluster.
    pub fn new(cluster: ClusterId, node: u64) -> Self {
        Self::with_transport(
            Arc::new(TcpTransport::default()),
            cluster,
            node,
            TerminalState::default(),
        )
    }

    /// Creates the connections of a node that has this terminal state, over any transport.
    pub(crate) fn with_transport(
        transport: Arc<dyn Transport>,
        cluster: ClusterId,
        node: u64,
        terminal: TerminalState,
    ) -> Self {
        let (peers, lease_acks, reversions) = Default::default();
        Self { cluster, node, transport, peers, lease_acks, reversions, terminal }
    }

    fn handshake(&self, to: u64, purpose: Purpose) -> Handshake {
        Handshake { version: PROTOCOL_VERSION, purpose, cluster: self.cluster, from: self.node, to }
    }

    fn link(&self, target: u64, address: &str, appends: Lane) -> Link {
        Link {
            address: self.set_address(target, address),
            handshake: self.handshake(target, Purpose::Snapshot),
            control: self.peer(target, address, Lane::Control),
            appends: self.peer(target, address, appends),
            lease_acks: self.lease_acks.clone(),
            matched: self.peers.lock().matched.entry(target).or_default().clone(),
            reversions: self.reversions.clone(),
        }
    }

    /// Sets the address of a node, for its next connection: openraft keeps the links to a node
    /// whose address changes.
    pub(crate) fn set_address(&self, node: u64, address: &str) -> Address {
        let mut peers = self.peers.lock();
        let new = || Address::new(Arc::clone(&self.transport), address);
        let known = peers.addresses.entry(node).or_insert_with(new);
        known.set(address);
        known.clone()
    }

    pub(crate) fn lease_acks(&self) -> &LeaseAcks {
        &self.lease_acks
    }

    pub(crate) fn reversions(&self) -> &Reversions {
        &self.reversions
    }

    /// Creates a connection to the node at this address, for proofs.
    pub(crate) fn proof_link(&self, node: u64, address: &str) -> ProofLink {
        ProofLink::new(self.set_address(node, address), self.handshake(node, Purpose::Proofs))
    }

    fn peer(&self, node: u64, address: &str, lane: Lane) -> Peer {
        let address = self.set_address(node, address);
        let handshake = self.handshake(node, Purpose::Calls);
        let mut peers = self.peers.lock();
        let new = || Peer::new(address, handshake, self.terminal.clone());
        peers.peers.entry((node, lane)).or_insert_with(new).clone()
    }
}

impl<C: StoredConfig<Node: RaftAddress>> RaftNetworkFactory<C> for Network {
    type Network = Link;

    async fn new_client(&mut self, target: u64, node: &C::Node) -> Link {
        self.link(target, node.raft_address(), Lane::Entries)
    }

    async fn new_heartbeat_client(&mut self, target: u64, node: &C::Node) -> Link {
        self.link(target, node.raft_address(), Lane::Control)
    }
}

/// The connections to one node, from [`Network`].
#[derive(Debug, Clone)]
pub struct Link {
    address: Address,
    handshake: Handshake,
    control: Peer,
    /// The connection of all requests to append, also those without entries: the node has to get
    /// them in the order in which they are sent.
    appends: Peer,
    lease_acks: LeaseAcks,
    matched: MatchIndex,
    reversions: Reversions,
}

fn unreachable<C: StoredConfig>(error: io::Error) -> RPCError<C> {
    RPCError::Unreachable(Unreachable::new(&error))
}

impl Link {
    async fn control(&self, request: &Request, option: &RPCOption) -> io::Result<Answer> {
        self.control.call(request, option.soft_ttl().max(VOTE_TIMEOUT_MIN)).await
    }

    /// Sends a request, and returns a future for the answer.
    async fn begin_append<C: StoredConfig>(
        &self,
        request: AppendEntriesRequest<C>,
    ) -> io::Result<impl Future<Output = io::Result<AppendOutcome<C>>> + use<C>> {
        let last = request.entries.last().map(|entry| entry.log_id).or(request.prev_log_id);
        let previous = request.prev_log_id;
        let (target, term) = (self.handshake.to, request.vote.leader_id.term);
        let (lease_acks, sent) = (self.lease_acks.clone(), LeaseAcks::send_time());
        let (matched, reversions) = (self.matched.clone(), self.reversions.clone());
        // Read before the request is sent, so the order of answers does not matter.
        let matched_end = matched.end(term);
        let pending = self.appends.send(&Request::append(&request)?).await?;
        Ok(async move {
            let answer = pending.answer().await?;
            let lease = answer.lease();
            let answer = answer.into_appended::<C>(previous, last)?;
            if answer.is_success() {
                lease_acks.record(target, term, sent, lease);
            }
            match &answer {
                AppendEntriesResponse::Success => matched.raise(term, end_index(last)),
                AppendEntriesResponse::PartialSuccess(through) => {
                    matched.raise(term, end_index(*through));
                }
                AppendEntriesResponse::Conflict if end_index(previous) <= matched_end => {
                    debug_assert!(matched_end > 0, "a conflict is about an entry");
                    matched.reset();
                    reversions.record(target, term, matched_end - 1);
                }
                _ => {}
            }
            Ok(AppendOutcome { answer, previous, last })
        })
    }

    async fn send_snapshot(&self, vote: RaftVote, snapshot: Snapshot) -> io::Result<RaftVote> {
        let stream = with_timeouts(
            connect(&self.address, &self.handshake).await?,
            SNAPSHOT_INSTALL_TIMEOUT,
            SNAPSHOT_STALL_TIMEOUT,
        );
        let mut frames = Framed::new(stream, FrameCodec::default());
        frames.send(Frame::new(0, &Request::Snapshot { vote: vote.into() })?).await?;
        let theirs = with_deadline(SNAPSHOT_STALL_TIMEOUT, read_answer(&mut frames))
            .await?
            .into_snapshot()?;
        if theirs > vote {
            return Ok(theirs);
        }
        let sent = snapshot.send(frames.get_mut()).await.map_err(Error::from);
        sent.map_err(io::Error::other)?;
        read_answer(&mut frames).await?.into_snapshot()
    }
}

async fn read_answer(frames: &mut Framed<TimeoutConnection, FrameCodec>) -> io::Result<Answer> {
    let frame = frames.next().await.transpose()?;
    frame.ok_or(io::ErrorKind::UnexpectedEof)?.message()
}

/// The index after the entries up to this one; 0 for none.
fn end_index(last: Option<EntryId>) -> u64 {
    last.map_or(0, |last| index_after(last.index))
}

/// An answer, and the entries that were sent.
struct AppendOutcome<C: StoredConfig> {
    answer: AppendEntriesResponse<C>,
    previous: Option<EntryId>,
    last: Option<EntryId>,
}

impl<C: StoredConfig> AppendOutcome<C> {
    /// Converts the answer. Returns whether the requests that were sent after it count.
    fn into_result(self) -> (StreamAppendResult<C>, bool) {
        let Self { answer, previous, last } = self;
        let is_whole = match &answer {
            AppendEntriesResponse::PartialSuccess(through) => *through == last,
            answer => answer.is_success(),
        };
        (answer.into_stream_result(previous, last), is_whole)
    }
}

type AnswerStream<'s, C> = BoxStream<'s, Result<StreamAppendResult<C>, RPCError<C>>>;

impl<C: StoredConfig> RaftNetworkV2<C> for Link {
    type SnapshotData = Snapshot;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<C>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<C>, RPCError<C>> {
        let appended = async { self.begin_append::<C>(request).await?.await };
        let appended = with_deadline(option.soft_ttl(), appended).await;
        appended.map(|appended| appended.answer).map_err(unreachable)
    }

    /// Requests are sent without waiting for the answers to those before.
    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        _option: RPCOption,
    ) -> BoxFuture<'s, Result<AnswerStream<'s, C>, RPCError<C>>>
    where
        S: futures_util::Stream<Item = AppendEntriesRequest<C>> + OptionalSend + Unpin + 'static,
    {
        let sent = input.then(move |request| {
            let link = self.clone();
            async move { link.begin_append::<C>(request).await }
        });
        let answers = sent.map(|sent| async move { sent?.await }).buffered(PIPELINED_REQUESTS_MAX);
        let answers = stream::unfold(Some(Box::pin(answers)), |answers| async move {
            let mut answers = answers?;
            match answers.next().await? {
                Ok(appended) => {
                    let (result, is_whole) = appended.into_result();
                    Some((Ok(result), is_whole.then_some(answers)))
                }
                Err(error) => Some((Err(unreachable(error)), None)),
            }
        });
        let answers: AnswerStream<'s, C> = answers.boxed();
        Box::pin(std::future::ready(Ok(answers)))
    }

    async fn vote(
        &mut self,
        request: VoteRequest<C>,
        option: RPCOption,
    ) -> Result<VoteResponse<C>, RPCError<C>> {
        let answer = self.control(&Request::vote(&request), &option).await;
        answer.and_then(Answer::into_voted).map_err(unreachable)
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<C>,
        option: RPCOption,
    ) -> Result<VoteResponse<C>, RPCError<C>> {
        let answer = self.control(&Request::pre_vote(&request), &option).await;
        answer.and_then(Answer::into_voted).map_err(unreachable)
    }

    async fn full_snapshot(
        &mut self,
        vote: RaftVote,
        snapshot: SnapshotOf<C, Snapshot>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<C>, StreamingError<C>> {
        tokio::select! {
            biased;
            closed = cancel => Err(StreamingError::Closed(closed)),
            sent = self.send_snapshot(vote, snapshot.snapshot) => match sent {
                Ok(vote) => Ok(SnapshotResponse::new(vote)),
                Err(error) => Err(StreamingError::Unreachable(Unreachable::new(&error))),
            },
        }
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<C>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<C>, RPCError<C>> {
        let answer = self.control(&Request::transfer(&request), &option).await;
        answer.and_then(|answer| answer.into_transferred(&request)).map_err(unreachable)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use openraft::impls::leader_id_std::LeaderId;
    use tokio::net::TcpListener;

    use super::*;
    use crate::base::boot_instant::BootInstant;
    use crate::base::type_config::CommittedLeader;
    use crate::node::commands::Commands;

    /// Sends a heartbeat to a voter that gives this answer. Returns the answer, the acknowledgement
    /// that the leader counts, and the time when the voter got the handshake.
    async fn ask(
        answer: Answer,
    ) -> (AppendEntriesResponse<Commands>, Option<(BootInstant, Duration)>, BootInstant) {
        let cluster = ClusterId([7; 16]);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let voter = tokio::spawn(async move {
            let mut stream = listener.accept().await.unwrap().0;
            let handshake = Handshake::read(&mut stream).await.unwrap();
            let heard = LeaseAcks::send_time();
            handshake.answer(cluster, 2).write(&mut stream).await.unwrap();
            let mut frames = Framed::new(stream, FrameCodec::default());
            let asked = frames.next().await.unwrap().unwrap();
            frames.send(Frame::new(asked.call, &answer).unwrap()).await.unwrap();
            assert!(frames.next().await.is_none());
            heard
        });
        let network = Network::new(cluster, 1);
        let id = EntryId { leader_id: CommittedLeader::new(4), index: 9 };
        let request = AppendEntriesRequest::<Commands> {
            vote: RaftVote { leader_id: LeaderId { term: 5, voted_for: 1 }, committed: true },
            prev_log_id: Some(id),
            entries: Vec::new(),
            leader_commit: None,
        };
        let mut link = network.link(2, &address, Lane::Control);
        let option = RPCOption::new(VOTE_TIMEOUT_MIN);
        let answer = RaftNetworkV2::<Commands>::append_entries(&mut link, request, option).await;
        let counted = network.lease_acks().with(5, |ack| ack(2));
        drop((link, network));
        (answer.unwrap(), counted, voter.await.unwrap())
    }

    /// A leader does not know the options of the others. And a lease begins before the voter gets
    /// the request, however long that takes.
    #[tokio::test]
    async fn a_lease_is_as_long_as_the_voter_says_from_the_sending_on() {
        let (answer, known, heard) = ask(Answer::Appended(30)).await;
        assert!(answer.is_success());
        let (sent, lease) = known.unwrap();
        assert_eq!(lease, Duration::from_millis(30));
        assert!(sent < heard, "{sent:?} {heard:?}");
    }

    /// A voter that refuses promises nothing.
    #[tokio::test]
    async fn a_refusal_is_no_lease() {
        let vote = RaftVote { leader_id: LeaderId { term: 6, voted_for: 3 }, committed: false };
        for answer in [Answer::Conflict, Answer::HigherVote(vote.into())] {
            let (answer, known, _) = ask(answer).await;
            assert!(!answer.is_success());
            assert_eq!(known, None);
        }
    }
}
