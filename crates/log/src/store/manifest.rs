//! The manifest: the facts about a log that are not in its segments.
//!
//! After a clean close it also has the footer of the segment that the log ends in, if the log is
//! not shorter than what opening checks anyway. The footer leaves the manifest with the clean end,
//! before the next unit is written.
//!
//! ```text
//! content: 88 bytes as in `Raw`, then 36 as in `RawRetention` if there is a limit, then 24 as in
//!          `RawLineage` for a log that is or was a copy, or lost records, then the footer without
//!          the zeros at its end, or nothing
//! ```
//!
//! # Lineages
//!
//! Logs with one id may differ: a copy that is opened for writing continues by itself, and a repair
//! that gives records up may assign their numbers again. Each of these draws a new lineage, durably
//! and before the first append. *Two logs with one id and one lineage never have different records
//! under one number.* A copy has the lineage of its original until it is opened for writing.

use std::time::Duration;

use esker_disk::Dir;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::base::error::{Corruption, Error, Result};
use crate::base::options::Retention;
use crate::base::position::Seq;
use crate::format::{Footer, LogId, NUMBER_MAX, Salt};
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
    /// What the last session with a retention kept of the log, until one without appends and is
    /// closed.
    pub(crate) retention: Retention,
    pub(crate) lineage: Lineage,
    /// Whether this is a copy that was not opened for writing yet.
    pub(crate) is_copy: bool,
    /// The end of the log, after a clean close and until the next opening for writing.
    pub(crate) clean: Option<End>,
}

/// Which of the logs with one id this is. Zeros until one continues by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Lineage([u8; 16]);

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

/// The limits of a retention. 0 where there is none.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RawRetention {
    magic: [u8; 4],
    bytes: U64,
    segments: U64,
    records: U64,
    /// Nanoseconds.
    age: U64,
}

impl RawRetention {
    const MAGIC: [u8; 4] = *b"KEEP";

    fn of(retention: Retention) -> Self {
        let limit = |limit: Option<u64>| U64::new(limit.unwrap_or(0));
        let age = retention.age.map(|age| age.as_nanos().min(u128::from(u64::MAX)) as u64);
        Self {
            magic: Self::MAGIC,
            bytes: limit(retention.bytes),
            segments: limit(retention.segments),
            records: limit(retention.records),
            age: limit(age),
        }
    }

    fn retention(&self) -> Retention {
        let limit = |limit: U64| Some(limit.get()).filter(|limit| *limit > 0);
        Retention {
            bytes: limit(self.bytes),
            segments: limit(self.segments),
            records: limit(self.records),
            age: limit(self.age).map(Duration::from_nanos),
        }
    }
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RawLineage {
    magic: [u8; 4],
    /// 1 for a copy that was not opened for writing yet, otherwise 0.
    is_copy: U32,
    lineage: [u8; 16],
}

impl RawLineage {
    const MAGIC: [u8; 4] = *b"LINE";
}

/// The parts of the content.
struct Parts<'a> {
    raw: Raw,
    retention: Retention,
    lineage: Lineage,
    is_copy: bool,
    footer: &'a [u8],
}

impl<'a> Parts<'a> {
    /// `None` where the content is too short.
    fn of(content: &'a [u8]) -> Option<Self> {
        let (raw, rest) = Raw::read_from_prefix(content).ok()?;
        let (retention, rest) = match RawRetention::read_from_prefix(rest) {
            Ok((limits, rest)) if limits.magic == RawRetention::MAGIC => (limits.retention(), rest),
            _ => (Retention::NONE, rest),
        };
        let (lineage, is_copy, footer) = match RawLineage::read_from_prefix(rest) {
            Ok((line, footer)) if line.magic == RawLineage::MAGIC => {
                (Lineage(line.lineage), line.is_copy.get() == 1, footer)
            }
            _ => (Lineage::default(), false, rest),
        };
        Some(Self { raw, retention, lineage, is_copy, footer })
    }
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
            retention: Retention::NONE,
            lineage: Lineage::default(),
            is_copy: false,
            clean: None,
        }
    }

    /// Draws a new lineage, for a log that from here on has records of its own.
    pub(crate) fn begin_lineage(&mut self) {
        self.lineage = Lineage(LogId::random().0);
        self.is_copy = false;
    }

    pub(crate) fn write(&self, dir: &dyn Dir) -> Result<()> {
        self.write_with(dir, None)
    }

    /// Writes the manifest of a log that was closed cleanly, with the footer of the segment where
    /// it ends.
    pub(crate) fn write_with(&self, dir: &dyn Dir, footer: Option<(&Footer, Salt)>) -> Result<()> {
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
        let mut content = raw.as_bytes().to_vec();
        if self.retention.is_set() {
            content.extend_from_slice(RawRetention::of(self.retention).as_bytes());
        }
        let Self { lineage, is_copy, .. } = *self;
        if is_copy || lineage != Lineage::default() {
            let (magic, is_copy) = (RawLineage::MAGIC, U32::new(u32::from(is_copy)));
            let line = RawLineage { magic, is_copy, lineage: lineage.0 };
            content.extend_from_slice(line.as_bytes());
        }
        if let Some((footer, salt)) = footer {
            content.extend_from_slice(&footer.encode(salt));
        }
        sealed_file::write(dir, MANIFEST, MAGIC, &content)
    }

    /// Reads the footer that was written with this manifest; `None` if there is none, or another
    /// manifest is there by now.
    pub(crate) fn footer(&self, dir: &dyn Dir, salt: Salt) -> Option<Footer> {
        let clean = self.clean?;
        let content = sealed_file::read(dir, MANIFEST, MAGIC).ok()?;
        let parts = Parts::of(&content)?;
        if Self::parse(&content) != Ok(*self) {
            return None;
        }
        let footer = Footer::decode(parts.footer, salt, clean.offset).ok()?;
        let agrees = footer.last_seq == clean.seq && footer.chain == clean.chain;
        agrees.then_some(footer)
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
        let Some(Parts { raw, retention, lineage, is_copy, footer }) = Parts::of(content) else {
            return Err("the content has the wrong length");
        };
        if raw.clean.get() != 1 && !footer.is_empty() {
            return Err("the content has the wrong length");
        }
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
            retention,
            lineage,
            is_copy,
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::path::Path;

    use esker_disk::Disk;
    use esker_disk::sim::SimDisk;

    use super::*;
    use crate::format::IndexEntry;

    fn closed() -> (Manifest, Footer) {
        let mut manifest = Manifest::new(LogId([7; 16]));
        manifest.clean = Some(End { segment: 3, offset: 40 << 10, seq: 90, chain: 5 });
        let index = vec![IndexEntry { seq: 81, prev_seq: 80, unit: 4096, record: 4160 }; 300];
        let (session, time_ms, records) = (1, 2, 10);
        let (end, chain, payload) = (40 << 10, 5, Some(7));
        let (prev_seq, last_seq, has_gap) = (80, 90, false);
        let footer = Footer {
            end,
            records,
            prev_seq,
            last_seq,
            session,
            time_ms,
            chain,
            payload,
            has_gap,
            index,
        };
        (manifest, footer)
    }

    #[test]
    fn only_the_footer_of_this_end_is_returned() {
        let dir = SimDisk::new(1).create_dir(Path::new("/log")).unwrap();
        let (manifest, footer) = closed();
        let salt = Salt::new(manifest.log, 3);
        let limits =
            Retention { bytes: Some(9), age: Some(Duration::from_secs(5)), ..Retention::NONE };
        let limited = Manifest { retention: limits, ..manifest };
        let copy = Manifest { is_copy: true, ..manifest };
        let lineage = Lineage([9; 16]);
        for parts in [limited, copy, Manifest { lineage, ..copy }, Manifest { lineage, ..limited }]
        {
            parts.write_with(&*dir, Some((&footer, salt))).unwrap();
            assert_eq!(Manifest::read(&*dir).unwrap(), Some(parts));
            assert_eq!(parts.footer(&*dir, salt), Some(footer.clone()));
        }
        let kept = |footer: &Footer| {
            manifest.write_with(&*dir, Some((footer, salt))).unwrap();
            assert_eq!(Manifest::read(&*dir).unwrap(), Some(manifest));
            manifest.footer(&*dir, salt)
        };
        assert_eq!(kept(&footer), Some(footer.clone()));
        assert_eq!(manifest.footer(&*dir, Salt::new(manifest.log, 4)), None);
        let other = Manifest { session: 1, ..manifest };
        assert_eq!(other.footer(&*dir, salt), None, "it was written with another manifest");
        assert_eq!(kept(&Footer { chain: 6, ..footer.clone() }), None);
        assert_eq!(kept(&Footer { last_seq: 89, ..footer.clone() }), None);
        assert_eq!(kept(&Footer { end: 36 << 10, ..footer.clone() }), None);
        manifest.write(&*dir).unwrap();
        assert_eq!(manifest.footer(&*dir, salt), None);
    }

    #[test]
    fn a_log_that_goes_on_has_no_footer() {
        let dir = SimDisk::new(1).create_dir(Path::new("/log")).unwrap();
        let (mut manifest, footer) = closed();
        manifest.clean = None;
        manifest.write_with(&*dir, Some((&footer, Salt::new(manifest.log, 3)))).unwrap();
        assert!(matches!(Manifest::read(&*dir), Err(Error::Corrupted(_))));
    }
}
