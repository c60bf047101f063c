//! Every file of a small log is cut to every length.
//!
//! Guards: an end of the file taken for the end of the log, or for padding; a cut tail that takes
//! whole records with it; a read past the end; a cut file after a clean close that goes unnoticed.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;
use std::path::Path;

use crate::corruption_kit::cases::Cases;
use crate::corruption_kit::edits::cut;
use crate::corruption_kit::format::BLOCK;
use crate::corruption_kit::map::{FilePart, in_dir};
use crate::corruption_kit::outcomes::{Opened, Openers, open_with};
use crate::corruption_kit::sample::{self, Sample};
use crate::corruption_kit::{self, DIR};

/// The lengths to which a file is cut: all in the last units, everywhere else those on both sides
/// of every border, and some in between.
fn lengths(sample: &Sample, file: &Path, len: usize) -> BTreeSet<usize> {
    let owner = sample
        .map
        .segments
        .iter()
        .find(|segment| corruption_kit::map::segment_path(segment.number) == file);
    let Some(segment) = owner else {
        return (0..len).filter(|n| *n < 100 || n % 64 == 0).collect();
    };
    let mut borders: Vec<usize> = (0..=len).step_by(BLOCK).collect();
    for unit in &segment.units {
        borders.extend([unit.at.start, unit.at.start + unit.used, unit.at.end]);
        borders
            .extend(unit.records.iter().flat_map(|record| [record.at.start, record.payload.end]));
    }
    borders.extend(segment.footer.iter().flat_map(|footer| [footer.start, footer.end]));
    let mut lengths: BTreeSet<usize> =
        borders.into_iter().flat_map(|border| border.saturating_sub(1)..border + 2).collect();
    lengths.extend((0..len).step_by(701));
    if std::ptr::eq(segment, sample.map.newest()) {
        for unit in segment.units.iter().rev().take(2) {
            let (start, used) = (unit.at.start, unit.used);
            lengths.extend(start..start + used.min(400));
            lengths.extend(start + used - used.min(200)..start + used);
        }
    }
    lengths.retain(|length| *length < len);
    lengths
}

/// All openers in one case of twenty, those of a writer in one of four, and in the others the usual
/// opening.
fn openers(cases: &Cases) -> Openers {
    match () {
        () if cases.is_one_in(20) => Openers::All,
        () if cases.is_one_in(4) => Openers::WriterOnly,
        () => Openers::QuickOnly,
    }
}

fn cut_all(sample: &Sample) -> Cases {
    let mut cases = Cases::default();
    for name in sample.disk.files(Path::new(DIR)).unwrap() {
        let file = in_dir(&name);
        let Ok(content) = sample.disk.contents(&file) else { continue };
        for length in lengths(sample, &file, content.len()) {
            let (disk, edit) = cut(sample, &file, length as u64);
            let openers = openers(&cases);
            cases.run(format!("{}, {edit}", sample.name), || {
                let opened = open_with(sample, &disk, &edit, openers)?;
                is_reported(sample, &file, length, &opened)
            });
        }
    }
    cases
}

/// After a clean close any byte of the log that is missing is corruption.
fn is_reported(sample: &Sample, file: &Path, length: usize, opened: &Opened) -> Result<(), String> {
    let reported = match sample.map.file_part(file, length as u64) {
        FilePart::Manifest => opened.corruption().is_some(),
        FilePart::Header(_) | FilePart::Unit(..) => !sample.clean || opened.corruption().is_some(),
        _ => matches!(opened, Opened::Whole),
    };
    if reported { Ok(()) } else { Err(format!("the answer is {opened:?}")) }
}

/// After a clean close a file that is too short is reported, and its whole records are readable.
#[test]
fn every_length_of_the_files_of_a_closed_log() {
    cut_all(&sample::closed()).finish(1000);
}

/// A cut of the last units is a torn tail: every whole record before it is kept.
#[test]
fn every_length_of_the_files_of_a_killed_log() {
    cut_all(&sample::killed()).finish(1000);
}

#[test]
fn every_length_of_the_files_of_a_torn_log() {
    cut_all(&sample::torn()).finish(1000);
}

#[test]
fn every_length_of_the_files_of_a_log_of_one_segment() {
    cut_all(&sample::lonely()).finish(500);
}
