//! Reading single slots, without a lock and without a copy.

use crossbeam_epoch::Guard;
use esker_disk::process;
use esker_log::{Seq, SeqRange};

use crate::base::slot::{Slot, page_of};
use crate::errors::protocol_errors::ReadError;
use crate::index::page::{IndexEntry, State};
use crate::index::page_table::PageLookup;
use crate::memory::cell::Borrowed;
use crate::memory::entry::Entry;
use crate::memory::value::SharedValue;
use crate::record::Record;
use crate::state::inner::{self, ConsensusLog, Inner};
use crate::storage_error::StorageError;

/// The most retries of a read whose slot changes meanwhile.
const READ_RETRIES_MAX: u32 = 64;

impl ConsensusLog {
    /// Returns the entry that is accepted or committed in a slot, durable or not. For inspection: a
    /// state machine reads with [`ConsensusLog::read_committed`].
    ///
    /// # Errors
    /// [`ReadError::SlotNotFound`], [`ReadError::Truncated`]; [`ReadError::Storage`], for example
    /// with [`StorageError::CorruptedEntry`].
    ///
    /// # Examples
    /// ```
    /// # use esker_consensus::{Ballot, ConsensusLog, Error, Slot};
    /// # fn main() -> Result<(), Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = ConsensusLog::open(dir.path().join("node-1"))?;
    /// # let ballot = Ballot { number: 1, node: 7 };
    /// # log.accept(Slot(0), ballot, b"layer on layer")?.blocking_wait()?;
    /// let guard = log.pin(); // for many reads
    /// let entry = log.read(Slot(0), &guard)?;
    /// assert!(entry.value() == b"layer on layer" && !entry.is_committed());
    /// # Ok(log.close()?)
    /// # }
    /// ```
    #[inline]
    pub fn read<'g>(&self, slot: Slot, guard: &'g inner::Guard) -> Result<Entry<'g>, ReadError> {
        self.inner.read(slot.0, &guard.0)
    }

    /// Returns the entry that is durably committed in a slot. It never changes, and is safe to
    /// apply.
    ///
    /// A value in memory is borrowed under the guard. Any other value is read from the log and
    /// checked, and is a view of the bytes that were read.
    ///
    /// # Errors
    /// [`ReadError::NotCommitted`] when the slot is only accepted; otherwise as
    /// [`ConsensusLog::read`].
    ///
    /// # Examples
    /// ```
    /// # use esker_consensus::{Ballot, ConsensusLog, Error, Slot};
    /// # fn main() -> Result<(), Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = ConsensusLog::open(dir.path().join("node-1"))?;
    /// # let ballot = Ballot { number: 1, node: 7 };
    /// # log.learn(Slot(0), ballot, b"layer on layer")?.blocking_wait()?;
    /// let guard = log.pin(); // for many reads
    /// assert_eq!(log.read_committed(Slot(0), &guard)?.value(), b"layer on layer");
    /// # Ok(log.close()?)
    /// # }
    /// ```
    #[inline]
    pub fn read_committed<'g>(
        &self,
        slot: Slot,
        guard: &'g inner::Guard,
    ) -> Result<Entry<'g>, ReadError> {
        let entry = self.inner.read_out_of_line(slot.0, &guard.0)?;
        if entry.is_committed() { Ok(entry) } else { Err(ReadError::NotCommitted { slot }) }
    }
}

impl Inner {
    /// The record that holds a slot's value; `None` for a value that only memory has.
    pub(crate) fn offset_of(&self, slot: u64) -> Result<Option<Seq>, ReadError> {
        self.refuse_if_closed()?;
        let guard = crossbeam_epoch::pin();
        let page = self.page(slot, &guard)?;
        let word = page.map(|page| page.slot(slot).word());
        self.keeps(slot)?;
        match word.filter(|word| word.state() != State::Empty) {
            Some(word) => Ok(Some(Seq(word.seq())).filter(|seq| *seq > Seq::ZERO)),
            None => Err(self.missing(slot)),
        }
    }

    /// The entry whose value is in a record.
    pub(crate) fn read_at(&self, offset: Seq) -> Result<Entry<'static>, ReadError> {
        self.refuse_if_closed()?;
        let invalid = ReadError::InvalidOffset { offset };
        let view = match self.log.read(offset) {
            Ok(view) => view,
            Err(esker_log::ReadError::NotFound { .. } | esker_log::ReadError::Trimmed(_)) => {
                return Err(invalid);
            }
            Err(error) => return Err(StorageError::from_log(error).into()),
        };
        let (slot, ballot, committed) = match Record::decode(&view) {
            Ok(Record::Accept { slot, ballot, .. }) => (slot, ballot, false),
            Ok(Record::Chosen { slot, ballot, .. }) => (slot, ballot, true),
            // A record of another kind, which has no value.
            Ok(_) => return Err(invalid),
            Err(what) => return Err(StorageError::CorruptedRecord { seq: offset, what }.into()),
        };
        Ok(Entry::stored(slot, ballot, view, committed))
    }

    /// Refuses a slot at or below the current floor.
    pub(crate) fn keeps(&self, slot: u64) -> Result<(), ReadError> {
        match self.floor_over(slot) {
            Some(floor) => Err(ReadError::Truncated { floor }),
            None => Ok(()),
        }
    }

    /// The error for a slot without an entry.
    pub(crate) fn missing(&self, slot: u64) -> ReadError {
        if let Some(floor) = self.floor_over(slot) {
            return ReadError::Truncated { floor };
        }
        // The slot may be among the quarantined records.
        match self.lost.range() {
            Some((from, to)) => {
                let cause = esker_log::Error::Quarantined(SeqRange { from, to });
                StorageError::CorruptedEntry { slot: Slot(slot), cause }.into()
            }
            None => ReadError::SlotNotFound { slot: Slot(slot) },
        }
    }

    /// The entry of a slot, for a caller that looks at it: an out-of-line call keeps it in
    /// registers and on the stack of one frame, which halves the time of a committed read.
    #[inline(never)]
    fn read_out_of_line<'g>(&self, slot: u64, guard: &'g Guard) -> Result<Entry<'g>, ReadError> {
        self.read(slot, guard)
    }

    #[inline(always)]
    pub(crate) fn read<'g>(&self, slot: u64, guard: &'g Guard) -> Result<Entry<'g>, ReadError> {
        // The fast path: the value is in memory.
        if let PageLookup::Page(page) = self.index.find(page_of(slot), guard)
            && let Some(resident) = page.slot(slot).resident().load(guard)
            && slot >= self.start()
            && !self.status.is_closed()
            && !process::is_forked()
        {
            return Ok(self.in_memory(resident));
        }
        self.read_slowly(slot, guard)
    }

    #[inline]
    fn in_memory<'g>(&self, resident: Borrowed<'g, SharedValue>) -> Entry<'g> {
        let marker = resident.marker();
        Entry::borrowed(resident, marker > 0 && marker <= self.visible())
    }

    #[cold]
    fn read_slowly<'g>(&self, slot: u64, guard: &'g Guard) -> Result<Entry<'g>, ReadError> {
        self.refuse_if_closed()?;
        if slot < self.start() {
            return Err(self.missing(slot));
        }
        let Some(page) = self.page(slot, guard)? else {
            return Err(self.missing(slot));
        };
        self.entry_at(slot, page.slot(slot), guard)
    }

    /// The current entry of a slot.
    pub(crate) fn entry_at<'g>(
        &self,
        slot: u64,
        indexed: &IndexEntry,
        guard: &'g Guard,
    ) -> Result<Entry<'g>, ReadError> {
        let mut last = None;
        let mut looks = 0;
        loop {
            if let Some(resident) = indexed.resident().load(guard) {
                return Ok(self.in_memory(resident));
            }
            let word = indexed.word();
            if word.state() == State::Empty {
                return Err(self.missing(slot));
            }
            match self.stored(slot, word.seq(), word.state() == State::Committed) {
                Ok(entry) => return Ok(entry),
                // Retry if the value moved or was loaded into memory. Otherwise the error is final.
                Err(error)
                    if looks >= READ_RETRIES_MAX
                        || last == Some(word) && indexed.resident().load(guard).is_none() =>
                {
                    self.keeps(slot)?;
                    return Err(error.into());
                }
                Err(_) => last = Some(word),
            }
            looks += 1;
        }
    }

    /// The current entry of a slot, for a call that then takes slot locks: with them, other callers
    /// would wait for the disk. `None` if the slot has no entry any more.
    pub(crate) fn entry_of<'g>(
        &self,
        slot: u64,
        guard: &'g Guard,
    ) -> Result<Option<Entry<'g>>, StorageError> {
        let Some(page) = self.page(slot, guard)? else { return Ok(None) };
        match self.entry_at(slot, page.slot(slot), guard) {
            Ok(entry) => Ok(Some(entry)),
            Err(ReadError::Storage(error)) => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// The current entry of a slot that has one and cannot change meanwhile: the caller opens
    /// the log.
    pub(crate) fn locked_entry<'g>(
        &self,
        slot: u64,
        indexed: &IndexEntry,
        guard: &'g Guard,
    ) -> Result<Entry<'g>, StorageError> {
        self.entry_at(slot, indexed, guard).map_err(|error| match error {
            ReadError::Storage(error) => error,
            _ => self.broken("a slot that cannot change keeps its entry"),
        })
    }

    /// Reads an entry from the log.
    fn stored(&self, slot: u64, seq: u64, committed: bool) -> Result<Entry<'static>, StorageError> {
        let view = match self.log.read(seq) {
            Ok(view) => view,
            Err(esker_log::ReadError::Log(esker_log::LogError::Closed)) => {
                return Err(StorageError::Closed);
            }
            Err(cause) => {
                return Err(StorageError::CorruptedEntry { slot: Slot(slot), cause: cause.into() });
            }
        };
        match Record::decode(&view) {
            Ok(
                Record::Accept { slot: found, ballot, .. }
                | Record::Chosen { slot: found, ballot, .. },
            ) if found == slot => Ok(Entry::stored(slot, ballot, view, committed)),
            _ => Err(StorageError::CorruptedRecord {
                seq: Seq(seq),
                what: "it does not hold the slot's value",
            }),
        }
    }
}
