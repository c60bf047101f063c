//! `Log::write` and its forms: every kind of [`Append`] with every way to wait, and what was
//! accepted when room ends midway.

use std::time::Duration;

use esker_log::{Append, AppendError, Log, Result, Seq, Ticket, WriteError};

use super::backpressure::{fill, stuck};
use crate::fixture::{LONG, all, block_on, log, payload, payloads, poll_once};

type Write = fn(&Log, Append<'_, Vec<u8>>) -> Result<Ticket, WriteError>;

const WAYS: [(&str, Write); 4] = [
    ("write", |log, append| log.write(append)),
    ("write_async", |log, append| block_on(log.write_async(append))),
    ("try_write", |log, append| log.try_write(append)),
    ("write_timeout", |log, append| log.write_timeout(append, LONG)),
];

fn with(append: Append<'_, Vec<u8>>, atomic: bool) -> Append<'_, Vec<u8>> {
    if atomic { append.atomic() } else { append }
}

/// The records that would follow the record `prev`, numbered with gaps.
fn with_gaps(prev: u64, count: u64) -> Vec<(Seq, Vec<u8>)> {
    (1..=count).map(|n| (Seq(prev + 3 * n), payload(prev + 3 * n))).collect()
}

#[test]
fn every_append_is_accepted_in_every_way_to_wait() {
    let (log, ..) = log();
    let mut expected = Vec::new();
    for (way, write) in WAYS {
        for (count, atomic) in [(1, false), (1, true), (3, false), (3, true)] {
            let case = format!("{way}, {count} records, atomic: {atomic}");
            for is_conditional in [false, true] {
                let prev = log.accepted().0;
                let records = payloads(prev + 1..=prev + count);
                let several: Vec<_> = records.iter().map(|(_, payload)| payload.clone()).collect();
                let append = match is_conditional {
                    true => Append::after(Seq(prev), &several),
                    false => Append::records(&several),
                };
                let ticket = write(&log, with(append, atomic)).unwrap();
                assert_eq!(ticket.blocking_wait().unwrap().seq, Seq(prev + count), "{case}");
                expected.extend(records);
            }
            let prev = log.accepted();
            let records = with_gaps(prev.0, count);
            let ticket = write(&log, with(Append::numbered(prev, &records), atomic)).unwrap();
            assert_eq!(ticket.blocking_wait().unwrap().seq, records.last().unwrap().0, "{case}");
            expected.extend(records.into_iter().map(|(seq, payload)| (seq.0, payload)));
        }
    }
    assert_eq!(all(&log), expected);
    log.close().unwrap();
}

#[test]
fn a_condition_that_fails_accepts_nothing_in_any_way_to_wait() {
    let (log, ..) = log();
    let durable = log.append(payload(1)).unwrap().blocking_wait().unwrap().seq;
    log.append(payload(2)).unwrap().detach();
    for (way, write) in WAYS {
        for count in [1, 3] {
            let several: Vec<_> = (0..count).map(payload).collect();
            for (prev, conflicts) in [(durable, true), (Seq(0), false), (Seq(3), false)] {
                for append in
                    [Append::after(prev, &several), Append::after(prev, &several).atomic()]
                {
                    let WriteError { error, accepted, .. } = write(&log, append).unwrap_err();
                    let case = format!("{way} of {append:?}: {error:?}");
                    assert_eq!(matches!(error, AppendError::Conflict { .. }), conflicts, "{case}");
                    assert_eq!(matches!(error, AppendError::Sequence { .. }), !conflicts, "{case}");
                    assert_eq!((accepted, log.accepted()), (0, Seq(2)), "{case}");
                }
            }
        }
    }
    log.close().unwrap();
}

/// Guards: `Append::after` with the freedom of numbered records, of which the first one of an empty
/// log may follow any number.
#[test]
fn the_first_record_that_the_log_numbers_follows_0_alone() {
    let (log, ..) = log();
    let late = log.write(Append::after(Seq(7), &["late"])).unwrap_err();
    assert!(matches!(late.error, AppendError::Sequence { expected: Seq(0), .. }), "{late:?}");
    assert_eq!(log.write(Append::after(Seq(0), &["a", "b"])).unwrap().seq(), Seq(2));
    log.close().unwrap();
}

#[test]
fn no_number_follows_the_largest() {
    let (log, ..) = log();
    let last = [(Seq::MAX, "last")];
    log.write(Append::numbered(Seq(Seq::MAX.0 - 1), &last)).unwrap().blocking_wait().unwrap();
    for prev in [Seq::MAX, Seq(u64::MAX)] {
        for append in [Append::after(prev, &["a"]), Append::after(prev, &["a", "b"])] {
            let refused = log.write(append).unwrap_err();
            let WriteError { error: AppendError::Sequence { expected: Seq::MAX, .. }, .. } =
                refused
            else {
                panic!("{refused:?}")
            };
        }
    }
    log.close().unwrap();
}

/// Records that each fill a buffer, of which the second one finds no room.
fn large() -> Vec<Vec<u8>> {
    (0..9).map(|n| vec![n; 6000]).collect()
}

#[test]
fn a_write_without_room_for_all_says_how_many_were_accepted() {
    let (log, opens) = stuck();
    let before = log.accepted();
    let records = large();
    let full = log.try_write(Append::records(&records)).unwrap_err();
    assert!(matches!(full.error, AppendError::Full), "{full:?}");
    assert!((1..9).contains(&full.accepted), "{full:?}");
    assert_eq!(log.accepted(), Seq(before.0 + full.accepted as u64));
    assert!(full.to_string().ends_with("then: the staging memory is full"), "{full}");

    let rest = &records[full.accepted..];
    let late = log.write_timeout(Append::records(rest), Duration::from_millis(30)).unwrap_err();
    assert!(
        matches!(late, WriteError { error: AppendError::Timeout, accepted: 0, .. }),
        "{late:?}"
    );
    let mut waiting = Box::pin(log.write_async(Append::records(rest)));
    assert!(poll_once(&mut waiting).is_pending());
    drop(opens);
    assert_eq!(block_on(waiting).unwrap().blocking_wait().unwrap().seq, Seq(before.0 + 9));
    let read: Vec<_> = all(&log).into_iter().skip(1).map(|(_, payload)| payload).collect();
    assert_eq!(read, records);
    log.close().unwrap();
}

#[test]
fn a_write_that_times_out_says_how_many_were_accepted() {
    let (log, opens) = stuck();
    let before = log.accepted();
    let records = large();
    let late = log.write_timeout(Append::records(&records), Duration::from_millis(30)).unwrap_err();
    assert!(matches!(late.error, AppendError::Timeout), "{late:?}");
    assert!((1..9).contains(&late.accepted), "{late:?}");
    assert_eq!(log.accepted(), Seq(before.0 + late.accepted as u64));
    drop(opens);
    log.close().unwrap();
}

/// Another caller's record comes between the records of a conditional write that waits for room.
#[test]
fn a_write_that_is_overtaken_says_how_many_were_accepted() {
    let (log, opens) = stuck();
    let prev = log.accepted();
    let records = large();
    let mut waiting = Box::pin(log.write_async(Append::after(prev, &records)));
    assert!(poll_once(&mut waiting).is_pending());
    let accepted = log.accepted().0 - prev.0;
    assert!((1..9).contains(&accepted), "{accepted}");
    drop(log.try_append(payload(0)).unwrap());
    drop(opens);
    let overtaken = block_on(waiting).unwrap_err();
    assert!(matches!(overtaken.error, AppendError::Sequence { .. } | AppendError::Conflict { .. }));
    assert_eq!(overtaken.accepted as u64, accepted);
    log.close().unwrap();
}

#[test]
fn an_atomic_write_without_room_accepts_nothing() {
    let (log, opens) = stuck();
    let last = fill(&log);
    let several: Vec<_> = (1..=3).map(|n| payload(last + n)).collect();
    for append in [Append::records(&several), Append::after(Seq(last), &several)] {
        let full = log.try_write(append.atomic()).unwrap_err();
        assert!(
            matches!(full, WriteError { error: AppendError::Full, accepted: 0, .. }),
            "{full:?}"
        );
        assert_eq!(log.accepted(), Seq(last));
    }
    drop(opens);
    log.close().unwrap();
}
