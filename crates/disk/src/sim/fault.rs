//! Faults: which call they strike, and what they do to it.

use std::path::Path;
use std::time::Duration;

use super::gate::Gate;
use super::rng::Rng;
use crate::Op;

/// What a fault does to the call it strikes.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Effect {
    /// The call fails with EIO. Of a write some bytes may have been taken; of a sync some sectors may
    /// have become durable, and the rest counts as clean (see
    /// [`CacheAfterFailedSync`](super::CacheAfterFailedSync)).
    Io,
    /// The call fails with ENOSPC and does nothing. Strikes only calls that take space: writes,
    /// resizes, creating files and directories.
    NoSpace,
    /// The call fails with this error number of the operating system, otherwise like [`Effect::Io`].
    Os(i32),
    /// A read or write stops after so many bytes; by chance when `None`, and then on a direct file at
    /// a multiple of 512. `Some(0)` makes it take nothing.
    Short(Option<usize>),
    /// The call takes so much longer on the clock of the disk, [`super::SimDisk::clock`]. Nobody waits.
    Slow(Duration),
    /// The call waits at the gate, before it does anything.
    Block(Gate),
    /// The call waits at the gate when everything is done, before it returns.
    BlockReturn(Gate),
    /// One bit of the stored bytes flips, before a read or after a write: the given one, counted from
    /// the first byte of the call's range, or one by chance.
    BitRot(Option<u64>),
    /// A read or write goes to another block of the same file, and says nothing.
    Misdirect,
    /// A write or sync reports success and does nothing. The size of the file still grows.
    Lost,
}

/// A fault to inject: by default it strikes every call of one operation.
///
/// ```
/// use esker_disk::Op;
/// use esker_disk::sim::{Effect, Fault};
///
/// let third_sync_of_segments = Fault::on(Op::Sync, Effect::Io).path(".seg").nth(3);
/// let one_write_in_ten = Fault::on(Op::Write, Effect::Short(None)).percent(10);
/// ```
#[derive(Debug, Clone)]
pub struct Fault {
    op: Op,
    effect: Effect,
    path: String,
    skip: u64,
    times: u64,
    percent: u8,
}

impl Fault {
    /// Strikes every call of `op`.
    pub fn on(op: Op, effect: Effect) -> Self {
        Self { op, effect, path: String::new(), skip: 0, times: u64::MAX, percent: 100 }
    }

    /// Strikes only where the path contains `part`. A rename matches on the old name.
    #[must_use]
    pub fn path(mut self, part: &str) -> Self {
        part.clone_into(&mut self.path);
        self
    }

    /// Strikes the `n`th matching call from now, counted from 1, and no other.
    #[must_use]
    pub fn nth(mut self, n: u64) -> Self {
        self.skip = n.saturating_sub(1);
        self.times = 1;
        self
    }

    /// Lets so many matching calls pass first.
    #[must_use]
    pub fn after(mut self, calls: u64) -> Self {
        self.skip = calls;
        self
    }

    /// Strikes so many times at most.
    #[must_use]
    pub fn times(mut self, times: u64) -> Self {
        self.times = times;
        self
    }

    /// Strikes so many of a hundred matching calls, by chance.
    #[must_use]
    pub fn percent(mut self, percent: u8) -> Self {
        self.percent = percent;
        self
    }

    /// What happens to a call, where the fault strikes it. Counts the call.
    fn strike(&mut self, op: Op, path: &Path, takes_space: bool, rng: &mut Rng) -> Option<Effect> {
        let matches = op == self.op
            && (takes_space || !matches!(self.effect, Effect::NoSpace))
            && path.to_string_lossy().contains(&self.path);
        if !matches || self.times == 0 {
            return None;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        if self.percent < 100 && !rng.percent(self.percent) {
            return None;
        }
        self.times -= 1;
        Some(self.effect.clone())
    }
}

/// The faults in force, in the order of their injection. One call is struck by one fault at most.
#[derive(Debug, Default)]
pub(super) struct Faults(Vec<Fault>);

impl Faults {
    pub(super) fn add(&mut self, fault: Fault) {
        self.0.push(fault);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn strike(
        &mut self,
        op: Op,
        path: &Path,
        takes_space: bool,
        rng: &mut Rng,
    ) -> Option<Effect> {
        let mut struck = None;
        for fault in &mut self.0 {
            if struck.is_none() {
                struck = fault.strike(op, path, takes_space, rng);
            }
        }
        self.0.retain(|fault| fault.times > 0);
        struck
    }
}
