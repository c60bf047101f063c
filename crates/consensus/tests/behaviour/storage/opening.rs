//! Opening brings back what is uncommitted, and reads no more than that takes.
#![allow(clippy::unwrap_used, clippy::panic)]

use esker_consensus::{ConsensusLog, LogOptions, Mode, Options, Slot};
use esker_disk::sim::SimDisk;
use esker_log::OpenCheck;

use crate::fixture::{DIR, LOW, driven, log, log_with, value};

const SLOTS: u64 = 5_000;

#[test]
fn options_are_set_one_by_one_and_read_back() {
    let (options, engine) = driven(&SimDisk::new(1), Mode::Durable);
    let mut log = LogOptions::on(options.log.disk);
    log.check = OpenCheck::Full;
    let builder = ConsensusLog::builder(DIR).log(log).mode(Mode::Volatile).engine(engine.clone());
    let log = builder.sync_on_commit(false).mutable_size(1 << 20).open();
    let log = log.unwrap();
    let set = log.options();
    assert_eq!((set.mode, set.sync_on_commit, set.mutable_size), (Mode::Volatile, false, 1 << 20));
    assert_eq!((set.log.check, set.cache_size), (OpenCheck::Full, Options::default().cache_size));
    log.close().unwrap();
    engine.stop();
}

/// One write carries one staging buffer of the log at most.
#[test]
fn smaller_buffers_take_more_commits() {
    let commits = |buffer_size: Option<u32>| {
        let s = log_with(Mode::Durable, |options| {
            options.log.buffer_size = buffer_size.unwrap_or(options.log.buffer_size);
        });
        let before = s.log.stats().log_stats.commits;
        let value = [7; 1024];
        let entries: Vec<(Slot, &[u8])> = (0..40).map(|slot| (Slot(slot), &value[..])).collect();
        s.log.accept_batch(LOW, &entries).unwrap().blocking_wait().unwrap();
        s.log.stats().log_stats.commits - before
    };
    let small = commits(Some(8 << 10));
    assert!(small >= 5 && commits(None) < 5, "{small}");
}

/// One read for each value would be minutes for a region of the default size.
#[test]
fn uncommitted_values_are_read_together() {
    let s = log(Mode::Durable);
    // In another order than that of the slots, and every fifth is committed.
    let order: Vec<u64> = (0..SLOTS).map(|n| n * 1_999 % SLOTS).collect();
    for slots in order.chunks(500) {
        let values: Vec<Vec<u8>> = slots.iter().map(|slot| value(*slot)).collect();
        let entries: Vec<(Slot, &[u8])> =
            slots.iter().zip(&values).map(|(slot, value)| (Slot(*slot), &**value)).collect();
        s.log.accept_batch(LOW, &entries).unwrap().blocking_wait().unwrap();
    }
    let marks: Vec<_> = (0..SLOTS).step_by(5).map(|slot| (Slot(slot), LOW)).collect();
    s.log.commit_batch(&marks).unwrap().ticket.blocking_wait().unwrap();
    let before = s.disk.stats().reads;
    let s = s.kill(Mode::Durable);
    let reads = s.disk.stats().reads - before;
    assert!(reads < SLOTS / 20, "{reads} reads");
    let expected: Vec<_> =
        (0..SLOTS).filter(|slot| slot % 5 > 0).map(|slot| (slot, LOW, value(slot))).collect();
    assert_eq!(s.uncommitted(), expected);
    assert_eq!(
        s.log.stats().mutable_used,
        expected.iter().map(|(.., v)| v.len().max(64) as u64).sum::<u64>()
    );
}
