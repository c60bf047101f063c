//! Truncation, `install` and checkpoints beside callers: no other caller waits for their
//! syncs, and nothing is reported before it is durable.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use esker_consensus::{
    AcceptError, ConsensusLog, Mode, Options, Slot, SnapshotBounds, TruncateError,
};
use esker_disk::Op;
use esker_disk::sim::{Effect, Fault, Gate, SimDisk};

use crate::fixture::{self, DIR, HIGH, LOW, MODES, Setting, log, value};

fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn fill(s: &Setting, slots: std::ops::Range<u64>) {
    for slot in slots {
        s.accept(slot, LOW, &value(slot));
        s.commit(slot, LOW);
    }
}

/// Runs `work` while no sync returns, and a thousand accepts beside it: they must not wait.
fn accepts_continue_beside(what: &str, work: impl Fn(&ConsensusLog) + Send + Sync) {
    let disk = SimDisk::new(1);
    let mut options = Options::on(Arc::new(disk.clone()));
    options.checkpoint_every = 1024;
    options.log.dsync = false;
    let log = ConsensusLog::builder(DIR).options(options).open().unwrap();
    for slot in 0..500 {
        drop(log.accept(Slot(slot), LOW, b"value").unwrap());
    }
    log.commit_through(Slot(400)).unwrap().blocking_wait().unwrap();
    let gate = Gate::new();
    disk.inject(Fault::on(Op::Sync, Effect::Block(gate.clone())).path(".seg"));
    std::thread::scope(|threads| {
        threads.spawn(|| work(&log));
        let blocked = gate.wait_for(1, Duration::from_secs(20));
        let (done, ended) = mpsc::channel();
        let log = &log;
        threads.spawn(move || {
            let tickets: Vec<_> =
                (1000..2000).map(|slot| log.accept(Slot(slot), LOW, b"beside").unwrap()).collect();
            done.send(tickets).unwrap();
        });
        let tickets = ended.recv_timeout(Duration::from_secs(30));
        gate.open();
        assert!(blocked, "{what} waits for no sync");
        let tickets = tickets.unwrap_or_else(|_| panic!("accepts wait for the sync of {what}"));
        tickets.into_iter().for_each(|ticket| ticket.blocking_wait().unwrap());
    });
    log.close().unwrap();
}

/// Guards against a sync under the locks of all slots, which every accept then waits for.
#[test]
fn accepts_never_wait_for_the_sync_of_a_truncation_or_checkpoint() {
    accepts_continue_beside("truncate_from", |log| {
        log.truncate_from(Slot(451)).unwrap().blocking_wait().unwrap();
    });
    accepts_continue_beside("truncate_before", |log| {
        log.truncate_before(Slot(300)).unwrap().blocking_wait().unwrap();
    });
    accepts_continue_beside("install", |log| {
        log.snapshots()
            .install(SnapshotBounds { floor: Slot(450), frontier: Slot(600) })
            .unwrap()
            .blocking_wait()
            .unwrap();
    });
    accepts_continue_beside("checkpoint", |log| log.maintenance().checkpoint().unwrap());
}

/// Guards against a checkpoint inside the accept that finds it due: the thousand accepts cross
/// `checkpoint_every`.
#[test]
fn accepts_never_wait_for_an_automatic_checkpoint() {
    accepts_continue_beside("a lonely accept", |log| {
        log.accept(Slot(5000), LOW, b"value").unwrap().blocking_wait().unwrap();
    });
}

/// Runs `work` while no read of the disk returns, and accepts beside it.
fn accepts_continue_beside_a_read(work: impl Fn(&ConsensusLog) + Send + Sync) {
    const PAGE: u64 = 4096;
    let disk = SimDisk::new(1);
    let open = || {
        let mut options = Options::on(Arc::new(disk.clone()));
        options.log.dsync = false;
        ConsensusLog::builder(DIR).options(options).open().unwrap()
    };
    let log = open();
    // Two pages, all but the last slot of the third, and half of the fourth.
    let slots = (0..3 * PAGE - 1).chain(3 * PAGE..3 * PAGE + PAGE / 2);
    let tickets: Vec<_> = slots.map(|slot| log.learn(Slot(slot), LOW, b"value").unwrap()).collect();
    tickets.into_iter().for_each(|ticket| ticket.blocking_wait().unwrap());
    log.close().unwrap();
    let log = open();
    // A page that is in memory from here on.
    let beside = 5 * PAGE;
    log.accept(Slot(beside), LOW, b"value").unwrap().blocking_wait().unwrap();
    let gate = Gate::new();
    disk.inject(Fault::on(Op::Read, Effect::Block(gate.clone())).path(".seg"));
    std::thread::scope(|threads| {
        threads.spawn(|| work(&log));
        let blocked = gate.wait_for(1, Duration::from_secs(60));
        let (done, ended) = mpsc::channel();
        let log = &log;
        threads.spawn(move || {
            for slot in beside + 1..beside + 200 {
                drop(log.accept(Slot(slot), LOW, b"beside").unwrap());
            }
            // It looks at the floor and the frontier.
            done.send(log.frontier()).unwrap();
        });
        let frontier = ended.recv_timeout(Duration::from_secs(60));
        gate.open();
        assert!(blocked, "no page is read");
        assert_eq!(frontier, Ok(Some(Slot(3 * PAGE - 2))), "callers wait for the read");
    });
    log.close().unwrap();
}

/// Guards against a read of a page under the locks of all slots, or that of the frontier.
#[test]
fn accepts_never_wait_for_a_page_that_another_call_reads() {
    const PAGE: u64 = 4096;
    for slot in [PAGE - 1, PAGE, PAGE + 1] {
        accepts_continue_beside_a_read(|log| {
            log.truncate_before(Slot(slot)).unwrap().blocking_wait().unwrap();
        });
    }
    // The frontier moves on over the slots after the gap.
    accepts_continue_beside_a_read(|log| {
        let gap = Slot(3 * PAGE - 1);
        let raised = log.snapshots().install(SnapshotBounds { floor: gap, frontier: gap });
        raised.unwrap().blocking_wait().unwrap();
        assert_eq!(log.frontier(), Some(Slot(3 * PAGE + PAGE / 2 - 1)));
    });
    accepts_continue_beside_a_read(|log| {
        let gap = Slot(3 * PAGE - 1);
        log.accept(gap, LOW, b"value").unwrap().blocking_wait().unwrap();
        log.commit_through(Slot(3 * PAGE)).unwrap().blocking_wait().unwrap();
    });
    accepts_continue_beside_a_read(|log| {
        log.commit_batch(&[(Slot(0), LOW)]).unwrap().ticket.blocking_wait().unwrap();
    });
    // It raises the promise.
    accepts_continue_beside_a_read(|log| {
        log.accept(Slot(4 * PAGE - 1), HIGH, b"value").unwrap().blocking_wait().unwrap();
    });
}

#[test]
fn floor_and_frontier_show_when_they_are_durable() {
    for mode in MODES {
        let s = log(mode);
        let same = s.log.clone();
        fill(&s, 0..20);
        let bounds = SnapshotBounds { floor: Slot(30), frontier: Slot(40) };
        let mut first = pin!(same.snapshots().install(bounds).unwrap());
        assert!(poll(first.as_mut()).is_pending());
        assert_eq!((s.log.floor(), s.log.frontier()), (None, Some(Slot(19))));
        assert_eq!(s.log.stats().floor, None);
        // Those who decide go by it: their records come after its record.
        for slot in [5, 30] {
            let refused = s.log.accept(Slot(slot), HIGH, b"late");
            assert!(
                matches!(refused, Err(AcceptError::Truncated { floor: Slot(30) })),
                "{refused:?}"
            );
        }
        assert!(matches!(
            s.log.truncate_from(Slot(36)),
            Err(TruncateError::BelowFrontier { committed: Slot(40) })
        ));
        // A second caller that asks for the same waits for the same record.
        let mut second = pin!(same.snapshots().install(bounds).unwrap());
        assert!(poll(second.as_mut()).is_pending());
        s.engine.run();
        assert!(matches!(poll(second), Poll::Ready(Ok(()))));
        assert!(matches!(poll(first), Poll::Ready(Ok(()))));
        assert_eq!((s.log.floor(), s.log.frontier()), (Some(Slot(30)), Some(Slot(40))));
        let s = s.kill(mode);
        assert_eq!((s.log.floor(), s.log.frontier()), (Some(Slot(30)), Some(Slot(40))));
    }
}

/// A crash before the record is durable takes the floor back, and everything that was decided by
/// it.
#[test]
fn floor_that_is_not_durable_is_lost_in_a_power_cut() {
    let s = log(Mode::Durable);
    fill(&s, 0..20);
    let mut raised = pin!(s.log.truncate_before(Slot(10)).unwrap());
    assert!(poll(raised.as_mut()).is_pending());
    assert_eq!((s.log.floor(), s.committed_slots()), (None, (10..20).collect()));
    s.disk.power_cut(esker_disk::sim::Persist::Nothing);
    s.disk.power_on();
    let s = fixture::open_on(&s.disk, Mode::Durable, |_| {});
    assert_eq!((s.log.floor(), s.committed_slots()), (None, (0..20).collect()));
}

#[test]
fn every_truncation_call_waits_and_a_dropped_ticket_undoes_nothing() {
    let s = log(Mode::Durable);
    fill(&s, 0..5);
    (5..9).for_each(|slot| s.accept(slot, LOW, b"old term"));
    {
        let mut dropped = pin!(s.log.truncate_from(Slot(6)).unwrap());
        assert!(poll(dropped.as_mut()).is_pending());
    }
    let same = s.log.clone();
    let mut again = pin!(same.truncate_from(Slot(6)).unwrap());
    assert!(poll(again.as_mut()).is_pending(), "what it reports is not durable yet");
    // After the cut, under a ballot that the slot had before.
    s.accept(7, LOW, b"new term");
    assert!(matches!(poll(again), Poll::Ready(Ok(()))));
    let s = s.kill(Mode::Durable);
    let open: Vec<_> = s.uncommitted().into_iter().map(|(slot, _, value)| (slot, value)).collect();
    assert_eq!(open, [(5, b"old term".to_vec()), (7, b"new term".to_vec())]);
}
