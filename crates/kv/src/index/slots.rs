//! A hash table from keys to entries: open addressing with linear probing.
//!
//! A slot holds the hash beside the entry, so a lookup touches one slot, mostly, and then only the
//! entry of its own key; and growing touches no entry.

use crate::index::entry::EntryId;

/// The fewest slots of a table that has any.
const SLOTS_MIN: usize = 16;

/// Entries by the hash of their keys.
#[derive(Debug, Default)]
pub(super) struct Slots {
    /// 0 where empty; otherwise the hash in the high half, and the entry plus one.
    slots: Box<[u64]>,
    len: usize,
}

/// The slot of an entry. Never 0: an entry is at least a header long, so none has the last number.
pub(super) fn slot(hash: u32, id: EntryId) -> u64 {
    debug_assert!(id.number() < u32::MAX, "no entry has the last number");
    u64::from(hash) << 32 | u64::from(id.number().wrapping_add(1))
}

fn entry(slot: u64) -> EntryId {
    EntryId::from_number((slot as u32).wrapping_sub(1))
}

impl Slots {
    /// Creates a table of these slots, whose keys all differ.
    pub(super) fn from_slots(parts: &[&[u64]]) -> Self {
        let len = parts.iter().map(|part| part.len()).sum::<usize>();
        if len == 0 {
            return Self::default();
        }
        let size = (len + len / 2).max(SLOTS_MIN);
        let mut table = Self { slots: vec![0; size].into_boxed_slice(), len };
        for slot in parts.iter().copied().flatten() {
            table.put(*slot);
        }
        table
    }

    /// The first slot for a hash: the hashes are spread evenly, in their order.
    #[inline]
    fn home(&self, slot: u64) -> usize {
        (((slot >> 32) * self.slots.len() as u64) >> 32) as usize
    }

    /// The entry with this hash for which `is_it` holds.
    #[inline]
    pub(super) fn find(&self, hash: u32, is_it: impl Fn(EntryId) -> bool) -> Option<EntryId> {
        if self.slots.is_empty() {
            return None;
        }
        let mut at = self.home(u64::from(hash) << 32);
        loop {
            let found = self.slots[at];
            if found == 0 {
                return None;
            }
            if (found >> 32) as u32 == hash && is_it(entry(found)) {
                return Some(entry(found));
            }
            at = if at + 1 == self.slots.len() { 0 } else { at + 1 };
        }
    }

    /// Requests the memory of the slots for a hash.
    #[inline]
    pub(super) fn prefetch(&self, hash: u32) {
        if let Some(slot) = self.slots.get(self.home(u64::from(hash) << 32)) {
            esker_log::prefetch(slot);
        }
    }

    /// Adds an entry whose key is not in the table.
    pub(super) fn insert(&mut self, hash: u32, id: EntryId) {
        // At most three quarters are in use.
        if (self.len + 1) * 4 > self.slots.len() * 3 {
            self.grow();
        }
        self.len += 1;
        self.put(slot(hash, id));
    }

    /// The number of entries.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    fn put(&mut self, slot: u64) {
        debug_assert!(slot != 0, "an empty slot is no entry");
        // Otherwise the loop does not end.
        assert!(self.len <= self.slots.len(), "the table has an empty slot for an entry");
        let mut at = self.home(slot);
        while self.slots[at] != 0 {
            at = if at + 1 == self.slots.len() { 0 } else { at + 1 };
        }
        self.slots[at] = slot;
    }

    /// Grows by half, so that little memory is empty.
    fn grow(&mut self) {
        let size = (self.slots.len() + self.slots.len() / 2).max(SLOTS_MIN);
        let old = std::mem::replace(&mut self.slots, vec![0; size].into_boxed_slice());
        for slot in old {
            if slot != 0 {
                self.put(slot);
            }
        }
    }

    /// Removes an entry. `false` if it is not in the table.
    pub(super) fn remove(&mut self, hash: u32, id: EntryId) -> bool {
        let wanted = slot(hash, id);
        let len = self.slots.len();
        if len == 0 {
            return false;
        }
        let mut at = self.home(wanted);
        while self.slots[at] != wanted {
            if self.slots[at] == 0 {
                return false;
            }
            at = (at + 1) % len;
        }
        debug_assert!(self.len > 0, "an entry that is found is counted");
        self.len -= 1;
        // Move those back that would not be found past the empty slot.
        let mut next = (at + 1) % len;
        while self.slots[next] != 0 {
            let home = self.home(self.slots[next]);
            let distance = (next + len - home) % len;
            if distance >= (next + len - at) % len {
                self.slots[at] = self.slots[next];
                at = next;
            }
            next = (next + 1) % len;
        }
        self.slots[at] = 0;
        true
    }

    /// The bytes of memory.
    pub(super) fn bytes(&self) -> u64 {
        (self.slots.len() * size_of::<u64>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Hashes collide often, and wrap around the end.
        #[test]
        fn slots_are_a_map(steps in prop::collection::vec((any::<bool>(), 0u32..12, 0u32..40), 1..400)) {
            let (mut slots, mut model) = (Slots::default(), HashMap::new());
            let hash = |n: u32| if n < 6 { n * 11 } else { u32::MAX - n };
            for (adds, hashed, id) in steps {
                let known = model.contains_key(&id);
                if adds && !known {
                    slots.insert(hash(hashed), EntryId::from_number(id));
                    model.insert(id, hash(hashed));
                } else if !adds {
                    let hash = model.remove(&id);
                    let removed = slots.remove(hash.unwrap_or(5), EntryId::from_number(id));
                    prop_assert_eq!(removed, hash.is_some());
                }
                for (id, hash) in &model {
                    let is_it = |other: EntryId| other == EntryId::from_number(*id);
                    prop_assert_eq!(slots.find(*hash, is_it), Some(EntryId::from_number(*id)));
                }
                prop_assert_eq!(slots.find(7, |_| true), None);
                let used = slots.slots.iter().filter(|slot| **slot != 0).count();
                prop_assert_eq!((used, slots.len()), (model.len(), model.len()));
            }
        }
    }
}
