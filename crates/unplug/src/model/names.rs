//! The names of all directories: the durable ones, and the changes that a power cut may undo.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::{OsStr, OsString};

use crate::record::operation::{Ino, NameChange, RequestNumber};

/// The names in each directory.
pub type DirectoryNames = BTreeMap<Ino, BTreeMap<OsString, Ino>>;

/// A change of names that is not durable.
#[derive(Clone, Debug)]
pub struct PendingRename {
    pub request: RequestNumber,
    pub changes: Vec<NameChange>,
    /// The directories that were not synced since.
    unsynced: BTreeSet<Ino>,
}

#[derive(Clone, Debug, Default)]
pub struct NameVersions {
    durable: DirectoryNames,
    pending: Vec<PendingRename>,
}

impl NameVersions {
    pub fn pending(&self) -> &[PendingRename] {
        &self.pending
    }

    pub fn rename(&mut self, request: RequestNumber, changes: Vec<NameChange>) {
        let unsynced = changes.iter().map(|change| change.dir).collect();
        self.pending.push(PendingRename { request, changes, unsynced });
    }

    /// An fsync of `dir`: changes in it are durable when all their directories were synced.
    pub fn sync(&mut self, dir: Ino) {
        let mut synced = BTreeSet::new();
        for pending in &mut self.pending {
            pending.unsynced.remove(&dir);
            if pending.unsynced.is_empty() {
                synced.insert(pending.request);
            }
        }
        let synced = self.with_predecessors(&synced);
        self.make_durable(&synced);
    }

    /// Makes all changes durable.
    pub fn make_all_durable(&mut self) {
        let all = self.pending.iter().map(|pending| pending.request).collect();
        self.make_durable(&all);
    }

    /// The changes that survive when those of `lost` do not: a change needs all earlier ones of its
    /// names and inodes.
    pub fn surviving(&self, lost: &dyn Fn(RequestNumber) -> bool) -> BTreeSet<RequestNumber> {
        let mut broken = Chain::default();
        let mut surviving = BTreeSet::new();
        for pending in &self.pending {
            if lost(pending.request) || broken.touches(&pending.changes) {
                broken.add(&pending.changes);
            } else {
                surviving.insert(pending.request);
            }
        }
        surviving
    }

    /// These changes, and the earlier ones that they need.
    pub fn with_predecessors(&self, wanted: &BTreeSet<RequestNumber>) -> BTreeSet<RequestNumber> {
        let mut needed = Chain::default();
        let mut all = BTreeSet::new();
        for pending in self.pending.iter().rev() {
            if wanted.contains(&pending.request) || needed.touches(&pending.changes) {
                needed.add(&pending.changes);
                all.insert(pending.request);
            }
        }
        all
    }

    /// The names after the durable changes and those of `surviving`.
    pub fn names(&self, surviving: &BTreeSet<RequestNumber>) -> DirectoryNames {
        let mut names = self.durable.clone();
        for pending in &self.pending {
            if surviving.contains(&pending.request) {
                apply(&mut names, &pending.changes);
            }
        }
        names
    }

    fn make_durable(&mut self, synced: &BTreeSet<RequestNumber>) {
        let (durable, pending) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition(|pending| synced.contains(&pending.request));
        self.pending = pending;
        let durable: Vec<PendingRename> = durable;
        durable.iter().for_each(|rename| apply(&mut self.durable, &rename.changes));
    }
}

/// The names and inodes that some changes touch.
#[derive(Default)]
struct Chain<'a> {
    names: HashSet<(Ino, &'a OsStr)>,
    inodes: HashSet<Ino>,
}

impl<'a> Chain<'a> {
    fn add(&mut self, changes: &'a [NameChange]) {
        for change in changes {
            self.names.insert((change.dir, &change.name));
            self.inodes.extend(change.before.into_iter().chain(change.after));
        }
    }

    fn touches(&self, changes: &[NameChange]) -> bool {
        changes.iter().any(|change| {
            let mut inodes = change.before.iter().chain(&change.after);
            self.names.contains(&(change.dir, change.name.as_os_str()))
                || inodes.any(|inode| self.inodes.contains(inode))
        })
    }
}

fn apply(names: &mut DirectoryNames, changes: &[NameChange]) {
    for change in changes {
        let directory = names.entry(change.dir).or_default();
        match change.after {
            Some(inode) => directory.insert(change.name.clone(), inode),
            None => directory.remove(&change.name),
        };
    }
}
