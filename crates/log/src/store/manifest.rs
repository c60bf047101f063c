//! The manifest: the facts about a log that are not in its segments.

use esker_disk::Dir;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::base::error::{Corruption, Error, Result};
use crate::base::position::Seq;
use crate::format::{LogId, NUMBER_MAX};
use crate::store::directory;
use crate::store::paths::{self, MANIFEST};
use crate::store::sealed_file;

const MAGIC: [u8; 8] = *b"ESKERMAN";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) log: LogId,
    /// Raised at each opening for writing, before anything else is written.
    pub(crate) session: u64,
    /// Segments below this number left the log. 0 until the first segment is durable.
    pub(crate) trim_segment: u64,
    /// Records up to this number were dropped.
    pub(crate) trim_seq: u64,
    /// A durable lower bound: the log was durable up to this record when the manifest was written.
    pub(crate) durable: u64,
    /// The largest size of the reserve so far, in blocks of 4096 bytes; 0 where it is not known.
    pub(crate) reserve_blocks: u32,
    /// The end of the log, after a clean close and until the next opening for writing.
    pub(crate) clean: Option<End>,
}

/// The end of a log that was closed cleanly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) segment: u64,
    pub(crate) offset: u32,
    pub(crate) seq: u64,
    pub(crate) chain: u32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Raw {
    log: [u8; 16],
    session: U64,
    trim_segment: U64,
    trim_seq: U64,
    clean: U32,
    offset: U32,
    segment: U64,
    seq: U64,
    chain: U32,
    reserve_blocks: U32,
    durable: U64,
}

impl Manifest {
    pub(crate) fn new(log: LogId) -> Self {
        Self {
            log,
            session: 0,
            trim_segment: 0,
            trim_seq: 0,
            durable: 0,
            reserve_blocks: 0,
            clean: None,
        }
    }

    pub(crate) fn write(&self, dir: &dyn Dir) -> Result<()> {
        let end = self.clean.unwrap_or(End { segment: 0, offset: 0, seq: 0, chain: 0 });
        let raw = Raw {
            log: self.log.0,
            session: U64::new(self.session),
            trim_segment: U64::new(self.trim_segment),
            trim_seq: U64::new(self.trim_seq),
            clean: U32::new(u32::from(self.clean.is_some())),
            offset: U32::new(end.offset),
            segment: U64::new(end.segment),
            seq: U64::new(end.seq),
            chain: U32::new(end.chain),
            reserve_blocks: U32::new(self.reserve_blocks),
            durable: U64::new(self.durable),
        };
        sealed_file::write(dir, MANIFEST, MAGIC, raw.as_bytes())
    }

    /// The highest durable lower bound in the manifest. What was dropped was durable before, so the
    /// trim point counts; a log that ended below it would assign its sequence numbers again.
    pub(crate) fn durable_bound(&self) -> u64 {
        self.clean.map_or(0, |clean| clean.seq).max(self.durable).max(self.trim_seq)
    }

    /// Reads the manifest; `None` when there is none.
    pub(crate) fn read(dir: &dyn Dir) -> Result<Option<Self>> {
        let content = match sealed_file::read(dir, MANIFEST, MAGIC) {
            Err(Error::Io(cause)) if cause.kind() == std::io::ErrorKind::NotFound => {
                return Ok(None);
            }
            other => other?,
        };
        Self::parse(&content).map(Some).map_err(|what| corrupt(dir, what))
    }

    /// The manifest in the content of its sealed file.
    pub(crate) fn parse(content: &[u8]) -> std::result::Result<Self, &'static str> {
        let Ok(raw) = Raw::read_from_bytes(content) else {
            return Err("the content has the wrong length");
        };
        let numbers = [raw.session, raw.trim_segment, raw.segment];
        if numbers.iter().any(|number| number.get() >= NUMBER_MAX) {
            return Err("a number is impossible");
        }
        Ok(Self {
            log: LogId(raw.log),
            session: raw.session.get(),
            trim_segment: raw.trim_segment.get(),
            trim_seq: raw.trim_seq.get(),
            durable: raw.durable.get(),
            reserve_blocks: raw.reserve_blocks.get(),
            clean: (raw.clean.get() == 1).then(|| End {
                segment: raw.segment.get(),
                offset: raw.offset.get(),
                seq: raw.seq.get(),
                chain: raw.chain.get(),
            }),
        })
    }

    /// The log that the temporary file of the manifest names: it holds the content before the last.
    /// `None` where it holds no manifest. Its other fields are out of date.
    pub(crate) fn previous_log(dir: &dyn Dir) -> Option<LogId> {
        let content = sealed_file::read(dir, &paths::next(MANIFEST), MAGIC).ok()?;
        Self::parse(&content).ok().map(|manifest| manifest.log)
    }

    /// Reads the manifest for a reader of the log. The error for a missing one says whether that is
    /// corruption or the directory holds no log.
    pub(crate) fn of_log(dir: &dyn Dir) -> Result<Self> {
        match Self::read(dir)? {
            Some(manifest) => Ok(manifest),
            None if paths::is_a_log(&dir.list()?) => Err(lost(dir)),
            None => Err(directory::not_a_log(dir.path(), "it has no manifest")),
        }
    }
}

/// The error for a log whose manifest is missing while its other files are there.
pub(crate) fn lost(dir: &dyn Dir) -> Error {
    corrupt(dir, "the manifest is missing, and other files of the log are there")
}

fn corrupt(dir: &dyn Dir, what: &str) -> Error {
    let file = dir.path_of(MANIFEST);
    Error::Corrupted(Corruption { file, offset: 0, after: Seq::ZERO, what: what.into() })
}
