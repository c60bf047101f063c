//! The durable mark: one small page that the writer overwrites after each commit, so that other
//! processes know how far they may read, and recovery knows what must be there.
//!
//! It is written with ordinary writes and never synced: what it says was true before it was
//! written, wherever the page lives. Its sequence number holds for ever. Its position holds for its
//! session, because recovery may move the last records.

use std::path::Path;
use std::sync::Arc;

use esker_disk::{BLOCK, Disk, File, Open, read_full_at, write_all_at};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::core::Mark;
use crate::error::Result;
use crate::format::{LogId, NUMBER_MAX, crc};
use crate::layout::MARK;

const MAGIC: u32 = 0xE5CE_3A4B;

/// What the page says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) session: u64,
    pub(crate) position: u64,
    pub(crate) seq: u64,
    /// The segment that holds the record.
    pub(crate) segment: u64,
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
}

impl Raw {
    fn sum(&self) -> u32 {
        let bytes = self.as_bytes();
        crc(&bytes[8..])
    }
}

/// The page, open for writing.
#[derive(Debug)]
pub(crate) struct Page {
    file: Arc<dyn File>,
    log: LogId,
    session: u64,
    told: u64,
}

impl Page {
    /// Opens the page, making it where it is missing.
    pub(crate) fn open(disk: &dyn Disk, dir: &Path, log: LogId, session: u64) -> Result<Self> {
        let file = disk.open(&dir.join(MARK), Open::create())?;
        Ok(Self { file, log, session, told: 0 })
    }

    /// Tells a mark, unless a later one was told.
    pub(crate) fn tell(&mut self, mark: Mark) -> Result<()> {
        if mark.seq < self.told {
            return Ok(());
        }
        self.told = mark.seq;
        let mut raw = Raw {
            magic: U32::new(MAGIC),
            crc: U32::ZERO,
            log: self.log.0,
            session: U64::new(self.session),
            position: U64::new(mark.position),
            seq: U64::new(mark.seq),
            segment: U64::new(mark.segment),
        };
        raw.crc = U32::new(raw.sum());
        // A whole block: the old one may not be readable.
        let mut block = [0; BLOCK];
        block[..size_of::<Raw>()].copy_from_slice(raw.as_bytes());
        Ok(write_all_at(&*self.file, &block, 0)?)
    }

    /// Makes the page durable; only `repair` needs that, when it takes a claim back.
    pub(crate) fn sync(&self) -> Result<()> {
        Ok(self.file.sync_data()?)
    }
}

/// The page, open for reading.
#[derive(Debug)]
pub(crate) struct Look {
    file: Arc<dyn File>,
    log: LogId,
}

impl Look {
    /// `None` when there is no page.
    pub(crate) fn open(disk: &dyn Disk, dir: &Path, log: LogId) -> Result<Option<Self>> {
        match disk.open(&dir.join(MARK), Open::read()) {
            Ok(file) => Ok(Some(Self { file, log })),
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(cause) => Err(cause.into()),
        }
    }

    /// What the page says; `None` when it says nothing that can be believed. A read that meets a
    /// write may see half of it, so a mismatch is looked at again, a few times.
    ///
    /// # Errors
    /// The device does not give the page.
    pub(crate) fn told(&self) -> std::result::Result<Option<Told>, esker_disk::Error> {
        for _ in 0..8 {
            let mut bytes = [0; size_of::<Raw>()];
            let got = read_full_at(&*self.file, &mut bytes, 0)?;
            let Ok(raw) = Raw::read_from_bytes(&bytes[..got]) else {
                return Ok(None);
            };
            if raw.magic.get() != MAGIC {
                return Ok(None);
            }
            let sane = raw.position.get() < NUMBER_MAX && raw.session.get() < NUMBER_MAX;
            if raw.crc.get() == raw.sum() && raw.log == self.log.0 && sane {
                return Ok(Some(Told {
                    session: raw.session.get(),
                    position: raw.position.get(),
                    seq: raw.seq.get(),
                    segment: raw.segment.get(),
                }));
            }
            std::thread::yield_now();
        }
        Ok(None)
    }
}
