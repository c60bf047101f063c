//! The input of an append: a payload that the log numbers, or a [`Numbered`] record.
//!
//! A payload is any `AsRef<[u8]>`, so taking it runs the caller's code. That code may answer
//! differently each time, call the log, or panic. So each append takes every record exactly once,
//! before it checks a length, takes a lock or assigns a place, and then uses that slice. A panic in
//! the caller's code therefore has no effect on the log: no lock is held and no place is assigned.

use crate::base::position::Seq;
use crate::commit::core::Numbering;

/// A record with a number that the caller assigns, and the number that it must follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbered<'a> {
    /// The record's number, above `prev`.
    pub seq: Seq,
    /// The number of the log's last record; if it differs, the append is refused. The first record
    /// of an empty log may follow any number.
    pub prev: Seq,
    /// The payload.
    pub payload: &'a [u8],
}

/// A record to append: a payload that the log numbers, or a [`Numbered`] record.
///
/// [`AsRef::as_ref`] of a payload is called once for each append, outside every lock.
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

/// A record as taken, once, from its caller.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Input<'a> {
    pub(crate) numbering: Numbering,
    pub(crate) payload: &'a [u8],
}

impl<'a> Input<'a> {
    const EMPTY: Self = Self { numbering: Numbering::Next, payload: &[] };

    /// Takes the record. Runs the caller's code.
    pub(crate) fn take(record: &'a impl Append) -> Self {
        let (number, payload) = record.parts();
        let numbering = match number {
            None => Numbering::Next,
            Some((seq, prev)) => Numbering::Given { seq: seq.0, prev: prev.0 },
        };
        Self { numbering, payload }
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
    /// Takes the records. Runs the caller's code.
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
