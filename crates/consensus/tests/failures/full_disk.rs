//! A consensus log on a full disk: accepts are refused and nothing is poisoned; truncating, closing
//! and reopening continue, and so do accepts when there is room.
#![allow(clippy::unwrap_used, clippy::panic)]

use esker_consensus::{Error, Mode, Options, Slot};
use esker_disk::sim::SimDisk;

use crate::fixture::{HIGHER, LOW, Setting, open_on, value};

fn small(options: &mut Options) {
    options.reserve = Some(512 << 10);
}

/// Accepts and commits until the disk is full; the first slot that was refused.
fn fill(s: &Setting, from: u64) -> u64 {
    for slot in from.. {
        let accepted = s
            .log
            .accept(Slot(slot), LOW, &value(slot))
            .and_then(esker_consensus::Ticket::blocking_wait);
        let committed = accepted.and_then(|_| s.log.commit(Slot(slot), LOW)?.blocking_wait());
        match committed {
            Ok(_) => assert!(slot < from + 100_000, "the disk is never full"),
            Err(Error::Log(esker_log::Error::NoSpace { .. })) => return slot,
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
        s.log.checkpoint().unwrap();
        s.log.truncate_before(Slot(frontier / 2)).unwrap();
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
        s.log.truncate_before(Slot(frontier)).unwrap();
        s.log.close().unwrap();
        drop(s);
        let s = open_on(&disk, mode, small);
        assert_eq!(s.log.promised(), LOW);
        disk.set_capacity(None);
        s.log.promise(HIGHER, Slot(frontier)).unwrap().blocking_wait().unwrap();
        s.accept(frontier + 1, HIGHER, b"room");
        s.commit(frontier + 1, HIGHER);
        assert_eq!(s.committed(frontier + 1), b"room");
        s.log.close().unwrap();
    }
}
