//! The change feed: what it delivers, in which order, and where it resumes.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use esker_disk::sim::{Persist, SimDisk};
use esker_kv::{
    Action, Batch, Changes, Options, Policy, Seq, Store, StoreError, Trimmed, Watch, WatchError,
    WriteError,
};
use esker_log::{Engine, ReadOnlyLog};
use futures_util::StreamExt;

const DIR: &str = "/store";

fn options(disk: &SimDisk, engine: &Engine) -> Options {
    let mut options = Options::on(Arc::new(disk.process()));
    options.log.segment_size = 64 << 10;
    options.clean = false;
    options.log.engine = Some(engine.clone());
    options
}

fn open(disk: &SimDisk, engine: &Engine) -> Store {
    Store::builder(DIR).options(options(disk, engine)).open().unwrap()
}

fn reader(disk: &SimDisk, engine: &Engine) -> ReadOnlyLog {
    let builder = ReadOnlyLog::builder(DIR).disk(Arc::new(disk.process()));
    builder.engine(engine.clone()).open().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// One line for each change, with its position.
fn lines(changes: &Changes) -> Vec<(Seq, String)> {
    assert_eq!(changes.iter().count(), changes.len());
    let line = |change: esker_kv::Change<'_>| {
        let keyspace = change.keyspace;
        let line = match change.action {
            Action::Put { key, value } => {
                let value = if value.len() > 99 { "long" } else { text(value) };
                format!("{keyspace}: {}={value}", text(key))
            }
            Action::Delete { key } => format!("{keyspace}: -{}", text(key)),
            Action::DeleteRange { from, to } => {
                format!("{keyspace}: -{}..{}", text(from), to.map_or("", text))
            }
            Action::CreateKeyspace => format!("+{keyspace}"),
            Action::DropKeyspace => format!("-{keyspace}"),
            other => format!("{other:?}"),
        };
        (change.seq, line)
    };
    changes.iter().map(line).collect()
}

/// Everything that is durable now.
fn rest(watch: &mut Watch) -> Vec<(Seq, String)> {
    let mut all = Vec::new();
    while let Some(changes) = watch.try_next().unwrap() {
        all.extend(lines(&changes));
    }
    all
}

fn words(found: &[(Seq, String)]) -> Vec<&str> {
    found.iter().map(|(_, line)| &**line).collect()
}

/// Writes one of everything.
fn write_all_kinds(store: &Store) {
    let keys = store.keyspace();
    drop(keys.put("a", "1").unwrap());
    let other = store.create_keyspace("other").unwrap();
    let mut batch = Batch::new();
    batch.put(&keys, "b", "2").unwrap();
    batch.put(&other, "c", "3").unwrap();
    batch.delete(&keys, "a").unwrap();
    drop(store.write(&batch).unwrap());
    drop(keys.delete("b").unwrap());
    drop(other.delete_range("c".."x").unwrap());
    drop(keys.delete_range("y"..).unwrap());
    store.drop_keyspace("other").unwrap();
    store.sync().unwrap();
}

const ALL_KINDS: [&str; 9] = [
    "default: a=1",
    "+other",
    "default: b=2",
    "other: c=3",
    "default: -a",
    "default: -b",
    "other: -c..x",
    "default: -y..",
    "-other",
];

#[test]
fn every_kind_of_change_is_delivered_in_order() {
    let (disk, engine) = (SimDisk::new(1), Engine::manual());
    let store = open(&disk, &engine);
    let mut watch = store.watch(0).unwrap();
    write_all_kinds(&store);
    let found = rest(&mut watch);
    assert_eq!(words(&found), ALL_KINDS);
    assert!(found.is_sorted_by(|a, b| a.0 < b.0));
    assert_eq!(watch.position(), store.durable());
    let log = reader(&disk, &engine);
    assert_eq!(rest(&mut Watch::from_log(&log, 0).unwrap()), found, "from another process");
    store.close().unwrap();
    engine.stop();
}

/// A watch begins anywhere, also inside a batch: it misses nothing and repeats nothing.
#[test]
fn a_watch_resumes_after_the_last_change_seen() {
    let (disk, engine) = (SimDisk::new(1), Engine::manual());
    let store = open(&disk, &engine);
    write_all_kinds(&store);
    let all = rest(&mut store.watch(0).unwrap());
    for (n, (seq, _)) in all.iter().enumerate() {
        assert_eq!(rest(&mut store.watch(*seq).unwrap()), all[n + 1..], "after {seq}");
    }
    store.close().unwrap();
    let store = open(&disk, &engine);
    for (n, (seq, _)) in all.iter().enumerate() {
        let rest = rest(&mut store.watch(*seq).unwrap());
        // The writer does not know the name of the dropped keyspace any more.
        let known: Vec<_> =
            all[n + 1..].iter().filter(|(_, line)| !line.starts_with("other")).cloned().collect();
        assert_eq!(rest, known, "after {seq}, and reopening");
    }
    store.close().unwrap();
    engine.stop();
}

/// Bug: a range whose end is before its start was delivered. `BTreeMap::range` panics with that.
#[test]
fn a_range_without_keys_is_not_delivered() {
    let (disk, engine) = (SimDisk::new(1), Engine::manual());
    let store = open(&disk, &engine);
    let keys = store.keyspace();
    keys.put("k", "1").unwrap().blocking_wait().unwrap();
    let mut watch = store.watch(0).unwrap();
    let before = store.accepted();
    for range in ["z".."a", "k".."k", "".."", "k\0".."k"] {
        assert_eq!(keys.delete_range(range).unwrap().blocking_wait().unwrap(), before);
    }
    assert_eq!(store.accepted(), before, "nothing is written");
    keys.delete_range("a"..="a").unwrap().blocking_wait().unwrap();
    assert_eq!(words(&rest(&mut watch)), ["default: k=1", "default: -a..a\0"]);
    let other = store.create_keyspace("other").unwrap();
    store.drop_keyspace("other").unwrap();
    let dropped = other.delete_range("z".."a");
    assert!(matches!(dropped, Err(WriteError::KeyspaceDropped { .. })), "{dropped:?}");
    store.close().unwrap();
    assert!(keys.delete_range("z".."a").is_err(), "it is closed");
    engine.stop();
}

/// A batch is in one run of changes, whatever is committed with it.
#[test]
fn a_batch_is_delivered_whole() {
    let (disk, engine) = (SimDisk::new(1), Engine::manual());
    let store = open(&disk, &engine);
    let keys = store.keyspace();
    let mut watch = store.watch(0).unwrap();
    for n in 0..40u32 {
        let mut batch = Batch::new();
        for key in 0..10u32 {
            batch.put(&keys, format!("{n}-{key}"), vec![b'x'; 997 * key as usize]).unwrap();
        }
        drop(store.write(&batch).unwrap());
        if n % 3 == 0 {
            store.sync().unwrap();
        }
    }
    store.sync().unwrap();
    let mut from_log = Watch::from_log(&reader(&disk, &engine), 0).unwrap();
    for watch in [&mut watch, &mut from_log] {
        let mut count = 0;
        while let Some(changes) = watch.try_next().unwrap() {
            assert_eq!(changes.len() % 10, 0);
            assert!(text_key(&changes).ends_with("-0"), "the run begins with a batch");
            count += changes.len();
        }
        assert_eq!(count, 400);
    }
    store.close().unwrap();
    engine.stop();
}

fn text_key(changes: &Changes) -> String {
    match changes.iter().next().unwrap().action {
        Action::Put { key, .. } => text(key).to_owned(),
        other => format!("{other:?}"),
    }
}

/// Cleaning copies `kept` and the entry of a keyspace. Their copies are no changes.
#[test]
fn copies_of_cleaning_are_never_delivered() {
    let (disk, engine) = (SimDisk::new(1), Engine::manual());
    let store = open(&disk, &engine);
    let keys = store.keyspace();
    let other = store.create_keyspace("other").unwrap();
    drop(keys.put("kept", "1").unwrap());
    for n in 0..100 {
        drop(keys.put("replaced", vec![n; 3000]).unwrap());
    }
    store.sync().unwrap();
    let from = store.durable();
    let mut watch = store.watch(from).unwrap();
    let copied = store.compact().unwrap().records_copied;
    assert!(copied >= 3, "{copied}");
    store.sync().unwrap();
    assert!(rest(&mut watch).is_empty());
    assert_eq!(watch.position(), store.durable(), "the position passes the copies");
    let later = store.durable();
    drop(other.put("key", "value").unwrap());
    store.sync().unwrap();
    assert_eq!(words(&rest(&mut watch)), ["other: key=value"]);
    // The entry of the keyspace was moved.
    let log = reader(&disk, &engine);
    assert_eq!(words(&rest(&mut Watch::from_log(&log, later).unwrap())), ["other: key=value"]);
    let refused = store.watch(0).map(drop);
    let Err(WatchError::Trimmed(Trimmed { oldest })) = refused else { panic!("{refused:?}") };
    assert!(oldest > Seq(1));
    assert!(matches!(Watch::from_log(&log, 0), Err(WatchError::Trimmed(_))));
    store.close().unwrap();
    engine.stop();
}

#[test]
fn a_watch_that_cleaning_passed_is_trimmed() {
    let (disk, engine) = (SimDisk::new(1), Engine::manual());
    let store = open(&disk, &engine);
    let keys = store.keyspace();
    let mut watch = store.watch(0).unwrap();
    for n in 0..100 {
        drop(keys.put("replaced", vec![n; 3000]).unwrap());
    }
    store.sync().unwrap();
    assert!(store.compact().unwrap().segments > 0);
    let end = std::iter::from_fn(|| watch.try_next().transpose()).find_map(Result::err);
    assert!(matches!(end, Some(WatchError::Trimmed(_))), "{end:?}");
    let snapshot = store.durable_snapshot().unwrap();
    let mut watch = store.watch(snapshot.seq()).unwrap();
    drop(keys.put("key", "value").unwrap());
    store.sync().unwrap();
    assert_eq!(words(&rest(&mut watch)), ["default: key=value"]);
    drop(snapshot);
    store.close().unwrap();
    engine.stop();
}

#[test]
fn only_durable_changes_are_delivered() {
    let (disk, engine) = (SimDisk::new(1), Engine::manual());
    let mut options = options(&disk, &engine);
    options.log.policy = Policy::Periodic(Duration::from_secs(60));
    let store = Store::builder(DIR).options(options).open().unwrap();
    let keys = store.keyspace();
    let mut watch = store.watch(0).unwrap();
    drop(keys.put("key", "value").unwrap());
    assert!(rest(&mut watch).is_empty());
    let refused = store.watch(store.accepted()).map(drop);
    assert!(matches!(
        refused,
        Err(WatchError::NotDurable { position, durable }) if position == Seq(1) && durable == Seq(0)
    ));
    assert!(matches!(
        Watch::from_log(&reader(&disk, &engine), 1),
        Err(WatchError::NotDurable { .. })
    ));
    disk.power_cut(Persist::Nothing);
    engine.stop();
    drop((store, keys));
    disk.power_on();
    let engine = Engine::manual();
    let store = open(&disk, &engine);
    assert!(rest(&mut store.watch(0).unwrap()).is_empty());
    store.close().unwrap();
    engine.stop();
}

/// A waiting watch is woken by a commit, and ends when the store is closed.
#[test]
fn a_waiting_watch_ends_when_the_store_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("store")).unwrap();
    let mut watch = store.watch(store.durable()).unwrap();
    let timeout = watch.blocking_next_timeout(Duration::from_millis(5)).map(drop);
    assert!(matches!(timeout, Err(WatchError::Timeout)), "{timeout:?}");
    let (sender, receiver) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        for next in watch.blocking_iter() {
            sender.send(next.map(|changes| lines(&changes))).unwrap();
        }
    });
    let mut task = store.watch(store.durable()).unwrap();
    let first = async { task.next().await.unwrap().unwrap() };
    drop(store.keyspace().put("key", "value").unwrap());
    assert_eq!(words(&lines(&block_on(first))), ["default: key=value"]);
    assert_eq!(words(&receiver.recv().unwrap().unwrap()), ["default: key=value"]);
    store.close().unwrap();
    let end = receiver.recv().unwrap();
    assert!(matches!(end, Err(WatchError::Store(StoreError::Closed))), "{end:?}");
    thread.join().unwrap();
    let end = block_on(async { (task.next().await, task.next().await) });
    assert!(matches!(end, (Some(Err(WatchError::Store(StoreError::Closed))), None)), "{end:?}");
    assert!(matches!(store.watch(0), Err(WatchError::Store(StoreError::Closed))));
}

/// Runs a future on this thread.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let thread = std::thread::current();
    let waker = std::task::Waker::from(Arc::new(Unpark(thread)));
    loop {
        let mut context = std::task::Context::from_waker(&waker);
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(done) => return done,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

struct Unpark(std::thread::Thread);

impl std::task::Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
