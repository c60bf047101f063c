//! The sorted keys of a keyspace: a list of entries, in leaves.
//!
//! Point operations never use it. New keys enter it later, in batches, because finding the place of
//! one random key costs more than the rest of a put. A scan first adds those that are waiting.
//!
//! Beside each leaf are eight bytes of its first key, its head: those after the
//! longest common prefix of all keys. Most comparisons need only these, and no access to an entry.

use std::cmp::Ordering;

use crate::index::arena::Arena;
use crate::index::entry::{EntryId, key_word};
use crate::index::leaf::{LEAF_ENTRIES_MAX, Leaf, LeafHead, compare_prefix, split_full};

/// The fewest entries of a leaf after a removal; one with fewer is merged with the next, if both
/// fit in one.
const LEAF_ENTRIES_MIN: usize = LEAF_ENTRIES_MAX / 4;
/// The number of new keys for one leaf from which on the leaf is merged with them; fewer are
/// inserted one by one.
const MERGE_KEYS_MIN: usize = 16;

/// The entries of one keyspace, sorted by their keys.
#[derive(Debug, Default)]
pub(crate) struct SortedKeys {
    /// The leaves, none of which is empty.
    leaves: Vec<Leaf>,
    /// The length of a common prefix of all keys.
    skip: usize,
    /// Eight bytes after the prefix of the first key of each leaf.
    heads: Vec<u64>,
}

/// A place in a [`SortedKeys`]: a leaf, and an entry there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SortedCursor {
    leaf: usize,
    at: usize,
}

/// Whether entries are sorted by their keys, which all differ.
fn is_sorted(arena: &Arena, ids: &[EntryId]) -> bool {
    ids.is_sorted_by(|a, b| arena.compare_entries(*a, *b, 0) == Ordering::Less)
}

/// Sorts entries by their keys.
pub(crate) fn sort(arena: &Arena, ids: &mut Vec<EntryId>) {
    let Some(first) = ids.first().copied() else { return };
    let skip = ids.iter().map(|id| arena.common_prefix(first, *id)).min().unwrap_or(0);
    let mut keyed: Vec<_> = ids.iter().map(|id| (arena.key_word(*id, skip), *id)).collect();
    keyed.sort_unstable_by(|(a, x), (b, y)| {
        a.cmp(b).then_with(|| arena.compare_entries(*x, *y, skip))
    });
    ids.clear();
    ids.extend(keyed.into_iter().map(|(_, id)| id));
}

impl SortedKeys {
    /// Creates the list of these leaves, each of which is sorted and not empty. `None` if they are
    /// not sorted.
    pub(super) fn from_leaves(arena: &Arena, leaves: Vec<Leaf>) -> Option<Self> {
        let is_after = |pair: &[Leaf]| match (pair[0].ids.last(), pair[1].ids.first()) {
            (Some(last), Some(first)) => arena.compare_entries(*last, *first, 0) == Ordering::Less,
            _ => false,
        };
        if !leaves.windows(2).all(is_after) {
            return None;
        }
        let mut sorted = Self { leaves, ..Self::default() };
        sorted.recompute(arena);
        Some(sorted)
    }

    /// Sets the prefix to the longest one, and the heads after it.
    fn recompute(&mut self, arena: &Arena) {
        let first = self.leaves.first().and_then(|leaf| leaf.ids.first());
        let last = self.leaves.last().and_then(|leaf| leaf.ids.last());
        self.skip = match (first, last) {
            (Some(first), Some(last)) => arena.common_prefix(*first, *last),
            _ => 0,
        };
        self.heads.clear();
        self.heads.extend(self.leaves.iter().map(|leaf| leaf.head(arena, self.skip)));
    }

    /// The bytes of memory reserved.
    pub(crate) fn bytes(&self) -> u64 {
        let leaf = |leaf: &Leaf| leaf.words.capacity() * 4 + leaf.ids.capacity() * 4;
        let leaves: usize = self.leaves.iter().map(leaf).sum();
        (leaves + self.leaves.capacity() * size_of::<Leaf>() + self.heads.capacity() * 8) as u64
    }

    /// The last leaf whose first key is at or below `key`, of those from `from` on; that one, if
    /// there is none.
    fn find_leaf(&self, arena: &Arena, key: &[u8], from: usize) -> usize {
        let head = key_word(key, self.skip);
        let is_at_or_below = |at: usize| match self.heads[at].cmp(&head) {
            Ordering::Equal => {
                let first = self.leaves[at].ids.first();
                first.is_none_or(|id| arena.compare(*id, key, self.skip) != Ordering::Greater)
            }
            unequal => unequal == Ordering::Less,
        };
        // Sorted keys are close to each other: double the distance until it is too far.
        let (mut low, mut step) = (from, 1);
        while low + step < self.heads.len() && is_at_or_below(low + step) {
            low += step;
            step *= 2;
        }
        let mut high = (low + step).min(self.heads.len());
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            if is_at_or_below(middle) { low = middle } else { high = middle }
        }
        low
    }

    fn head(&self, leaf: usize) -> LeafHead {
        LeafHead { skip: self.skip, word: self.heads[leaf] }
    }

    /// Compares the prefix of all keys with that of a key.
    fn compare_prefix(&self, arena: &Arena, key: &[u8]) -> Ordering {
        match self.leaves.first().and_then(|leaf| leaf.ids.first()) {
            Some(first) => compare_prefix(arena, *first, key, self.skip),
            None => Ordering::Equal,
        }
    }

    /// Adds sorted entries, whose keys are not in the list yet. `false` if one of them was.
    #[must_use]
    pub(crate) fn insert(&mut self, arena: &Arena, mut new: &[EntryId]) -> bool {
        debug_assert!(is_sorted(arena, new), "new entries are sorted, each with its own key");
        let (Some(lowest), Some(highest)) = (new.first(), new.last()) else { return true };
        let Some(own) = self.leaves.first().and_then(|leaf| leaf.ids.first()).copied() else {
            self.leaves = split_full(arena, new);
            self.recompute(arena);
            return true;
        };
        let common = arena.common_prefix(*lowest, own).min(arena.common_prefix(*highest, own));
        if common < self.skip {
            self.skip = common;
            self.heads = self.leaves.iter().map(|leaf| leaf.head(arena, common)).collect();
        }
        let mut key = Vec::new();
        let (mut at, mut are_new) = (0, true);
        // Leaves that became too large, and what replaces them.
        let mut splits: Vec<(usize, Vec<Leaf>)> = Vec::new();
        while let Some(first) = new.first() {
            key.clear();
            arena.copy_key(*first, &mut key);
            at = self.find_leaf(arena, &key, at);
            let these = self.count_for_leaf(arena, new, at);
            let (these, rest) = new.split_at(these);
            new = rest;
            let head = self.head(at);
            let is_last = at + 1 == self.leaves.len();
            let leaf = &mut self.leaves[at];
            let appends = is_last
                && leaf
                    .ids
                    .last()
                    .is_some_and(|last| arena.compare_entries(*last, *first, 0) == Ordering::Less);
            if appends && leaf.ids.len() + these.len() > LEAF_ENTRIES_MAX {
                // Keys that come in order leave full leaves.
                let (fill, over) = these.split_at(LEAF_ENTRIES_MAX.saturating_sub(leaf.ids.len()));
                are_new &= leaf.merge(arena, fill);
                let over = split_full(arena, over);
                self.heads.extend(over.iter().map(|leaf| leaf.head(arena, self.skip)));
                self.leaves.extend(over);
                continue;
            }
            if these.len() < MERGE_KEYS_MIN {
                for id in these {
                    key.clear();
                    arena.copy_key(*id, &mut key);
                    are_new &= leaf.insert(arena, *id, &key, head);
                }
            } else {
                are_new &= leaf.merge(arena, these);
            }
            if leaf.ids.first() == these.first() {
                self.heads[at] = leaf.head(arena, self.skip);
            }
            if leaf.ids.len() > LEAF_ENTRIES_MAX {
                splits.push((at, leaf.split(arena)));
            }
        }
        self.replace(arena, splits);
        debug_assert_eq!(self.heads.len(), self.leaves.len(), "a leaf has a head");
        are_new
    }

    /// Counts the sorted entries that belong to a leaf: the first one does.
    fn count_for_leaf(&self, arena: &Arena, new: &[EntryId], leaf: usize) -> usize {
        let Some(next) = self.leaves.get(leaf + 1).and_then(|leaf| leaf.ids.first()) else {
            return new.len();
        };
        let head = self.heads[leaf + 1];
        let is_below = |id: &EntryId| match arena.key_word(*id, self.skip).cmp(&head) {
            Ordering::Equal => arena.compare_entries(*id, *next, self.skip) == Ordering::Less,
            unequal => unequal == Ordering::Less,
        };
        1 + new.iter().skip(1).take_while(|id| is_below(id)).count()
    }

    /// Replaces leaves, all in one pass.
    fn replace(&mut self, arena: &Arena, splits: Vec<(usize, Vec<Leaf>)>) {
        if splits.is_empty() {
            return;
        }
        let more: usize = splits.iter().map(|(_, leaves)| leaves.len()).sum();
        let old = std::mem::take(&mut self.leaves);
        self.leaves.reserve(old.len() + more);
        let heads = std::mem::take(&mut self.heads);
        self.heads.reserve(old.len() + more);
        let mut splits = splits.into_iter().peekable();
        for (at, (leaf, head)) in old.into_iter().zip(heads).enumerate() {
            match splits.next_if(|(split, _)| *split == at) {
                Some((_, leaves)) => {
                    self.heads.extend(leaves.iter().map(|leaf| leaf.head(arena, self.skip)));
                    self.leaves.extend(leaves);
                }
                None => {
                    self.heads.push(head);
                    self.leaves.push(leaf);
                }
            }
        }
    }

    /// Removes an entry. `false` if it is not in the list.
    pub(crate) fn remove(&mut self, arena: &Arena, id: EntryId, key: &[u8]) -> bool {
        let SortedCursor { leaf: at, at: n } = self.seek(arena, key);
        let Some(leaf) = self.leaves.get_mut(at) else { return false };
        if leaf.ids.get(n) != Some(&id) {
            return false;
        }
        debug_assert_eq!(leaf.ids.len(), leaf.words.len(), "a leaf has a word for each entry");
        leaf.ids.remove(n);
        leaf.words.remove(n);
        if leaf.ids.is_empty() {
            self.leaves.remove(at);
            self.heads.remove(at);
            return true;
        }
        if n == 0 {
            self.heads[at] = leaf.head(arena, self.skip);
        }
        let fits = |next: &Leaf| next.ids.len() + self.leaves[at].ids.len() <= LEAF_ENTRIES_MAX / 2;
        if self.leaves[at].ids.len() < LEAF_ENTRIES_MIN && self.leaves.get(at + 1).is_some_and(fits)
        {
            let next = self.leaves.remove(at + 1);
            self.heads.remove(at + 1);
            self.leaves[at].ids.extend(next.ids);
            self.leaves[at].recompute(arena);
        }
        true
    }

    /// The place of the first key at or above `key`.
    pub(crate) fn seek(&self, arena: &Arena, key: &[u8]) -> SortedCursor {
        match self.compare_prefix(arena, key) {
            // All keys are above this one, or below it.
            Ordering::Greater => return SortedCursor { leaf: 0, at: 0 },
            Ordering::Less => return self.end(),
            Ordering::Equal if self.leaves.is_empty() => return self.end(),
            Ordering::Equal => {}
        }
        let leaf = self.find_leaf(arena, key, 0);
        let (at, _) = self.leaves[leaf].search(arena, key, self.head(leaf));
        SortedCursor { leaf, at }
    }

    /// The place that is this many entries further; the end, if there are fewer.
    pub(crate) fn skip(&self, mut cursor: SortedCursor, mut entries: usize) -> SortedCursor {
        while let Some(leaf) = self.leaves.get(cursor.leaf) {
            let here = leaf.ids.len().saturating_sub(cursor.at);
            if entries < here {
                return SortedCursor { at: cursor.at + entries, ..cursor };
            }
            entries -= here;
            cursor = SortedCursor { leaf: cursor.leaf + 1, at: 0 };
        }
        cursor
    }

    /// The place after the last key.
    pub(crate) fn end(&self) -> SortedCursor {
        SortedCursor { leaf: self.leaves.len(), at: 0 }
    }

    /// The entry at a place, or the first one after it, and the place after that.
    pub(crate) fn next(&self, mut cursor: SortedCursor) -> Option<(EntryId, SortedCursor)> {
        loop {
            let leaf = self.leaves.get(cursor.leaf)?;
            if let Some(id) = leaf.ids.get(cursor.at) {
                return Some((*id, SortedCursor { at: cursor.at + 1, ..cursor }));
            }
            cursor = SortedCursor { leaf: cursor.leaf + 1, at: 0 };
        }
    }

    /// The entry before a place, which is its own place.
    pub(crate) fn previous(&self, mut cursor: SortedCursor) -> Option<(EntryId, SortedCursor)> {
        while cursor.at == 0 {
            let leaf = cursor.leaf.checked_sub(1)?;
            cursor = SortedCursor { leaf, at: self.leaves.get(leaf)?.ids.len() };
        }
        let at = cursor.at - 1;
        let id = self.leaves.get(cursor.leaf)?.ids.get(at)?;
        Some((*id, SortedCursor { at, ..cursor }))
    }

    /// Checks that all keys are sorted, and the words.
    #[cfg(test)]
    fn check(&self, arena: &Arena) {
        let mut last: Option<Vec<u8>> = None;
        assert_eq!(self.heads.len(), self.leaves.len());
        for (leaf, head) in self.leaves.iter().zip(&self.heads) {
            assert_eq!(leaf.head(arena, self.skip), *head);
            assert!(!leaf.ids.is_empty() && leaf.ids.len() <= LEAF_ENTRIES_MAX);
            assert_eq!(leaf.ids.len(), leaf.words.len());
            for (id, found) in leaf.ids.iter().zip(&leaf.words) {
                let mut key = Vec::new();
                arena.copy_key(*id, &mut key);
                assert_eq!(*found, crate::index::leaf::word(arena, *id, leaf.skip));
                assert!(last.as_ref().is_none_or(|last| *last < key));
                last = Some(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::index::arena::ENTRIES_BYTES_MAX;
    use crate::index::entry::{HashedKey, Version};

    const VERSION: Version = Version { seq: 1, deleted: false, offset: 0, len: 0 };

    fn keys(sorted: &SortedKeys, arena: &Arena, mut cursor: SortedCursor) -> Vec<Vec<u8>> {
        let mut keys = Vec::new();
        while let Some((id, next)) = sorted.next(cursor) {
            let mut key = Vec::new();
            arena.copy_key(id, &mut key);
            keys.push(key);
            cursor = next;
        }
        keys
    }

    fn insert(
        sorted: &mut SortedKeys,
        arena: &Arena,
        model: &mut BTreeMap<Vec<u8>, EntryId>,
        keys: Vec<Vec<u8>>,
    ) {
        let mut ids = Vec::new();
        for key in keys {
            model.entry(key.clone()).or_insert_with(|| {
                let hashed = HashedKey { keyspace: 1, key: &key, shard: 0, hash: 0 };
                let id = arena.allocate(hashed, VERSION, 0).unwrap();
                ids.push(id);
                id
            });
        }
        sort(arena, &mut ids);
        assert!(sorted.insert(arena, &ids));
        sorted.check(arena);
    }

    /// Bug: the second one was listed, too, and a scan returned the key twice.
    #[test]
    fn a_second_entry_of_a_key_is_reported() {
        let arena = Arena::new(ENTRIES_BYTES_MAX, Default::default());
        let allocate = |n: usize| {
            let (key, shard) = (format!("{n:04}"), 0);
            let hashed = HashedKey { keyspace: 1, key: key.as_bytes(), shard, hash: 0 };
            arena.allocate(hashed, VERSION, 0).unwrap()
        };
        for keys in [vec![7], (0..2 * MERGE_KEYS_MIN).collect()] {
            let mut sorted = SortedKeys::default();
            let first: Vec<_> = (0..100).map(|n| allocate(n * 2)).collect();
            assert!(sorted.insert(&arena, &first));
            let new: Vec<_> = keys.iter().map(|n| allocate(n * 2 + 1)).collect();
            assert!(sorted.insert(&arena, &new));
            let again: Vec<_> = keys.iter().map(|n| allocate(n * 2 + 1)).collect();
            assert!(!sorted.insert(&arena, &again));
        }
    }

    #[test]
    fn keys_in_order_leave_full_leaves() {
        let (arena, mut sorted, mut model) = (
            Arena::new(ENTRIES_BYTES_MAX, Default::default()),
            SortedKeys::default(),
            BTreeMap::new(),
        );
        for batch in 0..40u32 {
            let keys = (0..100).map(|n| format!("key-{:08}", batch * 100 + n).into_bytes());
            insert(&mut sorted, &arena, &mut model, keys.collect());
        }
        assert_eq!(sorted.leaves.len(), 4000usize.div_ceil(LEAF_ENTRIES_MAX));
    }

    fn some_keys() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let key = prop_oneof![
            prop::collection::vec(0u8..3, 0..12),
            (0u32..3000).prop_map(|n| format!("user:{n:05}:name").into_bytes()),
        ];
        prop::collection::vec(key, 1..400)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn an_order_is_a_sorted_map(
            batches in prop::collection::vec((some_keys(), prop::collection::vec(any::<prop::sample::Index>(), 0..300)), 1..8),
            probes in prop::collection::vec(prop::collection::vec(0u8..4, 0..12), 1..20),
        ) {
            let (arena, mut sorted, mut model) = (Arena::new(ENTRIES_BYTES_MAX, Default::default()), SortedKeys::default(), BTreeMap::new());
            for (keys, removals) in batches {
                insert(&mut sorted, &arena, &mut model, keys);
                for index in removals {
                    if model.is_empty() {
                        break;
                    }
                    let key = model.keys().nth(index.index(model.len())).unwrap().clone();
                    let id = model.remove(&key).unwrap();
                    prop_assert!(sorted.remove(&arena, id, &key));
                    prop_assert!(!sorted.remove(&arena, id, &key));
                }
                sorted.check(&arena);
                let start = SortedCursor { leaf: 0, at: 0 };
                prop_assert_eq!(keys_of(&model), self::keys(&sorted, &arena, start));
                for probe in &probes {
                    let cursor = sorted.seek(&arena, probe);
                    let above: Vec<_> = model.range(probe.clone()..).map(|(k, _)| k.clone()).collect();
                    prop_assert_eq!(&above, &self::keys(&sorted, &arena, cursor));
                    let below = model.range(..probe.clone()).next_back().map(|(_, id)| *id);
                    prop_assert_eq!(below, sorted.previous(cursor).map(|(id, _)| id));
                }
                let last = model.values().next_back().copied();
                prop_assert_eq!(last, sorted.previous(sorted.end()).map(|(id, _)| id));
            }
        }
    }

    fn keys_of(model: &BTreeMap<Vec<u8>, EntryId>) -> Vec<Vec<u8>> {
        model.keys().cloned().collect()
    }
}
