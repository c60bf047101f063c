//! The calls of [`Disk`] on the simulated disk.

use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;

use super::SimDisk;
use super::fault::Effect;
use super::file::SimFile;
use super::machine::{Call, Count, Machine, Shared};
use super::namespace::NodeId;
use crate::{Disk, Facts, File, Lock, Op, Open, Result};

/// What the machine says, before the call is named in the error.
type Outcome<T> = std::result::Result<T, Errno>;

impl SimDisk {
    fn call<'a>(&self, op: Op, path: &'a Path) -> Call<'a> {
        let life = self.life;
        Call { op, path, offset: None, count: Count::Operation, takes_space: false, life }
    }

    /// Runs an operation on the names.
    fn operate<T>(
        &self,
        call: Call<'_>,
        run: impl FnOnce(&mut Machine) -> Outcome<T>,
    ) -> Result<T> {
        let (mut machine, call, fate) = self.shared.begin(call, |_, _| {})?;
        let outcome = fate.error().map_or_else(|| run(&mut machine), Err);
        let outcome = outcome.map_err(|errno| call.failed(errno));
        self.shared.finish(machine, &call, fate, outcome)
    }

    /// Finds a file or creates it, which counts as an operation, and opens it.
    fn find_or_create(&self, op: Op, path: &Path, how: Open) -> Result<(NodeId, u64)> {
        let creates = how.create || how.create_new;
        let (mut machine, call, fate) =
            self.shared.begin(self.call(op, path), |machine, call| {
                let new = creates && machine.names.find(path) == Err(Errno::NOENT);
                call.count = if new { Count::Operation } else { Count::Nothing };
                call.takes_space = new;
            })?;
        let outcome = match fate.error() {
            Some(errno) => Err(errno),
            None => machine.open(path, how),
        };
        let life = machine.life;
        let outcome = outcome.map(|node| (node, life)).map_err(|errno| call.failed(errno));
        self.shared.finish(machine, &call, fate, outcome)
    }

    fn make_dir(&self, path: &Path) -> Result<()> {
        let call = Call { takes_space: true, ..self.call(Op::CreateDir, path) };
        self.operate(call, |machine| {
            machine.stats.creates += 1;
            machine.names.create(path, true).map(drop)
        })
    }
}

impl Machine {
    fn open(&mut self, path: &Path, how: Open) -> Outcome<NodeId> {
        if (how.direct && !self.options.direct) || (how.dsync && !self.options.dsync) {
            return Err(Errno::INVAL);
        }
        let node = match self.names.find(path) {
            Ok(_) if how.create_new => return Err(Errno::EXIST),
            Ok(node) => node,
            Err(Errno::NOENT) if how.create || how.create_new => {
                self.stats.creates += 1;
                self.names.create(path, false)?
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

impl Disk for SimDisk {
    fn open(&self, path: &Path, how: Open) -> Result<Arc<dyn File>> {
        let (node, life) = self.find_or_create(Op::Open, path, how)?;
        let shared = Arc::clone(&self.shared);
        Ok(Arc::new(SimFile { shared, node, life, path: path.to_path_buf(), how }))
    }

    fn create_dir(&self, path: &Path) -> Result<()> {
        let ancestors: Vec<&Path> = path.ancestors().collect();
        for dir in ancestors.into_iter().rev().filter(|dir| dir.file_name().is_some()) {
            let call = self.call(Op::CreateDir, dir);
            let machine = self.shared.alive(&call)?;
            let settled = match machine.names.find(dir) {
                Ok(node) if !machine.names.is_dir(node) => return Err(call.failed(Errno::NOTDIR)),
                Ok(node) => !machine.names.is_unsettled(node),
                Err(_) => false,
            };
            let missing = machine.names.find(dir).is_err();
            drop(machine);
            if missing {
                self.make_dir(dir)?;
            }
            if !settled {
                self.sync_dir(dir.parent().unwrap_or(Path::new("")))?;
            }
        }
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.operate(self.call(Op::Rename, from), |machine| {
            machine.stats.renames += 1;
            machine.names.rename(from, to)
        })
    }

    fn unlink(&self, path: &Path) -> Result<()> {
        self.operate(self.call(Op::Unlink, path), |machine| {
            machine.stats.unlinks += 1;
            machine.names.unlink(path)
        })
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        let call = self.call(Op::SyncDir, dir);
        let (mut machine, call, fate) = self.shared.begin(call, |_, _| {})?;
        machine.stats.dir_syncs += 1;
        let outcome = match (fate.error(), machine.names.find(dir)) {
            (Some(errno), _) => {
                let Machine { names, rng, .. } = &mut *machine;
                names.sync_some(rng.below(5), rng);
                Err(errno)
            }
            (None, Err(errno)) => Err(errno),
            (None, Ok(node)) if !machine.names.is_dir(node) => Err(Errno::NOTDIR),
            (None, Ok(node)) => {
                if !fate.is_last() && !matches!(fate.effect, Some(Effect::Lost)) {
                    machine.names.sync_dir(node);
                }
                Ok(())
            }
        };
        let outcome = outcome.map_err(|errno| call.failed(errno));
        self.shared.finish(machine, &call, fate, outcome)
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        let call = Call { count: Count::Read, ..self.call(Op::List, dir) };
        self.operate(call, |machine| machine.names.list(dir))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>> {
        let (node, life) = self.find_or_create(Op::Lock, path, Open::create())?;
        let mut machine = self.shared.machine();
        if machine.life == life && machine.locks.insert(node) {
            drop(machine);
            return Ok(Box::new(SimLock { shared: Arc::clone(&self.shared), node, life }));
        }
        machine.names.closed(node);
        Err(self.call(Op::Lock, path).failed(Errno::WOULDBLOCK))
    }

    fn facts(&self, dir: &Path) -> Result<Facts> {
        let call = self.call(Op::Open, dir);
        let machine = self.shared.alive(&call)?;
        match machine.names.find(dir) {
            Ok(node) if machine.names.is_dir(node) => {
                Ok(Facts::new("sim", machine.options.direct, machine.options.dsync))
            }
            Ok(_) => Err(call.failed(Errno::NOTDIR)),
            Err(errno) => Err(call.failed(errno)),
        }
    }
}

#[derive(Debug)]
struct SimLock {
    shared: Arc<Shared>,
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
