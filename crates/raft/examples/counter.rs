//! A counter that one node keeps in a Raft log: `cargo run -p esker-raft --example counter DIR`.
//! Run it several times with the same directory; it continues where it stopped, also after a kill.
//!
//! It uses openraft itself. `examples/proposers.rs` has a cluster of [`esker_raft::Node`]s.
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::error::Error;
use std::future::Future;
use std::io::{self, Cursor, Read};
use std::sync::Arc;
use std::time::Duration;

use esker_raft::openraft::error::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use esker_raft::openraft::impls::leader_id_std::LeaderId;
use esker_raft::openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use esker_raft::openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use esker_raft::openraft::type_config::alias::SnapshotOf;
use esker_raft::openraft::{self, EmptyNode, Raft, RaftTypeConfig};
use esker_raft::{ConsensusLog, LogStore, Machine, MachineStore, Snapshot};

openraft::declare_raft_types!(
    /// Numbers are added, and the answer is the sum.
    pub Adding:
        D = u64,
        R = u64,
        NodeId = u64,
        Node = EmptyNode,
        LeaderId = LeaderId<Self::Term, Self::NodeId>,
);

struct Counter(u64);

impl Machine<Adding> for Counter {
    fn apply(&mut self, command: u64) -> io::Result<u64> {
        self.0 = self.0.wrapping_add(command);
        Ok(self.0)
    }

    fn answer(&self) -> u64 {
        self.0
    }

    fn state(&self) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(Cursor::new(self.0.to_le_bytes())))
    }

    fn restore(&mut self, state: &mut dyn Read) -> io::Result<()> {
        let mut bytes = [0; 8];
        state.read_exact(&mut bytes)?;
        self.0 = u64::from_le_bytes(bytes);
        Ok(())
    }
}

/// There is no other node.
struct Alone;

impl RaftNetworkFactory<Adding> for Alone {
    type Network = Self;

    async fn new_client(&mut self, _target: u64, _node: &EmptyNode) -> Self {
        Self
    }
}

fn unreachable() -> Unreachable<Adding> {
    Unreachable::from_string("there is no other node")
}

impl RaftNetworkV2<Adding> for Alone {
    type SnapshotData = Snapshot;

    async fn append_entries(
        &mut self,
        _request: AppendEntriesRequest<Adding>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<Adding>, RPCError<Adding>> {
        Err(unreachable().into())
    }

    async fn vote(
        &mut self,
        _request: VoteRequest<Adding>,
        _option: RPCOption,
    ) -> Result<VoteResponse<Adding>, RPCError<Adding>> {
        Err(unreachable().into())
    }

    async fn pre_vote(
        &mut self,
        _request: VoteRequest<Adding>,
        _option: RPCOption,
    ) -> Result<VoteResponse<Adding>, RPCError<Adding>> {
        // The default would grant it.
        Err(unreachable().into())
    }

    async fn full_snapshot(
        &mut self,
        _vote: <Adding as RaftTypeConfig>::Vote,
        _snapshot: SnapshotOf<Adding, Snapshot>,
        _cancel: impl Future<Output = ReplicationClosed> + openraft::OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<Adding>, StreamingError<Adding>> {
        Err(unreachable().into())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::args().nth(1).ok_or("usage: counter DIR")?;
    let log = ConsensusLog::open(dir)?;
    let machine = MachineStore::new(log.clone(), Counter(0))?;
    let config = Arc::new(esker_raft::config(Duration::from_millis(10)));
    let node = Raft::new(1, config, Alone, LogStore::new(log.clone())?, machine).await?;
    if !node.is_initialized().await? {
        node.initialize(BTreeMap::from([(1, EmptyNode {})])).await?;
    }
    node.wait(Some(Duration::from_secs(10))).current_leader(1, "the election").await?;
    for _ in 0..1000 {
        node.client_write(1).await?;
    }
    let counted = node.client_write(1).await?.data;
    println!("{counted}");
    node.shutdown().await?;
    log.close()?;
    Ok(())
}
