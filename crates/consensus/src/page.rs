//! The index's unit: 4096 slots in a row, two words each.
//!
//! A slot has a *word*, its state and the number of the record that holds its value, and a *cell*
//! with the value, as long as it is in memory. Who changes a slot holds its lock (see `gate`);
//! readers take none. They look at the cell first: a value in memory says all about itself, its
//! marker included. Only where there is none the word counts, and then a value is empty, or committed,
//! durable, and to be read from the log.

use crossbeam_epoch::Guard;

use crate::cell::Cell;
use crate::held::Held;
use crate::open_pages::Count;
use crate::stock::SMALL;
use crate::sync::{AtomicBool, AtomicU64, Ordering};

/// Slots in a page.
pub(crate) const SLOTS: usize = 4096;

/// The number of the page that a slot is in.
pub(crate) fn number_of(slot: u64) -> u64 {
    slot / SLOTS as u64
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Empty,
    Accepted,
    Committed,
}

/// A slot's state, and the number of the record with its value: 0 where only memory has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word(u64);

impl Word {
    pub(crate) const EMPTY: Word = Word(0);

    pub(crate) fn accepted(seq: u64) -> Self {
        Self(seq << 2 | 1)
    }

    pub(crate) fn committed(seq: u64) -> Self {
        Self(seq << 2 | 2)
    }

    pub(crate) fn state(self) -> State {
        match self.0 & 3 {
            1 => State::Accepted,
            2 => State::Committed,
            _ => State::Empty,
        }
    }

    pub(crate) fn seq(self) -> u64 {
        self.0 >> 2
    }

    /// The same state, with the value in another record.
    pub(crate) fn moved(self, seq: u64) -> Self {
        Self(seq << 2 | self.0 & 3)
    }

    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    /// From a checkpoint; `None` for what cannot be.
    pub(crate) fn from_bits(bits: u64) -> Option<Self> {
        let word = Self(bits);
        let sound = match word.state() {
            State::Empty => bits == 0,
            State::Accepted | State::Committed => word.seq() > 0,
        };
        sound.then_some(word)
    }
}

/// One slot.
#[derive(Debug)]
pub(crate) struct Slot {
    word: AtomicU64,
    held: Cell<Held>,
}

impl Slot {
    fn new(word: Word) -> Self {
        Self { word: AtomicU64::new(word.0), held: Cell::default() }
    }

    #[inline]
    pub(crate) fn word(&self) -> Word {
        Word(self.word.load(Ordering::Acquire))
    }

    /// The caller holds the slot's lock.
    pub(crate) fn set_word(&self, word: Word) {
        self.word.store(word.0, Ordering::Release);
    }

    #[inline]
    pub(crate) fn held(&self) -> &Cell<Held> {
        &self.held
    }

    /// Puts another value here, or none, in place of one that counts so many bytes.
    #[inline]
    pub(crate) fn put(&self, value: Option<Held>, before: u64, guard: &Guard) {
        self.held.replace(value, before <= SMALL as u64, guard);
    }

    /// Nothing is here any more. The word goes first, so that nobody who finds no value takes it for
    /// one that was evicted.
    fn clear(&self, guard: &Guard) {
        self.set_word(Word::EMPTY);
        self.held.swap(None, guard);
    }
}

/// 4096 slots.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) number: u64,
    slots: Box<[Slot]>,
    /// Slots that are accepted and not committed.
    pub(crate) open: Count,
    /// Slots that are committed.
    committed: AtomicU64,
    /// Something changed since the last checkpoint.
    dirty: AtomicBool,
}

impl Page {
    pub(crate) fn new(number: u64) -> Self {
        let slots = (0..SLOTS).map(|_| Slot::new(Word::EMPTY)).collect();
        let (open, committed) = (Count::default(), AtomicU64::new(0));
        Self { number, slots, open, committed, dirty: AtomicBool::new(true) }
    }

    /// As a checkpoint has it; `None` when it makes no sense.
    pub(crate) fn from_words(
        number: u64,
        first: usize,
        words: impl Iterator<Item = u64>,
    ) -> Option<Self> {
        let page = Self::new(number);
        page.dirty.store(false, Ordering::Relaxed);
        let mut committed = 0;
        for (slot, bits) in page.slots.get(first..)?.iter().zip(words) {
            let word = Word::from_bits(bits)?;
            committed += u64::from(word.state() == State::Committed);
            slot.set_word(word);
        }
        page.committed.store(committed, Ordering::Relaxed);
        Some(page)
    }

    /// Slots that are committed.
    pub(crate) fn committed(&self) -> u64 {
        self.committed.load(Ordering::Acquire)
    }

    /// A slot that was not committed is. The caller holds the slot's lock.
    #[inline]
    pub(crate) fn count_commit(&self) {
        self.committed.fetch_add(1, Ordering::AcqRel);
    }

    /// Empties a slot. The caller holds the slot's lock, and has done with its value.
    pub(crate) fn clear(&self, slot: &Slot, guard: &Guard) {
        match slot.word().state() {
            State::Empty => return,
            State::Accepted => self.open.leave(),
            State::Committed => {
                self.committed.fetch_sub(1, Ordering::AcqRel);
            }
        }
        slot.clear(guard);
        self.touch();
    }

    #[inline]
    pub(crate) fn slot(&self, slot: u64) -> &Slot {
        &self.slots[(slot % SLOTS as u64) as usize]
    }

    /// The slots with their numbers, from one on.
    pub(crate) fn from(&self, slot: u64) -> impl Iterator<Item = (u64, &Slot)> {
        let base = self.number * SLOTS as u64;
        let skip = slot.saturating_sub(base).min(SLOTS as u64) as usize;
        let slots = self.slots.iter().enumerate().skip(skip);
        slots.map(move |(n, slot)| (base + n as u64, slot))
    }

    pub(crate) fn touch(&self) {
        if !self.dirty.load(Ordering::Relaxed) {
            self.dirty.store(true, Ordering::Release);
        }
    }

    /// Whether something changed; from here on nothing has.
    pub(crate) fn take_dirty(&self) -> bool {
        self.dirty.swap(false, Ordering::AcqRel)
    }

    /// The words for a checkpoint, without the empty ones at both ends; what only memory has is
    /// left out.
    pub(crate) fn words(&self) -> (u16, Vec<u64>) {
        let bits = |slot: &Slot| Some(slot.word()).filter(|w| w.seq() > 0).map_or(0, Word::bits);
        let mut words: Vec<u64> = self.slots.iter().map(bits).collect();
        words.truncate(words.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1));
        let first = words.iter().position(|word| *word != 0).unwrap_or(0);
        (first as u16, words.split_off(first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back() {
        let page = Page::new(3);
        page.slot(3 * 4096 + 7).set_word(Word::committed(9));
        page.slot(3 * 4096 + 9).set_word(Word::accepted(11));
        page.slot(3 * 4096 + 12).set_word(Word::accepted(0));
        let (first, words) = page.words();
        assert_eq!((first, words.len()), (7, 3), "what only memory has is left out");
        let again = Page::from_words(3, 7, words.into_iter()).unwrap();
        assert_eq!(again.committed(), 1);
        assert_eq!(again.slot(3 * 4096 + 7).word(), Word::committed(9));
        assert_eq!(again.slot(3 * 4096 + 9).word(), Word::accepted(11));
        assert!(Page::from_words(3, 0, [3].into_iter()).is_none());
        assert_eq!(page.from(3 * 4096 + 4090).count(), 6);
    }
}
