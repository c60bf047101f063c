//! The value budget: a full one is an error, and room comes back at once.

use std::time::{Duration, Instant};

use esker_consensus::{AcceptError, Ballot, Mode, Slot, StorageError};
use esker_disk::Op;
use esker_disk::sim::{Effect, Fault};

use crate::fixture::{HIGH, HIGHER, LOW, MODES, log_with, value};

/// A caller that waits this long was forgotten.
const LONG: Duration = Duration::from_secs(20);

/// Lets another thread come to where it waits. That it does makes a test bite, and not pass.
fn give_way() {
    (0..500).for_each(|_| std::thread::yield_now());
}

/// Guards against an appender that spins after one old slot: full is an error, at once.
#[test]
fn full_value_budget_is_an_error_for_new_values_only() {
    for mode in MODES {
        let s = log_with(mode, |options| options.mutable_size = 4096);
        s.accept(0, LOW, &[1; 2048]);
        s.accept(1, LOW, &[2; 2048]);
        let full = s.log.accept(Slot(2), LOW, &[3; 64]);
        assert!(matches!(full, Err(AcceptError::BufferFull { used: 4096, size: 4096 })));
        // Slot 0 stays uncommitted, and the room after it is used again and again.
        s.commit(1, LOW);
        for slot in 2..100 {
            s.accept(slot, LOW, &[slot as u8; 2048]);
            s.commit(slot, LOW);
        }
        assert_eq!(s.log.stats().mutable_used, 2048);
        s.commit(0, LOW);
        assert_eq!((s.log.stats().mutable_used, s.log.stats().mutable_free), (0, 4096));
        assert!((2..100).all(|slot| s.committed(slot) == [slot as u8; 2048]));
    }
}

/// Guards against a region full of an old leader's values that a new one can neither commit nor
/// replace.
#[test]
fn full_value_budget_takes_replacements() {
    for mode in MODES {
        let s = log_with(mode, |options| options.mutable_size = 4096);
        s.accept(0, LOW, &[1; 2048]);
        s.accept(1, LOW, &[2; 2048]);
        s.accept(0, HIGH, &[3; 2048]);
        s.accept(1, HIGH, &[4; 100]);
        assert_eq!(s.log.stats().mutable_used, 2148);
        let grows = s.log.accept(Slot(1), Ballot { number: 9, node: 9 }, &[5; 2049]);
        assert!(matches!(grows, Err(AcceptError::BufferFull { .. })));
        assert_eq!(s.log.promised(), Some(HIGH), "what was refused promised nothing");
    }
}

#[test]
fn wait_for_budget_ends_with_budget_or_at_its_deadline() {
    for mode in MODES {
        let s = log_with(mode, |options| {
            options.mutable_size = 4096;
            options.log.engine = None;
        });
        s.accept(0, LOW, &[1; 4096]);
        let begin = Instant::now();
        let late = s.log.accept_timeout(Slot(1), LOW, &[1; 64], Duration::from_millis(20));
        assert!(matches!(late, Err(AcceptError::BufferFull { .. })));
        assert!(begin.elapsed() >= Duration::from_millis(20));
        std::thread::scope(|threads| {
            let waits = threads.spawn(|| {
                s.log.accept_timeout(Slot(1), LOW, &[1; 64], Duration::MAX).unwrap().blocking_wait()
            });
            s.commit(0, LOW);
            waits.join().unwrap().unwrap();
        });
    }
}

/// A value that replaces another waits for no more than it is longer by.
#[test]
fn replacement_waits_for_its_extra_bytes() {
    for mode in MODES {
        let s = log_with(mode, |options| {
            options.mutable_size = 4096;
            options.log.engine = None;
        });
        s.accept(0, LOW, &[1; 2000]);
        s.accept(1, LOW, &[1; 2000]);
        s.log.promise(HIGH, Slot(0)).unwrap().blocking_wait().unwrap();
        std::thread::scope(|threads| {
            let longer = || -> Result<(), AcceptError> {
                Ok(s.log.accept_timeout(Slot(0), HIGH, &[2; 3000], LONG)?.blocking_wait()?)
            };
            let waits = threads.spawn(longer);
            give_way();
            s.commit(1, LOW);
            waits.join().unwrap().unwrap();
        });
    }
}

/// A failed log releases no room.
#[test]
fn failure_ends_the_wait_for_budget() {
    for mode in MODES {
        let s = log_with(mode, |options| {
            options.mutable_size = 4096;
            options.log.engine = None;
        });
        s.accept(0, LOW, &[1; 4096]);
        s.disk.inject(Fault::on(Op::Write, Effect::Io));
        std::thread::scope(|threads| {
            let waits =
                threads.spawn(|| s.log.accept_timeout(Slot(1), HIGHER, &[1; 64], LONG).map(drop));
            give_way();
            assert!(s.log.promise(HIGH, Slot(0)).unwrap().blocking_wait().is_err());
            let reported = waits.join().unwrap();
            assert!(
                matches!(
                    reported,
                    Err(AcceptError::Storage(StorageError::Log(esker_log::Error::Poisoned(_))))
                ),
                "{reported:?}"
            );
        });
    }
}

/// 3,000 values of 100 bytes through 100 KB, 5,000 through 200 KB in rounds, 1,000 through 10 KB.
#[test]
fn many_values_pass_through_a_small_budget() {
    for (count, size, round) in [(3000, 100_000, 1), (5000, 200_000, 50), (1000, 10_000, 1)] {
        let s = log_with(Mode::Volatile, |options| options.mutable_size = size);
        for first in (0..count).step_by(round) {
            let slots = first..first + round as u64;
            for slot in slots.clone() {
                s.accept(slot, LOW, &[slot as u8; 100]);
            }
            let marks: Vec<_> = slots.map(|slot| (Slot(slot), LOW)).collect();
            s.log.commit_batch(&marks).unwrap().ticket.blocking_wait().unwrap();
        }
        assert!((0..count).all(|slot| s.committed(slot) == [slot as u8; 100]));
        assert_eq!(s.log.stats().mutable_used, 0);
    }
}

/// The guarantee: what was accepted first commits with its value after hundreds of others came and
/// went, through checkpoints, and the room is never empty while it waits.
#[test]
fn an_old_accept_commits_as_itself_after_hundreds_of_others() {
    for mode in MODES {
        let s = log_with(mode, |options| options.mutable_size = 10_000);
        s.accept(7, LOW, &value(7));
        let held = s.log.stats().mutable_used;
        for slot in 100..800 {
            s.accept(slot, LOW, &value(slot));
            s.commit(slot, LOW);
            if slot % 50 == 0 {
                s.log.maintenance().checkpoint().unwrap();
            }
            assert_eq!(s.log.stats().mutable_used, held);
        }
        s.commit(7, LOW);
        assert_eq!((s.committed(7), s.log.stats().mutable_used), (value(7), 0));
        assert!((100..800).all(|slot| s.committed(slot) == value(slot)));
    }
}

#[test]
fn a_scan_finds_each_uncommitted_slot_once_with_its_highest_ballot() {
    for mode in MODES {
        let s = log_with(mode, |_| {});
        for slot in (0..100_000).step_by(997) {
            s.accept(slot, LOW, b"superseded");
        }
        for slot in (0..100_000).step_by(997) {
            s.accept(slot, HIGH, &value(slot));
            if slot % 2 == 0 {
                s.commit(slot, HIGH);
            }
        }
        let expected: Vec<_> = (0..100_000)
            .step_by(997)
            .filter(|slot| slot % 2 == 1)
            .map(|slot| (slot, HIGH, value(slot)))
            .collect();
        assert_eq!(s.uncommitted(), expected);
    }
}

#[test]
fn a_checkpoint_leaves_what_is_uncommitted() {
    for mode in MODES {
        let s = log_with(mode, |_| {});
        for slot in 0..10 {
            s.accept(slot, LOW, &value(slot));
            if slot < 5 {
                s.commit(slot, LOW);
            }
        }
        s.log.maintenance().checkpoint().unwrap();
        assert_eq!(s.uncommitted().len(), 5);
        let s = s.kill(mode);
        assert_eq!(s.committed_slots(), [0, 1, 2, 3, 4]);
        assert_eq!(s.uncommitted().len(), if mode == Mode::Durable { 5 } else { 0 });
    }
}

/// Guards against bookkeeping that is never trimmed: a log that only commits keeps no more than it
/// says.
#[test]
fn a_log_that_only_commits_keeps_a_bounded_amount_in_memory() {
    for mode in MODES {
        let s = log_with(mode, |options| options.cache_size = 10_000);
        for slot in 0..2000 {
            s.accept(slot, LOW, &[slot as u8; 200]);
            s.commit(slot, LOW);
        }
        let stats = s.log.stats();
        assert!(stats.uncounted <= 64 && stats.cache_used <= 10_000, "{stats:?}");
    }
}
