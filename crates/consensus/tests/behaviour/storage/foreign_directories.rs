//! A consensus log says that it is one from its creation on, and opens no log of something else.
//!
//! Bug: only a close or a checkpoint left a sign, and any sign counted; and a log that was none was
//! opened, its session raised and its tail cut, before its first record was looked at.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::sync::Arc;

use esker_consensus::{COMPONENT, ConsensusLog, Error, Mode, Slot, StorageError, inspect_on};
use esker_disk::Disk;
use esker_disk::sim::SimDisk;
use esker_log::{Component, Engine, Log};

use crate::fixture::{DIR, LOW, driven, log, open_on};

fn plain(disk: &SimDisk) -> esker_log::Options {
    let mut options = esker_log::Options::on(Arc::new(disk.process()));
    options.engine = Some(Engine::manual());
    options
}

fn everything(disk: &SimDisk) -> Vec<(String, Vec<u8>)> {
    let names = disk.files(DIR.as_ref()).unwrap();
    let content = |name: &String| disk.contents(&Path::new(DIR).join(name)).unwrap();
    names.iter().map(|name| (name.clone(), content(name))).collect()
}

fn refused<T: std::fmt::Debug>(outcome: Result<T, impl Into<Error>>, owner: Option<Component>) {
    match outcome.map_err(Into::into) {
        Err(Error::Storage(StorageError::Log(esker_log::Error::WrongComponent {
            found,
            expected,
            ..
        }))) => {
            assert_eq!((found, expected), (owner, Some(COMPONENT)));
        }
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn a_log_of_something_else_is_refused_unchanged() {
    for (owner, crash) in [
        (None, false),
        (None, true),
        (Some(Component(*b"ANOTHER\0")), false),
        (Some(Component(*b"ANOTHER\0")), true),
    ] {
        let disk = SimDisk::new(1);
        let mut options = plain(&disk);
        options.component = owner;
        let other = Log::builder(DIR).options(options).open().unwrap();
        for line in ["a line", "", "another"] {
            other.append(line).unwrap().blocking_wait().unwrap();
        }
        if crash {
            disk.kill();
            drop(other);
            disk.power_on();
        } else {
            other.close().unwrap();
        }
        let before = everything(&disk);
        refused(ConsensusLog::builder(DIR).options(driven(&disk, Mode::Durable).0).open(), owner);
        refused(inspect_on(Arc::new(disk.process()), DIR), owner);
        assert_eq!(everything(&disk), before);
    }
}

/// Neither closed nor checkpointed, with and without a record.
#[test]
fn a_consensus_log_is_recognised_from_its_creation_on() {
    for records in [false, true] {
        let s = log(Mode::Durable);
        if records {
            s.log.accept(Slot(1), LOW, b"value").unwrap().blocking_wait().unwrap();
        }
        let disk = s.disk.clone();
        disk.kill();
        drop(s);
        disk.power_on();
        let before = everything(&disk);
        let opened = Log::builder(DIR).options(plain(&disk)).open();
        assert!(matches!(opened, Err(esker_log::OpenError::WrongComponent { .. })), "{opened:?}");
        assert_eq!(everything(&disk), before);
        assert_eq!(
            inspect_on(Arc::new(disk.process()), DIR).unwrap().totals.uncommitted,
            u64::from(records)
        );
    }
}

/// The app metadata is lost or corrupted: the records say whose log it is, and opening writes them
/// again.
#[test]
fn lost_or_corrupted_app_metadata_is_rewritten() {
    for damaged in [false, true] {
        let s = log(Mode::Durable);
        s.log.accept(Slot(1), LOW, b"value").unwrap().blocking_wait().unwrap();
        let disk = s.disk.clone();
        disk.kill();
        drop(s);
        disk.power_on();
        let note = Path::new(DIR).join("note");
        if damaged {
            disk.flip_bit(&note, 3).unwrap();
        } else {
            disk.process().open_dir(Path::new(DIR)).unwrap().unlink("note").unwrap();
        }
        assert_eq!(inspect_on(Arc::new(disk.process()), DIR).unwrap().totals.uncommitted, 1);
        let s = open_on(&disk, Mode::Durable, |_| {});
        assert_eq!(s.uncommitted().len(), 1);
        s.log.close().unwrap();
        drop(s);
        assert_eq!(esker_log::component::identify(DIR, plain(&disk)).unwrap(), Some(COMPONENT));
    }
}
