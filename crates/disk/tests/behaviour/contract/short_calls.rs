//! Reads and writes that stop early are finished, on ordinary and on direct files.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use esker_disk::sim::{Effect, Fault, SimDisk};
use esker_disk::{AlignedBuf, BLOCK_BYTES, File, Op, OpenMode, read_full_at, write_all_at};

use crate::on_each::{self, ByPath};

/// No two of its words are the same, so that nothing can land in a wrong place unseen.
fn words(blocks: usize) -> AlignedBuf {
    let mut buf = AlignedBuf::new(blocks * BLOCK_BYTES);
    for (i, word) in buf.chunks_mut(4).enumerate() {
        word.copy_from_slice(&(i as u32 + 1).to_le_bytes());
    }
    buf
}

fn goes_and_comes(file: &dyn File) {
    let sent = words(20);
    write_all_at(file, &sent, BLOCK_BYTES as u64).unwrap();
    let mut back = AlignedBuf::new(sent.len());
    assert_eq!(read_full_at(file, &mut back, BLOCK_BYTES as u64).unwrap(), sent.len());
    assert!(back[..] == sent[..]);
}

#[test]
fn random_short_calls_are_finished() {
    for direct in [false, true] {
        let mut faults = 0;
        for seed in 0..50 {
            let disk = SimDisk::new(seed);
            disk.inject(Fault::on(Op::Write, Effect::Short(None)).percent(70));
            disk.inject(Fault::on(Op::Read, Effect::Short(None)).percent(70));
            let file = disk.open(Path::new("a"), OpenMode::create().direct(direct)).unwrap();
            goes_and_comes(&*file);
            faults += disk.stats().faults;
        }
        assert!(faults > 100, "the faults struck");
    }
}

#[test]
fn one_byte_at_a_time() {
    let disk = SimDisk::new(1);
    disk.inject(Fault::on(Op::Write, Effect::Short(Some(1))));
    disk.inject(Fault::on(Op::Read, Effect::Short(Some(1))));
    let file = disk.open(Path::new("a"), OpenMode::create()).unwrap();
    write_all_at(&*file, b"letters", 3).unwrap();
    let mut back = [0; 7];
    assert_eq!(read_full_at(&*file, &mut back, 3).unwrap(), 7);
    assert_eq!(&back, b"letters");
}

#[test]
fn a_direct_file_continues_at_a_whole_block() {
    let disk = SimDisk::new(1);
    disk.inject(Fault::on(Op::Write, Effect::Short(Some(BLOCK_BYTES + 512))).times(5));
    disk.inject(Fault::on(Op::Read, Effect::Short(Some(2 * BLOCK_BYTES + 7))).times(5));
    let file = disk.open(Path::new("a"), OpenMode::create().direct(true)).unwrap();
    goes_and_comes(&*file);
    assert_eq!(disk.stats().faults, 10);
}

#[test]
fn a_direct_read_ends_at_an_odd_end_of_file() {
    let disk = SimDisk::new(1);
    let plain = disk.open(Path::new("a"), OpenMode::create()).unwrap();
    write_all_at(&*plain, &[7; BLOCK_BYTES + 100], 0).unwrap();
    let file = disk.open(Path::new("a"), OpenMode::read().direct(true)).unwrap();
    let mut buf = AlignedBuf::new(4 * BLOCK_BYTES);
    assert_eq!(read_full_at(&*file, &mut buf, 0).unwrap(), BLOCK_BYTES + 100);
    assert_eq!(disk.stats().reads, 1);
}

#[test]
fn no_progress_is_an_error_and_not_a_loop() {
    for (direct, most) in [(false, 0), (true, 0), (true, 512)] {
        let disk = SimDisk::new(1);
        let file = disk.open(Path::new("a"), OpenMode::create().direct(direct)).unwrap();
        write_all_at(&*file, &on_each::blocks(2, 1), 0).unwrap();
        disk.inject(Fault::on(Op::Write, Effect::Short(Some(most))));
        disk.inject(Fault::on(Op::Read, Effect::Short(Some(most))));
        let error = write_all_at(&*file, &on_each::blocks(2, 1), 0).unwrap_err();
        assert_eq!((error.op(), error.kind()), (Op::Write, std::io::ErrorKind::WriteZero));
        let mut buf = AlignedBuf::new(2 * BLOCK_BYTES);
        match read_full_at(&*file, &mut buf, 0) {
            Ok(got) => assert_eq!((got, most), (0, 0), "no bytes mean the end of the file"),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::Interrupted),
        }
        assert!(disk.stats().faults < 20);
    }
}
