//! Followers of a writer that is another process, which is killed with SIGKILL at any moment and
//! started again, round after round. What they are given is every record, once, in order, and never
//! one that the next writer does not recover; in a ring, a lapped reader gets `Trimmed`.
//!
//! A run is not repeatable: the moments are the machine's.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::task::Poll;

use esker_log::{
    Batch, Log, LogError, LogStream, Options, ReadError, ReadOnlyLog, Result, Start, Trimmed,
};
use futures_util::StreamExt;

use crate::fixture::{all, block_on, follows, payload, payloads, poll_once, until};

const CHILD: &str = "ESKER_TEST_KILLED_WRITER";
const ROUNDS: u64 = 8;
/// Records that the followers are given in a round before its writer is killed.
const A_ROUND: u64 = 150;
/// Segments of a ring.
const RING: u64 = 4;

fn options(ring: bool) -> Options {
    let mut options = Options::default();
    options.segment_size = 64 << 10;
    options.buffer_size = 8 << 10;
    options.retention.segments = ring.then_some(RING);
    options
}

/// The writer: says what it recovered, and appends without an end. Of some records it waits for the
/// commit, so that commits are cut anywhere.
fn write(dir: &Path, ring: bool) {
    let log = Log::builder(dir).options(options(ring)).open().unwrap();
    let mut stdout = std::io::stdout();
    writeln!(stdout, "recovered {}", log.durable()).unwrap();
    for seq in log.durable().0 + 1.. {
        let ticket = log.append(payload(seq)).unwrap();
        if seq % 7 == 0 || seq % 64 > 50 {
            ticket.blocking_wait().unwrap();
        } else {
            drop(ticket);
        }
        // The parent process may be gone.
        if seq.is_multiple_of(64) && writeln!(stdout, "at {seq}").is_err() {
            return;
        }
    }
}

/// A writer's process. It is killed when this goes, however the test ends.
struct Writer(Child);

impl Drop for Writer {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// A writer at work, and the last record that it found.
fn start(test: &str, dir: &Path) -> (Writer, u64, BufReader<ChildStdout>) {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("killed_writers::{test}"), "--nocapture"])
        .env(CHILD, dir)
        .stdout(Stdio::piped())
        .spawn();
    let mut writer = Writer(child.unwrap());
    let mut out = BufReader::new(writer.0.stdout.take().unwrap());
    loop {
        let mut line = String::new();
        assert!(out.read_line(&mut line).unwrap() > 0, "the writer said nothing");
        if let Some(recovered) = line.trim().split("recovered ").nth(1) {
            return (writer, recovered.parse().unwrap(), out);
        }
    }
}

/// Whether this is the writer's process; then it has written until it was killed.
fn is_writer(ring: bool) -> bool {
    std::env::var_os(CHILD).is_some_and(|dir| {
        write(dir.as_ref(), ring);
        true
    })
}

fn waiting(stream: &mut LogStream) -> Result<Batch, ReadError> {
    block_on(stream.next()).unwrap()
}

/// With a future for each poll.
fn polling(stream: &mut LogStream) -> Result<Batch, ReadError> {
    loop {
        match poll_once(&mut stream.next()) {
            Poll::Ready(next) => return next.unwrap(),
            Poll::Pending => std::thread::sleep(std::time::Duration::from_micros(100)),
        }
    }
}

const WAYS: [fn(&mut LogStream) -> Result<Batch, ReadError>; 3] =
    [LogStream::blocking_next, waiting, polling];

/// Kills writers round after round, as soon as all followers have got further.
fn rounds(test: &str, dir: &Path, given: &[Arc<AtomicU64>]) {
    for round in 0..ROUNDS {
        let before = given.iter().map(|last| last.load(SeqCst)).max().unwrap();
        let (mut writer, recovered, out) = start(test, dir);
        assert!(before <= recovered, "round {round}: {before} was given of {recovered}");
        let talk =
            std::thread::spawn(move || out.lines().map_while(std::result::Result::ok).count());
        for last in given {
            until("the followers continue", || {
                assert!(writer.0.try_wait().unwrap().is_none(), "the writer ended by itself");
                last.load(SeqCst) >= recovered + A_ROUND + round * 13
            });
        }
        drop(writer);
        talk.join().unwrap();
    }
}

#[test]
fn every_record_comes_once_and_in_order() {
    if is_writer(false) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("log");
    Log::builder(&dir).options(options(false)).open().unwrap().close().unwrap();
    let reader = ReadOnlyLog::builder(&dir).options(options(false)).open().unwrap();
    let given: Vec<_> = WAYS.iter().map(|_| Arc::new(AtomicU64::new(0))).collect();
    let followers: Vec<_> = WAYS
        .into_iter()
        .zip(given.clone())
        .map(|(next, last)| {
            let mut stream = reader.stream(Start::Oldest).unwrap();
            std::thread::spawn(move || {
                loop {
                    match next(&mut stream) {
                        Ok(batch) => last.store(follows(&batch, last.load(SeqCst)), SeqCst),
                        Err(error) => return error,
                    }
                }
            })
        })
        .collect();
    rounds("every_record_comes_once_and_in_order", &dir, &given);
    // The last writer closes, and every follower has every record.
    let log = Log::builder(&dir).options(options(false)).open().unwrap();
    let last = log.durable().0;
    assert_eq!(all(&log), payloads(1..=last));
    log.close().unwrap();
    until("every follower has every record", || {
        given.iter().all(|given| given.load(SeqCst) == last)
    });
    reader.close();
    for follower in followers {
        let end = follower.join().unwrap();
        assert!(matches!(end, ReadError::Log(LogError::Closed)), "{end:?}");
    }
}

/// In a ring: one that keeps up or gets `Trimmed`, and one that pauses until it is lapped.
#[test]
fn lapped_reader_gets_trimmed_and_never_another_record() {
    if is_writer(true) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("log");
    Log::builder(&dir).options(options(true)).open().unwrap().close().unwrap();
    let reader = ReadOnlyLog::builder(&dir).options(options(true)).open().unwrap();
    let mut paused = reader.stream(Start::Oldest).unwrap();
    let given: Vec<_> = WAYS.iter().map(|_| Arc::new(AtomicU64::new(0))).collect();
    let fast = Arc::clone(&given[0]);
    let followers: Vec<_> = WAYS
        .into_iter()
        .zip(given.clone())
        .enumerate()
        .map(|(n, (next, given))| {
            let (reader, fast) = (reader.clone(), Arc::clone(&fast));
            std::thread::spawn(move || {
                let (mut trimmed, mut pauses) = (0, 3);
                let mut stream = reader.stream(Start::Oldest).unwrap();
                loop {
                    match next(&mut stream) {
                        Ok(batch) => {
                            let first = batch.iter().next().unwrap().seq.0;
                            let last = given.load(SeqCst);
                            // After a dropped position it continues with the oldest record.
                            assert!(first == last + 1 || trimmed > 0, "{first} after {last}");
                            given.store(follows(&batch, first - 1), SeqCst);
                            if n == 1 && pauses > 0 {
                                pauses -= 1;
                                let far = first + 8 * RING * 90;
                                until("it is lapped", || fast.load(SeqCst) > far);
                            }
                        }
                        Err(ReadError::Trimmed(Trimmed { oldest })) => {
                            assert!(oldest.0 > given.load(SeqCst));
                            trimmed += 1;
                            stream = again(&reader);
                        }
                        Err(error) => return error,
                    }
                }
            })
        })
        .collect();
    rounds("lapped_reader_gets_trimmed_and_never_another_record", &dir, &given);
    let log = Log::builder(&dir).options(options(true)).open().unwrap();
    let last = log.durable().0;
    log.retention().truncate_before(last - 1).unwrap();
    log.close().unwrap();
    until("every follower has every record", || {
        given.iter().all(|given| given.load(SeqCst) == last)
    });
    // One that was lapped may still read what it has open; of one that has nothing, all is gone.
    reader.refresh().unwrap();
    let reported = paused.blocking_next();
    assert!(
        matches!(reported, Err(ReadError::Trimmed(Trimmed { oldest })) if oldest.0 > 1),
        "{reported:?}"
    );
    reader.close();
    for follower in followers {
        let end = follower.join().unwrap();
        assert!(matches!(end, ReadError::Log(LogError::Closed)), "{end:?}");
    }
    assert!(last > 4 * RING * 90, "{last}");
}

/// From the oldest record, which may leave at the very moment.
fn again(reader: &ReadOnlyLog) -> LogStream {
    loop {
        reader.refresh().unwrap();
        match reader.stream(Start::Oldest) {
            Ok(stream) => return stream,
            Err(ReadError::Trimmed(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Tasks of several threads, each of which says what was acknowledged.
fn acknowledge(dir: &Path) {
    let log = Log::builder(dir).options(options(false)).open().unwrap();
    let mut stdout = std::io::stdout();
    writeln!(stdout, "recovered {}", log.durable()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut stdout = std::io::stdout();
                loop {
                    let appended = block_on(block_on(log.append_async(b"a record")).unwrap());
                    let seq = appended.unwrap().seq;
                    if writeln!(stdout, "acknowledged {seq}").is_err() {
                        return;
                    }
                }
            });
        }
    });
}

/// Before another writer opens the log, which may never happen.
#[test]
fn what_a_killed_writer_acknowledged_is_read() {
    if let Some(dir) = std::env::var_os(CHILD) {
        return acknowledge(dir.as_ref());
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("log");
    for round in 0..20 {
        let (writer, recovered, mut out) = start("what_a_killed_writer_acknowledged_is_read", &dir);
        let mut said = String::new();
        for _ in 0..=round * 3 {
            said.clear();
            out.read_line(&mut said).unwrap();
        }
        drop(writer);
        let rest = out.lines().map_while(std::result::Result::ok);
        // The last line may have lost its end.
        let lines = rest.chain([said.trim().to_owned()]).filter_map(|line| {
            line.strip_prefix("acknowledged ").and_then(|seq| seq.parse::<u64>().ok())
        });
        let acknowledged = lines.max().unwrap();
        assert!(acknowledged > recovered);
        let reader = ReadOnlyLog::open(&dir).unwrap();
        assert!(reader.durable().0 >= acknowledged, "{} {acknowledged}", reader.durable());
        assert_eq!(reader.read(acknowledged).unwrap().payload(), b"a record");
    }
}
