//! The leaves of sorted keys: sorted entries, up to [`LEAF_ENTRIES_MAX`].
//!
//! A leaf stores, beside each entry, four bytes of its key: those after the longest common prefix
//! of the leaf. Most comparisons need only these, and no access to an entry.

use std::cmp::Ordering;

use crate::index::arena::Arena;
use crate::index::entry::{EntryId, key_word};

/// The most entries of a leaf.
pub(super) const LEAF_ENTRIES_MAX: usize = 512;

/// Entries sorted by their keys, a part of those of a keyspace.
#[derive(Debug)]
pub(super) struct Leaf {
    /// The length of a common prefix of all keys here.
    pub(super) skip: usize,
    /// Four bytes after the prefix of each key.
    pub(super) words: Vec<u32>,
    pub(super) ids: Vec<EntryId>,
}

/// The first four of eight bytes.
#[inline]
fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

/// Four bytes of the key of an entry.
#[inline]
pub(super) fn word(arena: &Arena, id: EntryId, skip: usize) -> u32 {
    high(arena.key_word(id, skip))
}

impl Leaf {
    /// Creates a leaf of sorted entries, at least one and at most [`LEAF_ENTRIES_MAX`].
    pub(super) fn new(arena: &Arena, ids: Vec<EntryId>) -> Self {
        debug_assert!((1..=LEAF_ENTRIES_MAX).contains(&ids.len()), "{} entries", ids.len());
        let mut leaf = Self { skip: 0, words: Vec::with_capacity(ids.len()), ids };
        leaf.recompute(arena);
        leaf
    }

    /// The number of entries.
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    /// Sets the prefix to the longest one, and the words after it.
    pub(super) fn recompute(&mut self, arena: &Arena) {
        if let (Some(first), Some(last)) = (self.ids.first(), self.ids.last()) {
            self.skip = arena.common_prefix(*first, *last);
        }
        self.words.clear();
        self.words.extend(self.ids.iter().map(|id| word(arena, *id, self.skip)));
    }

    /// Eight bytes of the first key.
    #[inline]
    pub(super) fn head(&self, arena: &Arena, skip: usize) -> u64 {
        debug_assert_eq!(self.ids.len(), self.words.len(), "a leaf has a word for each entry");
        debug_assert!(!self.ids.is_empty(), "no leaf is empty");
        self.ids.first().map_or(0, |first| arena.key_word(*first, skip))
    }

    /// The index of the first entry whose key is at or above `key`, and whether it is that key.
    /// `head` has eight bytes of the first key; what is before them is the same in `key`.
    pub(super) fn search(&self, arena: &Arena, key: &[u8], head: LeafHead) -> (usize, bool) {
        let Some(first) = self.ids.first() else { return (0, false) };
        let prefix = match head.compare_prefix(key, self.skip) {
            Some(ordering) => ordering,
            None => compare_prefix(arena, *first, key, self.skip),
        };
        match prefix {
            Ordering::Equal => {}
            Ordering::Greater => return (0, false),
            Ordering::Less => return (self.ids.len(), false),
        }
        let word = high(key_word(key, self.skip));
        let mut at = self.words.partition_point(|other| *other < word);
        while at < self.ids.len() && self.words[at] == word {
            match arena.compare(self.ids[at], key, self.skip) {
                Ordering::Less => {}
                unequal => return (at, unequal == Ordering::Equal),
            }
            at += 1;
        }
        (at, false)
    }

    /// Inserts one entry at its place. `false` if the leaf has one of this key.
    pub(super) fn insert(
        &mut self,
        arena: &Arena,
        id: EntryId,
        key: &[u8],
        head: LeafHead,
    ) -> bool {
        let (at, found) = self.search(arena, key, head);
        self.ids.insert(at, id);
        let edge = at == 0 || at + 1 == self.ids.len();
        if edge && arena.common_prefix(self.ids[0], self.ids[self.ids.len() - 1]) < self.skip {
            self.recompute(arena);
        } else {
            self.words.insert(at, word(arena, id, self.skip));
        }
        !found
    }

    /// Merges sorted entries into the leaf. `false` if it has one of the same key.
    pub(super) fn merge(&mut self, arena: &Arena, new: &[EntryId]) -> bool {
        let (Some(first), Some(last)) = (new.first(), new.last()) else { return true };
        let (Some(own_first), Some(own_last)) = (self.ids.first(), self.ids.last()) else {
            *self = Self::new(arena, new.to_vec());
            return true;
        };
        let skip = self
            .skip
            .min(arena.common_prefix(*first, *own_first))
            .min(arena.common_prefix(*last, *own_last));
        if skip < self.skip {
            self.skip = skip;
            self.words.clear();
            self.words.extend(self.ids.iter().map(|id| word(arena, *id, skip)));
        }
        let len = self.ids.len() + new.len();
        let (mut words, mut ids) = (Vec::with_capacity(len), Vec::with_capacity(len));
        let (mut at, mut are_new) = (0, true);
        for id in new {
            let word = word(arena, *id, skip);
            while at < self.ids.len() && self.words[at] <= word {
                if self.words[at] == word {
                    let ordering = arena.compare_entries(self.ids[at], *id, skip);
                    are_new &= ordering != Ordering::Equal;
                    if ordering != Ordering::Less {
                        break;
                    }
                }
                words.push(self.words[at]);
                ids.push(self.ids[at]);
                at += 1;
            }
            words.push(word);
            ids.push(*id);
        }
        words.extend_from_slice(&self.words[at..]);
        ids.extend_from_slice(&self.ids[at..]);
        (self.words, self.ids) = (words, ids);
        are_new
    }

    /// Splits off full leaves, so that none has more than [`LEAF_ENTRIES_MAX`] entries.
    pub(super) fn split(&self, arena: &Arena) -> Vec<Leaf> {
        let parts = self.ids.len().div_ceil(LEAF_ENTRIES_MAX);
        let each = self.ids.len().div_ceil(parts.max(1)).max(1);
        self.ids.chunks(each).map(|ids| Leaf::new(arena, ids.to_vec())).collect()
    }
}

/// Eight bytes of the first key of a leaf, from `skip` on. What is before them is the same in all
/// keys.
#[derive(Debug, Clone, Copy)]
pub(super) struct LeafHead {
    pub(super) skip: usize,
    pub(super) word: u64,
}

impl LeafHead {
    /// Compares the first `len` bytes of the first key with those of a key that is not shorter than
    /// what is the same in all keys, if these bytes decide.
    #[inline]
    pub(super) fn compare_prefix(self, key: &[u8], len: usize) -> Option<Ordering> {
        let bytes = len.saturating_sub(self.skip);
        if bytes > 8 || key.len() < len {
            return None;
        }
        let mask = if bytes == 8 { u64::MAX } else { !(u64::MAX >> (8 * bytes)) };
        Some((self.word & mask).cmp(&(key_word(key, self.skip) & mask)))
    }
}

/// Compares the first `len` bytes of an entry's key with those of a key.
#[inline]
pub(super) fn compare_prefix(arena: &Arena, id: EntryId, key: &[u8], len: usize) -> Ordering {
    let mut from = 0;
    while from < len {
        let keep = (len - from).min(8);
        let mask = if keep == 8 { u64::MAX } else { !(u64::MAX >> (8 * keep)) };
        match (arena.key_word(id, from) & mask).cmp(&(key_word(key, from) & mask)) {
            Ordering::Equal => from += 8,
            unequal => return unequal,
        }
    }
    if key.len() < len { Ordering::Greater } else { Ordering::Equal }
}

/// Full leaves of sorted entries, and one with the rest.
pub(super) fn split_full(arena: &Arena, ids: &[EntryId]) -> Vec<Leaf> {
    ids.chunks(LEAF_ENTRIES_MAX).map(|ids| Leaf::new(arena, ids.to_vec())).collect()
}
