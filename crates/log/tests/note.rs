//! The note beside a log, and the table of its segments: what a face keeps its place with.

mod setting;

use esker_disk::sim::{Effect, Fault, Persist};
use esker_disk::{Disk, Op};
use esker_log::{Error, Log, Seq};
use setting::{append, driven, log};

#[test]
fn a_note_is_replaced_whole_and_outlives_a_power_cut() {
    let (log, disk, engine) = log();
    assert_eq!(log.note().unwrap(), None);
    log.put_note(b"first").unwrap();
    log.put_note(b"second, and longer").unwrap();
    disk.power_cut(Persist::Nothing);
    drop(log);
    engine.stop();
    disk.power_on();
    let (options, _engine) = driven(&disk);
    let log = Log::open(setting::DIR, options).unwrap();
    assert_eq!(log.note().unwrap().as_deref(), Some(&b"second, and longer"[..]));
    assert!(!log.was_repaired().unwrap());
}

#[test]
fn a_note_that_cannot_be_written_poisons_the_log() {
    let (log, disk, _engine) = log();
    disk.inject(Fault::on(Op::Sync, Effect::Io).path("note"));
    assert!(matches!(log.put_note(b"lost"), Err(Error::Io(_))));
    assert!(matches!(log.put_note(b"lost"), Err(Error::Poisoned(_))));
    assert!(matches!(log.append(b"refused"), Err(Error::Poisoned(_))));
}

#[test]
fn a_damaged_or_overlong_note_is_told() {
    let (log, disk, _engine) = log();
    assert!(matches!(log.put_note(&[0; (64 << 10) + 1]), Err(Error::TooLarge { .. })));
    log.put_note(b"sound").unwrap();
    let path = std::path::Path::new(setting::DIR).join("note");
    let mut bytes = disk.contents(&path).unwrap();
    bytes[21] ^= 1;
    disk.process().unlink(&path).unwrap();
    let file = disk.process().open(&path, esker_disk::Open::create()).unwrap();
    esker_disk::write_all_at(&*file, &bytes, 0).unwrap();
    assert!(matches!(log.note(), Err(Error::Damaged(_))));
}

#[test]
fn segments_tell_which_records_they_hold() {
    let (log, _disk, _engine) = log();
    append(&log, 200);
    let spans = log.segments();
    assert!(spans.len() > 1);
    assert_eq!(spans[0].after, Seq(0));
    assert!(spans.windows(2).all(|pair| pair[0].last == pair[1].after));
    assert_eq!(spans.last().unwrap().last, Seq(200));
}
