//! An open directory of the simulated disk.
//!
//! It refers to the directory itself, not to its path, as a descriptor does. It stays valid when
//! the directory is renamed and when its old name is given to another directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

use super::fault::Effect;
use super::machine::{Call, Count, Machine, Outcome, SharedMachine};
use super::namespace::{Entry, NodeId};
use super::sim_file::SimFile;
use crate::dir::Dir;
use crate::dir::check_name;
use crate::error::{Op, Result};
use crate::file::{Facts, File, Lock, OpenMode};

/// A directory, the process life in which it was opened, and the path it was opened by.
#[derive(Debug)]
pub(super) struct SimDir {
    pub(super) shared: Arc<SharedMachine>,
    pub(super) node: NodeId,
    pub(super) life: u64,
    pub(super) path: PathBuf,
}

impl SimDir {
    fn call<'a>(&self, op: Op, path: &'a Path) -> Call<'a> {
        let life = Some(self.life);
        Call { op, path, offset: None, count: Count::Operation, takes_space: false, life }
    }

    fn entry(&self, op: Op, name: &str) -> Result<Entry> {
        check_name(op, &self.path, name)?;
        Ok((self.node, name.to_owned()))
    }

    /// Returns a handle to the subdirectory `node`.
    fn below(&self, name: &str, node: NodeId) -> Self {
        let (shared, life, path) = (Arc::clone(&self.shared), self.life, self.path_of(name));
        Self { shared, node, life, path }
    }

    pub(super) fn open_below(&self, name: &str) -> Result<Self> {
        let (dir, name) = self.entry(Op::OpenDir, name)?;
        let path = self.path_of(&name);
        let call = Call { count: Count::Nothing, ..self.call(Op::OpenDir, &path) };
        let node = self
            .shared
            .operate(call, |machine| machine.open_dir(machine.names.child(dir, &name)?))?;
        Ok(self.below(&name, node))
    }

    pub(super) fn create_below(&self, name: &str) -> Result<Self> {
        let entry = self.entry(Op::CreateDir, name)?;
        let path = self.path_of(name);
        let call = Call { takes_space: true, ..self.call(Op::CreateDir, &path) };
        let machine = self.shared.alive(&call)?;
        let (missing, persisted) = match machine.names.child(self.node, name) {
            Ok(node) if !machine.names.is_dir(node) => return Err(call.failed(Errno::NOTDIR)),
            Ok(node) => (false, !machine.names.is_unsynced(node)),
            Err(_) => (true, false),
        };
        drop(machine);
        if missing {
            self.shared.operate(call, |machine| {
                machine.stats.creates += 1;
                machine.names.create(entry, true).map(drop)
            })?;
        }
        if !persisted {
            self.sync()?;
        }
        self.open_below(name)
    }
}

impl Machine {
    pub(super) fn open_dir(&mut self, node: NodeId) -> Outcome<NodeId> {
        if !self.names.is_dir(node) {
            return Err(Errno::NOTDIR);
        }
        self.names.opened(node);
        Ok(node)
    }

    fn open(&mut self, entry: Entry, how: OpenMode) -> Outcome<NodeId> {
        if (how.direct && !self.options.direct) || (how.dsync && !self.options.dsync) {
            return Err(Errno::INVAL);
        }
        let node = match self.names.child(entry.0, &entry.1) {
            Ok(_) if how.create_new => return Err(Errno::EXIST),
            Ok(node) => node,
            Err(Errno::NOENT) if how.create || how.create_new => {
                self.stats.creates += 1;
                self.names.create(entry, false)?
            }
            Err(errno) => return Err(errno),
        };
        if self.names.is_dir(node) {
            return Err(Errno::ISDIR);
        }
        self.names.opened(node);
        Ok(node)
    }
}

impl Dir for SimDir {
    fn path(&self) -> &Path {
        &self.path
    }

    /// Creating a file counts as an operation; opening one does not.
    fn open(&self, name: &str, how: OpenMode) -> Result<Arc<dyn File>> {
        let entry = self.entry(Op::Open, name)?;
        let path = self.path_of(name);
        let creates = how.create || how.create_new;
        let call = self.call(Op::Open, &path);
        let (mut machine, call, fate) = self.shared.begin(call, |machine, call| {
            let new = creates && machine.names.child(entry.0, name) == Err(Errno::NOENT);
            call.count = if new { Count::Operation } else { Count::Nothing };
            call.takes_space = new;
        })?;
        let outcome = match fate.error() {
            Some(errno) => Err(errno),
            None => machine.open(entry, how),
        };
        let life = machine.life;
        let outcome = outcome.map(|node| (node, life)).map_err(|errno| call.failed(errno));
        let (node, life) = self.shared.finish(machine, &call, fate, outcome)?;
        let shared = Arc::clone(&self.shared);
        Ok(Arc::new(SimFile { shared, node, life, path, how }))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (from, to) = (self.entry(Op::Rename, from)?, self.entry(Op::Rename, to)?);
        let path = self.path_of(&from.1);
        self.shared.operate(self.call(Op::Rename, &path), |machine| {
            machine.stats.renames += 1;
            machine.names.rename(from, to)
        })
    }

    fn exchange(&self, a: &str, b: &str) -> Result<()> {
        let (a, b) = (self.entry(Op::Exchange, a)?, self.entry(Op::Exchange, b)?);
        let path = self.path_of(&a.1);
        self.shared.operate(self.call(Op::Exchange, &path), |machine| {
            machine.stats.renames += 1;
            machine.names.exchange(a, b)
        })
    }

    fn unlink(&self, name: &str) -> Result<()> {
        let entry = self.entry(Op::Unlink, name)?;
        let path = self.path_of(name);
        self.shared.operate(self.call(Op::Unlink, &path), |machine| {
            machine.stats.unlinks += 1;
            machine.names.unlink(entry)
        })
    }

    fn remove_dir(&self, name: &str) -> Result<()> {
        let entry = self.entry(Op::Unlink, name)?;
        let path = self.path_of(name);
        self.shared.operate(self.call(Op::Unlink, &path), |machine| {
            machine.stats.unlinks += 1;
            machine.names.remove_dir(entry)
        })
    }

    fn sync(&self) -> Result<()> {
        let call = self.call(Op::SyncDir, &self.path);
        let (mut machine, call, fate) = self.shared.begin(call, |_, _| {})?;
        machine.stats.dir_syncs += 1;
        let outcome = match fate.error() {
            Some(errno) => {
                let Machine { names, rng, .. } = &mut *machine;
                names.sync_some(rng.below(5), rng);
                Err(errno)
            }
            None => {
                if !fate.is_last() && !matches!(fate.effect, Some(Effect::Lost)) {
                    machine.names.sync_dir(self.node);
                }
                Ok(())
            }
        };
        let outcome = outcome.map_err(|errno| call.failed(errno));
        self.shared.finish(machine, &call, fate, outcome)
    }

    fn list(&self) -> Result<Vec<String>> {
        let call = Call { count: Count::Read, ..self.call(Op::List, &self.path) };
        self.shared.operate(call, |machine| machine.names.list(self.node))
    }

    fn open_dir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        Ok(Arc::new(self.open_below(name)?))
    }

    fn create_dir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        Ok(Arc::new(self.create_below(name)?))
    }

    fn lock(&self) -> Result<Box<dyn Lock>> {
        let call = Call { count: Count::Nothing, ..self.call(Op::Lock, &self.path) };
        let node = self.node;
        self.shared.operate(call, |machine| {
            if !machine.locks.insert(node) {
                return Err(Errno::WOULDBLOCK);
            }
            machine.names.opened(node);
            Ok(())
        })?;
        Ok(Box::new(SimLock { shared: Arc::clone(&self.shared), node, life: self.life }))
    }

    fn facts(&self) -> Result<Facts> {
        let machine = self.shared.alive(&self.call(Op::Open, &self.path))?;
        Ok(Facts::new("sim", machine.options.direct, machine.options.dsync))
    }
}

impl Drop for SimDir {
    fn drop(&mut self) {
        let mut machine = self.shared.machine();
        if machine.life == self.life {
            machine.names.closed(self.node);
        }
    }
}

#[derive(Debug)]
struct SimLock {
    shared: Arc<SharedMachine>,
    node: NodeId,
    life: u64,
}

impl Lock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut machine = self.shared.machine();
        if machine.life == self.life {
            machine.locks.remove(&self.node);
            machine.names.closed(self.node);
        }
    }
}
