//! The manifest: the facts about a log that are not in its segments.
//!
//! After a clean close it also has the footer of the segment that the log ends in, if the log is
//! not shorter than what opening checks anyway. The footer leaves the manifest with the clean end,
//! before the next unit is written.
//!
//! ```text
//! content: 80 bytes as in `Raw`, then 36 as in `RawRetention` if there is a limit, then 220 as in
//!          `RawLineage` for a log that is or was a copy, or lost records, then the footer without
//!          the zeros at its end, or nothing
//! ```
//!
//! # Lineages
//!
//! Logs with one id may differ: a copy that is opened for writing continues by itself, and a repair
//! that gives records up may assign their numbers again. Each of these draws a new lineage, durably
//! and before the first append. *Two logs with one id and one lineage never have different records
//! under one number.* A copy has the lineage of its original until it is opened for writing. A
//! lineage knows those that it comes from, and up to which record it shares theirs.

use std::time::Duration;

use esker_disk::Dir;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::base::error::{Error, Result, corruption_at};
use crate::base::options::Retention;
use crate::format::{Footer, LogId, NUMBER_MAX, Salt};
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
    /// The limits of the last session that had some. A session without limits that appended clears
    /// them when it closes.
    pub(crate) retention: Retention,
    pub(crate) lineage: Lineage,
    /// The lineages that it comes from, the last one first.
    pub(crate) ancestors: [Option<Ancestor>; ANCESTORS_MAX],
    /// Whether this is a copy that was not opened for writing yet.
    pub(crate) is_copy: bool,
    /// The end of the log, after a clean close and until the next opening for writing.
    pub(crate) clean: Option<End>,
}

/// Which of the logs with one id this is. Zeros until one continues by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Lineage([u8; 16]);

/// A lineage that another comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ancestor {
    pub(crate) lineage: Lineage,
    /// The last record that both have.
    pub(crate) upto: u64,
}

/// The most ancestors that a manifest has. The oldest are forgotten.
const ANCESTORS_MAX: usize = 8;

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

    fn new(retention: Retention) -> Self {
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
    /// The number of ancestors.
    count: U32,
    ancestors: [RawAncestor; ANCESTORS_MAX],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
struct RawAncestor {
    lineage: [u8; 16],
    upto: U64,
}

impl RawLineage {
    const MAGIC: [u8; 4] = *b"LINE";

    fn from_manifest(manifest: &Manifest) -> Self {
        let raw = |ancestor: Option<Ancestor>| RawAncestor {
            lineage: ancestor.map_or([0; 16], |ancestor| ancestor.lineage.0),
            upto: U64::new(ancestor.map_or(0, |ancestor| ancestor.upto)),
        };
        Self {
            magic: Self::MAGIC,
            is_copy: U32::new(u32::from(manifest.is_copy)),
            lineage: manifest.lineage.0,
            count: U32::new(manifest.ancestors.iter().flatten().count() as u32),
            ancestors: manifest.ancestors.map(raw),
        }
    }

    fn ancestors(&self) -> [Option<Ancestor>; ANCESTORS_MAX] {
        let mut left = self.count.get();
        self.ancestors.map(|raw| {
            let is_there = left > 0;
            left = left.saturating_sub(1);
            let ancestor = Ancestor { lineage: Lineage(raw.lineage), upto: raw.upto.get() };
            is_there.then_some(ancestor)
        })
    }
}

/// The parts of the content.
struct ManifestParts<'a> {
    raw: Raw,
    retention: Retention,
    line: Option<RawLineage>,
    footer: &'a [u8],
}

impl<'a> ManifestParts<'a> {
    /// `None` where the content is too short.
    fn split(content: &'a [u8]) -> Option<Self> {
        let (raw, rest) = Raw::read_from_prefix(content).ok()?;
        let (retention, rest) = match RawRetention::read_from_prefix(rest) {
            Ok((limits, rest)) if limits.magic == RawRetention::MAGIC => (limits.retention(), rest),
            _ => (Retention::NONE, rest),
        };
        let (line, footer) = match RawLineage::read_from_prefix(rest) {
            Ok((line, footer)) if line.magic == RawLineage::MAGIC => (Some(line), footer),
            _ => (None, rest),
        };
        Some(Self { raw, retention, line, footer })
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
            ancestors: [None; ANCESTORS_MAX],
            is_copy: false,
            clean: None,
        }
    }

    /// Draws a new lineage, for a log that after this record has records of its own.
    pub(crate) fn begin_lineage(&mut self, upto: u64) {
        let before = Ancestor { lineage: self.lineage, upto };
        self.draw_lineage();
        self.ancestors.rotate_right(1);
        self.ancestors[0] = Some(before);
    }

    /// Draws a new lineage, for a log whose own is not known.
    pub(crate) fn draw_lineage(&mut self) {
        self.lineage = Lineage(LogId::random().0);
        self.is_copy = false;
    }

    /// The last record that this log shares with those of a lineage; `None` if it is not known to
    /// come from that one.
    pub(crate) fn shares_upto(&self, lineage: Lineage) -> Option<u64> {
        if lineage == self.lineage {
            return Some(u64::MAX);
        }
        let mut upto = u64::MAX;
        self.ancestors.iter().flatten().find_map(|ancestor| {
            upto = upto.min(ancestor.upto);
            (ancestor.lineage == lineage).then_some(upto)
        })
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
            content.extend_from_slice(RawRetention::new(self.retention).as_bytes());
        }
        if self.is_copy || self.lineage != Lineage::default() {
            content.extend_from_slice(RawLineage::from_manifest(self).as_bytes());
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
        let parts = ManifestParts::split(&content)?;
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
        let Some(ManifestParts { raw, retention, line, footer }) = ManifestParts::split(content)
        else {
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
            lineage: line.as_ref().map_or_else(Lineage::default, |line| Lineage(line.lineage)),
            ancestors: line.as_ref().map_or([None; ANCESTORS_MAX], RawLineage::ancestors),
            is_copy: line.is_some_and(|line| line.is_copy.get() == 1),
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
            None => {
                Err(Error::NotALog { dir: dir.path().into(), found: "it has no manifest".into() })
            }
        }
    }
}

/// The error for a log whose manifest is missing while its other files are there.
pub(crate) fn lost(dir: &dyn Dir) -> Error {
    corrupt(dir, "the manifest is missing, and other files of the log are there")
}

fn corrupt(dir: &dyn Dir, what: &str) -> Error {
    corruption_at(&dir.path_of(MANIFEST), 0, 0, what)
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
        let mut descended = Manifest { lineage, ..limited };
        descended.begin_lineage(7);
        for parts in [limited, copy, Manifest { lineage, ..copy }, descended] {
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
    fn a_lineage_shares_what_each_on_the_way_shares() {
        let mut manifest = Manifest::new(LogId([7; 16]));
        let mut seen = vec![manifest.lineage];
        for upto in [90, 40, 60] {
            manifest.begin_lineage(upto);
            seen.push(manifest.lineage);
        }
        let all: Vec<_> = seen.iter().map(|of| manifest.shares_upto(*of)).collect();
        assert_eq!(all, [Some(40), Some(40), Some(60), Some(u64::MAX)]);
        assert_eq!(manifest.shares_upto(Lineage([1; 16])), None);
        for _ in 0..ANCESTORS_MAX {
            manifest.begin_lineage(100);
        }
        assert_eq!(manifest.shares_upto(seen[3]), Some(100));
        assert_eq!(manifest.shares_upto(seen[2]), None, "it was forgotten");
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
