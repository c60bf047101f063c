//! The power can be cut at the border of every operation, and in the middle of it.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;

use esker_disk::sim::{CutPoint, Effect, Fault, Persist, SimDisk};
use esker_disk::{BLOCK_BYTES, Op, OpenMode, Result, read_full_at, write_all_at};

use crate::by_path::ByPath;

/// Seven operations: create, write, sync, sync directory, rename, write, resize.
fn history(disk: &SimDisk) -> Result<()> {
    let file = disk.open(Path::new("/a"), OpenMode::create())?;
    write_all_at(&*file, &[1; BLOCK_BYTES], 0)?;
    file.sync_data()?;
    disk.sync_dir(Path::new("/"))?;
    disk.rename(Path::new("/a"), Path::new("/b"))?;
    write_all_at(&*file, &[2; BLOCK_BYTES], 0)?;
    file.set_len(BLOCK_BYTES as u64 / 2)
}

/// The one file, as name, first byte and length, after a cut at this point.
fn left(point: CutPoint, persist: Persist) -> Option<(String, u8, usize)> {
    let disk = SimDisk::new(1);
    disk.cut_power_at(point, persist);
    assert_eq!(history(&disk).unwrap_err().kind(), ErrorKind::BrokenPipe);
    assert!(!disk.is_on());
    disk.power_on();
    let names = disk.list(Path::new("/")).unwrap();
    let name = names.first()?.clone();
    let bytes = disk.contents(&Path::new("/").join(&name)).unwrap();
    Some((name, bytes.first().copied().unwrap_or(0), bytes.len()))
}

#[test]
fn cut_before_an_operation_undoes_it_and_during_it_may_keep_any_part() {
    let a = |byte, len| Some(("a".to_owned(), byte, len));
    let b = |byte, len| Some(("b".to_owned(), byte, len));
    let disk = SimDisk::new(1);
    history(&disk).unwrap();
    assert_eq!(disk.operations(), 7);

    let before = |n| left(CutPoint::Before(n), Persist::Everything);
    assert_eq!(before(0), None);
    assert_eq!(before(1), a(0, 0));
    assert_eq!(before(2), a(1, BLOCK_BYTES));
    assert_eq!(before(4), a(1, BLOCK_BYTES));
    assert_eq!(before(5), b(1, BLOCK_BYTES));
    assert_eq!(before(6), b(2, BLOCK_BYTES));
    for n in 0..6 {
        assert_eq!(
            left(CutPoint::During(n), Persist::Everything),
            before(n + 1),
            "{n} took effect"
        );
    }
    assert_eq!(left(CutPoint::During(6), Persist::Everything), b(2, BLOCK_BYTES / 2));

    for n in 0..=3 {
        assert_eq!(left(CutPoint::During(n), Persist::Nothing), None, "{n} was not finished");
    }
    for n in 4..=6 {
        assert_eq!(left(CutPoint::During(n), Persist::Nothing), a(1, BLOCK_BYTES));
    }
}

#[test]
fn during_a_sync_any_subset_becomes_durable() {
    let mut kept = BTreeSet::new();
    for seed in 0..100 {
        let disk = SimDisk::new(seed);
        let file = disk.open(Path::new("/a"), OpenMode::create()).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        file.set_len(2 * BLOCK_BYTES as u64).unwrap();
        file.sync_data().unwrap();
        write_all_at(&*file, &[1; 2 * BLOCK_BYTES], 0).unwrap();
        disk.cut_power_at(CutPoint::During(disk.operations()), Persist::Random);
        assert_eq!(file.sync_data().unwrap_err().kind(), ErrorKind::BrokenPipe);
        let found = disk.contents(Path::new("/a")).unwrap();
        kept.insert((found[0] == 1, found[BLOCK_BYTES] == 1));
    }
    assert_eq!(kept.len(), 4, "{kept:?}");
}

#[test]
fn during_a_durable_write_any_subset_becomes_durable_and_after_it_all() {
    let mut kept = BTreeSet::new();
    for seed in 0..100 {
        let disk = SimDisk::new(seed);
        let file = disk.open(Path::new("/a"), OpenMode::create().dsync(true)).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        write_all_at(&*file, &[1; 2 * BLOCK_BYTES], 0).unwrap();
        let fork = disk.fork(seed);
        fork.power_cut(Persist::Nothing);
        assert!(fork.contents(Path::new("/a")).unwrap() == [1; 2 * BLOCK_BYTES], "it had returned");

        disk.cut_power_at(CutPoint::During(disk.operations()), Persist::Random);
        write_all_at(&*file, &[2; 2 * BLOCK_BYTES], 0).unwrap_err();
        let found = disk.contents(Path::new("/a")).unwrap();
        kept.insert((found[0] == 1, found[BLOCK_BYTES] == 1));
    }
    assert_eq!(kept.len(), 4, "{kept:?}");
}

#[test]
fn cut_during_a_read() {
    let disk = SimDisk::new(1);
    let file = disk.open(Path::new("/a"), OpenMode::create()).unwrap();
    write_all_at(&*file, &[1; 10], 0).unwrap();
    disk.cut_power_at(CutPoint::BeforeRead(disk.reads() + 1), Persist::Random);
    let mut buf = [0; 10];
    read_full_at(&*file, &mut buf, 0).unwrap();
    let error = read_full_at(&*file, &mut buf, 0).unwrap_err();
    assert_eq!((error.op(), error.kind()), (Op::Read, ErrorKind::BrokenPipe));
}

#[test]
fn cut_during_a_failing_operation() {
    for error in [false, true] {
        let disk = SimDisk::new(1);
        if error {
            disk.inject(Fault::on(Op::Unlink, Effect::Io));
        }
        disk.cut_power_at(CutPoint::During(0), Persist::Random);
        let failed = disk.unlink(Path::new("/missing")).unwrap_err();
        assert_eq!((failed.kind(), disk.is_on()), (ErrorKind::BrokenPipe, false));
    }
}

#[test]
fn planned_cut_can_be_cancelled() {
    let disk = SimDisk::new(1);
    disk.cut_power_at(CutPoint::Before(3), Persist::Random);
    disk.cancel_cut();
    history(&disk).unwrap();
}
