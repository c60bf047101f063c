//! Written bytes can be read, where they were written and nowhere else.

use esker_disk::{BLOCK_BYTES, OpenMode, Read, read_full_at, write_all_at};

use crate::on_each::{self, ByPath};

#[test]
fn bytes_come_back_from_where_they_were_put() {
    on_each::disk(|disk, dir| {
        let file = disk.open(&dir.join("a"), OpenMode::create_new()).unwrap();
        write_all_at(&*file, b"first", 0).unwrap();
        write_all_at(&*file, b"across a border", BLOCK_BYTES as u64 - 3).unwrap();
        write_all_at(&*file, b"FI", 0).unwrap();

        let mut buf = vec![9; 2 * BLOCK_BYTES];
        assert_eq!(read_full_at(&*file, &mut buf, 0).unwrap(), BLOCK_BYTES + 12);
        assert_eq!(&buf[..5], b"FIrst");
        assert!(buf[5..BLOCK_BYTES - 3].iter().all(|byte| *byte == 0), "the gap reads as zeros");
        assert_eq!(&buf[BLOCK_BYTES - 3..BLOCK_BYTES + 12], b"across a border");
        assert!(buf[BLOCK_BYTES + 12..].iter().all(|byte| *byte == 9), "nothing past the end");
    });
}

/// As many reads as one thread runs, and more; each of another file and length.
#[test]
fn each_of_many_reads_has_its_own_result() {
    on_each::disk(|disk, dir| {
        for count in [0, 1, 3, 4, 5, 8, 9, 40, 100] {
            let files: Vec<_> = (0..count)
                .map(|n| {
                    let name = dir.join(format!("{count}-{n}"));
                    let file = disk.open(&name, OpenMode::create_new()).unwrap();
                    write_all_at(&*file, &vec![n as u8; n], 10).unwrap();
                    file
                })
                .collect();
            let mut bytes = vec![[200; 60]; count];
            let mut reads: Vec<_> = files
                .iter()
                .zip(&mut bytes)
                .map(|(file, buf)| Read { file: &**file, buf, offset: 10 })
                .collect();
            let results = disk.open_dir(dir).unwrap().read_each(&mut reads);
            assert_eq!(results.len(), count);
            for (n, (result, bytes)) in results.into_iter().zip(bytes).enumerate() {
                let got = n.min(60);
                assert_eq!(result.unwrap(), got, "{n} of {count}");
                assert!(bytes[..got].iter().all(|byte| *byte == n as u8), "{n} of {count}");
                assert!(bytes[got..].iter().all(|byte| *byte == 200), "{n} of {count}");
            }
        }
    });
}

#[test]
fn two_handles_are_one_file() {
    on_each::disk(|disk, dir| {
        let writer = disk.open(&dir.join("a"), OpenMode::create()).unwrap();
        let reader = disk.open(&dir.join("a"), OpenMode::read()).unwrap();
        assert!(reader.is_empty().unwrap());
        write_all_at(&*writer, b"seen", 0).unwrap();
        let mut buf = [0; 4];
        assert_eq!(read_full_at(&*reader, &mut buf, 0).unwrap(), 4);
        assert_eq!((&buf, reader.len().unwrap()), (b"seen", 4));
    });
}

#[test]
fn reads_past_the_end_return_nothing() {
    on_each::disk(|disk, dir| {
        let file = disk.open(&dir.join("a"), OpenMode::create()).unwrap();
        write_all_at(&*file, b"abc", 0).unwrap();
        let mut buf = [0; 8];
        assert_eq!(file.read_at(&mut buf, 3).unwrap(), 0);
        assert_eq!(file.read_at(&mut buf, 1 << 40).unwrap(), 0);
        assert_eq!(file.read_at(&mut buf, 2).unwrap(), 1);
    });
}

#[test]
fn an_unlinked_file_lives_while_it_is_open() {
    on_each::disk(|disk, dir| {
        let path = dir.join("a");
        let file = disk.open(&path, OpenMode::create()).unwrap();
        write_all_at(&*file, b"still here", 0).unwrap();
        disk.unlink(&path).unwrap();
        let new = disk.open(&path, OpenMode::create_new()).unwrap();
        let mut buf = [0; 10];
        assert_eq!(read_full_at(&*file, &mut buf, 0).unwrap(), 10);
        assert_eq!(&buf, b"still here");
        assert!(new.is_empty().unwrap());
    });
}
