//! The versions of a file's sectors: the durable one, and those that a power cut may leave instead.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::record::operation::RequestNumber;
use crate::record::payload::Payload;

/// The unit that a disk writes whole, or as the bytes up to a position.
pub const SECTOR_BYTES: u64 = 512;

/// The unit in which a file system allocates a disk.
const BLOCK_BYTES: u64 = 4096;

/// The bytes of a sector that was never written.
pub const ZERO_SECTOR: SectorBytes = [0; SECTOR_BYTES as usize];

pub type SectorBytes = [u8; SECTOR_BYTES as usize];

/// The bytes of a sector. Those of a sector that a request wrote whole stay where the recording has
/// them.
#[derive(Clone, Debug)]
pub struct SectorContent {
    place: ContentPlace,
    /// The hash of the bytes, so that states are compared without them.
    hash: u64,
}

#[derive(Clone, Debug)]
enum ContentPlace {
    Memory(Arc<SectorBytes>),
    /// From a byte of a recorded write on.
    Write(Payload, usize),
}

/// The part of a request that wrote a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// The request wrote these bytes.
    Data,
    /// The request shortened the file: the bytes past the new size are gone with the old size.
    Size,
}

/// A content of a sector. `None` is all zeros.
#[derive(Clone, Debug)]
pub struct Version {
    pub request: RequestNumber,
    pub cause: Cause,
    pub content: Option<SectorContent>,
    /// A sync that covered the version failed: a later one does not make it durable.
    pub sync_failed: bool,
    /// The request made the file larger, by this block among others.
    pub is_new_block: bool,
}

/// A size of a file, set by a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileSize {
    pub request: RequestNumber,
    pub bytes: u64,
    /// A write past the end made the file larger, no call for its size.
    pub is_append: bool,
}

/// The data and the sizes of a file.
#[derive(Clone, Debug, Default)]
pub struct FileVersions {
    /// The durable version of each sector that is not all zeros.
    pub durable: BTreeMap<u64, Version>,
    /// The later versions of sectors, in their order.
    pub undecided: BTreeMap<u64, Vec<Version>>,
    pub durable_size: u64,
    pub undecided_sizes: Vec<FileSize>,
    /// Whether there may be undecided versions with `Cause::Size`.
    shortened: bool,
}

impl FileVersions {
    /// The size that the program sees.
    pub fn size(&self) -> u64 {
        self.undecided_sizes.last().map_or(self.durable_size, |size| size.bytes)
    }

    pub fn write(&mut self, request: RequestNumber, offset: u64, data: &Payload) {
        let bytes = data.bytes();
        let end = offset + bytes.len() as u64;
        let blocks_end = self.size().next_multiple_of(BLOCK_BYTES);
        for number in sectors_of(offset, end) {
            let start = number * SECTOR_BYTES;
            let (from, to) = (start.max(offset), (start + SECTOR_BYTES).min(end));
            let at = (from - offset) as usize;
            let new = &bytes[at..(to - offset) as usize];
            let content = match <&SectorBytes>::try_from(new) {
                Ok(whole) => SectorContent::of_write(data, at, whole),
                Err(_) => {
                    let mut content = self.content(number);
                    content[(from - start) as usize..(to - start) as usize].copy_from_slice(new);
                    SectorContent::new(content)
                }
            };
            let content = Some(content);
            let (cause, is_new_block) = (Cause::Data, start >= blocks_end);
            self.add(number, Version { request, cause, content, sync_failed: false, is_new_block });
        }
        if end > self.size() {
            self.undecided_sizes.push(FileSize { request, bytes: end, is_append: true });
        }
    }

    /// Writes zeros over the part of the range that has data.
    pub fn zero(&mut self, request: RequestNumber, offset: u64, end: u64, cause: Cause) {
        let range = sectors_of(offset, end);
        let durable = self.durable.range(range.clone()).map(|(number, _)| *number);
        let undecided = self.undecided.range(range).map(|(number, _)| *number);
        let numbers: BTreeSet<u64> = durable.chain(undecided).collect();
        for number in numbers {
            let start = number * SECTOR_BYTES;
            let (from, to) = (start.max(offset), (start + SECTOR_BYTES).min(end));
            let mut content = self.content(number);
            content[(from - start) as usize..(to - start) as usize].fill(0);
            let is_zero = content.iter().all(|byte| *byte == 0);
            let content = (!is_zero).then(|| SectorContent::new(content));
            let (sync_failed, is_new_block) = (false, false);
            self.add(number, Version { request, cause, content, sync_failed, is_new_block });
        }
    }

    pub fn resize(&mut self, request: RequestNumber, bytes: u64) {
        if bytes < self.size() {
            self.zero(request, bytes, u64::MAX, Cause::Size);
            self.shortened = true;
        }
        self.undecided_sizes.push(FileSize { request, bytes, is_append: false });
    }

    /// Makes everything durable, also what a failed sync covered.
    pub fn make_all_durable(&mut self) {
        for version in self.undecided.values_mut().flatten() {
            version.sync_failed = false;
        }
        self.make_durable();
    }

    /// Makes everything durable that no failed sync covered.
    pub fn make_durable(&mut self) {
        self.make_range_durable(0, u64::MAX);
    }

    /// Makes the sectors of a range durable, and the size with the bytes that are gone with it.
    /// Versions that a failed sync covered stay as they are.
    pub fn make_range_durable(&mut self, offset: u64, end: u64) {
        if std::mem::take(&mut self.shortened) {
            for number in self.undecided_in(0, u64::MAX) {
                self.make_sector_durable(number, |version| version.cause == Cause::Size);
            }
        }
        for number in self.undecided_in(offset, end) {
            self.make_sector_durable(number, |version| !version.sync_failed);
        }
        if let Some(last) = self.undecided_sizes.pop() {
            self.undecided_sizes.clear();
            self.durable_size = last.bytes;
        }
    }

    /// Makes the sizes durable that calls set up to a request, with the bytes gone with them.
    pub fn make_set_sizes_durable(&mut self, last: RequestNumber) {
        let is_set = |size: &FileSize| !size.is_append && size.request <= last;
        let Some(index) = self.undecided_sizes.iter().rposition(is_set) else { return };
        if let Some(size) = self.undecided_sizes.drain(..=index).next_back() {
            self.durable_size = size.bytes;
        }
        for number in self.undecided_in(0, u64::MAX) {
            let is_gone = |it: &Version| it.cause == Cause::Size && it.request <= last;
            self.make_sector_durable(number, is_gone);
        }
    }

    /// A sync of a range failed: its data stays losable until it is written again and synced.
    pub fn fail_sync(&mut self, offset: u64, end: u64) {
        for (_, versions) in self.undecided.range_mut(sectors_of(offset, end)) {
            for version in versions {
                version.sync_failed |= version.cause == Cause::Data;
            }
        }
    }

    /// Makes the last version that `is_synced` durable; those before it are gone.
    fn make_sector_durable(&mut self, number: u64, is_synced: impl Fn(&Version) -> bool) {
        let Some(versions) = self.undecided.get_mut(&number) else { return };
        let Some(last) = versions.iter().rposition(is_synced) else { return };
        let synced = versions.drain(..=last).next_back();
        if versions.is_empty() {
            self.undecided.remove(&number);
        }
        match synced {
            Some(version) if version.content.is_some() => self.durable.insert(number, version),
            _ => self.durable.remove(&number),
        };
    }

    /// The sectors of a range that have undecided versions.
    fn undecided_in(&self, offset: u64, end: u64) -> Vec<u64> {
        self.undecided.range(sectors_of(offset, end)).map(|(number, _)| *number).collect()
    }

    fn content(&self, number: u64) -> SectorBytes {
        let undecided = self.undecided.get(&number).and_then(|versions| versions.last());
        undecided.or_else(|| self.durable.get(&number)).map_or(ZERO_SECTOR, Version::bytes)
    }

    fn add(&mut self, number: u64, version: Version) {
        self.undecided.entry(number).or_default().push(version);
    }
}

impl Version {
    pub fn bytes(&self) -> SectorBytes {
        self.content.as_ref().map_or(ZERO_SECTOR, SectorContent::bytes)
    }
}

impl SectorContent {
    pub fn new(bytes: SectorBytes) -> Self {
        Self { hash: hash_of(&bytes), place: ContentPlace::Memory(Arc::new(bytes)) }
    }

    /// The bytes of a write from `start` on, which are `bytes`.
    fn of_write(data: &Payload, start: usize, bytes: &SectorBytes) -> Self {
        Self { hash: hash_of(bytes), place: ContentPlace::Write(data.clone(), start) }
    }

    pub fn bytes(&self) -> SectorBytes {
        match &self.place {
            ContentPlace::Memory(bytes) => **bytes,
            ContentPlace::Write(data, start) => {
                let mut bytes = ZERO_SECTOR;
                data.copy_to(*start, &mut bytes);
                bytes
            }
        }
    }
}

impl Hash for SectorContent {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash.hash(state);
    }
}

fn hash_of(bytes: &SectorBytes) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

/// The numbers of the sectors that hold bytes from `offset` to `end`.
fn sectors_of(offset: u64, end: u64) -> std::ops::Range<u64> {
    offset / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES).max(offset / SECTOR_BYTES)
}
