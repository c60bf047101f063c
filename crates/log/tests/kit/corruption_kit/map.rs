//! Where everything is stored in the files of a valid log.

use std::ops::Range;
use std::path::{Path, PathBuf};

use esker_disk::sim::SimDisk;

use super::DIR;
use super::format::{self, BLOCK, Segment, UNIT_HEADER, Unit, WATERMARK_PAGE};

/// The layout of a log, decoded from its files.
#[derive(Debug, Clone)]
pub struct Map {
    /// Segments with a header, oldest first.
    pub segments: Vec<Segment>,
    pub durable_bounds: Vec<DurableBound>,
}

/// Bytes that say how far the log was durable.
#[derive(Debug, Clone)]
pub struct DurableBound {
    pub file: PathBuf,
    pub at: Range<u64>,
    pub seq: u64,
}

/// The structure that a byte belongs to.
#[derive(Debug, Clone, Copy)]
pub enum FilePart<'a> {
    Header(&'a Segment),
    Unit(&'a Segment, &'a Unit),
    Footer(&'a Segment),
    /// Past the end of a segment's units and footer.
    PastTheEnd(&'a Segment),
    Manifest,
    WatermarkPage,
    /// The mark page after the bytes that count.
    PagePadding,
    /// A segment file without a header, the lock, a spare.
    Nothing,
}

pub fn in_dir(name: &str) -> PathBuf {
    Path::new(DIR).join(name)
}

pub fn segment_path(number: u64) -> PathBuf {
    in_dir(&format!("{number:020}.seg"))
}

impl Map {
    pub fn read(disk: &SimDisk) -> Self {
        let mut map = Self { segments: Vec::new(), durable_bounds: Vec::new() };
        for name in disk.files(Path::new(DIR)).unwrap() {
            let file = in_dir(&name);
            let Ok(bytes) = disk.contents(&file) else { continue };
            let claim = |at: Range<usize>, seq| DurableBound {
                file: file.clone(),
                at: at.start as u64..at.end as u64,
                seq,
            };
            if name == "manifest" {
                let end = format::clean_end(&bytes);
                map.durable_bounds.extend(end.map(|(_, _, seq)| claim(0..bytes.len(), seq)));
                map.durable_bounds.push(claim(0..bytes.len(), format::durable(&bytes)));
            } else if name == "mark" {
                map.durable_bounds
                    .extend(format::slots(&bytes).into_iter().map(|(at, _, seq)| claim(at, seq)));
            } else if let Some(segment) = format::segment(&bytes) {
                map.durable_bounds.push(claim(0..BLOCK, segment.claim));
                map.durable_bounds.extend(
                    segment
                        .units
                        .iter()
                        .map(|unit| claim(unit.at.start..unit.at.start + UNIT_HEADER, unit.claim)),
                );
                let orphan_units = segment.orphan_units.iter();
                map.durable_bounds
                    .extend(orphan_units.map(|(at, seq)| claim(*at..*at + UNIT_HEADER, *seq)));
                map.segments.push(segment);
            }
        }
        map
    }

    pub fn newest(&self) -> &Segment {
        self.segments.last().unwrap()
    }

    pub fn file_part(&self, file: &Path, at: u64) -> FilePart<'_> {
        let at = at as usize;
        match file.file_name().and_then(|name| name.to_str()) {
            Some("manifest") => return FilePart::Manifest,
            Some("mark") if at < 2 * BLOCK && at % BLOCK < WATERMARK_PAGE => {
                return FilePart::WatermarkPage;
            }
            Some("mark") => return FilePart::PagePadding,
            _ => {}
        }
        let owner = self.segments.iter().find(|segment| segment_path(segment.number) == file);
        let Some(segment) = owner else { return FilePart::Nothing };
        if at < format::BLOCK {
            return FilePart::Header(segment);
        }
        if let Some(unit) = segment.units.iter().find(|unit| unit.at.contains(&at)) {
            return FilePart::Unit(segment, unit);
        }
        match &segment.footer {
            Some(footer) if footer.contains(&at) => FilePart::Footer(segment),
            _ => FilePart::PastTheEnd(segment),
        }
    }

    /// The last record of the units that these bytes of a segment file touch.
    pub fn last_corrupted(&self, file: &Path, corrupted: &Range<u64>) -> Option<u64> {
        let owner = self.segments.iter().find(|segment| segment_path(segment.number) == file)?;
        let touched = |unit: &&Unit| {
            (unit.at.start as u64) < corrupted.end && corrupted.start < unit.at.end as u64
        };
        owner.units.iter().filter(touched).map(|unit| unit.last_seq).max()
    }

    /// Whether harm to a header leaves nothing that says that the segment's last unit was durable.
    /// Then the unit is a torn tail.
    pub fn is_headless_tail(&self, file: &Path, corrupted: &Range<u64>) -> bool {
        let FilePart::Header(segment) = self.file_part(file, corrupted.start) else { return false };
        let last = segment.units.last().map_or(0, |unit| unit.last_seq);
        last > self.durable_bound_without(file, corrupted)
    }

    /// The highest claim that is left when these bytes of a file are harmed.
    pub fn durable_bound_without(&self, file: &Path, corrupted: &Range<u64>) -> u64 {
        let corrupted = |claim: &&DurableBound| {
            claim.file == file && claim.at.start < corrupted.end && corrupted.start < claim.at.end
        };
        let left = self.durable_bounds.iter().filter(|claim| !corrupted(claim));
        left.map(|claim| claim.seq).max().unwrap_or(0)
    }
}
