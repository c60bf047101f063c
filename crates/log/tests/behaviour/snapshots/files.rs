//! A published snapshot reads back as it was written, on any disk. One that is not published does
//! not exist.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use esker_disk::sim::{Effect, Fault, SimDisk};
use esker_disk::{Op, StdDisk};
use esker_log::{AppendError, Error, Log, LogError, Options, ReadOnlyLog, SnapshotError};
use esker_testkit::{Call, HookedDisk};

use crate::fixture::{DIR, append, driven, log, small};
use crate::snapshots::{CHUNK, content, read, write};

const SIZES: [usize; 8] =
    [0, 1, 4096 - 32, 100_000, CHUNK, CHUNK + 1, 2 * CHUNK, 5 * CHUNK + 12_345];

/// Snapshots of every size, written by the caller's thread and by a thread of its own, and on a
/// real disk.
#[test]
fn what_is_written_is_read() {
    let place = tempfile::tempdir().unwrap();
    let disk = SimDisk::new(1);
    let real = Options::on(Arc::new(StdDisk::new()));
    let real_dir = place.path().join("log");
    let (driven, _engine) = driven(&disk);
    let other = SimDisk::new(2);
    let logs = [(driven, Path::new(DIR)), (small(&other), Path::new(DIR)), (real, &*real_dir)];
    for (options, dir) in logs {
        let log = Log::builder(dir).options(options).open().unwrap();
        append(&log, 3);
        for (at, size) in (7..).zip(SIZES) {
            assert_eq!(read(&log, at).unwrap(), None);
            let wanted = content(at, size);
            let bytes = write(&log, at, &wanted).unwrap();
            assert_eq!(read(&log, at).unwrap(), Some(wanted), "{size} bytes");
            assert_eq!(log.snapshots().reader(at).unwrap().unwrap().file_size(), bytes);
        }
        assert_eq!(log.snapshots().list().unwrap(), (7..15).collect::<Vec<_>>());
        log.snapshots().remove(9).unwrap();
        log.snapshots().remove(9).unwrap();
        assert_eq!(log.snapshots().list().unwrap().len(), 7);
        write(&log, 14, b"another").unwrap();
        assert_eq!(read(&log, 14).unwrap(), Some(b"another".to_vec()));
        log.close().unwrap();
        assert!(matches!(log.snapshots().list(), Err(LogError::Closed)));
    }
    // The log keeps its records, and a reader without the lock finds the snapshots.
    let reader = ReadOnlyLog::open(&real_dir).unwrap();
    assert_eq!(reader.snapshots().list().unwrap().len(), 7);
    let mut first = Vec::new();
    reader.snapshots().reader(10).unwrap().unwrap().read_to_end(&mut first).unwrap();
    assert_eq!(first, content(10, SIZES[3]));
    assert_eq!(Log::open(&real_dir).unwrap().durable().0, 3);
}

/// A source of any kind: one that returns little, is interrupted, or fails.
#[test]
fn a_source_is_copied_whole() {
    struct Source<'a> {
        rest: &'a [u8],
        calls: usize,
        fails: bool,
    }
    impl Read for Source<'_> {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            self.calls += 1;
            match self.calls % 7 {
                0 => Err(std::io::ErrorKind::Interrupted.into()),
                _ if self.fails && self.rest.len() < 1000 => Err(std::io::Error::other("its end")),
                n => {
                    let most = out.len().min(n * 50_000);
                    self.rest.read(&mut out[..most])
                }
            }
        }
    }
    let (log, _disk, _engine) = log();
    for size in SIZES {
        let wanted = content(3, size);
        let mut writer = log.snapshots().writer(3).unwrap();
        let source = Source { rest: &wanted, calls: 0, fails: false };
        assert_eq!(writer.copy_from(source).unwrap(), size as u64);
        writer.publish(&3u64.to_be_bytes()).unwrap();
        assert_eq!(read(&log, 3).unwrap(), Some(wanted.clone()), "{size} bytes");
        let mut writer = log.snapshots().writer(3).unwrap();
        let refused = writer.copy_from(Source { rest: &wanted, calls: 0, fails: true });
        assert_eq!(refused.unwrap_err().to_string(), "its end");
        drop(writer);
        assert_eq!(read(&log, 3).unwrap(), Some(wanted));
    }
}

#[test]
fn a_read_in_small_parts_passes_every_chunk() {
    let (log, _disk, _engine) = log();
    let wanted = content(1, 2 * CHUNK + 777);
    write(&log, 1, &wanted).unwrap();
    let mut reader = log.snapshots().reader(1).unwrap().unwrap();
    let (mut got, mut part) = (Vec::new(), [0; 60_001]);
    loop {
        match reader.read(&mut part).unwrap() {
            0 => break,
            read => got.extend_from_slice(&part[..read]),
        }
    }
    assert_eq!(got, wanted);
    assert_eq!(reader.read(&mut part).unwrap(), 0);
}

/// Whatever was written before, dropping the writer leaves nothing, and the name is free.
#[test]
fn a_writer_that_is_dropped_leaves_nothing() {
    for threaded in [false, true] {
        let disk = SimDisk::new(1);
        let options = if threaded { small(&disk) } else { driven(&disk).0 };
        let log = Log::builder(DIR).options(options).open().unwrap();
        let before = disk.files(Path::new(DIR)).unwrap();
        for size in [10, CHUNK + 10, 6 * CHUNK] {
            let mut writer = log.snapshots().writer(5).unwrap();
            writer.write_all(&content(5, size)).unwrap();
            drop(writer);
            assert_eq!(disk.files(Path::new(DIR)).unwrap(), before, "{size} bytes");
        }
        assert!(log.snapshots().list().unwrap().is_empty());
    }
}

/// The error of the thread that writes reaches the caller, every later call gets it too, the
/// temporary file is removed, and the log continues.
#[test]
fn a_failed_write_is_reported_and_leaves_the_log_alone() {
    for (threaded, effect) in [(false, Effect::Io), (true, Effect::Io), (true, Effect::NoSpace)] {
        let disk = SimDisk::new(1);
        let options = if threaded { small(&disk) } else { driven(&disk).0 };
        let log = Log::builder(DIR).options(options).open().unwrap();
        write(&log, 5, b"old").unwrap();
        for (op, nth) in [(Op::Write, 1), (Op::Write, 3), (Op::Sync, 1)] {
            if matches!(effect, Effect::NoSpace) && op == Op::Sync {
                continue; // A sync takes no space.
            }
            disk.inject(Fault::on(op, effect.clone()).path("snapshot-").nth(nth));
            let mut writer = log.snapshots().writer(5).unwrap();
            let all = content(5, 4 * CHUNK);
            let written = all.chunks(CHUNK).try_for_each(|part| writer.write_all(part));
            if let Err(error) = written {
                let again = writer.write_all(b"more").unwrap_err();
                assert_eq!(again.to_string(), error.to_string());
            }
            let refused = writer.publish(b"").unwrap_err();
            let expected = match effect {
                Effect::NoSpace => matches!(refused, SnapshotError::NoSpace { .. }),
                _ => matches!(refused, SnapshotError::Log(LogError::Io(_))),
            };
            assert!(expected, "{op:?} {nth}: {refused:?}");
            assert!(disk.files(Path::new(DIR)).unwrap().iter().all(|name| !name.ends_with(".new")));
            assert_eq!(read_old(&log), b"old");
        }
        append(&log, 1);
    }
}

fn read_old(log: &Log) -> Vec<u8> {
    read(log, 5).unwrap().unwrap()
}

/// Records that a snapshot replaces must not be dropped when its name may not be durable.
#[test]
fn a_name_that_is_not_durable_poisons_the_log() {
    let (log, disk, _engine) = log();
    write(&log, 4, b"older").unwrap();
    disk.inject(Fault::on(Op::SyncDir, Effect::Io).nth(1));
    assert!(matches!(write(&log, 5, b"state"), Err(Error::Io(_))));
    assert!(matches!(log.append("x"), Err(AppendError::Log(LogError::Poisoned(_)))));
    assert!(matches!(log.snapshots().remove(4), Err(LogError::Poisoned(_))));
    assert_eq!(read(&log, 4).unwrap(), Some(b"older".to_vec()));
}

/// The directory has no room for another name. Bug: that poisoned the log.
#[test]
fn a_full_directory_refuses_a_snapshot_and_no_more() {
    let (log, disk, _engine) = log();
    write(&log, 4, b"older").unwrap();
    let full = Fault::on(Op::Rename, Effect::Os(28)).path("snapshot");
    disk.inject(full);
    assert!(matches!(write(&log, 5, b"state"), Err(Error::NoSpace { .. })));
    assert_eq!(log.snapshots().list().unwrap(), [4]);
    assert!(!disk.files(Path::new(DIR)).unwrap().iter().any(|name| name.ends_with(".new")));
    log.append("x").unwrap().blocking_wait().unwrap();
    disk.clear_faults();
    write(&log, 5, b"state").unwrap();
    assert_eq!(read(&log, 5).unwrap(), Some(b"state".to_vec()));
    // Any other failure to rename may have changed the name.
    disk.inject(Fault::on(Op::Rename, Effect::Io));
    assert!(matches!(write(&log, 6, b"state"), Err(Error::Io(_))));
    assert!(matches!(log.append("x"), Err(AppendError::Log(LogError::Poisoned(_)))));
}

/// Its lock is released, so another process may be using the directory.
#[test]
fn a_closed_log_publishes_and_removes_nothing() {
    let (log, disk, _engine) = log();
    write(&log, 1, b"one").unwrap();
    let (mut small, mut large) =
        (log.snapshots().writer(2).unwrap(), log.snapshots().writer(3).unwrap());
    small.write_all(b"two").unwrap();
    large.write_all(&content(3, 2 * CHUNK)).unwrap();
    log.close().unwrap();
    let (options, _engine) = driven(&disk);
    let next = Log::builder(DIR).options(options).open().unwrap();
    assert!(matches!(small.publish(b""), Err(SnapshotError::Log(LogError::Closed))));
    assert!(matches!(large.publish(b""), Err(SnapshotError::Log(LogError::Closed))));
    assert!(matches!(log.snapshots().remove(1), Err(LogError::Closed)));
    assert!(matches!(log.snapshots().writer(4), Err(LogError::Closed)));
    assert_eq!(next.snapshots().list().unwrap(), [1]);
}

/// Several at a time, of one number and of several: each is whole, and the last published counts.
#[test]
fn snapshots_are_written_at_the_same_time() {
    let disk = SimDisk::new(1);
    let log = Log::builder(DIR).options(small(&disk)).open().unwrap();
    std::thread::scope(|scope| {
        for number in 0..4 {
            let log = &log;
            scope.spawn(move || {
                for round in 0..3 {
                    write(log, number / 2, &content(round, CHUNK + 100)).unwrap();
                }
            });
        }
    });
    for at in 0..2 {
        assert_eq!(read(&log, at).unwrap(), Some(content(2, CHUNK + 100)));
    }
}

/// The writer replaces the only snapshot by a newer one, while a reader opens it.
#[test]
fn the_newest_snapshot_is_found_while_the_writer_replaces_it() {
    let disk = SimDisk::new(1);
    let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
    append(&log, 50);
    log.snapshots().put(1, &content(1, 10)[..]).unwrap();
    let (writer, replaced) = (log.clone(), AtomicU64::new(0));
    let hook = move |call: &Call<'_>| {
        let opens = call.op == Op::Open && call.path.to_string_lossy().contains("snapshot-");
        if opens && replaced.load(SeqCst) < 40 {
            let at = replaced.fetch_add(1, SeqCst) + 2;
            writer.snapshots().put(at, &content(at, 10)[..]).unwrap();
            writer.snapshots().remove(at - 1).unwrap();
        }
        Ok(())
    };
    let hooked = HookedDisk::new(Arc::new(disk.clone()), hook);
    let reader = ReadOnlyLog::builder(DIR).disk(Arc::new(hooked)).open().unwrap();
    let mut found = reader.snapshots().newest().unwrap().unwrap();
    assert_eq!(found.at(), 41);
    // One that was returned stays readable.
    log.snapshots().remove(41).unwrap();
    let mut state = Vec::new();
    found.read_to_end(&mut state).unwrap();
    assert_eq!(state, content(41, 10));
    assert!(reader.snapshots().newest().unwrap().is_none());
    reader.close();
    assert!(matches!(reader.snapshots().newest(), Err(SnapshotError::Log(LogError::Closed))));
}
