//! Files of another log or of another version are refused with an error that names the file, and
//! are left unchanged.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_disk::sim::{Persist, SimDisk};
use esker_disk::{Disk, OpenMode, write_all_at};
use esker_log::{Error, Log, OpenError, Options, ReadOnlyLog, RepairError, repair, verify};

use crate::fixture::{DIR, all, append, driven, log, payloads};

fn put(disk: &SimDisk, path: impl AsRef<Path>, bytes: &[u8]) {
    let path = path.as_ref();
    let dir = disk.open_dir(path.parent().unwrap()).unwrap();
    let file = dir.open(path.file_name().unwrap().to_str().unwrap(), OpenMode::create()).unwrap();
    write_all_at(&*file, bytes, 0).unwrap();
}

/// Every door to the log gives this error, and nothing on the disk has changed.
fn every_door(disk: &SimDisk, dir: &str, expected: impl Fn(&Error) -> bool) {
    let before = disk.fingerprint();
    let error = Log::builder(dir).options(driven(disk).0).open().unwrap_err();
    assert!(expected(&error.clone().into()), "open: {error:?}");
    let error = ReadOnlyLog::builder(dir).options(driven(disk).0).open().unwrap_err();
    assert!(expected(&error.clone().into()), "read: {error:?}");
    let error = verify(dir, &driven(disk).0).unwrap_err();
    assert!(expected(&error.clone().into()), "verify: {error:?}");
    assert_eq!(disk.fingerprint(), before);
}

fn segments(disk: &SimDisk, dir: &str) -> Vec<PathBuf> {
    let names = disk.files(Path::new(dir)).unwrap();
    let names = names.into_iter().filter(|name| name.ends_with(".seg"));
    names.map(|name| Path::new(dir).join(name)).collect()
}

#[test]
fn a_directory_with_other_files_is_not_a_log() {
    let disk = SimDisk::new(1);
    disk.create_dir(Path::new("/photos")).unwrap();
    put(&disk, "/photos/holiday.jpg", b"sun");
    every_door(
        &disk,
        "/photos",
        |error| matches!(error, Error::NotALog { dir, .. } if dir == Path::new("/photos")),
    );
    assert!(matches!(repair("/photos", &driven(&disk).0), Err(RepairError::NotALog { .. })));
}

#[test]
fn a_file_where_the_directory_should_be_is_not_a_log() {
    let disk = SimDisk::new(1);
    put(&disk, "/log", b"I am a file");
    every_door(&disk, "/log", |error| matches!(error, Error::NotALog { .. }));
    assert_eq!(disk.contents(Path::new("/log")).unwrap(), b"I am a file");
}

#[test]
fn nothing_is_created_where_a_log_must_be() {
    let disk = SimDisk::new(1);
    let before = disk.fingerprint();
    let (mut options, _) = driven(&disk);
    options.must_exist = true;
    assert!(matches!(
        Log::builder("/none").options(options.clone()).open(),
        Err(OpenError::NotALog { .. })
    ));
    assert!(matches!(
        ReadOnlyLog::builder("/none").options(options.clone()).open(),
        Err(OpenError::NotALog { .. })
    ));
    assert_eq!(disk.fingerprint(), before);
    disk.create_dir(Path::new("/empty")).unwrap();
    assert!(matches!(
        Log::builder("/empty").options(options.clone()).open(),
        Err(OpenError::NotALog { .. })
    ));
    assert_eq!(disk.files(Path::new("/empty")).unwrap(), Vec::<String>::new());
    // An empty directory may become a log.
    let log = Log::builder("/empty").options(driven(&disk).0).open().unwrap();
    append(&log, 2);
    log.close().unwrap();
    let log = Log::builder("/empty").options(options).open().unwrap();
    assert_eq!(all(&log), payloads(1..=2));
    log.close().unwrap();
}

fn crc(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// Gives a file another format version, and the checksum that a later Esker would have put.
fn make_newer(disk: &SimDisk, file: &Path, version: u32) {
    let mut bytes = disk.contents(file).unwrap();
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    bytes[12..16].fill(0);
    let sum = if file.ends_with("manifest") {
        // What follows the content is padding.
        let len = u32::from_le_bytes(*bytes[16..20].first_chunk().unwrap()) & !(1 << 31);
        crc(&bytes[..20 + len as usize])
    } else {
        // Bound to log and number, and to the start of the file.
        let salt = crc(&bytes[16..40]).to_le_bytes();
        crc(&[&salt, &[0; 4], &bytes[8..104]].concat())
    };
    disk.overwrite(file, 8, &version.to_le_bytes()).unwrap();
    disk.overwrite(file, 12, &sum.to_le_bytes()).unwrap();
}

#[test]
fn a_manifest_of_a_newer_version_is_refused() {
    let (log, disk, _) = log();
    append(&log, 3);
    log.close().unwrap();
    let manifest = Path::new(DIR).join("manifest");
    make_newer(&disk, &manifest, 3);
    every_door(
        &disk,
        DIR,
        |error| matches!(error, Error::UnsupportedVersion { file, version: 3 } if *file == manifest),
    );
    assert!(matches!(repair(DIR, &driven(&disk).0), Err(RepairError::UnsupportedVersion { .. })));
    make_newer(&disk, &manifest, 2);
    let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
    assert_eq!(all(&log), payloads(1..=3));
    log.close().unwrap();
}

#[test]
fn a_segment_of_a_newer_version_is_refused() {
    let (log, disk, _) = log();
    append(&log, 3);
    log.close().unwrap();
    let segment = segments(&disk, DIR).remove(0);
    make_newer(&disk, &segment, 7);
    every_door(
        &disk,
        DIR,
        |error| matches!(error, Error::UnsupportedVersion { file, version: 7 } if *file == segment),
    );
    make_newer(&disk, &segment, 2);
    let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
    assert_eq!(all(&log), payloads(1..=3));
    log.close().unwrap();
}

#[test]
fn a_segment_of_another_log_is_refused() {
    let disk = SimDisk::new(1);
    for dir in ["/log", "/other"] {
        let log = Log::builder(dir).options(driven(&disk).0).open().unwrap();
        append(&log, 30);
        log.close().unwrap();
    }
    let ours = segments(&disk, "/log");
    let theirs = segments(&disk, "/other");
    let last = ours.len() - 1;
    let kept = disk.contents(&ours[last]).unwrap();
    let bytes = disk.contents(&theirs[last]).unwrap();
    disk.overwrite(&ours[last], 0, &bytes).unwrap();
    every_door(
        &disk,
        "/log",
        |error| matches!(error, Error::ForeignFile { file } if *file == ours[last]),
    );
    disk.overwrite(&ours[last], 0, &kept).unwrap();
    let log = Log::builder("/log").options(driven(&disk).0).open().unwrap();
    assert_eq!(all(&log), payloads(1..=30));
    log.close().unwrap();
}

/// On the real disk, where kinds of errors are the system's.
#[test]
fn the_real_disk_gives_the_same_answers() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, b"x").unwrap();
    let error = Log::open(&file).unwrap_err();
    assert!(matches!(error, OpenError::NotALog { .. }), "{error:?}");
    let error = ReadOnlyLog::open(&file).unwrap_err();
    assert!(matches!(error, OpenError::NotALog { .. }), "{error:?}");
    let error = ReadOnlyLog::open(dir.path().join("none")).unwrap_err();
    assert!(matches!(error, OpenError::NotALog { .. }), "{error:?}");
    let error = Log::open(dir.path()).unwrap_err();
    assert!(matches!(error, OpenError::NotALog { .. }), "{error:?}");
    let mut options = Options::on(Arc::new(esker_disk::StdDisk::new()));
    options.must_exist = true;
    let error = Log::builder(dir.path().join("none")).options(options).open().unwrap_err();
    assert!(matches!(error, OpenError::NotALog { .. }), "{error:?}");
}

/// Against a stray name that brings the log to the last number that a header can hold.
#[test]
fn a_segment_name_far_above_the_log_is_passed_over() {
    for number in [(1u64 << 62) - 2, (1 << 62) - 1, 1 << 62, 7_457_464_487_676_789_885] {
        for (suffix, content) in [("seg", &b""[..]), ("seg", b"mine"), ("spare", b"mine")] {
            let disk = SimDisk::new(1);
            let stray = match suffix {
                "seg" => Path::new(DIR).join(format!("{number:020}.seg")),
                _ => Path::new(DIR).join(format!("{number}.spare")),
            };
            for round in 1..=3 {
                let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
                append(&log, 3);
                if round == 1 {
                    put(&disk, &stray, content);
                }
                if round == 2 {
                    log.close().unwrap();
                    continue;
                }
                disk.power_cut(Persist::Everything);
                drop(log);
                disk.power_on();
                assert!(verify(DIR, &driven(&disk).0).unwrap().corruption.is_empty());
                assert!(repair(DIR, &driven(&disk).0).unwrap().quarantined.is_empty());
            }
            let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
            assert_eq!(all(&log), payloads(1..=9));
            log.close().unwrap();
            assert_eq!(disk.contents(&stray).unwrap(), content);
        }
    }
}

#[test]
fn a_directory_under_the_name_of_a_dead_segment_is_passed_over() {
    let (log, disk, _) = log();
    append(&log, 60);
    log.retention().truncate_before(50).unwrap();
    disk.power_cut(Persist::Everything);
    drop(log);
    disk.power_on();
    let name = Path::new(DIR).join(format!("{:020}.seg", 1));
    assert!(!segments(&disk, DIR).contains(&name), "the first segment left the log");
    disk.create_dir(&name).unwrap();
    for _ in 0..2 {
        let before = segments(&disk, DIR).len();
        let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
        assert_eq!((log.oldest().0, log.durable().0), (50, 60));
        log.close().unwrap();
        assert!(segments(&disk, DIR).len() <= before + 1);
        assert!(verify(DIR, &driven(&disk).0).unwrap().corruption.is_empty());
    }
}
