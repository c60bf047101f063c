//! Sinks: many records in, one wait at the end; and what is left after one failed.
//!
//! Guards: a dropped sink that loses records; a failed flush that leaves a sink that fails for
//! ever.

use esker_disk::Op;
use esker_disk::sim::{Effect, Fault, SimDisk};
use esker_log::{AppendError, Log, LogError, Seq, Sink};
use futures_util::SinkExt;

use crate::fixture::{
    DIR, all, append, block_on, driven, in_time, is_eio, log, payload, payloads, small,
};

#[test]
fn a_sink_waits_once_for_many() {
    let (log, ..) = log();
    append(&log, 2);
    let mut sink = Sink::new(&log).unwrap();
    assert_eq!((sink.last(), sink.blocking_flush().unwrap().is_none()), (Seq(2), true));
    for seq in 3..=8 {
        sink.blocking_append(payload(seq)).unwrap();
        assert_eq!(sink.last(), Seq(seq));
    }
    assert_eq!(log.durable(), Seq(2));
    assert_eq!(sink.blocking_flush().unwrap().unwrap().seq, Seq(8));
    assert_eq!((log.durable(), all(&log)), (Seq(8), payloads(1..=8)));
    assert!(sink.blocking_flush().unwrap().is_none(), "nothing to do");
    log.close().unwrap();
}

#[test]
fn a_sink_pushes_through_buffers_that_are_full() {
    let log = Log::builder(DIR).options(small(&SimDisk::new(1))).open().unwrap();
    let log = in_time("pushing", move || {
        let mut sink = Sink::new(&log).unwrap();
        for seq in 1..=500 {
            sink.blocking_append(payload(seq)).unwrap();
        }
        sink.blocking_flush().unwrap();
        block_on(async {
            for seq in 501..=1000 {
                sink.feed(&payload(seq)).await.unwrap();
            }
            SinkExt::<&[u8]>::flush(&mut sink).await.unwrap();
            assert_eq!(log.durable(), Seq(1000));
            SinkExt::<&[u8]>::close(&mut sink).await.unwrap();
        });
        log
    });
    assert_eq!(all(&log), payloads(1..=1000));
    log.close().unwrap();
}

/// The staging memory is the log's: what was pushed is accepted, whatever becomes of the sink.
#[test]
fn a_dropped_sink_loses_nothing() {
    let (log, disk, engine) = log();
    let mut sink = Sink::new(&log).unwrap();
    for seq in 1..=5 {
        sink.blocking_append(payload(seq)).unwrap();
    }
    drop(sink);
    engine.run();
    assert_eq!(log.durable(), Seq(5));
    log.close().unwrap();
    let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
    assert_eq!(all(&log), payloads(1..=5));
    log.close().unwrap();
}

#[test]
fn refused_record_leaves_the_sink_unchanged() {
    let (log, ..) = log();
    let mut sink = Sink::new(&log).unwrap();
    sink.blocking_append(payload(1)).unwrap();
    let large = vec![0; (1 << 20) + 1];
    assert!(matches!(sink.blocking_append(&large), Err(AppendError::TooLarge { .. })));
    assert!(matches!(sink.try_append(&large), Err(AppendError::TooLarge { .. })));
    assert_eq!(sink.last(), Seq(1));
    sink.blocking_append(payload(2)).unwrap();
    assert_eq!(sink.blocking_flush().unwrap().unwrap().seq, Seq(2));
    assert_eq!(all(&log), payloads(1..=2));
    log.close().unwrap();
}

/// After a failed flush: the log says how far it got, and after reopening a new sink continues
/// there.
#[test]
fn sink_continues_after_a_failed_flush() {
    let (log, disk, _) = log();
    let mut sink = Sink::new(&log).unwrap();
    for seq in 1..=3 {
        sink.blocking_append(payload(seq)).unwrap();
    }
    sink.blocking_flush().unwrap();
    for seq in 4..=6 {
        sink.blocking_append(payload(seq)).unwrap();
    }
    disk.inject(Fault::on(Op::Write, Effect::Io).path(".seg").nth(1));
    let failed = sink.blocking_flush().unwrap_err();
    assert!(matches!(failed, LogError::Io(_)) && is_eio(&failed), "{failed:?}");
    assert_eq!((log.durable(), sink.last()), (Seq(3), Seq(6)));
    assert!(matches!(sink.blocking_append(b"x"), Err(AppendError::Log(LogError::Poisoned(_)))));
    drop((sink, log));
    let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
    let last = log.durable().0;
    assert!((3..=6).contains(&last));
    let mut sink = Sink::new(&log).unwrap();
    assert_eq!(sink.last(), Seq(last));
    for seq in last + 1..=10 {
        sink.blocking_append(payload(seq)).unwrap();
    }
    sink.blocking_flush().unwrap();
    assert_eq!(all(&log), payloads(1..=10));
    log.close().unwrap();
}
