//! `verify` of a valid log that another process writes finds no corruption, whatever happens
//! meanwhile.
//!
//! Guards: a segment that left a small ring while it was read, a unit that was on its way, and a
//! session that ended and began, reported as corruption; and real corruption passed over because of
//! a writer.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use esker_disk::Op;
use esker_disk::sim::SimDisk;
use esker_log::{Engine, Log, Options, verify};
use esker_testkit::{Call, HookedDisk};

use crate::fixture::{DIR, append, driven, payload};

type Act = Box<dyn FnMut() + Send>;

/// Counts the calls that read something, and does something before each of a few of them.
struct Meddler {
    calls: AtomicU64,
    from: u64,
    act: Mutex<Option<Act>>,
}

impl Meddler {
    fn new(from: u64, act: Act) -> Arc<Self> {
        Arc::new(Self { calls: AtomicU64::new(0), from, act: Mutex::new(Some(act)) })
    }

    /// A disk on which this meddles.
    fn on(self: &Arc<Self>, disk: &SimDisk) -> Arc<HookedDisk> {
        let meddler = Arc::clone(self);
        let hook = move |call: &Call<'_>| {
            if matches!(call.op, Op::Open | Op::List | Op::Read) {
                meddler.call();
            }
            Ok(())
        };
        Arc::new(HookedDisk::new(Arc::new(disk.clone()), hook))
    }

    fn call(&self) {
        let n = self.calls.fetch_add(1, SeqCst);
        // From then on before every seventh call: the writer does not stop.
        if n >= self.from
            && (n - self.from).is_multiple_of(7)
            && let Some(act) = &mut *self.act.lock().unwrap()
        {
            act();
        }
    }
}

/// Verifies with a writer that acts from each call on. `make` gives the log and what its writer
/// does.
fn at_every_call(make: impl Fn(&SimDisk, &Engine) -> Act) -> u64 {
    for from in 0.. {
        let disk = SimDisk::new(1);
        let (_, engine) = driven(&disk);
        let act = make(&disk, &engine);
        let meddler = Meddler::new(from, act);
        let mut options = Options::on(meddler.on(&disk));
        options.engine = Some(Engine::manual());
        let report = verify(DIR, &options).unwrap();
        assert!(report.corruption.is_empty(), "from call {from} on: {:?}", report.corruption);
        // All that was listed may have left a ring.
        assert!(report.records > 0 || report.segments == 0, "from call {from} on: {report:?}");
        let calls = meddler.calls.load(SeqCst);
        *meddler.act.lock().unwrap() = None;
        if calls <= from {
            return from;
        }
    }
    unreachable!()
}

#[test]
fn verify_of_a_small_ring_during_writes() {
    let calls = at_every_call(|disk, engine| {
        let (mut options, _) = driven(disk);
        options.engine = Some(engine.clone());
        options.retention.segments = Some(2);
        let log = Log::builder(DIR).options(options).open().unwrap();
        append(&log, 60);
        let engine = engine.clone();
        Box::new(move || {
            append(&log, 60);
            engine.run();
        })
    });
    assert!(calls > 10, "{calls}");
}

#[test]
fn verify_during_single_commits() {
    at_every_call(|disk, engine| {
        let (mut options, _) = driven(disk);
        options.engine = Some(engine.clone());
        let log = Log::builder(DIR).options(options).open().unwrap();
        append(&log, 5);
        Box::new(move || append(&log, 1))
    });
}

#[test]
fn verify_during_os_buffered_writes() {
    at_every_call(|disk, engine| {
        let (mut options, _) = driven(disk);
        options.engine = Some(engine.clone());
        options.policy = esker_log::Policy::OsBuffered;
        let log = Log::builder(DIR).options(options).open().unwrap();
        append(&log, 5);
        let engine = engine.clone();
        let mut n = 0;
        Box::new(move || {
            n += 1;
            drop(log.append(payload(log.accepted().0 + 1)).unwrap());
            engine.run();
            if n % 3 == 0 {
                log.barrier().unwrap().blocking_wait().unwrap();
            }
        })
    });
}

/// Records that were durable before are checked while another process writes.
#[test]
fn corruption_is_reported_during_writes() {
    let disk = SimDisk::new(1);
    let (options, _) = driven(&disk);
    let log = Log::builder(DIR).options(options).open().unwrap();
    append(&log, 30);
    disk.flip_bit(&Path::new(DIR).join("00000000000000000001.seg"), (4096 * 3 + 90) * 8).unwrap();
    let act: Act = Box::new(move || append(&log, 1));
    let report = verify(DIR, Options::on(Meddler::new(0, act).on(&disk))).unwrap();
    assert!(!report.corruption.is_empty());
}
