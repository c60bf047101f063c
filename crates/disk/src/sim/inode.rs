//! A simulated file: the content of the medium, and the writes since then.
//!
//! A page of a file can be in three places at once:
//!
//! ```text
//!   stale    content that ordinary reads see and no sync will ever write: a sync of it failed
//!   dirty    every version written since the page was last durable, oldest first
//!   durable  the content of the medium
//! ```
//!
//! Ordinary reads use the first of these that exists, from the top. Direct reads skip `stale`. They
//! see dirty pages, because a kernel writes those out before it reads past the cache.
//!
//! The size has its own versions. A truncation leaves a version of each page after the cut, with
//! the number of that resize. If a crash keeps the resize, no older version of the page can return.
//! If a crash loses the resize, that version is lost with it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::extents::Extents;
use super::options::{CacheAfterFailedSync, Sector};
use super::page::{self, Page, ReplacedSectors};
use super::rng::Rng;
use crate::file::BLOCK_BYTES;

/// Versions kept per page; beyond that, the oldest unsynced version is dropped.
const PAGE_VERSIONS_MAX: usize = 16;

/// Sizes kept of a file that grows without a sync.
const UNSYNCED_SIZES_MAX: usize = 32;

const BLOCK_U64: u64 = BLOCK_BYTES as u64;

/// A read met an unreadable sector.
#[derive(Debug)]
pub(super) struct Unreadable;

#[derive(Debug, Clone)]
pub(super) struct Version {
    pub(super) page: Page,
    /// The resize that made this version; `None` for a write.
    pub(super) resize: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Resize {
    pub(super) number: u64,
    pub(super) len: u64,
    shrinks: bool,
}

/// The content of one file.
#[derive(Debug, Clone, Default)]
pub(super) struct Inode {
    pub(super) durable: BTreeMap<u64, Page>,
    pub(super) dirty: BTreeMap<u64, Vec<Version>>,
    pub(super) stale: BTreeMap<u64, Page>,
    /// Numbers of the unreadable sectors.
    pub(super) unreadable: BTreeSet<u64>,
    pub(super) size: u64,
    pub(super) durable_size: u64,
    pub(super) resizes: Vec<Resize>,
    resize_count: u64,
    pub(super) extents: Extents,
}

impl Inode {
    /// Returns the page as readers see it.
    pub(super) fn visible(&self, number: u64, direct: bool) -> Option<&Page> {
        let stale = if direct { None } else { self.stale.get(&number) };
        stale
            .or_else(|| self.dirty.get(&number).and_then(|v| v.last()).map(|v| &v.page))
            .or_else(|| self.durable.get(&number))
    }

    /// Returns whether reading this page fails.
    fn is_bad(&self, number: u64, direct: bool, sector: Sector) -> bool {
        if self.unreadable.is_empty() || self.dirty.contains_key(&number) {
            return false;
        }
        let cached = !direct && self.stale.contains_key(&number);
        !cached && self.unreadable.range(sectors_of(number, sector)).next().is_some()
    }

    /// Reads up to the end of the file, or up to a page that cannot be read.
    pub(super) fn read(
        &self,
        buf: &mut [u8],
        offset: u64,
        direct: bool,
        sector: Sector,
    ) -> Result<usize, Unreadable> {
        let end = self.size.saturating_sub(offset).min(buf.len() as u64) as usize;
        for (number, at, range) in pieces(offset, end) {
            if self.is_bad(number, direct, sector) {
                return if range.start == 0 { Err(Unreadable) } else { Ok(range.start) };
            }
            let source = &page::bytes(self.visible(number, direct))[at..at + range.len()];
            buf[range].copy_from_slice(source);
        }
        Ok(end)
    }

    /// Adds a version to each page of the range, and extends the file to its end.
    pub(super) fn write(
        &mut self,
        buf: &[u8],
        offset: u64,
        direct: bool,
        sector: Sector,
    ) -> Result<(), Unreadable> {
        let partial_and_bad = |(number, _, range): (u64, usize, Range<usize>)| {
            range.len() < BLOCK_BYTES && self.is_bad(number, direct, sector)
        };
        if !self.unreadable.is_empty() && pieces(offset, buf.len()).any(partial_and_bad) {
            return Err(Unreadable);
        }
        for (number, at, range) in pieces(offset, buf.len()) {
            let new = page::patched(self.visible(number, direct), at, &buf[range]);
            self.stale.remove(&number);
            self.push(number, new, None);
        }
        let end = offset + buf.len() as u64;
        self.extents.add(offset / BLOCK_U64, end.div_ceil(BLOCK_U64));
        self.grow(end);
        Ok(())
    }

    fn push(&mut self, number: u64, page: Page, resize: Option<u64>) {
        let versions = self.dirty.entry(number).or_default();
        if versions.len() >= PAGE_VERSIONS_MAX
            && let Some(oldest) = versions.iter().position(|version| version.resize.is_none())
        {
            versions.remove(oldest);
        }
        versions.push(Version { page, resize });
    }

    /// Extends the file to at least `end` bytes.
    pub(super) fn grow(&mut self, end: u64) {
        if end <= self.size {
            return;
        }
        self.size = end;
        if self.resizes.len() >= UNSYNCED_SIZES_MAX
            && self.resizes.last().is_some_and(|last| !last.shrinks)
        {
            self.resizes.pop();
        }
        self.resize_count += 1;
        self.resizes.push(Resize { number: self.resize_count, len: end, shrinks: false });
    }

    /// Truncates the file or extends it with zeros.
    pub(super) fn set_len(&mut self, len: u64, sector: Sector) {
        if len >= self.size {
            return self.grow(len);
        }
        self.size = len;
        self.resize_count += 1;
        self.resizes.push(Resize { number: self.resize_count, len, shrinks: true });
        let (first, kept) = (len / BLOCK_U64, (len % BLOCK_U64) as usize);
        let mut removed: BTreeSet<u64> = self.durable.range(first..).map(|(n, _)| *n).collect();
        removed.extend(self.dirty.range(first..).map(|(n, _)| *n));
        removed.extend(self.stale.range(first..).map(|(n, _)| *n));
        // A file that grows again gets new sectors instead of those it released.
        let per_page = (BLOCK_BYTES / sector.bytes()) as u64;
        let unreadable_pages =
            self.unreadable.iter().map(|bad| bad / per_page).filter(|page| *page >= first);
        removed.extend(unreadable_pages.filter(|page| *page > first || kept == 0));
        for number in removed {
            let keep = if number == first { kept } else { 0 };
            let cut = page::zeroed_from(self.visible(number, false), keep);
            self.stale.remove(&number);
            self.push(number, cut, Some(self.resize_count));
        }
        self.extents.cut(len.div_ceil(BLOCK_U64));
    }

    /// Reserves pages and extends the file over them.
    pub(super) fn preallocate(&mut self, offset: u64, len: u64) {
        let end = offset + len;
        self.extents.add(offset / BLOCK_U64, end.div_ceil(BLOCK_U64));
        self.grow(end);
    }

    /// Makes all dirty pages durable. Stale pages count as clean and stay as they are.
    pub(super) fn sync(&mut self, sector: Sector) {
        for (number, mut versions) in std::mem::take(&mut self.dirty) {
            if let Some(newest) = versions.pop() {
                self.store(number, newest.page, ReplacedSectors::MAX, sector);
            }
        }
        self.durable_size = self.size;
        self.resizes.clear();
    }

    /// Makes the bytes `offset..end`, just written, durable, and as much of the size as they need.
    pub(super) fn sync_range(&mut self, offset: u64, end: u64, sector: Sector) {
        for number in offset / BLOCK_U64..end.div_ceil(BLOCK_U64) {
            if let Some(newest) = self.dirty.remove(&number).and_then(|mut v| v.pop()) {
                self.store(number, newest.page, ReplacedSectors::MAX, sector);
            }
        }
        if self.durable_size < end || self.resizes.iter().any(|resize| resize.len < end) {
            self.sync_size(sector);
        }
    }

    /// Makes the size durable, with every truncation that led to it.
    fn sync_size(&mut self, sector: Sector) {
        for (number, mut versions) in std::mem::take(&mut self.dirty) {
            if let Some(last) = versions.iter().rposition(|version| version.resize.is_some()) {
                let newer = versions.split_off(last + 1);
                self.store(number, versions.remove(last).page, ReplacedSectors::MAX, sector);
                versions = newer;
            }
            if !versions.is_empty() {
                self.dirty.insert(number, versions);
            }
        }
        self.durable_size = self.size;
        self.resizes.clear();
    }

    /// Fails a sync of these pages: some sectors reached the medium, and all count as clean. Sizes
    /// and truncations keep their state, as they are not in the page cache.
    pub(super) fn fail_sync(
        &mut self,
        pages: Range<u64>,
        mode: CacheAfterFailedSync,
        sector: Sector,
        rng: &mut Rng,
    ) {
        let numbers: Vec<u64> = self.dirty.range(pages).map(|(number, _)| *number).collect();
        let bias = rng.below(5);
        for number in numbers {
            let Some(mut versions) = self.dirty.remove(&number) else {
                continue;
            };
            let cuts = versions.iter().rposition(|version| version.resize.is_some());
            let written = versions.split_off(cuts.map_or(0, |last| last + 1));
            let written: Vec<Page> = written.into_iter().map(|version| version.page).collect();
            let Some(newest) = written.last().cloned() else {
                self.dirty.insert(number, versions);
                continue;
            };
            if versions.is_empty() {
                let old = self.durable.get(&number).cloned().unwrap_or_default();
                let (page, replaced) = page::shuffle(old, &written, bias, sector, rng);
                self.store(number, page, replaced, sector);
            } else {
                self.dirty.insert(number, versions);
            }
            if mode == CacheAfterFailedSync::NewStaysReadable {
                self.stale.insert(number, newest);
            }
        }
    }

    /// Puts a page on the medium. Unreadable sectors that were written again become readable.
    pub(super) fn store(
        &mut self,
        number: u64,
        page: Page,
        replaced: ReplacedSectors,
        sector: Sector,
    ) {
        if !self.unreadable.is_empty() {
            for (index, bad) in sectors_of(number, sector).enumerate() {
                if replaced >> index & 1 == 1 {
                    self.unreadable.remove(&bad);
                }
            }
        }
        if page.is_some() {
            self.durable.insert(number, page);
        } else {
            self.durable.remove(&number);
        }
    }

    /// Returns the space owned, in bytes.
    pub(super) fn owned(&self) -> u64 {
        self.extents.total() * BLOCK_U64
    }
}

/// Returns the sector numbers of a page.
pub(super) fn sectors_of(number: u64, sector: Sector) -> Range<u64> {
    let count = (BLOCK_BYTES / sector.bytes()) as u64;
    number * count..(number + 1) * count
}

/// Splits `len` bytes from `offset` into pages: page number, first byte inside it, range of the
/// buffer.
pub(super) fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done >= len {
            return None;
        }
        let start = offset + done as u64;
        let at = (start % BLOCK_U64) as usize;
        let range = done..len.min(done + BLOCK_BYTES - at);
        done = range.end;
        Some((start / BLOCK_U64, at, range))
    })
}
