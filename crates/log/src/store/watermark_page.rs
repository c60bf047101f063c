//! The watermark page: one small file that the writer overwrites after each commit, before it
//! acknowledges it. Other processes read from it how far they may read, and recovery which records
//! must exist.
//!
//! The content of a slot was true before it was stored, even if the page never reaches the disk.
//! Its sequence number is a durable lower bound for ever. Its position is valid for its session
//! only, because recovery may move the last records.
//!
//! # Two slots
//!
//! The file has two blocks, and each holds a slot: a checksummed copy of all fields. Stores
//! alternate between the slots, and a reader takes the newest valid slot. So a store that a crash
//! tears corrupts only the older slot, and a reader that meets a store under way gets the previous
//! one.
//!
//! # When it is synced
//!
//! Under most policies never: each commit unit carries the durable lower bound of the moment before
//! its submission, so the page adds only what the last units in flight do not carry.
//!
//! Under [`Policy::OsBuffered`] units are written before anything is durable, and one sync makes
//! any number of them durable at once. None of them records that. There the page is stored and
//! synced after each sync of the segments and before a ticket resolves
//! ([`WatermarkPage::store_durably`]). A power cut during that leaves the slot of the previous
//! sync, whose store was synced. No ticket above that slot has resolved. The first store of a
//! session is not synced: the manifest and the header of the newest segment carry the same bound.
//!
//! A truncation syncs the page, too, so that the trim point is in two files.
//!
//! [`Policy::OsBuffered`]: crate::Policy::OsBuffered

use std::sync::Arc;

use esker_disk::{BLOCK_BYTES, Dir, File, OpenMode, read_full_at, write_all_at};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::base::error::{Error, Result};
use crate::base::log_end::Mark;
use crate::format::{LogId, NUMBER_MAX, crc};
use crate::store::paths::MARK;

const PAGE_MAGIC: u32 = 0xE5CE_3A4C;
const PAGE_SLOTS: usize = 2;
/// The most reads of a slot that does not check, because a store may be under way.
const SLOT_READS_MAX: usize = 8;

/// The content of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoredWatermark {
    pub(crate) log: LogId,
    pub(crate) session: u64,
    pub(crate) position: u64,
    pub(crate) seq: u64,
    /// The segment that holds the record `seq`.
    pub(crate) segment: u64,
    /// Records up to this number were dropped.
    pub(crate) trim: u64,
}

impl StoredWatermark {
    fn age(&self) -> (u64, u64, u64) {
        (self.session, self.seq, self.trim)
    }
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Raw {
    magic: U32,
    crc: U32,
    log: [u8; 16],
    session: U64,
    position: U64,
    seq: U64,
    segment: U64,
    trim: U64,
}

impl Raw {
    fn sum(&self) -> u32 {
        let bytes = self.as_bytes();
        crc(&bytes[8..])
    }

    /// Parses a slot. Returns `Err` when its content does not check.
    fn parse(bytes: &[u8]) -> std::result::Result<Option<StoredWatermark>, ()> {
        let Ok((raw, _)) = Self::read_from_prefix(bytes) else {
            return Ok(None);
        };
        if raw.magic.get() != PAGE_MAGIC {
            return Ok(None);
        }
        let sane = raw.position.get() < NUMBER_MAX && raw.session.get() < NUMBER_MAX;
        if raw.crc.get() != raw.sum() || !sane {
            return Err(());
        }
        Ok(Some(StoredWatermark {
            log: LogId(raw.log),
            session: raw.session.get(),
            position: raw.position.get(),
            seq: raw.seq.get(),
            segment: raw.segment.get(),
            trim: raw.trim.get(),
        }))
    }
}

/// The page, opened for writing.
#[derive(Debug)]
pub(crate) struct WatermarkPage {
    file: Arc<dyn File>,
    log: LogId,
    session: u64,
    trim: u64,
    stored: Option<Mark>,
    /// The slot that the next store goes to.
    slot: usize,
}

impl WatermarkPage {
    /// Opens the page for a session, and creates it where it is missing. The caller syncs the
    /// directory.
    pub(crate) fn open(dir: &dyn Dir, log: LogId, session: u64, trim: u64) -> Result<Self> {
        let file = dir.open(MARK, OpenMode::create())?;
        let slots: [Option<StoredWatermark>; PAGE_SLOTS] = std::array::from_fn(|slot| {
            read_slot(&*file, slot).ok().and_then(|read| read.ok().flatten())
        });
        let age =
            |slot: usize| slots[slot].filter(|stored| stored.log == log).map(|stored| stored.age());
        // The newest valid slot stays until a newer one is stored.
        let slot = usize::from(age(0) > age(1));
        for missing in (file.len()? as usize / BLOCK_BYTES)..PAGE_SLOTS {
            write_all_at(&*file, &[0; BLOCK_BYTES], (missing * BLOCK_BYTES) as u64)?;
        }
        Ok(Self { file, log, session, trim, stored: None, slot })
    }

    /// Stores a watermark, unless one with the same or a higher sequence number was stored.
    pub(crate) fn store(&mut self, mark: Mark) -> Result<()> {
        if self.has(mark) {
            return Ok(());
        }
        self.write(mark)
    }

    /// Whether this watermark, or a higher one, was stored.
    pub(crate) fn has(&self, mark: Mark) -> bool {
        self.stored.is_some_and(|stored| mark.seq <= stored.seq)
    }

    /// Stores a watermark, and returns when the page is durable.
    pub(crate) fn store_durably(&mut self, mark: Mark) -> Result<()> {
        self.store(mark)?;
        Ok(self.file.sync_data()?)
    }

    /// Raises the trim point: records up to this number are dropped. Returns the file, for the
    /// caller to sync.
    pub(crate) fn store_trim(&mut self, trim: u64) -> Result<Arc<dyn File>> {
        self.trim = self.trim.max(trim);
        if let Some(mark) = self.stored {
            self.write(mark)?;
        }
        Ok(Arc::clone(&self.file))
    }

    /// Durably sets both slots to this watermark, also if it is lower: for a truncating `repair`,
    /// and for a backup, whose log may have been another one before.
    pub(crate) fn store_in_both_slots(&mut self, mark: Mark) -> Result<()> {
        for _ in 0..PAGE_SLOTS {
            self.write(mark)?;
        }
        Ok(self.file.sync_data()?)
    }

    fn write(&mut self, mark: Mark) -> Result<()> {
        let mut raw = Raw {
            magic: U32::new(PAGE_MAGIC),
            crc: U32::ZERO,
            log: self.log.0,
            session: U64::new(self.session),
            position: U64::new(mark.position),
            seq: U64::new(mark.seq),
            segment: U64::new(mark.segment),
            trim: U64::new(self.trim),
        };
        raw.crc = U32::new(raw.sum());
        // A whole block: the old one may be unreadable.
        let mut block = [0; BLOCK_BYTES];
        block[..size_of::<Raw>()].copy_from_slice(raw.as_bytes());
        write_all_at(&*self.file, &block, (self.slot * BLOCK_BYTES) as u64)?;
        self.slot = (self.slot + 1) % PAGE_SLOTS;
        self.stored = Some(mark);
        Ok(())
    }
}

/// The content of a slot, or the checksum of one that does not check.
type Slot = std::result::Result<Option<StoredWatermark>, u32>;

fn read_slot(file: &dyn File, slot: usize) -> std::result::Result<Slot, esker_disk::Error> {
    let mut bytes = [0; size_of::<Raw>()];
    let got = read_full_at(file, &mut bytes, (slot * BLOCK_BYTES) as u64)?;
    Ok(Raw::parse(&bytes[..got]).map_err(|()| crc(&bytes[..got])))
}

/// The page, opened for reading.
#[derive(Debug)]
pub(crate) struct PageReader {
    file: Arc<dyn File>,
    log: Option<LogId>,
}

impl PageReader {
    /// Opens the page of this log. Returns `None` when there is none.
    pub(crate) fn open(dir: &dyn Dir, log: LogId) -> Result<Option<Self>> {
        Ok(Self::of_any_log(dir)?.map(|reader| Self { log: Some(log), ..reader }))
    }

    /// The content of the page in a directory, of whatever log; `None` when no slot can be read.
    pub(crate) fn stored_in(dir: &dyn Dir) -> Result<Option<StoredWatermark>> {
        Ok(Self::of_any_log(dir)?.and_then(|page| page.stored().ok().flatten()))
    }

    /// Opens the page without checking its log id.
    pub(crate) fn of_any_log(dir: &dyn Dir) -> Result<Option<Self>> {
        match dir.open(MARK, OpenMode::read()) {
            Ok(file) => Ok(Some(Self { file, log: None })),
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(cause) => Err(cause.into()),
        }
    }

    /// The content of the page; `None` when no slot is valid. A read during a store may see half of
    /// it, so the slots are read again while one does not check and changes.
    ///
    /// # Errors
    /// The device fails to read both slots.
    pub(crate) fn stored(&self) -> std::result::Result<Option<StoredWatermark>, esker_disk::Error> {
        let (mut newest, mut before) = (None, None);
        for _ in 0..SLOT_READS_MAX {
            let slots = [read_slot(&*self.file, 0), read_slot(&*self.file, 1)];
            if let [Err(cause), Err(_)] = &slots {
                return Err(cause.clone());
            }
            let torn = slots.each_ref().map(|slot| slot.as_ref().ok().and_then(|it| it.err()));
            let stored = slots.into_iter().filter_map(|slot| slot.ok()?.ok()?);
            let stored = stored.filter(|stored| self.log.is_none_or(|log| stored.log == log));
            newest = stored.max_by_key(StoredWatermark::age);
            if torn == [None; PAGE_SLOTS] || before.replace(torn) == Some(torn) {
                break;
            }
            std::thread::yield_now();
        }
        Ok(newest)
    }
}

/// Refuses the watermark page of another log. Called where no segment header is valid: then the
/// manifest may be the file of the other log.
pub(crate) fn refuse_foreign_page(
    dir: &dyn Dir,
    page: Option<StoredWatermark>,
    log: LogId,
) -> Result<()> {
    match page {
        Some(page) if page.log != log => Err(Error::ForeignFile { file: dir.path_of(MARK) }),
        _ => Ok(()),
    }
}

/// Whether these bytes are a slot that checks.
pub(crate) fn is_valid_slot(bytes: &[u8]) -> bool {
    matches!(Raw::parse(bytes), Ok(Some(_)))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use esker_disk::Disk;
    use esker_disk::sim::SimDisk;

    use super::*;

    /// Stores alternate between the slots. A corrupt one, as a crash during a store leaves it, does
    /// not affect the store before it.
    #[test]
    fn corrupt_store_keeps_the_previous_one_readable() {
        let log = LogId([7; 16]);
        let mark = |seq| Mark { unit: seq, position: seq * 4096, seq, segment: 1 };
        let name = Path::new("/log").join(MARK);
        for stores in 2..6 {
            let disk = SimDisk::new(stores);
            let dir = disk.create_dir(Path::new("/log")).unwrap();
            let mut page = WatermarkPage::open(&*dir, log, 1, 0).unwrap();
            let mut newest = Vec::new();
            for seq in 1..=stores {
                let before = disk.contents(&name).unwrap();
                page.store(mark(seq)).unwrap();
                let after = disk.contents(&name).unwrap();
                newest = (0..after.len()).filter(|at| before.get(*at) != after.get(*at)).collect();
            }
            let reader = PageReader::open(&*dir, log).unwrap().unwrap();
            assert_eq!(reader.stored().unwrap().unwrap().seq, stores);
            disk.flip_bit(&name, newest[newest.len() / 2] as u64 * 8).unwrap();
            assert_eq!(reader.stored().unwrap().unwrap().seq, stores - 1);
        }
    }
}
