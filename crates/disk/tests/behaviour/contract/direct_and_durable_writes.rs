//! Files opened past the page cache, with durable writes, and both.

use esker_disk::{AlignedBuf, BLOCK_BYTES, OpenMode, StdDisk, read_full_at, write_all_at};

use crate::on_each::{self, ByPath};

#[test]
fn direct_and_durable_writes_are_read_back() {
    on_each::disk(|disk, dir| {
        let facts = disk.facts(dir).unwrap();
        for (direct, dsync) in [(true, false), (false, true), (true, true)] {
            if direct && !facts.direct || dsync && !facts.dsync {
                on_each::skip(disk, dir, &format!("direct {direct}, dsync {dsync}"));
                continue;
            }
            let path = dir.join(format!("{direct}-{dsync}"));
            let file = disk.open(&path, OpenMode::create().direct(direct).dsync(dsync)).unwrap();
            assert_eq!(file.is_direct(), direct);
            write_all_at(&*file, &on_each::blocks(4, 7), 0).unwrap();
            write_all_at(&*file, &on_each::blocks(1, 8), BLOCK_BYTES as u64).unwrap();
            let plain = disk.open(&path, OpenMode::write()).unwrap();
            for reader in [&file, &plain] {
                let mut back = AlignedBuf::new(8 * BLOCK_BYTES);
                assert_eq!(read_full_at(&**reader, &mut back, 0).unwrap(), 4 * BLOCK_BYTES);
                assert!(back[..BLOCK_BYTES].iter().all(|byte| *byte == 7));
                assert!(back[BLOCK_BYTES..2 * BLOCK_BYTES].iter().all(|byte| *byte == 8));
            }
            write_all_at(&*plain, &[9; 10], 5).unwrap();
            let mut back = AlignedBuf::new(BLOCK_BYTES);
            read_full_at(&*file, &mut back, 0).unwrap();
            assert_eq!(back[4..16], [7, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 7]);
        }
    });
}

#[test]
fn probing_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let facts = StdDisk::new().facts(dir.path()).unwrap();
    assert_eq!(facts.name, "std");
    assert!(StdDisk::new().list(dir.path()).unwrap().is_empty());
}

#[cfg(target_os = "linux")]
#[test]
fn a_directory_that_cannot_be_written_can_do_nothing() {
    let facts = StdDisk::new().facts(std::path::Path::new("/proc")).unwrap();
    assert!(!facts.direct && !facts.dsync);
}
