//! When the power goes, and what it leaves.

use super::machine::Machine;

/// What a power cut leaves of the bytes, sizes and names that were not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Persist {
    /// Any subset, drawn by chance, and perhaps one torn sector.
    #[default]
    Random,
    /// The same, and one sector is torn whenever there is one to tear.
    Torn,
    /// None of it.
    Nothing,
    /// All of it.
    Everything,
}

/// The moment at which the power goes, or the process dies. Operations and reads are numbered from 0,
/// each in its own row; see [`super::SimDisk::operations`] and [`super::SimDisk::reads`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CutPoint {
    /// The operation of this number does nothing.
    Before(u64),
    /// The operation of this number is in flight: its bytes, size or name are left as those of an
    /// operation that was never synced. A sync, or a write to a file opened with `dsync`, has made
    /// any subset durable.
    During(u64),
    /// The read of this number gets nothing.
    BeforeRead(u64),
}

/// The way the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    PowerCut(Persist),
    Kill,
}

impl Machine {
    /// Ends the life of every handle, and leaves what this end leaves.
    pub(super) fn end(&mut self, end: End) {
        self.on = false;
        self.life += 1;
        self.plan = None;
        self.locks.clear();
        match end {
            End::Kill => {
                self.stats.kills += 1;
                self.names.close_all();
            }
            End::PowerCut(persist) => {
                self.stats.power_cuts += 1;
                self.settle_files(persist);
                self.settle_names(persist);
            }
        }
    }

    fn settle_files(&mut self, persist: Persist) {
        let sector = self.options.sector;
        let undecided: u64 = self.names.files_mut().map(|file| file.undecided(sector)).sum();
        let tears = undecided > 0
            && match persist {
                Persist::Torn => true,
                Persist::Random => self.rng.percent(self.options.torn_percent),
                Persist::Nothing | Persist::Everything => false,
            };
        let mut torn = tears.then(|| self.rng.below(undecided));
        for file in self.names.files_mut() {
            let own = file.undecided(sector);
            let here = torn.filter(|torn| *torn < own);
            torn = torn.and_then(|torn| torn.checked_sub(own));
            file.cut(persist, here, sector, &mut self.rng);
        }
    }

    fn settle_names(&mut self, persist: Persist) {
        match persist {
            Persist::Nothing => {}
            Persist::Everything => self.names.settle_everything(),
            Persist::Random | Persist::Torn => {
                let bias = self.rng.below(5);
                self.names.sync_some(bias, &mut self.rng);
            }
        }
        self.names.forget_pending();
    }
}
