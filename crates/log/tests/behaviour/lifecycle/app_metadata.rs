//! App metadata, which say whose log it is, and the table of its segments.
//!
//! Bug: any component's metadata looked like those of a consensus log, and a command that found
//! them had opened the log for writing already: its session was raised, and files had changed.
#![allow(clippy::unwrap_used, clippy::panic)]

use esker_disk::sim::{CutPoint, Effect, Fault, Persist, SimDisk};
use esker_disk::{Disk, Op};
use esker_log::component::{discard, identify};
use esker_log::{
    AppendError, Component, Error, Log, LogError, OpenError, Options, Seq, repair, verify,
};

use crate::fixture::{DIR, append, driven, log};

const OURS: Component = Component(*b"OURS\0\0\0\0");
const OTHER: Component = Component(*b"OTHER\0\0\0");

fn options_with(disk: &SimDisk, component: Option<Component>) -> Options {
    let mut options = driven(disk).0;
    options.component = component;
    options
}

/// Every file of the log and what is in it.
fn everything(disk: &SimDisk) -> Vec<(String, Vec<u8>)> {
    let names = disk.files(DIR.as_ref()).unwrap_or_default();
    let content = |name: &String| disk.contents(&std::path::Path::new(DIR).join(name));
    names.iter().map(|name| (name.clone(), content(name).unwrap_or_default())).collect()
}

/// Whatever a log is opened as, but for what it is, nothing on the disk changes: not after a clean
/// close, and not where a crash left work for recovery.
#[test]
fn a_log_of_another_component_is_refused_before_anything_changes() {
    let all = [None, Some(OURS), Some(OTHER)];
    for (owner, records, crash) in
        all.into_iter().flat_map(|owner| [(owner, 0, false), (owner, 9, false), (owner, 9, true)])
    {
        let disk = SimDisk::new(1);
        let log = Log::builder(DIR).options(options_with(&disk, owner)).open().unwrap();
        append(&log, records);
        if crash {
            disk.kill();
            drop(log);
            disk.power_on();
        } else {
            log.close().unwrap();
        }
        assert_eq!(identify(DIR, options_with(&disk, None)).unwrap(), owner);
        let before = everything(&disk);
        for other in all.into_iter().filter(|other| *other != owner) {
            let operations = disk.operations();
            let refused = Log::builder(DIR).options(options_with(&disk, other)).open();
            assert!(
                matches!(&refused, Err(OpenError::WrongComponent { found, expected, .. })
                    if *found == owner && *expected == other),
                "{owner:?} opened as {other:?}: {refused:?}"
            );
            assert_eq!(disk.operations(), operations, "{owner:?} opened as {other:?}");
            assert_eq!(everything(&disk), before, "{owner:?} opened as {other:?}");
        }
        // Work on the bytes does not depend on whose they are, and leaves that as it is.
        assert!(verify(DIR, options_with(&disk, None)).unwrap().corruption.is_empty());
        assert!(repair(DIR, options_with(&disk, None)).unwrap().quarantined.is_empty());
        let log = Log::builder(DIR).options(options_with(&disk, owner)).open().unwrap();
        assert_eq!(log.accepted(), Seq(records));
        if let Some(owner) = owner {
            let other = if owner == OURS { OTHER } else { OURS };
            let refused = log.component().put_app_metadata(other, b"mine now");
            assert!(matches!(refused, Err(Error::WrongComponent { .. })), "{refused:?}");
            assert!(matches!(
                log.component().app_metadata(other),
                Err(OpenError::WrongComponent { .. })
            ));
        }
        log.close().unwrap();
    }
}

/// Wherever a crash cuts the creation short, what is there is nothing, or a log of its component.
#[test]
fn a_crash_while_a_log_is_created_never_leaves_it_without_its_component() {
    let whole = SimDisk::new(1);
    Log::builder(DIR)
        .options(options_with(&whole, Some(OURS)))
        .open()
        .unwrap()
        .append(b"first")
        .unwrap()
        .blocking_wait()
        .unwrap();
    for at in 0..whole.operations() {
        for persist in [Persist::Random, Persist::Torn, Persist::Nothing, Persist::Everything] {
            for point in [CutPoint::Before(at), CutPoint::During(at)] {
                let disk = SimDisk::new(1);
                disk.cut_power_at(point, persist);
                let log = Log::builder(DIR).options(options_with(&disk, Some(OURS))).open();
                let first = log.as_ref().ok().and_then(|log| log.append(b"first").ok());
                let durable = first.is_some_and(|first| first.blocking_wait().is_ok());
                if disk.is_on() {
                    disk.power_cut(persist);
                }
                drop(log);
                disk.power_on();
                let names: Vec<_> = everything(&disk).into_iter().map(|(name, _)| name).collect();
                let begun = names.iter().any(|name| name == "manifest" || name.ends_with(".seg"));
                let owner = identify(DIR, options_with(&disk, None)).unwrap();
                assert!(!begun || owner == Some(OURS), "{point:?} {persist:?}: {names:?}");
                let log =
                    Log::builder(DIR).options(options_with(&disk, Some(OURS))).open().unwrap();
                assert!(!durable || log.durable() == Seq(1), "{point:?} {persist:?}");
                drop(log);
                let plain = Log::builder(DIR).options(options_with(&disk, None)).open();
                assert!(
                    matches!(plain, Err(OpenError::WrongComponent { .. })),
                    "{point:?} {persist:?}"
                );
            }
        }
    }
}

#[test]
fn app_metadata_are_replaced_whole_and_outlive_a_power_cut() {
    let (log, disk, engine) = log();
    assert_eq!(log.component().app_metadata(OURS).unwrap(), None);
    log.component().put_app_metadata(OURS, b"first").unwrap();
    log.component().put_app_metadata(OURS, b"second, and longer").unwrap();
    disk.power_cut(Persist::Nothing);
    drop(log);
    engine.stop();
    disk.power_on();
    let log = Log::builder(DIR).options(options_with(&disk, Some(OURS))).open().unwrap();
    assert_eq!(
        log.component().app_metadata(OURS).unwrap().as_deref(),
        Some(&b"second, and longer"[..])
    );
    assert!(!log.storage().was_repaired().unwrap());
}

#[test]
fn a_failed_write_of_app_metadata_poisons_the_log() {
    let (log, disk, _engine) = log();
    disk.inject(Fault::on(Op::Sync, Effect::Io).path("note"));
    assert!(matches!(log.component().put_app_metadata(OURS, b"lost"), Err(Error::Io(_))));
    assert!(matches!(log.component().put_app_metadata(OURS, b"lost"), Err(Error::Poisoned(_))));
    assert!(matches!(log.append(b"refused"), Err(AppendError::Log(LogError::Poisoned(_)))));
}

#[test]
fn damaged_or_overlong_app_metadata_are_an_error() {
    let (log, disk, _engine) = log();
    assert!(matches!(
        log.component().put_app_metadata(OURS, &[0; (64 << 10) + 1]),
        Err(Error::ContentTooLarge { .. })
    ));
    log.component().put_app_metadata(OURS, b"sound").unwrap();
    let path = std::path::Path::new(DIR).join("note");
    let mut bytes = disk.contents(&path).unwrap();
    bytes[21] ^= 1;
    let dir = disk.open_dir(std::path::Path::new(DIR)).unwrap();
    dir.unlink("note").unwrap();
    let file = dir.open("note", esker_disk::OpenMode::create()).unwrap();
    esker_disk::write_all_at(&*file, &bytes, 0).unwrap();
    assert!(matches!(log.component().app_metadata(OURS), Err(OpenError::Corrupted(_))));
}

#[test]
fn segments_report_which_records_they_hold() {
    let (log, _disk, _engine) = log();
    append(&log, 200);
    let spans = log.storage().segments();
    assert!(spans.len() > 1);
    assert_eq!(spans[0].after, Seq(0));
    assert!(spans.windows(2).all(|pair| pair[0].last == pair[1].after));
    assert_eq!(spans.last().unwrap().last, Seq(200));
}

/// A component gives a log that it prepared to another one. Only then does that one open it.
#[test]
fn a_log_is_given_to_another_component() {
    let disk = SimDisk::new(1);
    let log = Log::builder(DIR).options(options_with(&disk, Some(OURS))).open().unwrap();
    append(&log, 9);
    assert!(matches!(
        log.component().set_component(OTHER, OURS, b""),
        Err(Error::WrongComponent { .. })
    ));
    assert_eq!(identify(DIR, options_with(&disk, None)).unwrap(), Some(OURS));
    log.component().put_app_metadata(OURS, b"content").unwrap();
    log.component().set_component(OURS, OTHER, b"").unwrap();
    log.close().unwrap();
    let refused = Log::builder(DIR).options(options_with(&disk, Some(OURS))).open();
    assert!(matches!(refused, Err(OpenError::WrongComponent { .. })), "{refused:?}");
    let log = Log::builder(DIR).options(options_with(&disk, Some(OTHER))).open().unwrap();
    assert_eq!(log.component().app_metadata(OTHER).unwrap().as_deref(), Some(&b""[..]));
    assert_eq!(log.accepted(), Seq(9));
    log.close().unwrap();
}

/// Only the log of the component that is named is removed, and never one that is open.
#[test]
fn discarding_a_log_removes_its_files_and_no_others() {
    for owner in [None, Some(OURS), Some(OTHER)] {
        let disk = SimDisk::new(1);
        let log = Log::builder(DIR).options(options_with(&disk, owner)).open().unwrap();
        append(&log, 9);
        if owner == Some(OURS) {
            let refused = discard(DIR, OURS, &disk.process());
            assert!(matches!(refused, Err(OpenError::Locked { .. })), "{refused:?}");
        }
        log.close().unwrap();
        let before = everything(&disk);
        let discarded = discard(DIR, OURS, &disk.process());
        if owner == Some(OURS) {
            discarded.unwrap();
            assert_eq!(disk.files(DIR.as_ref()).unwrap(), Vec::<String>::new());
            disk.power_cut(Persist::Nothing);
            disk.power_on();
            assert_eq!(disk.files(DIR.as_ref()).unwrap(), Vec::<String>::new());
            discard(DIR, OURS, &disk.process()).unwrap();
        } else {
            assert!(matches!(discarded, Err(OpenError::WrongComponent { .. })), "{discarded:?}");
            assert_eq!(everything(&disk), before);
        }
    }
}

/// Bytes that `repair` quarantined are kept for the operator, also when the component discards the
/// log.
#[test]
fn discarding_a_log_leaves_what_was_quarantined() {
    let disk = SimDisk::new(1);
    let log = Log::builder(DIR).options(options_with(&disk, Some(OURS))).open().unwrap();
    append(&log, 9);
    log.close().unwrap();
    let quarantine = std::path::Path::new(DIR).join("quarantine");
    disk.process().create_dir(&quarantine).unwrap();
    disk.put(&quarantine.join("unit"), b"corrupt").unwrap();
    // It can be repeated, as after a crash.
    for _ in 0..2 {
        discard(DIR, OURS, &disk.process()).unwrap();
        assert_eq!(disk.files(DIR.as_ref()).unwrap(), ["quarantine"]);
        assert_eq!(disk.files(&quarantine).unwrap(), ["unit"]);
    }
}
