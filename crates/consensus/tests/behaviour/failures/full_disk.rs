//! A consensus log on a full disk: accepts are refused and nothing is poisoned; truncating, closing
//! and reopening continue, and so do accepts when there is room.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::ops::ControlFlow;

use esker_consensus::{Entry, Error, IterateOptions, Mode, Options, Slot, StorageError};
use esker_disk::sim::SimDisk;

use crate::fixture::{HIGHER, LOW, Setting, open_on, value};

fn small(options: &mut Options) {
    options.log.reserve = Some(512 << 10);
}

/// Accepts and commits until the disk is full; the first slot that was refused.
fn fill(s: &Setting, from: u64) -> u64 {
    for slot in from.. {
        let committed = || -> Result<(), Error> {
            s.log.accept(Slot(slot), LOW, &value(slot))?.blocking_wait()?;
            Ok(s.log.commit(Slot(slot), LOW)?.blocking_wait()?)
        };
        match committed() {
            Ok(_) => assert!(slot < from + 100_000, "the disk is never full"),
            Err(Error::Storage(StorageError::Log(esker_log::Error::NoSpace { .. }))) => {
                return slot;
            }
            Err(error) => panic!("{slot}: {error:?}"),
        }
    }
    unreachable!()
}

#[test]
fn truncation_and_reopen_work_on_a_full_disk() {
    for mode in [Mode::Durable] {
        let disk = SimDisk::new(1);
        disk.set_capacity(Some(3 << 20));
        let s = open_on(&disk, mode, small);
        s.log.promise(LOW, Slot(0)).unwrap().blocking_wait().unwrap();
        let next = fill(&s, 0);
        let Some(Slot(frontier)) = s.log.frontier() else { panic!("nothing is committed") };
        assert!(frontier > 50 && next > frontier);
        s.log.maintenance().checkpoint().unwrap();
        s.log.truncate_before(Slot(frontier / 2)).unwrap().blocking_wait().unwrap();
        assert_eq!(s.committed(frontier), value(frontier));
        disk.kill();
        drop(s);
        disk.power_on();
        let s = open_on(&disk, mode, small);
        assert_eq!(
            (s.log.floor(), s.log.frontier()),
            (Some(Slot(frontier / 2 - 1)), Some(Slot(frontier)))
        );
        for slot in frontier / 2..=frontier {
            assert_eq!(s.committed(slot), value(slot));
        }
        s.log.truncate_before(Slot(frontier)).unwrap().blocking_wait().unwrap();
        s.log.close().unwrap();
        drop(s);
        let s = open_on(&disk, mode, small);
        assert_eq!(s.log.promised(), Some(LOW));
        disk.set_capacity(None);
        s.log.promise(HIGHER, Slot(frontier)).unwrap().blocking_wait().unwrap();
        s.accept(frontier + 1, HIGHER, b"room");
        s.commit(frontier + 1, HIGHER);
        assert_eq!(s.committed(frontier + 1), b"room");
        s.log.close().unwrap();
    }
}

fn is_full<T>(outcome: &Result<T, impl Clone + Into<Error>>) -> bool {
    let error = outcome.as_ref().err().cloned().map(Into::into);
    matches!(error, Some(Error::Storage(StorageError::Log(esker_log::Error::NoSpace { .. }))))
}

/// Bug: with small values and few checkpoints, the checkpoint that has to precede the drop of a
/// segment did not fit in the reserve. So a full disk stayed full, whatever was truncated.
#[test]
fn truncated_segments_are_dropped_on_a_full_disk() {
    for tenths in [1, 3, 6] {
        let disk = SimDisk::new(1);
        disk.set_capacity(Some(12 << 20));
        let s = open_on(&disk, Mode::Durable, small);
        let full = (0..).find(|slot| {
            let learned = s.log.learn(Slot(*slot), LOW, &[*slot as u8; 8]).map(drop);
            assert!(learned.is_ok() || is_full(&learned), "{slot}: {learned:?}");
            learned.is_err()
        });
        let next = full.unwrap();
        assert!(next > 50_000, "{next}");
        let first = next / 10 * tenths;
        s.log.truncate_before(Slot(first)).unwrap().blocking_wait().unwrap();
        s.log.maintenance().reclaim().unwrap();
        let freed = s.log.stats().reclaimed.bytes_freed;
        assert!(freed > first * 48, "{tenths} tenths: {freed} bytes of {first} slots");
        // Each by itself would take a block.
        let learn = |slot| s.log.learn(Slot(slot), LOW, &[slot as u8; 8]).unwrap();
        let tickets: Vec<_> = (next..next + 1000).map(learn).collect();
        for ticket in tickets {
            ticket.blocking_wait().unwrap();
        }
        disk.kill();
        drop(s);
        disk.power_on();
        let s = open_on(&disk, Mode::Durable, small);
        assert_eq!(s.log.floor(), Some(Slot(first - 1)));
        // All in order, and some alone: each of these goes through a whole commit.
        let mut slots = first..;
        let visit = |entry: &Entry<'_>| {
            let slot = slots.next().unwrap();
            assert_eq!((entry.slot().0, entry.value()), (slot, &[slot as u8; 8][..]));
            ControlFlow::Continue(())
        };
        s.log.iterate(.., IterateOptions::default(), visit).unwrap();
        assert_eq!(slots.start, next + 1000);
        for slot in (first..next + 1000).step_by(499) {
            assert_eq!(s.committed(slot), [slot as u8; 8]);
        }
        s.log.close().unwrap();
    }
}

/// Guards: copies that fit in the reserve, and leave no room there for the checkpoint after them.
#[test]
fn copies_leave_room_for_the_checkpoint() {
    let disk = SimDisk::new(1);
    disk.set_capacity(Some(12 << 20));
    let s = open_on(&disk, Mode::Durable, small);
    // Of each segment, 40 of 100 values stay. They are of 24 pages in turn.
    let place = |n: u64| n % 24 * 4096 + n / 24;
    let mut learned = 0;
    let refused = (0..).find_map(|n: u64| {
        let kept = n % 100 < 40;
        let outcome = if kept {
            s.log.learn(Slot(place(learned)), LOW, &[7; 200]).map_err(Error::from)
        } else {
            s.log.accept(Slot(1_000_000 + n), LOW, &[7; 200]).map_err(Error::from)
        };
        learned += u64::from(kept && outcome.is_ok());
        Some(outcome.map(drop)).filter(Result::is_err)
    });
    assert!(refused.is_some_and(|refused| is_full(&refused)) && learned > 15_000, "{learned}");
    s.log.truncate_from(Slot(500_000).next()).unwrap().blocking_wait().unwrap();
    let before = s.log.stats().log_stats.accepted;
    for _ in 0..3 {
        assert!(is_full(&s.log.maintenance().reclaim()));
    }
    assert_eq!(s.log.stats().log_stats.accepted, before, "it uses none of the reserve");
    s.log.maintenance().checkpoint().unwrap();
    let Some(Slot(frontier)) = s.log.frontier() else { panic!("nothing is committed") };
    s.log.truncate_before(Slot(frontier)).unwrap().blocking_wait().unwrap();
    disk.set_capacity(None);
    assert!(s.log.maintenance().reclaim().unwrap().segments > 50);
    s.log.close().unwrap();
}
