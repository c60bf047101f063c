//! Damage anywhere in a snapshot is reported, and none of its bytes are returned.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_disk::sim::SimDisk;
use esker_log::{Error, Log, LogError, ReadOnlyLog, Seq, SnapshotError, Trimmed};

use crate::fixture::{DIR, driven, log};
use crate::snapshots::{CHUNK, content, read, write};

fn file(at: u64) -> PathBuf {
    Path::new(DIR).join(format!("snapshot-{at:020}"))
}

fn reopened(disk: &SimDisk) -> Log {
    Log::builder(DIR).options(driven(disk).0).open().unwrap()
}

/// A snapshot of these bytes in a log that was closed.
fn sample(bytes: usize) -> SimDisk {
    let (log, disk, _engine) = log();
    write(&log, 5, &content(5, bytes)).unwrap();
    log.close().unwrap();
    disk
}

#[test]
fn a_flipped_bit_anywhere_is_reported() {
    let disk = sample(5000);
    let bytes = disk.contents(&file(5)).unwrap().len() as u64;
    assert_eq!(bytes, 3 * 4096, "header, and a chunk of two blocks");
    for byte in 0..bytes {
        let disk = disk.fork(byte);
        disk.flip_bit(&file(5), byte * 8 + byte % 8).unwrap();
        let log = reopened(&disk);
        let opened = log.snapshots().reader(5);
        let answer = opened.and_then(|reader| reader.unwrap().verify());
        assert!(matches!(answer, Err(SnapshotError::Corrupted(_))), "byte {byte}: {answer:?}");
        // Reading checks it, too.
        let answer = log.snapshots().reader(5).map(|reader| {
            reader.unwrap().read_to_end(&mut Vec::new()).map_err(|error| error.kind())
        });
        let is_found = matches!(answer, Err(_) | Ok(Err(std::io::ErrorKind::InvalidData)));
        assert!(is_found, "byte {byte}: {answer:?}");
    }
}

#[test]
fn a_flipped_bit_in_a_later_chunk_is_reported_before_its_bytes_are_returned() {
    let disk = sample(3 * CHUNK);
    let second = 4096 + (2 << 20);
    disk.flip_bit(&file(5), (second + 32 + 777) * 8).unwrap();
    let log = reopened(&disk);
    assert!(matches!(read(&log, 5), Err(Error::Corrupted(_))));
    let mut reader = log.snapshots().reader(5).unwrap().unwrap();
    let mut got = Vec::new();
    let error = reader.read_to_end(&mut got).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
    let Ok(Error::Corrupted(corruption)) = error.downcast() else { panic!("it names the place") };
    assert_eq!(corruption.offset, second);
    assert_eq!(got, content(5, 3 * CHUNK)[..CHUNK]);
    // The next call does not begin again elsewhere.
    assert!(reader.read(&mut [0; 10]).is_err());
    disk.flip_bit(&file(5), (second + 32 + 777) * 8).unwrap();
    reader.read_to_end(&mut got).unwrap();
    assert!(got == content(5, 3 * CHUNK));
}

#[test]
fn a_file_of_another_length_is_reported() {
    for bytes in [0, 5000, CHUNK + 100] {
        let disk = sample(bytes);
        let whole = disk.contents(&file(5)).unwrap();
        for len in [0, 100, 4096, 4097, whole.len() - 4096, whole.len() - 1, whole.len() + 1] {
            if len == whole.len() {
                continue;
            }
            let mut other = whole.clone();
            other.resize(len, 0);
            let disk = disk.fork(1);
            disk.put(&file(5), &other).unwrap();
            let answer = read(&reopened(&disk), 5);
            assert!(matches!(answer, Err(Error::Corrupted(_))), "{bytes}, {len}: {answer:?}");
        }
    }
}

#[test]
fn the_file_of_another_snapshot_is_refused() {
    let disk = sample(5000);
    let whole = disk.contents(&file(5)).unwrap();
    disk.put(&file(6), &whole).unwrap();
    let log = reopened(&disk);
    assert!(matches!(read(&log, 6), Err(Error::Corrupted(_))));
    assert!(read(&log, 5).is_ok());
    // The second chunk of another snapshot of the same size.
    write(&log, 7, &content(7, 2 * CHUNK)).unwrap();
    write(&log, 8, &content(8, 2 * CHUNK)).unwrap();
    let (mut mixed, other) = (disk.contents(&file(7)).unwrap(), disk.contents(&file(8)).unwrap());
    mixed[4096 + (2 << 20)..].copy_from_slice(&other[4096 + (2 << 20)..]);
    disk.put(&file(7), &mixed).unwrap();
    assert!(matches!(read(&log, 7), Err(Error::Corrupted(_))));
}

/// A state that fails, or is ahead of the log, leaves the snapshots as they are; a corrupt one is
/// passed over.
#[test]
fn the_newest_valid_snapshot_is_returned() {
    let (log, disk, _engine) = log();
    assert!(log.snapshots().newest().unwrap().is_none());
    crate::fixture::append(&log, 3);
    drop(log.append("not durable").unwrap());
    assert!(matches!(log.snapshots().put(4, &b"ahead"[..]), Err(SnapshotError::NotFound { .. })));
    for at in 1..=3 {
        let state = content(at, 5000);
        assert_eq!(log.snapshots().put(at, &state[..]).unwrap(), 3 * 4096);
    }
    let reader = ReadOnlyLog::builder(DIR).disk(Arc::new(disk.clone())).open().unwrap();
    // The writer and a reader find the same one.
    let newest = |log: &Log| {
        let [ours, theirs] = [log.snapshots().newest(), reader.snapshots().newest()].map(|found| {
            found.unwrap().map(|mut snapshot| {
                let mut state = Vec::new();
                snapshot.read_to_end(&mut state).unwrap();
                assert_eq!(state, content(snapshot.at(), 5000));
                snapshot.at()
            })
        });
        assert_eq!(ours, theirs);
        ours
    };
    assert_eq!(newest(&log), Some(3));
    // It replaces the last one of its number only once it is whole.
    let failing = std::io::Read::chain(&b"a part"[..], Failing);
    assert!(matches!(log.snapshots().put(3, failing), Err(SnapshotError::Log(LogError::Io(_)))));
    assert_eq!((newest(&log), log.snapshots().list().unwrap()), (Some(3), vec![1, 2, 3]));
    disk.flip_bit(&file(3), (4096 + 100) * 8).unwrap();
    assert_eq!(newest(&log), Some(2));
    // In the header.
    disk.flip_bit(&file(2), 9 * 8).unwrap();
    assert_eq!(newest(&log), Some(1));
    log.snapshots().remove(1).unwrap();
    assert_eq!(newest(&log), None);
    log.close().unwrap();
}

/// A source that fails with this error of a log.
struct FailingWith(Error);

impl Read for FailingWith {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        Err(std::io::Error::other(self.0.clone()))
    }
}

/// A source may read another log, and pass on errors that no snapshot has.
#[test]
fn error_of_any_log_in_a_source_is_one_of_reading_it() {
    let (log, disk, _engine) = log();
    crate::fixture::append(&log, 1);
    let trimmed = Error::Trimmed(Trimmed { oldest: Seq(5) });
    for error in [Error::Full, Error::Closed, Error::NotFound { seq: Seq(9) }, trimmed] {
        let text = error.to_string();
        let put = log.snapshots().put(1, FailingWith(error));
        let Err(SnapshotError::Log(LogError::Io(cause))) = put else { panic!("{put:?}") };
        assert_eq!(std::error::Error::source(&cause).unwrap().to_string(), text);
    }
    // That of a snapshot stays what it is.
    write(&log, 7, &content(7, 100)).unwrap();
    disk.flip_bit(&file(7), (4096 + 100) * 8).unwrap();
    let source = log.snapshots().reader(7).unwrap().unwrap();
    assert!(matches!(log.snapshots().put(1, source), Err(SnapshotError::Corrupted(_))));
    assert_eq!(log.snapshots().list().unwrap(), [7]);
}

/// A source that cannot be read.
struct Failing;

impl Read for Failing {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        Err(std::io::Error::other("the source is gone"))
    }
}
