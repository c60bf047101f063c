//! Calls that come during another one, from a hook of the disk and so on the same thread:
//! the interleavings of a second caller, fixed by a seed.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use esker_disk::{Disk, Op};
use esker_testkit::{Call, HookedDisk};

/// Does one call. Returns whether there is another one.
type Next = Box<dyn FnMut() -> bool + Send>;

/// The calls that come during another one. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Interleaving(Arc<Mutex<Option<(Op, Next)>>>);

impl fmt::Debug for Interleaving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Interleaving")
    }
}

impl Interleaving {
    /// A disk that does the next call before an operation on a segment.
    pub(crate) fn disk(&self, disk: Arc<dyn Disk>) -> HookedDisk {
        let interleaving = self.clone();
        HookedDisk::new(disk, move |call: &Call<'_>| {
            let is_segment = call.path.extension().is_some_and(|extension| extension == "seg");
            if is_segment {
                interleaving.go_on(call.op);
            }
            Ok(())
        })
    }

    /// Does some work, and one of the calls before each of its operations of this kind.
    pub(crate) fn during<T>(
        &self,
        op: Op,
        next: impl FnMut() -> bool + Send + 'static,
        work: impl FnOnce() -> T,
    ) -> T {
        *self.next() = Some((op, Box::new(next)));
        let done = work();
        *self.next() = None;
        done
    }

    fn go_on(&self, op: Op) {
        // It is taken out, so that what it reads and writes itself brings no further call.
        let next = self.next().take_if(|(at, _)| *at == op);
        if let Some((op, mut next)) = next
            && next()
        {
            *self.next() = Some((op, next));
        }
    }

    fn next(&self) -> MutexGuard<'_, Option<(Op, Next)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
