//! Who comes after whom: numbers that the log gives, numbers that a caller brings, and what is
//! refused.
//!
//! Guards: a record that says it follows a higher number than its own, and is taken.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use std::sync::Barrier;

use esker_disk::sim::SimDisk;
use esker_log::{
    Append, AppendError, Error, Log, ReadError, Result, Seq, Start, Ticket, WriteError,
};

use crate::fixture::{DIR, all, append, log, payload, payloads, read_from, small};

fn append_if(
    log: &Log,
    seq: u64,
    prev: u64,
    payload: impl AsRef<[u8]>,
) -> Result<Ticket, AppendError> {
    Ok(log.write(Append::numbered(Seq(prev), &[(Seq(seq), payload)]))?)
}

/// Numbers with payloads, as a batch takes them.
fn numbered<const N: usize>(records: [(u64, &'static str); N]) -> [(Seq, &'static str); N] {
    records.map(|(seq, payload)| (Seq(seq), payload))
}

fn sequence(outcome: Result<Ticket, impl Into<Error>>) -> (u64, u64, u64) {
    match outcome.err().map(Into::into) {
        Some(Error::Sequence { seq, prev, expected }) => (seq.0, prev.0, expected.0),
        other => panic!("not out of sequence: {other:?}"),
    }
}

#[test]
fn the_log_gives_the_next_number_from_one() {
    let (log, ..) = log();
    for seq in 1..=5 {
        assert_eq!(log.append(payload(seq)).unwrap().seq(), Seq(seq));
        assert_eq!(log.accepted(), Seq(seq));
    }
    log.barrier().unwrap().blocking_wait().unwrap();
    assert_eq!(all(&log), payloads(1..=5));
    log.close().unwrap();
}

#[test]
fn callers_may_choose_sequence_numbers_with_gaps() {
    let (log, ..) = log();
    let mut prev = 0;
    for seq in [3, 4, 10, 1 << 40] {
        append_if(&log, seq, prev, payload(seq % 100)).unwrap().blocking_wait().unwrap();
        prev = seq;
    }
    assert_eq!(log.append(b"next").unwrap().blocking_wait().unwrap().seq, Seq((1 << 40) + 1));
    let numbers: Vec<_> = all(&log).iter().map(|(seq, _)| *seq).collect();
    assert_eq!(numbers, [3, 4, 10, 1 << 40, (1 << 40) + 1]);
    assert_eq!(log.read(10).unwrap().record().prev, Seq(4));
    assert!(matches!(log.read(7), Err(ReadError::NotFound { seq: Seq(7) })));
    assert_eq!(read_from(&log, Start::From(Seq(5))).unwrap()[0].0, 10);
    assert_eq!(read_from(&log, Start::After(Seq(4))).unwrap()[0].0, 10);
    log.close().unwrap();
}

#[test]
fn the_first_record_may_start_anywhere() {
    let (log, ..) = log();
    append_if(&log, 500, 499, b"first").unwrap().blocking_wait().unwrap();
    append(&log, 1);
    let read = log.read(500).unwrap();
    assert_eq!((read.record().prev, read.payload()), (Seq(499), &b"first"[..]));
    assert_eq!((log.durable(), log.oldest()), (Seq(501), Seq(500)));
    assert_eq!(sequence(append_if(&log, 7, 6, b"late")), (7, 6, 501));
    log.close().unwrap();
}

#[test]
fn a_number_that_is_not_above_the_one_it_follows_is_refused() {
    let (log, ..) = log();
    // Even the first record, which may start anywhere.
    assert_eq!(sequence(append_if(&log, 3, 7, b"x")), (3, 7, 0));
    assert_eq!(sequence(append_if(&log, 3, 3, b"x")), (3, 3, 0));
    append(&log, 7);
    assert_eq!(sequence(append_if(&log, 3, 7, b"x")), (3, 7, 7));
    assert_eq!(sequence(append_if(&log, 7, 7, b"x")), (7, 7, 7));
    assert_eq!(all(&log), payloads(1..=7));
    log.close().unwrap();
}

#[test]
fn a_record_that_does_not_follow_the_last_is_refused_and_nothing_is_written() {
    let (log, disk, _) = log();
    append(&log, 4);
    let before = (disk.fingerprint(), log.accepted());
    assert_eq!(sequence(append_if(&log, 4, 3, b"low")), (4, 3, 4));
    assert_eq!(sequence(append_if(&log, 9, 8, b"ahead")), (9, 8, 4));
    assert_eq!((disk.fingerprint(), log.accepted()), before);
    append(&log, 1);
    assert_eq!(all(&log), payloads(1..=5));
    log.close().unwrap();
}

#[test]
fn second_append_after_the_same_record_is_a_conflict_until_the_first_is_durable() {
    let (log, ..) = log();
    append(&log, 2);
    let first = append_if(&log, 3, 2, payload(3)).unwrap();
    match append_if(&log, 8, 2, b"second").err() {
        Some(AppendError::Conflict { prev: Seq(2), last: Seq(3) }) => {}
        other => panic!("not a conflict: {other:?}"),
    }
    first.blocking_wait().unwrap();
    assert_eq!(sequence(append_if(&log, 8, 2, b"third")), (8, 2, 3));
    assert_eq!(all(&log), payloads(1..=3));
    log.close().unwrap();
}

/// Threads claim the same place, again and again: one of them gets it each time.
#[test]
fn one_of_many_appends_after_the_same_record_wins() {
    let log = Log::builder(DIR).options(small(&SimDisk::new(1))).open().unwrap();
    let barrier = Barrier::new(4);
    let claim = |log: &Log, n: u64| -> u64 {
        let mut won = 0;
        for round in 0..200 {
            barrier.wait();
            match append_if(log, round + 1, round, [n as u8]) {
                Ok(ticket) => {
                    won += 1;
                    ticket.blocking_wait().unwrap();
                }
                Err(AppendError::Conflict { .. } | AppendError::Sequence { .. }) => {}
                Err(error) => panic!("{error}"),
            }
            barrier.wait();
        }
        won
    };
    let won: u64 = std::thread::scope(|scope| {
        let (log, claim) = (&log, &claim);
        let threads: Vec<_> = (0..4).map(|n| scope.spawn(move || claim(log, n))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(won, 200);
    assert_eq!(all(&log).len(), 200);
    log.close().unwrap();
}

/// Producers that let the log number their records never collide.
#[test]
fn appends_without_sequence_numbers_never_conflict() {
    let log = Log::builder(DIR).options(small(&SimDisk::new(1))).open().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..100 {
                    log.append(b"mine").unwrap().blocking_wait().unwrap();
                }
            });
        }
    });
    let numbers: Vec<_> = all(&log).iter().map(|(seq, _)| *seq).collect();
    assert_eq!(numbers, (1..=800).collect::<Vec<_>>());
    log.close().unwrap();
}

#[test]
fn nothing_of_a_batch_is_accepted_when_one_record_is_wrong() {
    let (log, disk, _) = log();
    append(&log, 2);
    let before = disk.fingerprint();
    let wrong = numbered([(3, "a"), (4, "b"), (4, "c")]);
    assert_eq!(sequence(log.write(Append::numbered(Seq(2), &wrong))), (4, 4, 4));
    assert_eq!(sequence(log.write(Append::numbered(Seq(2), &wrong).atomic())), (4, 4, 4));
    let late = numbered([(6, "b")]);
    assert_eq!(sequence(log.write(Append::numbered(Seq(5), &late))), (6, 5, 2));
    assert_eq!(sequence(log.write(Append::numbered(Seq(5), &late).atomic())), (6, 5, 2));
    let large = vec![0; (1 << 20) + 1];
    let large = [b"small".to_vec(), large];
    for append in [Append::records(&large), Append::records(&large).atomic()] {
        let refused = log.write(append).unwrap_err();
        assert!(matches!(
            refused,
            WriteError { error: AppendError::TooLarge { .. }, accepted: 0, .. }
        ));
    }
    assert_eq!((log.accepted(), disk.fingerprint()), (Seq(2), before));
    append(&log, 1);
    assert_eq!(all(&log), payloads(1..=3));
    log.close().unwrap();
}

#[test]
fn batch_may_choose_its_sequence_numbers() {
    let (log, ..) = log();
    let records = numbered([(10, "a"), (12, "b"), (13, "c")]);
    let ticket = log.write(Append::numbered(Seq(9), &records)).unwrap();
    assert_eq!(ticket.blocking_wait().unwrap().seq, Seq(13));
    let more = numbered([(20, "d"), (21, "e")]);
    assert_eq!(
        log.write(Append::numbered(Seq(13), &more).atomic()).unwrap().blocking_wait().unwrap().seq,
        Seq(21)
    );
    let numbers: Vec<_> = all(&log).iter().map(|(seq, _)| *seq).collect();
    assert_eq!(numbers, [10, 12, 13, 20, 21]);
    log.close().unwrap();
}

#[test]
fn an_empty_batch_is_fine() {
    let (log, ..) = log();
    let none: [&[u8]; 0] = [];
    assert_eq!(log.write(Append::records(&none)).unwrap().blocking_wait().unwrap().seq, Seq(0));
    assert_eq!(
        log.write(Append::records(&none).atomic()).unwrap().blocking_wait().unwrap().seq,
        Seq(0)
    );
    append(&log, 3);
    assert_eq!(log.write(Append::records(&none)).unwrap().blocking_wait().unwrap().seq, Seq(3));
    assert_eq!(
        log.write(Append::records(&none).atomic()).unwrap().blocking_wait().unwrap().seq,
        Seq(3)
    );
    assert_eq!(all(&log), payloads(1..=3));
    log.close().unwrap();
}

/// Bug: a record could have the number 2^64 - 1. No number is after it, so that a reader that
/// resumed after it got it again, and no truncation dropped it.
#[test]
fn no_sequence_number_follows_the_largest() {
    let (log, ..) = log();
    let largest = Seq::MAX.0;
    let refused = append_if(&log, u64::MAX, largest, b"more").unwrap_err();
    assert_eq!(
        refused.to_string(),
        "numbers of records end with 18446744073709551614; continue in another log"
    );
    let refused = append_if(&log, u64::MAX, 7, b"more").unwrap_err();
    assert_eq!(
        refused.to_string(),
        "record 18446744073709551615 cannot be: numbers end with 18446744073709551614"
    );
    append_if(&log, largest, largest - 1, b"last").unwrap().blocking_wait().unwrap();
    let more = Seq(u64::MAX);
    for refused in [
        log.append(b"more").map(drop),
        log.write(Append::records(&[b"more"; 2])).map(drop).map_err(AppendError::from),
        log.write(Append::records(&[b"more"; 2]).atomic()).map(drop).map_err(AppendError::from),
        append_if(&log, more.0, largest, b"more").map(drop),
    ] {
        let error = refused.unwrap_err();
        assert!(matches!(error, AppendError::Sequence { prev: Seq::MAX, .. }), "{error:?}");
        assert!(error.to_string().starts_with("numbers of records end with 18446744073709551614"));
    }
    assert_eq!(log.read(largest).unwrap().payload(), b"last");
    let mut stream = log.stream(Start::Oldest).unwrap();
    assert_eq!(stream.blocking_next().unwrap().last(), Some(Seq::MAX));
    for start in [Start::After(Seq::MAX), Start::After(more), Start::From(more)] {
        assert!(log.stream(start).unwrap().try_next().unwrap().is_none(), "{start:?}");
    }
    let more = stream.blocking_next_timeout(std::time::Duration::from_millis(10)).err();
    assert!(matches!(more, Some(ReadError::Timeout)), "{more:?}");
    log.retention().truncate_before(u64::MAX).unwrap();
    assert_eq!((log.oldest(), log.stats().accepted), (Seq(u64::MAX), Seq::MAX));
    assert!(log.stream(Start::Oldest).unwrap().try_next().unwrap().is_none());
    log.close().unwrap();
}
