//! Backups of a manager, as of one moment.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use esker_consensus::{
    BackupError, COPY_COMPONENT, ConsensusLog, LogGuard, LogManager, LogManagerBuilder, Mode,
    OpenError, Reclaimed, Slot, SnapshotError, StorageError, UNFINISHED_BACKUP, backup_log,
    logs_on,
};
use esker_disk::sim::{CutPoint, Effect, Fault, Gate, Persist, SimDisk};
use esker_disk::{Disk, Op};
use esker_log::{Engine, ReadOptions};
use esker_testkit::{Call, HookedDisk};

use crate::fixture::{HIGH, LOW, value};
use crate::manager::{
    DIR, Managed, accept, commit, committed, key, on_real_disk, open, options, value_of,
};

const COPY: &str = "/copy";
/// The slots of each log in [`filled`].
const SLOTS: u64 = 40;
/// The slot of the snapshot that the log of the first key has.
const AT: u64 = 24;

/// Three logs with entries, of which two are open, and a key whose log has none.
fn filled(disk: &SimDisk) -> Managed {
    let managed = open(disk, 2);
    for number in [2, 0, 1] {
        let log = managed.manager.get(key(number)).unwrap();
        for slot in 0..SLOTS {
            accept(&log, slot).unwrap();
            if slot % 4 != 3 || slot < 30 {
                commit(&log, slot).unwrap();
            }
        }
        if number == 0 {
            log.snapshots().create(Slot(AT - 5), &b"older"[..]).unwrap();
            log.snapshots().create(Slot(AT), &b"the state"[..]).unwrap();
            log.snapshots().truncate_through(Slot(AT)).unwrap();
            log.app_state().set(b"term 3").unwrap().blocking_wait().unwrap();
            log.promise(HIGH, Slot(SLOTS)).unwrap().blocking_wait().unwrap();
        }
    }
    drop(managed.manager.get(b"\0empty").unwrap());
    managed
}

/// The copy, opened as a manager of its own.
fn copy_of(disk: &SimDisk) -> Result<(LogManager, Engine), OpenError> {
    opened(disk, |builder| builder)
}

/// The copy, with a new number of its node.
fn renumbered(disk: &SimDisk) -> (LogManager, Engine) {
    opened(disk, LogManagerBuilder::renumber).unwrap()
}

fn opened(
    disk: &SimDisk,
    change: impl FnOnce(LogManagerBuilder) -> LogManagerBuilder,
) -> Result<(LogManager, Engine), OpenError> {
    let (options, engine) = options(disk);
    let opened = change(LogManager::builder(COPY).options(options).must_exist(true)).open();
    match opened {
        Ok(manager) => Ok((manager, engine)),
        Err(error) => {
            engine.stop();
            Err(error)
        }
    }
}

/// Compares every entry with that of [`filled`].
fn check(manager: &LogManager) {
    let keys: Vec<Vec<u8>> = vec![b"\0empty".to_vec(), key(0), key(1), key(2)];
    assert_eq!(manager.keys().unwrap(), keys);
    for number in 0..3 {
        let log = manager.get(key(number)).unwrap();
        assert_eq!(log.options().label, key(number));
        let first = if number == 0 { AT + 1 } else { 0 };
        assert_eq!(log.floor(), first.checked_sub(1).map(Slot));
        for slot in first..SLOTS {
            let guard = log.pin();
            let entry = log.read(Slot(slot), &guard).unwrap();
            assert_eq!((entry.value(), entry.ballot()), (&*value_of(log.key(), slot), LOW));
            assert_eq!(entry.is_committed(), slot % 4 != 3 || slot < 30, "{number}: {slot}");
        }
    }
    let first = manager.get(key(0)).unwrap();
    assert_eq!((first.promised(), &*first.app_state().get()), (Some(HIGH), &b"term 3"[..]));
    assert_eq!(first.snapshots().list().unwrap(), [Slot(AT - 5), Slot(AT)]);
    let mut state = String::new();
    first.snapshots().latest().unwrap().read_to_string(&mut state).unwrap();
    assert_eq!(state, "the state");
    assert!(manager.get(b"\0empty").unwrap().last_slot().is_none());
}

/// Open logs, those that are not, one that was truncated under a snapshot, and an empty one.
#[test]
fn a_backup_has_every_log_and_its_snapshots() {
    let managed = filled(&SimDisk::new(1));
    let done = managed.manager.backup(COPY).unwrap();
    assert_eq!((done.logs, done.snapshots, done.skipped.len()), (4, 2, 0));
    assert!(done.records > 3 * SLOTS, "{done:?}");
    check(&managed.manager);
    let refused = managed.manager.backup(COPY);
    assert!(matches!(refused, Err(BackupError::NotEmpty { .. })), "{refused:?}");
    // The label is there before the first opening: a lost registry is made again from them.
    for log in logs_on(Arc::new(managed.disk.clone()), COPY).unwrap().unwrap() {
        let options = ReadOptions::on(Arc::new(managed.disk.clone()));
        let metadata =
            esker_log::component::app_metadata(&log.dir, COPY_COMPONENT, options).unwrap().unwrap();
        assert_eq!(metadata[8..], log.key);
    }
    let (copy, engine) = copy_of(&managed.disk).unwrap();
    check(&copy);
    copy.close_all().unwrap();
    engine.stop();
    // It continues by itself.
    let (copy, engine) = renumbered(&managed.disk);
    check(&copy);
    accept(&copy.get(key(1)).unwrap(), SLOTS).unwrap();
    copy.close_all().unwrap();
    managed.manager.close_all().unwrap();
    assert!(matches!(
        managed.manager.backup("/other"),
        Err(BackupError::Storage(StorageError::Closed))
    ));
    engine.stop();
}

/// After a power cut, what its last records are, only an opening can decide.
#[test]
fn a_log_that_was_not_closed_is_recovered_first() {
    let disk = SimDisk::new(1);
    let died = filled(&disk);
    let log = died.manager.get("late").unwrap();
    accept(&log, 0).unwrap();
    // The page that tells readers how far the log is durable is lost.
    disk.power_cut(Persist::Nothing);
    drop((log, died));
    disk.power_on();
    let managed = open(&disk, 2);
    managed.manager.backup(COPY).unwrap();
    let (copy, engine) = renumbered(&disk);
    let log = copy.get("late").unwrap();
    commit(&log, 0).unwrap();
    assert_eq!(committed(&log, 0), value_of(b"late", 0));
    drop(log);
    assert!(copy.remove("late").unwrap());
    check(&copy);
    engine.stop();
}

/// A newest snapshot that is not whole is reported, and the one before it is copied.
#[test]
fn a_corrupt_snapshot_is_not_copied() {
    let managed = filled(&SimDisk::new(1));
    let dir = managed.disk.open_dir(Path::new(DIR)).unwrap();
    for name in dir.list().unwrap().into_iter().filter(|name| name != "registry") {
        let path = Path::new(DIR).join(name).join(format!("snapshot-{AT:020}"));
        if managed.disk.contents(&path).is_ok() {
            managed.disk.flip_bit(&path, 8 * 4140).unwrap();
        }
    }
    let done = managed.manager.backup(COPY).unwrap();
    assert_eq!(done.snapshots, 1);
    let [(found, SnapshotError::CorruptedSnapshot { slot: Slot(AT), .. })] = &done.skipped[..]
    else {
        panic!("{:?}", done.skipped);
    };
    assert_eq!(*found, key(0));
    let (copy, engine) = copy_of(&managed.disk).unwrap();
    let first = copy.get(key(0)).unwrap();
    assert_eq!(first.snapshots().list().unwrap(), [Slot(AT - 5)]);
    engine.stop();
}

/// A full disk, and a log that cannot be read: the files of the copy are removed, and the next
/// backup takes its place.
#[test]
fn a_backup_that_fails_leaves_no_files() {
    let managed = filled(&SimDisk::new(1));
    let used = managed.disk.used();
    for room in [0, 300 << 10, 900 << 10] {
        managed.disk.set_capacity(Some(used + room));
        let refused = managed.manager.backup(COPY);
        assert!(
            matches!(&refused, Err(BackupError::Storage(StorageError::Log(cause))) if cause.is_no_space()),
            "{refused:?}"
        );
        managed.disk.set_capacity(None);
        assert_eq!(managed.disk.used(), used, "{room}");
        assert!(copy_of(&managed.disk).is_err());
        assert_eq!(managed.disk.files(Path::new(COPY)).unwrap_or_default(), [""; 0]);
    }
    let segment = Fault::on(Op::Read, Effect::Io).path(".seg");
    managed.disk.inject(segment);
    assert!(managed.manager.backup(COPY).is_err());
    managed.disk.clear_faults();
    assert_eq!(managed.disk.used(), used);
    managed.manager.backup(COPY).unwrap();
    let (copy, engine) = copy_of(&managed.disk).unwrap();
    check(&copy);
    engine.stop();
}

/// The source is as before, and the copy is whole or is no manager.
#[test]
fn a_cut_at_any_call_leaves_a_whole_copy_or_none() {
    let base = SimDisk::new(1);
    filled(&base).manager.close_all().unwrap();
    let all = [Persist::Random, Persist::Nothing, Persist::Torn, Persist::Everything];
    let (mut whole, mut unfinished) = (0, 0);
    for cut in (0..).step_by(3) {
        let disk = base.fork(cut);
        let managed = open(&disk, 2);
        let how = all[(cut / 3 % 4) as usize];
        disk.cut_power_at(CutPoint::During(disk.operations() + cut), how);
        let done = managed.manager.backup(COPY).is_ok();
        let is_over = done && disk.is_on();
        drop(managed);
        disk.cancel_cut();
        disk.power_on();
        match copy_of(&disk) {
            Ok((copy, engine)) => {
                check(&copy);
                copy.close_all().unwrap();
                engine.stop();
                whole += 1;
            }
            Err(error) => {
                assert!(!done, "cut {cut}: it was durable: {error}");
                let listed = logs_on(Arc::new(disk.clone()), COPY);
                let is_named = matches!(error, OpenError::UnfinishedBackup { .. });
                assert_eq!(is_named, matches!(listed, Err(OpenError::UnfinishedBackup { .. })));
                unfinished += u32::from(is_named);
            }
        }
        let managed = open(&disk, 2);
        check(&managed.manager);
        if is_over {
            assert!(cut > 100, "{cut}");
            break;
        }
    }
    assert!(whole > 1 && unfinished > 20, "{whole} {unfinished}");
}

/// While a backup runs, no log drops segments or snapshots, and none is removed.
#[test]
fn nothing_is_dropped_while_a_backup_runs() {
    let managed = filled(&SimDisk::new(1));
    let log = managed.manager.get(key(0)).unwrap();
    for slot in SLOTS..SLOTS + 300 {
        log.learn(Slot(slot), HIGH, &value(slot)).unwrap().blocking_wait().unwrap();
    }
    let gate = Gate::new();
    managed.disk.inject(Fault::on(Op::Open, Effect::Block(gate.clone())).path(COPY).times(1));
    let removed = AtomicBool::new(false);
    let done = std::thread::scope(|scope| {
        let backup = scope.spawn(|| managed.manager.backup(COPY));
        let opening = Opening(gate.clone());
        assert!(gate.wait_for(1, Duration::from_secs(60)));
        for slot in 30..SLOTS {
            log.learn(Slot(slot), HIGH, &value_of(log.key(), slot))
                .unwrap()
                .blocking_wait()
                .unwrap();
        }
        let last = SLOTS + 299;
        log.snapshots().create(Slot(last), &b"newer"[..]).unwrap();
        assert!(log.snapshots().keep(1).unwrap().is_empty());
        log.snapshots().truncate_through(Slot(last)).unwrap();
        assert_eq!(log.maintenance().reclaim().unwrap(), Reclaimed::default());
        let remover = scope.spawn(|| {
            assert!(managed.manager.remove(key(2)).unwrap());
            removed.store(true, SeqCst);
        });
        // It waits, or has not begun.
        std::thread::sleep(Duration::from_millis(20));
        assert!(!removed.load(SeqCst));
        drop(opening);
        let done = backup.join().unwrap().unwrap();
        remover.join().unwrap();
        done
    });
    assert_eq!(done.snapshots, 2);
    assert!(log.maintenance().reclaim().unwrap().segments > 0);
    assert_eq!(log.snapshots().keep(1).unwrap(), [Slot(AT - 5), Slot(AT)]);
    let (copy, engine) = copy_of(&managed.disk).unwrap();
    let first = copy.get(key(0)).unwrap();
    assert_eq!((first.floor(), first.last_slot()), (Some(Slot(AT)), Some(Slot(SLOTS + 299))));
    // What came after that moment is not in the copy.
    assert!(!first.read(Slot(31), &first.pin()).unwrap().is_committed());
    assert!(copy.has(key(2)).unwrap() && !managed.manager.has(key(2)).unwrap());
    engine.stop();
}

/// Opens a gate, also when a test fails: its threads end then.
struct Opening(Gate);

impl Drop for Opening {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// Ends the threads of a test, also of one that fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

const PAIRS: u64 = 4;
/// The most slots that a thread writes in a round: a log keeps all its segments open.
const ROUND_SLOTS: u64 = 1000;

/// Each thread writes to the second log only what the first one has durably. So do all backups.
fn pairs(max_open: usize, idle: u64, rounds: u32) {
    let place = tempfile::tempdir().unwrap();
    let manager = on_real_disk(&place.path().join("logs"), max_open);
    for number in 0..idle {
        accept(&manager.get(format!("j/{number}")).unwrap(), 0).unwrap();
    }
    let (over, round_count) = (AtomicBool::new(false), AtomicU64::new(0));
    let in_log = |manager: &LogManager, key: &str| {
        // A copy takes no new key, and one of the first moments lacks some.
        if !manager.has(key).unwrap() {
            return 0;
        }
        let log: LogGuard = manager.get(key).unwrap();
        log.last_slot().map_or(0, |slot| slot.0 + 1)
    };
    std::thread::scope(|scope| {
        let end = End(&over);
        for pair in 0..PAIRS {
            let (manager, over, round_count) = (&manager, &over, &round_count);
            scope.spawn(move || {
                for slot in 0.. {
                    // The first of a backup's logs, and the last.
                    for log in [format!("a/{pair}"), format!("z/{pair}")] {
                        let log = manager.get(log).unwrap();
                        log.learn(Slot(slot), LOW, b"").unwrap().blocking_wait().unwrap();
                    }
                    let is_ahead = || slot >= (round_count.load(SeqCst) + 1) * ROUND_SLOTS;
                    while !over.load(SeqCst) && is_ahead() {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    if over.load(SeqCst) {
                        break;
                    }
                }
            });
        }
        for round in 0..rounds {
            let least = in_log(&manager, "z/0");
            let dest = place.path().join(format!("copy-{round}"));
            manager.backup(&dest).unwrap();
            let copy = on_real_disk(&dest, 4);
            for pair in 0..PAIRS {
                let counts = ["a", "z"].map(|log| in_log(&copy, &format!("{log}/{pair}")));
                let [first, second] = counts;
                assert!(first == second || first == second + 1, "round {round}: {counts:?}");
                assert!(pair > 0 || second >= least, "round {round}: {second} of {least}");
            }
            copy.close_all().unwrap();
            round_count.fetch_add(1, SeqCst);
        }
        drop(end);
    });
    manager.close_all().unwrap();
}

#[test]
fn a_backup_of_open_logs_is_of_one_moment() {
    pairs(16, 4, 4);
}

/// Logs are opened and closed all the time.
#[test]
fn a_backup_of_logs_that_make_room_is_of_one_moment() {
    pairs(1, 12, 3);
}

/// A single log, which is closed, open, or left by a crash.
#[test]
fn a_single_log_is_copied() {
    let disk = SimDisk::new(1);
    let managed = filled(&disk);
    let logs = logs_on(Arc::new(disk.clone()), DIR).unwrap().unwrap();
    let name = &logs.iter().find(|log| log.key == key(0)).unwrap().dir;
    let (mut options, engine) = options(&disk);
    options.log.disk = Arc::new(disk.process());
    let beside = backup_log(name, "/beside", &options).unwrap();
    managed.manager.close_all().unwrap();
    let closed = backup_log(name, "/closed", &options).unwrap();
    assert_eq!((beside.logs, beside.records > 0), (1, true));
    assert!(closed.records >= beside.records);
    let refused = backup_log(name, "/closed", &options);
    assert!(matches!(refused, Err(BackupError::NotEmpty { .. })), "{refused:?}");
    let [first, second] = ["/beside", "/closed"]
        .map(|dir| esker_consensus::inspect_on(Arc::clone(&options.log.disk), dir).unwrap());
    assert_eq!((first.frontier, first.totals), (second.frontier, second.totals));
    engine.stop();
}

/// Another backup to the same directory, which ends or is interrupted while this one looks for its
/// moment. Bug: this one failed, and removed the other.
#[test]
fn a_backup_that_comes_second_removes_nothing() {
    for interrupted in [false, true] {
        let mut disk = SimDisk::new(1);
        filled(&disk).manager.close_all().unwrap();
        // It was made elsewhere, and gets its name while this one runs.
        let other = Path::new("/other");
        for cut in 1.. {
            let first = open(&disk, 2);
            if !interrupted {
                first.manager.backup(other).unwrap();
                break;
            }
            disk.cut_power_at(CutPoint::During(disk.operations() + 40 * cut), Persist::Everything);
            assert!(first.manager.backup(other).is_err());
            drop(first);
            disk.cancel_cut();
            disk.power_on();
            // A log was copied, and maybe a part of the next one.
            if disk.files(other).is_ok_and(|names| names.len() > 2) {
                break;
            }
            disk = SimDisk::new(1);
            filled(&disk).manager.close_all().unwrap();
        }
        let (source, is_moved) = (disk.clone(), Arc::new(AtomicBool::new(false)));
        let moved = Arc::clone(&is_moved);
        let hook = move |call: &Call<'_>| {
            let begins = call.op == Op::CreateDir && call.path == Path::new(COPY);
            if begins && !moved.swap(true, SeqCst) {
                let root = source.process();
                root.open_dir(Path::new("/")).unwrap().rename("other", "copy").unwrap();
            }
            Ok(())
        };
        let (mut options, engine) = options(&disk);
        options.log.disk = Arc::new(HookedDisk::new(Arc::new(disk.process()), hook));
        let manager = LogManager::builder(DIR).options(options).max_open(2).open().unwrap();
        let refused = manager.backup(COPY);
        assert!(is_moved.load(SeqCst));
        assert!(matches!(&refused, Err(BackupError::NotEmpty { .. })), "{refused:?}");
        manager.close_all().unwrap();
        engine.stop();
        match copy_of(&disk) {
            Ok((copy, engine)) if !interrupted => {
                check(&copy);
                engine.stop();
            }
            Err(OpenError::UnfinishedBackup { .. }) if interrupted => {}
            found => panic!("{interrupted} {:?}", found.map(drop)),
        }
    }
}

/// One operation below the copy fails, each in turn. Bug: where the last ones did, the logs were
/// removed, and a registry stayed that named them.
#[test]
fn a_backup_that_fails_anywhere_is_no_manager() {
    let base = SimDisk::new(1);
    filled(&base).manager.close_all().unwrap();
    let (mut failed, mut complete) = (0, 0);
    let ops = [Op::Open, Op::Write, Op::Size, Op::Sync, Op::SyncDir, Op::Rename, Op::Exchange];
    for (op, effect) in ops.into_iter().flat_map(|op| [(op, Effect::NoSpace), (op, Effect::Io)]) {
        for nth in 1.. {
            let disk = base.fork(nth);
            let managed = open(&disk, 2);
            let before = disk.stats().faults;
            disk.inject(Fault::on(op, effect.clone()).path(COPY).nth(nth));
            let done = managed.manager.backup(COPY);
            // Whether so many operations were made.
            let is_over = disk.stats().faults == before;
            disk.clear_faults();
            let _ = managed.manager.close_all();
            match (done, copy_of(&disk)) {
                (Ok(_), Ok((copy, engine))) => {
                    check(&copy);
                    engine.stop();
                    complete += 1;
                }
                (Err(_), Err(_)) => failed += 1,
                (done, copy) => panic!("{op} {nth}: {done:?}, {:?}", copy.map(drop)),
            }
            if is_over {
                break;
            }
        }
    }
    assert!(failed > 100 && complete > 10, "{failed} {complete}");
}

/// A backup that begins while another one to the same directory has no file in it yet. Bug: it
/// removed the other's registry, and both failed.
#[test]
fn two_backups_at_once_share_no_directory() {
    let disk = SimDisk::new(1);
    filled(&disk).manager.close_all().unwrap();
    let second: Arc<Mutex<Option<LogManager>>> = Arc::default();
    let (taken, refused) = (Arc::clone(&second), Arc::new(AtomicBool::new(false)));
    let seen = Arc::clone(&refused);
    let hook = move |call: &Call<'_>| {
        let begins = call.op == Op::CreateDir && call.path.ends_with("copy/registry");
        if let Some(second) = begins.then(|| taken.lock().unwrap().take()).flatten() {
            let done = second.backup(COPY);
            seen.store(matches!(done, Err(BackupError::NotEmpty { .. })), SeqCst);
            second.close_all().unwrap();
        }
        Ok(())
    };
    // Another manager, with a copy of what the first one has.
    let (of_second, engine) = options(&disk);
    let other = LogManager::builder("/others").options(of_second).open().unwrap();
    *second.lock().unwrap() = Some(other);
    let (mut of_first, first_engine) = options(&disk);
    of_first.log.disk = Arc::new(HookedDisk::new(Arc::new(disk.process()), hook));
    let first = LogManager::builder(DIR).options(of_first).max_open(2).open().unwrap();
    first.backup(COPY).unwrap();
    assert!(refused.load(SeqCst));
    first.close_all().unwrap();
    engine.stop();
    first_engine.stop();
    let (copy, engine) = copy_of(&disk).unwrap();
    check(&copy);
    engine.stop();
}

/// Too many open files, for instance, say nothing about a snapshot: it is not left out. Bug: the
/// backup succeeded without it.
#[test]
fn a_snapshot_that_cannot_be_opened_fails_the_backup() {
    let managed = filled(&SimDisk::new(1));
    managed.disk.inject(Fault::on(Op::Open, Effect::Io).path("snapshot-").nth(1));
    let refused = managed.manager.backup(COPY);
    assert!(
        matches!(&refused, Err(BackupError::Storage(StorageError::Log(esker_log::Error::Io(_))))),
        "{refused:?}"
    );
    managed.disk.clear_faults();
    assert_eq!(managed.manager.backup(COPY).unwrap().snapshots, 2);
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    OneLog,
    Interrupted,
    Many,
}

/// As `base`, with a backup of the log `/one` that the last power cut interrupted which can.
fn interrupted(base: &SimDisk, to: &str) -> SimDisk {
    let mut last = None;
    for cut in 1.. {
        let disk = base.fork(1);
        let (options, engine) = options(&disk);
        let at = CutPoint::During(disk.operations() + cut);
        disk.cut_power_at(at, Persist::Everything);
        let done = backup_log("/one", to, &options).is_ok();
        engine.stop();
        disk.cancel_cut();
        disk.power_on();
        if done {
            break;
        }
        let read = ReadOptions::on(Arc::new(disk.clone()));
        if esker_log::component::identify(to, read).ok().flatten() == Some(UNFINISHED_BACKUP) {
            last = Some(disk);
        }
    }
    last.unwrap()
}

/// A backup that ended after the directory was found empty. Bug: a log and a manager shared it.
#[test]
fn a_backup_refuses_a_directory_that_filled_meanwhile() {
    for (first, second) in [
        (Kind::OneLog, Kind::OneLog),
        (Kind::Interrupted, Kind::OneLog),
        (Kind::Many, Kind::OneLog),
        (Kind::OneLog, Kind::Many),
        (Kind::Many, Kind::Many),
    ] {
        let mut disk = SimDisk::new(1);
        filled(&disk).manager.close_all().unwrap();
        let (mut own, mut engine) = options(&disk);
        let log = ConsensusLog::builder("/one").options(own.clone()).open().unwrap();
        (0..100).for_each(|slot| drop(log.learn(Slot(slot), LOW, &[7; 900]).unwrap()));
        log.close().unwrap();
        let other = "/other";
        match first {
            Kind::OneLog => drop(backup_log("/one", other, &own).unwrap()),
            Kind::Many => drop(open(&disk, 2).manager.backup(other).unwrap()),
            Kind::Interrupted => {
                engine.stop();
                disk = interrupted(&disk, other);
                (own, engine) = options(&disk);
            }
        }
        let before = disk.files(Path::new(other)).unwrap();
        let (source, is_moved) = (disk.clone(), Arc::new(AtomicBool::new(false)));
        let moved = Arc::clone(&is_moved);
        let hook = move |call: &Call<'_>| {
            if call.op == Op::CreateDir && call.path == Path::new(COPY) {
                moved.store(true, SeqCst);
                let root = source.process().open_dir(Path::new("/")).unwrap();
                root.rename("other", "copy").unwrap();
            }
            Ok(())
        };
        let mut hooked = own.clone();
        hooked.log.disk = Arc::new(HookedDisk::new(Arc::new(disk.process()), hook));
        let refused = if second == Kind::OneLog {
            backup_log("/one", COPY, &hooked).map(drop)
        } else {
            let manager = LogManager::builder(DIR).options(hooked).max_open(2).open().unwrap();
            manager.backup(COPY).map(drop)
        };
        assert!(is_moved.load(SeqCst));
        let is_used = matches!(&refused, Err(BackupError::NotEmpty { .. }));
        assert!(is_used, "{first:?} {second:?}: {refused:?}");
        // Nothing was removed; the tail of an interrupted copy was recovered.
        let after = disk.files(Path::new(COPY)).unwrap();
        assert!(after == before || first == Kind::Interrupted, "{first:?} {second:?}: {after:?}");
        let read = || ReadOptions::on(Arc::new(disk.clone()));
        let of_log = esker_log::component::identify(COPY, read()).unwrap();
        assert_eq!(of_log == Some(UNFINISHED_BACKUP), first == Kind::Interrupted);
        engine.stop();
    }
}

/// A single log, copied beside a writer that drops records meanwhile and is opened again. Bug: the
/// copy began after the dropped ones, ended before what was appended again in their place, and was
/// reported as complete. And one that came second removed the copy of the first.
#[test]
fn a_copy_of_one_log_is_whole_or_is_refused() {
    let disk = SimDisk::new(1);
    let (options, engine) = options(&disk);
    let log = ConsensusLog::builder("/one").options(options.clone()).open().unwrap();
    let learn = |log: &ConsensusLog, slot: u64| {
        log.learn(Slot(slot), LOW, &[7; 900]).unwrap().blocking_wait().unwrap();
    };
    // What is accepted and not committed stays alive.
    log.accept(Slot(500), LOW, b"alive").unwrap().blocking_wait().unwrap();
    (0..300).for_each(|slot| learn(&log, slot));
    let (writer, once) = (Mutex::new(Some(log)), AtomicBool::new(false));
    let again = options.clone();
    let hook = move |call: &Call<'_>| {
        let begins = call.op == Op::CreateDir && call.path == Path::new("/copy");
        if begins && !once.swap(true, SeqCst) {
            let mut writer = writer.lock().unwrap();
            let log = writer.take().unwrap();
            log.truncate_before(Slot(290)).unwrap().blocking_wait().unwrap();
            log.maintenance().reclaim().unwrap();
            log.close().unwrap();
            drop(log);
            *writer = Some(ConsensusLog::builder("/one").options(again.clone()).open().unwrap());
        }
        Ok(())
    };
    let mut hooked = options.clone();
    hooked.log.disk = Arc::new(HookedDisk::new(Arc::new(disk.process()), hook));
    let refused = backup_log("/one", "/copy", &hooked);
    assert!(
        matches!(
            &refused,
            Err(BackupError::Storage(StorageError::Log(esker_log::Error::Trimmed(_))))
        ),
        "{refused:?}"
    );
    assert_eq!(disk.files(Path::new("/copy")).unwrap_or_default(), [""; 0]);
    let done = backup_log("/one", "/copy", &hooked).unwrap();
    assert_eq!(done.logs, 1);
    let copy = ConsensusLog::builder("/copy").options(options.clone()).open().unwrap();
    assert_eq!(copy.read(Slot(500), &copy.pin()).unwrap().value(), b"alive");
    assert_eq!(copy.frontier(), Some(Slot(299)));
    copy.close().unwrap();
    let refused = backup_log("/one", "/copy", &hooked);
    assert!(matches!(&refused, Err(BackupError::NotEmpty { .. })), "{refused:?}");
    engine.stop();
}

/// In volatile mode, what is only in memory is in the copy, whether its log is open or not.
#[test]
fn a_volatile_value_is_copied_from_an_open_log() {
    let disk = SimDisk::new(1);
    let (mut options, engine) = options(&disk);
    options.mode = Mode::Volatile;
    let manager = LogManager::builder(DIR).options(options).open().unwrap();
    let log = manager.get("a").unwrap();
    log.accept(Slot(3), HIGH, b"only here").unwrap().blocking_wait().unwrap();
    manager.backup(COPY).unwrap();
    let (copy, driver) = copy_of(&disk).unwrap();
    let copied = copy.get("a").unwrap();
    assert_eq!(copied.read(Slot(3), &copied.pin()).unwrap().value(), b"only here");
    assert_eq!(copied.promised(), Some(HIGH));
    drop(copied);
    copy.close_all().unwrap();
    driver.stop();
    engine.stop();
}

/// A snapshot that is published, and truncated under, while the moment is looked for. Bug: the copy
/// had the new floor, and no snapshot that covers it.
#[test]
fn a_snapshot_that_covers_the_floor_of_the_moment_is_copied() {
    let disk = SimDisk::new(1);
    filled(&disk).manager.close_all().unwrap();
    let (log, armed) = (Arc::new(Mutex::new(None::<LogGuard>)), Arc::new(AtomicBool::new(false)));
    let (taken, is_armed) = (Arc::clone(&log), Arc::clone(&armed));
    let all = logs_on(Arc::new(disk.clone()), DIR).unwrap().unwrap();
    let next = all.into_iter().find(|log| log.key == key(1)).unwrap().dir;
    let hook = move |call: &Call<'_>| {
        // The next log is looked at, after this one's snapshots were listed.
        if call.op == Op::List
            && call.path == next
            && is_armed.load(SeqCst)
            && let Some(log) = taken.lock().unwrap().take()
        {
            log.snapshots().create(Slot(29), &b"newer"[..]).unwrap();
            log.snapshots().truncate_through(Slot(29)).unwrap();
        }
        Ok(())
    };
    let (mut options, engine) = options(&disk);
    options.log.disk = Arc::new(HookedDisk::new(Arc::new(disk.process()), hook));
    let manager = LogManager::builder(DIR).options(options).max_open(4).open().unwrap();
    let others = [key(1), key(2)].map(|key| manager.get(key).unwrap());
    *log.lock().unwrap() = Some(manager.get(key(0)).unwrap());
    armed.store(true, SeqCst);
    manager.backup(COPY).unwrap();
    assert!(log.lock().unwrap().is_none(), "the hook did not run");
    drop(others);
    let (copy, driver) = copy_of(&disk).unwrap();
    let copied = copy.get(key(0)).unwrap();
    let mut state = Vec::new();
    let restored = copied
        .snapshots()
        .restore::<Box<dyn std::error::Error>>(
            |snapshot| Ok(snapshot.read_to_end(&mut state).map(drop)?),
            |_| Ok(()),
        )
        .unwrap();
    assert!(restored.snapshot >= copied.floor(), "{restored:?}");
    drop(copied);
    copy.close_all().unwrap();
    driver.stop();
    engine.stop();
}
