//! Calls from node to node, as long as the link between them is up.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::io::{self, Cursor, Read};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use esker_consensus::{ConsensusLog, Snapshot};
use esker_disk::sim::SimDisk;
use esker_raft::openraft::error::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use esker_raft::openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};

use esker_raft::openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use esker_raft::openraft::{self, EmptyNode, Raft, RaftTypeConfig};
use esker_raft::{LogStore, Machine, MachineStore};

openraft::declare_raft_types!(
    /// A register that is appended to.
    pub Words:
        D = String,
        R = u64,
        NodeId = u64,
        Node = EmptyNode,
        LeaderId = openraft::impls::leader_id_std::LeaderId<Self::Term, Self::NodeId>,
);

/// Everything that was applied, in order.
#[derive(Default)]
pub struct Register(pub Vec<String>);

impl Machine<Words> for Register {
    fn apply(&mut self, command: String) -> u64 {
        self.0.push(command);
        self.0.len() as u64
    }

    fn answer(&self) -> u64 {
        self.0.len() as u64
    }

    fn state(&self) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(Cursor::new(self.0.join("\n").into_bytes())))
    }

    fn restore(&mut self, state: &mut dyn Read) -> io::Result<()> {
        self.0 = io::read_to_string(state)?.lines().map(str::to_owned).collect();
        Ok(())
    }
}

pub type Node = Raft<Words, MachineStore<Words, Register>>;

#[derive(Clone, Default)]
pub struct Network {
    nodes: Arc<Mutex<BTreeMap<u64, Node>>>,
    /// Nodes that no call reaches or leaves.
    cut_off: Arc<Mutex<BTreeSet<u64>>>,
}

impl Network {
    /// Starts the node with what is on its disk.
    pub async fn start(&self, id: u64, disk: &SimDisk) -> Node {
        let log = ConsensusLog::builder("/raft").disk(Arc::new(disk.clone())).open().unwrap();
        let machine = MachineStore::new(log.clone(), Register::default()).unwrap();
        let config = Arc::new(esker_raft::config(Duration::from_millis(20)));
        let links = Links { network: self.clone(), from: id };
        let node =
            Node::new(id, config, links, LogStore::new(log).unwrap(), machine).await.unwrap();
        self.nodes.lock().unwrap().insert(id, node.clone());
        node
    }

    pub fn stop(&self, id: u64) -> Option<Node> {
        self.nodes.lock().unwrap().remove(&id)
    }

    pub fn cut_off(&self, id: u64) {
        self.cut_off.lock().unwrap().insert(id);
    }

    pub fn connect(&self, id: u64) {
        self.cut_off.lock().unwrap().remove(&id);
    }

    fn node(&self, from: u64, to: u64) -> Option<Node> {
        let cut_off = self.cut_off.lock().unwrap();
        if cut_off.contains(&from) || cut_off.contains(&to) {
            return None;
        }
        self.nodes.lock().unwrap().get(&to).cloned()
    }
}

pub struct Links {
    network: Network,
    from: u64,
}

impl RaftNetworkFactory<Words> for Links {
    type Network = Link;

    async fn new_client(&mut self, target: u64, _node: &EmptyNode) -> Link {
        Link { network: self.network.clone(), from: self.from, to: target }
    }
}

pub struct Link {
    network: Network,
    from: u64,
    to: u64,
}

impl Link {
    fn node(&self) -> Result<Node, Unreachable<Words>> {
        let gone = || Unreachable::from_string(format!("{} cannot reach {}", self.from, self.to));
        self.network.node(self.from, self.to).ok_or_else(gone)
    }

    /// The answer of a node that is still reachable.
    fn answer<T, E: std::fmt::Display>(
        &self,
        answer: Result<T, E>,
    ) -> Result<T, Unreachable<Words>> {
        self.node()?;
        answer.map_err(Unreachable::from_string)
    }
}

impl RaftNetworkV2<Words> for Link {
    type SnapshotData = Snapshot;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Words>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<Words>, RPCError<Words>> {
        Ok(self.answer(self.node()?.append_entries(request).await)?)
    }

    async fn vote(
        &mut self,
        request: VoteRequest<Words>,
        _option: RPCOption,
    ) -> Result<VoteResponse<Words>, RPCError<Words>> {
        Ok(self.answer(self.node()?.vote(request).await)?)
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<Words>,
        _option: RPCOption,
    ) -> Result<VoteResponse<Words>, RPCError<Words>> {
        Ok(self.answer(self.node()?.pre_vote(request).await)?)
    }

    async fn full_snapshot(
        &mut self,
        vote: <Words as RaftTypeConfig>::Vote,
        snapshot: openraft::type_config::alias::SnapshotOf<Words, Snapshot>,
        _cancel: impl Future<Output = ReplicationClosed> + openraft::OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<Words>, StreamingError<Words>> {
        Ok(self.answer(self.node()?.install_full_snapshot(vote, snapshot).await)?)
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<Words>,
        _option: RPCOption,
    ) -> Result<TransferLeaderResponse<Words>, RPCError<Words>> {
        Ok(self.answer(self.node()?.handle_transfer_leader(request).await)?)
    }
}
