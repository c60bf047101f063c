//! Opening brings back what is uncommitted, and reads no more than that takes.
#![allow(clippy::unwrap_used, clippy::panic)]

use esker_consensus::Mode;

use crate::fixture::{LOW, log, value};

const SLOTS: u64 = 5_000;

/// One read for each value would be minutes for a region of the default size.
#[test]
fn uncommitted_values_are_read_together() {
    let s = log(Mode::Durable);
    // In another order than that of the slots, and every fifth is committed.
    let order: Vec<u64> = (0..SLOTS).map(|n| n * 1_999 % SLOTS).collect();
    for slots in order.chunks(500) {
        let values: Vec<Vec<u8>> = slots.iter().map(|slot| value(*slot)).collect();
        let entries: Vec<(u64, &[u8])> =
            slots.iter().zip(&values).map(|(slot, value)| (*slot, &**value)).collect();
        s.log.accept_batch(LOW, &entries).unwrap().wait().unwrap();
    }
    let marks: Vec<_> = (0..SLOTS).step_by(5).map(|slot| (slot, LOW)).collect();
    s.log.commit_batch(&marks).unwrap().ticket.wait().unwrap();
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
