//! Every public error, provoked once: each can be matched in code, says in one line what and where,
//! and hands on the system's own error where there is one.

use std::error::Error as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use esker_disk::sim::{Effect, Fault, SimDisk};
use esker_disk::{Disk, Op};
use esker_log::{
    Append, AppendError, Error, InvalidOption, Log, LogError, OnCorruption, OpenCheck, OpenError,
    Position, RECORD_LIMIT_MAX, ReadError, Seq, SeqRange, Start, Trimmed,
};

use crate::fixture::{DIR, append, driven, log, payload};

/// The one line for people: no line break, no full stop, and these words in it.
fn says(error: &impl std::error::Error, words: &[&str]) {
    let line = error.to_string();
    assert!(!line.contains('\n') && !line.ends_with('.') && !line.is_empty(), "{line:?}");
    for word in words {
        assert!(line.contains(word), "{line:?} without {word:?}");
    }
}

#[test]
fn every_error_of_appends() {
    let disk = SimDisk::new(1);
    let (mut options, engine) = driven(&disk);
    options.record_limit = RECORD_LIMIT_MAX;
    let log = Log::builder(DIR).options(options).open().unwrap();
    append(&log, 3);

    let error = log.append(vec![0; RECORD_LIMIT_MAX as usize + 1]).unwrap_err();
    assert!(matches!(error, AppendError::TooLarge { .. }));
    says(&error, &["67112961", "67112960"]);

    let half = vec![0; 46 << 20];
    let error = log.write(Append::records(&[&half, &half]).atomic()).unwrap_err().error;
    assert!(matches!(error, AppendError::BatchTooLarge { .. }));
    says(&error, &["atomic batch"]);
    drop(half);

    let error = log.write(Append::numbered(Seq(8), &[(Seq(9), b"")])).unwrap_err().error;
    assert!(matches!(error, AppendError::Sequence { seq: Seq(9), prev: Seq(8), expected: Seq(3) }));
    says(&error, &["9", "8", "3"]);

    let kept = log.append(payload(4)).unwrap();
    let error = log.write(Append::numbered(Seq(3), &[(Seq(9), b"")])).unwrap_err().error;
    assert!(matches!(error, AppendError::Conflict { prev: Seq(3), last: Seq(4) }));
    says(&error, &["3", "4"]);
    drop(kept);

    let error = loop {
        match log.try_append([0; 4000]) {
            Ok(ticket) => drop(ticket),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, AppendError::Full));
    says(&error, &["full"]);

    let error = log.stream(Start::Tip).unwrap().blocking_next_timeout(Duration::ZERO).unwrap_err();
    assert!(matches!(error, ReadError::Timeout));
    says(&error, &["deadline"]);

    engine.stop();
    let error = log.append(b"x").unwrap_err();
    assert!(matches!(error, AppendError::Log(LogError::Stopped)));
    says(&error, &["engine", "reopen"]);
    drop(log.close());
    let error = log.read(1).unwrap_err();
    assert!(matches!(error, ReadError::Log(LogError::Closed)));
    says(&error, &["closed"]);
}

#[test]
fn every_error_of_the_disk() {
    let (log, disk, _) = log();
    append(&log, 3);
    disk.inject(Fault::on(Op::Write, Effect::NoSpace).path(".seg"));
    let error = log.append(payload(4)).unwrap().blocking_wait().unwrap_err();
    assert!(
        matches!(&error, LogError::Io(cause) if cause.kind() == std::io::ErrorKind::StorageFull)
    );
    says(&error, &["write", "/log/", ".seg", "at byte"]);
    let failed = error.clone();
    let system = failed.source().expect("the error of the system");
    assert_eq!(system.downcast_ref::<std::io::Error>().unwrap().raw_os_error(), Some(28));
    assert!(!error.to_string().contains(&system.to_string()), "the cause is in the source only");
    let error = log.append(b"x").unwrap_err();
    assert!(matches!(error, AppendError::Log(LogError::Poisoned(_))));
    says(&error, &["write", "reopen"]);
    let cause = error.source().expect("the failed operation");
    assert!(cause.to_string().contains("/log/"), "{cause}");
    assert_eq!(cause.source().expect("the error of the system").to_string(), system.to_string());
    drop(log);
}

#[test]
fn every_error_of_reading() {
    let (log, disk, _) = log();
    append(&log, 40);
    log.retention().truncate_before(20).unwrap();

    let error = log.read(19).unwrap_err();
    assert!(matches!(error, ReadError::Trimmed(Trimmed { oldest: Seq(20) })));
    says(&error, &["20"]);
    let error = log.read(41).unwrap_err();
    assert!(matches!(error, ReadError::NotFound { seq: Seq(41) }));
    says(&error, &["41"]);
    let inside = Position(log.read(30).unwrap().record().position.0 + 8);
    let error = log.read_at(inside).unwrap_err();
    assert!(matches!(error, ReadError::InvalidPosition { position } if position == inside));
    says(&error, &[&inside.to_string()]);
    let damaged_at = log.read(30).unwrap().record().position;
    log.close().unwrap();

    // A record in the middle is corrupted.
    let (file, offset) = place(damaged_at);
    disk.flip_bit(&file, offset * 8).unwrap();
    let (mut options, _) = driven(&disk);
    options.check = OpenCheck::Full;
    let error = Log::builder(DIR).options(options.clone()).open().unwrap_err();
    let OpenError::Corrupted(damage) = &error else { panic!("{error:?}") };
    assert_eq!((&damage.file, damage.after), (&file, Seq(29)));
    assert!(damage.offset <= offset && offset < damage.offset + 4096);
    says(&error, &[".seg", "at byte", "29"]);

    options.on_corruption = OnCorruption::Quarantine;
    let log = Log::builder(DIR).options(options).open().unwrap();
    let error = log.read(30).unwrap_err();
    assert!(
        matches!(error, ReadError::Quarantined(SeqRange { from: Seq(29), to: Seq(30) })),
        "{error:?}"
    );
    says(&error, &["29", "30", "quarantine"]);
    log.close().unwrap();
}

/// The file, and the byte in it, of a record's number: records of one block each, 15 to a segment
/// of 16 blocks.
fn place(position: Position) -> (PathBuf, u64) {
    let number = position.0 / (64 << 10) + 1;
    let path = Path::new(DIR).join(format!("{number:020}.seg"));
    (path, position.0 % (64 << 10) + 8)
}

#[test]
fn every_error_of_opening() {
    let (log, disk, _) = log();
    append(&log, 3);
    let error = Log::builder(DIR).options(driven(&disk).0).open().unwrap_err();
    assert!(matches!(error, OpenError::Locked { .. }));
    says(&error, &["/log", "open for writing"]);

    let (mut options, _) = driven(&disk);
    options.segment_size = 5;
    let error = Log::builder(DIR).options(options).open().unwrap_err();
    assert!(matches!(
        error,
        OpenError::InvalidOption(InvalidOption { option: "segment_size", .. })
    ));
    says(&error, &["segment_size", "4096"]);

    disk.create_dir(Path::new("/other/things")).unwrap();
    let error = Log::builder("/other").options(driven(&disk).0).open().unwrap_err();
    assert!(matches!(error, OpenError::NotALog { .. }));
    says(&error, &["/other", "not a log"]);
    log.close().unwrap();

    // `Version` and `Foreign` are provoked in foreign_files.rs; here is what they say.
    let file = PathBuf::from("/log/manifest");
    says(&Error::UnsupportedVersion { file: file.clone(), version: 7 }, &["/log/manifest", "7"]);
    says(&Error::ForeignFile { file }, &["/log/manifest", "another log"]);
}
