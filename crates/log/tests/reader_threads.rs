//! The threads of a reader end with it, whether a handle or a stream held it last. Alone in its
//! process, because it looks at the process's threads.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

#[path = "kit/fixture.rs"]
mod fixture;

use esker_disk::sim::SimDisk;
use esker_log::{Log, LogStream, ReadError, ReadOnlyLog, Start};
use fixture::{DIR, append, block_on, follows, in_time, small, until};
use futures_util::StreamExt;

/// How many threads of this name there are. A thread gives itself its name when it first runs.
fn threads(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    tasks
        .filter(|task| {
            std::fs::read_to_string(task.path().join("comm")).is_ok_and(|n| n.trim() == name)
        })
        .count()
}

/// Reads from the oldest record up to the tip and waits there.
fn busy(reader: &ReadOnlyLog) -> LogStream {
    let mut stream = reader.stream(Start::Oldest).unwrap();
    in_time("reading", move || {
        let mut last = 0;
        while last < 300 {
            last = follows(&block_on(stream.next()).unwrap().unwrap(), last);
        }
        let end = stream.blocking_next_timeout(std::time::Duration::from_millis(1)).err();
        assert!(matches!(end, Some(ReadError::Timeout)), "{end:?}");
        stream
    })
}

#[test]
fn the_threads_end_with_the_reader() {
    let disk = SimDisk::new(1);
    let log = Log::builder(DIR).options(small(&disk)).open().unwrap();
    append(&log, 300);
    let open = || ReadOnlyLog::builder(DIR).options(small(&disk)).open().unwrap();
    let none = || threads("esker-follow") + threads("esker-read") == 0;

    let idle = open();
    drop(idle.stream(Start::Oldest).unwrap());
    assert!(none(), "a thread before any reader waits");

    // The handle goes first, and the stream last.
    let stream = busy(&idle);
    drop(idle);
    until("it has threads", || threads("esker-follow") == 1 && threads("esker-read") > 0);
    drop(stream);
    until("the threads end", none);

    // The stream goes first; then many readers at once.
    let many: Vec<_> = (0..5).map(|_| open()).collect();
    let streams: Vec<_> = many.iter().map(busy).collect();
    until("each has one", || threads("esker-follow") == 5);
    drop((streams, many));
    until("the threads end", none);

    // Closed, and still held.
    let closed = open();
    let stream = busy(&closed);
    closed.close();
    until("the threads end", none);
    drop((closed, stream));

    // The stream is dropped by the very thread that wakes it.
    let reader = open();
    let mut stream = busy(&reader);
    drop(reader);
    struct Last(std::sync::Mutex<Option<LogStream>>);
    impl std::task::Wake for Last {
        fn wake(self: std::sync::Arc<Self>) {
            drop(self.0.lock().unwrap().take());
        }
    }
    let last = std::sync::Arc::new(Last(std::sync::Mutex::new(None)));
    let waker = std::task::Waker::from(std::sync::Arc::clone(&last));
    let mut cx = std::task::Context::from_waker(&waker);
    assert!(std::pin::Pin::new(&mut stream).poll_next_unpin(&mut cx).is_pending());
    *last.0.lock().unwrap() = Some(stream);
    append(&log, 1);
    until("the threads end", none);
    log.close().unwrap();
}
