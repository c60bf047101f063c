//! The side of the disk that only tests see: its power, its counters, its bytes, and ways to harm it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use super::fault::Fault;
use super::inode::Inode;
use super::machine::{Call, Count, Machine, Shared};
use super::options::SimOptions;
use super::power::{CutPoint, End, Persist};
use super::rng::Rng;
use super::stats::SimStats;
use super::{SimDisk, page};
use crate::{Op, Result};

impl SimDisk {
    /// An empty disk with the default options and this seed.
    pub fn new(seed: u64) -> Self {
        Self::with(SimOptions::new(seed))
    }

    /// An empty disk of this kind.
    pub fn with(options: SimOptions) -> Self {
        Self::from_machine(Machine::new(options))
    }

    fn from_machine(machine: Machine) -> Self {
        Self { shared: Arc::new(Shared::new(machine)), life: None }
    }

    /// An independent disk in the same state, written and durable, with a seed for its further course.
    ///
    /// Bytes are shared until they change. Handles, locks, faults and a planned cut stay behind;
    /// the numbers of operations and reads go on.
    pub fn fork(&self, seed: u64) -> Self {
        let machine = self.shared.machine();
        let mut fork = Machine::new(SimOptions { seed, ..machine.options });
        fork.rng = Rng::new(seed);
        fork.names = machine.names.clone();
        fork.names.close_all();
        fork.stats = machine.stats;
        fork.clock = machine.clock;
        fork.operations = machine.operations;
        fork.reads = machine.reads;
        fork.on = machine.on;
        fork.life = machine.life;
        Self::from_machine(fork)
    }

    /// The same disk as one process sees it: this handle dies for ever when the power goes or the
    /// process is killed. What an old process does late, for example when it is dropped, then can't
    /// reach the disk of the new one.
    pub fn process(&self) -> Self {
        let life = self.life.unwrap_or_else(|| self.shared.machine().life);
        Self { shared: Arc::clone(&self.shared), life: Some(life) }
    }

    /// Cuts the power: what is durable stays, and of the rest what `persist` says. Until
    /// [`SimDisk::power_on`] every call fails with `BrokenPipe`, and handles from before for ever.
    ///
    /// Does nothing when the power is off.
    pub fn power_cut(&self, persist: Persist) {
        self.end(End::PowerCut(persist));
    }

    /// Kills the process: the page cache survives, handles and locks do not. Until
    /// [`SimDisk::power_on`] every call fails with `BrokenPipe`.
    ///
    /// Does nothing when the power is off.
    pub fn kill(&self) {
        self.end(End::Kill);
    }

    fn end(&self, end: End) {
        let mut machine = self.shared.machine();
        if machine.on {
            machine.end(end);
        }
    }

    /// Starts the machine, and a new process, after a power cut or a kill.
    pub fn power_on(&self) {
        self.shared.machine().on = true;
    }

    /// Whether the machine runs.
    pub fn is_on(&self) -> bool {
        self.shared.machine().on
    }

    /// Has the power go at this point. It replaces what was planned before; a point that is already
    /// past never comes.
    pub fn cut_power_at(&self, point: CutPoint, persist: Persist) {
        self.shared.machine().plan = Some((point, End::PowerCut(persist)));
    }

    /// Has the process die at this point; otherwise as [`SimDisk::cut_power_at`].
    pub fn kill_at(&self, point: CutPoint) {
        self.shared.machine().plan = Some((point, End::Kill));
    }

    /// Forgets the planned cut.
    pub fn cancel_cut(&self) {
        self.shared.machine().plan = None;
    }

    /// Operations so far, which is the number that the next one gets: writes, syncs, directory syncs,
    /// creates, renames, unlinks and resizes, also those that failed.
    pub fn operations(&self) -> u64 {
        self.shared.machine().operations
    }

    /// Reads and listings so far, which is the number that the next one gets.
    pub fn reads(&self) -> u64 {
        self.shared.machine().reads
    }

    /// What was asked of the disk.
    pub fn stats(&self) -> SimStats {
        self.shared.machine().stats
    }

    /// The time that slow operations took.
    pub fn clock(&self) -> Duration {
        self.shared.machine().clock
    }

    /// Adds a fault behind those in force. The first that matches a call strikes it.
    pub fn inject(&self, fault: Fault) {
        self.shared.machine().faults.add(fault);
    }

    /// Takes back all faults. Corruption that they did stays.
    pub fn clear_faults(&self) {
        self.shared.machine().faults.clear();
    }

    /// Sets the space for files in bytes, or takes away its limit.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.shared.machine().options.capacity = bytes;
    }

    /// Space in bytes that files own at this moment, reserved space included.
    pub fn used(&self) -> u64 {
        self.shared.machine().names.used()
    }

    /// The names in a directory, sorted, whether the power is on or not.
    ///
    /// # Errors
    /// `NotFound` and the like.
    pub fn files(&self, dir: &Path) -> Result<Vec<String>> {
        let machine = self.shared.machine();
        let names = machine.names.find(dir).and_then(|node| machine.names.list(node));
        names.map_err(|errno| inspecting(dir).failed(errno))
    }

    /// The whole file as ordinary reads see it, whether the power is on or not; unreadable sectors
    /// with whatever lies there.
    ///
    /// # Errors
    /// `NotFound` and the like.
    pub fn contents(&self, path: &Path) -> Result<Vec<u8>> {
        let machine = self.shared.machine();
        let node = machine.names.find(path).map_err(|errno| inspecting(path).failed(errno))?;
        let file = machine.names.file(node).ok_or_else(|| inspecting(path).failed(Errno::ISDIR))?;
        Ok(file.content(false))
    }

    /// The whole file as it is on the medium, under a name that is durable.
    ///
    /// # Errors
    /// `NotFound` when there is no such durable name.
    pub fn durable_contents(&self, path: &Path) -> Result<Vec<u8>> {
        let machine = self.shared.machine();
        let file = machine.names.durable_file(path);
        Ok(file.map_err(|errno| inspecting(path).failed(errno))?.content(true))
    }

    /// Changes bytes of a file on the medium and in the cache at once, growing it where needed.
    ///
    /// # Errors
    /// `NotFound` and the like.
    pub fn overwrite(&self, path: &Path, offset: u64, bytes: &[u8]) -> Result<()> {
        self.harm(path, |file, options| {
            file.overwrite(offset, bytes, options.sector);
        })
    }

    /// Flips one bit of a file, counted from its first, on the medium and in the cache at once.
    ///
    /// # Errors
    /// `NotFound` and the like.
    pub fn flip_bit(&self, path: &Path, bit: u64) -> Result<()> {
        self.harm(path, |file, _| file.flip(bit))
    }

    /// Cuts or extends a file on the medium and in the cache at once.
    ///
    /// # Errors
    /// `NotFound` and the like.
    pub fn truncate(&self, path: &Path, len: u64) -> Result<()> {
        self.harm(path, |file, options| file.truncate(len, options.sector))
    }

    /// Makes the sector that holds this byte unreadable until it is written again as a whole. What
    /// was written and not synced of its page is lost.
    ///
    /// # Errors
    /// `NotFound` and the like.
    pub fn make_unreadable(&self, path: &Path, offset: u64) -> Result<()> {
        self.harm(path, |file, options| {
            file.make_unreadable(offset, options.sector);
        })
    }

    fn harm(&self, path: &Path, change: impl FnOnce(&mut Inode, SimOptions)) -> Result<()> {
        let mut machine = self.shared.machine();
        let options = machine.options;
        let node = machine.names.find(path).map_err(|errno| inspecting(path).failed(errno))?;
        let file = machine.names.file_mut(node);
        change(file.ok_or_else(|| inspecting(path).failed(Errno::ISDIR))?, options);
        Ok(())
    }

    /// A number that stands for all names and bytes, written and durable: equal for equal states.
    pub fn fingerprint(&self) -> u64 {
        let machine = self.shared.machine();
        let mut hash = Fingerprint(0xCBF2_9CE4_8422_2325);
        for (path, node) in machine.names.tree() {
            hash.add(path.as_bytes());
            let Some(file) = machine.names.file(node) else {
                continue;
            };
            hash.add(&file.size.to_le_bytes());
            hash.add(&file.durable_size.to_le_bytes());
            for (number, durable) in &file.durable {
                hash.add(&number.to_le_bytes());
                hash.add(page::bytes(Some(durable)));
            }
            for number in file.dirty.keys().chain(file.stale.keys()) {
                hash.add(&number.to_le_bytes());
                hash.add(page::bytes(file.visible(*number, false)));
            }
            for sector in &file.unreadable {
                hash.add(&sector.to_le_bytes());
            }
        }
        hash.0
    }
}

/// FNV-1a, over words where there are any.
struct Fingerprint(u64);

impl Fingerprint {
    fn add(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 = (self.0 ^ u64::from_le_bytes(word)).wrapping_mul(0x0000_0100_0000_01B3);
            self.0 ^= self.0 >> 29;
        }
    }
}

/// What errors of the inspection name.
pub(super) fn inspecting(path: &Path) -> Call<'_> {
    let count = Count::Nothing;
    Call { op: Op::Open, path, offset: None, count, takes_space: false, life: None }
}
