//! A snapshot that one log sends to another, chunk by chunk.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;

use esker_disk::Op;
use esker_disk::sim::{Effect, Fault, SimDisk};
use esker_log::{Error, Log, Result, SnapshotError};

use crate::fixture::{DIR, log};
use crate::snapshots::{CHUNK, content, read, write};

/// Sends at most so many chunks, and publishes if these were the last. Returns how many were sent.
pub fn send(from: &Log, at: u64, to: &Log, most: u32) -> Result<u32> {
    let mut reader = from.snapshots().reader(at)?.unwrap();
    let mut incoming = to.snapshots().receive(&reader.sealed_header(), |_, _| true)?;
    let mut sent = 0;
    while incoming.next() < incoming.chunks() {
        if sent == most {
            return Ok(sent);
        }
        let chunk = reader.sealed_chunk(incoming.next())?;
        assert_eq!(chunk.len(), incoming.len_of(incoming.next()));
        incoming.write(chunk)?;
        sent += 1;
    }
    incoming.publish().map(|()| sent).map_err(Into::into)
}

fn two() -> (Log, Log, SimDisk) {
    let ((sender, ..), (receiver, disk, _)) = (log(), log());
    (sender, receiver, disk)
}

#[test]
fn a_snapshot_is_sent_whole_and_can_be_sent_on() {
    for size in [0, 100, CHUNK, 3 * CHUNK + 1] {
        let (a, b, _) = two();
        let (c, ..) = log();
        let state = content(5, size);
        write(&a, 5, &state).unwrap();
        send(&a, 5, &b, u32::MAX).unwrap();
        send(&b, 5, &c, u32::MAX).unwrap();
        assert!(read(&c, 5).unwrap().unwrap() == state);
        assert_eq!(c.snapshots().list().unwrap(), [5]);
        // The sender did not learn it: nothing is sent again.
        assert_eq!(send(&b, 5, &c, u32::MAX).unwrap(), 0);
        assert!(read(&c, 5).unwrap().unwrap() == state);
    }
}

/// After an interruption only the missing chunks are sent, also if the receiver was closed between.
#[test]
fn an_interrupted_transfer_continues_where_it_stopped() {
    let (a, mut b, disk) = two();
    let state = content(5, 4 * CHUNK + 1);
    write(&a, 5, &state).unwrap();
    assert_eq!(send(&a, 5, &b, 2).unwrap(), 2);
    assert_eq!(send(&a, 5, &b, 1).unwrap(), 1);
    b.close().unwrap();
    b = Log::builder(DIR).options(crate::fixture::driven(&disk).0).open().unwrap();
    assert!(b.snapshots().list().unwrap().is_empty());
    assert_eq!(send(&a, 5, &b, u32::MAX).unwrap(), 2);
    assert!(read(&b, 5).unwrap().unwrap() == state);
    assert!(!disk.files(Path::new(DIR)).unwrap().contains(&"incoming".to_owned()));
}

/// A torn chunk of the file is sent again, and so is everything after it.
#[test]
fn a_torn_chunk_is_sent_again() {
    let (a, b, disk) = two();
    let state = content(5, 4 * CHUNK);
    write(&a, 5, &state).unwrap();
    assert_eq!(send(&a, 5, &b, 3).unwrap(), 3);
    let incoming = Path::new(DIR).join("incoming");
    disk.flip_bit(&incoming, (4096 + (2 << 20) + 9999) * 8).unwrap();
    assert_eq!(send(&a, 5, &b, u32::MAX).unwrap(), 3);
    assert!(read(&b, 5).unwrap().unwrap() == state);
}

#[test]
fn another_snapshot_begins_at_its_start() {
    let (a, b, _) = two();
    write(&a, 5, &content(5, 3 * CHUNK)).unwrap();
    let newer = content(6, 3 * CHUNK);
    write(&a, 6, &newer).unwrap();
    assert_eq!(send(&a, 5, &b, 2).unwrap(), 2);
    // The same number, written again: other bytes.
    write(&a, 5, &newer).unwrap();
    assert_eq!(send(&a, 5, &b, u32::MAX).unwrap(), 3);
    assert!(read(&b, 5).unwrap().unwrap() == newer);
    assert_eq!(send(&a, 6, &b, u32::MAX).unwrap(), 3);
    assert!(read(&b, 6).unwrap().unwrap() == newer);
}

/// The disk reports a write and does nothing: reading back finds it, and the chunk is sent again.
#[test]
fn a_lost_write_is_found_before_it_is_published() {
    for nth in [2, 3, 4] {
        let (a, b, disk) = two();
        let state = content(5, 2 * CHUNK + 10);
        write(&a, 5, &state).unwrap();
        disk.inject(Fault::on(Op::Write, Effect::Lost).path("incoming").nth(nth));
        let refused = send(&a, 5, &b, u32::MAX);
        assert!(matches!(refused, Err(Error::Corrupted(_))), "{nth}: {refused:?}");
        assert!(b.snapshots().list().unwrap().is_empty());
        disk.clear_faults();
        assert_eq!(u64::from(send(&a, 5, &b, u32::MAX).unwrap()), 5 - nth);
        assert!(read(&b, 5).unwrap().unwrap() == state);
    }
}

/// Bytes that differ from those sent are refused, and the transfer can continue.
#[test]
fn bytes_that_are_not_the_next_chunk_are_refused() {
    let (a, b, _) = two();
    write(&a, 5, &content(5, 2 * CHUNK + 10)).unwrap();
    write(&a, 6, &content(6, 2 * CHUNK + 10)).unwrap();
    let mut reader = a.snapshots().reader(5).unwrap().unwrap();
    let header = reader.sealed_header();
    for byte in [0, 9, 13, 20, 40, 49, 60, 4095] {
        let mut header = header.clone();
        header[byte] ^= 1;
        assert!(
            matches!(b.snapshots().receive(&header, |_, _| true), Err(SnapshotError::Corrupted(_))),
            "byte {byte}"
        );
    }
    assert!(matches!(
        b.snapshots().receive(&header[..4000], |_, _| true),
        Err(SnapshotError::Corrupted(_))
    ));
    let refused = b.snapshots().receive(&header, |at, note| at != 5 || note != 5u64.to_be_bytes());
    assert!(matches!(refused, Err(SnapshotError::Corrupted(_))), "it is not admitted");
    let mut incoming = b.snapshots().receive(&header, |_, _| true).unwrap();
    let busy = b.snapshots().receive(&header, |_, _| true);
    assert!(matches!(busy, Err(SnapshotError::Busy { .. })), "{busy:?}");
    let chunk = reader.sealed_chunk(0).unwrap().to_vec();
    let mut flipped = chunk.clone();
    flipped[100_000] ^= 1;
    let mut longer = chunk.clone();
    longer.push(0);
    let second = reader.sealed_chunk(1).unwrap().to_vec();
    let other = a.snapshots().reader(6).unwrap().unwrap().sealed_chunk(0).unwrap().to_vec();
    for wrong in [&flipped, &longer, &second, &other, &chunk[..10].to_vec(), &Vec::new()] {
        assert!(matches!(incoming.write(wrong), Err(SnapshotError::Corrupted(_))));
        assert_eq!(incoming.next(), 0);
    }
    incoming.write(&chunk).unwrap();
    incoming.write(&second).unwrap();
    assert_eq!((incoming.next(), incoming.len_of(2)), (2, 42));
    assert!(matches!(incoming.publish(), Err(SnapshotError::Corrupted(_))), "a chunk is missing");
    assert!(b.snapshots().list().unwrap().is_empty());
    assert_eq!(send(&a, 5, &b, u32::MAX).unwrap(), 1);
}

/// Bytes that read back after a failed sync may be in the page cache only.
#[test]
fn nothing_is_used_again_after_a_failed_sync() {
    for (op, nth) in [(Op::Sync, 1), (Op::Write, 3)] {
        let (a, b, disk) = two();
        let state = content(5, 2 * CHUNK + 10);
        write(&a, 5, &state).unwrap();
        disk.inject(Fault::on(op, Effect::Io).path("incoming").nth(nth));
        let failed = send(&a, 5, &b, u32::MAX);
        assert!(matches!(failed, Err(Error::Io(_))), "{failed:?}");
        assert!(b.snapshots().list().unwrap().is_empty());
        disk.clear_faults();
        assert_eq!(send(&a, 5, &b, u32::MAX).unwrap(), 3, "it begins at its start");
        assert!(read(&b, 5).unwrap().unwrap() == state);
    }
}
