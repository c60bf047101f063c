//! The files of a log, with the headers of its segments.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;

use esker_disk::{AlignedBuf, Dir, File, OpenMode, Read, read_full_at};

use super::number_range;
use crate::base::error::{Error, Result};
use crate::base::read_options::ReadOptions;
use crate::format::segment::HeaderError;
use crate::format::{BLOCK_BYTES, DecodeError, SegmentHeader};
use crate::store::manifest::Manifest;
use crate::store::paths::{self, Name};
use crate::store::segment_reader::ReadErrors;

/// Segments of which headers or footers are read together.
pub(super) const SEGMENTS_PER_READ: usize = 64;

pub(super) type ParsedHeader = std::result::Result<(SegmentHeader, u32), HeaderError>;
/// The segment files, by number.
pub(super) type Headers = BTreeMap<u64, (Arc<dyn File>, ParsedHeader)>;

/// How a log is read.
pub(crate) struct ScanMode<'a> {
    /// Reads past the page cache.
    pub(crate) direct: bool,
    /// For an opening, which may trust footers, and keeps what it needs of the segments.
    pub(crate) opening: Option<&'a ReadOptions>,
    /// The blocks that could not be read.
    pub(crate) read_errors: &'a ReadErrors,
}

/// The files in the directory of a log.
pub(crate) struct Files {
    pub(super) headers: Headers,
    /// Segments that left the log, and whose files opening removes.
    pub(crate) dropped: Vec<u64>,
    /// Numbers of spare files.
    pub(crate) spares: Vec<u64>,
    /// Temporary files that were never renamed.
    pub(crate) temporary: Vec<String>,
    /// The highest number of a segment that is known to have been used.
    pub(crate) highest_number: u64,
}

impl Files {
    /// Lists the directory of a log with this manifest, and reads the header of each segment.
    ///
    /// # Errors
    /// `UnsupportedVersion` or `ForeignFile` for files that are not this log's, and disk errors.
    pub(super) fn read(dir: &dyn Dir, manifest: &Manifest, how: &ScanMode<'_>) -> Result<Self> {
        let mut files = Self {
            headers: Headers::new(),
            dropped: Vec::new(),
            spares: Vec::new(),
            temporary: Vec::new(),
            highest_number: 0,
        };
        let mut numbers = Vec::new();
        for name in dir.list()? {
            match paths::classify(&name) {
                Name::Segment(number) if number < manifest.trim_segment => {
                    // Opening removes this file, so it must belong to this log.
                    if may_be_removed(dir, manifest, number, how.direct)? {
                        files.dropped.push(number);
                    }
                }
                Name::Segment(number) => numbers.push(number),
                Name::Spare(number) => files.spares.push(number),
                Name::Temporary => files.temporary.push(name),
                Name::Known | Name::Unknown => continue,
            }
        }
        for numbers in numbers.chunks(SEGMENTS_PER_READ) {
            files.open(dir, manifest, numbers, how)?;
        }
        let reached =
            number_range::retain(&mut files.headers, manifest, |(_, parsed)| parsed.is_ok());
        files.spares.retain(|number| number_range::is_within(reached, *number));
        let named = files.headers.keys().chain(&files.spares).chain(&files.dropped);
        files.highest_number = named.copied().fold(reached, u64::max);
        Ok(files)
    }

    /// Opens some segments and reads their headers.
    fn open(
        &mut self,
        dir: &dyn Dir,
        manifest: &Manifest,
        numbers: &[u64],
        how: &ScanMode<'_>,
    ) -> Result<()> {
        let mut files = Vec::new();
        for &number in numbers {
            match dir.open(&paths::segment(number), OpenMode::read().direct(how.direct)) {
                Ok(file) => files.push((number, file)),
                // It left the log after it was listed.
                Err(cause) if cause.kind() == ErrorKind::NotFound => {}
                Err(cause) => return Err(cause.into()),
            }
        }
        let mut blocks: Vec<_> =
            files.iter().map(|_| AlignedBuf::new(BLOCK_BYTES as usize)).collect();
        let mut reads: Vec<_> = files
            .iter()
            .zip(&mut blocks)
            .map(|((_, file), buf)| Read { file: &**file, buf, offset: 0 })
            .collect();
        let read = dir.read_each(&mut reads);
        for (((number, file), block), read) in files.into_iter().zip(blocks).zip(read) {
            let path = || dir.path_of(&paths::segment(number));
            let parse = |got: usize| SegmentHeader::parse(&block[..got], manifest.log, number);
            let again = || read_segment_header(&*file, manifest, number);
            let parsed = match read.map(parse).or_else(|_| again()) {
                Ok(parsed) => parsed,
                Err(Error::Io(cause)) => {
                    how.read_errors.note(0, &cause);
                    Err(HeaderError::Invalid(DecodeError::Unreadable))
                }
                Err(error) => return Err(error),
            };
            match parsed {
                Err(HeaderError::Version(version)) => {
                    return Err(Error::UnsupportedVersion { file: path(), version });
                }
                Err(HeaderError::Foreign(_)) => {
                    return Err(Error::ForeignFile { file: path() });
                }
                _ => {}
            }
            self.headers.insert(number, (file, parsed));
        }
        Ok(())
    }

    pub(super) fn has_valid_header(&self) -> bool {
        self.headers.values().any(|(_, parsed)| parsed.is_ok())
    }

    /// The numbers of the files that are not among these live segments: those that hold something,
    /// and those that never got a header.
    pub(crate) fn dead(&self, live: &[u64]) -> (Vec<u64>, Vec<u64>) {
        let is_blank = |number: &u64| {
            let parsed = self.headers.get(number).map(|(_, parsed)| parsed);
            matches!(parsed, Some(Err(HeaderError::Invalid(DecodeError::Blank))))
        };
        let others = self.headers.keys().filter(|number| !live.contains(number));
        let (blank, mut dead): (Vec<u64>, Vec<u64>) = others.partition(|number| is_blank(number));
        dead.extend(&self.dropped);
        dead.sort_unstable();
        (dead, blank)
    }
}

/// Reads the first block of a segment file.
pub(crate) fn read_segment_header(
    file: &dyn File,
    manifest: &Manifest,
    number: u64,
) -> Result<ParsedHeader> {
    let mut block = AlignedBuf::new(BLOCK_BYTES as usize);
    let got = read_full_at(file, &mut block, 0)?;
    Ok(SegmentHeader::parse(&block[..got], manifest.log, number))
}

/// Whether opening may remove the file of a dead segment. Refuses one that another log wrote, and
/// passes over what is no regular file.
fn may_be_removed(dir: &dyn Dir, manifest: &Manifest, number: u64, direct: bool) -> Result<bool> {
    let name = paths::segment(number);
    let file = match dir.open(&name, OpenMode::read().direct(direct)) {
        Ok(file) => file,
        // A missing or unreadable file cannot be attributed to any log.
        Err(cause) => {
            let is_file = cause.refusal().is_none() && cause.kind() != ErrorKind::IsADirectory;
            return Ok(is_file);
        }
    };
    match read_segment_header(&*file, manifest, number) {
        Ok(Err(HeaderError::Foreign(_))) => Err(Error::ForeignFile { file: dir.path_of(&name) }),
        _ => Ok(true),
    }
}
