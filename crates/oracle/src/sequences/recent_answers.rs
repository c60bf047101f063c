//! The answers to requests, by the keys of these.

use std::collections::BTreeMap;

use crate::timestamp::Timestamp;

/// The most answers that are kept.
const ANSWERS_MAX: usize = 131_072;

/// The answer to a request for numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SequenceAnswer {
    /// The incarnation of the sequence.
    pub(crate) id: u64,
    /// The first number.
    pub(crate) first: u64,
    /// The number of consecutive numbers.
    pub(crate) count: u32,
}

/// The answers with the highest keys of all that were given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RecentAnswers {
    by_key: BTreeMap<Timestamp, SequenceAnswer>,
    /// The highest key whose answer was evicted. All keys that are kept are above it.
    evicted: Option<Timestamp>,
    limit: usize,
}

impl Default for RecentAnswers {
    fn default() -> Self {
        Self::with_limit(ANSWERS_MAX)
    }
}

impl RecentAnswers {
    /// Creates answers of which at most `limit`, 1 or more, are kept.
    pub(crate) fn with_limit(limit: usize) -> Self {
        Self { by_key: BTreeMap::new(), evicted: None, limit: limit.max(1) }
    }

    /// Creates answers that were kept before, with keys that rise from above the evicted one.
    /// `None` if they are not, or too many.
    pub(crate) fn restore(
        by_key: BTreeMap<Timestamp, SequenceAnswer>,
        evicted: Option<Timestamp>,
        limit: usize,
    ) -> Option<Self> {
        let oldest = by_key.keys().next().copied();
        let rises = evicted.is_none_or(|evicted| oldest.is_some_and(|oldest| oldest > evicted));
        (rises && by_key.len() <= limit).then_some(Self { by_key, evicted, limit })
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    pub(crate) fn evicted(&self) -> Option<Timestamp> {
        self.evicted
    }

    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// The answers, in the order of their keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Timestamp, &SequenceAnswer)> {
        self.by_key.iter()
    }

    pub(crate) fn get(&self, key: Timestamp) -> Option<SequenceAnswer> {
        self.by_key.get(&key).copied()
    }

    /// Returns whether no answer is kept for this key, whatever happened: it may have been evicted,
    /// or would be at once.
    pub(crate) fn is_too_old(&self, key: Timestamp) -> bool {
        let is_full = self.by_key.len() >= self.limit;
        let is_lowest = || self.by_key.keys().next().is_some_and(|lowest| key < *lowest);
        self.evicted.is_some_and(|evicted| key <= evicted) || (is_full && is_lowest())
    }

    /// Keeps the answer to the request with this key, which is new and not too old. Evicts the
    /// lowest one if there are too many.
    pub(crate) fn insert(&mut self, key: Timestamp, answer: SequenceAnswer) {
        debug_assert!(!self.is_too_old(key), "a request whose key is too old is refused");
        let before = self.by_key.insert(key, answer);
        debug_assert_eq!(before, None, "a request is answered once");
        if self.by_key.len() > self.limit
            && let Some((lowest, _)) = self.by_key.pop_first()
        {
            self.evicted = Some(lowest);
        }
    }
}
