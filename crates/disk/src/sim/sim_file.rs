//! An open file of the simulated disk.

use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard};

use rustix::io::Errno;

use super::fault::Effect;
use super::inode::Inode;
use super::machine::{Call, Count, Fate, Machine, SharedMachine};
use super::namespace::NodeId;
use crate::aligned::check_direct;
use crate::error::{Op, Result};
use crate::file::{BLOCK_BYTES, File, OpenMode};

/// A file, the process life in which it was opened, and its open options.
#[derive(Debug)]
pub(super) struct SimFile {
    pub(super) shared: Arc<SharedMachine>,
    pub(super) node: NodeId,
    pub(super) life: u64,
    pub(super) path: PathBuf,
    pub(super) how: OpenMode,
}

/// The maximum file size in bytes.
const SIZE_MAX: u64 = i64::MAX as u64;

impl SimFile {
    fn call(&self, op: Op, offset: Option<u64>, count: Count) -> Call<'_> {
        let takes_space = matches!(op, Op::Write | Op::Size);
        let life = Some(self.life);
        Call { op, path: &self.path, offset, count, takes_space, life }
    }

    fn begin<'a>(&'a self, call: Call<'a>) -> Result<(MutexGuard<'a, Machine>, Fate)> {
        let (machine, _, fate) = self.shared.begin(call, |_, _| {})?;
        Ok((machine, fate))
    }

    fn inode<'a>(&self, machine: &'a Machine, call: &Call<'_>) -> Result<&'a Inode> {
        machine.names.file(self.node).ok_or_else(|| call.failed(Errno::BADF))
    }

    fn inode_mut<'a>(&self, machine: &'a mut Machine, call: &Call<'_>) -> Result<&'a mut Inode> {
        machine.names.file_mut(self.node).ok_or_else(|| call.failed(Errno::BADF))
    }

    fn check(&self, call: &Call<'_>, offset: u64, len: u64, writes: bool) -> Result<()> {
        if writes && !self.how.write {
            return Err(call.failed(Errno::BADF));
        }
        match offset.checked_add(len) {
            Some(end) if end <= SIZE_MAX => Ok(()),
            _ => Err(call.failed(Errno::FBIG)),
        }
    }

    /// Returns how many bytes a short call transfers.
    fn shortened(&self, struck: &FaultStrike<'_>, len: usize, machine: &mut Machine) -> usize {
        match struck.fate.effect {
            Some(Effect::Short(Some(most))) => len.min(most),
            Some(Effect::Short(None)) if self.how.direct => {
                (1 + machine.rng.index(len / 512 - 1)) * 512
            }
            Some(Effect::Short(None)) if len > 1 => 1 + machine.rng.index(len - 1),
            _ => len,
        }
    }

    /// Returns the offset of the call. A misdirected call goes to another block of the file or to
    /// the one after its end.
    fn aim(&self, struck: &FaultStrike<'_>, machine: &mut Machine) -> u64 {
        let offset = struck.offset;
        if !matches!(struck.fate.effect, Some(Effect::Misdirect)) {
            return offset;
        }
        let block = BLOCK_BYTES as u64;
        let size = machine.names.file(self.node).map_or(0, |inode| inode.size);
        let blocks = size.div_ceil(block).max(offset / block + 1) + 1;
        let other = (offset / block + 1 + machine.rng.below(blocks - 1)) % blocks;
        other * block + offset % block
    }

    /// Writes the bytes, as far as there is space, and returns how many.
    fn store(&self, machine: &mut Machine, call: &Call<'_>, buf: &[u8], at: u64) -> Result<usize> {
        let budget = machine.free() / BLOCK_BYTES as u64;
        let sector = machine.options.sector;
        let inode = self.inode_mut(machine, call)?;
        let (first, last) =
            (at / BLOCK_BYTES as u64, (at + buf.len() as u64).div_ceil(BLOCK_BYTES as u64));
        let end = inode.extents.affordable(first, last, budget) * BLOCK_BYTES as u64;
        if end <= at {
            return Err(call.failed(Errno::NOSPC));
        }
        let len = buf.len().min((end - at) as usize);
        inode
            .write(&buf[..len], at, self.how.direct, sector)
            .map_err(|_| call.failed(Errno::IO))?;
        Ok(len)
    }

    /// A failing write may have written any part of the range.
    fn fail_write(&self, machine: &mut Machine, struck: &FaultStrike<'_>, buf: &[u8]) {
        if struck.fate.error() == Some(Errno::NOSPC) {
            return;
        }
        let at = struck.offset;
        let part = machine.rng.index(buf.len() / 512 + 1) * 512;
        if part == 0 || self.store(machine, struck.call, &buf[..part], at).is_err() {
            return;
        }
        let (mode, sector) = (machine.options.cache_after_failed_sync, machine.options.sector);
        let pages = at / BLOCK_BYTES as u64..(at + part as u64).div_ceil(BLOCK_BYTES as u64);
        let Machine { names, rng, .. } = machine;
        if let Some(inode) = names.file_mut(self.node).filter(|_| self.how.dsync) {
            inode.fail_sync(pages, mode, sector, rng);
        }
    }

    /// Flips a bit of the range if the fault requires it.
    fn rot(&self, machine: &mut Machine, struck: &FaultStrike<'_>, offset: u64, len: usize) {
        if let Some(Effect::BitRot(bit)) = struck.fate.effect {
            let bit = bit.unwrap_or_else(|| machine.rng.below(len as u64 * 8));
            if let Some(inode) = machine.names.file_mut(self.node) {
                inode.flip(offset * 8 + bit);
            }
        }
    }

    fn read(
        &self,
        machine: &mut Machine,
        struck: &FaultStrike<'_>,
        buf: &mut [u8],
    ) -> Result<usize> {
        struck.unharmed()?;
        let offset = struck.offset;
        self.rot(machine, struck, offset, buf.len());
        let most = self.shortened(struck, buf.len(), machine);
        let from = self.aim(struck, machine);
        let sector = machine.options.sector;
        self.inode(machine, struck.call)?
            .read(&mut buf[..most], from, self.how.direct, sector)
            .map_err(|_| struck.call.failed(Errno::IO))
    }

    fn write(&self, machine: &mut Machine, struck: &FaultStrike<'_>, buf: &[u8]) -> Result<usize> {
        if let Err(error) = struck.unharmed() {
            self.fail_write(machine, struck, buf);
            return Err(error);
        }
        let most = self.shortened(struck, buf.len(), machine);
        if most == 0 {
            return Ok(0);
        }
        let at = self.aim(struck, machine);
        let lost = matches!(struck.fate.effect, Some(Effect::Lost));
        let put = if lost { most } else { self.store(machine, struck.call, &buf[..most], at)? };
        let (offset, len) = (struck.offset, put as u64);
        let sector = machine.options.sector;
        let inode = self.inode_mut(machine, struck.call)?;
        inode.grow(offset + len);
        if self.how.dsync && !struck.fate.is_last() {
            inode.sync_range(at, at + len, sector);
            inode.sync_range(offset, offset + len, sector);
        }
        self.rot(machine, struck, offset, put);
        Ok(put)
    }

    fn sync(&self, machine: &mut Machine, struck: &FaultStrike<'_>) -> Result<()> {
        let (mode, sector) = (machine.options.cache_after_failed_sync, machine.options.sector);
        let Machine { names, rng, .. } = machine;
        let inode = names.file_mut(self.node).ok_or_else(|| struck.call.failed(Errno::BADF))?;
        let unharmed = struck.unharmed();
        if unharmed.is_err() {
            inode.fail_sync(0..u64::MAX, mode, sector, rng);
        } else if !struck.fate.is_last() && !matches!(struck.fate.effect, Some(Effect::Lost)) {
            inode.sync(sector);
        }
        unharmed
    }

    /// Changes the size. `change` returns `None` when there is no space for it.
    fn resize(&self, at: u64, change: impl FnOnce(&mut Inode, u64) -> Option<()>) -> Result<()> {
        let call = self.call(Op::Size, Some(at), Count::Operation);
        let (mut machine, fate) = self.begin(call)?;
        machine.stats.resizes += 1;
        let free = machine.free() / BLOCK_BYTES as u64;
        let outcome = FaultStrike::new(&call, &fate).unharmed().and_then(|()| {
            let inode = self.inode_mut(&mut machine, &call)?;
            change(inode, free).ok_or_else(|| call.failed(Errno::NOSPC))
        });
        self.shared.finish(machine, &call, fate, outcome)
    }
}

/// A call and the fault that strikes it.
struct FaultStrike<'a> {
    call: &'a Call<'a>,
    fate: &'a Fate,
    offset: u64,
}

impl<'a> FaultStrike<'a> {
    fn new(call: &'a Call<'a>, fate: &'a Fate) -> Self {
        Self { call, fate, offset: call.offset.unwrap_or(0) }
    }

    fn unharmed(&self) -> Result<()> {
        self.fate.error().map_or(Ok(()), |errno| Err(self.call.failed(errno)))
    }
}

impl File for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        let call = self.call(Op::Read, Some(offset), Count::Read);
        if self.how.direct {
            check_direct(Op::Read, &self.path, buf, offset)?;
        }
        if buf.is_empty() {
            return Ok(0);
        }
        let (mut machine, fate) = self.begin(call)?;
        let outcome = self.read(&mut machine, &FaultStrike::new(&call, &fate), buf);
        machine.stats.reads += 1;
        machine.stats.bytes_read += *outcome.as_ref().unwrap_or(&0) as u64;
        self.shared.finish(machine, &call, fate, outcome)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<usize> {
        let call = self.call(Op::Write, Some(offset), Count::Operation);
        self.check(&call, offset, buf.len() as u64, true)?;
        if self.how.direct {
            check_direct(Op::Write, &self.path, buf, offset)?;
        }
        if buf.is_empty() {
            return Ok(0);
        }
        let (mut machine, fate) = self.begin(call)?;
        let outcome = self.write(&mut machine, &FaultStrike::new(&call, &fate), buf);
        machine.stats.wrote(*outcome.as_ref().unwrap_or(&0) as u64, self.how);
        self.shared.finish(machine, &call, fate, outcome)
    }

    fn sync_data(&self) -> Result<()> {
        let call = self.call(Op::Sync, None, Count::Operation);
        let (mut machine, fate) = self.begin(call)?;
        machine.stats.syncs += 1;
        let outcome = self.sync(&mut machine, &FaultStrike::new(&call, &fate));
        self.shared.finish(machine, &call, fate, outcome)
    }

    fn len(&self) -> Result<u64> {
        let call = self.call(Op::Size, None, Count::Nothing);
        let machine = self.shared.alive(&call)?;
        Ok(self.inode(&machine, &call)?.size)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.check(&self.call(Op::Size, Some(len), Count::Nothing), 0, len, true)?;
        let sector = self.shared.machine().options.sector;
        self.resize(len, |inode, _| {
            inode.set_len(len, sector);
            Some(())
        })
    }

    fn preallocate(&self, offset: u64, len: u64) -> Result<()> {
        self.check(&self.call(Op::Size, Some(offset), Count::Nothing), offset, len, true)?;
        if len == 0 {
            return Ok(());
        }
        let pages = offset / BLOCK_BYTES as u64..(offset + len).div_ceil(BLOCK_BYTES as u64);
        self.resize(offset, |inode, free| {
            if inode.extents.missing(pages.start, pages.end) <= free {
                inode.preallocate(offset, len);
                return Some(());
            }
            // As on ext4: the available space is reserved and stays reserved.
            let end = inode.extents.affordable(pages.start, pages.end, free) * BLOCK_BYTES as u64;
            if end > offset {
                inode.preallocate(offset, end - offset);
            }
            None
        })
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn is_direct(&self) -> bool {
        self.how.direct
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let mut machine = self.shared.machine();
        if machine.life == self.life {
            machine.names.closed(self.node);
        }
    }
}
