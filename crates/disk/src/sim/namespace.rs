//! Directories: the current names, the durable names, and the pending changes between them.
//!
//! A change (create, unlink, rename, exchange) is one step, as in a journalling file system. A
//! crash keeps all of it or none of it, so a rename never loses both names. Any subset of the
//! changes may remain. Changes that share a name or a file keep their order: when one is lost, so
//! are the later ones that depend on it. Syncing a directory makes every change that touches it
//! durable, and the changes they depend on.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};
use std::sync::Arc;

use rustix::io::Errno;

use super::inode::Inode;
use super::rng::Rng;

/// Identifies a file or directory, independent of its name.
pub(super) type NodeId = u64;

/// A name in a directory.
pub(super) type Entry = (NodeId, String);

pub(super) const ROOT: NodeId = 0;

#[derive(Debug, Clone)]
enum Node {
    Dir {
        names: Box<Names>,
        open: u64,
    },
    /// Forks of the disk share the content until one of them changes it.
    File {
        inode: Arc<Inode>,
        open: u64,
    },
}

/// The names in a directory.
#[derive(Debug, Clone, Default)]
struct Names {
    now: BTreeMap<String, NodeId>,
    durable: BTreeMap<String, NodeId>,
    /// The directory was removed, or another one took its name. No name can be created in it any
    /// more.
    nameless: bool,
}

/// A pending step from the durable to the current names: one move, or the two of an exchange.
#[derive(Debug, Clone)]
struct Change(Vec<Move>);

#[derive(Debug, Clone)]
struct Move {
    node: NodeId,
    removes: Option<Entry>,
    adds: Option<Entry>,
}

/// The tree of all names.
#[derive(Debug, Clone)]
pub(super) struct Namespace {
    nodes: BTreeMap<NodeId, Node>,
    pending: Vec<Change>,
    next: NodeId,
}

impl Namespace {
    pub(super) fn new() -> Self {
        Self { nodes: BTreeMap::from([(ROOT, new_dir())]), pending: Vec::new(), next: ROOT + 1 }
    }

    /// Returns the file or directory of this path.
    pub(super) fn find(&self, path: &Path) -> Result<NodeId, Errno> {
        self.walk(path, false)
    }

    fn walk(&self, path: &Path, durable: bool) -> Result<NodeId, Errno> {
        let mut at = ROOT;
        for component in path.components() {
            let name = match component {
                Component::Normal(name) => name.to_string_lossy(),
                Component::ParentDir => return Err(Errno::INVAL),
                _ => continue,
            };
            let names = self.names(at, durable)?;
            at = *names.get(&*name).ok_or(Errno::NOENT)?;
        }
        Ok(at)
    }

    fn names(&self, dir: NodeId, on_medium: bool) -> Result<&BTreeMap<String, NodeId>, Errno> {
        match self.nodes.get(&dir) {
            Some(Node::Dir { names, .. }) => {
                Ok(if on_medium { &names.durable } else { &names.now })
            }
            _ => Err(Errno::NOTDIR),
        }
    }

    /// Returns the node of this name in a directory.
    pub(super) fn child(&self, dir: NodeId, name: &str) -> Result<NodeId, Errno> {
        self.names(dir, false)?.get(name).copied().ok_or(Errno::NOENT)
    }

    /// Returns the directory and the last name of a path.
    pub(super) fn entry(&self, path: &Path) -> Result<Entry, Errno> {
        let name = path.file_name().ok_or(Errno::INVAL)?.to_string_lossy().into_owned();
        let dir = self.find(path.parent().unwrap_or(Path::new("")))?;
        self.names(dir, false)?;
        Ok((dir, name))
    }

    pub(super) fn is_dir(&self, node: NodeId) -> bool {
        matches!(self.nodes.get(&node), Some(Node::Dir { .. }))
    }

    /// Returns whether a pending change concerns this directory.
    pub(super) fn is_unsynced(&self, node: NodeId) -> bool {
        self.pending.iter().flat_map(|change| &change.0).any(|step| step.node == node)
    }

    pub(super) fn file(&self, node: NodeId) -> Option<&Inode> {
        match self.nodes.get(&node) {
            Some(Node::File { inode, .. }) => Some(inode),
            _ => None,
        }
    }

    pub(super) fn file_mut(&mut self, node: NodeId) -> Option<&mut Inode> {
        match self.nodes.get_mut(&node) {
            Some(Node::File { inode, .. }) => Some(Arc::make_mut(inode)),
            _ => None,
        }
    }

    /// Returns the file found by the durable names of this path.
    pub(super) fn durable_file(&self, path: &Path) -> Result<&Inode, Errno> {
        self.walk(path, true).and_then(|node| self.file(node).ok_or(Errno::ISDIR))
    }

    /// Returns the names in a directory, in order.
    pub(super) fn list(&self, dir: NodeId) -> Result<Vec<String>, Errno> {
        Ok(self.names(dir, false)?.keys().cloned().collect())
    }

    /// Creates a file or a directory.
    pub(super) fn create(&mut self, entry: Entry, dir: bool) -> Result<NodeId, Errno> {
        if self.names(entry.0, false)?.contains_key(&entry.1) {
            return Err(Errno::EXIST);
        }
        if matches!(self.nodes.get(&entry.0), Some(Node::Dir { names, .. }) if names.nameless) {
            return Err(Errno::NOENT);
        }
        let node = self.next;
        self.next += 1;
        let new = if dir { new_dir() } else { Node::File { inode: Arc::default(), open: 0 } };
        self.nodes.insert(node, new);
        self.change(Change(vec![Move { node, removes: None, adds: Some(entry) }]));
        Ok(node)
    }

    pub(super) fn unlink(&mut self, entry: Entry) -> Result<(), Errno> {
        let node = self.child(entry.0, &entry.1)?;
        if self.is_dir(node) {
            return Err(Errno::ISDIR);
        }
        self.change(Change(vec![Move { node, removes: Some(entry), adds: None }]));
        self.reap();
        Ok(())
    }

    pub(super) fn remove_dir(&mut self, entry: Entry) -> Result<(), Errno> {
        let node = self.child(entry.0, &entry.1)?;
        match self.nodes.get_mut(&node) {
            Some(Node::Dir { names, .. }) if names.now.is_empty() => names.nameless = true,
            Some(Node::Dir { .. }) => return Err(Errno::NOTEMPTY),
            _ => return Err(Errno::NOTDIR),
        }
        self.change(Change(vec![Move { node, removes: Some(entry), adds: None }]));
        self.reap();
        Ok(())
    }

    pub(super) fn rename(&mut self, from: Entry, to: Entry) -> Result<(), Errno> {
        let node = self.child(from.0, &from.1)?;
        if let Some(&replaced) = self.names(to.0, false)?.get(&to.1) {
            match (self.is_dir(node), self.is_dir(replaced)) {
                _ if replaced == node => return Ok(()),
                (false, true) => return Err(Errno::ISDIR),
                (true, false) => return Err(Errno::NOTDIR),
                (true, true) if !self.names(replaced, false)?.is_empty() => {
                    return Err(Errno::NOTEMPTY);
                }
                _ => {}
            }
            if let Some(Node::Dir { names, .. }) = self.nodes.get_mut(&replaced) {
                names.nameless = true;
            }
        }
        self.change(Change(vec![Move { node, removes: Some(from), adds: Some(to) }]));
        self.reap();
        Ok(())
    }

    /// Exchanges two names as one change, as a rename is.
    pub(super) fn exchange(&mut self, a: Entry, b: Entry) -> Result<(), Errno> {
        let (first, second) = (self.child(a.0, &a.1)?, self.child(b.0, &b.1)?);
        if first != second {
            let there = Move { node: first, removes: Some(a.clone()), adds: Some(b.clone()) };
            let back = Move { node: second, removes: Some(b), adds: Some(a) };
            self.change(Change(vec![there, back]));
        }
        Ok(())
    }

    fn change(&mut self, change: Change) {
        self.apply(&change, false);
        self.pending.push(change);
    }

    fn apply(&mut self, change: &Change, on_medium: bool) {
        for adds in [false, true] {
            for step in &change.0 {
                let entry = if adds { &step.adds } else { &step.removes };
                let Some((dir, name)) = entry else { continue };
                let Some(Node::Dir { names, .. }) = self.nodes.get_mut(dir) else {
                    continue;
                };
                let names = if on_medium { &mut names.durable } else { &mut names.now };
                if adds {
                    names.insert(name.clone(), step.node);
                } else {
                    names.remove(name);
                }
            }
        }
    }

    /// Makes the changes that touch this directory durable, with those they depend on.
    pub(super) fn sync_dir(&mut self, dir: NodeId) {
        let mut needed = ChangedNames::default();
        let mut keep = vec![false; self.pending.len()];
        for (change, keep) in self.pending.iter().zip(&mut keep).rev() {
            if change.touches(dir) || needed.shares(change) {
                needed.add(change);
                *keep = true;
            }
        }
        let mut keep = keep.into_iter();
        self.persist(|_| keep.next().unwrap_or(false));
        self.reap();
    }

    /// Makes each change durable with probability `bias` in four, unless an earlier one it depends
    /// on is lost.
    pub(super) fn sync_some(&mut self, bias: u64, rng: &mut Rng) {
        let mut lost = ChangedNames::default();
        self.persist(|change| {
            let keep = rng.below(4) < bias && !lost.shares(change);
            if !keep {
                lost.add(change);
            }
            keep
        });
    }

    fn persist(&mut self, mut keep: impl FnMut(&Change) -> bool) {
        for change in std::mem::take(&mut self.pending) {
            if keep(&change) {
                self.apply(&change, true);
            } else {
                self.pending.push(change);
            }
        }
    }

    /// Invalidates every handle.
    pub(super) fn close_all(&mut self) {
        for node in self.nodes.values_mut() {
            let (Node::File { open, .. } | Node::Dir { open, .. }) = node;
            *open = 0;
        }
        self.reap();
    }

    /// Drops the pending changes: only the durable names remain.
    pub(super) fn forget_pending(&mut self) {
        self.pending.clear();
        for node in self.nodes.values_mut() {
            if let Node::Dir { names, .. } = node {
                names.now.clone_from(&names.durable);
                names.nameless = false;
            }
        }
        self.close_all();
    }

    pub(super) fn persist_everything(&mut self) {
        self.persist(|_| true);
    }

    pub(super) fn opened(&mut self, node: NodeId) {
        if let Some(Node::File { open, .. } | Node::Dir { open, .. }) = self.nodes.get_mut(&node) {
            *open += 1;
        }
    }

    pub(super) fn closed(&mut self, node: NodeId) {
        if let Some(Node::File { open, .. } | Node::Dir { open, .. }) = self.nodes.get_mut(&node) {
            *open = open.saturating_sub(1);
            if *open == 0 && !self.is_named(node) {
                self.reap();
            }
        }
    }

    /// Returns the files, by number.
    pub(super) fn files(&self) -> impl Iterator<Item = &Inode> {
        self.nodes.values().filter_map(|node| match node {
            Node::File { inode, .. } => Some(&**inode),
            Node::Dir { .. } => None,
        })
    }

    /// Returns the files, by number.
    pub(super) fn files_mut(&mut self) -> impl Iterator<Item = &mut Inode> {
        self.nodes.values_mut().filter_map(|node| match node {
            Node::File { inode, .. } => Some(Arc::make_mut(inode)),
            Node::Dir { .. } => None,
        })
    }

    /// Returns the space in bytes owned by files that have a name or are open.
    pub(super) fn used(&self) -> u64 {
        let named = self.reach([ROOT], false);
        let counts = |(id, node): (&NodeId, &Node)| match node {
            Node::File { inode, open } if *open > 0 || named.contains(*id) => inode.owned(),
            _ => 0,
        };
        self.nodes.iter().map(counts).sum()
    }

    /// Returns whether the current names lead from the root to this node.
    fn is_named(&self, node: NodeId) -> bool {
        let has_it = |other: &Node| match other {
            Node::Dir { names, .. } => names.now.values().any(|id| *id == node),
            Node::File { .. } => false,
        };
        node == ROOT || self.nodes.iter().any(|(id, other)| has_it(other) && self.is_named(*id))
    }

    /// Returns the nodes that the current names lead to, and those on the medium if asked for.
    fn reach(&self, roots: impl IntoIterator<Item = NodeId>, on_medium_too: bool) -> Reached {
        let mut found = Reached(vec![false; self.next as usize]);
        let mut todo: Vec<NodeId> = roots.into_iter().filter(|id| found.insert(*id)).collect();
        while let Some(id) = todo.pop() {
            let Some(Node::Dir { names, .. }) = self.nodes.get(&id) else {
                continue;
            };
            todo.extend(names.now.values().filter(|id| found.insert(**id)));
            if on_medium_too {
                todo.extend(names.durable.values().filter(|id| found.insert(**id)));
            }
        }
        found
    }

    /// Drops nodes that no name, no pending change and no handle refers to.
    fn reap(&mut self) {
        let changed = self.pending.iter().flat_map(|change| &change.0).map(|step| step.node);
        let is_open = |(id, node): (&NodeId, &Node)| match node {
            Node::File { open, .. } | Node::Dir { open, .. } if *open > 0 => Some(*id),
            _ => None,
        };
        let roots = [ROOT].into_iter().chain(changed);
        let held = self.reach(roots.chain(self.nodes.iter().filter_map(is_open)), true);
        self.nodes.retain(|id, _| held.contains(*id));
    }

    /// Returns all files by path, in order.
    pub(super) fn tree(&self) -> Vec<(String, NodeId)> {
        let mut found = Vec::new();
        let mut todo = vec![(String::new(), ROOT)];
        while let Some((path, id)) = todo.pop() {
            match self.nodes.get(&id) {
                Some(Node::Dir { names, .. }) => {
                    todo.extend(names.now.iter().map(|(name, id)| (format!("{path}/{name}"), *id)));
                }
                Some(Node::File { .. }) => found.push((path, id)),
                None => {}
            }
        }
        found.sort_unstable();
        found
    }
}

/// A set of nodes, by number. It is made at every change of a name.
struct Reached(Vec<bool>);

impl Reached {
    /// Returns whether the node is new.
    fn insert(&mut self, node: NodeId) -> bool {
        !std::mem::replace(&mut self.0[node as usize], true)
    }

    fn contains(&self, node: NodeId) -> bool {
        self.0[node as usize]
    }
}

impl Change {
    fn touches(&self, dir: NodeId) -> bool {
        self.entries().any(|entry| entry.0 == dir)
    }

    fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.0.iter().flat_map(|step| step.removes.iter().chain(&step.adds))
    }
}

/// The names and files that a set of changes concerns.
#[derive(Default)]
struct ChangedNames {
    entries: BTreeSet<Entry>,
    nodes: BTreeSet<NodeId>,
}

impl ChangedNames {
    fn add(&mut self, change: &Change) {
        self.nodes.extend(change.0.iter().map(|step| step.node));
        self.entries.extend(change.entries().cloned());
    }

    fn shares(&self, change: &Change) -> bool {
        change.0.iter().any(|step| self.nodes.contains(&step.node))
            || change.entries().any(|entry| self.entries.contains(entry))
    }
}

fn new_dir() -> Node {
    Node::Dir { names: Box::default(), open: 0 }
}
