//! A power cut at every call of the disk while a snapshot is written, replaced, received or
//! removed.
#![allow(clippy::unwrap_used, clippy::panic)]

use esker_disk::sim::{CutPoint, Persist, SimDisk};
use esker_log::{Log, Result};

use crate::fixture::{DIR, append, driven};
use crate::snapshots::transfer::send;
use crate::snapshots::{CHUNK, content, read, write};

fn open(disk: &SimDisk) -> Result<Log> {
    Log::builder(DIR).options(driven(disk).0).open().map_err(Into::into)
}

/// Runs `change` on forks of the disk, with a cut at every call that it makes, and then `check`
/// with whether it had returned. What recovery finds is checked again after a second cut.
fn at_every_call(
    disk: &SimDisk,
    change: impl Fn(&Log) -> Result<()>,
    check: impl Fn(&Log, bool, u64),
) -> u64 {
    for cut in 0.. {
        let disk = disk.fork(cut);
        let log = open(&disk).unwrap();
        let how = [Persist::Random, Persist::Nothing, Persist::Torn, Persist::Everything];
        let how = how[cut as usize % how.len()];
        disk.cut_power_at(CutPoint::During(disk.operations() + cut / 4), how);
        let done = change(&log).is_ok();
        drop(log);
        if disk.is_on() {
            return cut / 4;
        }
        disk.cancel_cut();
        disk.power_on();
        let log = open(&disk).unwrap();
        check(&log, done, cut);
        drop(log);
        disk.power_cut(Persist::Random);
        disk.power_on();
        check(&open(&disk).unwrap(), done, cut);
    }
    unreachable!("some run is not cut")
}

#[test]
fn a_cut_while_a_snapshot_is_replaced_leaves_the_old_or_the_new() {
    let disk = SimDisk::new(1);
    let log = open(&disk).unwrap();
    append(&log, 2);
    let (old, new) = (content(5, 9000), content(6, CHUNK + 70_000));
    write(&log, 5, &old).unwrap();
    log.close().unwrap();
    let calls = at_every_call(
        &disk,
        |log| write(log, 5, &new).map(drop),
        |log, done, cut| {
            let found = read(log, 5).unwrap().unwrap();
            assert!(found == new || (found == old && !done), "cut {cut}, {done}");
            assert_eq!(log.snapshots().list().unwrap(), [5]);
        },
    );
    assert!(calls > 8, "{calls}");
}

#[test]
fn a_cut_while_a_snapshot_is_removed_leaves_it_whole_or_not_at_all() {
    let disk = SimDisk::new(1);
    let log = open(&disk).unwrap();
    let state = content(5, 9000);
    write(&log, 5, &state).unwrap();
    write(&log, 6, &state).unwrap();
    log.close().unwrap();
    at_every_call(
        &disk,
        |log| log.snapshots().remove(5).map_err(Into::into),
        |log, done, cut| {
            let found = read(log, 5).unwrap();
            assert!(found.is_none() || (!done && found.as_ref() == Some(&state)), "cut {cut}");
            assert_eq!(read(log, 6).unwrap().as_ref(), Some(&state));
        },
    );
}

/// A cut anywhere in a transfer: what was published is whole, and the transfer can continue.
#[test]
fn a_cut_while_a_snapshot_is_received_leaves_it_whole_or_resumable() {
    let from = SimDisk::new(2);
    let sender = open(&from).unwrap();
    let state = content(9, 2 * CHUNK + 5000);
    write(&sender, 9, &state).unwrap();
    let disk = SimDisk::new(1);
    open(&disk).unwrap().close().unwrap();
    let calls = at_every_call(
        &disk,
        |log| send(&sender, 9, log, u32::MAX).map(drop),
        |log, done, cut| {
            match read(log, 9).unwrap() {
                Some(found) => assert!(found == state, "cut {cut}"),
                None => assert!(!done, "cut {cut}"),
            }
            send(&sender, 9, log, u32::MAX).unwrap();
            assert!(read(log, 9).unwrap().unwrap() == state, "cut {cut}");
        },
    );
    assert!(calls > 10, "{calls}");
}
