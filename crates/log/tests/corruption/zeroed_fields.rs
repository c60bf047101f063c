//! Every field of every structure is zeroed, filled with ones, or takes the value of another.
//!
//! Guards: a checksum of zero that means "not checked"; a zero length or magic that is taken for
//! padding, and with it a record for the end of its unit; a length that leads out of the file.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::ops::Range;
use std::path::PathBuf;

use crate::corruption_kit::cases::Cases;
use crate::corruption_kit::edits::overwrite;
use crate::corruption_kit::format::BLOCK;
use crate::corruption_kit::map::{FilePart, in_dir, segment_path};
use crate::corruption_kit::outcomes::{Opened, Openers, open_with};
use crate::corruption_kit::sample::{self, Sample};

const MANIFEST: [usize; 16] = [0, 8, 12, 16, 20, 36, 44, 52, 60, 64, 68, 76, 84, 88, 92, 100];
const WATERMARK_PAGE: [usize; 9] = [0, 4, 8, 24, 32, 40, 48, 56, 64];
const SEGMENT: [usize; 14] = [0, 8, 12, 16, 32, 40, 48, 56, 64, 72, 80, 88, 92, 104];
const UNIT: [usize; 13] = [0, 4, 8, 12, 16, 24, 32, 40, 48, 56, 64, 68, 72];
const FOOTER: [usize; 12] = [0, 4, 8, 12, 16, 24, 32, 40, 48, 56, 60, 64];
const RECORD: [usize; 4] = [0, 4, 8, 16];

fn between(borders: &[usize], start: usize) -> Vec<Range<usize>> {
    borders.windows(2).map(|pair| start + pair[0]..start + pair[1]).collect()
}

/// The byte ranges of the fields of all structures.
fn fields(sample: &Sample) -> Vec<(PathBuf, Range<usize>)> {
    let mut fields = Vec::new();
    let mut add = |file: &PathBuf, ranges: Vec<Range<usize>>| {
        fields.extend(ranges.into_iter().map(|range| (file.clone(), range)));
    };
    add(&in_dir("manifest"), between(&MANIFEST, 0));
    add(&in_dir("mark"), between(&WATERMARK_PAGE, 0));
    add(&in_dir("mark"), between(&WATERMARK_PAGE, BLOCK));
    for segment in &sample.map.segments {
        let file = segment_path(segment.number);
        add(&file, between(&SEGMENT, 0));
        for unit in &segment.units {
            add(&file, between(&UNIT, unit.at.start));
            for record in &unit.records {
                add(&file, between(&RECORD, record.at.start));
            }
        }
        if let Some(footer) = &segment.footer {
            add(&file, between(&FOOTER, footer.start));
            add(&file, between(&[0, 8, 16, 20, 24], footer.start + 64));
        }
    }
    fields
}

/// Other values for a field.
fn values(now: &[u8]) -> Vec<Vec<u8>> {
    let mut backwards = now.to_vec();
    backwards.reverse();
    let mut next = now.to_vec();
    next[0] = next[0].wrapping_add(1);
    let mut values = vec![vec![0; now.len()], vec![0xFF; now.len()], backwards, next];
    values.retain(|value| value != now);
    values
}

fn harm_all(sample: &Sample) -> Cases {
    let mut cases = Cases::default();
    for (file, field) in fields(sample) {
        let now = sample.disk.contents(&file).unwrap()[field.clone()].to_vec();
        for value in values(&now) {
            let (disk, edit) = overwrite(sample, &file, field.start as u64, &value);
            cases.run(format!("{}, {edit}: {value:?}", sample.name), || {
                let opened = open_with(sample, &disk, &edit, Openers::WriterOnly)?;
                let reported = match sample.map.file_part(&file, field.start as u64) {
                    FilePart::Manifest => opened.corruption().is_some(),
                    FilePart::Header(_) | FilePart::Unit(..) => {
                        !sample.clean || opened.corruption().is_some()
                    }
                    _ => matches!(opened, Opened::Whole),
                };
                if reported { Ok(()) } else { Err(format!("the answer is {opened:?}")) }
            });
        }
    }
    cases
}

/// Each change is reported, or changes no record that is read.
#[test]
fn every_zeroed_field_of_a_closed_log() {
    harm_all(&sample::closed()).finish(800);
}

#[test]
fn every_zeroed_field_of_a_killed_log() {
    harm_all(&sample::killed()).finish(800);
}

#[test]
fn every_zeroed_field_of_a_repaired_log() {
    harm_all(&sample::quarantined()).finish(800);
}
