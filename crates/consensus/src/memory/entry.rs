//! Entries, as readers receive them.

use std::fmt;
use std::ops::Deref;

use esker_log::View;

use crate::base::ballot::Ballot;
use crate::base::slot::Slot;
use crate::memory::cell::Borrowed;
use crate::memory::value::SharedValue;
use crate::record::VALUE_AT;

/// An accepted or committed entry of a slot.
///
/// The value is borrowed under the guard, shared, or a view of the log. It is never copied.
#[derive(Clone)]
pub struct Entry<'g> {
    value: EntryValue<'g>,
    state: EntryState,
}

/// One word wide: entries are moved often, and a byte among padding is moved in several dependent
/// parts, which costs 30 ns per read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
enum EntryState {
    Accepted,
    Committed,
}

impl EntryState {
    #[inline]
    fn from_committed(committed: bool) -> Self {
        if committed { Self::Committed } else { Self::Accepted }
    }
}

#[derive(Clone)]
enum EntryValue<'g> {
    Borrowed(Borrowed<'g, SharedValue>),
    Shared(SharedValue),
    /// Boxed, so that an entry is small on the fast read path.
    Stored(Box<StoredValue>),
}

#[derive(Clone)]
struct StoredValue {
    slot: u64,
    ballot: Ballot,
    view: View,
}

impl<'g> Entry<'g> {
    #[inline]
    pub(crate) fn borrowed(value: Borrowed<'g, SharedValue>, committed: bool) -> Self {
        Self { value: EntryValue::Borrowed(value), state: EntryState::from_committed(committed) }
    }

    pub(crate) fn shared(value: SharedValue, committed: bool) -> Entry<'static> {
        Entry { value: EntryValue::Shared(value), state: EntryState::from_committed(committed) }
    }

    /// An entry whose record is in the log. The view's payload is longer than `VALUE_AT`.
    pub(crate) fn stored(slot: u64, ballot: Ballot, view: View, committed: bool) -> Entry<'static> {
        debug_assert!(view.payload().len() >= VALUE_AT, "the record of an entry has no value");
        let value = EntryValue::Stored(Box::new(StoredValue { slot, ballot, view }));
        Entry { value, state: EntryState::from_committed(committed) }
    }

    /// The slot.
    #[inline]
    pub fn slot(&self) -> Slot {
        Slot(match &self.value {
            EntryValue::Borrowed(value) => value.slot,
            EntryValue::Shared(value) => value.slot,
            EntryValue::Stored(stored) => stored.slot,
        })
    }

    /// The ballot under which it was accepted.
    #[inline]
    pub fn ballot(&self) -> Ballot {
        match &self.value {
            EntryValue::Borrowed(value) => value.ballot,
            EntryValue::Shared(value) => value.ballot,
            EntryValue::Stored(stored) => stored.ballot,
        }
    }

    /// Whether it is committed. A committed entry never changes.
    #[inline]
    pub fn is_committed(&self) -> bool {
        self.state == EntryState::Committed
    }

    /// The value.
    #[inline]
    pub fn value(&self) -> &[u8] {
        match &self.value {
            EntryValue::Borrowed(value) => value.value(),
            EntryValue::Shared(value) => value.value(),
            EntryValue::Stored(stored) => &stored.view.payload()[VALUE_AT..],
        }
    }

    /// The same entry, owned, and reported as committed even if the commit is not durable yet.
    pub(crate) fn into_committed(self) -> Entry<'static> {
        Entry { state: EntryState::Committed, ..self.into_owned() }
    }

    /// The same entry, independent of the guard. Copies no value.
    pub fn into_owned(self) -> Entry<'static> {
        let value = match self.value {
            EntryValue::Borrowed(value) => EntryValue::Shared(value.counted()),
            EntryValue::Shared(value) => EntryValue::Shared(value),
            EntryValue::Stored(stored) => EntryValue::Stored(stored),
        };
        Entry { value, state: self.state }
    }
}

impl Deref for Entry<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.value()
    }
}

impl fmt::Debug for Entry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("slot", &self.slot())
            .field("ballot", &self.ballot())
            .field("committed", &self.is_committed())
            .field("len", &self.value().len())
            .finish()
    }
}
