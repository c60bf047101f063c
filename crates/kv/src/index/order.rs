//! The keys of a keyspace in order: a sorted list of entries, in leaves.
//!
//! Point operations never use it. New keys enter it later, in batches, because finding the place of
//! one random key costs more than the rest of a put. A scan first adds those that are waiting.
//!
//! A leaf stores, beside each entry, four bytes of its key: those after the longest common prefix
//! of the leaf. Most comparisons need only these, and no access to the entry.

use std::cmp::Ordering;

use crate::index::arena::{Arena, EntryId, key_word};

/// The most entries of a leaf.
pub(super) const LEAF: usize = 512;
/// A leaf with fewer entries than this after a removal is merged with the next, if both fit in one.
const SMALL: usize = LEAF / 4;
/// From this many new keys for one leaf, the leaf is merged with them; fewer are inserted one by
/// one.
const MERGE: usize = 16;

/// The entries of one keyspace in the order of their keys.
#[derive(Debug, Default)]
pub(crate) struct Order {
    /// Never an empty leaf.
    leaves: Vec<Leaf>,
}

#[derive(Debug)]
pub(super) struct Leaf {
    /// The length of a common prefix of all keys here.
    skip: usize,
    /// Of each key, four bytes after the prefix.
    words: Vec<u32>,
    ids: Vec<EntryId>,
}

/// A place in an [`Order`]: a leaf, and an entry there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spot {
    leaf: usize,
    at: usize,
}

/// The first four of eight bytes.
fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

/// Four bytes of the key of an entry.
fn word(arena: &Arena, id: EntryId, skip: usize) -> u32 {
    high(arena.key_word(id, skip))
}

impl Leaf {
    /// A leaf of sorted entries, at most [`LEAF`].
    pub(super) fn new(arena: &Arena, ids: Vec<EntryId>) -> Self {
        let mut leaf = Self { skip: 0, words: Vec::with_capacity(ids.len()), ids };
        leaf.recompute(arena);
        leaf
    }

    /// Sets the prefix to the longest one, and the words after it.
    fn recompute(&mut self, arena: &Arena) {
        if let (Some(first), Some(last)) = (self.ids.first(), self.ids.last()) {
            self.skip = arena.common_prefix(*first, *last);
        }
        self.words.clear();
        self.words.extend(self.ids.iter().map(|id| word(arena, *id, self.skip)));
    }

    /// The index of the first entry whose key is at or above `key`, and whether it is that key.
    fn search(&self, arena: &Arena, key: &[u8]) -> (usize, bool) {
        let Some(first) = self.ids.first() else { return (0, false) };
        if self.skip > 0 {
            match compare_prefix(arena, *first, key, self.skip) {
                Ordering::Equal => {}
                Ordering::Greater => return (0, false),
                Ordering::Less => return (self.ids.len(), false),
            }
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

    /// Inserts one entry at its place.
    fn insert(&mut self, arena: &Arena, id: EntryId, key: &[u8]) {
        let (at, found) = self.search(arena, key);
        debug_assert!(!found, "a key has one entry");
        self.ids.insert(at, id);
        let edge = at == 0 || at + 1 == self.ids.len();
        if edge && arena.common_prefix(self.ids[0], self.ids[self.ids.len() - 1]) < self.skip {
            self.recompute(arena);
        } else {
            self.words.insert(at, word(arena, id, self.skip));
        }
    }

    /// Merges sorted entries into the leaf.
    fn merge(&mut self, arena: &Arena, new: &[EntryId]) {
        let (Some(first), Some(last)) = (new.first(), new.last()) else { return };
        let (Some(own_first), Some(own_last)) = (self.ids.first(), self.ids.last()) else {
            *self = Self::new(arena, new.to_vec());
            return;
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
        let mut at = 0;
        for id in new {
            let word = word(arena, *id, skip);
            while at < self.ids.len()
                && (self.words[at] < word
                    || self.words[at] == word
                        && arena.compare_entries(self.ids[at], *id, skip) == Ordering::Less)
            {
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
    }

    /// Splits off full leaves, so that none has more than [`LEAF`] entries.
    fn split(self, arena: &Arena) -> Vec<Leaf> {
        let parts = self.ids.len().div_ceil(LEAF);
        let each = self.ids.len().div_ceil(parts.max(1)).max(1);
        self.ids.chunks(each).map(|ids| Leaf::new(arena, ids.to_vec())).collect()
    }
}

/// Compares the first `len` bytes of an entry's key with those of a key.
fn compare_prefix(arena: &Arena, id: EntryId, key: &[u8], len: usize) -> Ordering {
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

impl Order {
    /// The order of these leaves, which are not empty. `None` if they are not sorted: each leaf is.
    pub(super) fn of(arena: &Arena, leaves: Vec<Leaf>) -> Option<Self> {
        let is_after = |pair: &[Leaf]| match (pair[0].ids.last(), pair[1].ids.first()) {
            (Some(last), Some(first)) => arena.compare_entries(*last, *first, 0) == Ordering::Less,
            _ => false,
        };
        leaves.windows(2).all(is_after).then_some(Self { leaves })
    }

    /// Bytes of memory reserved.
    pub(crate) fn bytes(&self) -> u64 {
        let leaf = |leaf: &Leaf| leaf.words.capacity() * 4 + leaf.ids.capacity() * 4;
        let leaves: usize = self.leaves.iter().map(leaf).sum();
        (leaves + self.leaves.capacity() * size_of::<Leaf>()) as u64
    }

    /// The last leaf whose first key is at or below `key`.
    fn leaf_of(&self, arena: &Arena, key: &[u8]) -> usize {
        let at_or_below = |leaf: &Leaf| {
            leaf.ids.first().is_none_or(|id| arena.compare(*id, key, 0) != Ordering::Greater)
        };
        self.leaves.partition_point(at_or_below).saturating_sub(1)
    }

    /// Adds sorted entries, whose keys are not in the order yet.
    pub(crate) fn insert(&mut self, arena: &Arena, mut new: &[EntryId]) {
        let mut key = Vec::new();
        while let Some(first) = new.first() {
            key.clear();
            arena.copy_key(*first, &mut key);
            let at = self.leaf_of(arena, &key);
            if self.leaves.is_empty() {
                self.leaves.extend(Leaf::new(arena, new.to_vec()).split_full(arena));
                return;
            }
            let here = match self.leaves.get(at + 1).and_then(|next| next.ids.first().copied()) {
                Some(next) => {
                    new.partition_point(|id| arena.compare_entries(*id, next, 0) == Ordering::Less)
                }
                None => new.len(),
            };
            let leaf_is_last = at + 1 == self.leaves.len();
            let leaf = &mut self.leaves[at];
            let appends = leaf_is_last
                && leaf
                    .ids
                    .last()
                    .is_some_and(|last| arena.compare_entries(*last, *first, 0) == Ordering::Less);
            let (these, rest) = new.split_at(here);
            new = rest;
            if appends && leaf.ids.len() + these.len() > LEAF {
                // Keys that come in order leave full leaves.
                let (fill, over) = these.split_at(LEAF.saturating_sub(leaf.ids.len()));
                leaf.merge(arena, fill);
                self.leaves.extend(Leaf::new(arena, over.to_vec()).split_full(arena));
                continue;
            }
            if these.len() < MERGE {
                for id in these {
                    key.clear();
                    arena.copy_key(*id, &mut key);
                    leaf.insert(arena, *id, &key);
                }
            } else {
                leaf.merge(arena, these);
            }
            if leaf.ids.len() > LEAF {
                let leaf = std::mem::replace(leaf, Leaf::new(arena, Vec::new()));
                drop(self.leaves.splice(at..=at, leaf.split(arena)));
            }
        }
    }

    /// Removes an entry. `false` if it is not in the order.
    pub(crate) fn remove(&mut self, arena: &Arena, id: EntryId, key: &[u8]) -> bool {
        let at = self.leaf_of(arena, key);
        let Some(leaf) = self.leaves.get_mut(at) else { return false };
        let (n, found) = leaf.search(arena, key);
        if !found || leaf.ids[n] != id {
            return false;
        }
        leaf.ids.remove(n);
        leaf.words.remove(n);
        if leaf.ids.is_empty() {
            self.leaves.remove(at);
            return true;
        }
        let fits = |next: &Leaf| next.ids.len() + self.leaves[at].ids.len() <= LEAF / 2;
        if self.leaves[at].ids.len() < SMALL && self.leaves.get(at + 1).is_some_and(fits) {
            let next = self.leaves.remove(at + 1);
            self.leaves[at].ids.extend(next.ids);
            self.leaves[at].recompute(arena);
        }
        true
    }

    /// The place of the first key at or above `key`.
    pub(crate) fn seek(&self, arena: &Arena, key: &[u8]) -> Spot {
        let leaf = self.leaf_of(arena, key);
        let at = self.leaves.get(leaf).map_or(0, |leaf| leaf.search(arena, key).0);
        Spot { leaf, at }
    }

    /// The place that is this many entries further; the end, if there are fewer.
    pub(crate) fn skip(&self, mut spot: Spot, mut entries: usize) -> Spot {
        while let Some(leaf) = self.leaves.get(spot.leaf) {
            let here = leaf.ids.len().saturating_sub(spot.at);
            if entries < here {
                return Spot { at: spot.at + entries, ..spot };
            }
            entries -= here;
            spot = Spot { leaf: spot.leaf + 1, at: 0 };
        }
        spot
    }

    /// The place after the last key.
    pub(crate) fn end(&self) -> Spot {
        Spot { leaf: self.leaves.len(), at: 0 }
    }

    /// The entry at a place, or the first one after it, and the place after that.
    pub(crate) fn next(&self, mut spot: Spot) -> Option<(EntryId, Spot)> {
        loop {
            let leaf = self.leaves.get(spot.leaf)?;
            if let Some(id) = leaf.ids.get(spot.at) {
                return Some((*id, Spot { at: spot.at + 1, ..spot }));
            }
            spot = Spot { leaf: spot.leaf + 1, at: 0 };
        }
    }

    /// The entry before a place, which is its own place.
    pub(crate) fn previous(&self, mut spot: Spot) -> Option<(EntryId, Spot)> {
        while spot.at == 0 {
            let leaf = spot.leaf.checked_sub(1)?;
            spot = Spot { leaf, at: self.leaves.get(leaf)?.ids.len() };
        }
        let at = spot.at - 1;
        let id = self.leaves.get(spot.leaf)?.ids.get(at)?;
        Some((*id, Spot { at, ..spot }))
    }

    /// Checks the order of all keys, and the words.
    #[cfg(test)]
    fn check(&self, arena: &Arena) {
        let mut last: Option<Vec<u8>> = None;
        for leaf in &self.leaves {
            assert!(!leaf.ids.is_empty() && leaf.ids.len() <= LEAF);
            assert_eq!(leaf.ids.len(), leaf.words.len());
            for (id, found) in leaf.ids.iter().zip(&leaf.words) {
                let mut key = Vec::new();
                arena.copy_key(*id, &mut key);
                assert_eq!(*found, word(arena, *id, leaf.skip));
                assert!(last.as_ref().is_none_or(|last| *last < key));
                last = Some(key);
            }
        }
    }
}

impl Leaf {
    /// Splits into full leaves, and one with the rest.
    fn split_full(self, arena: &Arena) -> Vec<Leaf> {
        self.ids.chunks(LEAF).map(|ids| Leaf::new(arena, ids.to_vec())).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::index::arena::{Hashed, Version};

    const VERSION: Version = Version { seq: 1, deleted: false, position: 0, len: 0 };

    fn keys(order: &Order, arena: &Arena, mut spot: Spot) -> Vec<Vec<u8>> {
        let mut keys = Vec::new();
        while let Some((id, next)) = order.next(spot) {
            let mut key = Vec::new();
            arena.copy_key(id, &mut key);
            keys.push(key);
            spot = next;
        }
        keys
    }

    fn insert(
        order: &mut Order,
        arena: &Arena,
        model: &mut BTreeMap<Vec<u8>, EntryId>,
        keys: Vec<Vec<u8>>,
    ) {
        let mut ids = Vec::new();
        for key in keys {
            model.entry(key.clone()).or_insert_with(|| {
                let hashed = Hashed { keyspace: 1, key: &key, shard: 0, hash: 0 };
                let id = arena.allocate(hashed, VERSION, 0).unwrap();
                ids.push(id);
                id
            });
        }
        sort(arena, &mut ids);
        order.insert(arena, &ids);
        order.check(arena);
    }

    #[test]
    fn keys_in_order_leave_full_leaves() {
        let (arena, mut order, mut model) = (Arena::new(), Order::default(), BTreeMap::new());
        for batch in 0..40u32 {
            let keys = (0..100).map(|n| format!("key-{:08}", batch * 100 + n).into_bytes());
            insert(&mut order, &arena, &mut model, keys.collect());
        }
        assert_eq!(order.leaves.len(), 4000usize.div_ceil(LEAF));
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
            let (arena, mut order, mut model) = (Arena::new(), Order::default(), BTreeMap::new());
            for (keys, removals) in batches {
                insert(&mut order, &arena, &mut model, keys);
                for index in removals {
                    if model.is_empty() {
                        break;
                    }
                    let key = model.keys().nth(index.index(model.len())).unwrap().clone();
                    let id = model.remove(&key).unwrap();
                    prop_assert!(order.remove(&arena, id, &key));
                    prop_assert!(!order.remove(&arena, id, &key));
                }
                order.check(&arena);
                let start = Spot { leaf: 0, at: 0 };
                prop_assert_eq!(keys_of(&model), self::keys(&order, &arena, start));
                for probe in &probes {
                    let spot = order.seek(&arena, probe);
                    let above: Vec<_> = model.range(probe.clone()..).map(|(k, _)| k.clone()).collect();
                    prop_assert_eq!(&above, &self::keys(&order, &arena, spot));
                    let below = model.range(..probe.clone()).next_back().map(|(_, id)| *id);
                    prop_assert_eq!(below, order.previous(spot).map(|(id, _)| id));
                }
                let last = model.values().next_back().copied();
                prop_assert_eq!(last, order.previous(order.end()).map(|(id, _)| id));
            }
        }
    }

    fn keys_of(model: &BTreeMap<Vec<u8>, EntryId>) -> Vec<Vec<u8>> {
        model.keys().cloned().collect()
    }
}
