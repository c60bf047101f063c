//! What is to go wrong under a ring, for the tests of those above it (feature `sim`).
//!
//! The ring's own code runs: a piece is really made shorter, or held up, before it is submitted, its result
//! is really counted, and only then is a failure put in the place of what the kernel said, or the call held
//! up.
//! Without the feature nothing of this is there.

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

    use crate::Op;
    use crate::sim::Gate;
    use crate::uring::PIECES;

    /// What happens to one piece.
    #[derive(Debug, Clone)]
    #[non_exhaustive]
    pub enum Strike {
        /// The kernel does it, and this error number is told.
        Fail(i32),
        /// The kernel does nothing of it, and this error number is told.
        Refuse(i32),
        /// No more than this many bytes of it are moved.
        Short(u32),
        /// The kernel is given it late: when the gate opens.
        Hold(Gate),
        /// The kernel does it, and that is told late: when the gate opens.
        Late(Gate),
    }

    /// Strikes that wait for their pieces. Clones are the same.
    #[derive(Debug, Clone, Default)]
    pub struct RingFaults(Arc<Mutex<State>>);

    #[derive(Debug, Default)]
    struct State {
        seen: HashMap<Op, u64>,
        waiting: Vec<(Op, u64, Strike)>,
        struck: u64,
    }

    impl RingFaults {
        /// Nothing goes wrong.
        pub fn new() -> Self {
            Self::default()
        }

        /// Strikes the `nth` piece of this kind from now on, counted from 0: of reads, writes or syncs.
        pub fn strike(&self, op: Op, nth: u64, strike: Strike) {
            let mut state = self.state();
            let at = state.seen.get(&op).copied().unwrap_or_default() + nth;
            state.waiting.push((op, at, strike));
        }

        /// How many pieces were struck.
        pub fn struck(&self) -> u64 {
            self.state().struck
        }

        fn state(&self) -> MutexGuard<'_, State> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    /// The strikes of a ring, if there are any.
    #[derive(Debug, Clone, Default)]
    pub(in super::super) struct Faults(Option<RingFaults>);

    impl From<RingFaults> for Faults {
        fn from(faults: RingFaults) -> Self {
            Self(Some(faults))
        }
    }

    impl Faults {
        /// What meets the next pieces.
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

    /// What meets the pieces of one call.
    #[derive(Debug, Default)]
    pub(in super::super) struct Met([Option<Strike>; PIECES]);

    impl Met {
        /// How much of a piece is asked of the kernel, and when.
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

        /// What the caller is told of the results, and when.
        pub(in super::super) fn over(self, results: &mut [i32; PIECES]) {
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
    use crate::Op;
    use crate::uring::PIECES;

    #[derive(Debug, Clone, Default)]
    pub(in super::super) struct Faults {}

    impl Faults {
        pub(in super::super) fn meet(&self, _: Op, _: usize) -> Self {
            Self {}
        }

        pub(in super::super) fn asked(&self, _: usize, len: usize) -> usize {
            len
        }

        pub(in super::super) fn over(self, _: &mut [i32; PIECES]) {}
    }
}
