//! The page table: finds the page of a slot by arrays, without hashing.
//!
//! Readers follow two pointers and take no lock. A table never changes its length. When it must
//! grow or lose its front, a new table replaces it; both share the pages. Changes of the structure
//! hold one lock.

use std::sync::Arc;

use crate::base::slot::number_of;
use crate::base::sync::{AtomicU64, FairMutex, Guard, Ordering};
use crate::index::open_pages::OpenPages;
use crate::index::page::Page;
use crate::memory::cell::{Borrowed, Cell};
use crate::record::PageAt;

/// The most pages in the table: 2^32 slots.
const PAGES: u64 = 1 << 20;

/// The least number of entries of a table. The model checker uses small tables.
const LEAST: usize = if cfg!(loom) { 1 } else { 16 };

/// The entry of one page.
#[derive(Debug, Default)]
struct Place {
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
    places: Box<[Place]>,
}

impl Table {
    fn new(base: u64, len: usize) -> Self {
        Self { base, places: (0..len).map(|_| Place::default()).collect() }
    }

    #[inline]
    fn place(&self, number: u64) -> Option<&Place> {
        self.places.get(usize::try_from(number.checked_sub(self.base)?).ok()?)
    }

    fn end(&self) -> u64 {
        self.base + self.places.len() as u64
    }
}

/// The result of finding a page.
pub(crate) enum Found<'g> {
    Page(Borrowed<'g, Arc<Page>>),
    /// The page is in this record, and not in memory.
    Stored(u64),
    Nothing,
}

#[derive(Debug)]
pub(crate) struct Index {
    table: Cell<Arc<Table>>,
    structure: FairMutex<()>,
    pub(crate) open: OpenPages,
}

impl Index {
    pub(crate) fn new(start: u64) -> Self {
        Self {
            table: Cell::new(Arc::new(Table::new(number_of(start), LEAST))),
            structure: FairMutex::new(()),
            open: OpenPages::default(),
        }
    }

    #[inline]
    fn table<'g>(&self, guard: &'g Guard) -> Borrowed<'g, Arc<Table>> {
        self.table.load(guard).unwrap_or_else(|| unreachable!("the table is never taken out"))
    }

    /// The first slot that is out of range if `start` is the first kept slot.
    pub(crate) fn limit(start: u64) -> u64 {
        let pages = number_of(start).saturating_add(PAGES);
        pages.saturating_mul(crate::base::slot::SLOTS as u64)
    }

    #[inline]
    pub(crate) fn find<'g>(&self, number: u64, guard: &'g Guard) -> Found<'g> {
        let table = self.table(guard);
        let Some(place) = table.place(number) else { return Found::Nothing };
        match place.page.load(guard) {
            Some(page) => Found::Page(page),
            None => match place.stored.load(Ordering::Acquire) {
                0 => Found::Nothing,
                stored => Found::Stored(stored >> 1),
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
        let place = table.place(number)?;
        if place.page.load(guard).is_none() {
            place.page.swap(Some(Arc::new(Page::new(number))), guard);
        }
        place.page.load(guard)
    }

    /// Installs a page from a checkpoint, unless another thread did.
    pub(crate) fn install(&self, page: Page, guard: &Guard) {
        let _structure = self.structure.lock();
        let table = self.table(guard);
        let Some(place) = table.place(page.number) else { return };
        if place.page.load(guard).is_none() {
            place.page.swap(Some(Arc::new(page)), guard);
        }
    }

    /// Records that a checkpoint stored the page. Returns `false` if the page is out of range.
    pub(crate) fn store(&self, page: &PageAt, guard: &Guard) -> bool {
        let _structure = self.structure.lock();
        if self.grow(page.number, guard).is_none() {
            return false;
        }
        if let Some(place) = self.table(guard).place(page.number) {
            place.committed.store(page.committed, Ordering::Release);
            place.stored.store(page.seq << 1 | u64::from(page.open), Ordering::Release);
        }
        true
    }

    /// The record with the last checkpoint's copy of a page; 0 if there is none.
    pub(crate) fn stored_at(&self, number: u64, guard: &Guard) -> u64 {
        let table = self.table(guard);
        table.place(number).map_or(0, |place| place.stored.load(Ordering::Acquire) >> 1)
    }

    /// The number of committed slots in the last checkpoint's copy of a page.
    pub(crate) fn stored_commits(&self, number: u64, guard: &Guard) -> u64 {
        let table = self.table(guard);
        table.place(number).map_or(0, |place| place.committed.load(Ordering::Acquire))
    }

    /// Subtracts `gone` committed slots that were dropped from the front of a page that cannot be
    /// read.
    pub(crate) fn lose_commits(&self, number: u64, gone: u64, guard: &Guard) {
        let _structure = self.structure.lock();
        if let Some(place) = self.table(guard).place(number) {
            let left = place.committed.load(Ordering::Acquire).saturating_sub(gone);
            place.committed.store(left, Ordering::Release);
        }
    }

    /// Extends the table to this page; `None` if it is out of range.
    fn grow(&self, number: u64, guard: &Guard) -> Option<()> {
        let table = self.table(guard);
        let needed = number.checked_sub(table.base)?.checked_add(1)?;
        if needed > PAGES {
            return None;
        }
        if needed > table.places.len() as u64 {
            self.replace(table.base, needed.next_power_of_two() as usize, guard);
        }
        Some(())
    }

    /// Replaces the table by one of another range, with the same pages. The caller holds
    /// `structure`.
    fn replace(&self, base: u64, len: usize, guard: &Guard) {
        let old = self.table(guard);
        let new = Table::new(base, len);
        for (place, number) in new.places.iter().zip(base..) {
            let Some(before) = old.place(number) else { continue };
            place.page.swap(before.page.load(guard).map(|page| page.counted()), guard);
            place.stored.store(before.stored.load(Ordering::Acquire), Ordering::Release);
            place.committed.store(before.committed.load(Ordering::Acquire), Ordering::Release);
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
            for place in table.places.iter().take((number - table.base) as usize) {
                match place.page.load(guard) {
                    Some(page) => dropped.push(page.counted()),
                    None => unread += place.committed.load(Ordering::Acquire),
                }
            }
            let left = table.end().saturating_sub(number).max(LEAST as u64);
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
            .filter(|number| !matches!(self.find(*number, guard), Found::Nothing))
            .collect()
    }

    /// The first page at or after `from`.
    pub(crate) fn next_page(&self, from: u64, guard: &Guard) -> Option<u64> {
        let table = self.table(guard);
        (from.max(table.base)..table.end())
            .find(|number| !matches!(self.find(*number, guard), Found::Nothing))
    }

    /// The stored copies of pages, as checkpoints recorded them.
    pub(crate) fn stored(&self, guard: &Guard) -> Vec<PageAt> {
        let table = self.table(guard);
        let mut pages = Vec::new();
        for (place, number) in table.places.iter().zip(table.base..) {
            let stored = place.stored.load(Ordering::Acquire);
            if stored > 0 {
                let committed = place.committed.load(Ordering::Acquire);
                pages.push(PageAt { number, seq: stored >> 1, open: stored & 1 == 1, committed });
            }
        }
        pages
    }

    /// The pages in memory.
    pub(crate) fn in_memory<'g>(&self, guard: &'g Guard) -> Vec<Borrowed<'g, Arc<Page>>> {
        let table = self.table(guard);
        table.places.iter().filter_map(|place| place.page.load(guard)).collect()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::slot::SLOTS;
    use crate::index::page::Word;

    #[test]
    fn pages_stay_where_they_are_as_the_table_grows_and_shrinks() {
        let guard = crossbeam_epoch::pin();
        let index = Index::new(5 * SLOTS as u64);
        assert!(index.make(4, &guard).is_none(), "below the table");
        index.make(5, &guard).unwrap().slot(5 * 4096 + 1).set_word(Word::committed(3));
        index.make(900, &guard).unwrap();
        assert!(index.make(5 + PAGES, &guard).is_none(), "too far above");
        let Found::Page(page) = index.find(5, &guard) else { panic!() };
        assert_eq!(page.slot(5 * 4096 + 1).word(), Word::committed(3));
        assert_eq!(index.numbers(0, &guard), [5, 900]);
        index.drop_below(6, &guard);
        assert!(matches!(index.find(5, &guard), Found::Nothing));
        assert_eq!(index.next_page(0, &guard), Some(900));
        assert_eq!(page.slot(5 * 4096 + 1).word(), Word::committed(3), "under the guard");
    }
}
