//! Fault injection below a ring, for tests (feature `sim`).
//!
//! The ring's own code runs. The fault shortens or delays a piece before it is submitted. After its
//! result is counted, the fault replaces the kernel's result or delays the call. So tests that
//! inject a fault at every piece run the shipped code, not a model of it. Without the feature this
//! module does nothing.

#[cfg(feature = "sim")]
pub(super) use imp::Faults;
#[cfg(feature = "sim")]
pub use imp::{RingFaults, Strike};
#[cfg(not(feature = "sim"))]
pub(super) use none::Faults;

#[cfg(feature = "sim")]
mod imp {
    use std::collections::HashMap;
    use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

    use crate::error::Op;
    use crate::sim::Gate;
    use crate::uring::PIECES_MAX;

    /// A fault that affects one piece.
    #[derive(Debug, Clone)]
    #[non_exhaustive]
    pub enum Strike {
        /// The kernel performs the piece; the caller sees this error number.
        Fail(i32),
        /// The kernel transfers none of the piece; the caller sees this error number.
        Refuse(i32),
        /// At most this many bytes of the piece are transferred.
        Short(u32),
        /// Submission waits until the gate opens.
        Hold(Gate),
        /// The kernel performs the piece; the result is reported when the gate opens.
        Late(Gate),
    }

    /// Pending faults of a ring. Clones share the same state.
    #[derive(Debug, Clone, Default)]
    pub struct RingFaults(Arc<Mutex<State>>);

    #[derive(Debug, Default)]
    struct State {
        seen: HashMap<Op, u64>,
        waiting: Vec<(Op, u64, Strike)>,
        struck: u64,
    }

    impl RingFaults {
        /// Creates a set without faults.
        pub fn new() -> Self {
            Self::default()
        }

        /// Injects a fault at the `nth` piece of kind `op` (read, write or sync) from now on,
        /// counted from 0.
        pub fn strike(&self, op: Op, nth: u64, strike: Strike) {
            let mut state = self.state();
            let at = state.seen.get(&op).copied().unwrap_or_default() + nth;
            state.waiting.push((op, at, strike));
        }

        /// Returns how many pieces were affected.
        pub fn struck(&self) -> u64 {
            self.state().struck
        }

        fn state(&self) -> MutexGuard<'_, State> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    /// The faults of a ring, if any.
    #[derive(Debug, Clone, Default)]
    pub(in super::super) struct Faults(Option<RingFaults>);

    impl From<RingFaults> for Faults {
        fn from(faults: RingFaults) -> Self {
            Self(Some(faults))
        }
    }

    impl Faults {
        /// Takes the faults for the next pieces.
        pub(in super::super) fn meet(&self, op: Op, pieces: usize) -> Met {
            let mut met = Met::default();
            let Some(faults) = &self.0 else { return met };
            let mut state = faults.state();
            let seen = state.seen.entry(op).or_default();
            let first = *seen;
            *seen += pieces as u64;
            let now = |(of, at, _): &mut (Op, u64, Strike)| {
                *of == op && (first..first + pieces as u64).contains(at)
            };
            let struck: Vec<_> = state.waiting.extract_if(.., now).collect();
            for (_, at, strike) in struck {
                if let Some(place) = met.0.get_mut((at - first) as usize) {
                    *place = Some(strike);
                    state.struck += 1;
                }
            }
            met
        }
    }

    /// The faults for the pieces of one call.
    #[derive(Debug, Default)]
    pub(in super::super) struct Met([Option<Strike>; PIECES_MAX]);

    impl Met {
        /// Returns the length to submit for a piece; may wait before submission.
        pub(in super::super) fn asked(&self, piece: usize, len: usize) -> usize {
            match self.0.get(piece) {
                Some(Some(Strike::Short(most))) => len.min(*most as usize),
                Some(Some(Strike::Refuse(_))) => 0,
                Some(Some(Strike::Hold(gate))) => {
                    gate.pass(|| true);
                    len
                }
                _ => len,
            }
        }

        /// Rewrites the results that the caller sees; may wait before returning them.
        pub(in super::super) fn over(self, results: &mut [i32; PIECES_MAX]) {
            for (result, strike) in results.iter_mut().zip(self.0) {
                match strike {
                    Some(Strike::Fail(errno) | Strike::Refuse(errno)) => *result = -errno,
                    Some(Strike::Late(gate)) => gate.pass(|| true),
                    Some(Strike::Short(_) | Strike::Hold(_)) | None => {}
                }
            }
        }
    }
}

#[cfg(not(feature = "sim"))]
mod none {
    use crate::error::Op;
    use crate::uring::PIECES_MAX;

    #[derive(Debug, Clone, Default)]
    pub(in super::super) struct Faults {}

    impl Faults {
        pub(in super::super) fn meet(&self, _: Op, _: usize) -> Self {
            Self {}
        }

        pub(in super::super) fn asked(&self, _: usize, len: usize) -> usize {
            len
        }

        pub(in super::super) fn over(self, _: &mut [i32; PIECES_MAX]) {}
    }
}
