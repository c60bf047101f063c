//! What a caller appends: a payload that the log numbers, or a [`Numbered`] record.
//!
//! A payload is anything that is `AsRef<[u8]>`, so taking it runs code of the caller: it may answer
//! differently each time, call the log, or panic. Each append therefore takes every record exactly
//! once, before it checks a length, takes a lock or gives a place, and works from the slice that it
//! got. A panic in the caller's code so leaves nothing behind: no lock is held, no place is given.

use crate::base::position::Seq;
use crate::commit::core::Numbering;

/// A record with the number that the caller gives it, and the number that it must follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbered<'a> {
    /// The record's number, above `prev`.
    pub seq: Seq,
    /// The number of the last record of the log, or the append is refused.
    pub prev: Seq,
    /// The payload.
    pub payload: &'a [u8],
}

/// Anything that can be appended: a payload that the log numbers, or a [`Numbered`] record.
///
/// [`AsRef::as_ref`] of a payload is called once for each append, outside of every lock.
pub trait Append: sealed::Sealed {
    #[doc(hidden)]
    fn parts(&self) -> (Option<(Seq, Seq)>, &[u8]);
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Numbered<'_> {}
    impl<T: AsRef<[u8]> + ?Sized> Sealed for &T {}
}

impl<T: AsRef<[u8]> + ?Sized> Append for &T {
    fn parts(&self) -> (Option<(Seq, Seq)>, &[u8]) {
        (None, (*self).as_ref())
    }
}

impl Append for Numbered<'_> {
    fn parts(&self) -> (Option<(Seq, Seq)>, &[u8]) {
        (Some((self.seq, self.prev)), self.payload)
    }
}

/// A record as its caller gave it, once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Input<'a> {
    pub(crate) numbering: Numbering,
    pub(crate) payload: &'a [u8],
}

impl<'a> Input<'a> {
    const EMPTY: Self = Self { numbering: Numbering::Next, payload: &[] };

    /// Runs the caller's code.
    pub(crate) fn take(record: &'a impl Append) -> Self {
        let (number, payload) = record.parts();
        let numbering = match number {
            None => Numbering::Next,
            Some((seq, prev)) => Numbering::Given { seq: seq.0, prev: prev.0 },
        };
        Self { numbering, payload }
    }

    /// What the core wants to know of it.
    pub(crate) fn size(&self) -> (Numbering, usize) {
        (self.numbering, self.payload.len())
    }
}

/// Batches up to this many records need no memory of the heap.
const FEW: usize = 32;

/// The records of a batch, each taken once.
pub(crate) struct Inputs<'a> {
    few: [Input<'a>; FEW],
    /// How many of these there are.
    len: usize,
    /// All of them, where they are too many.
    many: Vec<Input<'a>>,
}

impl<'a> Inputs<'a> {
    /// Runs the caller's code.
    pub(crate) fn take<A: Append>(records: &'a [A]) -> Self {
        let mut few = [Input::EMPTY; FEW];
        if records.len() > FEW {
            return Self { few, len: 0, many: records.iter().map(Input::take).collect() };
        }
        for (input, record) in few.iter_mut().zip(records) {
            *input = Input::take(record);
        }
        Self { few, len: records.len(), many: Vec::new() }
    }
}

impl<'a> std::ops::Deref for Inputs<'a> {
    type Target = [Input<'a>];

    fn deref(&self) -> &[Input<'a>] {
        if self.many.is_empty() { &self.few[..self.len] } else { &self.many }
    }
}
