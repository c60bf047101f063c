//! A disk with a capacity: what does not fit fails with ENOSPC, reserved space can always be
//! written.

use std::io::ErrorKind;
use std::path::Path;

use esker_disk::sim::{SimDisk, SimOptions};
use esker_disk::{BLOCK_BYTES, OpenMode, write_all_at};

use crate::by_path::ByPath;

const BLOCK_U64: u64 = BLOCK_BYTES as u64;

fn disk_of(blocks: u64) -> SimDisk {
    SimDisk::with(SimOptions::new(1).capacity(blocks * BLOCK_U64))
}

#[test]
fn a_write_takes_what_fits_and_then_fails() {
    let disk = disk_of(3);
    let file = disk.open(Path::new("/a"), OpenMode::create()).unwrap();
    assert_eq!(file.write_at(&[1; 5 * BLOCK_BYTES], 100).unwrap(), 3 * BLOCK_BYTES - 100);
    let error = file.write_at(&[1; 10], 3 * BLOCK_U64).unwrap_err();
    assert_eq!((error.kind(), error.os_code()), (ErrorKind::StorageFull, Some(28)));
    write_all_at(&*file, &[2; BLOCK_BYTES], 0).unwrap();
    assert_eq!(disk.used(), 3 * BLOCK_U64, "overwriting takes no space");
}

#[test]
fn reserved_space_is_there_when_it_is_written() {
    let disk = disk_of(4);
    let a = disk.open(Path::new("/a"), OpenMode::create()).unwrap();
    let b = disk.open(Path::new("/b"), OpenMode::create()).unwrap();
    a.preallocate(0, 3 * BLOCK_U64).unwrap();
    assert_eq!(b.preallocate(0, 2 * BLOCK_U64).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(b.len().unwrap(), BLOCK_U64, "a part stays reserved, as on ext4");
    b.set_len(0).unwrap();
    write_all_at(&*b, &[1; BLOCK_BYTES], 0).unwrap();
    assert_eq!(b.write_at(&[1], BLOCK_U64).unwrap_err().kind(), ErrorKind::StorageFull);
    write_all_at(&*a, &[1; 3 * BLOCK_BYTES], 0).unwrap();
}

#[test]
fn space_comes_back_with_a_cut_an_unlink_and_the_last_close() {
    let disk = disk_of(4);
    let a = disk.open(Path::new("/a"), OpenMode::create()).unwrap();
    write_all_at(&*a, &[1; 4 * BLOCK_BYTES], 0).unwrap();
    a.set_len(BLOCK_U64 + 1).unwrap();
    assert_eq!(disk.used(), 2 * BLOCK_U64);
    disk.unlink(Path::new("/a")).unwrap();
    assert_eq!(disk.used(), 2 * BLOCK_U64, "still open");
    drop(a);
    assert_eq!(disk.used(), 0);
    disk.set_capacity(None);
    let b = disk.open(Path::new("/b"), OpenMode::create()).unwrap();
    write_all_at(&*b, &[1; 50 * BLOCK_BYTES], 0).unwrap();
}
