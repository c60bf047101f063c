//! openraft's side of the connections.

use std::collections::HashMap;
use std::fmt::Debug;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use esker_consensus::Snapshot;
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

use crate::base::config::{Id, StoredConfig, VoteOf};
use crate::network::acknowledged::Acknowledged;
use crate::network::address::Address;
use crate::network::deadline::{Guarded, guarded, within};
use crate::network::frame::{Frame, Frames};
use crate::network::handshake::{ClusterId, Handshake, Purpose, VERSION};
use crate::network::message::{Answer, Request};
use crate::network::peer::{Peer, connect};
use crate::network::proof_link::ProofLink;
use crate::network::reversion::{Matched, Reversions};
use crate::network::transport::{Tcp, Transport};

/// Requests for entries that are on their way to one node: 1 MiB each, unless one entry is longer.
const PIPELINE: usize = 16;
/// How long a call about an election may take, at least: a vote waits for a sync.
const VOTE: Duration = Duration::from_secs(1);

/// How long a receiver of a snapshot may take nothing, and how long it may take to make it its
/// state, or to find out what it has of it.
const STALL: Duration = Duration::from_secs(5);
const INSTALL: Duration = Duration::from_secs(300);

/// A node that says where the others reach it.
pub trait RaftAddress {
    /// Host and port of its [`Server`](crate::Server).
    fn raft_address(&self) -> &str;
}

impl RaftAddress for BasicNode {
    fn raft_address(&self) -> &str {
        &self.addr
    }
}

/// Votes, heartbeats and transfers do not wait behind entries: each has its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Lane {
    Control,
    Entries,
}

/// Where each node is, and the connections to it.
#[derive(Debug, Default)]
struct Known {
    addresses: HashMap<u64, Address>,
    peers: HashMap<(u64, Lane), Peer>,
    matched: HashMap<u64, Matched>,
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
    known: Arc<Mutex<Known>>,
    acknowledged: Acknowledged,
    reversions: Reversions,
}

impl Network {
    /// The connections of this node of this cluster.
    pub fn new(cluster: ClusterId, node: u64) -> Self {
        Self::over(Arc::new(Tcp), cluster, node)
    }

    /// The same, carried by something else than TCP.
    pub(crate) fn over(transport: Arc<dyn Transport>, cluster: ClusterId, node: u64) -> Self {
        let (known, acknowledged, reversions) = Default::default();
        Self { cluster, node, transport, known, acknowledged, reversions }
    }

    fn handshake(&self, to: u64, purpose: Purpose) -> Handshake {
        Handshake { version: VERSION, purpose, cluster: self.cluster, from: self.node, to }
    }

    fn link(&self, target: u64, address: &str, appends: Lane) -> Link {
        Link {
            address: self.moved(target, address),
            handshake: self.handshake(target, Purpose::Snapshot),
            control: self.peer(target, address, Lane::Control),
            appends: self.peer(target, address, appends),
            acknowledged: self.acknowledged.clone(),
            matched: self.known.lock().matched.entry(target).or_default().clone(),
            reversions: self.reversions.clone(),
        }
    }

    /// The node is reached there from its next connection on. openraft keeps the links to a node
    /// whose address changes.
    pub(crate) fn moved(&self, node: u64, address: &str) -> Address {
        let mut known = self.known.lock();
        let new = || Address::new(Arc::clone(&self.transport), address);
        let known = known.addresses.entry(node).or_insert_with(new);
        known.set(address);
        known.clone()
    }

    pub(crate) fn acknowledged(&self) -> &Acknowledged {
        &self.acknowledged
    }

    pub(crate) fn reversions(&self) -> &Reversions {
        &self.reversions
    }

    /// A connection to the node at this address, for proofs.
    pub(crate) fn proofs(&self, node: u64, address: &str) -> ProofLink {
        ProofLink::new(self.moved(node, address), self.handshake(node, Purpose::Proofs))
    }

    fn peer(&self, node: u64, address: &str, lane: Lane) -> Peer {
        let address = self.moved(node, address);
        let handshake = self.handshake(node, Purpose::Calls);
        let mut known = self.known.lock();
        known.peers.entry((node, lane)).or_insert_with(|| Peer::new(address, handshake)).clone()
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

/// The way to one node. From [`Network`].
#[derive(Debug, Clone)]
pub struct Link {
    address: Address,
    handshake: Handshake,
    control: Peer,
    /// All of them over one connection, also those without entries: the node has to get them in
    /// the order in which they are sent.
    appends: Peer,
    acknowledged: Acknowledged,
    matched: Matched,
    reversions: Reversions,
}

fn unreachable<C: StoredConfig>(error: io::Error) -> RPCError<C> {
    RPCError::Unreachable(Unreachable::new(&error))
}

impl Link {
    async fn control(&self, request: &Request, option: &RPCOption) -> io::Result<Answer> {
        self.control.call(request, option.soft_ttl().max(VOTE)).await
    }

    /// Sends a request, and returns what waits for the answer.
    async fn begin_append<C: StoredConfig>(
        &self,
        request: AppendEntriesRequest<C>,
    ) -> io::Result<impl Future<Output = io::Result<Appended<C>>> + use<C>> {
        let last = request.entries.last().map(|entry| entry.log_id).or(request.prev_log_id);
        let previous = request.prev_log_id;
        let (target, term) = (self.handshake.to, request.vote.leader_id.term);
        let (acknowledged, sent) = (self.acknowledged.clone(), Acknowledged::sending());
        let (matched, reversions) = (self.matched.clone(), self.reversions.clone());
        // What it has acknowledged before it gets this, so the order of answers does not matter.
        let matched_end = matched.end(term);
        let pending = self.appends.send(&Request::append(&request)?).await?;
        Ok(async move {
            let answer = pending.answer().await?;
            let lease = answer.lease();
            let answer = answer.into_appended::<C>(previous, last)?;
            if answer.is_success() {
                acknowledged.by(target, term, sent, lease);
            }
            match &answer {
                AppendEntriesResponse::Success => matched.raise(term, end(last)),
                AppendEntriesResponse::PartialSuccess(through) => {
                    matched.raise(term, end(*through));
                }
                AppendEntriesResponse::Conflict if end(previous) <= matched_end => {
                    matched.reset();
                    reversions.note(target, term, matched_end - 1);
                }
                _ => {}
            }
            Ok(Appended { answer, previous, last })
        })
    }

    async fn send_snapshot(&self, vote: VoteOf, snapshot: Snapshot) -> io::Result<VoteOf> {
        let stream = guarded(connect(&self.address, &self.handshake).await?, INSTALL, STALL);
        let mut frames = Framed::new(stream, Frames::default());
        frames.send(Frame::new(0, &Request::Snapshot { vote: vote.into() })?).await?;
        let theirs = within(STALL, read_answer(&mut frames)).await?.into_snapshot()?;
        if theirs > vote {
            return Ok(theirs);
        }
        snapshot.send(frames.get_mut()).await.map_err(io::Error::other)?;
        read_answer(&mut frames).await?.into_snapshot()
    }
}

async fn read_answer(frames: &mut Framed<Guarded, Frames>) -> io::Result<Answer> {
    let frame = frames.next().await.transpose()?;
    frame.ok_or(io::ErrorKind::UnexpectedEof)?.message()
}

/// The index after the entries up to this one.
fn end(last: Option<Id>) -> u64 {
    last.map_or(0, |last| last.index + 1)
}

/// An answer, and the entries that it is about.
struct Appended<C: StoredConfig> {
    answer: AppendEntriesResponse<C>,
    previous: Option<Id>,
    last: Option<Id>,
}

impl<C: StoredConfig> Appended<C> {
    /// The result, and whether what was sent after it counts.
    fn into_result(self) -> (StreamAppendResult<C>, bool) {
        let Self { answer, previous, last } = self;
        let is_whole = match &answer {
            AppendEntriesResponse::PartialSuccess(through) => *through == last,
            answer => answer.is_success(),
        };
        (answer.into_stream_result(previous, last), is_whole)
    }
}

type Answers<'s, C> = BoxStream<'s, Result<StreamAppendResult<C>, RPCError<C>>>;

impl<C: StoredConfig> RaftNetworkV2<C> for Link {
    type SnapshotData = Snapshot;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<C>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<C>, RPCError<C>> {
        let appended = async { self.begin_append::<C>(request).await?.await };
        let appended = within(option.soft_ttl(), appended).await;
        appended.map(|appended| appended.answer).map_err(unreachable)
    }

    /// Requests are sent without waiting for the answers to those before.
    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        _option: RPCOption,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<Answers<'s, C>, RPCError<C>>> + Send + 's>>
    where
        S: futures_util::Stream<Item = AppendEntriesRequest<C>> + OptionalSend + Unpin + 'static,
    {
        let sent = input.then(move |request| {
            let link = self.clone();
            async move { link.begin_append::<C>(request).await }
        });
        let answers = sent.map(|sent| async move { sent?.await }).buffered(PIPELINE);
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
        let answers: Answers<'s, C> = answers.boxed();
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
        vote: VoteOf,
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
    use crate::base::config::Committed;
    use crate::base::instant::BootInstant;
    use crate::node::commands::Commands;

    /// Asks a voter that answers so. Returns its answer, what the leader counts by it, and when the
    /// voter heard of the leader.
    async fn ask(
        answer: Answer,
    ) -> (AppendEntriesResponse<Commands>, Option<(BootInstant, Duration)>, BootInstant) {
        let cluster = ClusterId([7; 16]);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let voter = tokio::spawn(async move {
            let mut stream = listener.accept().await.unwrap().0;
            let handshake = Handshake::read(&mut stream).await.unwrap();
            let heard = Acknowledged::sending();
            handshake.answer(cluster, 2).write(&mut stream).await.unwrap();
            let mut frames = Framed::new(stream, Frames::default());
            let asked = frames.next().await.unwrap().unwrap();
            frames.send(Frame::new(asked.call, &answer).unwrap()).await.unwrap();
            assert!(frames.next().await.is_none());
            heard
        });
        let network = Network::new(cluster, 1);
        let id = Id { leader_id: Committed::new(4), index: 9 };
        let request = AppendEntriesRequest::<Commands> {
            vote: VoteOf { leader_id: LeaderId { term: 5, voted_for: 1 }, committed: true },
            prev_log_id: Some(id),
            entries: Vec::new(),
            leader_commit: None,
        };
        let mut link = network.link(2, &address, Lane::Control);
        let option = RPCOption::new(VOTE);
        let answer = RaftNetworkV2::<Commands>::append_entries(&mut link, request, option).await;
        let known = network.acknowledged().with(5, |known| known(2));
        drop((link, network));
        (answer.unwrap(), known, voter.await.unwrap())
    }

    /// A leader does not know what the others were started with. And a lease begins before the
    /// voter hears of it, however long the way there is.
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
        let vote = VoteOf { leader_id: LeaderId { term: 6, voted_for: 3 }, committed: false };
        for answer in [Answer::Conflict, Answer::HigherVote(vote.into())] {
            let (answer, known, _) = ask(answer).await;
            assert!(!answer.is_success());
            assert_eq!(known, None);
        }
    }
}
