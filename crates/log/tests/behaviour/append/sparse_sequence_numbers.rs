//! Numbers that the caller gives, with gaps between them: `oldest`, single reads, streams and
//! counts agree on what is there, after truncation and after reopening.
//!
//! Guards: a number that `oldest` names and that cannot be read, a place that one way of reading
//! calls trimmed and another does not, and counts of records that cannot be read.
#![allow(clippy::unwrap_used, clippy::panic)]

use esker_disk::sim::SimDisk;
use esker_log::{
    Append, Error, Log, ReadError, ReadOnlyLog, Result, Seq, Start, Trimmed, repair, verify,
};

use crate::fixture::{self, DIR, all, driven, payload};

fn is_trimmed<T: std::fmt::Debug>(got: Result<T>, oldest: u64) -> bool {
    match got {
        Err(Error::Trimmed(Trimmed { oldest: reported })) => {
            assert_eq!(reported, Seq(oldest));
            true
        }
        _ => false,
    }
}

/// Every way to ask, for every number.
fn agree(disk: &SimDisk, log: &Log, numbers: &[u64], trim: u64) {
    let kept: Vec<u64> = numbers.iter().copied().filter(|seq| *seq > trim).collect();
    let last = *numbers.last().unwrap();
    let oldest = kept.first().copied().unwrap_or(last + 1);
    let reader = ReadOnlyLog::builder(DIR).options(driven(disk).0).open().unwrap();
    assert_eq!((log.oldest(), reader.oldest()), (Seq(oldest), Seq(oldest)), "trim {trim}");
    assert_eq!(all(log).iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), kept);
    let stored = reader.storage().stored().unwrap();
    assert_eq!(stored.records, kept.len() as u64, "stat, trim {trim}");
    // The first record says that it follows 0.
    assert_eq!(stored.skipped, last.saturating_sub(trim) - stored.records, "trim {trim}");
    assert!(stored.quarantined.is_empty());
    let report = verify(DIR, &driven(disk).0).unwrap();
    assert!(report.corruption.is_empty(), "{:?}", report.corruption);
    assert_eq!(report.records, kept.len() as u64, "verify, trim {trim}");
    for seq in 1..last + 3 {
        let trimmed = seq <= trim;
        let there = kept.contains(&seq);
        for read in [log.read(seq), reader.read(seq)] {
            match read {
                Ok(view) => assert!(there && *view == *payload(seq), "read({seq}), trim {trim}"),
                Err(ReadError::NotFound { .. }) => {
                    assert!(!there && !trimmed, "{seq}, trim {trim}");
                }
                other => assert!(
                    is_trimmed(other.map_err(Into::into), oldest) && trimmed,
                    "{seq}, trim {trim}"
                ),
            }
        }
        let next = kept.iter().copied().find(|kept| *kept >= seq);
        let from = log.stream(Start::From(Seq(seq))).and_then(|mut stream| stream.try_next());
        let follow = reader.stream(Start::From(Seq(seq))).and_then(|mut stream| stream.try_next());
        for first in [from, follow] {
            match first {
                Ok(batch) => {
                    let got = batch.and_then(|batch| batch.iter().next().map(|r| r.seq.0));
                    assert!(!trimmed, "from {seq}, trim {trim}");
                    assert_eq!(got, next, "from {seq}, trim {trim}");
                }
                other => assert!(
                    is_trimmed(other.map_err(Into::into), oldest) && trimmed,
                    "from {seq}, trim {trim}"
                ),
            }
        }
    }
}

#[test]
fn every_way_of_reading_agrees() {
    for step in [1, 7] {
        for cut in [0, 5, 14, 40, 101, 150, 280] {
            let disk = SimDisk::new(1);
            let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
            let numbers: Vec<u64> = (0..40).map(|n| 20 + n * step).collect();
            let mut prev = Seq(0);
            for seq in &numbers {
                log.write(Append::numbered(prev, &[(Seq(*seq), payload(*seq))]))
                    .unwrap()
                    .blocking_wait()
                    .unwrap();
                prev = Seq(*seq);
            }
            agree(&disk, &log, &numbers, 0);
            let cut = cut.min(prev.0 + 1);
            if cut > 0 {
                log.retention().truncate_before(cut).unwrap();
            }
            let trim = cut.saturating_sub(1);
            // Whole segments go, and with them the numbers before the first that is left.
            let trim = trim.max(log.storage().segments().first().map_or(0, |first| first.after.0));
            let trim = if cut == 0 { 0 } else { trim };
            agree(&disk, &log, &numbers, trim);
            log.close().unwrap();
            let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
            agree(&disk, &log, &numbers, trim);
            log.close().unwrap();
        }
    }
}

/// After a gap that a repair left at the front, the oldest record is the first that can be read.
#[test]
fn oldest_record_after_a_gap() {
    let disk = SimDisk::new(1);
    let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
    fixture::append(&log, 6);
    log.close().unwrap();
    let segment = std::path::Path::new(DIR).join("00000000000000000001.seg");
    disk.flip_bit(&segment, (4096 + 80) * 8).unwrap();
    repair(DIR, &driven(&disk).0).unwrap();
    let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
    assert_eq!(log.oldest(), Seq(2));
    assert_eq!(ReadOnlyLog::builder(DIR).options(driven(&disk).0).open().unwrap().oldest(), Seq(2));
}
