//! One suite of behaviour for every real disk: append, streams, retention, close, reopening.
#![allow(dead_code, clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use esker_disk::Disk;
use esker_log::{
    Append, AppendError, Engine, Error, Log, LogError, OpenCheck, Options, Policy, PriorShutdown,
    ReadError, Seq, Start, Trimmed, repair, verify,
};

use crate::fixture::{
    ReadRecord, all, append, append_many, block_on, in_time, payload, payloads, read_from, rest,
};

/// Runs all of it on a disk of this name.
pub fn behaves(disk: &Arc<dyn Disk>, name: &str) {
    let dir = tempfile::tempdir().unwrap();
    let place = |what: &str| dir.path().join(what);
    for (dsync, policy) in [
        (true, Policy::Always),
        (false, Policy::Always),
        (true, Policy::Batch(7.try_into().unwrap())),
        (true, Policy::Periodic(Duration::from_millis(1))),
        (true, Policy::OsBuffered),
    ] {
        let mut options = Options::on(Arc::clone(disk));
        options.segment_size = 64 << 10;
        options.buffer_size = 16 << 10;
        options.policy = policy;
        options.dsync = dsync;
        let place = |what: &str| place(&format!("{what}-{dsync}-{policy:?}"));
        appends_and_reads(&place("append"), &options, name);
        follows(&place("follow"), &options);
        keeps_a_ring(&place("ring"), &options);
        continues_after_a_stop(&place("stop"), &options);
    }
}

/// Records of every size, alone and together, come back; what does not follow is refused; a closed
/// log says so, and opens again as it was.
fn appends_and_reads(dir: &Path, options: &Options, name: &str) {
    let log = Log::builder(dir).options(options.clone()).open().unwrap();
    assert_eq!(log.stats().disk, name);
    append(&log, 100);
    for seq in 101..=200 {
        block_on(log.append(payload(seq)).unwrap()).unwrap();
    }
    let batch: Vec<_> = (201..=300).map(payload).collect();
    let batch: Vec<&[u8]> = batch.iter().map(Vec::as_slice).collect();
    log.write(Append::records(&batch)).unwrap().blocking_wait().unwrap();
    let large = vec![3; 900_000];
    log.append(&large).unwrap().blocking_wait().unwrap();
    let stale = log.write(Append::numbered(Seq(300), &[(Seq(302), b"stale")]));
    assert!(matches!(stale.map_err(Error::from), Err(Error::Sequence { .. })));
    let mut expected = payloads(1..=300);
    expected.push((301, large));
    assert_eq!(all(&log), expected);
    assert_eq!(&*log.read(Seq(250)).unwrap(), payload(250));
    log.close().unwrap();
    assert!(matches!(log.append(b"late"), Err(AppendError::Log(LogError::Closed))));
    drop(log);

    let mut options = options.clone();
    options.check = OpenCheck::Full;
    let log = Log::builder(dir).options(options.clone()).open().unwrap();
    assert_eq!(log.storage().recovery().prior_shutdown, PriorShutdown::Clean);
    assert_eq!(all(&log), expected);
    append_to(&log, 310, &mut expected);
    log.close().unwrap();
    drop(log);
    assert!(verify(dir, &options).unwrap().corruption.is_empty());
    repair(dir, &options).unwrap();
    let log = Log::builder(dir).options(options).open().unwrap();
    assert_eq!(all(&log), expected);
}

fn append_to(log: &Log, last: u64, expected: &mut Vec<ReadRecord>) {
    while log.accepted().0 < last {
        append(log, 1);
        expected.extend(payloads([log.accepted().0]));
    }
}

/// A stream at the tip is given what comes, in order, and one from the beginning everything.
fn follows(dir: &Path, options: &Options) {
    let log = Log::builder(dir).options(options.clone()).open().unwrap();
    append(&log, 20);
    let mut tip = log.stream(Start::Tip).unwrap();
    let follower = {
        let log = log.clone();
        move || {
            let mut stream = log.stream(Start::Oldest).unwrap();
            let mut seen = Vec::new();
            while seen.len() < 160 {
                let batch = stream.blocking_next().unwrap();
                seen.extend(batch.iter().map(|r| (r.seq.0, r.payload.to_vec())));
            }
            seen
        }
    };
    let follower = std::thread::spawn(|| in_time("the follower", follower));
    append(&log, 140);
    assert_eq!(follower.join().unwrap(), payloads(1..=160));
    assert_eq!(rest(&mut tip), payloads(21..=160));
    assert_eq!(read_from(&log, Start::After(Seq(150))).unwrap(), payloads(151..=160));
    log.close().unwrap();
}

/// With a retention the oldest segments are dropped: reads of their records fail with `Trimmed`,
/// and their files are used again.
fn keeps_a_ring(dir: &Path, options: &Options) {
    let mut options = options.clone();
    options.retention.segments = Some(2);
    let log = Log::builder(dir).options(options.clone()).open().unwrap();
    append(&log, 200);
    append_many(&log, 800);
    log.close().unwrap();
    let log = Log::builder(dir).options(options).open().unwrap();
    let kept = all(&log);
    let first = kept[0].0;
    assert!(first > 500, "{first}");
    assert_eq!(kept, payloads(first..=1000));
    assert!(
        matches!(log.read(Seq(1)), Err(ReadError::Trimmed(Trimmed { oldest })) if oldest == Seq(first))
    );
    log.retention().truncate_before(Seq(990)).unwrap();
    assert_eq!(all(&log), payloads(990..=1000));
    log.close().unwrap();
}

/// A writer that stops silently leaves every record that it had called durable.
fn continues_after_a_stop(dir: &Path, options: &Options) {
    let mut options = options.clone();
    let engine = Engine::new(1).unwrap();
    options.engine = Some(engine.clone());
    let log = Log::builder(dir).options(options.clone()).open().unwrap();
    append(&log, 150);
    drop(log.append(payload(151)).unwrap());
    engine.stop();
    assert!(matches!(log.append(b"late"), Err(AppendError::Log(LogError::Stopped))));
    let durable = log.durable().0;
    drop(log);

    options.engine = None;
    let log = Log::builder(dir).options(options).open().unwrap();
    assert_eq!(log.storage().recovery().prior_shutdown, PriorShutdown::Unclean);
    let last = log.accepted().0;
    assert!(durable >= 150 && (durable..=151).contains(&last), "{durable} {last}");
    assert_eq!(all(&log), payloads(1..=last));
    append(&log, 10);
    assert_eq!(all(&log), payloads(1..=last + 10));
    log.close().unwrap();
}
