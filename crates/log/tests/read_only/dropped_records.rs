//! A reader that sees that records were dropped also sees how far the log was durable then. A
//! component drops records that it repeated later: a reader that lacks both would miss them.
#![allow(clippy::unwrap_used)]

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use esker_disk::sim::SimDisk;
use esker_log::{Engine, Log, ReadOnlyLog, Seq};

use crate::fixture::{DIR, small};

/// Drops records when it is woken: at the first moment when the last record is known to be durable.
struct Dropper {
    log: Log,
    reader: ReadOnlyLog,
    seen: Mutex<Vec<(Seq, Seq)>>,
}

impl Wake for Dropper {
    fn wake(self: Arc<Self>) {
        self.log.retention().truncate_before(3).unwrap();
        for _ in 0..3 {
            self.reader.refresh().unwrap();
            self.seen.lock().unwrap().push((self.reader.oldest(), self.reader.durable()));
        }
    }
}

#[test]
fn a_reader_sees_what_was_durable_before_records_were_dropped() {
    let disk = SimDisk::new(1);
    let mut options = small(&disk);
    (options.segment_size, options.engine) = (64 << 10, Some(Engine::manual()));
    let log = Log::builder(DIR).options(options).open().unwrap();
    for _ in 0..3 {
        log.append(vec![7; 40 << 10]).unwrap().blocking_wait().unwrap();
    }
    let builder = ReadOnlyLog::builder(DIR).disk(Arc::new(disk.process()));
    let reader = builder.engine(Engine::manual()).open().unwrap();
    let seen = Mutex::default();
    let dropper = Arc::new(Dropper { log: log.clone(), reader, seen });
    let ticket = log.append("repeats what is dropped").unwrap();
    let mut durable = Box::pin(log.wait_durable(ticket.seq()));
    let waker = Waker::from(Arc::clone(&dropper));
    assert!(durable.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    ticket.blocking_wait().unwrap();
    let seen = dropper.seen.lock().unwrap();
    assert_eq!(seen.last(), Some(&(Seq(3), Seq(4))), "{seen:?}");
    assert!(
        seen.iter().all(|(oldest, durable)| *oldest < Seq(3) || *durable == Seq(4)),
        "{seen:?}"
    );
    drop(durable);
    log.close().unwrap();
}
