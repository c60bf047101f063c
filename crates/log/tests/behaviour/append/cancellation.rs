//! Futures dropped at every point where they wait: the log stays without gaps, and usable, and
//! no waiter is left on its lists.
//!
//! Guards: a cancelled write that is never committed; a cancelled flush that takes the sink with
//! it.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use esker_disk::sim::SimDisk;
use esker_log::{Log, Policy, Seq, Sink, Start};
use futures_util::{SinkExt, StreamExt};

use crate::fixture::{self, DIR, all, append, block_on, log, payload, payloads, poll_once, small};

fn context() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

/// Drives a scenario, drops it at its first pending point, then at its second, and so on until it
/// comes to its end; looks at the log each time.
#[test]
fn task_dropped_at_any_await_leaves_a_valid_log() {
    let mut ends = 0;
    for drop_at in 0..60 {
        let (log, _, engine) = log();
        let work = async {
            let mut stream = log.stream(Start::Oldest).unwrap();
            for seq in 1..=6 {
                let ticket = log.append_async(&payload(seq)).await.unwrap();
                ticket.await.unwrap();
                stream.next().await.unwrap().unwrap();
            }
            let mut sink = Sink::new(&log).unwrap();
            for seq in 7..=40 {
                sink.feed(&payload(seq)).await.unwrap();
            }
            SinkExt::<&[u8]>::flush(&mut sink).await.unwrap();
            log.wait_durable(40).await.unwrap();
            drop(log.append(vec![1; 9000]).unwrap());
            drop(log.append_async(&vec![2; 9000]).await.unwrap());
            drop(log.append_async(&vec![3; 9000]).await.unwrap());
        };
        let mut work = Box::pin(work);
        let mut waits = 0;
        let ended = loop {
            match work.as_mut().poll(&mut context()) {
                Poll::Ready(()) => break true,
                Poll::Pending if waits == drop_at => break false,
                Poll::Pending => waits += 1,
            }
            engine.run();
        };
        drop(work);
        ends += usize::from(ended);
        assert_eq!(log.stats().waiting, 0, "a waiter is left on the list");
        // Everything accepted becomes durable without a further word.
        engine.run();
        assert_eq!((log.durable(), log.stats().pending), (log.accepted(), 0));
        let last = log.durable().0;
        let read = all(&log);
        assert_eq!(read.len() as u64, last);
        assert_eq!(read[..read.len().min(40)], payloads(1..=last.min(40)));
        append(&log, 2);
        log.close().unwrap();
    }
    assert!((10..55).contains(&ends), "{ends} of 60 came to their end");
}

/// An append that is dropped while it waits for room has accepted nothing.
#[test]
fn append_dropped_while_it_waits_for_space_appends_nothing() {
    let disk = SimDisk::new(1);
    let log = Log::builder(DIR).options(small(&disk)).open().unwrap();
    let opens = fixture::Opens::block_commits(&disk, &log);
    let large = vec![9; 20_000];
    let mut last = 1;
    while let Ok(ticket) = log.try_append(payload(last + 1)) {
        drop(ticket);
        last += 1;
    }
    for _ in 0..100 {
        let mut waits = Box::pin(log.append_async(&large));
        assert!(poll_once(&mut waits).is_pending());
        assert_eq!(log.stats().waiting, 1);
    }
    assert_eq!((log.accepted(), log.stats().waiting), (Seq(last), 0));
    drop(opens);
    block_on(log.wait_durable(last)).unwrap();
    assert_eq!(all(&log), payloads(1..=last));
    log.close().unwrap();
}

/// Cancelled, and flushed within a bound, without another call.
#[test]
fn a_cancelled_wait_leaves_its_record_to_the_engine() {
    for policy in [Policy::Always, Policy::Periodic(std::time::Duration::from_millis(5))] {
        let disk = SimDisk::new(1);
        let mut options = small(&disk);
        options.policy = policy;
        let log = Log::builder(DIR).options(options).open().unwrap();
        for seq in 1..=20 {
            let mut ticket = log.append(payload(seq)).unwrap();
            assert_eq!(ticket.seq(), Seq(seq), "its number is known");
            let _ = poll_once(&mut ticket);
        }
        fixture::until("all are durable", || log.durable() == Seq(20));
        assert_eq!(all(&log), payloads(1..=20));
        log.close().unwrap();
    }
}

#[test]
fn a_stream_dropped_while_it_waits_is_forgotten() {
    let (log, ..) = log();
    for _ in 0..50 {
        let mut stream = log.stream(Start::Tip).unwrap();
        assert!(stream.poll_next_unpin(&mut context()).is_pending());
        assert_eq!(log.stats().waiting, 1);
    }
    assert_eq!(log.stats().waiting, 0);
    log.close().unwrap();
}

/// A batch is delivered or still to come.
#[test]
fn a_read_dropped_while_it_waits_loses_nothing() {
    let (log, ..) = log();
    let mut stream = log.stream(Start::Oldest).unwrap();
    let mut got = Vec::new();
    for seq in 1..=20 {
        let mut next = stream.next();
        assert!(poll_once(&mut next).is_pending());
        append(&log, 1);
        if seq % 3 == 0 {
            let Poll::Ready(Some(Ok(batch))) = poll_once(&mut next) else { panic!("nothing") };
            got.extend(fixture::seen(&batch));
        }
        // Dropped here, woken or not.
        if seq % 3 != 0 {
            let batch = stream.try_next().unwrap().unwrap();
            got.extend(fixture::seen(&batch));
        }
    }
    assert_eq!(got, payloads(1..=20));
    log.close().unwrap();
}

#[test]
fn sink_works_after_a_cancelled_flush() {
    let (log, _, engine) = log();
    let mut sink = Sink::new(&log).unwrap();
    sink.blocking_append(payload(1)).unwrap();
    {
        let flush = Pin::new(&mut sink);
        let polled = futures_util::Sink::<&Vec<u8>>::poll_flush(flush, &mut context());
        assert!(polled.is_pending());
    }
    assert_eq!((sink.last(), log.durable()), (Seq(1), Seq(0)));
    assert_eq!(
        sink.blocking_flush().unwrap().unwrap().seq,
        Seq(1),
        "it still knows what it waits for"
    );
    sink.blocking_append(payload(2)).unwrap();
    engine.run();
    assert_eq!(sink.blocking_flush().unwrap().unwrap().seq, Seq(2));
    drop(sink);
    assert_eq!((all(&log), log.stats().waiting), (payloads(1..=2), 0));
    log.close().unwrap();
}

#[test]
fn half_of_many_waiting_streams_may_be_dropped() {
    let (log, ..) = log();
    append(&log, 1);
    let mut streams: Vec<_> = (0..200).map(|_| log.stream(Start::Tip).unwrap()).collect();
    for stream in &mut streams {
        assert!(stream.poll_next_unpin(&mut context()).is_pending());
    }
    assert_eq!(log.stats().waiting, 200);
    let mut n = 0;
    streams.retain(|_| {
        n += 1;
        n % 2 == 0
    });
    assert_eq!(log.stats().waiting, 100);
    append(&log, 1);
    for stream in &mut streams {
        let Poll::Ready(Some(Ok(batch))) = stream.poll_next_unpin(&mut context()) else {
            panic!("nothing")
        };
        assert_eq!(batch.last(), Some(Seq(2)));
    }
    drop(streams);
    assert_eq!(log.stats().waiting, 0);
    log.close().unwrap();
}
