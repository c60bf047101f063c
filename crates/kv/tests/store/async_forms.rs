//! The async forms of calls that may wait for room.
#![allow(clippy::unwrap_used)]

use std::task::{Context, Poll, Waker};

use esker_kv::{KeyRange, Policy, Store, StoreError, WriteError};
use futures_util::FutureExt;

/// A future that needs not to wait is ready at its first poll.
#[test]
fn deletes_and_syncs_have_async_forms() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("store");
    let store = Store::builder(&dir).policy(Policy::OsBuffered).open().unwrap();
    let keys = store.keyspace();
    for key in ["a", "b1", "b2", "c", "d"] {
        drop(keys.put(key, key).unwrap());
    }
    // Nothing is deleted by a future that is not polled.
    drop((keys.delete_async("a"), keys.delete_range_async(..)));
    assert_eq!(keys.len(), 5);
    drop(keys.delete_async("a").now_or_never().unwrap().unwrap());
    drop(keys.delete_async("absent").now_or_never().unwrap().unwrap());
    let range = keys.delete_range_async(KeyRange::prefix("b"));
    drop(range.now_or_never().unwrap().unwrap());
    drop(keys.delete_range_async("d"..).now_or_never().unwrap().unwrap());
    assert_eq!(keys.scan(..).unwrap().count(), 1);
    assert_eq!(keys.get("c").unwrap().unwrap(), "c");
    let accepted = store.accepted();
    let mut synced = Box::pin(store.sync_async());
    let mut cx = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(outcome) = synced.poll_unpin(&mut cx) {
            break outcome.unwrap();
        }
        std::thread::yield_now();
    }
    assert!(store.durable() >= accepted);
    drop(synced);
    store.close().unwrap();
    let closed = keys.delete_async("c").now_or_never();
    assert!(matches!(closed, Some(Err(WriteError::Store(StoreError::Closed)))), "{closed:?}");
    let closed = keys.delete_range_async(..).now_or_never();
    assert!(matches!(closed, Some(Err(WriteError::Store(StoreError::Closed)))), "{closed:?}");
    let store = Store::open(&dir).unwrap();
    assert_eq!(store.keyspace().len(), 1);
}
