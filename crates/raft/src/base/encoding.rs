//! The bytes of an entry, and of the id of the last purged one. Numbers are little-endian.
//!
//! ```text
//! entry:   0 version (1) | 1 kind (1) | 2 term (8) | 10 content
//! purged:  0 version (1) | 1 term (8) | 9 index (8)
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
/// Bytes of the id of the last purged entry.
const PURGED: usize = 17;

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

pub(crate) fn encode_purged(id: &Id) -> [u8; PURGED] {
    let mut bytes = [VERSION; PURGED];
    bytes[1..9].copy_from_slice(&id.leader_id.term.to_le_bytes());
    bytes[9..].copy_from_slice(&id.index.to_le_bytes());
    bytes
}

/// The id of the last purged entry in the state that the log keeps; `None` if nothing was purged.
pub(crate) fn decode_purged(bytes: &[u8]) -> io::Result<Option<Id>> {
    if bytes.is_empty() {
        return Ok(None);
    }
    match (bytes.len(), bytes[0], long(bytes, 1), long(bytes, 9)) {
        (PURGED, VERSION, Some(term), Some(index)) => Ok(Some(id_of(term, index))),
        _ => Err(invalid("the id of the last purged entry cannot be read".into())),
    }
}
