//! The entries of the index: a key and the place of its newest record, in words of the arena.
//!
//! ```text
//! word 0                 | sequence number << 1, 1 if it deleted the key
//! word 1                 | offset of the record in the log
//! word 2                 | where the value is cached; 0 if it is not
//! word 3   bits  0 to 22 | length of the key
//!          bit  23       | the entry was used: memory after the last entry of a slab is zero
//!          bits 24 to 31 | shard
//!          bits 32 to 62 | length of the value
//!          bit  63       | the entry is in the list of deleted ones
//! word 4   bits  0 to 31 | keyspace
//!          bits 32 to 63 | hash of the key
//! word 5 ..              | key, zeros up to a whole word
//! ```

use crate::limits::{KEY_LIMIT, VALUE_LIMIT};

/// The number of shards: an entry has the number of its shard in a byte.
pub(super) const SHARD_COUNT: usize = 1 << u8::BITS;

/// The words of an entry before its key, and what each is.
pub(super) const HEADER_WORDS: usize = 5;
pub(super) const WORD_VERSION: usize = 0;
pub(super) const WORD_OFFSET: usize = 1;
pub(super) const WORD_CACHED: usize = 2;
pub(super) const WORD_LENGTHS: usize = 3;
pub(super) const WORD_KEYSPACE: usize = 4;

/// The highest sequence number of an entry, whose word has a bit beside it.
pub(crate) const SEQ_MAX: u64 = u64::MAX >> 1;
pub(super) const KEY_LEN_MASK: u64 = (1 << 23) - 1;
pub(super) const USED_FLAG: u64 = 1 << 23;
pub(super) const SHARD_SHIFT: u32 = 24;
pub(super) const VALUE_LEN_MASK: u64 = (1 << 31) - 1;
pub(super) const VALUE_LEN_SHIFT: u32 = 32;
pub(super) const LISTED_FLAG: u64 = 1 << 63;
/// The bits of [`WORD_LENGTHS`] that a new version changes.
pub(super) const VALUE_LEN_BITS: u64 = VALUE_LEN_MASK << VALUE_LEN_SHIFT;

const _: () = assert!(KEY_LIMIT as u64 <= KEY_LEN_MASK, "every key's length fits into its bits");
const _: () = assert!(VALUE_LIMIT as u64 <= VALUE_LEN_MASK, "so does every value's length");
const _: () = assert!(
    KEY_LEN_MASK ^ USED_FLAG ^ (0xff << SHARD_SHIFT) ^ VALUE_LEN_BITS ^ LISTED_FLAG == u64::MAX,
    "the fields of the word of lengths do not overlap"
);
const _: () = assert!(WORD_KEYSPACE < HEADER_WORDS, "the key is after the other fields");
/// The number of an entry: its slab, and its offset there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct EntryId(u32);

impl EntryId {
    #[inline]
    pub(super) fn from_number(number: u32) -> Self {
        Self(number)
    }

    #[inline]
    pub(super) fn number(self) -> u32 {
        self.0
    }
}

/// One version of a key: its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version {
    /// The sequence number of its record.
    pub(crate) seq: u64,
    /// Whether the record deleted the key.
    pub(crate) deleted: bool,
    /// The offset of the record in the log.
    pub(crate) offset: u64,
    /// The length of the value.
    pub(crate) len: u32,
}

/// A key with its hash.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HashedKey<'a> {
    pub(crate) keyspace: u32,
    pub(crate) key: &'a [u8],
    pub(crate) shard: u8,
    /// Its hash in the table of the shard.
    pub(crate) hash: u32,
}

/// The words that an entry with a key of this length takes.
#[inline]
pub(super) const fn words_for(key_len: usize) -> usize {
    HEADER_WORDS + key_len.div_ceil(8)
}

/// The word with the length of a key and its shard.
#[inline]
pub(super) fn lengths_word(hashed: HashedKey<'_>) -> u64 {
    debug_assert!(hashed.key.len() <= KEY_LIMIT, "the key of an entry is within its limit");
    hashed.key.len() as u64 | USED_FLAG | u64::from(hashed.shard) << SHARD_SHIFT
}

/// The word at this offset of a key, zeros after its end; compares as the bytes do.
#[inline]
pub(super) fn key_word(key: &[u8], from: usize) -> u64 {
    let rest = key.get(from..).unwrap_or_default();
    match rest.first_chunk::<8>() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 8];
            bytes[..rest.len()].copy_from_slice(rest);
            u64::from_be_bytes(bytes)
        }
    }
}
