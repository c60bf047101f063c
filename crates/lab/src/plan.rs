//! When a life ends, and how.

use std::fmt;

use esker_disk::sim::{CutPoint, Persist, SimDisk};
use esker_testkit::SplitMix64;

/// Why a life did not continue.
#[derive(Debug)]
pub enum Stop {
    /// The power is off.
    Ended,
    /// An error while the power was on, or a broken promise.
    Broken(String),
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stop::Ended => f.write_str("the power is off"),
            Stop::Broken(what) => f.write_str(what),
        }
    }
}

/// The outcome of a life, or of a part of it.
pub type LifeResult<T = ()> = Result<T, Stop>;

/// Returns that a promise is broken.
macro_rules! broken {
    ($($reported:tt)*) => { return Err($crate::plan::Stop::Broken(format!($($reported)*))) };
}

/// Returns that a promise is broken, unless something holds.
macro_rules! ensure {
    ($holds:expr, $($reported:tt)*) => { if !$holds { $crate::plan::broken!($($reported)*) } };
}

pub(crate) use {broken, ensure};

/// How a life ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// Power fails.
    Cut(Persist),
    /// The process dies; the page cache lives on.
    Kill,
}

/// The end of a life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// The operation of the disk.
    pub at: CutPoint,
    /// The crash at that place.
    pub how: How,
}

/// The kinds of survival after a power cut.
pub const PERSISTS: [Persist; 4] =
    [Persist::Random, Persist::Torn, Persist::Nothing, Persist::Everything];

/// A place among so many operations of the disk, before or in the middle of one.
pub(crate) fn random_place(from: u64, span: u64, rng: &mut SplitMix64) -> CutPoint {
    let operation = from + rng.below(span.max(1));
    if rng.percent(40) { CutPoint::Before(operation) } else { CutPoint::During(operation) }
}

impl How {
    /// Any of them; a power cut more often than a kill.
    pub fn any(rng: &mut SplitMix64) -> Self {
        match rng.below(8) {
            0 => How::Kill,
            1 => How::Cut(Persist::Nothing),
            2 => How::Cut(Persist::Everything),
            3 | 4 => How::Cut(Persist::Torn),
            _ => How::Cut(Persist::Random),
        }
    }

    /// Ends the life now.
    pub fn strike(self, disk: &SimDisk) {
        match self {
            How::Cut(persist) => disk.power_cut(persist),
            How::Kill => disk.kill(),
        }
    }
}

impl Plan {
    /// The crash before an operation of the disk, counted from its creation.
    pub fn before(operation: u64, how: How) -> Self {
        Self { at: CutPoint::Before(operation), how }
    }

    /// The crash in the middle of an operation.
    pub fn during(operation: u64, how: How) -> Self {
        Self { at: CutPoint::During(operation), how }
    }

    /// A crash at one of the next `span` operations of the disk, or now and then of its reads.
    pub fn within(disk: &SimDisk, span: u64, rng: &mut SplitMix64) -> Self {
        let at = rng.below(span);
        let at = match rng.below(20) {
            0 => CutPoint::BeforeRead(disk.reads() + at),
            n if n < 8 => CutPoint::Before(disk.operations() + at),
            _ => CutPoint::During(disk.operations() + at),
        };
        Self { at, how: How::any(rng) }
    }

    /// Runs a life that ends as planned, or after its last step where the plan names a later place.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn end<L>(
        self,
        disk: &SimDisk,
        live: impl FnOnce() -> LifeResult<L>,
    ) -> Result<(), String> {
        self.arm(disk);
        let lived = live();
        disk.cancel_cut();
        match lived {
            Ok(life) => {
                self.how.strike(disk);
                drop(life);
                Ok(())
            }
            Err(Stop::Ended) => Ok(()),
            Err(Stop::Broken(what)) => Err(what),
        }
    }

    /// Arms the disk. [`SimDisk::cancel_cut`] disarms it.
    pub fn arm(self, disk: &SimDisk) {
        match self.how {
            How::Cut(persist) => disk.cut_power_at(self.at, persist),
            How::Kill => disk.kill_at(self.at),
        }
    }
}

/// Describes what was found after these cuts of one disk.
pub(crate) fn after_cuts(cuts: &[Plan], what: &str) -> String {
    match cuts {
        [] => format!("before any cut: {what}"),
        _ => {
            let cuts: Vec<_> = cuts.iter().map(Plan::to_string).collect();
            format!("after {}: {what}", cuts.join(", "))
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}", self.at, self.how)
    }
}
