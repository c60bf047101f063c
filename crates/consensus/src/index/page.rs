//! A page, the unit of the index: 4096 consecutive slots, two words each, in groups of 64 that are
//! allocated when one of their slots is first used. So a log of few slots takes little memory.
//!
//! A slot has a *word* and a *cell*. The word holds the slot's state and the number of the record
//! with its value. The cell points to the value while it is in memory. An operation that changes a
//! slot holds its lock (see `slot_locks`); readers take none. Readers load the cell first: a value
//! in memory has its slot, ballot and marker. Only if the cell is empty they read the
//! word. The slot is then empty, or its value is committed, durable, and read from the log.

use std::sync::OnceLock;

use crossbeam_epoch::Guard;
use esker_log::reclaim::stored_size;

use crate::base::slot::SLOTS_PER_PAGE;
use crate::base::sync::{AtomicU64, Ordering};
use crate::index::dirty::Dirty;
use crate::index::open_pages::OpenCount;
use crate::memory::cell::Cell;
use crate::memory::value::SMALL_VALUE_BYTES;
use crate::memory::value::SharedValue;
use crate::record::VALUE_AT;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Empty,
    Accepted,
    Committed,
}

/// A slot's state (2 bits), the approximate size of the record with its value (10 bits), and the
/// number of that record (52 bits; 0 if only memory has the value).
///
/// Truncation needs the size: it computes the live bytes of a segment without reading records. See
/// `size`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word(u64);

/// The limit of record numbers in a word. A log that appends a million records a second reaches it
/// after 71 years, and can then not be opened.
pub(crate) const SEQ_LIMIT: u64 = 1 << 51;

/// The first bit of the record's number, and that of the size.
const SEQ_AT: u32 = 12;
const SIZE_AT: u32 = 2;
/// The bits of the state.
const STATE_MASK: u64 = 3;

const _: () = assert!(STATE_MASK == (1 << SIZE_AT) - 1);
const _: () = assert!(size::CLASS_MASK == (1 << (SEQ_AT - SIZE_AT)) - 1);
const _: () = assert!(SEQ_LIMIT <= 1 << (u64::BITS - SEQ_AT));

impl Word {
    pub(crate) const EMPTY: Word = Word(0);

    pub(crate) fn accepted(seq: u64) -> Self {
        debug_assert!(seq < SEQ_LIMIT, "a record's number does not fit in a word");
        Self(seq << SEQ_AT | 1)
    }

    pub(crate) fn committed(seq: u64) -> Self {
        debug_assert!(seq > 0 && seq < SEQ_LIMIT, "a committed value has no record");
        Self(seq << SEQ_AT | 2)
    }

    /// The same word, for a value of this length.
    pub(crate) fn sized(self, len: usize) -> Self {
        let class = size::class(stored_size(VALUE_AT + len));
        Self(self.0 & !(size::CLASS_MASK << SIZE_AT) | class << SIZE_AT)
    }

    /// The same value, committed, in record `seq`.
    pub(crate) fn commit(self, seq: u64) -> Self {
        debug_assert_eq!(self.state(), State::Accepted, "only an accepted slot is committed");
        debug_assert!(seq > 0 && seq < SEQ_LIMIT, "a committed value has no record");
        Self(seq << SEQ_AT | self.0 & size::CLASS_MASK << SIZE_AT | 2)
    }

    /// The size of the record in the log in bytes, overestimated by at most 4 %.
    pub(crate) fn size(self) -> u64 {
        size::bytes(self.0 >> SIZE_AT & size::CLASS_MASK)
    }

    pub(crate) fn state(self) -> State {
        match self.0 & STATE_MASK {
            1 => State::Accepted,
            2 => State::Committed,
            other => {
                debug_assert_eq!(other, 0, "a slot has no such state");
                State::Empty
            }
        }
    }

    pub(crate) fn seq(self) -> u64 {
        self.0 >> SEQ_AT
    }

    /// The same state, with the value in record `seq`.
    pub(crate) fn moved(self, seq: u64) -> Self {
        debug_assert_ne!(self.state(), State::Empty, "an empty slot has no record");
        debug_assert!(seq > 0 && seq < SEQ_LIMIT, "a record's number does not fit in a word");
        Self(seq << SEQ_AT | self.0 & ((1 << SEQ_AT) - 1))
    }

    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    /// A word from a checkpoint; `None` if it is invalid.
    pub(crate) fn from_bits(bits: u64) -> Option<Self> {
        let word = Self(bits);
        let is_valid = match bits & STATE_MASK {
            0 => bits == 0,
            1 | 2 => word.seq() > 0 && word.seq() < SEQ_LIMIT,
            _ => false,
        };
        is_valid.then_some(word)
    }
}

/// Sizes in ten bits, in units of eight bytes: an exponent of five bits and a mantissa of six,
/// whose first bit is implied.
mod size {
    pub(super) const CLASS_MASK: u64 = 0x3FF;

    /// The class of the smallest size that is at least this one.
    pub(super) fn class(bytes: u64) -> u64 {
        let eights = bytes.div_ceil(8);
        let exponent = u64::from((64 - eights.leading_zeros()).saturating_sub(6));
        let mantissa = eights.div_ceil(1 << exponent);
        // A mantissa rounded up to 64 gives the first class of the next exponent.
        let class = if exponent == 0 { mantissa } else { (exponent + 1) * 32 + mantissa - 32 };
        class.min(CLASS_MASK)
    }

    pub(super) fn bytes(class: u64) -> u64 {
        let (exponent, rest) = (class / 32, class % 32);
        if exponent < 2 { class * 8 } else { (32 + rest) << (exponent - 1) << 3 }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn sizes_come_back_at_most_a_thirty_second_larger() {
            for bytes in
                (0..5000).chain((12..38).flat_map(|n| [(1 << n) - 1, 1 << n, (1 << n) + 9]))
            {
                let class = class(bytes);
                let back = super::bytes(class);
                assert!(
                    class <= CLASS_MASK && back >= bytes && back <= bytes + 8 + bytes / 32,
                    "{bytes}"
                );
            }
            assert!((1..=CLASS_MASK).all(|class| super::bytes(class) > super::bytes(class - 1)));
            assert!((0..=CLASS_MASK).all(|c| class(super::bytes(c)) == c));
        }
    }
}

/// One slot.
#[derive(Debug)]
pub(crate) struct IndexEntry {
    word: AtomicU64,
    resident: Cell<SharedValue>,
}

impl IndexEntry {
    fn new(word: Word) -> Self {
        Self { word: AtomicU64::new(word.0), resident: Cell::default() }
    }

    #[inline]
    pub(crate) fn word(&self) -> Word {
        Word(self.word.load(Ordering::Acquire))
    }

    /// Sets the word. The caller holds the slot's lock.
    pub(crate) fn set_word(&self, word: Word) {
        self.word.store(word.0, Ordering::Release);
    }

    #[inline]
    pub(crate) fn resident(&self) -> &Cell<SharedValue> {
        &self.resident
    }

    /// Replaces the value in memory, or removes it. The old value is charged `before` bytes.
    #[inline]
    pub(crate) fn put(&self, value: Option<SharedValue>, before: u64, guard: &Guard) {
        self.resident.replace(value, before <= SMALL_VALUE_BYTES as u64, guard);
    }

    /// Empties the slot. Clears the word first: a reader that finds no value must not take it for
    /// an evicted one.
    fn clear(&self, guard: &Guard) {
        self.set_word(Word::EMPTY);
        self.resident.swap(None, guard);
    }
}

/// Slots in a group.
const SLOTS_PER_GROUP: usize = 64;
const GROUPS_PER_PAGE: usize = SLOTS_PER_PAGE / SLOTS_PER_GROUP;

const _: () = assert!(GROUPS_PER_PAGE * SLOTS_PER_GROUP == SLOTS_PER_PAGE);

type Group = Box<[IndexEntry; SLOTS_PER_GROUP]>;

/// A page: 4096 slots.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) number: u64,
    groups: Box<[OnceLock<Group>; GROUPS_PER_PAGE]>,
    /// Slots that are accepted and not committed.
    pub(crate) open: OpenCount,
    /// Slots that are committed.
    committed: AtomicU64,
    /// Whether the page changed since the last checkpoint.
    dirty: Dirty,
}

impl Page {
    pub(crate) fn new(number: u64) -> Self {
        let groups = Box::new([const { OnceLock::new() }; GROUPS_PER_PAGE]);
        let (open, committed) = (OpenCount::default(), AtomicU64::new(0));
        Self { number, groups, open, committed, dirty: Dirty::new(true) }
    }

    /// A page that a checkpoint stored; `None` if it is invalid.
    pub(crate) fn from_words(
        number: u64,
        first: usize,
        words: impl Iterator<Item = u64>,
    ) -> Option<Self> {
        let page = Self::new(number);
        page.dirty.take();
        let mut committed = 0;
        for (slot, bits) in (first..SLOTS_PER_PAGE).zip(words) {
            let word = Word::from_bits(bits)?;
            committed += u64::from(word.state() == State::Committed);
            if word != Word::EMPTY {
                page.slot(slot as u64).set_word(word);
            }
        }
        page.committed.store(committed, Ordering::Relaxed);
        Some(page)
    }

    /// The number of committed slots.
    pub(crate) fn committed(&self) -> u64 {
        self.committed.load(Ordering::Acquire)
    }

    /// Counts a slot that became committed. The caller holds the slot's lock.
    #[inline]
    pub(crate) fn count_commit(&self) {
        let before = self.committed.fetch_add(1, Ordering::AcqRel);
        debug_assert!(before < SLOTS_PER_PAGE as u64, "more slots are committed than there are");
    }

    /// Empties a slot. The caller holds the slot's lock, and no longer uses its value.
    pub(crate) fn clear(&self, slot: &IndexEntry, guard: &Guard) {
        match slot.word().state() {
            State::Empty => return,
            State::Accepted => self.open.leave(),
            State::Committed => {
                let before = self.committed.fetch_sub(1, Ordering::AcqRel);
                debug_assert!(before > 0, "more slots are dropped than were committed");
            }
        }
        slot.clear(guard);
        self.touch();
    }

    #[inline]
    pub(crate) fn slot(&self, slot: u64) -> &IndexEntry {
        let number = (slot % SLOTS_PER_PAGE as u64) as usize;
        let group = self.groups[number / SLOTS_PER_GROUP].get_or_init(new_group);
        &group[number % SLOTS_PER_GROUP]
    }

    /// The slots from `slot` on, with their numbers, without gaps.
    pub(crate) fn from(&self, slot: u64) -> impl Iterator<Item = (u64, &IndexEntry)> {
        let base = self.number * SLOTS_PER_PAGE as u64;
        let skip = slot.saturating_sub(base).min(SLOTS_PER_PAGE as u64);
        (base + skip..base + SLOTS_PER_PAGE as u64).map(|slot| (slot, self.slot(slot)))
    }

    /// The slots from `slot` on, with their numbers, but for groups that were never used: all that
    /// are not empty.
    pub(crate) fn used_from(
        &self,
        slot: u64,
    ) -> impl DoubleEndedIterator<Item = (u64, &IndexEntry)> {
        let base = self.number * SLOTS_PER_PAGE as u64;
        let used = self.groups.iter().enumerate().filter_map(move |(number, group)| {
            Some((base + (number * SLOTS_PER_GROUP) as u64, group.get()?))
        });
        let slots = used.flat_map(|(first, group)| {
            group.iter().enumerate().map(move |(number, slot)| (first + number as u64, slot))
        });
        slots.filter(move |(number, _)| *number >= slot)
    }

    /// Records that a slot changed. The caller holds its lock.
    #[inline]
    pub(crate) fn touch(&self) {
        self.dirty.set();
    }

    /// Clears the dirty flag. Returns whether it was set.
    pub(crate) fn take_dirty(&self) -> bool {
        self.dirty.take()
    }

    /// The number of words that a checkpoint stores of this page.
    pub(crate) fn stored_words(&self) -> usize {
        let is_stored = |(_, slot): &(u64, &IndexEntry)| slot.word().seq() > 0;
        let (first, last) = (self.used_from(0).find(is_stored), self.used_from(0).rfind(is_stored));
        first.zip(last).map_or(0, |((first, _), (last, _))| (last - first + 1) as usize)
    }

    /// Whether the next checkpoint stores the page again.
    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty.get()
    }

    /// Copies the page for a checkpoint. Each word is as of some moment during the call, and
    /// different words may be as of different moments.
    pub(crate) fn copy(&self) -> PageCopy {
        let words = self.groups.iter().flat_map(|group| {
            let word =
                move |number: usize| group.get().map_or(Word::EMPTY, |group| group[number].word());
            (0..SLOTS_PER_GROUP).map(word)
        });
        PageCopy::new(words)
    }
}

#[cold]
fn new_group() -> Group {
    Box::new(std::array::from_fn(|_| IndexEntry::new(Word::EMPTY)))
}

/// The words of a page as a checkpoint stores them.
#[derive(Debug)]
pub(crate) struct PageCopy {
    /// The index of the first word in its page. Empty slots at both ends are omitted.
    pub(crate) first: u16,
    pub(crate) words: Vec<u64>,
    /// The number of committed slots among them.
    pub(crate) committed: u64,
    /// Whether a slot among them is accepted and not committed.
    pub(crate) open: bool,
}

impl PageCopy {
    /// Copies words, from the first of a page on. Omits values that only memory has.
    fn new(words: impl Iterator<Item = Word>) -> Self {
        let (mut committed, mut open) = (0, false);
        let stored = words.map(|word| if word.seq() > 0 { word } else { Word::EMPTY });
        let mut words: Vec<u64> = stored
            .inspect(|word| {
                committed += u64::from(word.state() == State::Committed);
                open |= word.state() == State::Accepted;
            })
            .map(Word::bits)
            .collect();
        words.truncate(words.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1));
        let first = words.iter().position(|word| *word != 0).unwrap_or(0);
        Self { first: first as u16, words: words.split_off(first), committed, open }
    }

    /// A page as an earlier checkpoint stored it; `None` if it is invalid.
    pub(crate) fn stored(first: u16, words: impl Iterator<Item = u64>) -> Option<Self> {
        let empty = std::iter::repeat_n(Some(Word::EMPTY), usize::from(first));
        let words: Option<Vec<Word>> = empty.chain(words.map(Word::from_bits)).collect();
        Some(Self::new(words?.into_iter()))
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
        let copy = page.copy();
        assert_eq!((copy.first, copy.words.len()), (7, 3), "what only memory has is left out");
        assert_eq!((copy.committed, copy.open), (1, true));
        let stored = PageCopy::stored(copy.first, copy.words.iter().copied()).unwrap();
        assert_eq!((stored.first, &stored.words), (7, &copy.words));
        assert_eq!((stored.committed, stored.open), (1, true));
        assert!(PageCopy::stored(0, [3].into_iter()).is_none());
        let again = Page::from_words(3, 7, copy.words.into_iter()).unwrap();
        assert_eq!(again.committed(), 1);
        assert_eq!(again.slot(3 * 4096 + 7).word(), Word::committed(9));
        assert_eq!(again.slot(3 * 4096 + 9).word(), Word::accepted(11));
        assert!(Page::from_words(3, 0, [3].into_iter()).is_none());
        let sized = Word::accepted(7).sized(1000);
        assert_eq!((sized.seq(), sized.state(), sized.size()), (7, State::Accepted, 1056));
        let moved = sized.moved(9).commit(11);
        assert_eq!((moved.seq(), moved.state(), moved.size()), (11, State::Committed, 1056));
        assert_eq!(page.used_from(3 * 4096 + 4090).count(), 0, "these were never used");
        assert_eq!(page.used_from(3 * 4096 + 60).count(), 4, "the rest of the first group");
        let all: Vec<u64> = page.from(3 * 4096 + 4090).map(|(slot, _)| slot).collect();
        assert_eq!(all, (3 * 4096 + 4090..4 * 4096).collect::<Vec<_>>());
    }
}
