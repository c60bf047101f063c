//! The handshake that begins a connection.

use std::fmt;
use std::io;

use crc_fast::CrcAlgorithm::Crc32Iscsi;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::base::failure::invalid;

const MAGIC: [u8; 8] = *b"ESKRAFT1";
const LEN: usize = 48;
/// Where the checksum is, of all before it.
const CRC: usize = 44;

/// The version of the protocol. Nodes of two versions do not talk.
pub(crate) const VERSION: u16 = 1;

/// The id of a cluster: random, the same in all its nodes from its first start.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClusterId(pub [u8; 16]);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterId({self})")
    }
}

/// What a connection is for, or the answer to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Purpose {
    Calls = 1,
    Snapshot = 2,
    /// The answer of a node that takes the connection.
    Welcome = 3,
    OtherVersion = 4,
    OtherCluster = 5,
    OtherNode = 6,
    /// The answer of nodes before each member had connections of its own.
    TooMany = 7,
    /// Queries for proofs of leadership.
    Proofs = 8,
    NotMember = 9,
}

impl Purpose {
    const ALL: [Self; 9] = [
        Self::Calls,
        Self::Snapshot,
        Self::Welcome,
        Self::OtherVersion,
        Self::OtherCluster,
        Self::OtherNode,
        Self::TooMany,
        Self::Proofs,
        Self::NotMember,
    ];
}

/// The first bytes of each side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Handshake {
    pub(crate) version: u16,
    pub(crate) purpose: Purpose,
    pub(crate) cluster: ClusterId,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

impl Handshake {
    fn encode(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&self.version.to_le_bytes());
        bytes[10] = self.purpose as u8;
        bytes[12..28].copy_from_slice(&self.cluster.0);
        bytes[28..36].copy_from_slice(&self.from.to_le_bytes());
        bytes[36..44].copy_from_slice(&self.to.to_le_bytes());
        let crc = checksum(&bytes[..CRC]);
        bytes[CRC..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The layout of the first ten bytes is that of all versions, so that another can be named.
    fn decode(bytes: &[u8; LEN]) -> io::Result<Self> {
        let long = |at: usize| u64::from_le_bytes(array(bytes, at));
        if bytes[..8] != MAGIC {
            return Err(invalid("it does not speak this protocol".into()));
        }
        let version = u16::from_le_bytes(array(bytes, 8));
        let crc = u32::from_le_bytes(array(bytes, CRC));
        if version != VERSION {
            let (purpose, cluster) = (Purpose::OtherVersion, ClusterId([0; 16]));
            return Ok(Self { version, purpose, cluster, from: 0, to: 0 });
        }
        let purpose = Purpose::ALL.into_iter().find(|purpose| *purpose as u8 == bytes[10]);
        match purpose {
            Some(purpose) if crc == checksum(&bytes[..CRC]) => Ok(Self {
                version,
                purpose,
                cluster: ClusterId(array(bytes, 12)),
                from: long(28),
                to: long(36),
            }),
            _ => Err(invalid("its handshake is damaged".into())),
        }
    }

    pub(crate) async fn write(&self, stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        stream.write_all(&self.encode()).await?;
        stream.flush().await
    }

    pub(crate) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        let mut bytes = [0; LEN];
        stream.read_exact(&mut bytes).await?;
        Self::decode(&bytes)
    }

    /// The answer of node `node` of this cluster to a connection.
    pub(crate) fn answer(&self, cluster: ClusterId, node: u64) -> Self {
        let purpose = match self {
            Self { version, .. } if *version != VERSION => Purpose::OtherVersion,
            Self { cluster: theirs, .. } if *theirs != cluster => Purpose::OtherCluster,
            Self { to, from, .. } if *to != node || *from == node => Purpose::OtherNode,
            Self { purpose: Purpose::Calls | Purpose::Snapshot | Purpose::Proofs, .. } => {
                Purpose::Welcome
            }
            _ => Purpose::OtherVersion,
        };
        Self { version: VERSION, purpose, cluster, from: node, to: self.from }
    }

    /// Why a node refused a connection with this answer.
    pub(crate) fn refusal(&self) -> io::Result<()> {
        let Self { version, cluster, from, to, .. } = self;
        let why = match self.purpose {
            Purpose::Welcome => return Ok(()),
            Purpose::OtherVersion => {
                format!("it has version {version} of the protocol, and this node {VERSION}")
            }
            Purpose::OtherCluster => format!("it belongs to the cluster {cluster}"),
            Purpose::OtherNode => format!("it is node {from}"),
            Purpose::NotMember => format!("node {to} is no member of the cluster"),
            Purpose::TooMany => "it has too many connections".into(),
            Purpose::Calls | Purpose::Snapshot | Purpose::Proofs => {
                "it answered with a request".into()
            }
        };
        Err(io::Error::new(io::ErrorKind::ConnectionRefused, why))
    }
}

fn array<const N: usize>(bytes: &[u8; LEN], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    // The upper half of a 32-bit checksum is zero.
    crc_fast::checksum(Crc32Iscsi, bytes) as u32
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const HERE: ClusterId = ClusterId([7; 16]);

    fn handshake() -> Handshake {
        Handshake { version: VERSION, purpose: Purpose::Calls, cluster: HERE, from: 1, to: 2 }
    }

    #[test]
    fn a_handshake_comes_back_and_no_changed_byte_passes() {
        let handshake = handshake();
        let bytes = handshake.encode();
        assert_eq!(Handshake::decode(&bytes).unwrap(), handshake);
        for at in 0..LEN {
            let mut changed = bytes;
            changed[at] ^= 1;
            let decoded = Handshake::decode(&changed);
            let is_refused = decoded.is_err()
                || decoded.unwrap().answer(HERE, 2).purpose == Purpose::OtherVersion;
            assert!(is_refused, "byte {at}");
        }
    }

    #[test]
    fn each_mismatch_is_named() {
        let ours = handshake();
        let answer = |handshake: Handshake| handshake.answer(HERE, 2).purpose;
        assert_eq!(answer(ours), Purpose::Welcome);
        assert_eq!(answer(Handshake { version: 9, ..ours }), Purpose::OtherVersion);
        assert_eq!(
            answer(Handshake { cluster: ClusterId([8; 16]), ..ours }),
            Purpose::OtherCluster
        );
        assert_eq!(answer(Handshake { to: 3, ..ours }), Purpose::OtherNode);
        // A node does not call itself.
        assert_eq!(answer(Handshake { from: 2, ..ours }), Purpose::OtherNode);
        assert_eq!(answer(Handshake { purpose: Purpose::Welcome, ..ours }), Purpose::OtherVersion);
        for purpose in Purpose::ALL {
            let answer = Handshake { purpose, ..ours };
            assert_eq!(answer.refusal().is_ok(), purpose == Purpose::Welcome, "{purpose:?}");
        }
    }
}
