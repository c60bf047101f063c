//! Versions that were replaced, for readers of an earlier point in time.
//!
//! A replaced version is kept while a snapshot may read it, or its successor is not durable. The
//! versions of one shard are in one list, in the order in which they were replaced, so keeping one
//! costs a push, and dropping the old ones a few pops.

use std::collections::VecDeque;

use crate::index::entry::{EntryId, Version};

/// A version that another one replaced.
#[derive(Debug, Clone, Copy)]
struct ReplacedVersion {
    id: EntryId,
    version: Version,
    /// The sequence number of the version that replaced it.
    by: u64,
}

/// The replaced versions of the entries of one shard.
#[derive(Debug, Default)]
pub(crate) struct History {
    replaced: VecDeque<ReplacedVersion>,
}

/// The bytes of memory that one kept version takes.
pub(crate) const VERSION_BYTES: u64 = size_of::<ReplacedVersion>() as u64;

impl History {
    /// Keeps a version that the record `by` replaced. Drops those that nothing reads: every reader
    /// reads at or after `horizon`. Returns how many more are kept than before.
    pub(crate) fn keep(&mut self, id: EntryId, version: Version, by: u64, horizon: u64) -> i64 {
        debug_assert!(version.seq < by, "a version is replaced by a newer one");
        let before = self.replaced.len();
        self.drop_up_to(horizon);
        if by > horizon {
            // Concurrent calls for different keys may come out of order by a little.
            self.replaced.push_back(ReplacedVersion { id, version, by });
        }
        self.replaced.len() as i64 - before as i64
    }

    fn drop_up_to(&mut self, horizon: u64) {
        while self.replaced.front().is_some_and(|oldest| oldest.by <= horizon) {
            self.replaced.pop_front();
        }
        if self.replaced.len() < self.replaced.capacity() / 4 {
            self.replaced.shrink_to(self.replaced.len() * 2);
        }
    }

    /// Drops the versions that no reader at or after `horizon` reads. Returns how many.
    pub(crate) fn trim(&mut self, horizon: u64) -> i64 {
        let before = self.replaced.len();
        self.drop_up_to(horizon);
        (before - self.replaced.len()) as i64
    }

    /// The version of an entry that replaced this one, if that was replaced, too; and the number
    /// of the record that replaced this one.
    pub(crate) fn successor(&self, id: EntryId, seq: u64) -> Option<(u64, Option<Version>)> {
        let mut versions = self.replaced.iter().filter(|replaced| replaced.id == id);
        let by = versions.find(|replaced| replaced.version.seq == seq)?.by;
        let next = versions.find(|replaced| replaced.version.seq == by);
        Some((by, next.map(|next| next.version)))
    }

    /// The version of an entry at a point in time, if it has been replaced since; `None` when the
    /// key had none.
    ///
    /// An entry may have been freed and used for another key since. Versions of that key were
    /// replaced before the point in time, because no entry is freed while a reader may read it.
    pub(crate) fn at(&self, id: EntryId, seq: u64) -> Option<Version> {
        let mut versions = self.replaced.iter().rev().filter(|replaced| replaced.id == id);
        versions
            .find(|replaced| replaced.version.seq <= seq && replaced.by > seq)
            .map(|replaced| replaced.version)
    }
}
