//! A Raft log of strings, and a state machine that has all of them.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{self, Cursor, Read};
use std::sync::Arc;

use esker_consensus::{ConsensusLog, OpenError};
use esker_disk::sim::SimDisk;
use esker_raft::openraft::entry::{EntryPayload, RaftEntry};
use esker_raft::openraft::storage::{IOFlushed, RaftLogStorage};
use esker_raft::openraft::type_config::TypeConfigExt;
use esker_raft::openraft::{LogId, RaftTypeConfig, Vote};
use esker_raft::{LogStore, Machine, MachineStore};

esker_raft::openraft::declare_raft_types!(
    /// A log of strings.
    pub Strings:
        D = String,
        R = usize,
        NodeId = u64,
        LeaderId = esker_raft::openraft::impls::leader_id_std::LeaderId<Self::Term, Self::NodeId>,
);

/// The sum of the lengths of the strings that were applied.
#[derive(Default)]
pub struct Lengths(pub usize);

impl Machine<Strings> for Lengths {
    fn apply(&mut self, command: String) -> io::Result<usize> {
        self.0 += command.len();
        Ok(self.0)
    }

    fn answer(&self) -> usize {
        self.0
    }

    fn state(&self) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(Cursor::new(self.0.to_string().into_bytes())))
    }

    fn restore(&mut self, state: &mut dyn Read) -> io::Result<()> {
        self.0 = io::read_to_string(state)?.parse().map_err(io::Error::other)?;
        Ok(())
    }
}

pub type Stores = (LogStore<Strings>, MachineStore<Strings, Lengths>);

pub fn stores(log: ConsensusLog) -> Stores {
    (LogStore::new(log.clone()).unwrap(), MachineStore::new(log, Lengths::default()).unwrap())
}

pub fn log_on(disk: &SimDisk) -> Result<ConsensusLog, OpenError> {
    ConsensusLog::builder("/raft").disk(Arc::new(disk.clone())).open()
}

pub type Id = LogId<esker_raft::openraft::vote::leader_id_std::CommittedLeaderId<u64>>;
pub type Entry = <Strings as RaftTypeConfig>::Entry;

pub fn id(term: u64, index: u64) -> Id {
    let leader_id = esker_raft::openraft::vote::leader_id_std::CommittedLeaderId::new(term);
    LogId { leader_id, index }
}

pub fn vote(term: u64, node: u64) -> <Strings as RaftTypeConfig>::Vote {
    Vote::new(term, node)
}

/// An entry whose command tells its term and index.
pub fn entry(term: u64, index: u64) -> Entry {
    let text = format!("{term}-{index}-{}", "x".repeat((index * 37 % 300) as usize));
    Entry::new(id(term, index), EntryPayload::Normal(text))
}

/// Appends, and returns what tells whether it is durable.
pub async fn append(
    log: &mut LogStore<Strings>,
    entries: Vec<Entry>,
) -> io::Result<impl Future<Output = io::Result<()>>> {
    let (sender, receiver) = Strings::oneshot();
    log.append(entries, IOFlushed::signal(sender)).await?;
    Ok(async { receiver.await.unwrap_or_else(|_| Err(io::Error::other("no callback"))) })
}
