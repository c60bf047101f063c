//! Builds an index from keys that come in order, by several threads.
//!
//! Each thread builds [`IndexPart`]s of runs of sorted keys. The parts are then put together. So no
//! key is looked up, and the slots of one shard, which fit into a processor's cache, are filled at
//! a time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::index::arena::OpenSlab;
use crate::index::entry::{EntryId, SHARD_COUNT, Version};
use crate::index::keyspace_keys::KeyspaceKeys;
use crate::index::leaf::{LEAF_ENTRIES_MAX, Leaf};
use crate::index::slots::{Slots, slot};
use crate::index::sorted_keys::SortedKeys;
use crate::index::table::Table;

/// The part of an index that one thread built.
#[derive(Debug)]
pub(crate) struct IndexPart {
    open: OpenSlab,
    /// The slots of each shard.
    slots: Vec<Vec<u64>>,
    runs: Vec<SortedRun>,
    /// The last entries of the last run, which are in no leaf yet.
    ids: Vec<EntryId>,
}

/// A run of sorted keys of one keyspace.
#[derive(Debug)]
struct SortedRun {
    /// Its place among the runs of all parts.
    place: u64,
    keyspace: u32,
    leaves: Vec<Leaf>,
    count: u64,
}

/// The reason why keys are not an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BuildError {
    Unsorted,
    ArenaFull,
}

impl IndexPart {
    pub(crate) fn new() -> Self {
        Self {
            open: OpenSlab::default(),
            slots: vec![Vec::new(); SHARD_COUNT],
            runs: Vec::new(),
            ids: Vec::new(),
        }
    }

    /// Begins a run. The runs of a keyspace, in the order of their places, are sorted.
    pub(crate) fn begin(&mut self, table: &Table, place: u64, keyspace: u32) {
        self.end_leaf(table);
        self.runs.push(SortedRun { place, keyspace, leaves: Vec::new(), count: 0 });
    }

    /// Adds the next key of the run.
    pub(crate) fn push(
        &mut self,
        table: &Table,
        key: &[u8],
        version: Version,
    ) -> Result<(), BuildError> {
        if self.ids.len() == LEAF_ENTRIES_MAX {
            self.end_leaf(table);
        }
        let Some(run) = self.runs.last_mut() else {
            table.health().fail("a key is added to a run that was begun");
            return Err(BuildError::Unsorted);
        };
        // Where leaves meet, `SortedKeys::from_leaves` checks.
        if self.ids.last().is_some_and(|last| !table.arena().is_below(*last, key)) {
            return Err(BuildError::Unsorted);
        }
        let hashed = table.hash(run.keyspace, key);
        let id = table.arena().allocate_in(&mut self.open, hashed, version);
        let id = id.ok_or(BuildError::ArenaFull)?;
        run.count += 1;
        self.ids.push(id);
        self.slots[usize::from(hashed.shard)].push(slot(hashed.hash, id));
        Ok(())
    }

    fn end_leaf(&mut self, table: &Table) {
        if let Some(run) = self.runs.last_mut()
            && !self.ids.is_empty()
        {
            run.leaves.push(Leaf::new(table.arena(), self.ids.clone()));
            self.ids.clear();
        }
    }
}

/// Puts the parts together in an empty table. Returns the keyspaces by their numbers.
pub(crate) fn finish(
    table: &Table,
    mut parts: Vec<IndexPart>,
    threads: usize,
) -> Result<HashMap<u32, KeyspaceKeys>, BuildError> {
    let mut runs = Vec::new();
    for part in &mut parts {
        part.end_leaf(table);
        runs.append(&mut part.runs);
    }
    runs.sort_by_key(|run| run.place);
    let mut keyspaces: HashMap<u32, (Vec<Leaf>, u64)> = HashMap::new();
    for run in runs {
        let (leaves, count) = keyspaces.entry(run.keyspace).or_default();
        debug_assert_eq!(run.leaves.iter().map(Leaf::len).sum::<usize>() as u64, run.count);
        leaves.extend(run.leaves);
        *count += run.count;
    }
    let next = AtomicUsize::new(0);
    let fill = || {
        loop {
            let shard = next.fetch_add(1, Relaxed);
            if shard >= SHARD_COUNT {
                return;
            }
            let slots: Vec<_> = parts.iter().map(|part| &*part.slots[shard]).collect();
            table.fill(shard, Slots::from_slots(&slots));
        }
    };
    let mut all = HashMap::new();
    let mut sorted = Ok(());
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(fill);
        }
        for (id, (leaves, count)) in keyspaces {
            match SortedKeys::from_leaves(table.arena(), leaves) {
                Some(sorted) => drop(all.insert(id, KeyspaceKeys::from_sorted(id, sorted, count))),
                None => sorted = Err(BuildError::Unsorted),
            }
        }
        fill();
    });
    sorted.map(|()| all)
}
