//! Which node a data folder belongs to.
//!
//! The identity is the label of the node's log, which is durable before the log takes its first
//! entry. So the data of one node cannot be taken for that of another, nor without the identity.
//!
//! A node that joins may not found its cluster again when it restarts before the cluster has it:
//! the identity says which of them it is.
//!
//! The label, 49 bytes, integers little-endian: magic number (8), cluster id (16), number of the
//! node (8), random id of the log (16), 1 if the node founds the cluster and 0 otherwise (1).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_consensus::{ConsensusLog, ReadOnlyReason};
use esker_disk::Disk;
use esker_raft::ClusterId;

use crate::error::ServerError;

const MAGIC: [u8; 8] = *b"ESKNODE1";
const LEN: usize = 49;

/// Which node it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) cluster: ClusterId,
    pub(crate) node: u64,
    /// Random: no other log has it.
    pub(crate) store: u128,
    /// Whether it is the first node of its cluster.
    pub(crate) founds: bool,
}

impl Identity {
    /// The first node of a new cluster.
    pub(crate) fn founder(node: u64) -> Result<Self, ServerError> {
        let (cluster, store) = (ClusterId(random()?), u128::from_le_bytes(random()?));
        Ok(Self { cluster, node, store, founds: true })
    }

    /// A node that joins this cluster.
    pub(crate) fn joining(cluster: ClusterId, node: u64) -> Result<Self, ServerError> {
        Ok(Self { cluster, node, store: u128::from_le_bytes(random()?), founds: false })
    }

    fn encode(&self) -> Vec<u8> {
        let Self { cluster, node, store, founds } = self;
        let (node, store) = (node.to_le_bytes(), store.to_le_bytes());
        [&MAGIC[..], &cluster.0, &node, &store, &[u8::from(*founds)]].concat()
    }

    fn decode(label: &[u8]) -> Option<Self> {
        let label: &[u8; LEN] = label.try_into().ok()?;
        let (magic, rest) = label.split_first_chunk::<8>()?;
        let (cluster, rest) = rest.split_first_chunk::<16>()?;
        let (node, rest) = rest.split_first_chunk::<8>()?;
        let (store, founds) = rest.split_first_chunk::<16>()?;
        let identity = Self {
            cluster: ClusterId(*cluster),
            node: u64::from_le_bytes(*node),
            store: u128::from_le_bytes(*store),
            founds: *founds == [1],
        };
        let is_known = *magic == MAGIC && matches!(founds, [0 | 1]);
        (is_known && identity.node > 0).then_some(identity)
    }
}

/// Whether the log with this label is that of a node of a cluster. Its number is in the label, so
/// it never gets a new one: a node under a new number starts with an empty folder.
pub fn is_of_a_node(label: &[u8]) -> bool {
    label.starts_with(&MAGIC)
}

/// Fails for a path where no node's data can be: `data/raft` would be named otherwise.
pub(crate) fn check_data(data: &Path) -> Result<(), ServerError> {
    let shown = data.display();
    if data.exists() && !data.is_dir() {
        return Err(ServerError::Option(format!("--data {shown} is a file, not a folder")));
    }
    // As `esker log` writes them.
    if data.join("manifest").exists() {
        return Err(ServerError::OtherData(format!(
            "--data {shown} is a log: choose another folder for the node"
        )));
    }
    Ok(())
}

/// Random bytes, of which no two are the same.
pub(crate) fn random() -> Result<[u8; 16], ServerError> {
    let mut bytes = [0; 16];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    match filled {
        Ok(16) => Ok(bytes),
        Ok(_) => Err(ServerError::Io("no random id".into(), std::io::ErrorKind::Other.into())),
        Err(error) => Err(ServerError::Io("no random id".into(), error.into())),
    }
}

/// Whether a log has its identity, and nothing else: its node was never a member of a cluster.
pub(crate) fn is_unused(log: &ConsensusLog) -> bool {
    log.last_slot().is_none() && log.promised().is_none() && log.floor().is_none()
}

/// The log in a data folder.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
}

impl Store {
    pub(crate) fn new(disk: Arc<dyn Disk>, dir: PathBuf) -> Self {
        Self { disk, dir }
    }

    /// The log of a node that was here before; `None` where none was, or its creation was
    /// interrupted.
    pub(crate) fn open(&self) -> Result<Option<(ConsensusLog, Identity)>, ServerError> {
        let builder = ConsensusLog::builder(&self.dir).disk(Arc::clone(&self.disk));
        let log = match builder.must_exist(true).open() {
            Ok(log) => log,
            Err(esker_consensus::Error::Log(esker_log::Error::NotALog { .. })) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // First: what is missing may be its identity.
        match log.stats().read_only {
            None => {}
            Some(ReadOnlyReason::Copied) => {
                return Err(ServerError::Copied { dir: self.dir.clone() });
            }
            Some(_) => return Err(ServerError::Repaired { dir: self.dir.clone() }),
        }
        if let Some(identity) = Identity::decode(&log.options().label) {
            return Ok(Some((log, identity)));
        }
        if is_unused(&log) && log.options().label.is_empty() {
            log.close()?;
            return Ok(None);
        }
        Err(ServerError::Identity { dir: self.dir.clone() })
    }

    /// Creates the log of a node. Its identity is durable when this returns.
    pub(crate) fn create(&self, identity: &Identity) -> Result<ConsensusLog, ServerError> {
        let builder = ConsensusLog::builder(&self.dir).disk(Arc::clone(&self.disk));
        Ok(builder.label(identity.encode()).open()?)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn an_identity_comes_back_and_nothing_else_is_one() {
        let identity = Identity::founder(7).unwrap();
        let label = identity.encode();
        assert_eq!(label.len(), LEN);
        assert_eq!(Identity::decode(&label), Some(identity));
        let joining = Identity::joining(identity.cluster, 8).unwrap();
        assert_eq!(Identity::decode(&joining.encode()), Some(joining));
        assert_ne!(joining.store, identity.store);
        assert_eq!(Identity::decode(&label[1..]), None);
        assert_eq!(Identity::decode(b""), None);
        for at in (0..8).chain([LEN - 1]) {
            let mut other = label.clone();
            other[at] ^= 2;
            assert_eq!(Identity::decode(&other), None);
        }
        let zero = Identity { node: 0, ..identity };
        assert_eq!(Identity::decode(&zero.encode()), None);
    }
}
