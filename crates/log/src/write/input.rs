//! The input of an append: payloads, and the numbers and conditions that their caller gives them.
//!
//! A payload is any `AsRef<[u8]>`, so taking it runs the caller's code. That code may answer
//! differently each time, call the log, or panic. So each append takes every payload exactly once,
//! before it checks a length, takes a lock or assigns a place, and then uses that slice. A panic in
//! the caller's code therefore has no effect on the log: no lock is held and no place is assigned.

use std::fmt;

use crate::base::position::Seq;
use crate::commit::core::Numbering;

/// Records to write in one call of [`Log::write`](crate::Log::write) or one of its forms, and the
/// condition on which they are accepted. Borrows the payloads; making one allocates nothing.
///
/// | constructor | numbers | accepted |
/// |---|---|---|
/// | [`Append::records`] | the next ones, by the log | always |
/// | [`Append::after`] | the next ones, by the log | if they follow a given record |
/// | [`Append::numbered`] | the caller's | if they follow a given record, or the log is empty |
///
/// Each record stands alone, and a crash may keep any first part of them, unless
/// [`Append::atomic`] makes them all or none.
///
/// # Examples
/// ```
/// use esker_log::{Append, AppendError, Error, Log, Seq, WriteError};
/// # let dir = tempfile::tempdir().unwrap();
/// # let log = Log::open(dir.path().join("log"))?;
/// log.write(Append::records(&["one", "two"]))?.blocking_wait()?;
/// log.write(Append::after(Seq(2), &["three", "four"]).atomic())?.blocking_wait()?;
/// log.write(Append::numbered(Seq(4), &[(Seq(10), "ten"), (Seq(20), "twenty")]))?.blocking_wait()?;
///
/// let late = log.write(Append::after(Seq(4), &["late"])).unwrap_err();
/// assert!(matches!(late, WriteError { error: AppendError::Sequence { .. }, accepted: 0, .. }));
/// # Ok::<(), Error>(())
/// ```
#[must_use = "records are written when this is passed to `Log::write`"]
pub struct Append<'a, P> {
    records: Records<'a, P>,
    atomic: bool,
}

enum Records<'a, P> {
    Next(&'a [P]),
    NextAfter(Seq, &'a [P]),
    Numbered(Seq, &'a [(Seq, P)]),
}

impl<'a, P: AsRef<[u8]>> Append<'a, P> {
    /// Returns these payloads as records that get the next numbers.
    pub fn records(payloads: &'a [P]) -> Self {
        Self { records: Records::Next(payloads), atomic: false }
    }

    /// Returns these payloads as records that get the next numbers, if `prev` is the number of the
    /// log's last record; 0 in a log that never had one. No record of another caller comes between
    /// them.
    pub fn after(prev: Seq, payloads: &'a [P]) -> Self {
        Self { records: Records::NextAfter(prev, payloads), atomic: false }
    }

    /// Returns records under the caller's numbers, which rise and may leave gaps. The first one is
    /// to follow the record `prev`, each other one the one before it. The first record of an empty
    /// log may follow any number.
    pub fn numbered(prev: Seq, records: &'a [(Seq, P)]) -> Self {
        Self { records: Records::Numbered(prev, records), atomic: false }
    }

    /// Makes the records atomic: all of them are accepted and recovered after a crash, or none.
    /// Payloads and headers together take at most about 88 MiB; the overhead is 16 to 23 bytes per
    /// record. Under [`Policy::Batch`](crate::Policy::Batch) they are one append.
    pub fn atomic(self) -> Self {
        Self { atomic: true, ..self }
    }

    pub(crate) fn is_atomic(&self) -> bool {
        self.atomic
    }

    /// Takes the record, if there is one alone. Runs the caller's code.
    #[inline]
    pub(crate) fn single(&self) -> Option<Input<'a>> {
        match self.records {
            Records::Next([payload]) => Some(Input::next(payload)),
            Records::NextAfter(prev, [payload]) => Some(Input::next_after(prev, payload)),
            Records::Numbered(prev, [(seq, payload)]) => Some(Input::given(prev, *seq, payload)),
            _ => None,
        }
    }

    /// Takes all records. Runs the caller's code.
    pub(crate) fn inputs(&self) -> Inputs<'a> {
        match self.records {
            Records::Next(payloads) => Inputs::take(payloads.iter().map(Input::next)),
            Records::NextAfter(mut prev, payloads) => {
                Inputs::take(payloads.iter().map(|payload| {
                    let next = Seq(prev.0.saturating_add(1));
                    Input::next_after(std::mem::replace(&mut prev, next), payload)
                }))
            }
            Records::Numbered(mut prev, records) => {
                Inputs::take(records.iter().map(|(seq, payload)| {
                    Input::given(std::mem::replace(&mut prev, *seq), *seq, payload)
                }))
            }
        }
    }
}

impl<P> Clone for Append<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for Append<'_, P> {}

impl<P> Clone for Records<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for Records<'_, P> {}

impl<P> fmt::Debug for Append<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (prev, records) = match self.records {
            Records::Next(payloads) => (None, payloads.len()),
            Records::NextAfter(prev, payloads) => (Some(prev), payloads.len()),
            Records::Numbered(prev, records) => (Some(prev), records.len()),
        };
        let mut debug = f.debug_struct("Append");
        debug.field("prev", &prev).field("records", &records).field("atomic", &self.atomic);
        debug.finish_non_exhaustive()
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

    /// Takes a payload that the log numbers. Runs the caller's code.
    #[inline]
    pub(crate) fn next(payload: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self { numbering: Numbering::Next, payload: payload.as_ref() }
    }

    /// Takes a payload that the log numbers, to follow `prev`. Runs the caller's code.
    #[inline]
    fn next_after(prev: Seq, payload: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self { numbering: Numbering::NextAfter { prev: prev.0 }, payload: payload.as_ref() }
    }

    /// Takes a payload for the number `seq`, to follow `prev`. Runs the caller's code.
    #[inline]
    fn given(prev: Seq, seq: Seq, payload: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        let numbering = Numbering::Given { seq: seq.0, prev: prev.0 };
        Self { numbering, payload: payload.as_ref() }
    }

    /// The number and the payload size, for the core.
    pub(crate) fn size(&self) -> (Numbering, usize) {
        (self.numbering, self.payload.len())
    }
}

/// Batches of at most this many records need no heap allocation.
const INLINE_RECORDS_MAX: usize = 32;

/// The records of a batch, each taken once.
pub(crate) struct Inputs<'a> {
    few: [Input<'a>; INLINE_RECORDS_MAX],
    /// The number of records in `few`.
    len: usize,
    /// All records, if there are more than `INLINE_RECORDS_MAX`.
    many: Vec<Input<'a>>,
}

impl<'a> Inputs<'a> {
    fn take(records: impl ExactSizeIterator<Item = Input<'a>>) -> Self {
        let mut few = [Input::EMPTY; INLINE_RECORDS_MAX];
        let len = records.len();
        if len > INLINE_RECORDS_MAX {
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
