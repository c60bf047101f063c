//! The page table: finds the page of a slot by arrays, without hashing.
//!
//! Readers follow two pointers and take no lock. A table never changes its length. When it must
//! grow or lose its front, a new table replaces it; both share the pages. Changes of the structure
//! hold one lock.

use std::sync::Arc;

use crate::base::slot::page_of;
use crate::base::sync::{AtomicU64, FairMutex, Guard, Ordering};
use crate::index::open_pages::OpenPages;
use crate::index::page::Page;
use crate::memory::cell::{Borrowed, Cell};
use crate::record::PageAt;

/// The most pages in the table: 2^32 slots.
pub(crate) const PAGES_MAX: u64 = 1 << 20;

/// The least number of entries of a table. The model checker uses small tables.
const TABLE_LEN_MIN: usize = if cfg!(loom) { 1 } else { 16 };

const _: () = assert!(TABLE_LEN_MIN as u64 <= PAGES_MAX && PAGES_MAX.is_power_of_two());

/// The entry of one page.
#[derive(Debug, Default)]
struct PageEntry {
    page: Cell<Arc<Page>>,
    /// The record with the last checkpoint's copy of the page, or 0, shifted left by one. The
    /// lowest bit is set if that copy has uncommitted slots.
    stored: AtomicU64,
    /// The number of committed slots in that copy.
    committed: AtomicU64,
}

#[derive(Debug)]
struct Table {
    /// The number of the first page.
    base: u64,
    entries: Box<[PageEntry]>,
}

impl Table {
    fn new(base: u64, len: usize) -> Self {
        Self { base, entries: (0..len).map(|_| PageEntry::default()).collect() }
    }

    #[inline]
    fn entry(&self, number: u64) -> Option<&PageEntry> {
        self.entries.get(usize::try_from(number.checked_sub(self.base)?).ok()?)
    }

    fn end(&self) -> u64 {
        self.base + self.entries.len() as u64
    }
}

/// The result of finding a page.
pub(crate) enum PageLookup<'g> {
    Page(Borrowed<'g, Arc<Page>>),
    /// The page is in this record, and not in memory.
    Stored(u64),
    Absent,
}

/// The index of a log: its pages, and the first slot that it keeps.
#[derive(Debug)]
pub(crate) struct Index {
    /// The first slot that is not truncated, durably or not. Changes only under all slot locks.
    start: AtomicU64,
    table: Cell<Arc<Table>>,
    structure: FairMutex<()>,
    pub(crate) open: OpenPages,
}

impl Index {
    pub(crate) fn new(start: u64) -> Self {
        Self {
            start: AtomicU64::new(start),
            table: Cell::new(Arc::new(Table::new(page_of(start), TABLE_LEN_MIN))),
            structure: FairMutex::new(()),
            open: OpenPages::default(),
        }
    }

    /// The first slot that is not truncated, durably or not.
    #[inline]
    pub(crate) fn start(&self) -> u64 {
        self.start.load(Ordering::Acquire)
    }

    /// Raises the first kept slot. The caller holds all slot locks, and drops the slots below.
    pub(crate) fn raise_start(&self, start: u64) {
        debug_assert!(start >= self.start(), "the floor moved back");
        self.start.store(start, Ordering::Release);
    }

    #[inline]
    fn table<'g>(&self, guard: &'g Guard) -> Borrowed<'g, Arc<Table>> {
        self.table.load(guard).unwrap_or_else(|| unreachable!("the table is never taken out"))
    }

    /// The first slot that is out of range if `start` is the first kept slot.
    pub(crate) fn limit(start: u64) -> u64 {
        let pages = page_of(start).saturating_add(PAGES_MAX);
        pages.saturating_mul(crate::base::slot::SLOTS_PER_PAGE as u64)
    }

    #[inline]
    pub(crate) fn find<'g>(&self, number: u64, guard: &'g Guard) -> PageLookup<'g> {
        let table = self.table(guard);
        let Some(entry) = table.entry(number) else { return PageLookup::Absent };
        match entry.page.load(guard) {
            Some(page) => PageLookup::Page(page),
            None => match entry.stored.load(Ordering::Acquire) {
                0 => PageLookup::Absent,
                stored => PageLookup::Stored(stored >> 1),
            },
        }
    }

    /// Returns the page, creating it if there is none; `None` if it is below the table or out of
    /// range.
    ///
    /// A stored page must be installed first.
    pub(crate) fn make<'g>(
        &self,
        number: u64,
        guard: &'g Guard,
    ) -> Option<Borrowed<'g, Arc<Page>>> {
        let _structure = self.structure.lock();
        self.grow(number, guard)?;
        let table = self.table(guard);
        let entry = table.entry(number);
        debug_assert!(entry.is_some(), "a table that grew lacks the page it grew for");
        let entry = entry?;
        if entry.page.load(guard).is_none() {
            debug_assert_eq!(entry.stored.load(Ordering::Acquire), 0, "a stored page is replaced");
            entry.page.swap(Some(Arc::new(Page::new(number))), guard);
        }
        entry.page.load(guard)
    }

    /// Installs a page from a checkpoint, unless another thread did.
    pub(crate) fn install(&self, page: Page, guard: &Guard) {
        let _structure = self.structure.lock();
        let table = self.table(guard);
        let Some(entry) = table.entry(page.number) else { return };
        if entry.page.load(guard).is_none() {
            entry.page.swap(Some(Arc::new(page)), guard);
        }
    }

    /// Records that a checkpoint stored the page. Returns `false` if the page is out of range.
    pub(crate) fn store(&self, page: &PageAt, guard: &Guard) -> bool {
        let _structure = self.structure.lock();
        if self.grow(page.number, guard).is_none() {
            return false;
        }
        debug_assert!(page.seq > 0, "a page is stored in no record");
        let table = self.table(guard);
        let entry = table.entry(page.number);
        debug_assert!(entry.is_some(), "a table that grew lacks the page it grew for");
        let Some(entry) = entry else { return false };
        entry.committed.store(page.committed, Ordering::Release);
        entry.stored.store(page.seq << 1 | u64::from(page.open), Ordering::Release);
        true
    }

    /// The record with the last checkpoint's copy of a page; 0 if there is none.
    pub(crate) fn stored_at(&self, number: u64, guard: &Guard) -> u64 {
        let table = self.table(guard);
        table.entry(number).map_or(0, |entry| entry.stored.load(Ordering::Acquire) >> 1)
    }

    /// The number of committed slots in the last checkpoint's copy of a page.
    pub(crate) fn stored_commits(&self, number: u64, guard: &Guard) -> u64 {
        let table = self.table(guard);
        table.entry(number).map_or(0, |entry| entry.committed.load(Ordering::Acquire))
    }

    /// Subtracts `gone` committed slots that were dropped from the front of a page that cannot be
    /// read.
    pub(crate) fn lose_commits(&self, number: u64, gone: u64, guard: &Guard) {
        let _structure = self.structure.lock();
        if let Some(entry) = self.table(guard).entry(number) {
            let before = entry.committed.load(Ordering::Acquire);
            debug_assert!(gone <= before, "more commits are dropped than the page has");
            entry.committed.store(before.saturating_sub(gone), Ordering::Release);
        }
    }

    /// Extends the table to this page; `None` if it is out of range.
    fn grow(&self, number: u64, guard: &Guard) -> Option<()> {
        let table = self.table(guard);
        let needed = number.checked_sub(table.base)?.checked_add(1)?;
        if needed > PAGES_MAX {
            return None;
        }
        if needed > table.entries.len() as u64 {
            self.replace(table.base, needed.next_power_of_two() as usize, guard);
        }
        Some(())
    }

    /// Replaces the table by one of another range, with the same pages. The caller holds
    /// `structure`.
    fn replace(&self, base: u64, len: usize, guard: &Guard) {
        let old = self.table(guard);
        debug_assert!(base >= old.base, "pages are added below the table");
        let new = Table::new(base, len);
        for (entry, number) in new.entries.iter().zip(base..) {
            let Some(before) = old.entry(number) else { continue };
            entry.page.swap(before.page.load(guard).map(|page| page.counted()), guard);
            entry.stored.store(before.stored.load(Ordering::Acquire), Ordering::Release);
            entry.committed.store(before.committed.load(Ordering::Acquire), Ordering::Release);
        }
        self.table.swap(Some(Arc::new(new)), guard);
    }

    /// Removes the pages below this one, without reading any. Returns those that were in memory,
    /// and the number of committed slots of the others.
    pub(crate) fn drop_below(&self, number: u64, guard: &Guard) -> (Vec<Arc<Page>>, u64) {
        let _structure = self.structure.lock();
        let table = self.table(guard);
        let (mut dropped, mut unread) = (Vec::new(), 0);
        if number > table.base {
            for entry in table.entries.iter().take((number - table.base) as usize) {
                match entry.page.load(guard) {
                    Some(page) => dropped.push(page.counted()),
                    None => unread += entry.committed.load(Ordering::Acquire),
                }
            }
            let left = table.end().saturating_sub(number).max(TABLE_LEN_MIN as u64);
            self.replace(number, left as usize, guard);
        }
        self.open.forget_below(number);
        (dropped, unread)
    }

    /// The numbers of all pages from `from` on, in order.
    pub(crate) fn numbers(&self, from: u64, guard: &Guard) -> Vec<u64> {
        let table = self.table(guard);
        let first = from.max(table.base);
        (first..table.end())
            .filter(|number| !matches!(self.find(*number, guard), PageLookup::Absent))
            .collect()
    }

    /// The first page at or after `from`.
    pub(crate) fn next_page(&self, from: u64, guard: &Guard) -> Option<u64> {
        let table = self.table(guard);
        (from.max(table.base)..table.end())
            .find(|number| !matches!(self.find(*number, guard), PageLookup::Absent))
    }

    /// The stored copies of pages, as checkpoints recorded them.
    pub(crate) fn stored(&self, guard: &Guard) -> Vec<PageAt> {
        let table = self.table(guard);
        let mut pages = Vec::new();
        for (entry, number) in table.entries.iter().zip(table.base..) {
            let stored = entry.stored.load(Ordering::Acquire);
            if stored > 0 {
                let committed = entry.committed.load(Ordering::Acquire);
                pages.push(PageAt { number, seq: stored >> 1, open: stored & 1 == 1, committed });
            }
        }
        pages
    }

    /// The pages in memory.
    pub(crate) fn in_memory<'g>(&self, guard: &'g Guard) -> Vec<Borrowed<'g, Arc<Page>>> {
        let table = self.table(guard);
        table.entries.iter().filter_map(|entry| entry.page.load(guard)).collect()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::slot::SLOTS_PER_PAGE;
    use crate::index::page::Word;

    #[test]
    fn pages_stay_where_they_are_as_the_table_grows_and_shrinks() {
        let guard = crossbeam_epoch::pin();
        let index = Index::new(5 * SLOTS_PER_PAGE as u64);
        assert!(index.make(4, &guard).is_none(), "below the table");
        index.make(5, &guard).unwrap().slot(5 * 4096 + 1).set_word(Word::committed(3));
        index.make(900, &guard).unwrap();
        assert!(index.make(5 + PAGES_MAX, &guard).is_none(), "too far above");
        let PageLookup::Page(page) = index.find(5, &guard) else { panic!() };
        assert_eq!(page.slot(5 * 4096 + 1).word(), Word::committed(3));
        assert_eq!(index.numbers(0, &guard), [5, 900]);
        index.drop_below(6, &guard);
        assert!(matches!(index.find(5, &guard), PageLookup::Absent));
        assert_eq!(index.next_page(0, &guard), Some(900));
        assert_eq!(page.slot(5 * 4096 + 1).word(), Word::committed(3), "under the guard");
    }
}
