//! The device does not give a sector.
//!
//! Guards: bytes that cannot be read taken for bytes that were never written, and their
//! content cut off or overwritten, when the device may give them again tomorrow; a sector that
//! keeps the rest of the log from being repaired.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::{Path, PathBuf};

use esker_disk::sim::SimDisk;
use esker_log::{Engine, Error, Log, LogError, OpenError, ReadOnlyLog, Start};

use crate::corruption_kit::DIR;
use crate::corruption_kit::cases::Cases;
use crate::corruption_kit::format::BLOCK;
use crate::corruption_kit::map::in_dir;
use crate::corruption_kit::outcomes::begins;
use crate::corruption_kit::reading;
use crate::corruption_kit::repairs::{Repairing, quarantine};
use crate::corruption_kit::sample::{self, Sample, options};

/// Copies of the sample without one sector each.
fn without_a_sector(sample: &Sample) -> Vec<(SimDisk, PathBuf, u64)> {
    let mut copies = Vec::new();
    for name in sample.disk.files(Path::new(DIR)).unwrap() {
        let file = in_dir(&name);
        let len = sample.disk.contents(&file).unwrap().len() as u64;
        for at in (0..len.min(10 * BLOCK as u64)).step_by(BLOCK) {
            let disk = sample.disk.fork(at);
            disk.make_unreadable(&file, at).unwrap();
            copies.push((disk, file.clone(), at));
        }
    }
    copies
}

fn is_loud(error: &Error) -> bool {
    matches!(error, Error::Io(_) | Error::Corrupted(_))
}

/// All is read, or the missing part is reported.
fn reported(sample: &Sample, disk: &SimDisk, claim: u64) -> Result<(), String> {
    let engine = Engine::manual();
    match ReadOnlyLog::builder(DIR).options(options(disk, &engine)).open() {
        Ok(reader) => {
            let read = reading::of_reader(&reader, 0)?;
            begins(&sample.items, &read)?;
            match &read.error {
                None if read.last() < claim => {
                    return Err(format!("a reader ends at {} of {claim}", read.last()));
                }
                Some(error) if !is_loud(error) => return Err(format!("{error:?}")),
                _ => {}
            }
        }
        Err(error) if is_loud(&error.clone().into()) => {}
        Err(error) => return Err(format!("{error:?}")),
    }
    let disk = disk.fork(1);
    let before = disk.fingerprint();
    let log = match Log::builder(DIR).options(options(&disk, &engine)).open() {
        Ok(log) => log,
        Err(error) if is_loud(&error.clone().into()) && disk.fingerprint() == before => {
            return Ok(());
        }
        Err(error) => return Err(format!("{error:?}, or the files were changed")),
    };
    let read = reading::of_log(&log, Start::Oldest)?;
    begins(&sample.items, &read)?;
    match &read.error {
        None if read.last() < claim => Err(format!("SILENT LOSS: {} of {claim}", read.last())),
        Some(error) if !is_loud(error) => Err(format!("{error:?}")),
        _ => Ok(()),
    }
}

#[test]
fn unreadable_sectors_are_reported_and_cost_no_durable_record() {
    let mut cases = Cases::default();
    for sample in [sample::closed(), sample::killed(), sample::lonely()] {
        for (disk, file, at) in without_a_sector(&sample) {
            let name = file.file_name().unwrap().display();
            cases.run(format!("{}, {name}, byte {at}", sample.name), || {
                let claim = sample.map.durable_bound_without(&file, &(at..at + BLOCK as u64));
                reported(&sample, &disk, claim)
            });
        }
    }
    cases.finish(60);
}

#[test]
fn unreadable_sectors_are_repaired_like_other_corruption() {
    let mut cases = Cases::default();
    for sample in [sample::closed(), sample::killed()] {
        for (disk, file, at) in without_a_sector(&sample) {
            // A segment's, and one that holds something.
            let content = &sample.disk.contents(&file).unwrap()[at as usize..];
            let blank = content[..content.len().min(BLOCK)].iter().all(|&byte| byte == 0);
            if file.extension().is_none() || blank {
                continue;
            }
            let mut loss = Vec::from_iter(sample.loss(&file, at));
            for loss in &mut loss {
                // What could not be read is kept as zeros.
                loss.bytes = 0..0;
            }
            let name = file.file_name().unwrap().display();
            cases.run(format!("{}, {name}, byte {at}", sample.name), || {
                quarantine(&sample, &disk, &loss, Repairing::Function)
            });
        }
    }
    cases.finish(20);
}

/// A file that cannot be read at all was taken for the tail that a crash had torn, and removed,
/// where nothing else proved that its records were durable: its header alone counted as
/// unreadable.
#[test]
fn newest_file_that_cannot_be_read_is_kept() {
    let sample = sample::killed();
    let disk = sample.disk.fork(1);
    let segments = disk.files(Path::new(DIR)).unwrap().into_iter();
    let newest = in_dir(&segments.filter(|name| name.ends_with(".seg")).max().unwrap());
    let len = disk.contents(&newest).unwrap().len() as u64;
    for at in (0..len).step_by(BLOCK) {
        disk.make_unreadable(&newest, at).unwrap();
    }
    disk.remove(&in_dir("mark")).unwrap();
    let before = disk.fingerprint();
    let engine = Engine::manual();
    let opened = Log::builder(DIR).options(options(&disk, &engine)).open();
    assert!(matches!(opened, Err(OpenError::Log(LogError::Io(_)))), "{opened:?}");
    assert_eq!(disk.fingerprint(), before);
}
