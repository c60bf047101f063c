//! Bug: where the index page of a slot could not be read, each call named the first slot of the
//! page, 0 for all slots below 4096.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::ops::ControlFlow;

use esker_consensus::{Error, IterateOptions, Mode, Slot, StorageError};
use esker_disk::Op;
use esker_disk::sim::{Effect, Fault};

use crate::fixture::{HIGH, LOW, Setting, log, slots};

/// Pages of committed slots that only the log has, which cannot be read.
fn three_pages() -> Setting {
    let s = log(Mode::Durable);
    for first in (0..3 * 4096).step_by(512) {
        let values: Vec<_> = (first..first + 512).map(|slot| (Slot(slot), &b"value"[..])).collect();
        s.log.accept_batch(LOW, &values).unwrap().blocking_wait().unwrap();
    }
    s.log.commit_through(Slot(3 * 4096 - 1)).unwrap().blocking_wait().unwrap();
    s.log.maintenance().checkpoint().unwrap();
    let s = s.reopen(Mode::Durable);
    assert!(s.log.stats().pages < 2, "pages are read when they are needed");
    s.disk.inject(Fault::on(Op::Read, Effect::Io).path(".seg").times(u64::MAX));
    s
}

#[track_caller]
fn names(error: impl Into<Error>, expected: u64) {
    match error.into() {
        Error::Storage(StorageError::CorruptedEntry { slot: Slot(slot), .. }) => {
            assert_eq!(slot, expected);
        }
        error => panic!("{error:?}"),
    }
}

#[test]
fn the_error_names_the_slot_that_was_asked_for() {
    let s = three_pages();
    let guard = s.log.pin();
    for slot in [5, 4095, 4096, 4100] {
        names(s.log.read_committed(Slot(slot), &guard).unwrap_err(), slot);
        names(s.log.read(Slot(slot), &guard).unwrap_err(), slot);
        names(s.log.maintenance().offset_of(Slot(slot)).unwrap_err(), slot);
        names(s.log.learn(Slot(slot), HIGH, b"other").unwrap_err(), slot);
        names(s.log.accept(Slot(slot), HIGH, b"other").map(drop).unwrap_err(), slot);
        names(s.log.commit(Slot(slot), LOW).map(drop).unwrap_err(), slot);
        let visit = |_: &esker_consensus::Entry<'_>| ControlFlow::Continue(());
        let all = s.log.iterate(slots(slot..), IterateOptions::default(), visit);
        names(all.map(drop).unwrap_err(), slot);
    }
    assert!(s.log.read(Slot(5), &guard).unwrap_err().to_string().contains("slot 5"));
}
