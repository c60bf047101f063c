//! A power cut applied to one file, and corruption that tests inject.

use std::collections::BTreeSet;

use super::inode::{Inode, Version, pieces, sectors_of};
use super::options::Sector;
use super::page::{self, Page, ReplacedSectors, Tear};
use super::power::Persist;
use super::rng::Rng;
use crate::file::BLOCK_BYTES;

impl Inode {
    /// Number of sectors whose content a power cut now would decide.
    pub(super) fn undecided(&self, sector: Sector) -> u64 {
        self.dirty.len() as u64 * (BLOCK_BYTES / sector.bytes()) as u64
    }

    /// Applies a power cut: the cache is lost, and `persist` decides which unsynced changes remain.
    /// Sector number `torn`, counted over the undecided sectors, is torn.
    pub(super) fn cut(
        &mut self,
        persist: Persist,
        torn: Option<u64>,
        sector: Sector,
        rng: &mut Rng,
    ) {
        let per_page = (BLOCK_BYTES / sector.bytes()) as u64;
        let resize = self.keep_size(persist, rng);
        let bias = rng.below(5);
        self.stale.clear();
        for (index, (number, versions)) in std::mem::take(&mut self.dirty).into_iter().enumerate() {
            let old = self.durable.get(&number).cloned().unwrap_or_default();
            let (base, newer, cut) = split(old, versions, resize);
            let newest = newer.last().unwrap_or(&base).clone();
            let (mut page, mut replaced) = match persist {
                Persist::Nothing => (base, 0),
                Persist::Everything => (newest.clone(), ReplacedSectors::MAX),
                Persist::Random | Persist::Torn => page::shuffle(base, &newer, bias, sector, rng),
            };
            if cut {
                replaced = ReplacedSectors::MAX;
            }
            let torn = torn.filter(|torn| torn / per_page == index as u64 && !newer.is_empty());
            let torn = torn.map(|torn| torn % per_page);
            let tear = torn.map(|at| page::tear(&mut page, &newest, at as usize, sector, rng));
            self.store(number, page, replaced, sector);
            match (torn, tear) {
                (Some(at), Some(Tear::Unreadable)) => {
                    self.unreadable.insert(number * per_page + at);
                }
                (Some(at), Some(Tear::Garbled)) => {
                    self.unreadable.remove(&(number * per_page + at));
                }
                _ => {}
            }
        }
        self.persist_size(self.durable_size, sector);
    }

    /// Decides which size remains, and returns the number of its resize.
    fn keep_size(&mut self, persist: Persist, rng: &mut Rng) -> Option<u64> {
        let count = self.resizes.len();
        let kept = match persist {
            Persist::Nothing => 0,
            Persist::Everything => count,
            Persist::Random | Persist::Torn => rng.index(count + 1),
        };
        let resize = *self.resizes.get(kept.checked_sub(1)?)?;
        self.durable_size = resize.len;
        Some(resize.number)
    }

    /// Sets the size, both visible and durable, and drops everything past the end.
    fn persist_size(&mut self, len: u64, sector: Sector) {
        self.size = len;
        self.durable_size = len;
        self.resizes.clear();
        let (first, kept) = (len / BLOCK_BYTES as u64, (len % BLOCK_BYTES as u64) as usize);
        let first_removed = first + u64::from(kept > 0);
        self.durable.split_off(&first_removed);
        self.dirty.split_off(&first_removed);
        self.stale.split_off(&first_removed);
        self.unreadable.split_off(&sectors_of(first_removed, sector).start);
        self.extents.cut(first_removed);
        if kept > 0 {
            self.each_copy(first, |bytes| bytes[kept..].fill(0));
        }
    }

    /// Truncates or extends the file on the medium and in the cache at once.
    pub(super) fn truncate(&mut self, len: u64, sector: Sector) {
        self.persist_size(len, sector);
    }

    /// Changes bytes on the medium and in the cache at once, extending the file as needed.
    pub(super) fn overwrite(&mut self, offset: u64, bytes: &[u8], sector: Sector) {
        for (number, at, range) in pieces(offset, bytes.len()) {
            let patch = &bytes[range];
            self.each_copy(number, |page| {
                page[at..at + patch.len()].copy_from_slice(patch);
            });
            self.readable_again(number, at..at + patch.len(), sector);
        }
        let end = offset + bytes.len() as u64;
        self.extents.add(offset / BLOCK_BYTES as u64, end.div_ceil(BLOCK_BYTES as u64));
        if end > self.size {
            self.size = end;
            self.durable_size = end;
            self.resizes.clear();
        }
    }

    /// Flips one bit, counted from the start of the file, on the medium and in the cache.
    pub(super) fn flip(&mut self, bit: u64) {
        let (byte, mask) = (bit / 8, 1_u8 << (bit % 8));
        let at = (byte % BLOCK_BYTES as u64) as usize;
        self.each_copy(byte / BLOCK_BYTES as u64, |page| page[at] ^= mask);
    }

    /// Makes the sector that holds this byte unreadable, and drops the cached versions of its page.
    pub(super) fn make_unreadable(&mut self, offset: u64, sector: Sector) {
        self.dirty.remove(&(offset / BLOCK_BYTES as u64));
        self.stale.remove(&(offset / BLOCK_BYTES as u64));
        self.unreadable.insert(offset / sector.bytes() as u64);
    }

    fn readable_again(&mut self, number: u64, range: std::ops::Range<usize>, sector: Sector) {
        let size = sector.bytes();
        let first = sectors_of(number, sector).start;
        for index in range.start.div_ceil(size)..range.end / size {
            self.unreadable.remove(&(first + index as u64));
        }
    }

    fn each_copy(&mut self, number: u64, change: impl Fn(&mut [u8])) {
        let changed = |page: &Page| {
            let mut bytes = page::bytes(Some(page)).to_vec();
            change(&mut bytes);
            page::share(&bytes)
        };
        let durable = changed(self.durable.get(&number).unwrap_or(&None));
        if durable.is_some() {
            self.durable.insert(number, durable);
        } else {
            self.durable.remove(&number);
        }
        for version in self.dirty.get_mut(&number).into_iter().flatten() {
            version.page = changed(&version.page);
        }
        if let Some(stale) = self.stale.get_mut(&number) {
            *stale = changed(stale);
        }
    }

    /// Returns the whole file, as ordinary reads see it or as it is on the medium. Unreadable
    /// sectors are included with their stored content.
    pub(super) fn content(&self, durable: bool) -> Vec<u8> {
        let size = if durable { self.durable_size } else { self.size };
        let mut content = vec![0; size as usize];
        let mut numbers: BTreeSet<u64> = self.durable.keys().copied().collect();
        if !durable {
            numbers.extend(self.dirty.keys());
            numbers.extend(self.stale.keys());
        }
        for number in numbers {
            let start = (number * BLOCK_BYTES as u64).min(size) as usize;
            let end = content.len().min(start + BLOCK_BYTES);
            let page =
                if durable { self.durable.get(&number) } else { self.visible(number, false) };
            content[start..end].copy_from_slice(&page::bytes(page)[..end - start]);
        }
        content
    }
}

/// Splits the versions of a page into its base and the writes that may replace it. The flag is
/// `true` when the base is a truncation that remains.
fn split(old: Page, mut versions: Vec<Version>, resize: Option<u64>) -> (Page, Vec<Page>, bool) {
    let stays = |version: &Version| version.resize.is_some() && version.resize <= resize;
    let Some(last) = versions.iter().rposition(stays) else {
        return (old, written(versions), false);
    };
    let newer = versions.split_off(last + 1);
    (versions.remove(last).page, written(newer), true)
}

fn written(versions: Vec<Version>) -> Vec<Page> {
    versions.into_iter().filter(|version| version.resize.is_none()).map(|v| v.page).collect()
}
