//! The bytes of an entry, and of the state that is kept beside them. Numbers are little-endian.
//!
//! ```text
//! entry:   0 version 1 (1) | 1 kind (1) | 2 term (8) | 10 content
//! kept:    0 version 2 (1) | 1 lease in milliseconds (4)
//!          | 5 term (8) | 13 index (8) of the last purged entry, if one was purged
//! ```
//!
//! Kind 0 is blank, without content; 1 a command, as postcard encodes it; 2 a membership, as JSON:
//! so it can be read when openraft has added to it. The index is the slot.

use std::io;

use esker_consensus::Slot;
use openraft::entry::EntryPayload;
use openraft::{Entry, LogId};

use crate::base::config::{Committed, Id, StoredConfig};
use crate::base::failure::invalid;

const VERSION: u8 = 1;
/// Bytes before the content of an entry.
const HEADER: usize = 10;
const KEPT_VERSION: u8 = 2;

const BLANK: u8 = 0;
const COMMAND: u8 = 1;
const MEMBERSHIP: u8 = 2;

fn id_of(term: u64, index: u64) -> Id {
    LogId { leader_id: Committed::new(term), index }
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(crate) fn encode<C: StoredConfig>(entry: &C::Entry) -> io::Result<Vec<u8>> {
    let mut bytes = vec![VERSION, BLANK];
    bytes.extend_from_slice(&entry.log_id.leader_id.term.to_le_bytes());
    match &entry.payload {
        EntryPayload::Blank => Ok(bytes),
        EntryPayload::Normal(command) => {
            bytes[1] = COMMAND;
            postcard::to_extend(command, bytes).map_err(io::Error::other)
        }
        EntryPayload::Membership(membership) => {
            bytes[1] = MEMBERSHIP;
            serde_json::to_writer(&mut bytes, membership)?;
            Ok(bytes)
        }
    }
}

/// The id of the entry with these bytes.
pub(crate) fn decode_id(slot: Slot, bytes: &[u8]) -> io::Result<Id> {
    match (bytes.first(), long(bytes, 2)) {
        (Some(&VERSION), Some(term)) => Ok(id_of(term, slot.0)),
        (Some(&VERSION), None) | (None, _) => Err(invalid(format!("the entry at {slot} is cut"))),
        (Some(version), _) => Err(invalid(format!("the entry at {slot} has version {version}"))),
    }
}

pub(crate) fn decode<C: StoredConfig>(slot: Slot, bytes: &[u8]) -> io::Result<C::Entry> {
    let log_id = decode_id(slot, bytes)?;
    let content = &bytes[HEADER..];
    let wrong = |cause: &dyn std::fmt::Display| invalid(format!("the entry at {slot}: {cause}"));
    let payload = match bytes[1] {
        BLANK if content.is_empty() => EntryPayload::Blank,
        COMMAND => {
            let (command, rest) =
                postcard::take_from_bytes(content).map_err(|cause| wrong(&cause))?;
            if !rest.is_empty() {
                return Err(wrong(&"bytes follow its command"));
            }
            EntryPayload::Normal(command)
        }
        MEMBERSHIP => EntryPayload::Membership(
            serde_json::from_slice(content).map_err(|cause| wrong(&cause))?,
        ),
        kind => return Err(wrong(&format_args!("its kind is {kind}"))),
    };
    Ok(Entry { log_id, payload })
}

/// What the log keeps beside votes and entries, as its application state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    /// The longest time, in milliseconds, for which the node may have promised a leader to give no
    /// vote; 0 before its first start.
    pub(crate) lease_ms: u32,
    /// The last entry that was purged.
    pub(crate) purged: Option<Id>,
}

impl Kept {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![KEPT_VERSION];
        bytes.extend(self.lease_ms.to_le_bytes());
        if let Some(id) = &self.purged {
            bytes.extend(id.leader_id.term.to_le_bytes());
            bytes.extend(id.index.to_le_bytes());
        }
        bytes
    }

    /// The state that the log has; the default for none.
    pub(crate) fn decode(bytes: &[u8]) -> io::Result<Self> {
        let Some((version, content)) = bytes.split_first() else { return Ok(Self::default()) };
        let wrong =
            || invalid(format!("the state beside the log cannot be read: version {version}"));
        let (lease_ms, purged) = match (*version, content.split_first_chunk()) {
            (KEPT_VERSION, Some((lease_ms, purged))) => (u32::from_le_bytes(*lease_ms), purged),
            _ => return Err(wrong()),
        };
        let purged = match (purged.len(), long(purged, 0), long(purged, 8)) {
            (0, ..) => None,
            (16, Some(term), Some(index)) => Some(id_of(term, index)),
            _ => return Err(wrong()),
        };
        Ok(Self { lease_ms, purged })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn what_is_kept_comes_back_and_nothing_else_is_read() {
        let ids = [None, Some(id_of(3, 0)), Some(id_of(u64::MAX, 1 << 40))];
        for (lease_ms, purged) in [0, 80, u32::MAX].into_iter().zip(ids) {
            let kept = Kept { lease_ms, purged };
            let bytes = kept.encode();
            assert_eq!(Kept::decode(&bytes).unwrap(), kept);
            for len in (1..bytes.len()).filter(|len| *len != 5) {
                assert!(Kept::decode(&bytes[..len]).is_err(), "{len} bytes");
            }
            assert!(Kept::decode(&[&bytes[..], &[0]].concat()).is_err());
            assert!(Kept::decode(&[&[1], &bytes[1..]].concat()).is_err());
        }
        assert_eq!(Kept::decode(&[]).unwrap(), Kept::default());
    }
}
