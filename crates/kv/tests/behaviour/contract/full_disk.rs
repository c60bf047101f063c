//! A full disk: puts are refused, and everything that frees space works.
#![allow(clippy::unwrap_used)]

use std::cell::Cell;
use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use esker_disk::sim::{Effect, Fault, Persist};
use esker_disk::{Disk, Op};
use esker_kv::{
    Batch, Error, Keyspace, Options, Policy, Reclaimed, Seq, Store, StoreError, Ticket, WriteError,
};
use esker_testkit::{Call, HookedDisk};
use futures_util::FutureExt;

use crate::fixture::{DIR, Keys, SimEnv, check_keys, file, keys_of, model, put, value};

const LEN: usize = 2000;

fn is_full<T, E: Clone + Into<Error>>(outcome: &Result<T, E>) -> bool {
    let error = outcome.as_ref().err().cloned().map(Into::into);
    matches!(error, Some(Error::Store(StoreError::NoSpace { .. })))
}

/// Waits until a write is durable.
fn wait(written: Result<Ticket, WriteError>) -> esker_kv::Result<Seq> {
    Ok(written?.blocking_wait()?)
}

/// Puts keys until one is refused, and returns their number.
fn fill_disk(store: &Store) -> u32 {
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
    assert!(is_full(&refused), "{refused:?}");
    store.sync().unwrap();
    last
}

#[test]
fn a_full_disk_refuses_puts_and_deleting_and_cleaning_free_it() {
    let sim_env = SimEnv::new();
    sim_env.disk.set_capacity(Some(4 << 20));
    let store = sim_env.open();
    let keys = store.keyspace();
    let last = fill_disk(&store);
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
    let sim_env = sim_env.end(store, Some(Persist::Nothing));
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

/// A form of a write.
type Form<'a> = &'a dyn Fn(&Store) -> esker_kv::Result<Ticket>;

/// A store on a full disk. All but 100 of its values are garbage.
fn full_of_garbage() -> SimEnv {
    let sim_env = SimEnv::new();
    sim_env.disk.set_capacity(Some(4 << 20));
    let store = sim_env.open();
    let keys = store.keyspace();
    let mut n = 0;
    while keys.put([n % 100], value(1, 1, LEN)).is_ok() {
        n = n.wrapping_add(1);
        store.sync().unwrap();
    }
    drop(keys);
    sim_env.end(store, None)
}

/// Guards: cleaning began only with the next write of another kind.
#[test]
fn a_keyspace_without_space_starts_cleaning() {
    let sim_env = full_of_garbage();
    let mut options = sim_env.options();
    options.clean = true;
    let store = Store::builder(DIR).options(options).open().unwrap();
    let mut names = (0..).map(|n| format!("keyspace {n}"));
    let mut create = || store.create_keyspace(&names.next().unwrap()).map(drop);
    let refused = std::iter::repeat_with(&mut create).find_map(Result::err).unwrap();
    assert!(refused.is_no_space(), "{refused:?}");
    let start = Instant::now();
    while create().is_err() {
        assert!(start.elapsed() < Duration::from_secs(180), "no space was freed");
        std::thread::sleep(Duration::from_millis(1));
    }
    store.close().unwrap();
}

#[test]
fn a_write_without_space_starts_cleaning() {
    let sim_env = full_of_garbage();
    let large = vec![7; 100_000];
    let batch = |store: &Store| {
        let mut batch = Batch::new();
        batch.put(&store.keyspace(), "large", &large).unwrap();
        batch
    };
    let forms: [(&str, Form<'_>); 4] = [
        ("put", &|store| Ok(store.keyspace().put("large", &large)?)),
        ("put_async", &|store| {
            Ok(store.keyspace().put_async("large", &large).now_or_never().unwrap()?)
        }),
        ("write", &|store| Ok(store.write(&batch(store))?)),
        ("write_async", &|store| Ok(store.write_async(&batch(store)).now_or_never().unwrap()?)),
    ];
    for (form, write) in forms {
        let sim_env = sim_env.fork(3);
        let mut options = sim_env.options();
        options.clean = true;
        let store = Store::builder(DIR).options(options).open().unwrap();
        let refused = write(&store);
        assert!(is_full(&refused), "{form}: {refused:?}");
        let start = Instant::now();
        while write(&store).is_err() {
            assert!(start.elapsed() < Duration::from_secs(180), "{form}: no space was freed");
            std::thread::sleep(Duration::from_millis(1));
        }
        // A pass is counted at its end, which is after its space is free.
        while store.stats().reclaimed.segments == 0 {
            assert!(start.elapsed() < Duration::from_secs(180), "{form}: no pass ended");
            std::thread::sleep(Duration::from_millis(1));
        }
        store.close().unwrap();
    }
}

/// A store with segments of 1 MiB, and a reserve for cleaning those of which half is live.
fn open_large(capacity: u64, change: impl FnOnce(&mut Options)) -> (SimEnv, Store) {
    let sim_env = SimEnv::new();
    sim_env.disk.set_capacity(Some(capacity));
    let store = open_again(&sim_env, change);
    (sim_env, store)
}

/// Opens the store of [`open_large`].
fn open_again(sim_env: &SimEnv, change: impl FnOnce(&mut Options)) -> Store {
    let mut options = sim_env.options();
    options.log.segment_size = 1 << 20;
    options.log.reserve = Some(7 << 18);
    change(&mut options);
    Store::builder(DIR).options(options).open().unwrap()
}

/// A store with segments of 1 MiB and this reserve, which has filled its disk. Then every key with
/// `kept(n)` false is deleted.
fn filled(
    capacity: u64,
    reserve: u64,
    clean: bool,
    kept: fn(u32) -> bool,
) -> (SimEnv, Store, Keys) {
    let (sim_env, store) = open_large(capacity, |options| {
        options.log.reserve = Some(reserve);
        options.clean = clean;
    });
    let keys = store.keyspace();
    let last = fill_disk(&store);
    assert!(last > 1500, "{last} keys");
    for n in (0..last).filter(|n| !kept(*n)) {
        drop(keys.delete(n.to_be_bytes()).unwrap());
    }
    store.sync().unwrap();
    let expected = model((0..last).filter(|n| kept(*n)), 1, LEN);
    assert!(expected.len() > 100, "{} keys", expected.len());
    drop(keys);
    (sim_env, store, expected)
}

/// Bug: a pass copied from several segments before it dropped the first, until the reserve was used
/// up. Then it had freed nothing.
#[test]
fn compacting_a_full_disk_frees_segment_after_segment() {
    for (share, kept) in [
        ("a third", (|n| n % 3 == 0) as fn(u32) -> bool),
        ("nearly half", |n| n % 100 < 48),
        ("the newest third", |n| n > 1600),
    ] {
        let (_sim_env, store, expected) = filled(7 << 20, 7 << 18, false, kept);
        let done = store.compact().unwrap();
        assert!(done.segments >= 3, "{share}: {done:?}");
        let keys = store.keyspace();
        check_keys(&keys, &expected, share);
        for n in 0..500u32 {
            drop(keys.put(n.to_le_bytes(), value(n, 2, LEN)).unwrap());
        }
        store.close().unwrap();
    }
}

/// Bug: segments of live records before all others kept cleaning from what is dead behind them,
/// where these segments did not fit in the reserve together.
#[test]
fn live_segments_before_dead_ones_do_not_block_a_full_disk() {
    for background in [false, true] {
        let (_sim_env, store, expected) = filled(14 << 20, 8 << 19, background, |n| n < 1600);
        let keys = store.keyspace();
        let start = Instant::now();
        if background {
            // Each refused put starts a pass.
            while store.stats().reclaimed.segments < 3 {
                drop(keys.put("large", vec![1; 500_000]));
                assert!(start.elapsed() < Duration::from_secs(180), "cleaning stopped");
                std::thread::sleep(Duration::from_millis(1));
            }
        } else {
            let done = store.compact().unwrap();
            assert!(done.segments >= 3 && done.bytes_freed > done.bytes_copied, "{done:?}");
        }
        let mut accepted = 0;
        while accepted < 500 {
            match keys.put(format!("more {accepted}"), vec![1; 1000]) {
                Ok(_) => accepted += 1,
                refused => assert!(is_full(&refused), "{refused:?}"),
            }
            store.sync().unwrap();
            assert!(start.elapsed() < Duration::from_secs(180), "no space was freed");
        }
        drop(keys.delete("large").unwrap());
        for n in 0..500 {
            drop(keys.delete(format!("more {n}")).unwrap());
        }
        check_keys(&keys, &expected, "cleaned");
        store.close().unwrap();
    }
}

/// Bug: each few deletes take a block, and so all of them used up what the reserve lends to deletes
/// before half of any segment was dead. Then nothing could be deleted or freed any more.
#[test]
fn deletes_in_small_commits_free_a_full_disk() {
    for background in [false, true] {
        let (_sim_env, store) = open_large(14 << 20, |options| {
            options.log.reserve = Some(4 << 20);
            options.clean = background;
        });
        let keys = store.keyspace();
        let last = fill_disk(&store);
        let mut expected = model(0..last, 1, LEN);
        let start = Instant::now();
        let mut refused = 0;
        // In an order that spreads them over all segments.
        for n in (0..last).map(|n| (n * 7919) % last).filter(|n| n % 4 > 0) {
            while let Err(error) = keys.delete(n.to_be_bytes()) {
                assert!(is_full(&Err::<(), _>(error)));
                refused += 1;
                if !background {
                    let done = store.compact().unwrap();
                    assert!(done.gained() > 0, "{done:?}");
                }
                assert!(start.elapsed() < Duration::from_secs(60), "key {n}");
                std::thread::yield_now();
            }
            if n % 8 == 7 {
                store.sync().unwrap();
            }
            expected.remove(&n.to_be_bytes()[..]);
        }
        assert!(refused > 0, "all deletes fit in what is lent to them");
        check_keys(&keys, &expected, "deleted");
        store.close().unwrap();
    }
}

/// Bug: a pass freed space, and deletes were refused still.
#[test]
fn deletes_get_their_share_again_after_a_pass() {
    let (_sim_env, store) = open_large(14 << 20, |options| options.log.reserve = Some(4 << 20));
    let keys = store.keyspace();
    let last = fill_disk(&store);
    let mut expected = model(0..last, 1, LEN);
    let mut deleted = 0u32;
    let mut refused = false;
    while !refused {
        match wait(keys.delete(deleted.to_be_bytes())) {
            Ok(_) => {
                expected.remove(&deleted.to_be_bytes()[..]);
                deleted += 1;
            }
            Err(error) => refused = is_full(&Err::<(), _>(error)),
        }
    }
    assert!(deleted > 100, "{deleted} deletes");
    assert!(store.compact().unwrap().segments > 0);
    for n in deleted..deleted + 100 {
        keys.delete(n.to_be_bytes()).unwrap().blocking_wait().unwrap();
        expected.remove(&n.to_be_bytes()[..]);
    }
    check_keys(&keys, &expected, "deleted");
    store.close().unwrap();
}

/// Bug: a reserve of which deletes had used a part was taken for a whole one by the next opening,
/// and so became smaller in each life, until nothing could be freed.
#[test]
fn the_reserve_is_as_large_in_the_tenth_life_as_in_the_first() {
    let (mut sim_env, mut store) =
        open_large(9 << 20, |options| options.log.reserve = Some(7 << 19));
    for life in 0..10u32 {
        let keys = store.keyspace();
        let mut n = 0u32;
        while keys.put([life.to_be_bytes(), n.to_be_bytes()].concat(), value(n, 1, LEN)).is_ok() {
            n += 1;
            store.sync().unwrap();
        }
        for n in 0..20u32 {
            drop(keys.delete([[0; 4], (20 * life + n).to_be_bytes()].concat()).unwrap());
            store.sync().unwrap();
        }
        drop(keys);
        sim_env = match life % 2 {
            0 => sim_env.end(store, None),
            _ => {
                store.close().unwrap();
                drop(store);
                sim_env
            }
        };
        store = open_again(&sim_env, |options| options.log.reserve = Some(7 << 19));
        let reserve = sim_env.disk.contents(&file("reserve")).unwrap().len();
        assert!(reserve > 3 << 20, "{reserve} bytes of reserve after life {life}");
    }
    let keys = store.keyspace();
    let mut expected = keys_of(&keys);
    let many: Vec<_> = expected.keys().cloned().enumerate().collect();
    for (_, key) in many.iter().filter(|(n, _)| n % 5 < 3) {
        drop(keys.delete(key).unwrap());
        expected.remove(key);
    }
    store.sync().unwrap();
    assert!(store.compact().unwrap().segments >= 2);
    check_keys(&keys, &expected, "cleaned in the tenth life");
    put(&keys, 0..300, 2, LEN);
    store.sync().unwrap();
    store.close().unwrap();
}

/// Bug: cleaning in the background started only when more than a segment was dead beyond what was
/// live, also on a full disk, where nothing more could die.
#[test]
fn a_refused_put_gets_the_space_of_dead_records() {
    let (_sim_env, store, expected) = filled(7 << 20, 7 << 18, true, |n| n % 100 < 48);
    let keys = store.keyspace();
    let start = Instant::now();
    let mut accepted = 0;
    while store.stats().reclaimed.segments == 0 || accepted < 10 {
        match keys.put("more", vec![1; 4000]) {
            Ok(_) if store.stats().reclaimed.segments > 0 => accepted += 1,
            Ok(_) => store.sync().unwrap(),
            refused => assert!(is_full(&refused), "{refused:?}"),
        }
        assert!(start.elapsed() < Duration::from_secs(180), "no space was freed");
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(keys.delete("more").unwrap());
    check_keys(&keys, &expected, "cleaned");
    store.close().unwrap();
}

/// Bug: after a pass that freed nothing, a delete of a range did not count as a change, and no
/// refused put started another pass.
#[test]
fn a_delete_of_a_range_lets_a_refused_put_start_cleaning_again() {
    let (_sim_env, store) = open_large(7 << 20, |options| options.clean = true);
    let keys = store.keyspace();
    let put = |n: u32| keys.put([&[(n % 100) as u8][..], &n.to_be_bytes()].concat(), [7; 2000]);
    for n in 0.. {
        if put(n).is_err() {
            break;
        }
        if n % 64 == 0 {
            store.sync().unwrap();
        }
    }
    store.sync().unwrap();
    // All is live. The first of these starts a pass, and the others find that it freed nothing.
    for _ in 0..200 {
        assert!(is_full(&keys.put("large", vec![7; 100_000])));
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(store.stats().reclaimed.segments, 0);
    // More than half of each segment, but not a segment more than what is left.
    drop(keys.delete_range([46]..).unwrap());
    store.sync().unwrap();
    let start = Instant::now();
    while store.stats().reclaimed.segments == 0 {
        assert!(start.elapsed() < Duration::from_secs(180), "no space was freed");
        drop(keys.put("large", vec![7; 100_000]));
        std::thread::sleep(Duration::from_millis(1));
    }
    store.close().unwrap();
}

/// Bug: under `Batch(n)` the log committed each few copies of small records in a block of their
/// own. So they did not fit in the reserve, and cleaning never ended: most of what it wrote was
/// padding, which it took for garbage.
#[test]
fn copies_are_not_committed_in_small_batches() {
    let batches_of_8 = Policy::Batch(NonZeroU64::new(8).unwrap());
    let (sim_env, store) = open_large(7 << 20, |options| options.log.policy = batches_of_8);
    let store = Arc::new(store);
    let keys = store.keyspace();
    let key = |n: u32| [&[(n % 10) as u8][..], &n.to_be_bytes()].concat();
    // First without padding, in large batches.
    let mut last = 0;
    loop {
        let mut batch = Batch::new();
        (last..last + 500).for_each(|n| batch.put(&keys, key(n), value(n, 1, 100)).unwrap());
        if store.write(&batch).is_err() {
            break;
        }
        last += 500;
    }
    store.sync().unwrap();
    // Of each segment.
    drop(keys.delete_range([4]..).unwrap());
    store.sync().unwrap();
    let compacted = compact(&store);
    assert!(compacted.segments > 2, "{compacted:?}");
    assert_eq!(compact(&store).segments, 0);
    sim_env.disk.set_capacity(None);
    drop(keys.delete_range([1]..).unwrap());
    let compacted = compact(&store);
    assert!(compacted.segments > 0, "{compacted:?}");
    assert_eq!(compact(&store).segments, 0);
    let live = u64::from(last) / 10;
    assert_eq!(keys.len(), live);
    // A record takes at most 152 bytes.
    assert!(store.stats().disk_bytes < 2 * 152 * live + (2 << 20), "{:?}", store.stats());
    store.close().unwrap();
}

/// Fails if it takes longer than twenty seconds.
fn compact(store: &Arc<Store>) -> Reclaimed {
    let (sender, receiver) = std::sync::mpsc::channel();
    let store = Arc::clone(store);
    std::thread::spawn(move || sender.send(store.compact()));
    receiver.recv_timeout(Duration::from_secs(180)).unwrap().unwrap()
}

/// Guards: a pass that uses up the reserve and frees nothing.
#[test]
fn cleaning_that_does_not_fit_in_the_reserve_leaves_it_whole() {
    let (sim_env, store, mut expected) = filled(7 << 20, 128 << 10, true, |n| n % 100 < 48);
    let keys = store.keyspace();
    // Less free space than a segment takes is left for the reserve.
    while keys.put("more", vec![1; 4000]).is_ok() {
        store.sync().unwrap();
    }
    for _ in 0..20 {
        assert!(is_full(&keys.put("more", vec![1; 4000])));
        assert!(is_full(&store.compact()));
    }
    let victims: Vec<_> = expected.keys().take(100).cloned().collect();
    for key in victims {
        drop(keys.delete(&key).unwrap());
        expected.remove(&key);
    }
    drop(keys.delete("more").unwrap());
    store.sync().unwrap();
    check_keys(&keys, &expected, "not cleaned");
    sim_env.disk.set_capacity(None);
    assert!(store.compact().unwrap().segments >= 2);
    check_keys(&keys, &expected, "with room");
    store.close().unwrap();
}

thread_local! {
    /// Whether this thread is in the hook of [`deleting_disk`].
    static DELETES: Cell<bool> = const { Cell::new(false) };
}

/// Keys to delete, with their keyspace.
type Victims = Arc<Mutex<Option<(Keyspace, VecDeque<u32>)>>>;

/// A disk that deletes four of these keys before each read of a segment. It waits for each delete
/// until it is durable.
fn deleting_disk(disk: Arc<dyn Disk>, victims: &Victims) -> Arc<dyn Disk> {
    let victims = Arc::clone(victims);
    let hook = move |call: &Call<'_>| {
        let is_segment = call.path.extension().is_some_and(|extension| extension == "seg");
        if call.op == Op::Read && is_segment && !DELETES.replace(true) {
            for _ in 0..4 {
                let mut victims = victims.lock().unwrap();
                let next = victims
                    .as_mut()
                    .and_then(|(keys, left)| Some((keys.clone(), left.pop_front()?)));
                drop(victims);
                if let Some((keys, n)) = next {
                    keys.delete(n.to_be_bytes()).unwrap().blocking_wait().unwrap();
                }
            }
            DELETES.set(false);
        }
        Ok(())
    };
    Arc::new(HookedDisk::new(disk, hook))
}

/// Bug: once the copies of a pass had taken a quarter of the reserve, deletes were refused until it
/// dropped a segment.
#[test]
fn deletes_that_are_awaited_while_a_full_disk_is_cleaned_survive() {
    for power in [None, Some(Persist::Nothing)] {
        let victims = Victims::default();
        let (sim_env, store) = open_large(7 << 20, |options| {
            options.log.disk = deleting_disk(Arc::clone(&options.log.disk), &victims);
        });
        let keys = store.keyspace();
        let last = fill_disk(&store);
        let kept = |n: &u32| n % 100 < 48;
        for n in (0..last).filter(|n| !kept(n)) {
            drop(keys.delete(n.to_be_bytes()).unwrap());
        }
        store.sync().unwrap();
        let mut expected = model((0..last).filter(kept), 1, LEN);
        // From all over the store: of what was copied, what is about to be, and the rest.
        let some = (0..last).map(|n| n * 277 % last).filter(kept);
        let some: VecDeque<u32> = some.filter(|n| n % 20 == 7).collect();
        *victims.lock().unwrap() = Some((keys.clone(), some.clone()));
        let done = store.compact().unwrap();
        let (_, left) = victims.lock().unwrap().take().unwrap();
        assert!(done.segments >= 3 && done.records_copied > 100, "{done:?}");
        let deleted = some.len() - left.len();
        assert!(deleted >= 20, "{deleted} deletes");
        for n in some.iter().take(deleted) {
            expected.remove(&n.to_be_bytes()[..]);
        }
        check_keys(&keys, &expected, "cleaned");
        drop(keys);
        let sim_env = sim_env.end(store, power);
        let store = sim_env.open();
        check_keys(&store.keyspace(), &expected, "opened again");
        store.close().unwrap();
    }
}

/// Guards: a failed pass that uses up the reserve, so that no later one frees space.
#[test]
fn a_pass_that_fails_on_a_full_disk_loses_nothing_and_a_later_one_frees_space() {
    let reads_fail = |after| Fault::on(Op::Read, Effect::Io).path(".seg").after(after);
    let no_room = Fault::on(Op::Size, Effect::NoSpace).path("reserve.");
    for (cause, fault, copies, freed) in [
        ("the first read fails", reads_fail(0), false, 0),
        ("a read fails after some copies", reads_fail(1), true, 0),
        // The first pass copies into what was made a segment already.
        ("the second pass gets no space for its copies", no_room, true, 1),
    ] {
        for crash in [None, Some(None), Some(Some(Persist::Nothing)), Some(Some(Persist::Random))] {
            let case = format!("{cause}, then {crash:?}");
            let (sim_env, store, mut expected) = filled(7 << 20, 7 << 18, false, |n| n % 100 < 36);
            let before = store.accepted();
            sim_env.disk.inject(fault.clone());
            let failed = store.compact();
            assert_eq!(failed.is_err(), freed == 0, "{case}: {failed:?}");
            assert!(sim_env.disk.stats().faults > 0, "{case}");
            sim_env.disk.clear_faults();
            assert_eq!(store.stats().reclaimed.segments, freed, "{case}");
            assert_eq!(store.accepted() > before, copies, "{case}: {before}");
            check_keys(&store.keyspace(), &expected, &case);
            let (store, sim_env) = match crash {
                None => (store, sim_env),
                Some(power) => {
                    let sim_env = sim_env.end(store, power);
                    (open_again(&sim_env, |_| {}), sim_env)
                }
            };
            let keys = store.keyspace();
            check_keys(&keys, &expected, &case);
            // Puts are refused if there is no space. Deletes succeed.
            match keys.put("large", vec![7; 100_000]) {
                Ok(_) => drop(expected.insert(b"large".to_vec(), vec![7; 100_000])),
                refused => assert!(is_full(&refused), "{case}: {refused:?}"),
            }
            let victim = expected.keys().next().unwrap().clone();
            keys.delete(&victim).unwrap().blocking_wait().unwrap();
            expected.remove(&victim);
            let done = store.compact().unwrap();
            assert!(done.segments > 0, "{case}: {done:?}");
            put(&keys, 5000..5100, 2, LEN);
            store.sync().unwrap();
            expected.extend(model(5000..5100, 2, LEN));
            check_keys(&keys, &expected, &case);
            drop(keys);
            let sim_env = sim_env.end(store, Some(Persist::Nothing));
            let store = open_again(&sim_env, |_| {});
            check_keys(&store.keyspace(), &expected, &case);
            store.close().unwrap();
        }
    }
}

/// How a store that is full ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    Cleaned,
    Closed,
    Killed,
}

/// Guards: deletes without an end that use up the space that cleaning needs.
#[test]
fn deletes_on_a_full_disk_leave_the_space_that_cleaning_and_closing_need() {
    for then in [Then::Cleaned, Then::Closed, Then::Killed] {
        for ranges in [false, true] {
            use_up_the_reserve(then, ranges);
        }
    }
}

fn use_up_the_reserve(then: Then, ranges: bool) {
    let sim_env = SimEnv::new();
    sim_env.disk.set_capacity(Some(4 << 20));
    let store = sim_env.open();
    let keys = store.keyspace();
    let last = fill_disk(&store);
    let mut expected = model(0..last, 1, LEN);
    // Not all of a segment, so that cleaning has to copy.
    let mut victims = (0..last).filter(|n| n % 10 > 0);
    if ranges {
        for n in victims.by_ref().take(500) {
            drop(keys.delete(n.to_be_bytes()).unwrap());
            expected.remove(&n.to_be_bytes()[..]);
        }
        store.sync().unwrap();
    }
    // Each takes a block.
    let refused = loop {
        let n = victims.next().filter(|_| !ranges);
        let deleted = match n {
            Some(n) => keys.delete(n.to_be_bytes()),
            None => keys.delete_range(&b"z"[..]..&b"zz"[..]),
        };
        match wait(deleted) {
            Ok(_) => drop(n.map(|n| expected.remove(&n.to_be_bytes()[..]))),
            refused => break refused,
        }
    };
    assert!(is_full(&refused), "{refused:?}");
    let mut sim_env = sim_env;
    let mut open = Some((store, keys));
    if then != Then::Cleaned {
        let (store, keys) = open.take().unwrap();
        if then == Then::Killed {
            drop(keys);
            sim_env = sim_env.end(store, None);
        } else {
            store.close().unwrap();
            drop((store, keys));
            sim_env.engine.run();
        }
    }
    let (store, keys) = open.unwrap_or_else(|| {
        let store = sim_env.open();
        let keys = store.keyspace();
        (store, keys)
    });
    let case = format!("{then:?}, ranges: {ranges}");
    check_keys(&keys, &expected, &case);
    let done = store.compact().unwrap();
    assert!(done.segments > 0, "{case}: {done:?}");
    if ranges {
        // Much was deleted before.
        put(&keys, last..last + 10, 1, LEN);
        store.sync().unwrap();
        expected.extend(model(last..last + 10, 1, LEN));
    }
    check_keys(&keys, &expected, &case);
    store.close().unwrap();
}

/// Guards: deletes that use up the space that opening needs.
#[test]
fn a_store_that_fills_its_disk_alone_opens_after_every_kill() {
    for power in [None, Some(Persist::Random), Some(Persist::Nothing)] {
        for clean in [false, true] {
            let mut sim_env = SimEnv::new();
            sim_env.disk.set_capacity(Some(4 << 20));
            let mut expected = Keys::new();
            for life in 0..30 {
                let case = format!("{power:?}, cleans: {clean}, life {life}");
                let opened = sim_env.try_open();
                let store = opened.unwrap_or_else(|error| panic!("{case}: {error}"));
                let keys = store.keyspace();
                check_keys(&keys, &expected, &case);
                use_the_disk(&store, life, &mut expected);
                if clean && life % 3 == 0 {
                    // It may need more space than there is.
                    let cleaned = store.compact();
                    assert!(cleaned.is_ok() || is_full(&cleaned), "{case}: {cleaned:?}");
                }
                drop(keys);
                sim_env = sim_env.end(store, power);
            }
        }
    }
}

/// Puts keys until the disk is full, and deletes some until that is refused, too. All that is
/// accepted is durable.
fn use_the_disk(store: &Store, life: u32, model: &mut Keys) {
    let keys = store.keyspace();
    for n in 0..3000u32 {
        let n = n * 7 % 3000;
        let put = keys.put(n.to_be_bytes(), value(n, life, LEN));
        match wait(put) {
            Ok(_) => drop(model.insert(n.to_be_bytes().to_vec(), value(n, life, LEN))),
            refused => {
                assert!(is_full(&refused), "{refused:?}");
                break;
            }
        }
    }
    let victims: Vec<_> = model.keys().skip(life as usize % 5).step_by(5).cloned().collect();
    for key in victims {
        match wait(keys.delete(&key)) {
            Ok(_) => drop(model.remove(&key)),
            refused => {
                assert!(is_full(&refused), "{refused:?}");
                break;
            }
        }
    }
}
