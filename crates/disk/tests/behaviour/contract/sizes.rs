//! Cutting, extending and reserving.

use esker_disk::{BLOCK_BYTES, OpenMode, read_full_at, write_all_at};

use crate::on_each::{self, ByPath};

#[test]
fn a_cut_file_grows_again_with_zeros() {
    on_each::disk(|disk, dir| {
        let file = disk.open(&dir.join("a"), OpenMode::create()).unwrap();
        write_all_at(&*file, &[7; 3 * BLOCK_BYTES], 0).unwrap();
        for synced in [false, true] {
            if synced {
                file.sync_data().unwrap();
            }
            file.set_len(100).unwrap();
            assert_eq!(file.len().unwrap(), 100);
            file.set_len(2 * BLOCK_BYTES as u64).unwrap();
            let mut buf = vec![9; 3 * BLOCK_BYTES];
            assert_eq!(read_full_at(&*file, &mut buf, 0).unwrap(), 2 * BLOCK_BYTES);
            assert!(buf[..100].iter().all(|byte| *byte == 7));
            assert!(buf[100..2 * BLOCK_BYTES].iter().all(|byte| *byte == 0));
            write_all_at(&*file, &[7; 3 * BLOCK_BYTES], 0).unwrap();
        }
    });
}

#[test]
fn reserved_space_reads_as_zeros_and_what_was_written_stays() {
    on_each::disk(|disk, dir| {
        let file = disk.open(&dir.join("a"), OpenMode::create()).unwrap();
        write_all_at(&*file, b"kept", 0).unwrap();
        file.preallocate(0, 64 * BLOCK_BYTES as u64).unwrap();
        assert_eq!(file.len().unwrap(), 64 * BLOCK_BYTES as u64, "the file is extended");
        file.preallocate(0, BLOCK_BYTES as u64).unwrap();
        file.preallocate(5, 0).unwrap();
        assert_eq!(file.len().unwrap(), 64 * BLOCK_BYTES as u64, "and never cut");
        let mut buf = vec![9; 2 * BLOCK_BYTES];
        read_full_at(&*file, &mut buf, 0).unwrap();
        assert_eq!(&buf[..4], b"kept");
        assert!(buf[4..].iter().all(|byte| *byte == 0));
    });
}
