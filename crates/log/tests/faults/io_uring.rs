//! Faults of io_uring under a log: pieces that fail, before or after the kernel moved their bytes,
//! pieces cut short, and completions that come late while tickets and handles are dropped. On the
//! real disk, through the ring's own code, at every piece of a small life of a log.
//!
//! After each: durable ⊆ recovered ⊆ accepted, value by value; then writing, and recovering, once
//! more.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::print_stderr)] // A test says what it skipped.

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;

use esker_disk::sim::Gate;
use esker_disk::uring::{RingFaults, Strike, UringDisk, UringOptions};
use esker_disk::{Op, StdDisk};
use esker_log::{Direct, Engine, Error, Log, LogError, OpenError, Options, Policy, Seq, Ticket};

use crate::fixture::{self, LONG, all, append, in_time, poll_once};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;
/// Records of a life.
const RECORDS: u64 = 36;

/// The modes in which the ring writes: durable by itself past the page cache, and written, then
/// synced.
const MODES: [(Direct, bool); 2] = [(Direct::Auto, true), (Direct::Off, false)];

fn ring(faults: &RingFaults) -> Option<Arc<UringDisk>> {
    let made = UringDisk::with_faults(UringOptions::default(), faults);
    made.inspect_err(|why| eprintln!("SKIPPED: there is no io_uring here: {why}"))
        .ok()
        .map(Arc::new)
}

/// The smallest segments, and buffers in which a large record is written as several pieces.
fn options((direct, dsync): (Direct, bool)) -> Options {
    let mut options = Options::on(Arc::new(StdDisk::new()));
    options.segment_size = 64 << 10;
    options.buffer_size = 64 << 10;
    options.tail_cache = 0;
    options.direct = direct;
    options.dsync = dsync;
    options
}

/// Records that are there before a life begins, in a log that was not closed: so a life begins
/// with recovery.
const BEFORE: u64 = 5;

fn abandoned(dir: &Path, mode: (Direct, bool)) {
    let mut options = options(mode);
    let engine = Engine::new(1).unwrap();
    options.engine = Some(engine.clone());
    let log = Log::builder(dir).options(options).open().unwrap();
    for seq in 1..=BEFORE {
        log.append(payload(seq)).unwrap().blocking_wait().unwrap();
    }
    engine.stop();
}

/// The payload of a number: each another, and a few of several pieces.
fn payload(seq: u64) -> Vec<u8> {
    let len = if seq.is_multiple_of(13) { 600_000 } else { seq * 137 % 3000 };
    (0..len).map(|at| (seq * 31 + at * 7 + at / 4096) as u8).collect()
}

/// How far a life came.
#[derive(Debug, Clone, Copy)]
struct Life {
    /// Calls of `append` that were made.
    asked: u64,
    /// The last record that was said to be durable.
    durable: u64,
    /// It came to its end, and was closed.
    whole: bool,
}

/// Opens, appends, waits now and then, closes; ends with the first failure.
fn live(dir: &Path, options: Options) -> Life {
    let mut life = Life { asked: BEFORE, durable: BEFORE, whole: false };
    let log = match Log::builder(dir).options(options).open() {
        Ok(log) => log,
        Err(OpenError::Log(LogError::Io(_)) | OpenError::NoSpace { .. }) => return life,
        Err(error) => unreachable!("{error}"),
    };
    let ended = go_on(&log, &mut life);
    if let Err(failure) = &ended {
        let reported = matches!(failure, Error::Io(_) | Error::Poisoned(_) | Error::NoSpace { .. });
        assert!(reported, "{failure}");
    }
    life.durable = life.durable.max(log.durable().0);
    life.whole = ended.is_ok() && log.close().is_ok();
    life
}

fn go_on(log: &Log, life: &mut Life) -> esker_log::Result<()> {
    for seq in BEFORE + 1..=RECORDS {
        life.asked = seq;
        let ticket = log.append(payload(seq))?;
        if seq.is_multiple_of(3) {
            life.durable = ticket.blocking_wait()?.seq.0;
        }
    }
    log.barrier()?.blocking_wait()?;
    life.durable = RECORDS;
    // Readers go through the ring, too.
    for seq in 1..=RECORDS {
        assert_eq!(&*log.read(Seq(seq))?, payload(seq));
    }
    Ok(())
}

/// Opens without faults: what is there is what may be there, and the log continues, twice.
fn check(dir: &Path, options: &Options, life: Life, what: &str) {
    let mut later = Vec::new();
    for round in 0..2_u64 {
        let log = Log::builder(dir).options(options.clone()).open().unwrap();
        let found = all(&log);
        let last = found.len() as u64 - later.len() as u64;
        assert!((life.durable..=life.asked).contains(&last), "{what}: {life:?}, {last} recovered");
        for (place, (seq, bytes)) in (1..).zip(&found) {
            assert_eq!(*seq, place, "{what}");
            let wanted = later.iter().find(|(n, _)| n == seq).map(|(_, bytes)| bytes);
            assert!(wanted.unwrap_or(&payload(*seq)) == bytes, "{what}: record {seq} is another");
        }
        let next = (found.len() as u64 + 1, vec![round as u8; 2000]);
        assert_eq!(log.append(&next.1).unwrap().blocking_wait().unwrap().seq, Seq(next.0));
        later.push(next);
        if round == 0 {
            log.close().unwrap();
        }
    }
}

/// Lives a life for each piece of this kind, with that piece struck, until there is none left to
/// strike. Returns the lives.
fn at_every_piece(op: Op, mode: (Direct, bool), strike: &dyn Fn() -> Strike) -> Vec<Life> {
    let mut lives = Vec::new();
    let before = tempfile::tempdir().unwrap();
    abandoned(&before.path().join("log"), mode);
    for nth in 0..1000 {
        let faults = RingFaults::new();
        let Some(disk) = ring(&faults) else { return lives };
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("log");
        copy_now(&before.path().join("log"), &place);
        let mut struck = options(mode);
        struck.disk = disk;
        faults.strike(op, nth, strike());
        let life = live(&place, struck);
        if faults.struck() == 0 {
            assert!(life.whole, "nothing went wrong, and yet: {life:?}");
            return lives;
        }
        check(&place, &options(mode), life, &format!("{op} {nth} of {mode:?}"));
        lives.push(life);
    }
    unreachable!("a life has no end")
}

/// A commit whose write failed is never acknowledged.
#[test]
fn a_failed_write() {
    for mode in MODES {
        for strike in [Strike::Fail(EIO), Strike::Refuse(EIO), Strike::Refuse(ENOSPC)] {
            let lives = at_every_piece(Op::Write, mode, &|| strike.clone());
            let whole = lives.iter().filter(|life| life.whole).count();
            // Nothing hangs on the page with the mark, nor on blocks written ahead for want of
            // room.
            assert!(lives.is_empty() || whole < lives.len() / 2, "{whole} of {}", lives.len());
        }
    }
}

/// A commit whose sync failed is never acknowledged, and no retry counts.
#[test]
fn a_failed_sync() {
    for mode in MODES {
        for strike in [Strike::Fail(EIO), Strike::Refuse(EIO)] {
            let lives = at_every_piece(Op::Sync, mode, &|| strike.clone());
            let ended = lives.iter().filter(|life| !life.whole).count();
            // Where commits are synced, every such sync that fails ends the log.
            assert!(
                lives.is_empty() || mode == MODES[0] || ended > 10,
                "{ended} of {}",
                lives.len()
            );
        }
    }
}

#[test]
fn a_failed_read() {
    for mode in MODES {
        let lives = at_every_piece(Op::Read, mode, &|| Strike::Refuse(EIO));
        assert!(lives.len() > 20 || lives.is_empty(), "{}", lives.len());
    }
}

#[test]
fn a_short_write_is_finished() {
    for (mode, most) in [(MODES[0], 4096), (MODES[1], 4096), (MODES[1], 700), (MODES[1], 1)] {
        for life in at_every_piece(Op::Write, mode, &|| Strike::Short(most)) {
            assert!(life.whole && life.durable == RECORDS, "{most}: {life:?}");
        }
    }
}

#[test]
fn a_short_read_is_finished() {
    for (mode, most) in [(MODES[0], 4096), (MODES[1], 700)] {
        for life in at_every_piece(Op::Read, mode, &|| Strike::Short(most)) {
            assert!(life.whole && life.durable == RECORDS, "{most}: {life:?}");
        }
    }
}

/// The write of a commit begins late, or comes back late. Meanwhile appends are begun and
/// cancelled, tickets are polled and dropped, and the last handle goes; and a process that was
/// killed then would have left everything that was said to be durable.
#[test]
fn a_late_write_while_everything_is_dropped() {
    type Late = fn(Gate) -> Strike;
    for (op, mode) in [(Op::Write, MODES[0]), (Op::Write, MODES[1]), (Op::Sync, MODES[1])] {
        for (late, policy) in [
            (Strike::Hold as Late, Policy::Always),
            (Strike::Late, Policy::Always),
            (Strike::Hold, Policy::Batch(5.try_into().unwrap())),
        ] {
            let before = tempfile::tempdir().unwrap();
            abandoned(&before.path().join("log"), mode);
            for nth in 0..8 {
                let faults = RingFaults::new();
                let Some(disk) = ring(&faults) else { return };
                let dir = tempfile::tempdir().unwrap();
                let place = dir.path().join("log");
                let what = format!("late {op} {nth} of {mode:?}");
                let mut held = options(mode);
                held.policy = policy;
                held.disk = disk;
                let gate = Gate::new();
                copy_now(&before.path().join("log"), &place);
                let log = Log::builder(&place).options(held).open().unwrap();
                let _opens = Opens(gate.clone());
                faults.strike(op, nth, late(gate.clone()));
                let (asked, kept) = begin_and_cancel(&log);
                if faults.struck() > 0 {
                    assert!(gate.wait_for(1, LONG), "{what} completes though it is held");
                    let life = Life { asked, durable: log.durable().0, whole: false };
                    let copy = dir.path().join("copy");
                    copy_now(&place, &copy);
                    check(&copy, &options(mode), life, &format!("killed during {what}"));
                }

                // A close waits for what the kernel has; the gate opens only when no thread holds a
                // handle.
                let closer = std::thread::spawn(move || in_time("the last handle", || drop(log)));
                gate.open();
                closer.join().unwrap();
                let durable = kept.into_iter().filter_map(|ticket| ticket.blocking_wait().ok());
                let durable = durable.map(|appended| appended.seq.0).max().unwrap_or(BEFORE);
                let life = Life { asked, durable, whole: true };
                check(&place, &options(mode), life, &what);
            }
        }
    }
}

/// Opens a gate when a check fails, so that a failure is no hang. Made after the log, it goes
/// before it.
struct Opens(Gate);

impl Drop for Opens {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// Copies the log as a process leaves it that is killed now, or was killed before. A file that
/// makes claims about others goes first, and newer segments before older ones, because the log may
/// continue meanwhile.
fn copy_now(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    let mut names: Vec<_> =
        std::fs::read_dir(from).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    let is_segment = |name: &std::ffi::OsString| name.to_string_lossy().ends_with(".seg");
    let (segments, others): (Vec<_>, Vec<_>) = names.into_iter().partition(is_segment);
    for name in others.iter().chain(segments.iter().rev()) {
        // A file that was written aside may have got its name in between.
        let _ = std::fs::copy(from.join(name), to.join(name));
    }
}

/// Appends without waiting: every call is polled once and then, by turns, dropped, or its ticket is
/// polled once and dropped, or kept. Returns how many calls got a ticket, or may have, and those
/// kept.
fn begin_and_cancel(log: &Log) -> (u64, Vec<Ticket>) {
    let mut kept = Vec::new();
    let mut asked = BEFORE;
    for turn in 1..=RECORDS {
        let bytes = payload(asked + 1);
        let mut call = pin!(log.append_async(&bytes));
        let std::task::Poll::Ready(ticket) = poll_once(&mut call) else { continue };
        let Ok(mut ticket) = ticket else { continue };
        asked += 1;
        match turn % 3 {
            0 => drop(ticket),
            1 => {
                let _ = poll_once(&mut ticket);
            }
            _ => kept.push(ticket),
        }
    }
    (asked, kept)
}

/// A ring is as good as new after a failure: another log on the same disk continues.
#[test]
fn another_log_on_the_same_rings_continues() {
    let faults = RingFaults::new();
    let Some(disk) = ring(&faults) else { return };
    let dir = tempfile::tempdir().unwrap();
    let on_it = |mode| {
        let mut options = options(mode);
        options.disk = disk.clone();
        options
    };
    let other = Log::builder(dir.path().join("other")).options(on_it(MODES[0])).open().unwrap();
    append(&other, 20);
    faults.strike(Op::Write, 30, Strike::Fail(EIO));
    abandoned(&dir.path().join("log"), MODES[1]);
    let life = live(&dir.path().join("log"), on_it(MODES[1]));
    assert!(faults.struck() == 1 && !life.whole, "{life:?}");
    append(&other, 20);
    assert_eq!(all(&other), fixture::payloads(1..=40));
}
