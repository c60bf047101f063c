//! The entries that are accepted and not committed, at a cost that depends on these and not on the
//! log.

use crossbeam_epoch::Guard;

use crate::index::page::{IndexEntry, State};
use crate::index::page_table::PageLookup;
use crate::memory::cell::Borrowed;
use crate::memory::entry::Entry;
use crate::memory::value::SharedValue;
use crate::state::inner::Inner;
use crate::storage_error::StorageError;

impl Inner {
    /// Every entry that is accepted and not committed, in slot order.
    pub(crate) fn scan_uncommitted<'g>(
        &self,
        guard: &'g Guard,
    ) -> Result<Vec<Entry<'g>>, StorageError> {
        self.refuse_if_closed()?;
        let mut all = Vec::new();
        self.each_uncommitted(0, guard, |_, resident| {
            all.push(Entry::borrowed(resident, false));
        });
        debug_assert!(all.is_sorted_by_key(Entry::slot), "entries are not in slot order");
        Ok(all)
    }

    /// The highest slot that is accepted and not committed.
    pub(crate) fn last_uncommitted(&self, guard: &Guard) -> Option<u64> {
        self.index.open.list().into_iter().rev().find_map(|number| {
            let PageLookup::Page(page) = self.index.find(number, guard) else {
                return None;
            };
            let accepted =
                |(_, indexed): &(u64, &IndexEntry)| indexed.word().state() == State::Accepted;
            page.used_from(self.start()).rfind(accepted).map(|(slot, _)| slot)
        })
    }

    /// Visits the entries that are accepted and not committed, in slot order.
    pub(crate) fn each_uncommitted<'g>(
        &self,
        from: u64,
        guard: &'g Guard,
        mut visit: impl FnMut(u64, Borrowed<'g, SharedValue>),
    ) {
        for number in self.index.open.list() {
            let PageLookup::Page(page) = self.index.find(number, guard) else {
                continue;
            };
            if page.open.get() == 0 {
                self.index.open.found_empty(number, &page.open);
                continue;
            }
            // Scan to the end of the page, whatever the count is: entries come and go meanwhile.
            for (slot, indexed) in page.used_from(from) {
                if indexed.word().state() != State::Accepted {
                    continue;
                }
                if let Some(resident) = indexed.resident().load(guard)
                    && resident.marker() == 0
                {
                    visit(slot, resident);
                }
            }
        }
    }
}
