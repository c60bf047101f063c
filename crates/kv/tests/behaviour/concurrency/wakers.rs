//! Wakers that call the store on the thread that wakes them.
//!
//! Guards: a thread that waits for a lock of the store that it holds itself.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use esker_kv::{Error, Result, Store, StoreError};

use crate::fixture::{CHECKPOINT, DIR, SimEnv, put};

type DurableWait = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Calls the store when it is woken.
struct CallingWaker {
    store: Mutex<Option<Store>>,
    /// The wait for its last put.
    wait: Mutex<Option<DurableWait>>,
    /// Whether it waits for another put when it is woken, before it calls.
    again: AtomicBool,
    call: fn(&Store) -> Result<()>,
    outcome: mpsc::Sender<Result<()>>,
}

impl CallingWaker {
    /// Puts a key, and waits until that is durable. Requests no commit.
    fn put_and_wait(self: &Arc<Self>, store: &Store) {
        let seq = store.keyspace().put("key", "value").unwrap().seq();
        let waits = store.clone();
        let mut wait: DurableWait = Box::pin(async move { drop(waits.wait_durable(seq).await) });
        let waker = Waker::from(Arc::clone(self));
        assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        *self.wait.lock().unwrap() = Some(wait);
    }
}

impl Wake for CallingWaker {
    fn wake(self: Arc<Self>) {
        let Some(store) = self.store.lock().unwrap().clone() else { return };
        match self.again.swap(false, SeqCst) {
            true => self.put_and_wait(&store),
            false => self.outcome.send((self.call)(&store)).unwrap(),
        }
    }
}

/// Runs a call of a store that wakes a task, and returns the outcome of the task's call. With
/// `again` the task waits once more before it calls. Cleaning has much to do.
fn outcome_of_waker(
    again: bool,
    call: fn(&Store) -> Result<()>,
    run: fn(&Store) -> Result<()>,
) -> Result<()> {
    let (done, ended) = mpsc::channel();
    std::thread::spawn(move || {
        let env = SimEnv::new();
        let store = env.open();
        put(&store.keyspace(), 0..60, 0, 3000);
        for round in 0..10 {
            put(&store.keyspace(), 60..120, round, 3000);
        }
        store.sync().unwrap();
        let (outcome, outcomes) = mpsc::channel();
        let waker = Arc::new(CallingWaker {
            store: Mutex::new(Some(store.clone())),
            wait: Mutex::default(),
            again: AtomicBool::new(again),
            call,
            outcome,
        });
        waker.put_and_wait(&store);
        let ran = run(&store);
        let outcome = outcomes.try_recv().unwrap();
        drop(waker.wait.lock().unwrap().take());
        drop(waker.store.lock().unwrap().take());
        let is_closed = matches!(ran, Err(Error::Store(StoreError::Closed)));
        assert!(is_closed || ran.is_ok(), "{ran:?}");
        if is_closed {
            let files = env.disk.files(DIR.as_ref()).unwrap();
            assert!(!files.iter().any(|name| name == CHECKPOINT), "a checkpoint inside another");
        }
        drop(store);
        env.engine.stop();
        let store = SimEnv::on(env.disk.clone()).open();
        assert_eq!(store.keyspace().len(), 121);
        store.close().unwrap();
        done.send(outcome).unwrap();
    });
    ended.recv_timeout(Duration::from_secs(60)).unwrap()
}

fn create(store: &Store) -> Result<()> {
    store.create_keyspace("mine").map(drop).map_err(Error::from)
}

fn change_keyspaces(store: &Store) -> Result<()> {
    store.create_keyspace("theirs")?;
    Ok(store.drop_keyspace("theirs")?)
}

fn compact(store: &Store) -> Result<()> {
    assert!(store.compact()?.segments > 0);
    Ok(())
}

fn checkpoint(store: &Store) -> Result<()> {
    assert!(store.checkpoint()?);
    Ok(())
}

fn close(store: &Store) -> Result<()> {
    Ok(store.close()?)
}

#[test]
fn a_waker_may_change_keyspaces_where_one_is_created() {
    outcome_of_waker(false, change_keyspaces, create).unwrap();
}

#[test]
fn a_waker_may_change_keyspaces_where_its_thread_cleans() {
    outcome_of_waker(false, change_keyspaces, compact).unwrap();
}

#[test]
fn a_waker_is_refused_what_its_thread_is_doing() {
    let busy = |outcome: Result<()>| {
        let busy = |error: &Error| {
            matches!(error, Error::Store(StoreError::Log(esker_log::Error::Busy { .. })))
        };
        let is_busy = outcome.as_ref().is_err_and(busy);
        assert!(is_busy, "{outcome:?}");
    };
    busy(outcome_of_waker(false, compact, compact));
    busy(outcome_of_waker(false, checkpoint, compact));
    // The second time it is woken while the checkpoint is written.
    busy(outcome_of_waker(true, checkpoint, checkpoint));
}

/// Closing writes a checkpoint, if nothing is in the way.
#[test]
fn a_waker_may_close_the_store_where_its_thread_cleans() {
    outcome_of_waker(false, close, compact).unwrap();
}

#[test]
fn a_waker_may_close_the_store_where_its_thread_writes_a_checkpoint() {
    outcome_of_waker(true, close, checkpoint).unwrap();
}
