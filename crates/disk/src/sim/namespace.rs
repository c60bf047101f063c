//! Directories: the names as they are now, those on the medium, and the changes in between.
//!
//! A change (create, unlink, rename) is one step, as in a journalling file system: a crash keeps it
//! whole or loses it whole, so a rename never loses both names. Any subset of the changes may stay,
//! but changes that share a name or a file keep their order: when one is lost, so are the later ones
//! that build on it. Syncing a directory settles every change that touches it, and those they build on.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

use rustix::io::Errno;

use super::inode::Inode;
use super::rng::Rng;

/// Names a file or directory, whatever it is called.
pub(super) type NodeId = u64;

/// A name in a directory.
type Entry = (NodeId, String);

const ROOT: NodeId = 0;

#[derive(Debug, Clone)]
enum Node {
    Dir { now: BTreeMap<String, NodeId>, durable: BTreeMap<String, NodeId> },
    File { inode: Box<Inode>, open: u64 },
}

/// A step between the names on the medium and the names as they are now.
#[derive(Debug, Clone)]
struct Change {
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

    /// The file or directory of this name.
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
            Some(Node::Dir { now, durable }) => Ok(if on_medium { durable } else { now }),
            _ => Err(Errno::NOTDIR),
        }
    }

    /// The directory and the last name of a path.
    fn entry(&self, path: &Path) -> Result<Entry, Errno> {
        let name = path.file_name().ok_or(Errno::INVAL)?.to_string_lossy().into_owned();
        let dir = self.find(path.parent().unwrap_or(Path::new("")))?;
        self.names(dir, false)?;
        Ok((dir, name))
    }

    pub(super) fn is_dir(&self, node: NodeId) -> bool {
        matches!(self.nodes.get(&node), Some(Node::Dir { .. }))
    }

    /// Whether the name of the directory at `path` waits for a sync.
    pub(super) fn is_unsettled(&self, node: NodeId) -> bool {
        self.pending.iter().any(|change| change.node == node)
    }

    pub(super) fn file(&self, node: NodeId) -> Option<&Inode> {
        match self.nodes.get(&node) {
            Some(Node::File { inode, .. }) => Some(inode),
            _ => None,
        }
    }

    pub(super) fn file_mut(&mut self, node: NodeId) -> Option<&mut Inode> {
        match self.nodes.get_mut(&node) {
            Some(Node::File { inode, .. }) => Some(inode),
            _ => None,
        }
    }

    /// The file of this name, on the medium.
    pub(super) fn durable_file(&self, path: &Path) -> Result<&Inode, Errno> {
        self.walk(path, true).and_then(|node| self.file(node).ok_or(Errno::ISDIR))
    }

    /// Names in a directory, in order.
    pub(super) fn list(&self, dir: &Path) -> Result<Vec<String>, Errno> {
        Ok(self.names(self.find(dir)?, false)?.keys().cloned().collect())
    }

    /// Creates a file, or a directory.
    pub(super) fn create(&mut self, path: &Path, dir: bool) -> Result<NodeId, Errno> {
        let entry = self.entry(path)?;
        if self.names(entry.0, false)?.contains_key(&entry.1) {
            return Err(Errno::EXIST);
        }
        let node = self.next;
        self.next += 1;
        let new = if dir { new_dir() } else { Node::File { inode: Box::default(), open: 0 } };
        self.nodes.insert(node, new);
        self.change(Change { node, removes: None, adds: Some(entry) });
        Ok(node)
    }

    pub(super) fn unlink(&mut self, path: &Path) -> Result<(), Errno> {
        let entry = self.entry(path)?;
        let node = *self.names(entry.0, false)?.get(&entry.1).ok_or(Errno::NOENT)?;
        if self.is_dir(node) {
            return Err(Errno::ISDIR);
        }
        self.change(Change { node, removes: Some(entry), adds: None });
        self.reap();
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> Result<(), Errno> {
        let (from, to) = (self.entry(from)?, self.entry(to)?);
        let node = *self.names(from.0, false)?.get(&from.1).ok_or(Errno::NOENT)?;
        if let Some(replaced) = self.names(to.0, false)?.get(&to.1) {
            match (self.is_dir(node), self.is_dir(*replaced)) {
                _ if *replaced == node => return Ok(()),
                (false, true) => return Err(Errno::ISDIR),
                (true, false) => return Err(Errno::NOTDIR),
                (true, true) if !self.names(*replaced, false)?.is_empty() => {
                    return Err(Errno::NOTEMPTY);
                }
                _ => {}
            }
        }
        self.change(Change { node, removes: Some(from), adds: Some(to) });
        self.reap();
        Ok(())
    }

    fn change(&mut self, change: Change) {
        self.apply(&change, false);
        self.pending.push(change);
    }

    fn apply(&mut self, change: &Change, on_medium: bool) {
        for (entry, adds) in [(&change.removes, false), (&change.adds, true)] {
            let Some((dir, name)) = entry else { continue };
            let Some(Node::Dir { now, durable }) = self.nodes.get_mut(dir) else {
                continue;
            };
            let names = if on_medium { durable } else { now };
            if adds {
                names.insert(name.clone(), change.node);
            } else {
                names.remove(name);
            }
        }
    }

    /// Makes the changes that touch this directory durable, with those they build on.
    pub(super) fn sync_dir(&mut self, dir: NodeId) {
        let mut needed = Touched::default();
        let mut keep = vec![false; self.pending.len()];
        for (change, keep) in self.pending.iter().zip(&mut keep).rev() {
            if change.touches(dir) || needed.shares(change) {
                needed.add(change);
                *keep = true;
            }
        }
        let mut keep = keep.into_iter();
        self.settle(|_| keep.next().unwrap_or(false));
        self.reap();
    }

    /// Makes some of the changes durable, by chance, `bias` of four.
    pub(super) fn sync_some(&mut self, bias: u64, rng: &mut Rng) {
        let mut lost = Touched::default();
        self.settle(|change| {
            let keep = rng.below(4) < bias && !lost.shares(change);
            if !keep {
                lost.add(change);
            }
            keep
        });
    }

    fn settle(&mut self, mut keep: impl FnMut(&Change) -> bool) {
        for change in std::mem::take(&mut self.pending) {
            if keep(&change) {
                self.apply(&change, true);
            } else {
                self.pending.push(change);
            }
        }
    }

    /// Every handle is gone.
    pub(super) fn close_all(&mut self) {
        for node in self.nodes.values_mut() {
            if let Node::File { open, .. } = node {
                *open = 0;
            }
        }
        self.reap();
    }

    /// The medium is all that is left: what is not settled by now is lost.
    pub(super) fn forget_pending(&mut self) {
        self.pending.clear();
        for node in self.nodes.values_mut() {
            if let Node::Dir { now, durable } = node {
                now.clone_from(durable);
            }
        }
        self.close_all();
    }

    pub(super) fn settle_everything(&mut self) {
        self.settle(|_| true);
    }

    pub(super) fn opened(&mut self, node: NodeId) {
        if let Some(Node::File { open, .. }) = self.nodes.get_mut(&node) {
            *open += 1;
        }
    }

    pub(super) fn closed(&mut self, node: NodeId) {
        if let Some(Node::File { open, .. }) = self.nodes.get_mut(&node) {
            *open = open.saturating_sub(1);
            if *open == 0 && !self.named().contains(&node) {
                self.reap();
            }
        }
    }

    /// The files, by number.
    pub(super) fn files_mut(&mut self) -> impl Iterator<Item = &mut Inode> {
        self.nodes.values_mut().filter_map(|node| match node {
            Node::File { inode, .. } => Some(&mut **inode),
            Node::Dir { .. } => None,
        })
    }

    /// Space in bytes owned by files that have a name or are open.
    pub(super) fn used(&self) -> u64 {
        let named = self.named();
        let counts = |(id, node): (&NodeId, &Node)| match node {
            Node::File { inode, open } if *open > 0 || named.contains(id) => inode.owned(),
            _ => 0,
        };
        self.nodes.iter().map(counts).sum()
    }

    /// What can be reached from the root by the names of now.
    fn named(&self) -> BTreeSet<NodeId> {
        self.reach(BTreeSet::from([ROOT]), false)
    }

    fn reach(&self, roots: BTreeSet<NodeId>, on_medium_too: bool) -> BTreeSet<NodeId> {
        let mut todo: Vec<NodeId> = roots.iter().copied().collect();
        let mut found = roots;
        while let Some(id) = todo.pop() {
            let Some(Node::Dir { now, durable }) = self.nodes.get(&id) else {
                continue;
            };
            let durable = durable.values().filter(|_| on_medium_too);
            todo.extend(now.values().chain(durable).filter(|id| found.insert(**id)));
        }
        found
    }

    /// Drops what neither a name, nor a change, nor a handle holds.
    fn reap(&mut self) {
        let mut roots = BTreeSet::from([ROOT]);
        roots.extend(self.pending.iter().map(|change| change.node));
        roots.extend(self.nodes.iter().filter_map(|(id, node)| match node {
            Node::File { open, .. } if *open > 0 => Some(*id),
            _ => None,
        }));
        let held = self.reach(roots, true);
        if held.len() < self.nodes.len() {
            self.nodes.retain(|id, _| held.contains(id));
        }
    }

    /// All files by path, in order.
    pub(super) fn tree(&self) -> Vec<(String, NodeId)> {
        let mut found = Vec::new();
        let mut todo = vec![(String::new(), ROOT)];
        while let Some((path, id)) = todo.pop() {
            match self.nodes.get(&id) {
                Some(Node::Dir { now, .. }) => {
                    todo.extend(now.iter().map(|(name, id)| (format!("{path}/{name}"), *id)));
                }
                Some(Node::File { .. }) => found.push((path, id)),
                None => {}
            }
        }
        found.sort_unstable();
        found
    }
}

impl Change {
    fn touches(&self, dir: NodeId) -> bool {
        self.removes.iter().chain(&self.adds).any(|entry| entry.0 == dir)
    }
}

/// Names and files that a set of changes is about.
#[derive(Default)]
struct Touched {
    entries: BTreeSet<Entry>,
    nodes: BTreeSet<NodeId>,
}

impl Touched {
    fn add(&mut self, change: &Change) {
        self.nodes.insert(change.node);
        self.entries.extend(change.removes.iter().chain(&change.adds).cloned());
    }

    fn shares(&self, change: &Change) -> bool {
        self.nodes.contains(&change.node)
            || change.removes.iter().chain(&change.adds).any(|entry| self.entries.contains(entry))
    }
}

fn new_dir() -> Node {
    Node::Dir { now: BTreeMap::new(), durable: BTreeMap::new() }
}
