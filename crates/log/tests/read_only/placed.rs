//! Reading a record whose place is known, and the checkpoint, beside the writer.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use std::sync::Arc;

use esker_disk::sim::SimDisk;
use esker_log::component::{CheckpointBuffer, RecordPlace};
use esker_log::{Log, LogError, ReadError, ReadOnlyLog, Seq, Ticket, Trimmed};

use crate::fixture::{DIR, small};

/// A record takes most of a segment.
const LEN: usize = 40 << 10;

fn writer(disk: &SimDisk) -> Log {
    let mut options = small(disk);
    options.segment_size = 64 << 10;
    Log::builder(DIR).options(options).open().unwrap()
}

fn reader(disk: &SimDisk) -> ReadOnlyLog {
    ReadOnlyLog::builder(DIR).disk(Arc::new(disk.process())).open().unwrap()
}

fn append(log: &Log, byte: u8) -> RecordPlace {
    let ticket: Ticket = log.append(vec![byte; LEN]).unwrap();
    let place = RecordPlace { seq: ticket.seq(), position: ticket.position(), len: LEN as u32 };
    ticket.blocking_wait().unwrap();
    place
}

#[test]
fn a_reader_returns_the_record_at_a_place() {
    let disk = SimDisk::new(1);
    let log = writer(&disk);
    let reader = reader(&disk);
    let places: Vec<_> = (1..=3).map(|byte| append(&log, byte)).collect();
    let first = reader.component().read_placed(places[0]);
    assert!(matches!(first, Err(ReadError::NotFound { .. })), "not durable as of the last poll");
    reader.refresh().unwrap();
    for (n, place) in places.iter().enumerate() {
        assert_eq!(&*reader.component().read_placed(*place).unwrap(), &[n as u8 + 1; LEN]);
    }
    // By its number, where the place is that of another record.
    let moved = RecordPlace { position: places[1].position, ..places[2] };
    assert_eq!(&*reader.component().read_placed(moved).unwrap(), &[3; LEN]);
    let wrong = RecordPlace { len: 8, ..places[1] };
    assert!(matches!(
        reader.component().read_placed(wrong),
        Err(ReadError::NotFound { seq: Seq(2) })
    ));

    // The writer drops segments, and uses them again.
    log.retention().truncate_before(3).unwrap();
    let more: Vec<_> = (4..=6).map(|byte| append(&log, byte)).collect();
    if let Ok(payload) = reader.component().read_placed(places[0]) {
        assert_eq!(&*payload, &[1; LEN], "it is still there");
    }
    reader.refresh().unwrap();
    // While the reader has the file open and the writer has not used it again, it is still there.
    match reader.component().read_placed(places[0]) {
        Ok(payload) => assert_eq!(&*payload, &[1; LEN]),
        dropped => {
            assert!(
                matches!(dropped, Err(ReadError::Trimmed(Trimmed { oldest: Seq(3) }))),
                "{dropped:?}"
            );
        }
    }
    assert_eq!(&*reader.component().read_placed(places[2]).unwrap(), &[3; LEN]);
    assert_eq!(&*reader.component().read_placed(more[2]).unwrap(), &[6; LEN]);
    log.close().unwrap();
    reader.close();
    assert!(matches!(
        reader.component().read_placed(more[2]),
        Err(ReadError::Log(LogError::Closed))
    ));
}

#[test]
fn a_reader_keeps_the_checkpoint_that_it_opened() {
    let disk = SimDisk::new(1);
    let log = writer(&disk);
    let reader = reader(&disk);
    assert!(reader.component().checkpoint_reader().unwrap().is_none());
    let publish = |content: &[u8]| {
        let writer = log.component().checkpoint_writer(64 << 10).unwrap();
        let mut chunk = writer.chunk();
        chunk.push(content).unwrap();
        chunk.write().unwrap();
        drop(chunk);
        writer.publish(content).unwrap();
    };
    publish(b"first");
    let first = reader.component().checkpoint_reader().unwrap().unwrap();
    publish(b"second");
    let second = reader.component().checkpoint_reader().unwrap().unwrap();
    for (checkpoint, content) in [(first, &b"first"[..]), (second, b"second")] {
        let mut buffer = CheckpointBuffer::default();
        assert_eq!(checkpoint.note(), content);
        assert_eq!(checkpoint.chunk(0, &mut buffer).unwrap(), content);
    }
    assert!(!reader.storage().was_repaired().unwrap());
    assert_eq!(reader.component().id().unwrap(), None);
    log.close().unwrap();
}
