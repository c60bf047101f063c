//! The input of an append: payloads, and the numbers that a conditional append gives them.
//!
//! A payload is any `AsRef<[u8]>`, so taking it runs the caller's code. That code may answer
//! differently each time, call the log, or panic. So each append takes every payload exactly once,
//! before it checks a length, takes a lock or assigns a place, and then uses that slice. A panic in
//! the caller's code therefore has no effect on the log: no lock is held and no place is assigned.

use crate::base::position::Seq;
use crate::commit::core::Numbering;

/// A record as taken, once, from its caller.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Input<'a> {
    pub(crate) numbering: Numbering,
    pub(crate) payload: &'a [u8],
}

impl<'a> Input<'a> {
    const EMPTY: Self = Self { numbering: Numbering::Next, payload: &[] };

    /// Takes a payload that the log numbers. Runs the caller's code.
    pub(crate) fn next(payload: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self { numbering: Numbering::Next, payload: payload.as_ref() }
    }

    /// Takes a payload for the number `seq`, to follow `prev`. Runs the caller's code.
    pub(crate) fn after(prev: Seq, seq: Seq, payload: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        let numbering = Numbering::Given { seq: seq.0, prev: prev.0 };
        Self { numbering, payload: payload.as_ref() }
    }

    /// The number and the payload size, for the core.
    pub(crate) fn size(&self) -> (Numbering, usize) {
        (self.numbering, self.payload.len())
    }
}

/// Batches of at most this many records need no heap allocation.
const FEW: usize = 32;

/// The records of a batch, each taken once.
pub(crate) struct Inputs<'a> {
    few: [Input<'a>; FEW],
    /// The number of records in `few`.
    len: usize,
    /// All records, if there are more than `FEW`.
    many: Vec<Input<'a>>,
}

impl<'a> Inputs<'a> {
    /// Takes payloads that the log numbers. Runs the caller's code.
    pub(crate) fn next<P: AsRef<[u8]>>(payloads: &'a [P]) -> Self {
        Self::take(payloads.iter().map(Input::next))
    }

    /// Takes numbered payloads, the first of which is to follow `prev`, and each other one the one
    /// before it. Runs the caller's code.
    pub(crate) fn after<P: AsRef<[u8]>>(prev: Seq, records: &'a [(Seq, P)]) -> Self {
        let mut prev = prev;
        Self::take(
            records.iter().map(|(seq, payload)| {
                Input::after(std::mem::replace(&mut prev, *seq), *seq, payload)
            }),
        )
    }

    fn take(records: impl ExactSizeIterator<Item = Input<'a>>) -> Self {
        let mut few = [Input::EMPTY; FEW];
        let len = records.len();
        if len > FEW {
            return Self { few, len: 0, many: records.collect() };
        }
        for (input, record) in few.iter_mut().zip(records) {
            *input = record;
        }
        Self { few, len, many: Vec::new() }
    }
}

impl<'a> std::ops::Deref for Inputs<'a> {
    type Target = [Input<'a>];

    fn deref(&self) -> &[Input<'a>] {
        if self.many.is_empty() { &self.few[..self.len] } else { &self.many }
    }
}
