//! Bug: `append_atomic` asked each payload three times for its bytes, so that one that answers
//! differently got a place of another size than it filled: a write past the end of the buffer, a
//! panic with the log locked, or a commit that waits for ever.
//!
//! Code of the caller (`AsRef`, wakers) is run once, without a lock, and may answer anything, call
//! the log, or panic.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};

use esker_disk::Op;
use esker_disk::sim::{Effect, Fault, Gate, SimDisk};
use esker_log::{Append, Error, Log, Result, Sink, Ticket};

use crate::fixture::{self, DIR, Opens, all, block_on, driven, in_time, log, small};

/// A payload that answers something else each time, or panics.
struct Fickle {
    answers: Vec<Vec<u8>>,
    /// The call that panics.
    panics_at: usize,
    asked: AtomicUsize,
}

impl Fickle {
    fn new(answers: &[usize]) -> Self {
        let answers = answers.iter().map(|len| vec![b'0' + answers.len() as u8; *len]).collect();
        Self { answers, panics_at: usize::MAX, asked: AtomicUsize::new(0) }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

impl AsRef<[u8]> for Fickle {
    fn as_ref(&self) -> &[u8] {
        let call = self.asked.fetch_add(1, Ordering::SeqCst);
        assert!(call != self.panics_at, "the payload panics");
        &self.answers[call.min(self.answers.len() - 1)]
    }
}

/// Every way to append, each as a batch of what it is given.
type Way = (&'static str, fn(&Log, &[&Fickle]) -> Result<Ticket>);

const WAYS: [Way; 8] = [
    ("append", |log, records| each(records, |record| log.append(record).map_err(Into::into))),
    ("try_append", |log, records| {
        each(records, |record| log.try_append(record).map_err(Into::into))
    }),
    ("append_timeout", |log, records| {
        each(records, |record| log.append_timeout(record, fixture::LONG).map_err(Into::into))
    }),
    ("append_async", |log, records| {
        each(records, |record| block_on(log.append_async(record)).map_err(Into::into))
    }),
    ("write", |log, records| Ok(log.write(Append::records(records))?)),
    ("write_async", |log, records| Ok(block_on(log.write_async(Append::records(records)))?)),
    ("write, atomic", |log, records| Ok(log.write(Append::records(records).atomic())?)),
    ("sink", |log, records| {
        let mut sink = Sink::new(log)?;
        records.iter().try_for_each(|record| sink.blocking_append(*record))?;
        log.barrier().map_err(Into::into)
    }),
];

fn each(records: &[&Fickle], append: impl Fn(&Fickle) -> Result<Ticket>) -> Result<Ticket> {
    let mut last = None;
    for record in records {
        last = Some(append(record)?);
    }
    last.ok_or(Error::Full)
}

/// The log takes records, closes, and shows what it took, in another life, too.
fn goes_on(log: Log, disk: &SimDisk, expected: &[Vec<u8>]) {
    log.append(b"after").unwrap().blocking_wait().unwrap();
    let mut expected = expected.to_vec();
    expected.push(b"after".to_vec());
    let payloads = |log: &Log| all(log).into_iter().map(|(_, payload)| payload).collect::<Vec<_>>();
    assert_eq!(payloads(&log), expected);
    log.close().unwrap();
    let log = Log::builder(DIR).options(driven(disk).0).open().unwrap();
    assert_eq!(payloads(&log), expected);
    log.close().unwrap();
}

/// Longer answers wrote past the reservation; shorter ones left the commit waiting for bytes that
/// were never filled.
#[test]
fn a_payload_that_answers_differently_is_stored_as_it_first_answered() {
    let sizes: [&[usize]; 6] = [
        &[100, 100, 3000],
        &[100, 3000, 3000],
        &[3000, 3000, 100],
        &[3000, 100, 100],
        &[100, 0, 60_000],
        &[0, 5_000_000, 0],
    ];
    for (way, append) in WAYS {
        for answers in sizes {
            in_time(&format!("{way} of {answers:?}"), move || {
                let (log, disk, _) = log();
                let records = [Fickle::new(&[10]), Fickle::new(answers), Fickle::new(&[20])];
                append(&log, &records.each_ref()).unwrap().blocking_wait().unwrap();
                assert_eq!(records.each_ref().map(Fickle::asked), [1, 1, 1], "{way}");
                let first: Vec<_> = records.iter().map(|r| r.answers[0].clone()).collect();
                goes_on(log, &disk, &first);
            });
        }
    }
}

/// An append that has to wait for room tries again, but does not ask again.
#[test]
fn waiting_for_room_does_not_ask_again() {
    for (way, append) in WAYS.into_iter().filter(|(way, _)| *way != "try_append") {
        in_time(way, move || {
            let disk = SimDisk::new(1);
            let log = Log::builder(DIR).options(small(&disk)).open().unwrap();
            // Ten times what the buffers hold.
            let records: Vec<_> = (0..160).map(|_| Fickle::new(&[1000, 1])).collect();
            for chunk in records.iter().collect::<Vec<_>>().chunks(7) {
                drop(append(&log, chunk).unwrap());
            }
            assert!(records.iter().all(|record| record.asked() == 1), "{way}");
            log.barrier().unwrap().blocking_wait().unwrap();
            assert!(all(&log).iter().all(|(_, payload)| payload.len() == 1000), "{way}");
            log.close().unwrap();
        });
    }
}

/// The panic reaches the caller. Single appends before it stay accepted; of a batch nothing is.
#[test]
fn payload_that_panics_appends_nothing() {
    for (way, append) in WAYS {
        for panics_at in 0..3 {
            in_time(&format!("{way}, a panic at call {panics_at}"), move || {
                let (log, disk, _) = log();
                let mut records = [Fickle::new(&[10]), Fickle::new(&[10]), Fickle::new(&[10])];
                records[1].panics_at = panics_at;
                let outcome = catch_unwind(AssertUnwindSafe(|| {
                    drop(append(&log, &records.each_ref()).unwrap());
                }));
                assert_eq!(outcome.is_err(), panics_at == 0, "{way}");
                let batch = way.starts_with("write");
                let accepted = match panics_at {
                    0 if batch => 0,
                    0 => 1,
                    _ => 3,
                };
                assert_eq!(log.accepted().0, accepted, "{way}");
                goes_on(log, &disk, &vec![vec![b'1'; 10]; accepted as usize]);
            });
        }
    }
}

/// A payload that appends to the log that asks it.
struct Calls(Log);

impl AsRef<[u8]> for Calls {
    fn as_ref(&self) -> &[u8] {
        self.0.append(b"within").unwrap().blocking_wait().unwrap();
        b"around"
    }
}

/// No lock of the log is held while the caller's code runs.
#[test]
fn a_payload_may_call_the_log() {
    in_time("appends within appends", || {
        let (log, disk, _) = log();
        let record = Calls(log.clone());
        log.append(&record).unwrap().blocking_wait().unwrap();
        let two = [&record, &record];
        log.write(Append::records(&two)).unwrap().blocking_wait().unwrap();
        log.write(Append::records(&two).atomic()).unwrap().blocking_wait().unwrap();
        drop(record);
        let [within, around] = [b"within", b"around"].map(|bytes| bytes.to_vec());
        let one = vec![within.clone(), around.clone()];
        let both = vec![within.clone(), within, around.clone(), around];
        goes_on(log, &disk, &[one, both.clone(), both].concat());
    });
}

/// Commits wait in the disk until this goes.
fn held(disk: &SimDisk) -> Opens {
    let gate = Gate::new();
    disk.inject(Fault::on(Op::Write, Effect::Block(gate.clone())).path(".seg"));
    Opens(disk.clone(), gate)
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("the waker panics");
    }
}

/// A waker that panics took the commit down with it: the log stopped, and the tasks after it in the
/// list were never woken.
#[test]
fn panicking_waker_stops_no_other_caller() {
    let disk = SimDisk::new(1);
    let log = Log::builder(DIR).options(small(&disk)).open().unwrap();
    let held = held(&disk);
    let waker = Waker::from(Arc::new(Panics));
    let mut first = log.append(b"first").unwrap();
    assert!(Pin::new(&mut first).poll(&mut Context::from_waker(&waker)).is_pending());
    let woken = Arc::new(fixture::Wakes::default());
    let mut second = log.append(b"second").unwrap();
    let waker = Waker::from(Arc::clone(&woken));
    assert!(Pin::new(&mut second).poll(&mut Context::from_waker(&waker)).is_pending());
    drop(held);
    fixture::until("the second task is woken", || woken.count() > 0);
    assert!(block_on(second).is_ok() && first.is_durable());
    log.append(b"third").unwrap().blocking_wait().unwrap();
    log.close().unwrap();
}

/// The same of tasks that wait for a segment to be made, which the engine does.
#[test]
fn panicking_waker_stops_no_caller_that_waits_for_space() {
    let disk = SimDisk::new(1);
    let mut options = small(&disk);
    options.buffers = 8;
    let log = Log::builder(DIR).options(options).open().unwrap();
    let gate = Gate::new();
    let made = Opens(disk.clone(), gate.clone());
    let record = vec![7; 3000];
    // Making space waits in the disk, so that all tasks are there when it is done.
    disk.inject(Fault::on(Op::Size, Effect::Block(gate)));
    let mut futures: Vec<_> = (0..64).map(|_| Box::pin(log.append_async(&record))).collect();
    let panics = Waker::from(Arc::new(Panics));
    let woken = Arc::new(fixture::Wakes::default());
    let wakes = Waker::from(Arc::clone(&woken));
    let mut pending = 0;
    for future in &mut futures {
        // In whichever order they are woken, a panic comes first.
        let waker = if pending % 2 == 0 { &panics } else { &wakes };
        pending += usize::from(future.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
        if pending == 3 {
            break;
        }
    }
    assert_eq!(pending, 3, "three futures have to wait");
    drop(made);
    fixture::until("the second task is woken", || woken.count() > 0);
    drop(futures);
    log.append(b"and on").unwrap().blocking_wait().unwrap();
    log.close().unwrap();
}

/// A waker whose last owner is the log's list, and that calls the log as it goes.
struct Goodbye(Log);

impl Wake for Goodbye {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Goodbye {
    fn drop(&mut self) {
        let mut ticket = self.0.append(b"bye").unwrap();
        assert!(fixture::poll_once(&mut ticket).is_pending());
    }
}

/// Replacing a waker dropped the old one under the lock of the list.
#[test]
fn a_waker_may_call_the_log_as_it_goes() {
    in_time("a waker that is replaced", || {
        let disk = SimDisk::new(1);
        let log = Log::builder(DIR).options(small(&disk)).open().unwrap();
        let held = held(&disk);
        let mut ticket = log.append(b"first").unwrap();
        let waker = Waker::from(Arc::new(Goodbye(log.clone())));
        assert!(Pin::new(&mut ticket).poll(&mut Context::from_waker(&waker)).is_pending());
        drop(waker);
        assert!(fixture::poll_once(&mut ticket).is_pending());
        drop(held);
        block_on(ticket).unwrap();
        log.close().unwrap();
    });
}
