//! The test interface of the disk: power, counters, content, and corruption.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use super::fault::Fault;
use super::inode::Inode;
use super::machine::{Call, Count, Machine, SharedMachine};
use super::options::SimOptions;
use super::power::{CutPoint, End, Persist};
use super::rng::Rng;
use super::stats::SimStats;
use super::{SimDisk, page};
use crate::error::{Op, Result};

impl SimDisk {
    /// Creates an empty disk with the default options and this seed.
    pub fn new(seed: u64) -> Self {
        Self::with(SimOptions::new(seed))
    }

    /// Creates an empty disk with these options.
    pub fn with(options: SimOptions) -> Self {
        Self::from_machine(Machine::new(options))
    }

    fn from_machine(machine: Machine) -> Self {
        Self { shared: Arc::new(SharedMachine::new(machine)), life: None }
    }

    /// Creates an independent disk in the same state, written and durable, with its own seed from
    /// here on.
    ///
    /// Bytes are shared until they change. Handles, locks, faults and a planned cut are not copied.
    /// The operation and read numbers continue.
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

    /// Returns a handle to the same disk for one process. It becomes invalid when the power is cut
    /// or the process is killed. Late calls of an old process, for example from a drop, then cannot
    /// reach the disk of the new one.
    pub fn process(&self) -> Self {
        let life = self.life.unwrap_or_else(|| self.shared.machine().life);
        Self { shared: Arc::clone(&self.shared), life: Some(life) }
    }

    /// Cuts the power: durable data remains, and `persist` decides what remains of the rest. Until
    /// [`SimDisk::power_on`] every call fails with `BrokenPipe`. Handles opened before fail
    /// forever.
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

    /// Starts the machine and a new process after a power cut or a kill.
    pub fn power_on(&self) {
        self.shared.machine().on = true;
    }

    /// Returns whether the machine is running.
    pub fn is_on(&self) -> bool {
        self.shared.machine().on
    }

    /// Plans a power cut at this point. It replaces an earlier plan. A point that has already
    /// passed never occurs.
    pub fn cut_power_at(&self, point: CutPoint, persist: Persist) {
        self.shared.machine().plan = Some((point, End::PowerCut(persist)));
    }

    /// Plans a process kill at this point; otherwise as [`SimDisk::cut_power_at`].
    pub fn kill_at(&self, point: CutPoint) {
        self.shared.machine().plan = Some((point, End::Kill));
    }

    /// Cancels the planned cut.
    pub fn cancel_cut(&self) {
        self.shared.machine().plan = None;
    }

    /// Returns the number of operations so far, which is the number of the next one. Writes, syncs,
    /// directory syncs, creates, renames, unlinks and resizes count, including failed ones.
    pub fn operations(&self) -> u64 {
        self.shared.machine().operations
    }

    /// Returns the number of reads and listings so far, which is the number of the next one.
    pub fn reads(&self) -> u64 {
        self.shared.machine().reads
    }

    /// Returns the call counters of the disk.
    pub fn stats(&self) -> SimStats {
        self.shared.machine().stats
    }

    /// Returns the total simulated delay of slow operations.
    pub fn clock(&self) -> Duration {
        self.shared.machine().clock
    }

    /// Adds a fault after the active ones. The first fault that matches a call strikes it.
    pub fn inject(&self, fault: Fault) {
        self.shared.machine().faults.add(fault);
    }

    /// Removes all faults. Corruption they caused remains.
    pub fn clear_faults(&self) {
        self.shared.machine().faults.clear();
    }

    /// Sets the space for files in bytes; `None` removes the limit.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.shared.machine().options.capacity = bytes;
    }

    /// Returns the space in bytes that files own now, including reserved space.
    pub fn used(&self) -> u64 {
        self.shared.machine().names.used()
    }

    /// Returns the names in a directory, sorted, whether the power is on or not.
    ///
    /// # Errors
    /// `NotFound` and similar errors.
    pub fn files(&self, dir: &Path) -> Result<Vec<String>> {
        let machine = self.shared.machine();
        let names = machine.names.find(dir).and_then(|node| machine.names.list(node));
        names.map_err(|errno| inspecting(dir).failed(errno))
    }

    /// Returns the whole file as ordinary reads see it, whether the power is on or not. Unreadable
    /// sectors are included with their stored content.
    ///
    /// # Errors
    /// `NotFound` and similar errors.
    pub fn contents(&self, path: &Path) -> Result<Vec<u8>> {
        let machine = self.shared.machine();
        let node = machine.names.find(path).map_err(|errno| inspecting(path).failed(errno))?;
        let file = machine.names.file(node).ok_or_else(|| inspecting(path).failed(Errno::ISDIR))?;
        Ok(file.content(false))
    }

    /// Returns the whole file as it is on the medium, found by its durable name.
    ///
    /// # Errors
    /// `NotFound` when there is no such durable name.
    pub fn durable_contents(&self, path: &Path) -> Result<Vec<u8>> {
        let machine = self.shared.machine();
        let file = machine.names.durable_file(path);
        Ok(file.map_err(|errno| inspecting(path).failed(errno))?.content(true))
    }

    /// Changes bytes of a file on the medium and in the cache at once, extending it as needed.
    ///
    /// # Errors
    /// `NotFound` and similar errors.
    pub fn overwrite(&self, path: &Path, offset: u64, bytes: &[u8]) -> Result<()> {
        self.harm(path, |file, options| {
            file.overwrite(offset, bytes, options.sector);
        })
    }

    /// Flips one bit of a file, counted from its start, on the medium and in the cache at once.
    ///
    /// # Errors
    /// `NotFound` and similar errors.
    pub fn flip_bit(&self, path: &Path, bit: u64) -> Result<()> {
        self.harm(path, |file, _| file.flip(bit))
    }

    /// Truncates or extends a file on the medium and in the cache at once.
    ///
    /// # Errors
    /// `NotFound` and similar errors.
    pub fn truncate(&self, path: &Path, len: u64) -> Result<()> {
        self.harm(path, |file, options| file.truncate(len, options.sector))
    }

    /// Makes the sector that holds this byte unreadable until it is written again as a whole.
    /// Unsynced writes to its page are lost.
    ///
    /// # Errors
    /// `NotFound` and similar errors.
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

    /// Returns a hash of all names and bytes, written and durable. Equal states have equal hashes.
    pub fn fingerprint(&self) -> u64 {
        let machine = self.shared.machine();
        let mut hash = Fingerprint([FNV_OFFSET_BASIS, 1, 2, 3]);
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
        hash.hash()
    }
}

/// FNV-1a over whole words, in four lanes: one would wait for its multiplications.
struct Fingerprint([u64; 4]);

impl Fingerprint {
    fn add(&mut self, bytes: &[u8]) {
        let (blocks, rest) = bytes.as_chunks::<32>();
        for block in blocks {
            for (lane, word) in self.0.iter_mut().zip(block.as_chunks().0) {
                *lane = step(*lane, *word);
            }
        }
        for chunk in rest.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0[0] = step(self.0[0], word);
        }
    }

    fn hash(self) -> u64 {
        self.0.into_iter().fold(FNV_OFFSET_BASIS, |hash, lane| step(hash, lane.to_le_bytes()))
    }
}

const FNV_OFFSET_BASIS: u64 = 0xCBF2_9CE4_8422_2325;

fn step(hash: u64, word: [u8; 8]) -> u64 {
    let hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x0000_0100_0000_01B3);
    hash ^ (hash >> 29)
}

/// The call that errors of the inspection name.
pub(super) fn inspecting(path: &Path) -> Call<'_> {
    let count = Count::Nothing;
    Call { op: Op::Open, path, offset: None, count, takes_space: false, life: None }
}
