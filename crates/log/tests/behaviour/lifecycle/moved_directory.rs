//! The lock is on the directory, and every name is relative to it. Moving the directory of an open
//! log, or removing its file `lock`, lets no second writer in and takes nothing from the first.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_disk::sim::{Persist, SimDisk};
use esker_disk::{Disk, StdDisk};
use esker_log::{Engine, Error, Log, OnCorruption, Options, ReadOnlyLog, Start, repair, verify};

use crate::fixture::{all, append, payload, payloads};

/// A disk, a place on it, and a move as another program does it.
struct Environment {
    disk: Arc<dyn Disk>,
    root: PathBuf,
    sim: Option<SimDisk>,
    _place: Option<tempfile::TempDir>,
}

impl Environment {
    fn each(check: impl Fn(&Environment)) {
        let sim = SimDisk::new(1);
        sim.create_dir(Path::new("/place")).unwrap();
        let root = PathBuf::from("/place");
        check(&Environment { disk: Arc::new(sim.clone()), root, sim: Some(sim), _place: None });
        let place = tempfile::tempdir().unwrap();
        let root = place.path().to_path_buf();
        check(&Environment {
            disk: Arc::new(StdDisk::new()),
            root,
            sim: None,
            _place: Some(place),
        });
    }

    fn options(&self) -> Options {
        let mut options = Options::on(Arc::clone(&self.disk));
        options.engine = Some(Engine::manual());
        options.segment_size = 64 << 10;
        options.buffer_size = 8 << 10;
        options.buffers = 2;
        options.tail_cache = 0;
        options
    }

    fn at(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn mv(&self, from: &str, to: &str) {
        match &self.sim {
            Some(sim) => sim.mv(&self.at(from), &self.at(to)).unwrap(),
            None => std::fs::rename(self.at(from), self.at(to)).unwrap(),
        }
    }

    fn open(&self, name: &str) -> esker_log::Result<Log> {
        Log::builder(self.at(name)).options(self.options()).open().map_err(Into::into)
    }

    /// No process opens the log at this path: each gets the error.
    fn is_locked(&self, name: &str) {
        let mut quarantine = self.options();
        quarantine.on_corruption = OnCorruption::Quarantine;
        let refused = [
            self.open(name).map(drop),
            Log::builder(self.at(name)).options(quarantine).open().map(drop).map_err(Into::into),
            repair(self.at(name), self.options()).map(drop).map_err(Into::into),
        ];
        for refused in refused {
            match refused {
                Err(Error::Locked { dir, pid }) => {
                    assert_eq!((dir, pid), (self.at(name), Some(std::process::id())));
                }
                other => panic!("not locked: {other:?}"),
            }
        }
    }
}

#[test]
fn a_moved_log_has_one_writer_and_its_old_path_is_free() {
    Environment::each(|environment| {
        let log = environment.open("log").unwrap();
        append(&log, 60);
        let reader = ReadOnlyLog::builder(environment.at("log"))
            .options(environment.options())
            .open()
            .unwrap();
        environment.mv("log", "moved");
        environment.is_locked("moved");

        // Another log begins at the old path. The writer does not notice: segments, footers and the
        // manifest go where it is.
        let other = environment.open("log").unwrap();
        append(&other, 3);
        append(&log, 200);
        assert!(log.storage().metadata().segments > 3);
        log.retention().truncate_before(100).unwrap();
        environment.is_locked("moved");
        environment.is_locked("log");

        // A reader follows the directory that it opened.
        reader.refresh().unwrap();
        assert_eq!((reader.durable().0, &*reader.read(260).unwrap()), (260, &payload(260)[..]));
        let late = ReadOnlyLog::builder(environment.at("log"))
            .options(environment.options())
            .open()
            .unwrap();
        assert_eq!(late.durable().0, 3);

        log.close().unwrap();
        other.close().unwrap();
        for (name, records) in [("moved", 100..=260), ("log", 1..=3)] {
            assert!(
                verify(environment.at(name), environment.options()).unwrap().corruption.is_empty()
            );
            let log = environment.open(name).unwrap();
            assert_eq!(all(&log), payloads(records), "{name}");
            log.close().unwrap();
        }
    });
}

#[test]
fn removing_the_lock_file_admits_no_second_writer() {
    Environment::each(|environment| {
        let log = environment.open("log").unwrap();
        append(&log, 5);
        let dir = environment.disk.open_dir(&environment.at("log")).unwrap();
        dir.unlink("lock").unwrap();
        match environment.open("log").map(drop) {
            Err(Error::Locked { pid: None, .. }) => {}
            other => panic!("not locked: {other:?}"),
        }
        append(&log, 5);
        log.close().unwrap();
        let log = environment.open("log").unwrap();
        assert_eq!(all(&log), payloads(1..=10));
        environment.is_locked("log");
        log.close().unwrap();
    });
}

/// The file is for messages, and may hold anything.
#[test]
fn empty_lock_file_names_no_owner() {
    Environment::each(|environment| {
        for content in [&b""[..], b"\xff\xfe\xfd", b"no pid\n", b"-1\n", b"99999999999999999999\n"]
        {
            let dir = environment.disk.create_dir(&environment.at("log")).unwrap();
            let log = environment.open("log").unwrap();
            let file = dir.open("lock", esker_disk::OpenMode::create()).unwrap();
            file.set_len(0).unwrap();
            esker_disk::write_all_at(&*file, content, 0).unwrap();
            match environment.open("log").map(drop) {
                Err(Error::Locked { pid: None, .. }) => {}
                other => panic!("{content:?}: {other:?}"),
            }
            log.close().unwrap();
            // The next writer puts it right.
            let log = environment.open("log").unwrap();
            environment.is_locked("log");
            log.close().unwrap();
        }
    });
}

#[test]
fn a_power_cut_after_a_move_keeps_what_was_durable_wherever_it_is() {
    for seed in 0..50 {
        let disk = SimDisk::new(seed);
        let environment = Environment {
            disk: Arc::new(disk.clone()),
            root: PathBuf::from("/place"),
            sim: Some(disk.clone()),
            _place: None,
        };
        let log = environment.open("log").unwrap();
        append(&log, 30);
        environment.mv("log", "moved");
        append(&log, 30);
        disk.power_cut(Persist::Random);
        drop(log);
        disk.power_on();
        let names = disk.files(Path::new("/place")).unwrap();
        assert_eq!(names.len(), 1, "seed {seed}: {names:?}");
        let log = environment.open(&names[0]).unwrap();
        assert!(all(&log).starts_with(&payloads(1..=60)), "seed {seed}");
        log.close().unwrap();
    }
}

#[test]
fn a_stream_continues_in_the_directory_that_its_reader_opened() {
    Environment::each(|environment| {
        let log = environment.open("log").unwrap();
        append(&log, 40);
        let reader = ReadOnlyLog::builder(environment.at("log"))
            .options(environment.options())
            .open()
            .unwrap();
        let mut stream = reader.stream(Start::Oldest).unwrap();
        environment.mv("log", "moved");
        append(&log, 100);
        log.close().unwrap();
        // Another log at the old path is not what this reader reads.
        let other = environment.open("log").unwrap();
        append(&other, 500);
        reader.refresh().unwrap();
        let mut read = Vec::new();
        while let Some(batch) = stream.try_next().unwrap() {
            read.extend(batch.iter().map(|record| (record.seq.0, record.payload.to_vec())));
        }
        assert_eq!(read, payloads(1..=140));
        other.close().unwrap();
    });
}
