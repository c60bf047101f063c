//! Segments that leave the log while readers lag: what was cached of them is dropped, and no reader
//! gets a record from another life of their files.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use esker_disk::sim::SimDisk;
use esker_log::{Batch, Log, LogStream, ReadError, Result, Start, Trimmed};
use futures_util::StreamExt;

use crate::fixture::{
    DIR, append, block_on, driven, follows, in_time, payloads, read_from, seen, small,
};

/// Segments that are kept.
const RING: u64 = 4;
/// A lonely commit takes one block, a segment holds fifteen and its header.
const PER_SEGMENT: u64 = 15;

#[test]
fn cached_chunks_are_dropped_with_their_segments() {
    let disk = SimDisk::new(1);
    let (mut options, engine) = driven(&disk);
    options.retention.segments = Some(RING);
    let log = Log::builder(DIR).options(options).open().unwrap();
    append(&log, 10 * PER_SEGMENT);
    engine.run();
    let mut paused = log.stream(Start::Oldest).unwrap();
    let held = paused.try_next().unwrap().unwrap();
    let first = seen(&held);
    assert_eq!(read_from(&log, Start::Oldest).unwrap().last(), payloads([150]).last());
    let kept = log.storage().metadata().read_cache_bytes;
    assert!(kept >= (RING - 1) * (56 << 10), "{kept}");
    append(&log, 2 * PER_SEGMENT);
    engine.run();
    let fewer = log.storage().metadata().read_cache_bytes;
    assert!(0 < fewer && fewer < kept, "{fewer} of {kept}");
    append(&log, 8 * PER_SEGMENT);
    engine.run();
    assert_eq!(log.storage().metadata().read_cache_bytes, 0);
    let oldest = log.oldest();
    let end = paused.try_next().err();
    assert!(
        matches!(end, Some(ReadError::Trimmed(Trimmed { oldest: reported })) if reported == oldest),
        "{end:?}"
    );
    assert_eq!(seen(&held), first, "a batch in the hand");
    let rest = read_from(&log, Start::Oldest).unwrap();
    assert_eq!(rest, payloads(oldest.0..=20 * PER_SEGMENT));
    log.close().unwrap();
}

/// Reads until the last record. Returns how often it got `Trimmed`.
fn follow(log: &Log, last: u64, next: fn(&mut LogStream) -> Result<Batch, ReadError>) -> u64 {
    let mut stream = log.stream(Start::Oldest).unwrap();
    let (mut at, mut trimmed) = (0, 0);
    while at < last {
        match next(&mut stream) {
            Ok(batch) => {
                let first = batch.iter().next().unwrap().seq.0;
                // After a gap it continues with the record that is the oldest by now.
                at = if at == 0 { first - 1 } else { at };
                at = follows(&batch, at);
            }
            Err(ReadError::Trimmed(_)) => {
                stream = oldest(log);
                (at, trimmed) = (0, trimmed + 1);
            }
            Err(error) => panic!("after {at}: {error}"),
        }
    }
    trimmed
}

/// From the oldest record, which may leave at the very moment.
fn oldest(log: &Log) -> LogStream {
    loop {
        match log.stream(Start::Oldest) {
            Ok(stream) => return stream,
            Err(ReadError::Trimmed(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn lapped_readers_get_no_record_of_a_recycled_segment() {
    let disk = SimDisk::new(1);
    let mut options = small(&disk);
    options.retention.segments = Some(RING);
    let log = Log::builder(DIR).options(options).open().unwrap();
    // Three turns and more of the files that there are.
    let last = 3 * (RING + 4) * PER_SEGMENT * 10;
    append(&log, PER_SEGMENT);
    let shared = log.clone();
    in_time("reading beside a writer that laps", move || {
        let log = shared;
        let mut paused = log.stream(Start::Oldest).unwrap();
        assert!(follows(&paused.blocking_next().unwrap(), 0) > 0);
        let written = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                append(&log, last - PER_SEGMENT);
                written.store(true, SeqCst);
            });
            for _ in 0..2 {
                scope.spawn(|| follow(&log, last, LogStream::blocking_next));
                scope.spawn(|| follow(&log, last, |stream| block_on(stream.next()).unwrap()));
            }
            // And those that look at everything there is, again and again.
            scope.spawn(|| {
                while !written.load(SeqCst) {
                    let mut stream = oldest(&log);
                    let mut at = None;
                    while let Ok(Some(batch)) = stream.try_next() {
                        let first = batch.iter().next().unwrap().seq.0;
                        at = Some(follows(&batch, at.unwrap_or(first - 1)));
                    }
                }
            });
        });
        let end = paused.blocking_next().err();
        assert!(matches!(end, Some(ReadError::Trimmed(_))), "{end:?}");
        let mut again = log.stream(Start::Oldest).unwrap();
        let batch = again.blocking_next().unwrap();
        assert!(follows(&batch, log.oldest().0 - 1) <= last);
    });
    assert!(disk.stats().renames > 3 * RING, "the files are used again: {:?}", disk.stats());
    log.close().unwrap();
}
