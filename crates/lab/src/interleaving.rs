//! Calls that come during another one, from a hook of the disk and so on the same thread:
//! the interleavings of a second caller, fixed by a seed.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use esker_disk::{Disk, Op};
use esker_testkit::{Call, HookedDisk};

/// The files whose operations bring calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum On {
    Segments,
    Others,
}

/// Does one call. Returns whether there is another one.
type NextCall = Box<dyn FnMut() -> bool + Send>;

/// The operations of the disk before which calls come, and the calls.
type Calls = ((Op, On), NextCall);

/// The calls that come during another one. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Interleaving(Arc<Mutex<Option<Calls>>>);

impl fmt::Debug for Interleaving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Interleaving")
    }
}

impl Interleaving {
    /// A disk that does the next call before an operation.
    pub(crate) fn disk(&self, disk: Arc<dyn Disk>) -> HookedDisk {
        let interleaving = self.clone();
        HookedDisk::new(disk, move |call: &Call<'_>| {
            // A commit ends with this write: a call that waits for it here would wait for itself.
            if call.op == Op::Write && call.path.ends_with("mark") {
                return Ok(());
            }
            let is_segment = call.path.extension().is_some_and(|extension| extension == "seg");
            let on = if is_segment { On::Segments } else { On::Others };
            interleaving.go_on((call.op, on));
            Ok(())
        })
    }

    /// Does some work, and one of the calls before each of its operations of this kind.
    pub(crate) fn during<T>(
        &self,
        before: (Op, On),
        next: impl FnMut() -> bool + Send + 'static,
        work: impl FnOnce() -> T,
    ) -> T {
        *self.next() = Some((before, Box::new(next)));
        let done = work();
        *self.next() = None;
        done
    }

    fn go_on(&self, before: (Op, On)) {
        // It is taken out, so that what it reads and writes itself brings no further call.
        let next = self.next().take_if(|(at, _)| *at == before);
        if let Some((before, mut next)) = next
            && next()
        {
            *self.next() = Some((before, next));
        }
    }

    fn next(&self) -> MutexGuard<'_, Option<Calls>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
