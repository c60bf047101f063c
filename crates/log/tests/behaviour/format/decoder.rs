//! A few random changes at once to the files of a log: bits, ranges, blocks that change places,
//! copies from elsewhere, cut ends and garbage after them.
//!
//! Guards: two corruptions that hide each other, or that repair mends one by one into a log that
//! does not open; a record handed out under another's number; a gap that is not reported; a panic
//! over bytes that no single corruption makes.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use esker_disk::sim::SimDisk;
use esker_log::{
    Engine, Error, Log, OnCorruption, OpenCheck, OpenError, ReadError, ReadOnlyLog, RepairError,
    Start, repair, verify,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use crate::corruption_kit::DIR;
use crate::corruption_kit::format::BLOCK;
use crate::corruption_kit::map::{in_dir, segment_path};
use crate::corruption_kit::reading::{self, Item, Read};
use crate::corruption_kit::sample::{self, Sample, options};

/// A corruption of a file.
#[derive(Debug, Clone)]
enum Change {
    Flip { file: Index, at: Index, bit: u64 },
    Zero { file: Index, at: Index, len: usize },
    Copy { from: (Index, Index), to: (Index, Index), len: usize },
    Swap { one: (Index, Index), other: (Index, Index) },
    Cut { file: Index, at: Index },
    Garbage { file: Index, len: usize },
}

fn file_offset() -> impl Strategy<Value = (Index, Index)> {
    (any::<Index>(), any::<Index>())
}

fn change() -> impl Strategy<Value = Change> {
    let len = || prop_oneof![1..64usize, 512..6000usize];
    prop_oneof![
        4 => (file_offset(), 0..8u64).prop_map(|((file, at), bit)| Change::Flip { file, at, bit }),
        3 => (file_offset(), len()).prop_map(|((file, at), len)| Change::Zero { file, at, len }),
        2 => (file_offset(), file_offset(), len()).prop_map(|(from, to, len)| Change::Copy { from, to, len }),
        2 => (file_offset(), file_offset()).prop_map(|(one, other)| Change::Swap { one, other }),
        2 => file_offset().prop_map(|(file, at)| Change::Cut { file, at }),
        1 => (any::<Index>(), len()).prop_map(|(file, len)| Change::Garbage { file, len }),
    ]
}

static SAMPLES: LazyLock<Vec<Sample>> = LazyLock::new(|| {
    let mut samples = sample::all();
    samples.push(sample::quarantined());
    samples
});

/// A copy of a sample, and which bytes of which files are not what they were.
struct Changed<'a> {
    sample: &'a Sample,
    disk: SimDisk,
    corrupted: Vec<(PathBuf, Range<u64>)>,
}

impl Changed<'_> {
    fn new<'a>(sample: &'a Sample, changes: &[Change]) -> Changed<'a> {
        let disk = sample.disk.fork(1);
        let mut changed = Changed { sample, disk, corrupted: Vec::new() };
        changes.iter().for_each(|change| changed.change(change));
        changed
    }

    /// A segment, mostly.
    fn file(&self, index: Index) -> PathBuf {
        let mut files: Vec<PathBuf> =
            self.sample.map.segments.iter().map(|segment| segment_path(segment.number)).collect();
        files.extend(files.clone());
        files.extend([in_dir("mark"), in_dir("manifest")]);
        index.get(&files).clone()
    }

    fn contents(&self, file: &Path) -> Vec<u8> {
        self.disk.contents(file).unwrap()
    }

    /// A byte of a file, more often one that is not zero padding.
    fn byte(&self, file: &Path, index: Index) -> usize {
        let content = self.contents(file);
        let end = content.iter().rposition(|&byte| byte != 0).map_or(1, |last| last + 1);
        index.index(end)
    }

    fn put(&mut self, file: &Path, at: usize, bytes: &[u8]) {
        let was = self.contents(file);
        if was.get(at..at + bytes.len()) != Some(bytes) {
            self.disk.overwrite(file, at as u64, bytes).unwrap();
            self.corrupted.push((file.into(), at as u64..(at + bytes.len()) as u64));
        }
    }

    fn change(&mut self, change: &Change) {
        match change {
            Change::Flip { file, at, bit } => {
                let file = self.file(*file);
                let at = self.byte(&file, *at);
                if let Some(byte) = self.contents(&file).get(at) {
                    self.put(&file, at, &[byte ^ (1 << bit)]);
                }
            }
            Change::Zero { file, at, len } => {
                let file = self.file(*file);
                let at = self.byte(&file, *at);
                let len = self.contents(&file).len().saturating_sub(at).min(*len);
                self.put(&file, at, &vec![0; len]);
            }
            Change::Copy { from, to, len } => {
                let (from_file, to_file) = (self.file(from.0), self.file(to.0));
                let (from, to) = (self.byte(&from_file, from.1), self.byte(&to_file, to.1));
                let source = self.contents(&from_file);
                let end = source.len().min(from + len);
                self.put(&to_file, to, source.get(from..end).unwrap_or(&[]));
            }
            Change::Swap { one, other } => {
                let (one_file, other_file) = (self.file(one.0), self.file(other.0));
                let block = |at: usize| at / BLOCK * BLOCK;
                let one_at = block(self.byte(&one_file, one.1));
                let other_at = block(self.byte(&other_file, other.1));
                let take = |content: Vec<u8>, at: usize| {
                    let end = content.len().min(at + BLOCK);
                    content.get(at..end).unwrap_or(&[]).to_vec()
                };
                let first = take(self.contents(&one_file), one_at);
                let second = take(self.contents(&other_file), other_at);
                self.put(&one_file, one_at, &second);
                self.put(&other_file, other_at, &first);
            }
            Change::Cut { file, at } => {
                let file = self.file(*file);
                let at = self.byte(&file, *at) as u64;
                self.disk.truncate(&file, at).unwrap();
                self.corrupted.push((file, at..u64::MAX));
            }
            Change::Garbage { file, len } => {
                let file = self.file(*file);
                let end = self.contents(&file).len();
                self.put(&file, end, &sample::payload("garbage", 1, *len));
            }
        }
    }

    fn is_harmed(&self, file: &Path, at: &Range<u64>) -> bool {
        self.corrupted.iter().any(|(corrupted, range)| {
            corrupted == file && range.start < at.end && at.start < range.end
        })
    }

    /// The highest durable number that an unchanged part of the files records.
    fn claim(&self) -> u64 {
        let durable_bounds = self.sample.map.durable_bounds.iter();
        let left = durable_bounds.filter(|claim| !self.is_harmed(&claim.file, &claim.at));
        left.map(|claim| claim.seq).max().unwrap_or(0)
    }

    /// Each record that was read is one that was appended, with its number; gaps aside, nothing is
    /// left out between the first and the last.
    fn is_true(&self, read: &Read) -> Result<(), TestCaseError> {
        let mut last = read.items.first().map_or(0, Item::prev);
        prop_assert_eq!(last, self.sample.items.first().map_or(0, Item::prev), "the first");
        for item in &read.items {
            prop_assert!(item.prev() <= last, "nothing is reported of {}..{}", last, item.prev());
            if let Item::Record { seq, .. } = item {
                prop_assert!(self.sample.items.contains(item), "{} is not what was appended", seq);
            }
            last = item.last();
        }
        Ok(())
    }

    fn is_all(&self, read: &Read, reported: bool) -> Result<(), TestCaseError> {
        prop_assert!(read.error.is_none(), "{:?}", read.error);
        let last = read.last();
        prop_assert!(last >= self.claim(), "it ends at {}, and {} was durable", last, self.claim());
        let reported = reported || self.is_blank_after(last);
        let cut = last < self.sample.last();
        prop_assert!(!cut || reported, "the tail after {} is lost without a report", last);
        Ok(())
    }

    /// Whether nothing is left of the bytes after a record, so that no check can report the loss.
    fn is_blank_after(&self, last: u64) -> bool {
        self.sample.map.segments.iter().all(|segment| {
            let content = self.contents(&segment_path(segment.number));
            let units = segment.units.iter().filter(|unit| unit.last_seq > last);
            let bytes = units.flat_map(|unit| content.iter().take(unit.at.end).skip(unit.at.start));
            bytes.copied().all(|byte| byte == 0)
        })
    }

    /// One of the three answers. Gives whether the log is corrupted.
    fn open(&self, validate: OpenCheck) -> Result<bool, TestCaseError> {
        let disk = self.disk.fork(2);
        let engine = Engine::manual();
        let mut options = options(&disk, &engine);
        options.check = validate;
        let log = match Log::builder(DIR).options(options).open() {
            Ok(log) => log,
            Err(OpenError::Corrupted(_)) => return Ok(true),
            Err(other) => return Err(TestCaseError::fail(format!("{other:?}"))),
        };
        let read = reading::of_log(&log, Start::Oldest).map_err(TestCaseError::fail)?;
        self.is_true(&read)?;
        self.single_records(&log)?;
        if validate == OpenCheck::Quick && matches!(read.error, Some(Error::Corrupted(_))) {
            return Ok(true);
        }
        self.is_all(&read, log.storage().recovery().truncated_tail.is_some())?;
        Ok(false)
    }

    fn single_records(&self, log: &Log) -> Result<(), TestCaseError> {
        for item in &self.sample.items {
            let seq = item.last();
            match (item, log.read(seq)) {
                (Item::Record { payload, .. }, Ok(view)) => prop_assert_eq!(payload, &*view),
                (_, Err(ReadError::Corrupted(_) | ReadError::Quarantined(_))) => {}
                (_, Err(ReadError::NotFound { .. })) => prop_assert!(seq > log.durable().0),
                (_, other) => prop_assert!(false, "read({}) says {:?}", seq, other),
            }
        }
        Ok(())
    }

    fn follow(&self) -> Result<(), TestCaseError> {
        let engine = Engine::manual();
        let before = self.disk.fingerprint();
        match ReadOnlyLog::builder(DIR).options(options(&self.disk, &engine)).open() {
            Ok(reader) => {
                let read = reading::of_reader(&reader, 0).map_err(TestCaseError::fail)?;
                self.is_true(&read)?;
                let right = matches!(read.error, None | Some(Error::Corrupted(_)))
                    || reader.storage().corruption().is_some();
                prop_assert!(right, "{:?}", read.error);
                if read.error.is_none() && reader.storage().corruption().is_none() {
                    prop_assert!(read.last() >= self.claim());
                }
            }
            Err(OpenError::Corrupted(_)) => {}
            Err(other) => prop_assert!(false, "{:?}", other),
        }
        prop_assert_eq!(self.disk.fingerprint(), before, "reading changed the files");
        Ok(())
    }

    /// The records of units that were not touched have to be there after a repair, those above
    /// every claim aside.
    fn keeps_the_rest(&self, read: &Read) -> Result<(), TestCaseError> {
        for segment in &self.sample.map.segments {
            let file = segment_path(segment.number);
            for unit in segment.units.iter().filter(|unit| !unit.gap) {
                let at = unit.at.start as u64..unit.at.end as u64;
                if self.is_harmed(&file, &at) || unit.last_seq > self.claim() {
                    continue;
                }
                let there = read.items.iter().any(|item| {
                    matches!(item, Item::Record { .. }) && item.last() == unit.last_seq
                });
                prop_assert!(there, "{} was in a valid unit", unit.last_seq);
            }
        }
        Ok(())
    }

    fn mend(&self, damaged: bool) -> Result<(), TestCaseError> {
        let disk = self.disk.fork(3);
        let engine = Engine::manual();
        let report = verify(DIR, options(&disk, &engine));
        let verifies = matches!(&report, Ok(report) if report.corruption.is_empty());
        prop_assert_eq!(verifies, !damaged, "verify says {:?}", report);
        let repaired = match repair(DIR, options(&disk, &engine)) {
            Ok(repaired) => repaired,
            // Neither the manifest nor any header is left: there is no telling whose log it was.
            Err(RepairError::NotALog { .. }) if report.is_err() => return Ok(()),
            Err(other) => return Err(TestCaseError::fail(format!("repair: {other:?}"))),
        };
        let report = verify(DIR, options(&disk, &engine)).unwrap();
        prop_assert!(report.corruption.is_empty(), "after {:?}: {:?}", repaired, report.corruption);
        let mut options = options(&disk, &engine);
        options.check = OpenCheck::Full;
        let log = Log::builder(DIR)
            .options(options)
            .open()
            .map_err(|error| TestCaseError::fail(format!("after {repaired:?}: {error:?}")))?;
        let read = reading::of_log(&log, Start::Oldest).map_err(TestCaseError::fail)?;
        self.is_true(&read)?;
        self.is_all(&read, true)?;
        self.keeps_the_rest(&read)?;
        self.single_records(&log)
    }

    /// Cut at the first corruption, the log is what was stored before it, and stays that.
    fn cut_off(&self) -> Result<(), TestCaseError> {
        let disk = self.disk.fork(4);
        let mut before: Option<Vec<Item>> = None;
        for on_corruption in [OnCorruption::Truncate, OnCorruption::Fail] {
            let engine = Engine::manual();
            let mut options = options(&disk.process(), &engine);
            (options.check, options.on_corruption) = (OpenCheck::Full, on_corruption);
            let log = match Log::builder(DIR).options(options).open() {
                Ok(log) => log,
                Err(OpenError::NotALog { .. }) if before.is_none() => return Ok(()),
                Err(other) => {
                    return Err(TestCaseError::fail(format!("{on_corruption:?}: {other:?}")));
                }
            };
            let read = reading::of_log(&log, Start::Oldest).map_err(TestCaseError::fail)?;
            prop_assert!(read.error.is_none(), "{:?}: {:?}", on_corruption, read.error);
            self.is_true(&read)?;
            if let Some(before) = before.replace(read.items.clone()) {
                prop_assert_eq!(before, read.items);
            }
            engine.stop();
            disk.kill();
            drop(log);
            disk.power_on();
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_changes_give_whole_torn_or_corrupted(
        sample in any::<Index>(),
        changes in vec(change(), 1..=3),
    ) {
        let changed = Changed::new(sample.get(&SAMPLES), &changes);
        let damaged = changed.open(OpenCheck::Full)?;
        changed.open(OpenCheck::Quick)?;
        changed.follow()?;
        changed.mend(damaged)?;
        changed.cut_off()?;
    }
}
