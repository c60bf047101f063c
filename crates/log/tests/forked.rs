//! A child that `fork` makes has a copy of each handle, and no part in the log: its calls fail with
//! `Forked`, it opens nothing, and what it drops or closes changes no file and releases no lock.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use std::cell::Cell;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use esker_disk::{Dir, DirDisk, Disk, Op, OpenMode, Refusal, StdDisk};
use esker_log::component::Purpose;
use esker_log::{
    Append, Engine, Error, Log, OpenError, Policy, Position, PriorShutdown, ReadOnlyLog,
    ReadOptions, Retention, Seq, Sink, Start,
};
use esker_testkit::{Call, HookedDisk, import, in_forked_child, polled_once};
use futures_util::StreamExt;

const PATIENCE: Duration = Duration::from_secs(180);

fn payloads(log: &Log) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut stream = log.stream(Start::Oldest).unwrap();
    while let Some(batch) = stream.try_next().unwrap() {
        all.extend(batch.iter().map(|record| record.payload.to_vec()));
    }
    all
}

#[track_caller]
fn forked<T>(what: &str, outcome: Result<T, impl Into<Error>>) {
    match outcome.err().map(Into::into) {
        Some(Error::Forked) => {}
        other => panic!("{what}: {other:?}"),
    }
}

/// `StdLock::drop` called `flock(LOCK_UN)` on the description that parent and child share. A second
/// process then opened the log for writing, both wrote at one position, and an acknowledged record
/// was gone.
#[test]
fn a_child_that_drops_a_log_leaves_the_lock_to_its_parent() {
    let workdir = tempfile::tempdir().unwrap();
    let dir = workdir.path().join("log");
    let log = Cell::new(Some(Log::open(&dir).unwrap()));
    let with = |run: &dyn Fn(&Log)| {
        let taken = log.take().unwrap();
        run(&taken);
        log.set(Some(taken));
    };
    with(&|log| _ = log.append("before").unwrap().blocking_wait().unwrap());
    in_forked_child(|| drop(log.take())).unwrap();
    match Log::open(&dir) {
        Err(OpenError::Locked { pid, .. }) => assert_eq!(pid, Some(std::process::id())),
        other => panic!("the lock of a living writer is free: {other:?}"),
    }
    with(&|log| _ = log.append("after").unwrap().blocking_wait().unwrap());
    drop(log.take());
    let again = Log::open(&dir).unwrap();
    assert_eq!(again.storage().recovery().prior_shutdown, PriorShutdown::Clean);
    assert_eq!(payloads(&again), [b"before".to_vec(), b"after".to_vec()]);
}

/// The clean end in the manifest, the footer, what is staged, temporary files, and the file `lock`.
#[test]
fn what_a_child_drops_or_closes_changes_no_byte() {
    let workdir = tempfile::tempdir().unwrap();
    let dir = workdir.path().join("log");
    let engine = Engine::manual();
    let open = || Log::builder(&dir).engine(engine.clone()).policy(Policy::Periodic(PATIENCE));
    let log = open().open().unwrap();
    log.append("durable").unwrap().blocking_wait().unwrap();
    log.consumers().set("one", Seq(1)).unwrap();
    let pending = log.append("staged").unwrap();
    let mut sink = Sink::new(&log).unwrap();
    sink.try_append("pushed").unwrap();
    let mut snapshot = log.snapshots().writer(1).unwrap();
    std::io::Write::write_all(&mut snapshot, &vec![7; 3 << 20]).unwrap();
    let checkpoint = log.component().checkpoint_writer(1 << 20).unwrap();
    let mut chunk = checkpoint.chunk();
    chunk.push(b"a chunk").unwrap();
    chunk.write().unwrap();
    drop(chunk);
    let stream = log.stream(Start::Oldest).unwrap();
    let reader = ReadOnlyLog::open(&dir).unwrap();
    let follows = reader.stream(Start::Oldest).unwrap();
    let before = import(&dir).unwrap();
    assert!(before.len() > 5, "{:?}", before.keys());
    let child = in_forked_child(|| {
        // Everything that the parent holds, in copies of their own: none is dropped twice.
        let (pending, log) = (pending.clone(), log.clone());
        forked("close", log.close());
        forked("close_timeout", log.close_timeout(PATIENCE));
        reader.close();
        engine.run();
        engine.advance(PATIENCE);
        engine.stop();
        drop((pending, log));
    });
    child.unwrap();
    assert!(import(&dir).unwrap() == before, "closed");
    // A child drops what its parent keeps.
    let kept = Cell::new(Some((checkpoint, snapshot, stream, follows, sink, pending, reader)));
    in_forked_child(|| drop(kept.take())).unwrap();
    assert!(import(&dir).unwrap() == before, "dropped");
    drop(kept);
    let (before, log) = (import(&dir).unwrap(), Cell::new(Some(log)));
    in_forked_child(|| drop(log.take())).unwrap();
    assert!(import(&dir).unwrap() == before, "dropped the log");
    drop(log.take());
    let again = open().open().unwrap();
    assert_eq!(payloads(&again), [b"durable".to_vec(), b"staged".to_vec(), b"pushed".to_vec()]);
}

/// A child that appended got `durable` for a position that its parent overwrote.
#[test]
fn every_call_of_a_child_is_refused() {
    let workdir = tempfile::tempdir().unwrap();
    let dir = workdir.path().join("log");
    let log = Log::open(&dir).unwrap();
    log.append("durable").unwrap().blocking_wait().unwrap();
    let ticket = log.append("another").unwrap();
    let stream = Cell::new(Some(log.stream(Start::Oldest).unwrap()));
    let reader = ReadOnlyLog::open(&dir).unwrap();
    let follows = Cell::new(Some(reader.stream(Start::Oldest).unwrap()));
    let sink = Cell::new(Some(Sink::new(&log).unwrap()));
    let snapshot = Cell::new(Some(log.snapshots().writer(1).unwrap()));
    let child = in_forked_child(|| {
        appends(&log);
        reads(&log);
        changes(&log, workdir.path());
        forked("blocking_wait", ticket.clone().blocking_wait());
        forked("blocking_wait_timeout", ticket.clone().blocking_wait_timeout(PATIENCE));
        forked("ticket", polled_once(ticket.clone()));
        let (send, outcome) = mpsc::channel();
        ticket.clone().on_durable(move |outcome| send.send(outcome).unwrap());
        forked("on_durable", outcome.try_recv().unwrap());
        for mut stream in [stream.take(), follows.take()].into_iter().flatten() {
            forked("try_next", stream.try_next());
            forked("blocking_next", stream.blocking_next());
            forked("blocking_next_timeout", stream.blocking_next_timeout(PATIENCE));
            forked("stream", polled_once(async { stream.next().await.unwrap() }));
        }
        let mut sink = sink.take().unwrap();
        forked("Sink::try_append", sink.try_append("x"));
        forked("blocking_append", sink.blocking_append("x"));
        let mut snapshot = snapshot.take().unwrap();
        let written = std::io::Write::write(&mut snapshot, b"x").unwrap_err();
        assert!(matches!(written.downcast::<Error>(), Ok(Error::Forked)));
        forked("publish", snapshot.publish(b""));
        readers(&reader, workdir.path());
    });
    child.unwrap();
    // The parent continues, and so do its handles.
    log.append("after").unwrap().blocking_wait().unwrap();
    ticket.blocking_wait().unwrap();
    let next = || stream.take().unwrap().blocking_next().unwrap().first();
    assert_eq!(next(), Some(Seq(1)));
    assert_eq!(follows.take().unwrap().blocking_next().unwrap().first(), Some(Seq(1)));
    assert_eq!(payloads(&log).len(), 3);
}

fn appends(log: &Log) {
    forked("append", log.append("x"));
    forked("try_append", log.try_append("x"));
    forked("append_timeout", log.append_timeout("x", PATIENCE));
    forked("write, numbered", log.write(Append::numbered(Seq(2), &[(Seq(3), "x")])));
    forked("append, internal", log.component().append(Purpose::Internal, "x"));
    forked("write", log.write(Append::records(&["x", "y"])));
    forked("write of nothing", log.write(Append::records(&[] as &[&str])));
    forked("write, atomic", log.write(Append::records(&["x", "y"]).atomic()));
    forked("barrier", log.barrier());
    forked("sink", Sink::new(log));
    forked("append_async", polled_once(log.append_async("x")));
    forked("write_async", polled_once(log.write_async(Append::records(&["x", "y"]))));
    let locked =
        log.component().append_locked(|_| -> Result<(), _> { panic!("it runs under a lock") });
    forked("append_locked", locked);
}

fn reads(log: &Log) {
    forked("read", log.read(1));
    forked("read_at", log.read_at(Position(0)));
    forked("stream", log.stream(Start::Tip));
    forked("pending_records", log.component().pending_records());
    forked("checkpoint_reader", log.component().checkpoint_reader());
    forked("Snapshots::newest", log.snapshots().newest());
    forked("was_repaired", log.storage().was_repaired());
    forked("consumers", log.consumers().get("one"));
    forked("read_async", polled_once(log.read_async(1)));
    forked("wait_durable", polled_once(log.wait_durable(100)));
}

fn changes(log: &Log, workdir: &Path) {
    let component = esker_log::Component(*b"testtest");
    forked("truncate_before", log.retention().truncate_before(2));
    forked("set_limits", log.retention().set_limits(Retention::NONE));
    forked("put_app_metadata", log.component().put_app_metadata(component, b"x"));
    forked("checkpoint_writer", log.component().checkpoint_writer(100));
    forked("discard_checkpoint", log.component().discard_checkpoint());
    forked("snapshot_writer", log.snapshots().writer(1));
    forked("Snapshots::remove", log.snapshots().remove(1));
    forked("backup", log.storage().backup(workdir.join("backup")));
    forked("consumers", log.consumers().set("one", Seq(1)));
    forked("close", log.close());
}

fn readers(reader: &ReadOnlyLog, workdir: &Path) {
    forked("refresh", reader.refresh());
    forked("read", reader.read(1));
    forked("stream", reader.stream(Start::Oldest));
    forked("stored", reader.storage().stored());
    forked("component", reader.component().id());
    forked("backup", reader.storage().backup(workdir.join("backup")));
    forked("consumers", reader.consumers().set("one", Seq(1)));
    forked("wait_durable", polled_once(reader.wait_durable(100)));
    reader.close();
}

/// A child opened a log of its own. Its locks list waiting threads in one table of the process, and
/// in a child that table names stacks that its own threads reuse: one run in ten hung or crashed.
#[test]
fn a_child_opens_nothing() {
    let workdir = tempfile::tempdir().unwrap();
    let (dir, other) = (workdir.path().join("log"), workdir.path().join("other"));
    let log = Log::open(&dir).unwrap();
    log.append("of the parent").unwrap().blocking_wait().unwrap();
    let (engine, shared) = (Engine::new(1).unwrap(), log.component().shared_reserve());
    let before = import(&dir).unwrap();
    let child = in_forked_child(|| {
        let new = || Log::builder(&other);
        forked("open", Log::open(&other));
        forked("open, of its parent", Log::open(&dir));
        forked("open, an engine of its parent", new().engine(engine.clone()).open());
        forked("open, a manual engine", new().engine(Engine::manual()).open());
        forked("open, a reserve of its parent", new().shared_reserve(shared.clone()).open());
        forked("open_async", polled_once(Log::builder(&other).open_async()));
        forked("reader", ReadOnlyLog::open(&dir));
        forked("reader, an engine", ReadOnlyLog::builder(&dir).engine(engine.clone()).open());
        forked("reader, open_async", polled_once(ReadOnlyLog::builder(&dir).open_async()));
        forked("verify", esker_log::verify(&dir, ReadOptions::default()));
        forked("repair", esker_log::repair(&dir, ReadOptions::default()));
        forked("identify", esker_log::component::identify(&dir, ReadOptions::default()));
        for engine in [Engine::new(1), Engine::shared()] {
            let refusal = engine.unwrap_err().downcast::<Refusal>().unwrap();
            assert_eq!(refusal, Refusal::Forked);
        }
        let error = Log::open(&other).unwrap_err().to_string();
        assert!(error.contains("call exec"), "{error}");
        in_forked_child(|| forked("open, in its own child", Log::open(&other))).unwrap();
    });
    child.unwrap();
    assert!(!other.exists() && import(&dir).unwrap() == before, "files changed");
    log.append("after").unwrap().blocking_wait().unwrap();
}

/// A thread of the parent holds a lock while another one forks. No thread of the child releases it.
#[test]
fn a_child_waits_for_no_lock_that_another_thread_held() {
    let workdir = tempfile::tempdir().unwrap();
    let dir = workdir.path().join("log");
    let is_armed = Arc::new(AtomicBool::new(false));
    let armed = Arc::clone(&is_armed);
    let (reached, listing) = mpsc::channel();
    let (go_on, ends) = mpsc::channel();
    let ends = Mutex::new(ends);
    let hook = move |call: &Call<'_>| {
        if call.op == Op::List && armed.load(SeqCst) {
            reached.send(()).unwrap();
            ends.lock().unwrap().recv().unwrap();
        }
        Ok(())
    };
    let disk = Arc::new(HookedDisk::new(Arc::new(StdDisk::new()), hook));
    let log = Log::builder(&dir).disk(disk).open().unwrap();
    is_armed.store(true, SeqCst);
    std::thread::scope(|scope| {
        // Lists under the lock of the set of segments.
        scope.spawn(|| log.snapshots().list().unwrap());
        listing.recv_timeout(PATIENCE).unwrap();
        is_armed.store(false, SeqCst);
        let child = in_forked_child(|| {
            forked("snapshots", log.snapshots().list());
            forked("truncate_before", log.retention().truncate_before(1));
            forked("close", log.close());
        });
        go_on.send(()).unwrap();
        child.unwrap();
    });
}

/// Forks while the locks of appenders, commits and streams are held, each at some moment.
#[test]
fn children_of_a_busy_process_end() {
    let workdir = tempfile::tempdir().unwrap();
    let log = Log::open(workdir.path().join("log")).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !is_over.load(SeqCst) {
                    log.write(Append::records(&["x"; 100])).unwrap().blocking_wait().unwrap();
                }
            });
        }
        let kept = Cell::new(None);
        let outcome = (0..30).try_for_each(|_| {
            let stream = log.stream(Start::Tip).unwrap();
            kept.set(Some((
                stream,
                log.append("x").unwrap(),
                Sink::new(&log).unwrap(),
                log.clone(),
            )));
            in_forked_child(|| {
                let (mut stream, ticket, sink, log) = kept.take().unwrap();
                forked("stream", stream.blocking_next());
                forked("append", log.append("x"));
                drop((stream, sink));
                forked("ticket", ticket.clone().blocking_wait());
                drop(ticket);
                forked("close", log.close());
            })
        });
        is_over.store(true, SeqCst);
        outcome.unwrap();
    });
    log.close().unwrap();
}

/// The files and directories below a log, which refuse by themselves.
#[test]
fn the_disk_refuses_a_child() {
    let workdir = tempfile::tempdir().unwrap();
    let mut disks: Vec<Arc<dyn Disk>> = vec![Arc::new(StdDisk::new())];
    #[cfg(target_os = "linux")]
    match esker_disk::uring::UringDisk::new(esker_disk::uring::UringOptions::default()) {
        Ok(uring) => disks.push(Arc::new(uring)),
        Err(why) => println!("SKIPPED: no io_uring: {why}"),
    }
    for (n, disk) in disks.iter().enumerate() {
        let path = workdir.path().join(n.to_string());
        let dir = disk.create_dir(&path).unwrap();
        let file = dir.open("file", OpenMode::create()).unwrap();
        assert_eq!(file.write_at(b"parent", 0).unwrap(), 6);
        let held = Cell::new(Some(dir.lock().unwrap()));
        let child = in_forked_child(|| {
            file_of_a_parent(&*file);
            dir_of_a_parent(&*dir);
            drop(held.take());
            refused(disk.open_dir(&path));
            refused(disk.create_dir(&workdir.path().join("new")));
            refused(DirDisk::new(Arc::clone(&dir)).create_dir(Path::new("new")));
            no_disk_of_rings();
        });
        child.unwrap();
        assert_eq!(dir.list().unwrap(), ["file"]);
        let mut read = [0; 6];
        assert_eq!(file.read_at(&mut read, 0).unwrap(), 6);
        assert_eq!(&read, b"parent");
        let again = disk.open_dir(&path).unwrap().lock();
        assert_eq!(again.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    }
    assert!(!workdir.path().join("new").exists());
}

fn no_disk_of_rings() {
    #[cfg(target_os = "linux")]
    {
        use esker_disk::uring::{UringDisk, UringOptions};
        let why = UringDisk::new(UringOptions::default()).unwrap_err();
        assert_eq!(why.downcast::<Refusal>().unwrap(), Refusal::Forked);
        let (disk, _) = UringDisk::or_std(UringOptions::default());
        refused(disk.open_dir(Path::new("/")));
    }
}

#[track_caller]
fn refused<T: std::fmt::Debug>(outcome: esker_disk::Result<T>) {
    assert_eq!(outcome.unwrap_err().refusal(), Some(Refusal::Forked));
}

fn file_of_a_parent(file: &dyn esker_disk::File) {
    refused(file.read_at(&mut [0], 0));
    refused(file.write_at(b"x", 0));
    refused(file.sync_data());
    refused(file.len());
    refused(file.set_len(0));
    refused(file.preallocate(0, 1 << 20));
}

fn dir_of_a_parent(dir: &dyn Dir) {
    refused(dir.open("file", OpenMode::read()));
    refused(dir.open("new", OpenMode::create()));
    refused(dir.rename("file", "other"));
    refused(dir.exchange("file", "other"));
    refused(dir.unlink("file"));
    refused(dir.remove_dir("below"));
    refused(dir.create_dir("below"));
    refused(dir.open_dir("below"));
    refused(dir.sync());
    refused(dir.list());
    refused(dir.readable_as("file"));
    refused(dir.lock().map(drop));
    refused(dir.facts());
}
