//! When the power is cut, and what remains.

use super::machine::Machine;

/// The unsynced bytes, sizes and names that survive a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Persist {
    /// A random subset, and possibly one torn sector.
    #[default]
    Random,
    /// As `Random`, and one sector is torn whenever there is one to tear.
    Torn,
    /// None of it.
    Nothing,
    /// All of it.
    Everything,
}

/// The point at which the power is cut, or the process dies. Operations and reads are numbered
/// separately, each from 0; see [`super::SimDisk::operations`] and [`super::SimDisk::reads`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CutPoint {
    /// The cut at this operation, which does nothing.
    Before(u64),
    /// While this operation is in flight. Its bytes, size or name are treated as unsynced. A sync,
    /// or a write to a file opened with `dsync`, has made any subset durable.
    During(u64),
    /// The cut at this read, which returns nothing.
    BeforeRead(u64),
}

/// How the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    PowerCut(Persist),
    Kill,
}

impl Machine {
    /// Invalidates every handle, and applies the effects of this end.
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
                self.persist_files(persist);
                self.persist_names(persist);
            }
        }
    }

    fn persist_files(&mut self, persist: Persist) {
        let sector = self.options.sector;
        let undecided: u64 = self.names.files().map(|file| file.undecided(sector)).sum();
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

    fn persist_names(&mut self, persist: Persist) {
        match persist {
            Persist::Nothing => {}
            Persist::Everything => self.names.persist_everything(),
            Persist::Random | Persist::Torn => {
                let bias = self.rng.below(5);
                self.names.sync_some(bias, &mut self.rng);
            }
        }
        self.names.forget_pending();
    }
}
