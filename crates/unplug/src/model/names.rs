//! The names of all directories: the durable ones, and the changes that a power cut may undo.
//!
//! An fsync of a directory makes the changes of the names in it durable, and no others: a rename
//! between two directories may be durable in one of them alone.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use crate::record::operation::{Ino, NameCall, NameChange, RequestNumber};

/// The names in each directory.
pub type DirectoryNames = BTreeMap<Ino, BTreeMap<OsString, NamedInode>>;

/// The inode of a name, and the request that gave it the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedInode {
    pub ino: Ino,
    pub request: RequestNumber,
}

/// The changes of names of a request that are not durable: they survive as a whole or not at all.
#[derive(Clone, Debug)]
pub struct PendingRename {
    pub request: RequestNumber,
    pub changes: Vec<NameChange>,
}

#[derive(Clone, Debug, Default)]
pub struct NameVersions {
    durable: DirectoryNames,
    pending: Vec<PendingRename>,
    directories: BTreeSet<Ino>,
    /// The directories that may have a durable name and an undecided one.
    moved: BTreeSet<Ino>,
}

impl NameVersions {
    pub fn pending(&self) -> &[PendingRename] {
        &self.pending
    }

    pub fn rename(&mut self, request: RequestNumber, call: NameCall, changes: Vec<NameChange>) {
        let named = changes.iter().filter_map(|change| change.after);
        if call == NameCall::Mkdir {
            self.directories.extend(named);
        } else if changes.windows(2).any(|pair| pair[0].dir != pair[1].dir) {
            self.moved.extend(named.filter(|ino| self.directories.contains(ino)));
        }
        self.pending.push(PendingRename { request, changes });
    }

    /// An fsync of `dir`: the changes of the names in it are durable.
    pub fn sync(&mut self, dir: Ino) {
        self.make_durable(|_, change| change.dir == dir);
    }

    pub fn make_all_durable(&mut self) {
        self.make_durable(|_, _| true);
    }

    /// The changes that survive when those of `lost` do not: a change needs all earlier ones of its
    /// names and inodes that are not durable.
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
                apply(&mut names, pending.request, &pending.changes);
            }
        }
        self.keep_one_name(&mut names);
        names
    }

    /// The names that the program sees.
    pub fn live(&self) -> DirectoryNames {
        self.names(&self.pending.iter().map(|pending| pending.request).collect())
    }

    /// The directories in which a name is missing, is another file's, or is there again, when the
    /// undecided changes of a request are lost.
    pub fn differing_without(&self, request: RequestNumber) -> BTreeSet<Ino> {
        let surviving = self.surviving(&|other| other == request);
        let mut versions = HashMap::<(Ino, &OsStr), LostName>::new();
        for pending in self.pending.iter().filter(|it| !surviving.contains(&it.request)) {
            for NameChange { dir, name, .. } in &pending.changes {
                let durable = self.durable.get(dir).and_then(|names| names.get(name));
                let durable = durable.map(|named| named.ino);
                let lost = LostName { durable, live: durable, left: durable };
                versions.insert((*dir, name), lost);
            }
        }
        for pending in &self.pending {
            for NameChange { dir, name, after, .. } in &pending.changes {
                if let Some(lost) = versions.get_mut(&(*dir, name.as_os_str())) {
                    lost.live = *after;
                    let survives = surviving.contains(&pending.request);
                    lost.left = if survives { *after } else { lost.left };
                }
            }
        }
        let differing = versions.into_iter().filter(|(_, lost)| lost.is_missed());
        differing.map(|((dir, _), _)| dir).collect()
    }

    /// Makes the changes of all requests up to one durable.
    pub fn make_durable_up_to(&mut self, last: RequestNumber) {
        self.make_durable(|request, _| request <= last);
    }

    fn make_durable(&mut self, is_synced: impl Fn(RequestNumber, &NameChange) -> bool) {
        for pending in &mut self.pending {
            let changes = std::mem::take(&mut pending.changes);
            let (synced, left) =
                changes.into_iter().partition(|change| is_synced(pending.request, change));
            pending.changes = left;
            let synced: Vec<NameChange> = synced;
            apply(&mut self.durable, pending.request, &synced);
        }
        self.pending.retain(|pending| !pending.changes.is_empty());
        if self.pending.is_empty() {
            self.moved.clear();
        }
    }

    /// Removes the other names of a directory that was moved and whose old name is not durably
    /// gone: it keeps the newest with which it can be reached.
    fn keep_one_name(&self, names: &mut DirectoryNames) {
        let mut places = HashMap::<Ino, Vec<(RequestNumber, Ino, OsString)>>::new();
        for (dir, entries) in names.iter().filter(|_| !self.moved.is_empty()) {
            for (name, NamedInode { ino, request }) in entries {
                if self.moved.contains(ino) {
                    places.entry(*ino).or_default().push((*request, *dir, name.clone()));
                }
            }
        }
        places.retain(|_, places| places.len() > 1);
        let mut oldest_first: Vec<_> = places.into_values().flatten().collect();
        oldest_first.sort();
        for (_, dir, name) in oldest_first {
            let Some(entries) = names.get_mut(&dir) else { continue };
            let Some(named) = entries.remove(&name) else { continue };
            if !ReachableInodes::new(names).contains(named.ino) {
                names.entry(dir).or_default().insert(name, named);
            }
        }
    }
}

/// The inode of a name that lost changes touch.
struct LostName {
    durable: Option<Ino>,
    live: Option<Ino>,
    /// The inode without the lost changes.
    left: Option<Ino>,
}

impl LostName {
    /// Whether a user can miss something. No user knows a file that came and went since the last
    /// sync of its directory.
    fn is_missed(&self) -> bool {
        self.left != self.live && (self.live.is_some() || self.durable.is_some())
    }
}

/// The inodes that have a path, each with a directory and a name in it.
pub struct ReachableInodes<'a>(BTreeMap<Ino, Option<(Ino, &'a OsStr)>>);

impl<'a> ReachableInodes<'a> {
    pub fn new(names: &'a DirectoryNames) -> Self {
        let mut places = BTreeMap::from([(Ino::ROOT, None)]);
        let mut unvisited = vec![Ino::ROOT];
        while let Some(dir) = unvisited.pop() {
            for (name, NamedInode { ino, .. }) in names.get(&dir).into_iter().flatten() {
                if !places.contains_key(ino) {
                    places.insert(*ino, Some((dir, name.as_os_str())));
                    unvisited.push(*ino);
                }
            }
        }
        Self(places)
    }

    pub fn contains(&self, ino: Ino) -> bool {
        self.0.contains_key(&ino)
    }

    /// A path of an inode, relative to the recorded directory, whose own is empty.
    pub fn path(&self, mut ino: Ino) -> PathBuf {
        let mut names = Vec::new();
        while let Some((dir, name)) = self.0.get(&ino).copied().flatten() {
            names.push(name);
            ino = dir;
        }
        names.into_iter().rev().collect()
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

fn apply(names: &mut DirectoryNames, request: RequestNumber, changes: &[NameChange]) {
    for change in changes {
        let directory = names.entry(change.dir).or_default();
        match change.after {
            Some(ino) => directory.insert(change.name.clone(), NamedInode { ino, request }),
            None => directory.remove(&change.name),
        };
    }
}
