//! An index that was loaded from a checkpoint is the index that was dumped.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use esker_kv::{KEY_LIMIT, Store};
use esker_testkit::SplitMix64;

use crate::fixture::{Content, Keys, SimEnv, check};

/// Keys of many lengths. Some share long prefixes, some differ in the last byte only.
fn key(n: u64, rng: &mut SplitMix64) -> Vec<u8> {
    let mut key = match n % 4 {
        0 => n.to_be_bytes().to_vec(),
        1 => format!("a/long/prefix/that/many/keys/share/{n:08}").into_bytes(),
        2 => [&[0xff; 20][..], &n.to_be_bytes()].concat(),
        _ => (0..rng.below(60)).map(|_| rng.next() as u8).collect(),
    };
    if n % 1500 == 7 {
        // Several of these take more than a chunk.
        key.resize(KEY_LIMIT - n as usize, n as u8);
    }
    key
}

/// Puts keys of all lengths in three keyspaces, and deletes some of them again.
fn fill(store: &Store) -> Content {
    let mut rng = SplitMix64::new(1);
    let mut content = Content::new();
    for (name, count) in [("default", 9000), ("one", 2500), ("two", 600)] {
        let keyspace = store.create_keyspace(name).unwrap();
        let keys: &mut Keys = content.entry(name.into()).or_default();
        drop(keyspace.put("", "the empty key").unwrap());
        keys.insert(Vec::new(), b"the empty key".to_vec());
        for n in 0..count {
            let (key, value) = (key(n, &mut rng), n.to_le_bytes());
            drop(keyspace.put(&key, value).unwrap());
            keys.insert(key, value.to_vec());
        }
        for n in (0..count).step_by(5) {
            let (key, mut other) = (key(n, &mut rng), SplitMix64::new(n));
            if other.percent(80) {
                drop(keyspace.delete(&key).unwrap());
                keys.remove(&key);
            }
        }
    }
    content
}

#[test]
fn an_index_that_was_loaded_has_the_keys_that_were_dumped() {
    let sim_env = SimEnv::new();
    let store = sim_env.open();
    let mut content = fill(&store);
    store.drop_keyspace("two").unwrap();
    content.remove("two");
    assert!(content.values().map(BTreeMap::len).sum::<usize>() > 9500);
    assert!(store.checkpoint().unwrap());
    let bytes = store.stats().checkpoint_bytes;
    assert!(bytes > 8 << 20, "several chunks: {bytes} bytes");
    store.close().unwrap();

    let store = sim_env.open();
    assert_eq!(store.stats().replayed, 0);
    assert_eq!(store.stats().checkpoint_bytes, bytes);
    assert_eq!(store.stats().keys, content.values().map(|keys| keys.len() as u64).sum::<u64>());
    check(&store, &content, "loaded");
    assert_eq!(store.stats().snapshots, 0);

    // It is changed like any other: new keys between the old ones, overwritten and deleted ones.
    let before = store.accepted().0;
    for (name, keys) in &mut content {
        let keyspace = store.find_keyspace(name).unwrap();
        let old: Vec<_> = keys.keys().cloned().collect();
        for (n, key) in old.into_iter().enumerate() {
            match n % 3 {
                _ if key.len() > 1000 => {}
                0 => {
                    drop(keyspace.delete(&key).unwrap());
                    keys.remove(&key);
                }
                1 => {
                    drop(keyspace.put(&key, [1]).unwrap());
                    keys.insert(key, vec![1]);
                }
                _ => {
                    let key = [&key[..], &[n as u8]].concat();
                    drop(keyspace.put(&key, [2]).unwrap());
                    keys.insert(key, vec![2]);
                }
            }
        }
        drop(
            keyspace
                .delete_range(b"a/".as_slice()..b"a/long/prefix/that/many/keys/share/00004")
                .unwrap(),
        );
        keys.retain(|key, _| {
            **key < b"a/"[..] || **key >= b"a/long/prefix/that/many/keys/share/00004"[..]
        });
    }
    let created = store.create_keyspace("three").unwrap();
    drop(created.put("key", "value").unwrap());
    content.insert("three".into(), [(b"key".to_vec(), b"value".to_vec())].into());
    check(&store, &content, "changed");
    let written = store.accepted().0 - before;
    store.close().unwrap();

    let store = sim_env.open();
    assert_eq!(store.stats().replayed, written, "only what came after the checkpoint is read");
    check(&store, &content, "loaded and replayed");
    assert!(store.checkpoint().unwrap());
    store.close().unwrap();
    let store = sim_env.open();
    assert_eq!(store.stats().replayed, 0);
    check(&store, &content, "dumped again");
    store.close().unwrap();
}

#[test]
fn a_keyspace_that_was_dropped_after_a_checkpoint_stays_dropped() {
    let sim_env = SimEnv::new();
    let store = sim_env.open();
    let keyspace = store.create_keyspace("name").unwrap();
    drop(keyspace.put("key", "old").unwrap());
    assert!(store.checkpoint().unwrap());
    store.drop_keyspace("name").unwrap();
    let sim_env = sim_env.end(store, None);
    let store = sim_env.open();
    assert_eq!(store.stats().replayed, 1);
    assert_eq!(store.keyspaces(), ["default"]);
    // It has another number, and none of the old keys.
    let keyspace = store.create_keyspace("name").unwrap();
    assert_eq!(keyspace.get("key").unwrap(), None);
    store.close().unwrap();
    let store = sim_env.open();
    let content = Content::from([("default".into(), Keys::new()), ("name".into(), Keys::new())]);
    check(&store, &content, "created again");
    store.close().unwrap();
}

#[test]
fn closing_writes_a_checkpoint_only_if_it_pays() {
    let sim_env = SimEnv::new();
    let store = sim_env.open();
    drop(store.keyspace().put("key", "value").unwrap());
    store.close().unwrap();
    let store = sim_env.open();
    assert_eq!(store.stats().checkpoint_bytes, 0);
    assert_eq!(store.stats().replayed, 1);
    // What is not durable yet counts, too.
    drop(store.keyspace().put("large", vec![7; 2 << 20]).unwrap());
    store.close().unwrap();
    let store = sim_env.open();
    let bytes = store.stats().checkpoint_bytes;
    assert!(bytes > 0);
    assert_eq!(store.stats().replayed, 0);
    assert_eq!(store.keyspace().len(), 2);
    store.close().unwrap();
}
