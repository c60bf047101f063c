//! The handshake that begins a connection.

use std::fmt;
use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::base::failure::invalid_data;
use crate::network::fixed_fields::{CRC_BYTES, checksum, field, put};

const HANDSHAKE_MAGIC: [u8; 8] = *b"ESKRAFT1";
const HANDSHAKE_BYTES: usize = 48;
const VERSION_OFFSET: usize = 8;
const PURPOSE_OFFSET: usize = 10;
const CLUSTER_OFFSET: usize = 12;
const FROM_OFFSET: usize = 28;
const TO_OFFSET: usize = 36;
/// The offset of the checksum, which covers all bytes before it.
const CRC_OFFSET: usize = 44;

const _: () = assert!(VERSION_OFFSET == HANDSHAKE_MAGIC.len());
const _: () = assert!(PURPOSE_OFFSET == VERSION_OFFSET + size_of::<u16>());
const _: () = assert!(FROM_OFFSET == CLUSTER_OFFSET + size_of::<ClusterId>());
const _: () = assert!(TO_OFFSET == FROM_OFFSET + size_of::<u64>());
const _: () = assert!(CRC_OFFSET == TO_OFFSET + size_of::<u64>());
const _: () = assert!(HANDSHAKE_BYTES == CRC_OFFSET + CRC_BYTES);

/// The version of the protocol. Nodes of two versions do not talk. Version 3 has the commands of
/// sequences, at which a node of version 2 would stop.
pub(crate) const PROTOCOL_VERSION: u16 = 3;

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

/// The purpose of a connection, or the answer to its handshake.
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

/// The first message of each side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Handshake {
    pub(crate) version: u16,
    pub(crate) purpose: Purpose,
    pub(crate) cluster: ClusterId,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

impl Handshake {
    fn encode(&self) -> [u8; HANDSHAKE_BYTES] {
        let mut bytes = [0; HANDSHAKE_BYTES];
        put(&mut bytes, 0, HANDSHAKE_MAGIC);
        put(&mut bytes, VERSION_OFFSET, self.version.to_le_bytes());
        bytes[PURPOSE_OFFSET] = self.purpose as u8;
        put(&mut bytes, CLUSTER_OFFSET, self.cluster.0);
        put(&mut bytes, FROM_OFFSET, self.from.to_le_bytes());
        put(&mut bytes, TO_OFFSET, self.to.to_le_bytes());
        let crc = checksum(&bytes[..CRC_OFFSET]);
        put(&mut bytes, CRC_OFFSET, crc.to_le_bytes());
        debug_assert!(
            Self::decode(&bytes).is_ok_and(|decoded| decoded == *self),
            "an encoded handshake can be read"
        );
        bytes
    }

    /// Decodes a handshake. The first ten bytes are the same in all versions, so that another
    /// version can be named.
    fn decode(bytes: &[u8; HANDSHAKE_BYTES]) -> io::Result<Self> {
        let read_u64 = |at: usize| u64::from_le_bytes(field(bytes, at));
        if bytes[..VERSION_OFFSET] != HANDSHAKE_MAGIC {
            return Err(invalid_data("it does not speak this protocol".into()));
        }
        let version = u16::from_le_bytes(field(bytes, VERSION_OFFSET));
        let crc = u32::from_le_bytes(field(bytes, CRC_OFFSET));
        if version != PROTOCOL_VERSION {
            let (purpose, cluster) = (Purpose::OtherVersion, ClusterId([0; 16]));
            return Ok(Self { version, purpose, cluster, from: 0, to: 0 });
        }
        let purpose =
            Purpose::ALL.into_iter().find(|purpose| *purpose as u8 == bytes[PURPOSE_OFFSET]);
        match purpose {
            Some(purpose) if crc == checksum(&bytes[..CRC_OFFSET]) => Ok(Self {
                version,
                purpose,
                cluster: ClusterId(field(bytes, CLUSTER_OFFSET)),
                from: read_u64(FROM_OFFSET),
                to: read_u64(TO_OFFSET),
            }),
            _ => Err(invalid_data("its handshake is damaged".into())),
        }
    }

    pub(crate) async fn write(&self, stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        stream.write_all(&self.encode()).await?;
        stream.flush().await
    }

    pub(crate) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        let mut bytes = [0; HANDSHAKE_BYTES];
        stream.read_exact(&mut bytes).await?;
        Self::decode(&bytes)
    }

    /// The answer of node `node` of this cluster to this handshake.
    pub(crate) fn answer(&self, cluster: ClusterId, node: u64) -> Self {
        let purpose = match self {
            Self { version, .. } if *version != PROTOCOL_VERSION => Purpose::OtherVersion,
            Self { cluster: theirs, .. } if *theirs != cluster => Purpose::OtherCluster,
            Self { to, from, .. } if *to != node || *from == node => Purpose::OtherNode,
            Self { purpose: Purpose::Calls | Purpose::Snapshot | Purpose::Proofs, .. } => {
                Purpose::Welcome
            }
            _ => Purpose::OtherVersion,
        };
        Self { version: PROTOCOL_VERSION, purpose, cluster, from: node, to: self.from }
    }

    /// Fails unless this answer accepts a connection; the error has the reason.
    pub(crate) fn check_welcome(&self) -> io::Result<()> {
        let Self { version, cluster, from, to, .. } = self;
        let why = match self.purpose {
            Purpose::Welcome => return Ok(()),
            Purpose::OtherVersion => {
                format!(
                    "it has version {version} of the protocol, and this node {PROTOCOL_VERSION}"
                )
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const HERE: ClusterId = ClusterId([7; 16]);

    fn handshake() -> Handshake {
        Handshake {
            version: PROTOCOL_VERSION,
            purpose: Purpose::Calls,
            cluster: HERE,
            from: 1,
            to: 2,
        }
    }

    #[test]
    fn a_handshake_comes_back_and_no_changed_byte_passes() {
        let handshake = handshake();
        let bytes = handshake.encode();
        assert_eq!(Handshake::decode(&bytes).unwrap(), handshake);
        for at in 0..HANDSHAKE_BYTES {
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
            assert_eq!(answer.check_welcome().is_ok(), purpose == Purpose::Welcome, "{purpose:?}");
        }
    }
}
