//! An error says which operation failed on which file, and keeps the kind and number of the system.

use std::io::ErrorKind;
use std::path::Path;

use esker_disk::sim::{Effect, Fault, SimDisk};
use esker_disk::{BLOCK_BYTES, Disk, Op, OpenMode, write_all_at};

use crate::on_each::{self, ByPath};

const ENOENT: i32 = 2;
const EIO: i32 = 5;
const EBADF: i32 = 9;
const EEXIST: i32 = 17;
const EINVAL: i32 = 22;

#[test]
fn missing_existing_and_read_only() {
    on_each::disk(|disk, dir| {
        let (a, b) = (dir.join("a"), dir.join("b"));
        let error = disk.open(&a, OpenMode::write()).unwrap_err();
        assert_eq!((error.op(), error.kind()), (Op::Open, ErrorKind::NotFound));
        assert_eq!((error.os_code(), error.path()), (Some(ENOENT), a.clone()));
        assert_eq!(
            disk.open(&dir.join("no/a"), OpenMode::create()).unwrap_err().os_code(),
            Some(ENOENT)
        );

        let _made = disk.open(&a, OpenMode::create_new()).unwrap();
        let error = disk.open(&a, OpenMode::create_new()).unwrap_err();
        assert_eq!((error.kind(), error.os_code()), (ErrorKind::AlreadyExists, Some(EEXIST)));

        let reader = disk.open(&a, OpenMode::read()).unwrap();
        let error = write_all_at(&*reader, b"x", 7).unwrap_err();
        assert_eq!(
            (error.op(), error.os_code(), error.offset()),
            (Op::Write, Some(EBADF), Some(7))
        );

        for (op, failed) in [
            (Op::Unlink, disk.unlink(&b).unwrap_err()),
            (Op::Rename, disk.rename(&b, &a).unwrap_err()),
            (Op::OpenDir, disk.sync_dir(&b).unwrap_err()),
            (Op::OpenDir, disk.list(&b).unwrap_err()),
            (Op::OpenDir, disk.facts(&b).unwrap_err()),
        ] {
            assert_eq!((failed.op(), failed.os_code()), (op, Some(ENOENT)));
            assert!(failed.to_string().contains(b.to_str().unwrap()), "{failed}");
        }
        assert_eq!(disk.sync_dir(&a).unwrap_err().kind(), ErrorKind::NotADirectory);
        assert_eq!(disk.list(&a).unwrap_err().kind(), ErrorKind::NotADirectory);
        assert_eq!(disk.unlink(dir).unwrap_err().kind(), ErrorKind::IsADirectory);
    });
}

#[test]
fn a_direct_call_that_is_not_aligned() {
    on_each::disk(|disk, dir| {
        if !disk.facts(dir).unwrap().direct {
            return on_each::skip(disk, dir, "alignment of direct calls");
        }
        let file = disk.open(&dir.join("a"), OpenMode::create().direct(true)).unwrap();
        let mut buf = on_each::blocks(2, 1);
        for (range, offset) in [(0..BLOCK_BYTES, 512), (0..512, 0), (8..8 + BLOCK_BYTES, 0)] {
            let error = file.write_at(&buf[range.clone()], offset).unwrap_err();
            assert_eq!((error.op(), error.kind()), (Op::Write, ErrorKind::InvalidInput));
            let error = file.read_at(&mut buf[range], offset).unwrap_err();
            assert_eq!((error.op(), error.kind()), (Op::Read, ErrorKind::InvalidInput));
        }
        assert!(file.is_direct() && file.is_empty().unwrap());
    });
}

#[test]
fn a_file_system_that_refuses_direct_io() {
    let refuses = SimDisk::with(esker_disk::sim::SimOptions::new(1).direct(false).dsync(false));
    let facts = refuses.facts(Path::new("/")).unwrap();
    assert!(!facts.direct && !facts.dsync);
    for how in [OpenMode::create().direct(true), OpenMode::create().dsync(true)] {
        let error = refuses.open(Path::new("a"), how).unwrap_err();
        assert_eq!((error.kind(), error.os_code()), (ErrorKind::InvalidInput, Some(EINVAL)));
    }
    assert!(refuses.list(Path::new("/")).unwrap().is_empty());
}

#[test]
fn an_injected_error_on_every_operation() {
    let path = Path::new("/a");
    for (effect, code) in [(Effect::Io, EIO), (Effect::Os(13), 13)] {
        for op in [Op::Open, Op::Read, Op::Write, Op::Sync, Op::Size, Op::Rename, Op::Unlink] {
            let disk = SimDisk::new(1);
            let file = disk.open(path, OpenMode::create()).unwrap();
            write_all_at(&*file, b"x", 0).unwrap();
            disk.inject(Fault::on(op, effect.clone()));
            let done = match op {
                Op::Open => disk.open(path, OpenMode::read()).map(drop),
                Op::Read => file.read_at(&mut [0], 0).map(drop),
                Op::Write => file.write_at(b"y", 0).map(drop),
                Op::Sync => file.sync_data(),
                Op::Size => file.preallocate(0, 10),
                Op::Rename => disk.rename(path, Path::new("/b")),
                _ => disk.unlink(path),
            };
            let error = done.unwrap_err();
            assert_eq!((error.op(), error.os_code()), (op, Some(code)));
            assert_eq!(disk.files(Path::new("/")).unwrap(), ["a"], "{op}: nothing else happened");
        }
        let disk = SimDisk::new(1);
        for op in [Op::SyncDir, Op::CreateDir, Op::List, Op::Lock] {
            disk.inject(Fault::on(op, effect.clone()));
        }
        let root = Path::new("/");
        assert_eq!(disk.sync_dir(root).unwrap_err().os_code(), Some(code));
        assert_eq!(disk.create_dir(Path::new("/d")).unwrap_err().os_code(), Some(code));
        assert_eq!(disk.list(root).unwrap_err().os_code(), Some(code));
        assert_eq!(disk.lock(root).unwrap_err().os_code(), Some(code));
    }
}
