//! A log on a simulated disk for tests of single behaviours, driven by the test's thread or by the
//! engine's, and functions that read everything in it.
#![allow(dead_code)] // Each test binary uses its own part.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use esker_disk::Op;
use esker_disk::sim::{Effect, Fault, Gate, SimDisk};
use esker_log::{
    Append, Batch, Engine, Error, Log, LogStream, Options, ReadError, Result, Seq, Start,
};

/// Where the log lives on a simulated disk.
pub const DIR: &str = "/log";
/// Longer than anything here takes, and shorter than patience.
pub const LONG: Duration = Duration::from_secs(20);

/// A record as it was read: its number and its payload.
pub type ReadRecord = (u64, Vec<u8>);

/// The smallest segments and buffers, on a disk, with an engine that the test drives itself.
pub fn driven(disk: &SimDisk) -> (Options, Engine) {
    let engine = Engine::manual();
    let mut options = small(disk);
    options.engine = Some(engine.clone());
    (options, engine)
}

/// The smallest segments and buffers, on a disk, with the threads of the process.
pub fn small(disk: &SimDisk) -> Options {
    let mut options = Options::on(Arc::new(disk.clone()));
    options.segment_size = 64 << 10;
    options.buffer_size = 8 << 10;
    options.buffers = 2;
    options.tail_cache = 0;
    options
}

/// A log on a disk, with the threads of an engine of its own.
pub fn log_on(disk: &SimDisk, engine: &Engine) -> Log {
    let mut options = small(disk);
    options.engine = Some(engine.clone());
    Log::builder(DIR).options(options).open().unwrap()
}

/// A log on a new disk, driven by the test.
pub fn log() -> (Log, SimDisk, Engine) {
    let disk = SimDisk::new(1);
    let (options, engine) = driven(&disk);
    (Log::builder(DIR).options(options).open().unwrap(), disk, engine)
}

/// The payload that belongs to a number: of another length and content for each.
pub fn payload(seq: u64) -> Vec<u8> {
    let len = (seq * 37 % 1500) as usize;
    (0..len as u64).map(|at| (seq * 31 + at * 7) as u8).collect()
}

/// Appends the payloads of the next numbers, each durable before the next.
pub fn append(log: &Log, count: u64) {
    for _ in 0..count {
        let seq = log.accepted().0 + 1;
        let appended = log.append(payload(seq)).unwrap().blocking_wait().unwrap();
        assert_eq!(appended.seq, Seq(seq));
    }
}

/// Appends the payloads of the next numbers, a hundred to a commit.
pub fn append_many(log: &Log, count: u64) {
    let mut next = log.accepted().0 + 1;
    let end = next + count;
    while next < end {
        let upto = end.min(next + 100);
        let batch: Vec<_> = (next..upto).map(payload).collect();
        let batch: Vec<_> = batch.iter().collect();
        assert_eq!(
            log.write(Append::records(&batch)).unwrap().blocking_wait().unwrap().seq,
            Seq(upto - 1)
        );
        next = upto;
    }
}

/// Checks that the records of a batch are those that follow this number; the number of the last.
pub fn follows(batch: &Batch, mut last: u64) -> u64 {
    assert!(!batch.is_empty(), "an empty batch after {last}");
    for record in batch {
        last += 1;
        assert_eq!((record.seq.0, record.prev.0), (last, last - 1));
        assert!(record.payload == payload(last), "another payload under {last}");
    }
    last
}

/// The records of a batch.
pub fn seen(batch: &Batch) -> Vec<ReadRecord> {
    batch.iter().map(|record| (record.seq.0, record.payload.to_vec())).collect()
}

/// The records of the log from `start` onwards.
pub fn read_from(log: &Log, start: Start) -> Result<Vec<ReadRecord>> {
    let mut stream = log.stream(start)?;
    let mut all = Vec::new();
    while let Some(batch) = stream.try_next()? {
        assert!(!batch.is_empty(), "an empty batch");
        all.extend(seen(&batch));
    }
    Ok(all)
}

/// The records that a stream gives without waiting.
pub fn rest(stream: &mut LogStream) -> Vec<ReadRecord> {
    std::iter::from_fn(|| stream.try_next().unwrap()).flat_map(|batch| seen(&batch)).collect()
}

/// Everything in the log.
pub fn all(log: &Log) -> Vec<ReadRecord> {
    read_from(log, Start::Oldest).unwrap()
}

/// The payloads of these numbers, as `all` gives them.
pub fn payloads(numbers: impl IntoIterator<Item = u64>) -> Vec<ReadRecord> {
    numbers.into_iter().map(|seq| (seq, payload(seq))).collect()
}

/// Polls a future once.
pub fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::pin::Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Polls a stream once.
pub fn poll(stream: &mut LogStream, waker: &Waker) -> Poll<Option<Result<Batch, ReadError>>> {
    let stream = std::pin::Pin::new(stream);
    futures_util::Stream::poll_next(stream, &mut Context::from_waker(waker))
}

/// The batch of a poll that must have one.
pub fn ready(polled: Poll<Option<Result<Batch, ReadError>>>) -> Batch {
    match polled {
        Poll::Ready(Some(Ok(batch))) => batch,
        other => panic!("no batch: {other:?}"),
    }
}

/// A waker that counts.
#[derive(Debug, Default)]
pub struct Wakes(AtomicUsize);

impl Wakes {
    pub fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future on this thread; gives up loudly after [`LONG`].
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let start = Instant::now();
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        let left = LONG.checked_sub(start.elapsed());
        std::thread::park_timeout(
            left.unwrap_or_else(|| panic!("the future never came to an end")),
        );
    }
}

/// Waits until something holds; gives up loudly after [`LONG`].
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LONG, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Runs something on a thread of its own, and gives up loudly when it takes longer than [`LONG`].
pub fn in_time<T: Send + 'static>(what: &str, run: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || drop(sender.send(run())));
    match receiver.recv_timeout(LONG) {
        Ok(outcome) => outcome,
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("{what} did not come to an end"),
        Err(_) => match thread.join() {
            Err(cause) => std::panic::resume_unwind(cause),
            Ok(()) => unreachable!(),
        },
    }
}

/// Opens a gate, and heals the disk, when a test ends early: so that a failure is no hang. Made
/// after the log, it goes before it.
pub struct Opens(pub SimDisk, pub Gate);

impl Opens {
    /// Appends the next record and waits until its commit is blocked in the disk, as all later ones
    /// are until this is dropped.
    pub fn block_commits(disk: &SimDisk, log: &Log) -> Self {
        let opens = Self(disk.clone(), Gate::new());
        let block = Effect::Block(opens.1.clone());
        disk.inject(Fault::on(Op::Write, block).path(".seg"));
        drop(log.append(payload(log.accepted().0 + 1)).unwrap());
        assert!(opens.1.wait_for(1, LONG));
        opens
    }
}

impl Drop for Opens {
    fn drop(&mut self) {
        self.0.clear_faults();
        self.1.open();
    }
}

/// Whether this is the failure that was injected into a simulated disk.
pub fn is_eio(error: &(impl Clone + Into<Error>)) -> bool {
    let error = error.clone().into();
    matches!(error, Error::Io(cause) | Error::Poisoned(cause) if cause.os_code() == Some(5))
}
