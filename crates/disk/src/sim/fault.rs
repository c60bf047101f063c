//! Injected faults: which calls they affect, and how.

use std::path::Path;
use std::time::Duration;

use super::blocking_gate::Gate;
use super::rng::Rng;
use crate::error::Op;

/// The effect of a fault on the call it strikes.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Effect {
    /// The call fails with EIO. A failed write may have written a part. A failed sync may have made
    /// some sectors durable; the others count as clean (see
    /// [`CacheAfterFailedSync`](super::CacheAfterFailedSync)).
    Io,
    /// The call fails with ENOSPC and does nothing. Strikes only calls that take space: writes,
    /// resizes, and creating files and directories.
    NoSpace,
    /// The call fails with this error number of the operating system; otherwise like
    /// [`Effect::Io`].
    Os(i32),
    /// A read or write stops after this many bytes. `None` draws the number at random, on a direct
    /// file a multiple of 512. `Some(0)` transfers nothing.
    Short(Option<usize>),
    /// The call takes this much longer on the disk's clock, [`super::SimDisk::clock`]. No thread
    /// waits.
    Slow(Duration),
    /// The call waits at the gate before it does anything.
    Block(Gate),
    /// The call waits at the gate after it has done everything and before it returns.
    BlockReturn(Gate),
    /// A bit of the stored bytes flips, before a read or after a write. The bit is counted from
    /// the first byte of the call's range; `None` draws it at random.
    BitRot(Option<u64>),
    /// A read or write goes to another block of the same file and reports success.
    Misdirect,
    /// A write or sync reports success and does nothing. A write still extends the file.
    Lost,
}

/// A fault to inject. By default it strikes every call of one operation.
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
    /// Creates a fault that strikes every call of `op`.
    pub fn on(op: Op, effect: Effect) -> Self {
        Self { op, effect, path: String::new(), skip: 0, times: u64::MAX, percent: 100 }
    }

    /// Strikes only paths that contain `part`. A rename matches on the old name.
    #[must_use]
    pub fn path(mut self, part: &str) -> Self {
        part.clone_into(&mut self.path);
        self
    }

    /// Strikes only the `n`th matching call from now, counted from 1.
    #[must_use]
    pub fn nth(mut self, n: u64) -> Self {
        self.skip = n.saturating_sub(1);
        self.times = 1;
        self
    }

    /// Skips this many matching calls first.
    #[must_use]
    pub fn after(mut self, calls: u64) -> Self {
        self.skip = calls;
        self
    }

    /// Strikes at most this many times.
    #[must_use]
    pub fn times(mut self, times: u64) -> Self {
        self.times = times;
        self
    }

    /// Strikes this percentage of matching calls, at random.
    #[must_use]
    pub fn percent(mut self, percent: u8) -> Self {
        self.percent = percent;
        self
    }

    /// Counts the call, and returns the effect if the fault strikes it.
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

/// The active faults, in the order of their injection. At most one fault strikes a call.
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
