//! A full disk: puts are refused, and everything that frees space works.
#![allow(clippy::unwrap_used)]

use esker_kv::Error;

use crate::fixture::{SimEnv, check_keys, keys_of, model, put, value};

const LEN: usize = 2000;

fn is_full<T>(outcome: &Result<T, Error>) -> bool {
    matches!(outcome, Err(Error::Log(esker_log::Error::NoSpace { .. })))
}

/// Requirements: MB-7.
#[test]
fn a_full_disk_refuses_puts_and_deleting_and_cleaning_free_it() {
    let sim_env = SimEnv::new();
    sim_env.disk.set_capacity(Some(4 << 20));
    let store = sim_env.open();
    let keys = store.keyspace();
    let mut last = 0;
    let refused = loop {
        match keys.put(u32::to_be_bytes(last), value(last, 1, LEN)) {
            Ok(_) => last += 1,
            refused => break refused,
        }
        if last % 16 == 0 {
            store.sync().unwrap();
        }
    };
    store.sync().unwrap();
    assert!(is_full(&refused), "{refused:?}");
    assert!(last > 1000, "{last} keys");
    check_keys(&keys, &model(0..last, 1, LEN), "full");
    // Closing and opening need no space.
    store.close().unwrap();
    // A closed store keeps its files open until it is dropped, and their space.
    drop((store, keys));
    sim_env.engine.run();
    let store = sim_env.open();
    let keys = store.keyspace();
    check_keys(&keys, &model(0..last, 1, LEN), "full, and opened again");
    assert!(is_full(&keys.put("new", vec![7; 100_000])));
    // Deletes are kept, and make room.
    for n in 0..last - 100 {
        drop(keys.delete(n.to_be_bytes()).unwrap());
    }
    store.sync().unwrap();
    let done = store.compact().unwrap();
    assert!(done.bytes_freed > 2 << 20, "{done:?}");
    put(&keys, 0..500, 2, LEN);
    store.sync().unwrap();
    let mut expected = model(last - 100..last, 1, LEN);
    expected.extend(model(0..500, 2, LEN));
    drop(keys);
    let sim_env = sim_env.end(store, Some(esker_disk::sim::Persist::Nothing));
    let store = sim_env.open();
    check_keys(&store.keyspace(), &expected, "after cleaning");
    // There is room on the disk again.
    let keys = store.keyspace();
    let mut n = last;
    while keys.put(n.to_be_bytes(), value(n, 3, LEN)).is_ok() {
        n += 1;
        store.sync().unwrap();
    }
    sim_env.disk.set_capacity(None);
    put(&keys, n..n + 100, 3, LEN);
    store.sync().unwrap();
    expected.extend(model(last..n + 100, 3, LEN));
    assert!(keys_of(&keys) == expected);
    store.close().unwrap();
}
