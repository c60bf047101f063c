//! Every byte of every file of a small log is flipped, one at a time.
//!
//! Guards: a field that no checksum covers; corruption taken for the end of the log, or for
//! padding; a durable record that is dropped silently; a value that is not what was written; a
//! panic over a length or a number that cannot be.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;

use esker_log::{Engine, Log, OpenError};

use crate::corruption_kit::cases::Cases;
use crate::corruption_kit::edits::{flip, unlink};
use crate::corruption_kit::map::{FilePart, in_dir, segment_path};
use crate::corruption_kit::outcomes::{Opened, Openers, open_with};
use crate::corruption_kit::sample::{self, Sample, options};
use crate::corruption_kit::{DIR, format};

/// The bits of a byte that are flipped: all where meaning is dense, one elsewhere.
fn bits(sample: &Sample, file: &Path, byte: u64) -> Vec<u64> {
    let all = (0..8).collect();
    let one = vec![(byte * 5 + byte / 8) % 8];
    let at = byte as usize;
    match sample.map.file_part(file, byte) {
        FilePart::Manifest | FilePart::WatermarkPage => all,
        FilePart::Header(_) if at < format::SEGMENT_HEADER => one,
        FilePart::Unit(_, unit) => {
            let head = at < unit.at.start + format::UNIT_HEADER;
            let of_record =
                unit.records.iter().any(|record| record.at.start <= at && at < record.at.start + 4);
            let padding = at >= unit.at.start + unit.used;
            let long =
                unit.records.iter().any(|r| r.payload.contains(&at) && r.payload.len() > 300);
            match () {
                () if head => one,
                () if of_record => all,
                () if padding || long => sampled(one, byte, 97),
                () => one,
            }
        }
        FilePart::Footer(_) => one,
        FilePart::Header(_) => sampled(one, byte, 97),
        FilePart::PagePadding | FilePart::PastTheEnd(_) | FilePart::Nothing => {
            sampled(one, byte, 997)
        }
    }
}

fn sampled(bits: Vec<u64>, byte: u64, every: u64) -> Vec<u64> {
    if byte.is_multiple_of(every) { bits } else { Vec::new() }
}

/// All openers in one case of forty; those of a writer in every fourth byte, which is one of each
/// field of four bytes; and in the other bytes the usual opening.
fn openers(cases: &Cases, byte: u64) -> Openers {
    match () {
        () if cases.is_one_in(40) => Openers::All,
        () if byte.is_multiple_of(4) => Openers::WriterOnly,
        () => Openers::QuickOnly,
    }
}

/// Flips in every `nth` byte.
fn flip_all(sample: &Sample, nth: usize) -> Cases {
    let mut cases = Cases::default();
    for name in sample.disk.files(Path::new(DIR)).unwrap() {
        let file = in_dir(&name);
        let Ok(content) = sample.disk.contents(&file) else { continue };
        for byte in (0..content.len() as u64).step_by(nth) {
            for bit in bits(sample, &file, byte) {
                let (disk, edit) = flip(sample, &file, byte, bit);
                let openers = openers(&cases, byte);
                cases.run(format!("{}, {edit}", sample.name), || {
                    let opened = open_with(sample, &disk, &edit, openers)?;
                    is_reported(sample, &edit.file, byte, &opened)
                });
            }
        }
    }
    cases
}

/// After a clean close any flipped byte that carries something is corruption.
fn is_reported(sample: &Sample, file: &Path, byte: u64, opened: &Opened) -> Result<(), String> {
    let matters = match sample.map.file_part(file, byte) {
        FilePart::Manifest => true,
        FilePart::Header(_) | FilePart::Unit(..) => sample.clean,
        _ => return matches!(opened, Opened::Whole).then_some(()).ok_or(format!("{opened:?}")),
    };
    if matters && opened.corruption().is_none() {
        return Err(format!("the corruption was not reported: {opened:?}"));
    }
    Ok(())
}

/// A flip of anything that carries something is reported with its file; no wrong byte is read.
#[test]
fn every_flipped_byte_of_a_closed_log() {
    flip_all(&sample::closed(), 1).finish(3000);
}

/// A flip in what is known to be durable is reported; one in the last units may cut the tail.
#[test]
fn every_flipped_byte_of_a_killed_log() {
    flip_all(&sample::killed(), 1).finish(3000);
}

/// The torn tail is cut, and a flip before it is reported.
#[test]
fn every_flipped_byte_of_a_torn_log() {
    flip_all(&sample::torn(), 3).finish(1000);
}

#[test]
fn every_flipped_byte_of_a_log_of_one_segment() {
    flip_all(&sample::lonely(), 1).finish(1000);
}

/// Each unit header has a lower bound of what was durable when it was written. Where the watermark
/// page is missing, a later header alone shows that a flip is no torn tail.
#[test]
fn a_flip_before_a_later_unit_is_reported_without_the_watermark_page() {
    let sample = sample::lonely();
    let segment = &sample.map.segments[0];
    let units = segment.units.len();
    for (n, unit) in segment.units[..units - 2].iter().enumerate() {
        let file = segment_path(segment.number);
        let (disk, _) = flip(&sample, &file, unit.at.start as u64 + 1, 3);
        unlink(&disk, &in_dir("mark"));
        let engine = Engine::manual();
        let opened = Log::builder(DIR).options(options(&disk, &engine)).open();
        assert!(matches!(opened, Err(OpenError::Corrupted(_))), "unit {n} of {units}: {opened:?}");
    }
}
