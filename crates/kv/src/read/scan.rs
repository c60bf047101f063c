//! Reading the keys of a range in order, at one point in time.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use crate::base::operation_errors::ReadError;
use crate::cache::value::Value;
use crate::index::entry::EntryId;
use crate::index::keyspace_keys::KeyspaceKeys;
use crate::index::table::CurrentVersion;
use crate::read::key_range::KeyRange;
use crate::state::snapshots::SnapshotPin;
use crate::state::store_state::StoreState;

/// The most keys that are looked up at a time, while no key can be removed.
const STEP_KEYS_MAX: usize = 256;
/// The number of keys of the first step.
const STEP_KEYS_MIN: usize = 16;
/// The most entries that a step visits for its keys: many may not have existed then.
const STEP_ENTRIES_MAX: usize = 4 * STEP_KEYS_MAX;
/// The number of entries whose memory is requested at a time.
const PREFETCH_ENTRIES: usize = 16;

/// An iterator over the keys and values of a range, in the order of the keys, as they were at one
/// point in time. [`Scan::rev`] reverses the order.
///
/// It keeps its point in time open, as a [`Snapshot`](crate::Snapshot) does, and may end with
/// [`ReadError::SnapshotExpired`]. Values that are not in memory are read from the disk by `next`,
/// which blocks: several at a time, up to a megabyte, with up to 8 threads.
#[derive(Debug)]
pub struct Scan {
    state: Arc<StoreState>,
    keys: Arc<KeyspaceKeys>,
    pin: Arc<SnapshotPin>,
    /// Whether the scan closes the pin at its end.
    owns_pin: bool,
    range: KeyRange,
    reverse: bool,
    step: usize,
    /// The next keys.
    entries: VecDeque<(Bytes, CurrentVersion)>,
    /// The values of some of them that were read ahead, in the same order.
    ahead: VecDeque<(EntryId, Value)>,
    done: bool,
}

impl Drop for Scan {
    fn drop(&mut self) {
        if self.owns_pin {
            self.state.close_snapshot(&self.pin);
        }
    }
}

impl Scan {
    pub(crate) fn new(
        state: Arc<StoreState>,
        keys: Arc<KeyspaceKeys>,
        pin: Arc<SnapshotPin>,
        owns_pin: bool,
        range: KeyRange,
    ) -> Self {
        let done = range.is_empty();
        // Keys that are written from here on are not visible to this scan.
        keys.sort_waiting(state.table(), state.horizon());
        Self {
            state,
            keys,
            pin,
            owns_pin,
            range,
            reverse: false,
            step: STEP_KEYS_MIN,
            entries: VecDeque::new(),
            ahead: VecDeque::new(),
            done,
        }
    }

    /// Returns the keys in descending order. To be called before the first `next`: after that, keys
    /// that were looked up ahead still come in ascending order.
    #[must_use]
    pub fn rev(mut self) -> Self {
        self.reverse = !self.reverse;
        self
    }

    /// Looks up the next keys.
    fn fill(&mut self) {
        let arena = self.state.table().arena();
        let sorted = self.keys.sorted();
        let mut keys = Vec::new();
        let mut ends = Vec::with_capacity(self.step);
        let mut cursor = match (self.reverse, &self.range.high) {
            (false, _) => sorted.seek(arena, &self.range.low),
            (true, Some(high)) => sorted.seek(arena, high),
            (true, None) => sorted.end(),
        };
        // Bounded also where no key of the range existed then.
        let mut last = None;
        let mut visited = 0;
        let mut near = Vec::with_capacity(PREFETCH_ENTRIES);
        while ends.len() < self.step && visited < STEP_ENTRIES_MAX && !self.done {
            near.clear();
            while near.len() < PREFETCH_ENTRIES
                && let Some((id, next)) =
                    if self.reverse { sorted.previous(cursor) } else { sorted.next(cursor) }
            {
                arena.prefetch(id);
                near.push(id);
                cursor = next;
            }
            self.done = near.len() < PREFETCH_ENTRIES;
            visited += near.len();
            for id in &near {
                if self.is_outside(*id) {
                    self.done = true;
                    break;
                }
                last = Some(*id);
                if let Some(current) = self.state.table().at(*id, self.pin.seq()) {
                    let start = keys.len();
                    arena.copy_key(*id, &mut keys);
                    ends.push((start, keys.len(), current));
                }
            }
        }
        // The next step begins after the last key that was visited.
        if let Some(last) = last {
            let mut key = Vec::new();
            arena.copy_key(last, &mut key);
            if self.reverse {
                self.range.high = Some(key);
            } else {
                key.push(0);
                self.range.low = key;
            }
        }
        drop(sorted);
        let keys = Bytes::from(keys);
        let versions = ends.iter().map(|(start, end, at)| (&keys[*start..*end], at));
        let read = self.state.read_ahead(self.keys.id, versions).into_iter();
        self.ahead.extend(read.map(|(n, value)| (ends[n].2.id, value)));
        let entries = ends.into_iter().map(|(start, end, at)| (keys.slice(start..end), at));
        self.entries.extend(entries);
        self.step = (self.step * 2).min(STEP_KEYS_MAX);
    }

    fn is_outside(&self, id: EntryId) -> bool {
        let arena = self.state.table().arena();
        if self.reverse {
            arena.is_below(id, &self.range.low)
        } else {
            self.range.high.as_ref().is_some_and(|high| !arena.is_below(id, high))
        }
    }

    fn next_entry(&mut self) -> Result<Option<(Bytes, Value)>, ReadError> {
        self.state.refuse_if_closing()?;
        loop {
            if let Some((key, current)) = self.entries.pop_front() {
                let value = match self.ahead.front() {
                    Some((id, _)) if *id == current.id => self.ahead.pop_front().map(|next| next.1),
                    _ => None,
                };
                let value = value.map_or_else(|| self.value(&key, &current), Ok);
                self.pin.check()?;
                return value.map(|value| Some((key, value)));
            }
            if self.done {
                return Ok(None);
            }
            if self.keys.is_dropped() {
                let name = self.keys.name().into();
                return Err(ReadError::KeyspaceDropped { name });
            }
            self.fill();
            self.pin.check()?;
            self.state.health().check_invariants()?;
        }
    }

    fn value(&self, key: &Bytes, current: &CurrentVersion) -> Result<Value, ReadError> {
        self.state.value(self.keys.id, key, current).or_else(|error| {
            // Cleaning may have moved the record. The pin keeps the old one, so this is rare.
            match self.state.get_at(&self.keys, key, self.pin.seq()) {
                Ok(Some(value)) => Ok(value),
                Err(ReadError::SnapshotExpired) => Err(ReadError::SnapshotExpired),
                _ => Err(error),
            }
        })
    }
}

impl Iterator for Scan {
    type Item = Result<(Bytes, Value), ReadError>;

    /// Returns the next key and its value.
    fn next(&mut self) -> Option<Self::Item> {
        match self.next_entry() {
            Ok(next) => next.map(Ok),
            Err(error) => {
                self.done = true;
                self.entries.clear();
                self.ahead.clear();
                Some(Err(error))
            }
        }
    }
}
