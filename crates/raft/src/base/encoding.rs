//! The bytes of an entry, and of the log's application state. Numbers are little-endian.
//!
//! ```text
//! entry:       0 version 1 (1) | 1 kind (1) | 2 term (8) | 10 content
//! app state:   0 version 2 (1) | 1 lease in milliseconds (4)
//!              | 5 term (8) | 13 index (8) of the last purged entry, if one was purged
//! ```
//!
//! Kind 0 is blank, without content; 1 a command, as postcard encodes it; 2 a membership, as JSON:
//! so it can be read when openraft has added to it. The index is the slot.

use std::io;

use esker_consensus::Slot;
use openraft::entry::EntryPayload;
use openraft::{Entry, LogId, Membership};

use crate::base::failure::invalid_data;
use crate::base::type_config::{CommittedLeader, EntryId, StoredConfig};

const ENTRY_VERSION: u8 = 1;
const TERM_OFFSET: usize = 2;
/// Bytes before the content of an entry.
const ENTRY_HEADER_BYTES: usize = 10;
const APP_STATE_VERSION: u8 = 2;
/// Bytes of the term and index of the last purged entry.
const PURGED_ID_BYTES: usize = 16;
/// The highest index of an entry: openraft adds to indexes.
pub(crate) const INDEX_MAX: u64 = u64::MAX / 2;

/// The index after one that this node has checked.
pub(crate) fn index_after(index: u64) -> u64 {
    debug_assert!(index <= INDEX_MAX, "the index {index} is above {INDEX_MAX}");
    index.saturating_add(1)
}

const KIND_BLANK: u8 = 0;
const KIND_COMMAND: u8 = 1;
const KIND_MEMBERSHIP: u8 = 2;

const _: () = assert!(ENTRY_HEADER_BYTES == TERM_OFFSET + size_of::<u64>());
const _: () = assert!(PURGED_ID_BYTES == 2 * size_of::<u64>());

fn entry_id(term: u64, index: u64) -> EntryId {
    LogId { leader_id: CommittedLeader::new(term), index }
}

fn read_u64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(crate) fn encode<C: StoredConfig>(entry: &C::Entry) -> io::Result<Vec<u8>> {
    let mut bytes = vec![ENTRY_VERSION, KIND_BLANK];
    bytes.extend_from_slice(&entry.log_id.leader_id.term.to_le_bytes());
    debug_assert_eq!(bytes.len(), ENTRY_HEADER_BYTES, "the content follows the header");
    let bytes = match &entry.payload {
        EntryPayload::Blank => bytes,
        EntryPayload::Normal(command) => {
            bytes[1] = KIND_COMMAND;
            postcard::to_extend(command, bytes).map_err(io::Error::other)?
        }
        EntryPayload::Membership(membership) => {
            bytes[1] = KIND_MEMBERSHIP;
            serde_json::to_writer(&mut bytes, membership)?;
            bytes
        }
    };
    debug_assert!(
        decode_id(Slot(entry.log_id.index), &bytes).is_ok_and(|id| id == entry.log_id),
        "an encoded entry has its id"
    );
    Ok(bytes)
}

/// Decodes the id of the entry with these bytes.
pub(crate) fn decode_id(slot: Slot, bytes: &[u8]) -> io::Result<EntryId> {
    match (bytes.first(), read_u64(bytes, TERM_OFFSET)) {
        (Some(&ENTRY_VERSION), Some(term)) => Ok(entry_id(term, slot.0)),
        (Some(&ENTRY_VERSION), None) | (None, _) => {
            Err(invalid_data(format!("the entry at {slot} is cut")))
        }
        (Some(version), _) => {
            Err(invalid_data(format!("the entry at {slot} has version {version}")))
        }
    }
}

pub(crate) fn decode<C: StoredConfig>(slot: Slot, bytes: &[u8]) -> io::Result<C::Entry> {
    let log_id = decode_id(slot, bytes)?;
    let content = &bytes[ENTRY_HEADER_BYTES..];
    let damaged =
        |cause: &dyn std::fmt::Display| invalid_data(format!("the entry at {slot}: {cause}"));
    let payload = match bytes[1] {
        KIND_BLANK if content.is_empty() => EntryPayload::Blank,
        KIND_COMMAND => {
            let (command, rest) =
                postcard::take_from_bytes(content).map_err(|cause| damaged(&cause))?;
            if !rest.is_empty() {
                return Err(damaged(&"bytes follow its command"));
            }
            EntryPayload::Normal(command)
        }
        KIND_MEMBERSHIP => {
            let membership: Membership<C::NodeId, C::Node> =
                serde_json::from_slice(content).map_err(|cause| damaged(&cause))?;
            if membership.get_joint_config().is_empty() {
                return Err(damaged(&"it has no voters"));
            }
            if membership.voter_ids().any(|id| membership.get_node(&id).is_none()) {
                return Err(damaged(&"a voter is no member"));
            }
            EntryPayload::Membership(membership)
        }
        kind => return Err(damaged(&format_args!("its kind is {kind}"))),
    };
    Ok(Entry { log_id, payload })
}

/// The log's application state: what it keeps beside votes and entries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct AppState {
    /// The longest time, in milliseconds, for which the node may have promised a leader to give no
    /// vote; 0 before its first start.
    pub(crate) lease_ms: u32,
    /// The last entry that was purged.
    pub(crate) purged: Option<EntryId>,
}

impl AppState {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![APP_STATE_VERSION];
        bytes.extend(self.lease_ms.to_le_bytes());
        if let Some(id) = &self.purged {
            bytes.extend(id.leader_id.term.to_le_bytes());
            bytes.extend(id.index.to_le_bytes());
        }
        debug_assert!(
            Self::decode(&bytes).is_ok_and(|decoded| decoded == *self),
            "an encoded state can be read"
        );
        bytes
    }

    /// Decodes the application state of a log; the default for a log without one.
    pub(crate) fn decode(bytes: &[u8]) -> io::Result<Self> {
        let Some((version, content)) = bytes.split_first() else { return Ok(Self::default()) };
        let damaged =
            || invalid_data(format!("the state beside the log cannot be read: version {version}"));
        let (lease_ms, purged) = match (*version, content.split_first_chunk()) {
            (APP_STATE_VERSION, Some((lease_ms, purged))) => {
                (u32::from_le_bytes(*lease_ms), purged)
            }
            _ => return Err(damaged()),
        };
        let purged = match (purged.len(), read_u64(purged, 0), read_u64(purged, 8)) {
            (0, ..) => None,
            (PURGED_ID_BYTES, Some(term), Some(index)) => Some(entry_id(term, index)),
            _ => return Err(damaged()),
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
        let ids = [None, Some(entry_id(3, 0)), Some(entry_id(u64::MAX, 1 << 40))];
        for (lease_ms, purged) in [0, 80, u32::MAX].into_iter().zip(ids) {
            let kept = AppState { lease_ms, purged };
            let bytes = kept.encode();
            assert_eq!(AppState::decode(&bytes).unwrap(), kept);
            for len in (1..bytes.len()).filter(|len| *len != 5) {
                assert!(AppState::decode(&bytes[..len]).is_err(), "{len} bytes");
            }
            assert!(AppState::decode(&[&bytes[..], &[0]].concat()).is_err());
            assert!(AppState::decode(&[&[1], &bytes[1..]].concat()).is_err());
        }
        assert_eq!(AppState::decode(&[]).unwrap(), AppState::default());
    }
}
