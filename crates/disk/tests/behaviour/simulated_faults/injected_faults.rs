//! Which call a fault strikes, and what misdirected, lost, rotten, slow and held calls do.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::Duration;

use esker_disk::sim::{Effect, Fault, Gate, Persist, SimDisk};
use esker_disk::{AlignedBuf, BLOCK_BYTES, File, Op, OpenMode, read_full_at, write_all_at};
use std::sync::Arc;

use crate::by_path::ByPath;

const PATH: &str = "/a";
const SOON: Duration = Duration::from_secs(60);

/// Four durable blocks: 1, 2, 3, 4.
fn four_blocks(disk: &SimDisk) -> Arc<dyn File> {
    let file = disk.open(Path::new(PATH), OpenMode::create()).unwrap();
    for byte in 1..=4_u8 {
        write_all_at(&*file, &[byte; BLOCK_BYTES], (u64::from(byte) - 1) * BLOCK_BYTES as u64)
            .unwrap();
    }
    file.sync_data().unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    file
}

/// The first byte of each block.
fn firsts(disk: &SimDisk) -> Vec<u8> {
    let bytes = disk.contents(Path::new(PATH)).unwrap();
    bytes.chunks(BLOCK_BYTES).map(|block| block[0]).collect()
}

#[test]
fn the_nth_call_on_a_matching_path() {
    let disk = SimDisk::new(1);
    disk.inject(Fault::on(Op::Write, Effect::Io).path("seg-").nth(2));
    let seg = disk.open(Path::new("/seg-1"), OpenMode::create()).unwrap();
    let other = disk.open(Path::new("/other"), OpenMode::create()).unwrap();
    let failed = |file: &Arc<dyn File>| file.write_at(b"x", 0).is_err();
    assert_eq!([&other, &seg, &other, &seg, &seg].map(failed), [false, false, false, true, false]);

    disk.inject(Fault::on(Op::Sync, Effect::Io).after(1).times(2));
    let synced: Vec<bool> = (0..5).map(|_| seg.sync_data().is_ok()).collect();
    assert_eq!(synced, [true, false, false, true, true]);

    disk.inject(Fault::on(Op::Sync, Effect::Io));
    disk.clear_faults();
    seg.sync_data().unwrap();
    assert_eq!(disk.stats().faults, 3);

    disk.inject(Fault::on(Op::Sync, Effect::Io).percent(50));
    let failed = (0..200).filter(|_| seg.sync_data().is_err()).count();
    assert!((50..150).contains(&failed), "{failed}");
}

#[test]
fn no_space_strikes_only_what_takes_space() {
    let disk = SimDisk::new(1);
    let file = four_blocks(&disk);
    for op in [Op::Open, Op::Write, Op::Size, Op::Read, Op::Sync] {
        disk.inject(Fault::on(op, Effect::NoSpace));
    }
    disk.open(Path::new(PATH), OpenMode::create()).unwrap();
    file.read_at(&mut [0], 0).unwrap();
    file.sync_data().unwrap();
    for error in [
        disk.open(Path::new("/new"), OpenMode::create()).unwrap_err(),
        file.write_at(b"x", 0).unwrap_err(),
        file.preallocate(0, 1).unwrap_err(),
    ] {
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    }
    assert_eq!(firsts(&disk), [1, 2, 3, 4]);
}

#[test]
fn a_misdirected_write_lands_on_another_block() {
    let mut hit = std::collections::BTreeSet::new();
    for seed in 0..100 {
        let disk = SimDisk::new(seed);
        let file = four_blocks(&disk);
        disk.inject(Fault::on(Op::Write, Effect::Misdirect).nth(1));
        assert_eq!(file.write_at(&[9; BLOCK_BYTES], BLOCK_BYTES as u64).unwrap(), BLOCK_BYTES);
        let found = firsts(&disk);
        assert_eq!(found[1], 2, "not where it should");
        hit.insert(found.iter().position(|byte| *byte == 9).unwrap());
    }
    assert_eq!(hit, [0, 2, 3, 4].into());
}

#[test]
fn a_misdirected_read_gives_another_block() {
    let disk = SimDisk::new(1);
    let file = four_blocks(&disk);
    disk.inject(Fault::on(Op::Read, Effect::Misdirect).nth(1));
    let mut buf = vec![0; BLOCK_BYTES];
    file.read_at(&mut buf, 0).unwrap();
    assert_ne!(buf[0], 1);
    assert_eq!(firsts(&disk), [1, 2, 3, 4]);
}

#[test]
fn a_lost_write_is_reported_done_and_was_not() {
    for dsync in [false, true] {
        let disk = SimDisk::new(1);
        four_blocks(&disk);
        let file = disk.open(Path::new(PATH), OpenMode::write().dsync(dsync)).unwrap();
        disk.inject(Fault::on(Op::Write, Effect::Lost).times(2));
        assert_eq!(file.write_at(&[9; BLOCK_BYTES], BLOCK_BYTES as u64).unwrap(), BLOCK_BYTES);
        assert_eq!(file.write_at(&[9; BLOCK_BYTES], 4 * BLOCK_BYTES as u64).unwrap(), BLOCK_BYTES);
        assert_eq!(firsts(&disk), [1, 2, 3, 4, 0], "the file grows all the same");
    }
}

#[test]
fn a_lost_sync_is_reported_done_and_was_not() {
    let disk = SimDisk::new(1);
    let file = four_blocks(&disk);
    disk.inject(Fault::on(Op::Sync, Effect::Lost));
    disk.inject(Fault::on(Op::SyncDir, Effect::Lost));
    write_all_at(&*file, &[9; BLOCK_BYTES], 0).unwrap();
    disk.open(Path::new("/b"), OpenMode::create()).unwrap();
    file.sync_data().unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    disk.power_cut(Persist::Nothing);
    assert_eq!(firsts(&disk), [1, 2, 3, 4]);
    assert_eq!(disk.files(Path::new("/")).unwrap(), ["a"]);
}

#[test]
fn flipped_bit_is_persistent() {
    let flipped = |disk: &SimDisk| -> u32 {
        let bytes = disk.contents(Path::new(PATH)).unwrap();
        let good = |i: usize| (i / BLOCK_BYTES + 1) as u8;
        bytes.iter().enumerate().map(|(i, byte)| (byte ^ good(i)).count_ones()).sum()
    };
    let disk = SimDisk::new(1);
    let file = four_blocks(&disk);
    disk.inject(Fault::on(Op::Read, Effect::BitRot(Some(13))).nth(1));
    let mut buf = [0; 16];
    file.read_at(&mut buf, BLOCK_BYTES as u64).unwrap();
    assert_eq!(buf[..3], [2, 2 ^ 1 << 5, 2]);
    assert_eq!(flipped(&disk), 1);

    disk.inject(Fault::on(Op::Write, Effect::BitRot(None)).nth(1));
    write_all_at(&*file, &[3; BLOCK_BYTES], 2 * BLOCK_BYTES as u64).unwrap();
    assert_eq!(flipped(&disk), 2);
    disk.flip_bit(Path::new(PATH), 0).unwrap();
    disk.power_cut(Persist::Nothing);
    assert!(flipped(&disk) >= 2, "on the medium, too");
}

#[test]
fn manual_corruption_changes_medium_and_cache() {
    let disk = SimDisk::new(1);
    let file = four_blocks(&disk);
    disk.overwrite(Path::new(PATH), BLOCK_BYTES as u64 - 1, &[7, 7]).unwrap();
    disk.overwrite(Path::new(PATH), 4 * BLOCK_BYTES as u64, &[8; 10]).unwrap();
    for cut in [false, true] {
        if cut {
            disk.power_cut(Persist::Nothing);
        } else {
            let mut buf = [0; 4];
            read_full_at(&*file, &mut buf, BLOCK_BYTES as u64 - 2).unwrap();
            assert_eq!(buf, [1, 7, 7, 2]);
        }
        let found = disk.contents(Path::new(PATH)).unwrap();
        assert_eq!(found[BLOCK_BYTES - 2..BLOCK_BYTES + 2], [1, 7, 7, 2]);
        assert_eq!(found[4 * BLOCK_BYTES..], [8; 10]);
    }
    disk.truncate(Path::new(PATH), 5).unwrap();
    assert_eq!(disk.durable_contents(Path::new(PATH)).unwrap(), [1; 5]);
}

#[test]
fn a_slow_call_moves_the_clock_and_blocks_no_thread() {
    let disk = SimDisk::new(1);
    let file = four_blocks(&disk);
    disk.inject(Fault::on(Op::Sync, Effect::Slow(Duration::from_secs(3600))));
    file.sync_data().unwrap();
    file.sync_data().unwrap();
    assert_eq!(disk.clock(), Duration::from_secs(7200));
}

#[test]
fn a_gate_holds_a_call_before_it_acts_or_before_it_returns() {
    for acts_first in [false, true] {
        let disk = SimDisk::new(1);
        let file = four_blocks(&disk);
        let gate = Gate::new();
        let hold = if acts_first { Effect::BlockReturn } else { Effect::Block };
        disk.inject(Fault::on(Op::Write, hold(gate.clone())).nth(1));
        std::thread::scope(|scope| {
            let held = scope.spawn(|| file.write_at(&[9; BLOCK_BYTES], 0));
            assert!(gate.wait_for(1, SOON));
            let during = firsts(&disk)[0];
            assert_eq!(during, if acts_first { 9 } else { 1 });
            assert!(!held.is_finished());
            gate.open();
            assert_eq!(held.join().unwrap().unwrap(), BLOCK_BYTES);
        });
        assert_eq!((firsts(&disk)[0], gate.waiting()), (9, 0));
    }
}

#[test]
fn a_held_call_fails_when_the_power_goes() {
    let disk = SimDisk::new(1);
    let file = four_blocks(&disk);
    let gate = Gate::new();
    disk.inject(Fault::on(Op::Write, Effect::Block(gate.clone())));
    std::thread::scope(|scope| {
        let held = scope.spawn(|| file.write_at(&[9; BLOCK_BYTES], 0));
        assert!(gate.wait_for(1, SOON));
        disk.power_cut(Persist::Everything);
        disk.power_on();
        let error = held.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
    });
    assert_eq!(firsts(&disk), [1, 2, 3, 4], "it never acted");
}

#[test]
fn calls_are_counted() {
    let disk = SimDisk::new(1);
    let file = four_blocks(&disk);
    let durable = disk.open(Path::new(PATH), OpenMode::write().direct(true).dsync(true)).unwrap();
    write_all_at(&*durable, &AlignedBuf::new(2 * BLOCK_BYTES), 0).unwrap();
    file.read_at(&mut [0; 100], 0).unwrap();
    let stats = disk.stats();
    assert_eq!((stats.writes, stats.bytes_written), (5, 6 * BLOCK_BYTES as u64));
    assert_eq!((stats.dsync_writes, stats.dsync_bytes), (1, 2 * BLOCK_BYTES as u64));
    assert_eq!((stats.direct_writes, stats.direct_bytes), (1, 2 * BLOCK_BYTES as u64));
    assert_eq!((stats.reads, stats.bytes_read), (1, 100));
    assert_eq!((stats.syncs, stats.dir_syncs, stats.creates), (1, 1, 1));
}
