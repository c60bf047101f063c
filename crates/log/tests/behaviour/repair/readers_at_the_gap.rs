//! Every kind of reader comes to a gap that a repair left.
//!
//! Guards: a reader that ends at a gap, spins in front of it, passes over it silently, or
//! meets it although it asked for records after it.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use esker_disk::sim::SimDisk;
use esker_log::{Engine, Log, OnCorruption, ReadError, ReadOnlyLog, Seq, SeqRange, Start, Stored};
use futures_util::{FutureExt, StreamExt};

use crate::corruption_kit::DIR;
use crate::corruption_kit::reading::{self, Item};
use crate::corruption_kit::repairs;
use crate::corruption_kit::sample::{self, Sample, options};

fn gaps(sample: &Sample) -> Vec<(u64, u64)> {
    let gap = |item: &Item| match item {
        Item::Gap(from, to) => Some((*from, *to)),
        Item::Record { .. } => None,
    };
    sample.items.iter().filter_map(gap).collect()
}

/// The gaps that a source reports until it has to wait.
fn reported(
    mut next: impl FnMut() -> Option<Result<esker_log::Batch, ReadError>>,
) -> Vec<(u64, u64)> {
    let mut gaps: Vec<(u64, u64)> = Vec::new();
    for _ in 0..1000 {
        match next() {
            None | Some(Err(ReadError::Timeout)) => return gaps,
            Some(Ok(batch)) => assert!(!batch.is_empty()),
            Some(Err(ReadError::Quarantined(SeqRange { from, to }))) => match gaps.last_mut() {
                // Two corrupted units side by side may be one gap or two.
                Some((_, end)) if *end == from.0 => *end = to.0,
                _ => gaps.push((from.0, to.0)),
            },
            Some(Err(error)) => panic!("{error:?}"),
        }
    }
    panic!("it spins");
}

fn open(sample: &Sample) -> Log {
    repairs::open(&sample.disk.fork(1), OnCorruption::Fail).unwrap()
}

fn stored(disk: &SimDisk) -> Stored {
    let engine = Engine::manual();
    let reader = ReadOnlyLog::builder(DIR).options(options(disk, &engine)).open().unwrap();
    reader.storage().stored().unwrap()
}

/// The gaps that a reader lists. Two units side by side may be one gap or two.
fn listed(disk: &SimDisk) -> Vec<(u64, u64)> {
    let mut gaps: Vec<(u64, u64)> = Vec::new();
    for gap in stored(disk).quarantined {
        match gaps.last_mut() {
            Some((_, end)) if *end == gap.from.0 => *end = gap.to.0,
            _ => gaps.push((gap.from.0, gap.to.0)),
        }
    }
    gaps
}

#[test]
fn every_gap_is_listed_that_a_stream_meets() {
    let sample = sample::quarantined();
    let gaps = gaps(&sample);
    assert!(!gaps.is_empty());
    assert_eq!(listed(&sample.disk), gaps);
    // From footers, and where recovery copied a gap.
    let disk = sample.disk.fork(1);
    for _ in 0..3 {
        let log = repairs::open(&disk, OnCorruption::Fail).unwrap();
        for _ in 0..40 {
            log.append(vec![7; 4000]).unwrap().blocking_wait().unwrap();
        }
        assert_eq!(listed(&disk), gaps);
        disk.kill();
        disk.power_on();
        drop(log);
        assert_eq!(listed(&disk), gaps);
    }
    let (first, last) = (gaps[0], *gaps.last().unwrap());
    let log = repairs::open(&disk, OnCorruption::Fail).unwrap();
    log.retention().truncate_before(first.1 + 1).unwrap();
    assert_eq!(listed(&disk), gaps[1..]);
    log.retention().truncate_before(last.1 + 1).unwrap();
    assert!(listed(&disk).is_empty());
    log.close().unwrap();
}

/// Numbers that no record was given are not those of a gap.
#[test]
fn quarantined_numbers_are_not_skipped_ones() {
    let sample = sample::quarantined();
    let skipped = stored(&sample.disk).skipped;
    let mut last = match &sample.items[0] {
        Item::Record { prev, .. } => *prev,
        Item::Gap(from, _) => *from,
    };
    let mut expected = 0;
    for item in &sample.items {
        if let Item::Record { seq, .. } = item {
            expected += seq - last - 1;
        }
        last = item.last();
    }
    assert_eq!(skipped, expected);
}

#[test]
fn blocking_reader_passes_the_gap_and_waits_at_the_tip() {
    let sample = sample::quarantined();
    let log = open(&sample);
    let mut stream = log.stream(Start::Oldest).unwrap();
    let found = reported(|| Some(stream.blocking_next_timeout(Duration::from_millis(1))));
    assert_eq!(found, gaps(&sample));
    let mut stream = log.stream(Start::Oldest).unwrap();
    let met = stream.blocking_iter().take_while(|next| match next {
        Ok(batch) => batch.last() != Some(log.durable()),
        Err(_) => true,
    });
    assert!(met.filter(Result::is_err).count() >= gaps(&sample).len());
}

#[test]
fn async_reader_passes_the_gap_and_waits_at_the_tip() {
    let sample = sample::quarantined();
    let log = open(&sample);
    let mut stream = log.stream(Start::Oldest).unwrap();
    assert_eq!(reported(|| stream.next().now_or_never().flatten()), gaps(&sample));
    // The next record wakes it as ever.
    log.append(b"after it all").unwrap().blocking_wait().unwrap();
    let next = stream.next().now_or_never().flatten().unwrap().unwrap();
    assert_eq!(next.iter().next().unwrap().payload, b"after it all");
}

#[test]
fn read_only_log_meets_the_gap_once() {
    let sample = sample::quarantined();
    let engine = Engine::manual();
    let reader = ReadOnlyLog::builder(DIR).options(options(&sample.disk, &engine)).open().unwrap();
    let read = reading::of_reader(&reader, 0).unwrap();
    assert!(read.error.is_none() && read.items == sample.items, "{:?}", read.error);
    for (from, to) in gaps(&sample) {
        for seq in from + 1..=to {
            match reader.read(seq) {
                Err(ReadError::Quarantined(SeqRange { from: f, to: t })) => {
                    assert!(f.0 < seq && seq <= t.0);
                }
                other => panic!("{seq}: {other:?}"),
            }
        }
    }
}

/// The number from which a stream is continued passes over a gap with the stream.
#[test]
fn a_stream_says_that_it_has_passed_the_gap() {
    let sample = sample::quarantined();
    let log = open(&sample);
    let mut stream = log.stream(Start::Oldest).unwrap();
    let mut met = 0;
    loop {
        let last = match stream.try_next() {
            Ok(Some(batch)) => batch.last(),
            Ok(None) => break,
            Err(ReadError::Quarantined(SeqRange { to, .. })) => {
                met += 1;
                Some(to)
            }
            Err(error) => panic!("{error:?}"),
        };
        assert_eq!(stream.last(), last);
    }
    assert!(met > 0);
}

#[test]
fn a_task_that_asks_for_a_number_in_the_gap_gets_the_gap() {
    let sample = sample::quarantined();
    let log = open(&sample);
    for (from, to) in gaps(&sample) {
        for seq in from + 1..=to {
            match log.read_async(seq).now_or_never().expect("a manual engine reads at once") {
                Err(ReadError::Quarantined(SeqRange { from: f, to: t })) => {
                    assert!(f.0 < seq && seq <= t.0);
                }
                other => panic!("{seq}: {other:?}"),
            }
        }
    }
}

#[test]
fn only_a_reader_that_starts_before_or_in_the_gap_meets_it() {
    let sample = sample::quarantined();
    let log = open(&sample);
    for (from, to) in gaps(&sample) {
        let read_at = |start: Start| reading::of_log(&log, start).unwrap();
        for start in [Start::After(Seq(to)), Start::From(Seq(to + 1))] {
            let read = read_at(start);
            let want: Vec<&Item> = sample.items.iter().filter(|item| item.last() > to).collect();
            assert!(read.error.is_none() && read.items.iter().eq(want), "{start:?}");
        }
        for seq in from..to {
            let read = read_at(Start::After(Seq(seq)));
            assert!(matches!(read.items[0], Item::Gap(..)), "after {seq}: {:?}", read.items[0]);
        }
    }
}
