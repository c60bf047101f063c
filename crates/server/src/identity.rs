//! The identity of a node: the number and the cluster that a data folder belongs to.
//!
//! The identity is the label of the node's log, which is durable before the log takes its first
//! entry. So the data of one node cannot be taken for that of another, and no data is without an
//! identity.
//!
//! A node that joins must not found a cluster when it restarts before the cluster has added it: the
//! identity says whether the node is a founder.
//!
//! The label, 49 bytes, integers little-endian: magic number (8), cluster id (16), number of the
//! node (8), random id of the log (16), 1 if the node founds the cluster and 0 otherwise (1).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_consensus::{ConsensusLog, Error, OpenError, ReadOnlyReason, StorageError};
use esker_disk::Disk;
use esker_raft::ClusterId;

use crate::error::{BrokenInvariant, ServerError};

const LABEL_MAGIC: [u8; 8] = *b"ESKNODE1";
const CLUSTER_BYTES: usize = 16;
const NODE_BYTES: usize = 8;
const STORE_BYTES: usize = 16;
const LABEL_BYTES: usize = LABEL_MAGIC.len() + CLUSTER_BYTES + NODE_BYTES + STORE_BYTES + 1;

const _: () = assert!(LABEL_BYTES == 49, "the label is part of the format on disk");

/// The identity of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) cluster: ClusterId,
    pub(crate) node: u64,
    /// The random id of the node's log. No other log has it.
    pub(crate) store: u128,
    /// Whether the node founds its cluster.
    pub(crate) founds: bool,
}

impl Identity {
    /// Creates the identity of the first node of a new cluster.
    pub(crate) fn new_founder(node: u64) -> Result<Self, ServerError> {
        Self::new(ClusterId(random_bytes()?), node, true)
    }

    /// Creates the identity of a node that joins this cluster.
    pub(crate) fn new_member(cluster: ClusterId, node: u64) -> Result<Self, ServerError> {
        Self::new(cluster, node, false)
    }

    fn new(cluster: ClusterId, node: u64, founds: bool) -> Result<Self, ServerError> {
        if node == 0 {
            return Err(ServerError::internal(BrokenInvariant("nodes are numbered from 1")));
        }
        Ok(Self { cluster, node, store: u128::from_le_bytes(random_bytes()?), founds })
    }

    fn encode(&self) -> Vec<u8> {
        let Self { cluster, node, store, founds } = self;
        let (node, store) = (node.to_le_bytes(), store.to_le_bytes());
        [&LABEL_MAGIC[..], &cluster.0, &node, &store, &[u8::from(*founds)]].concat()
    }

    fn decode(label: &[u8]) -> Option<Self> {
        let label: &[u8; LABEL_BYTES] = label.try_into().ok()?;
        let (magic, rest) = label.split_first_chunk()?;
        let (cluster, rest) = rest.split_first_chunk::<CLUSTER_BYTES>()?;
        let (node, rest) = rest.split_first_chunk::<NODE_BYTES>()?;
        let (store, founds) = rest.split_first_chunk::<STORE_BYTES>()?;
        let identity = Self {
            cluster: ClusterId(*cluster),
            node: u64::from_le_bytes(*node),
            store: u128::from_le_bytes(*store),
            founds: *founds == [1],
        };
        let is_known = *magic == LABEL_MAGIC && matches!(founds, [0 | 1]);
        (is_known && identity.node > 0).then_some(identity)
    }
}

/// Whether the log with this label belongs to a node of a cluster. The number of the node is in the
/// label and never changes: a node under a new number starts with an empty folder.
pub fn is_node_label(label: &[u8]) -> bool {
    label.starts_with(&LABEL_MAGIC)
}

/// Checks that the data of a node can be in this folder. Its log would be called `data/raft`
/// otherwise.
pub(crate) fn check_data_dir(data: &Path) -> Result<(), ServerError> {
    let shown = data.display();
    if data.exists() && !data.is_dir() {
        return Err(ServerError::InvalidOption(format!("--data {shown} is a file, not a folder")));
    }
    // As `esker log` writes them.
    if data.join("manifest").exists() {
        return Err(ServerError::DataMismatch(format!(
            "--data {shown} is a log: choose another folder for the node"
        )));
    }
    Ok(())
}

/// Returns random bytes, which are unique.
pub(crate) fn random_bytes() -> Result<[u8; 16], ServerError> {
    let mut bytes = [0; 16];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    match filled {
        Ok(16) => Ok(bytes),
        // Linux returns up to 256 bytes at once.
        Ok(_) => Err(ServerError::internal(BrokenInvariant(
            "the system returns 16 random bytes at once",
        ))),
        Err(error) => Err(ServerError::Io("no random id".into(), error.into())),
    }
}

/// Whether a log has its identity and nothing else: its node was never a member of a cluster.
pub(crate) fn is_unused(log: &ConsensusLog) -> bool {
    log.last_slot().is_none() && log.promised().is_none() && log.floor().is_none()
}

/// The folder of a node's log.
#[derive(Debug, Clone)]
pub(crate) struct LogFolder {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
}

impl LogFolder {
    pub(crate) fn new(disk: Arc<dyn Disk>, dir: PathBuf) -> Self {
        Self { disk, dir }
    }

    /// Opens the log of a node that ran here before. `None` if none did, or if its creation was
    /// interrupted.
    pub(crate) fn open(&self) -> Result<Option<(ConsensusLog, Identity)>, ServerError> {
        let builder = ConsensusLog::builder(&self.dir).disk(Arc::clone(&self.disk));
        let log = match builder.must_exist(true).open() {
            Ok(log) => log,
            Err(OpenError::Storage(StorageError::Log(esker_log::Error::NotALog { .. }))) => {
                return Ok(None);
            }
            Err(error) => return Err(Error::from(error).into()),
        };
        // Checked first: the part that is missing may be its identity.
        match log.stats().read_only {
            None => {}
            Some(ReadOnlyReason::Copied) => {
                return Err(ServerError::LogCopied { dir: self.dir.clone() });
            }
            Some(_) => return Err(ServerError::LogRepaired { dir: self.dir.clone() }),
        }
        if let Some(identity) = Identity::decode(&log.options().label) {
            return Ok(Some((log, identity)));
        }
        if is_unused(&log) && log.options().label.is_empty() {
            log.close().map_err(Error::from)?;
            return Ok(None);
        }
        Err(ServerError::IdentityMissing { dir: self.dir.clone() })
    }

    /// Creates the log of a node. Its identity is durable when this returns.
    pub(crate) fn create(&self, identity: &Identity) -> Result<ConsensusLog, ServerError> {
        let label = identity.encode();
        if Identity::decode(&label) != Some(*identity) {
            return Err(ServerError::internal(BrokenInvariant(
                "an identity is decoded as it was encoded",
            )));
        }
        let builder = ConsensusLog::builder(&self.dir).disk(Arc::clone(&self.disk));
        let log = builder.label(label).open().map_err(Error::from)?;
        if Identity::decode(&log.options().label) != Some(*identity) {
            return Err(ServerError::internal(BrokenInvariant(
                "a new log has the identity of its node",
            )));
        }
        debug_assert!(is_unused(&log), "a new log has no entries");
        Ok(log)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn an_identity_comes_back_and_nothing_else_is_one() {
        let identity = Identity::new_founder(7).unwrap();
        let label = identity.encode();
        assert_eq!(label.len(), LABEL_BYTES);
        assert_eq!(Identity::decode(&label), Some(identity));
        let joining = Identity::new_member(identity.cluster, 8).unwrap();
        assert_eq!(Identity::decode(&joining.encode()), Some(joining));
        assert_ne!(joining.store, identity.store);
        assert_eq!(Identity::decode(&label[1..]), None);
        assert_eq!(Identity::decode(b""), None);
        for at in (0..8).chain([LABEL_BYTES - 1]) {
            let mut other = label.clone();
            other[at] ^= 2;
            assert_eq!(Identity::decode(&other), None);
        }
        let zero = Identity { node: 0, ..identity };
        assert_eq!(Identity::decode(&zero.encode()), None);
    }
}
