//! The records of a consensus log.
//!
//! Each is the payload of one record of the underlying log, which numbers, checksums and chains it.
//! The first byte is the kind. All integers are little-endian and unaligned. A decoder accepts
//! exactly these bytes and no others: see `docs/src/consensus.md`.

use crate::base::ballot::Ballot;
use crate::base::slot::SLOTS_PER_PAGE;

/// The most bytes of the state that an application stores in the log: 1 KiB.
pub const APP_STATE_LIMIT: usize = 1024;

/// The offset of the value in [`Record::Accept`] and [`Record::Chosen`].
pub(crate) const VALUE_AT: usize = KIND_BYTES + WORD_BYTES + BALLOT_BYTES;

const KIND_BYTES: usize = 1;
const WORD_BYTES: usize = 8;
const BALLOT_BYTES: usize = 2 * WORD_BYTES;
/// The bytes of a state before that of the application, without the kind.
const STATE_FIXED_BYTES: usize = 1 + BALLOT_BYTES + 2 * WORD_BYTES;
/// The bytes of a page before its words, without the kind.
const PAGE_FIXED_BYTES: usize = WORD_BYTES + 2;
/// The bytes of a root before the state of the application, without the kind.
const ROOT_FIXED_BYTES: usize = 6 * WORD_BYTES + BALLOT_BYTES + 1 + 2;
/// The bytes of a page's location in a root.
const PAGE_AT_BYTES: usize = 2 * WORD_BYTES + 2;
/// The bytes of a slot in a commit marker.
const PAIR_BYTES: usize = WORD_BYTES + BALLOT_BYTES;

// The layout is that of format version 2: see `docs/src/consensus.md`.
const _: () = assert!(VALUE_AT == 25 && PAIR_BYTES == 24 && STATE_FIXED_BYTES == 33);
const _: () = assert!(PAGE_FIXED_BYTES == 10 && ROOT_FIXED_BYTES == 67 && PAGE_AT_BYTES == 18);
// The lengths that two bytes have to hold.
const _: () = assert!(APP_STATE_LIMIT <= u16::MAX as usize);
const _: () = assert!(SLOTS_PER_PAGE <= u16::MAX as usize);

const KIND_PROMISE: u8 = 1;
const KIND_ACCEPT: u8 = 2;
const KIND_COMMIT: u8 = 3;
const KIND_CHOSEN: u8 = 4;
const KIND_THROUGH: u8 = 5;
/// Kinds 6 to 10 were states, cuts, pages and roots with less in them.
const KIND_PAGE: u8 = 11;
const KIND_CUT: u8 = 12;
const KIND_STATE: u8 = 13;
const KIND_ROOT: u8 = 14;

/// A flag of a state and a root: there is a promise.
const FLAG_PROMISED: u8 = 1;

/// A decoded record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    /// Nothing below this ballot is accepted from here on.
    Promise { ballot: Ballot },
    /// The value is accepted, and its ballot promised.
    Accept { slot: u64, ballot: Ballot, value: &'a [u8] },
    /// The entries accepted in these slots, under these ballots, are committed.
    Commit { slots: Pairs<'a> },
    /// The value is committed, whatever was accepted.
    Chosen { slot: u64, ballot: Ballot, value: &'a [u8] },
    /// Every entry accepted from `first` through `last` is committed.
    Through { first: u64, last: u64 },
    /// The promise, the first kept slot, the first slot not known to be decided, and the state of
    /// the application.
    State { promise: Option<Ballot>, start: u64, next: u64, app_state: &'a [u8] },
    /// Entries accepted and not committed from this slot on are dropped.
    Cut { from: u64 },
    /// The words of some slots, which name their records: part of a checkpoint.
    Page { number: u64, first: u16, words: Words<'a> },
    /// A checkpoint: it includes everything before `replay`.
    Root { root: Root, app_state: &'a [u8], pages: Pages<'a> },
}

/// The fixed part of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Root {
    pub(crate) replay: u64,
    pub(crate) promise: Option<Ballot>,
    pub(crate) start: u64,
    pub(crate) next: u64,
    pub(crate) count: u64,
    pub(crate) lowest: u64,
    pub(crate) highest: u64,
}

/// The location of a page of the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageAt {
    pub(crate) number: u64,
    pub(crate) seq: u64,
    /// Some of its slots are accepted and not committed.
    pub(crate) open: bool,
    /// The number of its committed slots, so that a page can be dropped without being read.
    pub(crate) committed: u64,
}

macro_rules! list {
    ($(#[$doc:meta])* $name:ident, $item:ty, $size:expr, $decode:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) struct $name<'a>(&'a [u8]);

        impl<'a> $name<'a> {
            fn new(bytes: &'a [u8]) -> Option<Self> {
                bytes.len().is_multiple_of($size).then_some(Self(bytes))
            }

            pub(crate) fn iter(self) -> impl Iterator<Item = $item> + 'a {
                self.0.chunks_exact($size).map($decode)
            }
        }
    };
}

list!(
    /// Slots and ballots.
    Pairs, (u64, Ballot), PAIR_BYTES, |bytes| (word(bytes, 0), ballot(bytes, 8))
);
list!(
    /// Words of slots.
    Words, u64, WORD_BYTES, |bytes| word(bytes, 0)
);
list!(
    /// A table of pages.
    Pages, PageAt, PAGE_AT_BYTES, |bytes| {
        let seq = word(bytes, 8);
        let committed = u64::from(u16::from_le_bytes([bytes[16], bytes[17]]));
        PageAt { number: word(bytes, 0), seq: seq >> 1, open: seq & 1 == 1, committed }
    }
);

/// The eight bytes at an offset, which the caller has checked to be there.
fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; WORD_BYTES];
    word.copy_from_slice(&bytes[at..at + WORD_BYTES]);
    u64::from_le_bytes(word)
}

fn ballot(bytes: &[u8], at: usize) -> Ballot {
    Ballot { number: word(bytes, at), node: word(bytes, at + 8) }
}

impl<'a> Record<'a> {
    /// The record as of which this one, with the number `seq`, has the application's state. A root
    /// has that of its replay point, and later states may precede it.
    pub(crate) fn app_state_at(&self, seq: u64) -> u64 {
        match self {
            Self::Root { root, .. } => root.replay.saturating_sub(1),
            _ => seq,
        }
    }

    /// Decodes a payload; the error says what is wrong with it.
    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Self, &'static str> {
        let (&kind, rest) = bytes.split_first().ok_or("it is empty")?;
        let exactly = |len: usize| {
            if rest.len() == len { Ok(()) } else { Err("its length does not fit its kind") }
        };
        let at_least = |len: usize| {
            if rest.len() >= len { Ok(()) } else { Err("it is cut") }
        };
        Ok(match kind {
            KIND_PROMISE => {
                exactly(BALLOT_BYTES)?;
                Self::Promise { ballot: ballot(rest, 0) }
            }
            KIND_ACCEPT | KIND_CHOSEN => {
                at_least(VALUE_AT - 1)?;
                let (slot, ballot, value) = (word(rest, 0), ballot(rest, 8), &bytes[VALUE_AT..]);
                if kind == KIND_ACCEPT {
                    Self::Accept { slot, ballot, value }
                } else {
                    Self::Chosen { slot, ballot, value }
                }
            }
            KIND_COMMIT => Self::Commit { slots: Pairs::new(rest).ok_or("a slot is cut")? },
            KIND_THROUGH => {
                exactly(16)?;
                Self::Through { first: word(rest, 0), last: word(rest, 8) }
            }
            KIND_STATE => {
                at_least(STATE_FIXED_BYTES)?;
                let (fixed, app_state) = rest.split_at(STATE_FIXED_BYTES);
                within_limit(app_state)?;
                let promise = promise_of(fixed[0], ballot(fixed, 1))?;
                let (start, next) = (word(fixed, 17), word(fixed, 25));
                decided_from(start, next)?;
                Self::State { promise, start, next, app_state }
            }
            KIND_CUT => {
                exactly(8)?;
                Self::Cut { from: word(rest, 0) }
            }
            KIND_PAGE => {
                at_least(PAGE_FIXED_BYTES)?;
                let first = u16::from_le_bytes([rest[8], rest[9]]);
                let words = Words::new(&rest[PAGE_FIXED_BYTES..]).ok_or("a slot is cut")?;
                if usize::from(first) + words.0.len() / WORD_BYTES > SLOTS_PER_PAGE {
                    return Err("the page is too long");
                }
                Self::Page { number: word(rest, 0), first, words }
            }
            KIND_ROOT => {
                at_least(ROOT_FIXED_BYTES)?;
                Self::decode_root(rest)?
            }
            _ => return Err("no record begins with this byte"),
        })
    }

    /// `rest` is what follows the kind, and has at least the fixed fields.
    fn decode_root(rest: &'a [u8]) -> Result<Self, &'static str> {
        let (fixed, rest) = rest.split_at(ROOT_FIXED_BYTES);
        let root = Root {
            replay: word(fixed, 0),
            promise: promise_of(fixed[64], ballot(fixed, 8))?,
            start: word(fixed, 24),
            next: word(fixed, 32),
            count: word(fixed, 40),
            lowest: word(fixed, 48),
            highest: word(fixed, 56),
        };
        decided_from(root.start, root.next)?;
        let len = usize::from(u16::from_le_bytes([fixed[65], fixed[66]]));
        let (app_state, pages) =
            rest.split_at_checked(len).ok_or("the application's state is cut")?;
        within_limit(app_state)?;
        let pages = Pages::new(pages).ok_or("a page is cut")?;
        if !pages.iter().is_sorted_by(|one, next| one.number < next.number) {
            return Err("its pages are not in order");
        }
        Ok(Self::Root { root, app_state, pages })
    }
}

fn within_limit(app_state: &[u8]) -> Result<(), &'static str> {
    match app_state.len() {
        ..=APP_STATE_LIMIT => Ok(()),
        _ => Err("the application's state is too long"),
    }
}

/// Checks that every slot below the first kept one is decided.
fn decided_from(start: u64, next: u64) -> Result<(), &'static str> {
    if start <= next { Ok(()) } else { Err("slots below the floor are not decided") }
}

fn promise_of(flags: u8, ballot: Ballot) -> Result<Option<Ballot>, &'static str> {
    match flags {
        FLAG_PROMISED => Ok(Some(ballot)),
        0 if ballot == Ballot::ZERO => Ok(None),
        0 => Err("a promise without its flag"),
        _ => Err("an unknown flag"),
    }
}

fn put_ballot(out: &mut Vec<u8>, ballot: Ballot) {
    out.extend_from_slice(&ballot.number.to_le_bytes());
    out.extend_from_slice(&ballot.node.to_le_bytes());
}

fn put_words(out: &mut Vec<u8>, words: &[u64]) {
    words.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
}

pub(crate) fn promise(out: &mut Vec<u8>, ballot: Ballot) {
    out.push(KIND_PROMISE);
    put_ballot(out, ballot);
}

pub(crate) fn accept(out: &mut Vec<u8>, slot: u64, ballot: Ballot, value: &[u8]) {
    with_value(out, KIND_ACCEPT, slot, ballot, value);
}

pub(crate) fn chosen(out: &mut Vec<u8>, slot: u64, ballot: Ballot, value: &[u8]) {
    with_value(out, KIND_CHOSEN, slot, ballot, value);
}

fn with_value(out: &mut Vec<u8>, kind: u8, slot: u64, ballot: Ballot, value: &[u8]) {
    let mut head = [0; VALUE_AT];
    head[0] = kind;
    head[1..9].copy_from_slice(&slot.to_le_bytes());
    head[9..17].copy_from_slice(&ballot.number.to_le_bytes());
    head[17..25].copy_from_slice(&ballot.node.to_le_bytes());
    out.reserve(VALUE_AT + value.len());
    out.extend_from_slice(&head);
    out.extend_from_slice(value);
}

pub(crate) fn commit(out: &mut Vec<u8>, slots: &[(u64, Ballot)]) {
    debug_assert!(!slots.is_empty(), "a marker commits no slot");
    out.push(KIND_COMMIT);
    for (slot, ballot) in slots {
        out.extend_from_slice(&slot.to_le_bytes());
        put_ballot(out, *ballot);
    }
}

pub(crate) fn through(out: &mut Vec<u8>, first: u64, last: u64) {
    out.push(KIND_THROUGH);
    put_words(out, &[first, last]);
}

pub(crate) fn state(
    out: &mut Vec<u8>,
    promise: Option<Ballot>,
    start: u64,
    next: u64,
    app_state: &[u8],
) {
    debug_assert!(app_state.len() <= APP_STATE_LIMIT, "the application's state is too long");
    debug_assert!(start <= next, "slots below the floor are not decided");
    out.push(KIND_STATE);
    out.push(flags(promise));
    put_ballot(out, promise.unwrap_or(Ballot::ZERO));
    put_words(out, &[start, next]);
    out.extend_from_slice(app_state);
}

fn flags(promise: Option<Ballot>) -> u8 {
    if promise.is_some() { FLAG_PROMISED } else { 0 }
}

pub(crate) fn cut(out: &mut Vec<u8>, from: u64) {
    out.push(KIND_CUT);
    put_words(out, &[from]);
}

pub(crate) fn page(out: &mut Vec<u8>, number: u64, first: u16, words: &[u64]) {
    debug_assert!(usize::from(first) + words.len() <= SLOTS_PER_PAGE, "the page is too long");
    out.push(KIND_PAGE);
    put_words(out, &[number]);
    out.extend_from_slice(&first.to_le_bytes());
    put_words(out, words);
}

/// The state of the application takes at most [`APP_STATE_LIMIT`] bytes.
pub(crate) fn root(out: &mut Vec<u8>, root: &Root, app_state: &[u8], pages: &[PageAt]) {
    debug_assert!(app_state.len() <= APP_STATE_LIMIT, "the application's state is too long");
    debug_assert!(root.start <= root.next, "slots below the floor are not decided");
    out.push(KIND_ROOT);
    put_words(out, &[root.replay]);
    put_ballot(out, root.promise.unwrap_or(Ballot::ZERO));
    put_words(out, &[root.start, root.next, root.count, root.lowest, root.highest]);
    out.push(flags(root.promise));
    out.extend_from_slice(&(app_state.len() as u16).to_le_bytes());
    out.extend_from_slice(app_state);
    for page in pages {
        debug_assert!(page.committed <= SLOTS_PER_PAGE as u64, "a page has too many commits");
        debug_assert!(page.seq > 0 && page.seq < 1 << 63, "a page has no record");
        put_words(out, &[page.number, page.seq << 1 | u64::from(page.open)]);
        out.extend_from_slice(&(page.committed as u16).to_le_bytes());
    }
}

/// The bytes of a root that names this many pages, and a little more.
pub(crate) const fn root_bytes(pages: usize) -> u64 {
    (128 + APP_STATE_LIMIT + PAGE_AT_BYTES * pages) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const B: Ballot = Ballot { number: 7, node: 3 };

    fn whole(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        encode(&mut out);
        out
    }

    /// One encoded record of every kind.
    fn samples() -> Vec<Vec<u8>> {
        let pages = [PageAt { number: 2, seq: 99, open: true, committed: 4096 }];
        vec![
            whole(|out| promise(out, B)),
            whole(|out| accept(out, 5, B, b"value")),
            whole(|out| commit(out, &[(5, B), (6, B)])),
            whole(|out| chosen(out, 5, B, b"")),
            whole(|out| through(out, 1, 2)),
            whole(|out| state(out, Some(B), 1, 2, b"app")),
            whole(|out| cut(out, 8)),
            whole(|out| page(out, 1, 3, &[0, 9])),
            whole(|out| {
                let fixed = Root { replay: 4, promise: Some(B), ..Root::default() };
                root(out, &fixed, b"app", &pages);
            }),
        ]
    }

    #[test]
    fn records_come_back_as_they_were_written() {
        let samples = samples();
        assert_eq!(Record::decode(&samples[0]), Ok(Record::Promise { ballot: B }));
        let accept = Record::Accept { slot: 5, ballot: B, value: b"value" };
        assert_eq!(Record::decode(&samples[1]), Ok(accept));
        let Ok(Record::Commit { slots }) = Record::decode(&samples[2]) else { panic!() };
        assert_eq!(slots.iter().collect::<Vec<_>>(), [(5, B), (6, B)]);
        let chosen = Record::Chosen { slot: 5, ballot: B, value: b"" };
        assert_eq!(Record::decode(&samples[3]), Ok(chosen));
        assert_eq!(Record::decode(&samples[4]), Ok(Record::Through { first: 1, last: 2 }));
        let state = Record::State { promise: Some(B), start: 1, next: 2, app_state: b"app" };
        assert_eq!(Record::decode(&samples[5]), Ok(state));
        assert_eq!(Record::decode(&samples[6]), Ok(Record::Cut { from: 8 }));
        let Ok(Record::Page { number: 1, first: 3, words }) = Record::decode(&samples[7]) else {
            panic!()
        };
        assert_eq!(words.iter().collect::<Vec<_>>(), [0, 9]);
        let Ok(Record::Root { root, app_state, pages }) = Record::decode(&samples[8]) else {
            panic!()
        };
        assert_eq!((root.replay, root.promise, app_state), (4, Some(B), &b"app"[..]));
        let page = PageAt { number: 2, seq: 99, open: true, committed: 4096 };
        assert_eq!(pages.iter().collect::<Vec<_>>(), [page]);
    }

    /// The book documents the layout; a change here is a change of the format.
    #[test]
    fn the_layout_is_that_of_version_2() {
        let samples = samples();
        assert_eq!(samples[0], [&[1, 7][..], &[0; 7], &[3], &[0; 7]].concat());
        let accept = [&[2, 5][..], &[0; 7], &[7], &[0; 7], &[3], &[0; 7], b"value"].concat();
        assert_eq!(samples[1], accept);
        assert_eq!(samples[6], [12, 8, 0, 0, 0, 0, 0, 0, 0]);
        let kinds: Vec<_> = samples.iter().map(|bytes| bytes[0]).collect();
        assert_eq!(kinds, [1, 2, 3, 4, 5, 13, 12, 11, 14]);
        let entry = [&[2, 0, 0, 0, 0, 0, 0, 0, 199][..], &[0; 7], &[0, 16]].concat();
        assert_eq!(samples[8][65..], [&[1, 3, 0][..], b"app", &entry].concat());
        let state = [&[13, 1, 7][..], &[0; 7], &[3], &[0; 7], &[1], &[0; 7], &[2], &[0; 7], b"app"];
        assert_eq!(samples[5], state.concat());
    }

    #[test]
    fn a_promise_of_ballot_zero_is_not_the_lack_of_one() {
        for promise in [None, Some(Ballot::ZERO), Some(B)] {
            let state = whole(|out| state(out, promise, 1, 2, b""));
            let Ok(Record::State { promise: found, .. }) = Record::decode(&state) else { panic!() };
            let root = whole(|out| root(out, &Root { promise, ..Root::default() }, b"", &[]));
            let Ok(Record::Root { root, .. }) = Record::decode(&root) else { panic!() };
            assert_eq!((found, root.promise), (promise, promise));
        }
        let mut unflagged = whole(|out| state(out, Some(B), 1, 2, b""));
        for flags in [0, 2, 255] {
            unflagged[1] = flags;
            assert!(Record::decode(&unflagged).is_err());
        }
    }

    #[test]
    fn what_is_cut_or_too_long_is_refused() {
        for bytes in samples() {
            let fixed = ![2, 3, 4, 11, 13, 14].contains(&bytes[0]);
            for len in 0..bytes.len() {
                // Values and lists may end at any valid boundary; a decoder must not panic.
                let decoded = Record::decode(&bytes[..len]);
                assert!(decoded.is_err() || !fixed, "{bytes:?} cut to {len}");
            }
            let longer = [&bytes[..], &[0]].concat();
            assert!(Record::decode(&longer).is_err() || [2, 4, 13].contains(&bytes[0]));
        }
        assert!(Record::decode(&[0]).is_err() && Record::decode(&[15, 0]).is_err());
        assert!(Record::decode(&[]).is_err());
        let mut state = whole(|out| state(out, None, 1, 2, &[7; APP_STATE_LIMIT]));
        assert!(Record::decode(&state).is_ok());
        state.push(7);
        assert!(Record::decode(&state).is_err());
        // The length of its state is in the two bytes before that.
        let mut root = whole(|out| root(out, &Root::default(), &[7; APP_STATE_LIMIT], &[]));
        assert!(Record::decode(&root).is_ok());
        root.push(7);
        root[66..68].copy_from_slice(&(APP_STATE_LIMIT as u16 + 1).to_le_bytes());
        assert!(Record::decode(&root).is_err());
        root.pop();
        assert!(Record::decode(&root).is_err());
        for older in 6..=10 {
            assert!((1..99).all(|len| Record::decode(&vec![older; len]).is_err()));
        }
    }

    #[test]
    fn records_that_contradict_themselves_are_refused() {
        let page = |number| PageAt { number, seq: 9, open: false, committed: 1 };
        let with = |pages: &[PageAt]| whole(|out| root(out, &Root::default(), b"", pages));
        assert!(Record::decode(&with(&[page(2), page(3)])).is_ok());
        for pages in [[page(3), page(2)], [page(2), page(2)]] {
            assert!(Record::decode(&with(&pages)).is_err());
        }
        let mut state = whole(|out| state(out, None, 7, 7, b""));
        assert!(Record::decode(&state).is_ok());
        state[26] = 6;
        assert!(Record::decode(&state).is_err(), "the floor is above the frontier");
    }

    proptest::proptest! {
        /// On any bytes the decoder terminates, and reads nothing past their end.
        #[test]
        fn any_bytes_are_decoded_or_refused(
            kind in 0u8..16,
            rest in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200),
        ) {
            let bytes = [&[kind][..], &rest].concat();
            match Record::decode(&bytes) {
                Ok(Record::Accept { value, .. } | Record::Chosen { value, .. }) => {
                    assert_eq!(value.len() + VALUE_AT, bytes.len());
                }
                Ok(Record::Commit { slots }) => assert_eq!(slots.iter().count() * 24, rest.len()),
                Ok(Record::Page { first, words, .. }) => {
                    assert!(usize::from(first) + words.iter().count() <= SLOTS_PER_PAGE);
                }
                Ok(Record::Root { app_state, pages, .. }) => {
                    let lists = pages.iter().count() * 18 + app_state.len();
                    assert_eq!(lists + 67, rest.len());
                }
                _ => {}
            }
        }
    }
}
