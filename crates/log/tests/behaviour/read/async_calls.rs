//! The async forms of calls that block.
//!
//! Guards: a read that blocks its task, or returns the record beside the one that was asked for; an
//! opening, a closing or a truncation that a dropped future leaves half done.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use esker_disk::Op;
use esker_disk::sim::{Effect, Fault, Gate, SimDisk};
use esker_log::{
    Append, Log, LogError, OpenError, ReadError, ReadOnlyLog, RetentionError, Seq, Trimmed,
};

use crate::fixture::{self, DIR, append, block_on, payload, payloads, poll_once, small, until};

/// A log whose records are all in files, with the threads of the process.
fn stored(disk: &SimDisk, records: u64) -> Log {
    let log = Log::builder(DIR).options(small(disk)).open().unwrap();
    append(&log, records);
    log.close().unwrap();
    Log::builder(DIR).options(small(disk)).open().unwrap()
}

#[test]
fn every_record_is_read_by_its_number() {
    let disk = SimDisk::new(1);
    let log = stored(&disk, 120);
    append(&log, 5);
    // A number that no record has, between two that have.
    log.write(Append::numbered(Seq(125), &[(Seq(130), payload(130))]))
        .unwrap()
        .blocking_wait()
        .unwrap();
    let reader = ReadOnlyLog::builder(DIR).options(small(&disk)).open().unwrap();
    log.retention().truncate_before(Seq(11)).unwrap();
    reader.refresh().unwrap();
    let both = |seq: u64| [block_on(log.read_async(seq)), block_on(reader.read_async(seq))];
    for seq in (11..=125).chain([130]) {
        for view in both(seq) {
            let view = view.unwrap();
            assert_eq!(view.record().seq, Seq(seq));
            assert!(view.payload() == payload(seq), "another payload under {seq}");
        }
    }
    for seq in [0, 126, 129, 131, u64::MAX] {
        for found in both(seq) {
            assert!(
                matches!(found, Err(ReadError::NotFound { seq: Seq(n) }) if n == seq),
                "{seq}: {found:?}"
            );
        }
    }
    for seq in [1, 10] {
        for found in both(seq) {
            assert!(
                matches!(found, Err(ReadError::Trimmed(Trimmed { oldest: Seq(11) }))),
                "{seq}: {found:?}"
            );
        }
    }
    log.close().unwrap();
    reader.close();
    assert!(matches!(block_on(log.read_async(11)), Err(ReadError::Log(LogError::Closed))));
    assert!(matches!(block_on(reader.read_async(11)), Err(ReadError::Log(LogError::Closed))));
}

/// The disk does not answer, and the task is free to do something else.
#[test]
fn a_read_does_not_block_its_task() {
    let disk = SimDisk::new(1);
    let log = stored(&disk, 50);
    let gate = Gate::new();
    disk.inject(Fault::on(Op::Read, Effect::Block(gate.clone())).path(".seg"));
    {
        let mut read = pin!(log.read_async(7));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(read.as_mut().poll(&mut cx).is_pending());
        until("a thread of the engine reads", || gate.waiting() > 0);
        assert!(read.as_mut().poll(&mut cx).is_pending());
    }
    // The read that was given up is not in the way of the next.
    gate.open();
    assert!(block_on(log.read_async(7)).unwrap().payload() == payload(7));
    log.close().unwrap();
}

#[test]
fn a_log_is_opened_truncated_and_closed_by_a_task() {
    let disk = SimDisk::new(1);
    let open = || Log::builder(DIR).options(small(&disk)).open_async();
    let log = block_on(open()).unwrap();
    append(&log, 20);
    assert!(matches!(block_on(open()).map(drop), Err(OpenError::Locked { .. })));
    block_on(log.retention().truncate_before_async(Seq(5))).unwrap();
    let above = block_on(log.retention().truncate_before_async(Seq(50)));
    assert!(matches!(above, Err(RetentionError::NotFound { .. })), "{above:?}");
    let reader = ReadOnlyLog::builder(DIR).options(small(&disk)).open_async();
    assert_eq!(block_on(reader).unwrap().oldest(), Seq(5));
    block_on(log.close_async()).unwrap();
    assert!(matches!(block_on(log.close_async()), Err(LogError::Closed)));
    let log = block_on(open()).unwrap();
    assert!(fixture::all(&log) == payloads(5..=20));
    assert!(log.storage().recovery().truncated_tail.is_none());
    block_on(log.close_async()).unwrap();
    let elsewhere = ReadOnlyLog::builder("/elsewhere").disk(Arc::new(disk.clone())).open_async();
    assert!(matches!(block_on(elsewhere).map(drop), Err(OpenError::NotALog { .. })));
}

/// Polls a future once, in the middle of a write, and drops it.
fn give_up<T>(disk: &SimDisk, call: impl Future<Output = T>) {
    let gate = Gate::new();
    disk.inject(Fault::on(Op::Write, Effect::Block(gate.clone())));
    let mut call = Box::pin(call);
    assert!(poll_once(&mut call).is_pending());
    until("the call writes", || gate.waiting() > 0);
    drop(call);
    disk.clear_faults();
    gate.open();
}

#[test]
fn calls_that_are_given_up_are_made_all_the_same() {
    let disk = SimDisk::new(1);
    let open = || Log::builder(DIR).options(small(&disk));
    give_up(&disk, open().open_async());
    until("the log was created and closed", || {
        disk.files(Path::new(DIR)).is_ok_and(|names| names.iter().any(|name| name == "manifest"))
            && open().open().is_ok()
    });
    let log = open().open().unwrap();
    append(&log, 9);
    give_up(&disk, log.retention().truncate_before_async(Seq(4)));
    until("the records are dropped", || log.oldest() == Seq(4));
    give_up(&disk, log.close_async());
    until("the log is closed", || {
        matches!(log.read(4).map(drop), Err(ReadError::Log(LogError::Closed)))
    });
    drop(log);
    let mut reopened = None;
    until("the lock is free", || {
        reopened = open().open().ok();
        reopened.is_some()
    });
    assert!(fixture::all(&reopened.unwrap()) == payloads(4..=9));
}
