//! The durable watermark: it can be read and awaited at any time, and other processes read up to it
//! beside the writer.
//!
//! Readers need no lock, and nothing but the files.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use esker_disk::Op;
use esker_disk::sim::{Effect, Fault, Gate, Persist, SimDisk};
use esker_log::{
    Append, AppendError, Engine, Log, LogError, LogStream, ReadError, ReadOnlyLog, RetentionError,
    Seq, Start, Trimmed,
};

use crate::fixture::{
    self, DIR, LONG, ReadRecord, all, append, block_on, driven, log, payload, payloads, poll_once,
    seen, small,
};

fn rest(stream: &mut LogStream) -> Vec<ReadRecord> {
    std::iter::from_fn(|| stream.try_next().unwrap()).flat_map(|batch| seen(&batch)).collect()
}

fn reader(disk: &SimDisk) -> ReadOnlyLog {
    ReadOnlyLog::builder(DIR).options(driven(disk).0).open().unwrap()
}

#[test]
fn records_up_to_the_watermark_survive() {
    let (log, disk, engine) = log();
    for seq in 1..=30 {
        let kept = log.append(payload(seq)).unwrap();
        if seq % 7 == 0 {
            log.barrier().unwrap().blocking_wait().unwrap();
        }
        let after = disk.fork(seq);
        after.power_cut(Persist::Nothing);
        after.power_on();
        let durable = log.durable().0;
        assert_eq!(durable, seq / 7 * 7);
        let other = Log::builder(DIR).options(driven(&after).0).open().unwrap();
        assert!(all(&other).starts_with(&payloads(1..=durable)));
        other.close().unwrap();
        std::mem::forget(kept);
    }
    engine.stop();
}

#[test]
fn watermark_can_be_awaited_without_a_commit() {
    let (log, _, engine) = log();
    append(&log, 2);
    block_on(log.wait_durable(0)).unwrap();
    block_on(log.wait_durable(2)).unwrap();
    let ticket = log.append(payload(3)).unwrap();
    let mut third = Box::pin(log.wait_durable(3));
    let mut fourth = Box::pin(log.wait_durable(4));
    assert!(poll_once(&mut third).is_pending() && poll_once(&mut fourth).is_pending());
    engine.run();
    assert!(poll_once(&mut third).is_pending(), "it asked for a commit");
    ticket.blocking_wait().unwrap();
    assert!(poll_once(&mut third).is_ready());
    assert!(poll_once(&mut fourth).is_pending());
    append(&log, 1);
    assert!(poll_once(&mut fourth).is_ready());
    drop((third, fourth));
    log.close().unwrap();
}

#[test]
fn reader_sees_durable_records_only() {
    let (log, disk, _) = log();
    let reader = reader(&disk);
    let mut stream = reader.stream(Start::Oldest).unwrap();
    let mut got = Vec::new();
    for round in 1..=30 {
        append(&log, round % 5);
        let kept = log.append(payload(log.accepted().0 + 1)).unwrap();
        reader.refresh().unwrap();
        assert_eq!(reader.durable(), log.durable());
        got.extend(rest(&mut stream));
        assert_eq!(got, payloads(1..=log.durable().0));
        kept.blocking_wait().unwrap();
    }
    let unseen = log.durable().0;
    assert!(
        matches!(reader.read(unseen), Err(ReadError::NotFound { .. })),
        "before it looks again"
    );
    reader.refresh().unwrap();
    assert_eq!(reader.read(unseen).unwrap().payload(), payload(unseen));
    assert!(log.storage().metadata().segments > 4);
    log.close().unwrap();
}

/// The record is in the file, and its commit has not come back.
#[test]
fn a_commit_in_flight_is_not_shown() {
    let disk = SimDisk::new(1);
    let log = Log::builder(DIR).options(small(&disk)).open().unwrap();
    append(&log, 3);
    let gate = Gate::new();
    let _opens = fixture::Opens(disk.clone(), gate.clone());
    disk.inject(Fault::on(Op::Write, Effect::BlockReturn(gate.clone())).path(".seg").nth(1));
    drop(log.append(payload(4)).unwrap());
    assert!(gate.wait_for(1, LONG));
    let beside = reader(&disk);
    assert_eq!((log.durable(), beside.durable()), (Seq(3), Seq(3)));
    assert_eq!(rest(&mut beside.stream(Start::Oldest).unwrap()), payloads(1..=3));
    assert_eq!(all(&log), payloads(1..=3));
    gate.open();
    block_on(log.wait_durable(4)).unwrap();
    fixture::until("the mark moves", || {
        beside.refresh().unwrap();
        beside.durable() == Seq(4)
    });
    log.close().unwrap();
}

/// The page is stored before the caller is woken, so that a writer that is killed right after
/// leaves nothing that only it knew to be durable.
#[test]
fn what_was_acknowledged_is_visible_to_other_processes() {
    let disk = SimDisk::new(1);
    let log = fixture::log_on(&disk, &Engine::new(1).unwrap());
    append(&log, 1);
    let gate = Gate::new();
    let _opens = fixture::Opens(disk.clone(), gate.clone());
    disk.inject(Fault::on(Op::Write, Effect::Block(gate.clone())).path("mark").nth(1));
    // The engine commits for a ticket that is polled.
    let mut ticket = log.append(payload(2)).unwrap();
    assert!(poll_once(&mut ticket).is_pending());
    assert!(gate.wait_for(1, LONG));
    assert!(poll_once(&mut ticket).is_pending());
    gate.open();
    block_on(ticket).unwrap();
    assert_eq!(reader(&disk).durable(), Seq(2));
    log.close().unwrap();
}

/// A record that readers would not see is not acknowledged.
#[test]
fn a_watermark_that_cannot_be_stored_fails_the_commit() {
    let (log, disk, engine) = log();
    append(&log, 3);
    disk.inject(Fault::on(Op::Write, Effect::Io).path("mark"));
    let error = log.append(payload(4)).and_then(|ticket| Ok(ticket.blocking_wait()?)).unwrap_err();
    assert!(fixture::is_eio(&error), "{error:?}");
    assert_eq!(log.durable(), Seq(3));
    assert!(matches!(log.append(b"x"), Err(AppendError::Log(LogError::Poisoned(_)))));
    assert!(matches!(
        log.retention().truncate_before(4),
        Err(RetentionError::Log(LogError::Poisoned(_)))
    ));
    assert!(log.close().is_err());
    engine.stop();
    disk.clear_faults();
    let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
    assert!(all(&log).starts_with(&payloads(1..=3)));
    log.close().unwrap();
}

#[test]
fn reader_follows_from_writer_to_writer() {
    let disk = SimDisk::new(1);
    let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
    append(&log, 20);
    let reader = reader(&disk);
    let mut stream = reader.stream(Start::After(Seq(5))).unwrap();
    let mut got = rest(&mut stream);
    let mut last = 20;
    let mut log = Some(log);
    for round in 0..4 {
        log.take().unwrap().close().unwrap();
        let fresh = ReadOnlyLog::builder(DIR).options(driven(&disk).0).open().unwrap();
        assert_eq!((fresh.storage().is_closed_cleanly(), fresh.durable()), (true, Seq(last)));
        reader.refresh().unwrap();
        assert_eq!(reader.durable(), Seq(last));
        let next = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
        append(&next, 20);
        last += 20;
        log = Some(next);
        reader.refresh().unwrap();
        got.extend(rest(&mut stream));
        assert_eq!(got, payloads(6..=last), "round {round}");
    }
    log.take().unwrap().close().unwrap();
}

#[test]
fn a_reader_notices_that_the_writer_closed() {
    let (log, disk, _) = log();
    append(&log, 3);
    let reader = reader(&disk);
    reader.refresh().unwrap();
    assert!(!reader.storage().is_closed_cleanly());
    log.close().unwrap();
    reader.refresh().unwrap();
    assert!(reader.storage().is_closed_cleanly());
    assert_eq!(reader.durable(), Seq(3));
}

#[test]
fn reader_below_the_trim_point_gets_trimmed() {
    let disk = SimDisk::new(1);
    let (mut options, engine) = driven(&disk);
    options.retention.segments = Some(3);
    let log = Log::builder(DIR).options(options).open().unwrap();
    append(&log, 20);
    let reader = reader(&disk);
    let mut stream = reader.stream(Start::Oldest).unwrap();
    append(&log, 500);
    engine.run();
    reader.refresh().unwrap();
    let reported = std::iter::from_fn(|| stream.try_next().transpose()).find_map(Result::err);
    match reported {
        Some(ReadError::Trimmed(Trimmed { oldest })) => assert_eq!(oldest, log.oldest()),
        other => panic!("not trimmed: {other:?}"),
    }
    let fresh = ReadOnlyLog::builder(DIR).options(driven(&disk).0).open().unwrap();
    assert_eq!(rest(&mut fresh.stream(Start::Oldest).unwrap()), payloads(log.oldest().0..=520));
    log.close().unwrap();
}

#[test]
fn a_reader_changes_nothing() {
    let (log, disk, _) = log();
    append(&log, 50);
    drop(log.append(payload(51)).unwrap());
    disk.kill();
    disk.power_on();
    let before = (disk.fingerprint(), disk.operations());
    let reader = reader(&disk);
    reader.refresh().unwrap();
    assert!(!reader.storage().is_closed_cleanly());
    assert_eq!(rest(&mut reader.stream(Start::Oldest).unwrap()), payloads(1..=50));
    assert_eq!((disk.fingerprint(), disk.operations()), before);
}

const CHILD: &str = "ESKER_TEST_WATERMARK_CHILD";

/// The writer is another process; it says how far it is durable, and that much is there to read.
/// Then it is killed, and nothing that was shown goes away.
#[test]
fn a_reader_follows_another_process() {
    if let Some(dir) = std::env::var_os(CHILD) {
        let log = Log::open(dir).unwrap();
        let mut stdout = std::io::stdout();
        for seq in 1.. {
            log.write(Append::numbered(Seq(seq - 1), &[(Seq(seq), payload(seq))]))
                .unwrap()
                .blocking_wait()
                .unwrap();
            if writeln!(stdout, "durable {seq}").and_then(|()| stdout.flush()).is_err() {
                break;
            }
        }
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("log");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "watermark::a_reader_follows_another_process", "--nocapture"])
        .env(CHILD, &dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut reading = None;
    let mut got = Vec::new();
    for line in lines {
        let line = line.unwrap();
        let Some(durable) = line.split("durable ").nth(1) else { continue };
        let durable: u64 = durable.parse().unwrap();
        if !durable.is_multiple_of(10) {
            continue;
        }
        let (reader, stream) = reading.get_or_insert_with(|| {
            let reader = ReadOnlyLog::open(&dir).unwrap();
            let stream = reader.stream(Start::Oldest).unwrap();
            (reader, stream)
        });
        reader.refresh().unwrap();
        got.extend(rest(stream));
        assert!(got.len() as u64 >= durable, "{} of {durable}", got.len());
        if durable >= 300 {
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(got.len() >= 300);
    assert_eq!(got, payloads(1..=got.len() as u64));
    let log = Log::open(&dir).unwrap();
    assert!(all(&log).starts_with(&got));
    log.close().unwrap();
}
