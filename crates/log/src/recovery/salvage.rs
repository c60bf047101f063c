//! Reads the valid records of corrupt files, one by one.
//!
//! Reading, opening and `repair` take whole commit units. Here a record counts if its own checksum
//! matches, which covers its place, its length and its number, and if its number is above that of
//! the record before it. After bytes that are no record the search continues at each next multiple
//! of eight, where records start. The zeros after a record have no checksum, so they may be
//! anything.
//!
//! The time is linear in the bytes of a file, whatever they are: bytes that look like the start of
//! a long record cost a few steps and at most a block, by [`RangeChecks`]. Only the first such
//! record of a file is read whole.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use esker_disk::{Dir, Disk, File, OpenMode};

use crate::base::error::{Corruption, Result};
use crate::base::operation_errors::RepairError;
use crate::base::position::{Position, Seq};
use crate::base::read_options::ReadOptions;
use crate::format::footer::FOOTER_HEADER_BYTES;
use crate::format::record::{RECORD_HEADER, RecordHeader};
use crate::format::unit::{UNIT_HEADER, UnitKind};
use crate::format::{
    BLOCK_BYTES, Footer, LogId, RECORD_LIMIT_MAX, SEGMENT_MAX, Salt, SegmentHeader, UnitHeader,
};
use crate::recovery::range_sums::RangeChecks;
use crate::recovery::repair::{manifest_or_rebuilt, verify};
use crate::recovery::scan::read_segment_header;
use crate::store::directory::{self, not_a_log};
use crate::store::paths::{self, Name};
use crate::store::segment_reader::SegmentReader;

/// The distance of places where a record may start.
const RECORD_ALIGNMENT_BYTES: u32 = 8;

/// An item that [`Salvage`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Salvaged {
    /// A valid record.
    Record(SalvagedRecord),
    /// Records that should come next, and are in no file: every number above `from` and up to `to`.
    /// Some may be in bytes that were skipped, and some may never have been assigned.
    Missing {
        /// The record before them.
        from: Seq,
        /// The last of them.
        to: Seq,
    },
    /// Records that a repair quarantined: every number above `from` and up to `to`.
    Quarantined {
        /// The record before them.
        from: Seq,
        /// The last of them.
        to: Seq,
    },
    /// Bytes that belong to no valid record.
    Skipped {
        /// The file.
        file: PathBuf,
        /// The offset in the file.
        offset: u64,
        /// How many.
        bytes: u64,
    },
}

/// A valid record in a corrupt file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SalvagedRecord {
    /// Its number.
    pub seq: Seq,
    /// The number of the record before it. `None` if that one was not found.
    pub prev: Option<Seq>,
    /// Its position. `None` where the header of the segment is not there.
    pub position: Option<Position>,
    /// The time of its commit. `None` where the header of the commit is not valid.
    pub time: Option<SystemTime>,
    /// Its payload.
    pub payload: Vec<u8>,
}

/// The valid records of corrupt files, in ascending order of their numbers; from [`salvage`] or
/// [`salvage_log`]. Memory is that of the largest record, and four megabytes.
#[derive(Debug)]
pub struct Salvage {
    files: VecDeque<Source>,
    walk: Option<Walk>,
    /// The number of the last record. `None` before the first one of a single file: any may have
    /// come before it.
    last: Option<u64>,
    /// The last durable record of a log: none after it is returned, and none up to it may be
    /// missing. `None` for a single file.
    upto: Option<u64>,
    /// A record that comes after missing ones.
    next: Option<SalvagedRecord>,
    /// Records that a repair quarantined, after missing ones.
    gap: Option<(Seq, Seq)>,
    /// A description of what is wrong with the manifest.
    manifest: Option<Corruption>,
}

/// A file to read.
#[derive(Debug)]
struct Source {
    file: Arc<dyn File>,
    path: PathBuf,
    salt: Salt,
    /// The offset in the segment of the first byte of the file.
    first: u32,
    /// The position of the segment's first byte.
    base: Option<u64>,
    /// The offsets in the file at which reading starts and ends.
    from: u32,
    until: u64,
}

/// Opens a file that `repair` quarantined, or a segment, of the log in whose directory it is.
/// Changes nothing.
///
/// # Errors
/// [`RepairError::NotALog`](crate::RepairError::NotALog) if its name is not that of such a file, or
/// there is no log around it; `Corrupted` if the manifest is corrupt and the other files do not
/// name the log; `UnsupportedVersion` and `Io`.
pub fn salvage(
    file: impl AsRef<Path>,
    options: impl Into<ReadOptions>,
) -> Result<Salvage, RepairError> {
    open_file(file.as_ref(), &*options.into().disk).map_err(RepairError::narrow)
}

fn open_file(path: &Path, disk: &dyn Disk) -> Result<Salvage> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let above = path.parent().unwrap_or(Path::new(""));
    let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
    let dir = disk.open_dir(above)?;
    let (number, first, log) = match (paths::classify(name), quarantined(name)) {
        (Name::Segment(number), _) => (number, 0, manifest_or_rebuilt(&*dir)?.0.log),
        (_, Some((number, first))) => {
            let log = disk.open_dir(&parent(above))?;
            (number, first, manifest_or_rebuilt(&*log)?.0.log)
        }
        _ => return Err(not_a_log(path, "its name is not that of a segment or quarantined bytes")),
    };
    let source = Source::open(&*dir, name, log, number, first)?;
    let files = VecDeque::from([source]);
    let manifest = None;
    Ok(Salvage { files, walk: None, last: None, upto: None, next: None, gap: None, manifest })
}

/// Opens all segments of the log in a directory, for its durable records. Reads the log first, to
/// find how far it is durable. Changes nothing, and is for a log that no writer has open.
///
/// # Errors
/// As [`salvage`].
pub fn salvage_log(
    dir: impl AsRef<Path>,
    options: impl Into<ReadOptions>,
) -> Result<Salvage, RepairError> {
    open_log(dir.as_ref(), &options.into()).map_err(RepairError::narrow)
}

fn open_log(dir: &Path, options: &ReadOptions) -> Result<Salvage> {
    let report = verify(dir, options.clone())?;
    let dir = directory::open(dir, &*options.disk)?;
    let (manifest, corruption) = manifest_or_rebuilt(&*dir)?;
    let mut files: VecDeque<Source> = VecDeque::new();
    for name in dir.list()? {
        let Name::Segment(number) = paths::classify(&name) else { continue };
        if number < manifest.trim_segment {
            continue;
        }
        let mut source = Source::open(&*dir, &name, manifest.log, number, 0)?;
        if let Ok((header, _)) = read_segment_header(&*source.file, &manifest, number)? {
            begins(&mut files, &mut source, &header);
        }
        files.push_back(source);
    }
    let mut upto = report.durable_bound;
    if corruption.is_some() {
        // What else was durable is not known without the manifest: a repair keeps all of them.
        upto = upto.max(report.last);
    }
    let (last, upto) = (Some(manifest.trim_seq), Some(upto.0));
    Ok(Salvage { files, walk: None, last, upto, next: None, gap: None, manifest: corruption })
}

/// The segment before this header ends where this one begins. What follows there is dead, whichever
/// segment it is in.
fn begins(before: &mut VecDeque<Source>, source: &mut Source, header: &SegmentHeader) {
    source.base = Some(header.base);
    while before.back().is_some_and(|last| last.base.is_some_and(|base| base >= header.base)) {
        before.pop_back();
    }
    if let Some(last) = before.back_mut()
        && let Some(base) = last.base
    {
        last.until = last.until.min(header.base - base);
    }
}

/// The directory above another one.
fn parent(dir: &Path) -> PathBuf {
    match dir.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.into(),
        Some(_) if dir != Path::new(".") && dir != Path::new("..") => ".".into(),
        _ => dir.join(".."),
    }
}

/// The segment and the offset in the name of a quarantined file.
fn quarantined(name: &str) -> Option<(u64, u32)> {
    let mut parts = name.strip_suffix(".bytes")?.split('-');
    let (number, first): (u64, u32) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    (first <= SEGMENT_MAX && first.is_multiple_of(BLOCK_BYTES)).then_some((number, first))
}

impl Source {
    fn open(dir: &dyn Dir, name: &str, log: LogId, number: u64, first: u32) -> Result<Self> {
        let file = dir.open(name, OpenMode::read())?;
        Ok(Self {
            until: file.len()?,
            file,
            path: dir.path_of(name),
            salt: Salt::new(log, number),
            first,
            base: None,
            from: if first == 0 { BLOCK_BYTES } else { 0 },
        })
    }
}

/// A file that is being read.
#[derive(Debug)]
struct Walk {
    source: Source,
    image: SegmentReader<'static>,
    checks: RangeChecks,
    /// The offset in the file.
    at: u32,
    /// The number before the next record, if it is known.
    prev: Option<u64>,
    time: Option<SystemTime>,
    /// Bytes that are no record, up to here.
    skipped: Option<(u32, u32)>,
    /// A record that comes after them.
    next: Option<SalvagedRecord>,
}

/// The contents of a file at an offset.
enum Content {
    /// The bytes of zeros, of the header of a commit, or of a record that does not count.
    Nothing(u32),
    /// Records that a repair quarantined, up to this one, and the bytes in their place.
    Gap(u64, u32),
    Record(RecordHeader),
    Corrupt,
    End,
}

impl Walk {
    fn new(source: Source) -> Result<Self> {
        let mut image = SegmentReader::new(Arc::clone(&source.file))?;
        image.end_at(source.until);
        let at = source.from;
        let (checks, prev, time) = (RangeChecks::default(), None, None);
        Ok(Self { source, image, checks, at, prev, time, skipped: None, next: None })
    }

    /// The next record above `last`, or bytes that were skipped. `None` at the end of the file.
    fn advance(&mut self, last: u64) -> Result<Option<Salvaged>> {
        if let Some(record) = self.next.take() {
            return Ok(Some(Salvaged::Record(record)));
        }
        loop {
            match self.there(last)? {
                Content::End => return Ok(self.take_skipped()),
                Content::Nothing(bytes) => self.at += bytes,
                Content::Gap(to, bytes) => {
                    if let Some(skipped) = self.take_skipped() {
                        return Ok(Some(skipped));
                    }
                    let from = Seq(self.prev.unwrap_or_default().max(last));
                    self.at += bytes;
                    self.prev = Some(to);
                    return Ok(Some(Salvaged::Quarantined { from, to: Seq(to) }));
                }
                Content::Corrupt => {
                    let from = self.skipped.map_or(self.at, |(from, _)| from);
                    self.at += RECORD_ALIGNMENT_BYTES;
                    self.skipped = Some((from, self.at));
                    self.prev = None;
                }
                Content::Record(header) => {
                    let record = self.record(header)?;
                    return Ok(Some(match self.take_skipped() {
                        Some(skipped) => {
                            self.next = Some(record);
                            skipped
                        }
                        None => Salvaged::Record(record),
                    }));
                }
            }
        }
    }

    fn take_skipped(&mut self) -> Option<Salvaged> {
        let (from, to) = self.skipped.take()?;
        let file = self.source.path.clone();
        Some(Salvaged::Skipped { file, offset: from.into(), bytes: (to - from).into() })
    }

    fn there(&mut self, last: u64) -> Result<Content> {
        let (at, place) = (u64::from(self.at), self.source.first + self.at);
        let bytes = self.image.at(at, BLOCK_BYTES as usize)?;
        let Some(word) = bytes.first_chunk::<{ RECORD_ALIGNMENT_BYTES as usize }>() else {
            return Ok(Content::End);
        };
        if *word == [0; RECORD_ALIGNMENT_BYTES as usize] {
            return Ok(Content::Nothing(RECORD_ALIGNMENT_BYTES));
        }
        let record = RecordHeader::parse(bytes);
        if place.is_multiple_of(BLOCK_BYTES) {
            if let Ok((header, _)) = UnitHeader::parse(bytes, self.source.salt, place) {
                let time = UNIX_EPOCH + Duration::from_millis(header.time_ms);
                (self.prev, self.time) = (Some(header.prev_seq), Some(time));
                return Ok(match header.kind {
                    UnitKind::Data => Content::Nothing(UNIT_HEADER),
                    UnitKind::Gap if header.last_seq > last.max(header.prev_seq) => {
                        Content::Gap(header.last_seq, header.span())
                    }
                    UnitKind::Gap => Content::Nothing(header.span()),
                });
            }
            // Nothing follows the footer of a segment.
            if let Ok((entries, sum)) = Footer::entries(bytes, self.source.salt, place)
                && self.has_sum(FOOTER_HEADER_BYTES as u32, entries, sum)?
            {
                return Ok(Content::End);
            }
            // Whatever follows is of another commit.
            self.time = None;
        }
        let Ok(header) = record else { return Ok(Content::Corrupt) };
        let sum = header.payload_crc(self.source.salt, place);
        if !self.has_sum(RECORD_HEADER, header.size - RECORD_HEADER, sum)? {
            return Ok(Content::Corrupt);
        }
        // Truncated, or cut off.
        if header.seq <= last {
            self.prev = Some(header.seq);
            return Ok(Content::Nothing(header.stored()));
        }
        Ok(Content::Record(header))
    }

    /// Whether so many bytes after a header at this offset have this checksum.
    fn has_sum(&mut self, header: u32, len: u32, sum: u32) -> Result<bool> {
        // No record is longer, and no footer needs to be found that is.
        Ok(len <= RECORD_LIMIT_MAX
            && self.checks.has_sum(&mut self.image, self.at.into(), header, len, sum)?)
    }

    /// The record at this offset, which is valid.
    fn record(&mut self, header: RecordHeader) -> Result<SalvagedRecord> {
        let stored = self.image.at(self.at.into(), header.size as usize)?;
        let payload = stored[RECORD_HEADER as usize..].to_vec();
        let place = u64::from(self.source.first + self.at);
        let record = SalvagedRecord {
            seq: Seq(header.seq),
            prev: self.prev.map(Seq),
            position: self.source.base.map(|base| Position(base + place)),
            time: self.time,
            payload,
        };
        self.prev = Some(header.seq);
        self.at += header.stored();
        Ok(record)
    }
}

impl Iterator for Salvage {
    type Item = Result<Salvaged, RepairError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.advance();
        if !matches!(next, Ok(Some(_))) {
            // Nothing follows the end, or an error.
            (self.walk, self.files, self.upto) = (None, VecDeque::new(), None);
        }
        next.map_err(RepairError::narrow).transpose()
    }
}

impl Salvage {
    /// The fault of the log's manifest. Then records that were truncated may be among
    /// those that are returned. `None` also for a single file.
    pub fn manifest_corruption(&self) -> Option<&Corruption> {
        self.manifest.as_ref()
    }

    fn advance(&mut self) -> Result<Option<Salvaged>> {
        if let Some(record) = self.next.take() {
            return Ok(Some(self.take(record)));
        }
        if let Some((from, to)) = self.gap.take() {
            return Ok(Some(Salvaged::Quarantined { from, to }));
        }
        while self.upto.is_none() || self.last < self.upto {
            let walk = match &mut self.walk {
                Some(walk) => walk,
                None => match self.files.pop_front() {
                    Some(source) => self.walk.insert(Walk::new(source)?),
                    None => return Ok(self.missing_before(self.upto)),
                },
            };
            match walk.advance(self.last.unwrap_or_default())? {
                None => self.walk = None,
                Some(Salvaged::Record(record)) => {
                    if self.upto.is_some_and(|upto| record.seq.0 > upto) {
                        return Ok(self.missing_before(self.upto));
                    }
                    let missing = self.missing_before(record.prev.map(|prev| prev.0));
                    if missing.is_some() {
                        self.next = Some(record);
                        return Ok(missing);
                    }
                    return Ok(Some(self.take(record)));
                }
                Some(Salvaged::Quarantined { from, to }) => {
                    if self.upto.is_some_and(|upto| from.0 >= upto) {
                        return Ok(self.missing_before(self.upto));
                    }
                    let missing = self.missing_before(Some(from.0));
                    self.last = Some(to.0);
                    self.gap = missing.is_some().then_some((from, to));
                    return Ok(missing.or(Some(Salvaged::Quarantined { from, to })));
                }
                skipped => return Ok(skipped),
            }
        }
        Ok(None)
    }

    fn take(&mut self, record: SalvagedRecord) -> Salvaged {
        self.last = Some(record.seq.0);
        Salvaged::Record(record)
    }

    /// The numbers that are missing up to one that a record had. It is reported once.
    fn missing_before(&mut self, to: Option<u64>) -> Option<Salvaged> {
        let (from, to) = self.last.zip(to).filter(|(from, to)| from < to)?;
        self.last = Some(to);
        Some(Salvaged::Missing { from: Seq(from), to: Seq(to) })
    }
}
