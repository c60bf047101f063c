//! Cleaning before, during and after a checkpoint.
#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use esker_disk::sim::SimDisk;
use esker_disk::{Disk, Op};
use esker_kv::Store;
use esker_log::Engine;
use esker_testkit::{Call, HookedDisk};

use crate::fixture::{DIR, SimEnv, check_keys, model, options, put};

/// How long a checkpoint is waited for that begins in the middle of a pass. It waits for the pass.
const BLOCKED: Duration = Duration::from_millis(40);

#[test]
fn records_that_were_dropped_after_a_checkpoint_are_not_brought_back() {
    let sim_env = SimEnv::new();
    let store = sim_env.open();
    let keys = store.keyspace();
    put(&keys, 0..100, 1, 2000);
    store.sync().unwrap();
    assert!(store.checkpoint().unwrap());
    // Of the keys in the checkpoint, some are deleted, some overwritten, some copied.
    for n in 0..40u32 {
        drop(keys.delete(n.to_be_bytes()).unwrap());
    }
    drop(keys.delete_range(40u32.to_be_bytes()..50u32.to_be_bytes()).unwrap());
    put(&keys, 50..80, 2, 2000);
    let mut expected = model(80..100, 1, 2000);
    expected.extend(model(50..80, 2, 2000));
    // The deletes are dropped with the segments that they are in.
    for round in 0..4 {
        put(&keys, 1000..1100, round, 2000);
    }
    expected.extend(model(1000..1100, 3, 2000));
    let done = store.compact().unwrap();
    assert!(done.segments > 4 && done.records_copied >= 20, "{done:?}");
    let total = store.accepted().0;
    let sim_env = sim_env.end(store, None);

    let store = sim_env.open();
    let stats = store.stats();
    assert!(stats.checkpoint_bytes > 0, "the checkpoint is used");
    assert!(stats.replayed < total, "{stats:?}");
    check_keys(&store.keyspace(), &expected, "an older checkpoint");
    store.close().unwrap();
}

/// Begins a checkpoint in another thread at a call of the thread that cleans, and waits for it for
/// a moment.
#[derive(Default)]
struct Interloper {
    store: Mutex<Option<Store>>,
    calls: AtomicU64,
    at: AtomicU64,
    began: AtomicBool,
    finished: AtomicBool,
    thread: Mutex<Option<JoinHandle<bool>>>,
}

thread_local! {
    static CLEANS: AtomicBool = const { AtomicBool::new(false) };
}

impl Interloper {
    fn before(self: &Arc<Self>, call: &Call<'_>) {
        if call.op != Op::Read || !CLEANS.with(|cleans| cleans.load(SeqCst)) {
            return;
        }
        if self.calls.fetch_add(1, SeqCst) != self.at.load(SeqCst) {
            return;
        }
        let Some(store) = self.store.lock().unwrap().clone() else { return };
        self.began.store(true, SeqCst);
        let this = Arc::clone(self);
        let work = move || {
            let wrote = store.checkpoint().unwrap();
            this.finished.store(true, SeqCst);
            wrote
        };
        *self.thread.lock().unwrap() = Some(std::thread::spawn(work));
        let began = Instant::now();
        while !self.finished.load(SeqCst) && began.elapsed() < BLOCKED {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// While copies are under way, the index names the originals, which are dropped after that.
#[test]
fn a_checkpoint_during_cleaning_loses_no_key() {
    for at in [0, 1, 4, 9, 15] {
        let disk = SimDisk::new(at);
        let interloper = Arc::new(Interloper::default());
        interloper.at.store(at, SeqCst);
        let hook = {
            let interloper = Arc::clone(&interloper);
            move |call: &Call<'_>| {
                interloper.before(call);
                Ok(())
            }
        };
        let hooked: Arc<dyn Disk> = Arc::new(HookedDisk::new(Arc::new(disk.process()), hook));
        let engine = Engine::manual();
        let open = || Store::builder(DIR).options(options(Arc::clone(&hooked), &engine)).open();
        let store = open().unwrap();
        put(&store.keyspace(), 0..200, 1, 5000);
        put(&store.keyspace(), (0..200).filter(|n| n % 5 > 0), 2, 5000);
        store.close().unwrap();
        // After opening, the records are in the files alone, so that cleaning reads them there.
        let store = open().unwrap();
        *interloper.store.lock().unwrap() = Some(store.clone());
        CLEANS.with(|cleans| cleans.store(true, SeqCst));
        let done = store.compact().unwrap();
        CLEANS.with(|cleans| cleans.store(false, SeqCst));
        assert!(done.records_copied >= 40, "{done:?}");
        assert!(interloper.began.load(SeqCst), "call {at} of {}", interloper.calls.load(SeqCst));
        let thread = interloper.thread.lock().unwrap().take().unwrap();
        assert!(thread.join().unwrap(), "a checkpoint was written");
        *interloper.store.lock().unwrap() = None;
        let mut expected = model((0..200).step_by(5), 1, 5000);
        expected.extend(model((0..200).filter(|n| n % 5 > 0), 2, 5000));
        check_keys(&store.keyspace(), &expected, "before");

        let sim_env = SimEnv { disk, engine }.end(store, None);
        let store = sim_env.open();
        assert!(store.stats().checkpoint_bytes > 0, "the checkpoint is used");
        check_keys(&store.keyspace(), &expected, &format!("call {at}"));
        store.close().unwrap();
    }
}
