//! Wrong votes, bytes and snapshots are refused, with the state as it was.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use esker_consensus::{Ballot, ConsensusLog, Slot, SnapshotBounds, backup_log};
use esker_disk::Op;
use esker_disk::sim::{Effect, Fault, SimDisk};
use esker_raft::openraft::storage::{RaftLogStorage, RaftSnapshotBuilder, RaftStateMachine};
use esker_raft::openraft::{RaftLogReader, SnapshotMeta, StoredMembership};
use esker_raft::{LogStore, MachineStore};

use super::strings::{Lengths, Strings, append, entry, id, log_on, stores, vote};

/// The quarantined bytes may have been a vote.
#[tokio::test]
async fn a_repaired_log_is_refused() {
    let disk = SimDisk::new(1);
    let (mut log, _machine) = stores(log_on(&disk).unwrap());
    append(&mut log, (0..5).map(|index| entry(1, index)).collect()).await.unwrap().await.unwrap();
    log.save_vote(&vote(7, 1)).await.unwrap();
    let consensus = log.log().clone();
    drop((log, _machine));
    consensus.close().unwrap();
    let dir = Path::new("/raft");
    let names = disk.files(dir).unwrap();
    let segment = dir.join(names.iter().find(|name| name.ends_with(".seg")).unwrap());
    // The first unit after the header.
    disk.flip_bit(&segment, (4096 + 100) * 8).unwrap();
    assert!(log_on(&disk).is_err());
    esker_log::repair(dir, esker_log::Options::on(std::sync::Arc::new(disk.clone()))).unwrap();
    let refused = LogStore::<Strings>::new(log_on(&disk).unwrap()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidData);
    assert!(refused.to_string().contains("new number"), "{refused}");
}

/// The node of the original may have voted since. Under a new number, the vote and the entries of
/// the copy are kept.
#[tokio::test]
async fn a_copied_log_is_refused_until_it_is_renumbered() {
    let disk = SimDisk::new(1);
    let (mut log, _machine) = stores(log_on(&disk).unwrap());
    append(&mut log, (0..5).map(|index| entry(1, index)).collect()).await.unwrap().await.unwrap();
    log.save_vote(&vote(7, 1)).await.unwrap();
    let options = log.log().options().clone();
    // Beside its writer, a copy may be a few milliseconds old.
    log.log().close().unwrap();
    backup_log("/raft", "/copy", &options).unwrap();
    let copy = |renumber: bool| {
        let builder = ConsensusLog::builder("/copy").options(options.clone());
        if renumber { builder.renumber().open() } else { builder.open() }.unwrap()
    };
    let refused = LogStore::<Strings>::new(copy(false)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidData);
    let why = refused.to_string();
    assert!(why.contains("is a copy") && why.contains("new number"), "{why}");
    let mut store = LogStore::<Strings>::new(copy(true)).unwrap();
    assert_eq!(store.read_vote().await.unwrap(), Some(vote(7, 1)));
    assert_eq!(store.get_log_state().await.unwrap().last_log_id, Some(id(1, 4)));
    store.save_vote(&vote(8, 4)).await.unwrap();
}

/// A node never goes back to an earlier term, and never gives a vote in a term in which it has
/// followed a leader.
#[tokio::test]
async fn a_lower_vote_is_refused() {
    let (mut log, _machine) = stores(log_on(&SimDisk::new(1)).unwrap());
    let mut elected = vote(5, 2);
    elected.committed = true;
    log.save_vote(&elected).await.unwrap();
    for (term, node) in [(4, 9), (5, 1), (5, 2), (5, 3)] {
        assert!(log.save_vote(&vote(term, node)).await.is_err(), "{term} {node}");
    }
    let error = log.save_vote(&vote(1 << 63, 1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    log.save_vote(&elected).await.unwrap();
    assert_eq!(log.read_vote().await.unwrap(), Some(elected));
    log.save_vote(&vote(6, 0)).await.unwrap();
}

/// openraft truncates only what is not committed. If it ever does otherwise, nothing is lost.
#[tokio::test]
async fn committed_entries_are_not_truncated() {
    let (mut log, _machine) = stores(log_on(&SimDisk::new(1)).unwrap());
    append(&mut log, (0..5).map(|index| entry(1, index)).collect()).await.unwrap().await.unwrap();
    log.save_committed(Some(id(1, 2))).await.unwrap();
    assert!(log.truncate_after(Some(id(1, 1))).await.is_err());
    assert!(log.truncate_after(None).await.is_err());
    assert_eq!(log.try_get_log_entries(..).await.unwrap().len(), 5);
    log.truncate_after(Some(id(1, 2))).await.unwrap();
    assert_eq!(log.try_get_log_entries(..).await.unwrap().len(), 3);
    // A commit index above the last entry.
    assert!(log.save_committed(Some(id(1, 3))).await.is_err());
    assert_eq!(log.read_committed().await.unwrap(), Some(id(1, 2)));
}

/// An id below the floor would name an entry that was purged before.
#[tokio::test]
async fn a_purge_never_goes_back() {
    let disk = SimDisk::new(1);
    let (mut log, _machine) = stores(log_on(&disk).unwrap());
    append(&mut log, (0..9).map(|index| entry(1, index)).collect()).await.unwrap().await.unwrap();
    let lease = [2, 80, 0, 0, 0];
    log.log().app_state().set(&lease).unwrap().await.unwrap();
    for (index, purged) in [(3, 3), (1, 3), (3, 3), (5, 5)] {
        log.purge(id(1, index)).await.unwrap();
        assert_eq!(log.log().app_state().get()[..5], lease, "a purge keeps the rest");
        let state = log.get_log_state().await.unwrap();
        assert_eq!(state.last_purged_log_id, Some(id(1, purged)));
        assert_eq!(state.last_log_id, Some(id(1, 8)));
        assert_eq!(log.try_get_log_entries(..).await.unwrap()[0], entry(1, purged + 1));
    }
    // Above the end, as with a snapshot from another replica.
    log.purge(id(2, 20)).await.unwrap();
    let state = log.get_log_state().await.unwrap();
    assert_eq!((state.last_purged_log_id, state.last_log_id), (Some(id(2, 20)), Some(id(2, 20))));
    log.log().close().unwrap();
    let mut log = LogStore::<Strings>::new(log_on(&disk).unwrap()).unwrap();
    assert_eq!(log.get_log_state().await.unwrap(), state);
}

/// A hole would make openraft take a log for longer than it is.
#[tokio::test]
async fn a_hole_in_the_log_is_an_error() {
    let (mut log, _machine) = stores(log_on(&SimDisk::new(1)).unwrap());
    append(&mut log, vec![entry(1, 0), entry(1, 1)]).await.unwrap().await.unwrap();
    append(&mut log, vec![entry(1, 3)]).await.unwrap().await.unwrap();
    let error = log.try_get_log_entries(..).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    assert_eq!(log.try_get_log_entries(..2).await.unwrap(), [entry(1, 0), entry(1, 1)]);
}

/// Values of another program, and of a later version of this one.
#[tokio::test]
async fn foreign_values_are_refused() {
    let blank = [1, 0, 7, 0, 0, 0, 0, 0, 0, 0];
    let cases: [&[u8]; 8] = [
        b"",
        &[2, 0, 7, 0, 0, 0, 0, 0, 0, 0],
        &blank[..9],
        &[&blank[..], b"?"].concat(),
        &[1, 3, 7, 0, 0, 0, 0, 0, 0, 0],
        &[1, 1, 7, 0, 0, 0, 0, 0, 0, 0, 9, b'x'],
        &[1, 1, 7, 0, 0, 0, 0, 0, 0, 0, 1, b'x', b'y'],
        &[1, 2, 7, 0, 0, 0, 0, 0, 0, 0, b'{'],
    ];
    for value in cases {
        let log = log_on(&SimDisk::new(1)).unwrap();
        log.accept(Slot(0), Ballot::ZERO, value).unwrap().blocking_wait().unwrap();
        let mut store = LogStore::<Strings>::new(log).unwrap();
        let error = store.try_get_log_entries(..).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{value:?}: {error}");
    }
    let log = log_on(&SimDisk::new(1)).unwrap();
    log.accept(Slot(0), Ballot::ZERO, &blank).unwrap().blocking_wait().unwrap();
    let mut store = LogStore::<Strings>::new(log).unwrap();
    assert_eq!(store.get_log_state().await.unwrap().last_log_id, Some(id(7, 0)));
    for kept in [&b"some state"[..], &[1; 17], &[2; 17]] {
        let log = log_on(&SimDisk::new(1)).unwrap();
        log.app_state().set(kept).unwrap().blocking_wait().unwrap();
        let error = LogStore::<Strings>::new(log).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
    }
}

/// Nine entries, of which two snapshots have the first four, and all. Returns the lengths of both.
async fn with_snapshots(disk: &SimDisk) -> [usize; 2] {
    let (mut log, mut machine) = stores(log_on(disk).unwrap());
    append(&mut log, (0..9).map(|index| entry(1, index)).collect()).await.unwrap().await.unwrap();
    let mut lengths = Vec::new();
    for range in [0..2, 2..4, 4..9] {
        let entries = log.try_get_log_entries(range).await.unwrap();
        log.save_committed(Some(entries.last().unwrap().log_id)).await.unwrap();
        let entries = entries.into_iter().map(|entry| Ok((entry, None)));
        machine.apply(futures_util::stream::iter(entries)).await.unwrap();
        machine.get_snapshot_builder().await.build_snapshot().await.unwrap();
        lengths.push(machine.with(|machine| machine.0));
    }
    log.log().close().unwrap();
    let [_removed, older, newest] = lengths[..] else { panic!("{lengths:?}") };
    [older, newest]
}

/// The path of one of the snapshots, the oldest first.
fn snapshot(disk: &SimDisk, index: usize) -> PathBuf {
    let names = disk.files(Path::new("/raft")).unwrap();
    let snapshots: Vec<_> = names.iter().filter(|name| name.contains("snapshot")).collect();
    assert_eq!(snapshots.len(), 2, "the oldest was removed: {names:?}");
    Path::new("/raft").join(snapshots[index])
}

/// Stores a snapshot up to this entry of term 1, as if it came from another replica.
fn write_snapshot(log: &ConsensusLog, index: u64, state: &[u8]) {
    let mut writer = log.snapshots().applied_writer(Slot(index)).unwrap();
    writer.copy_from(state).unwrap();
    let membership = r#"{"log_id":null,"membership":{"configs":[],"nodes":{}}}"#;
    let id = format!(r#"{{"leader_id":1,"index":{index}}}"#);
    let note = format!(r#"{{"last_log_id":{id},"last_membership":{membership}}}"#);
    writer.finish(note.as_bytes()).unwrap();
}

fn damage(disk: &SimDisk, path: &Path) {
    disk.flip_bit(path, disk.contents(path).unwrap().len() as u64 * 4).unwrap();
}

/// The newest snapshot is damaged, then both are. The log has all that they had.
#[tokio::test]
async fn a_damaged_snapshot_is_passed_over() {
    let disk = SimDisk::new(1);
    let [older, _] = with_snapshots(&disk).await;
    for (damaged, lengths, last) in [(1, older, Some(id(1, 3))), (0, 0, None)] {
        damage(&disk, &snapshot(&disk, damaged));
        let (_, mut machine) = stores(log_on(&disk).unwrap());
        assert_eq!(machine.with(|machine| machine.0), lengths);
        assert_eq!(machine.applied_state().await.unwrap().0, last);
    }
}

/// The log was purged to the newest snapshot: the older one did not replace it when it was damaged,
/// and the node did not start.
#[tokio::test]
async fn a_purge_keeps_what_the_older_snapshot_needs() {
    let disk = SimDisk::new(1);
    let [older, newest] = with_snapshots(&disk).await;
    let (mut log, machine) = stores(log_on(&disk).unwrap());
    assert_eq!(machine.with(|machine| machine.0), newest);
    log.purge(id(1, 2)).await.unwrap();
    assert_eq!(log.get_log_state().await.unwrap().last_purged_log_id, Some(id(1, 2)));
    log.purge(id(1, 8)).await.unwrap();
    assert_eq!(log.get_log_state().await.unwrap().last_purged_log_id, Some(id(1, 3)));
    log.log().close().unwrap();
    damage(&disk, &snapshot(&disk, 1));
    let (mut log, machine) = stores(log_on(&disk).unwrap());
    assert_eq!(machine.with(|machine| machine.0), older);
    let entries = log.try_get_log_entries(4..).await.unwrap();
    assert_eq!(entries, (4..9).map(|index| entry(1, index)).collect::<Vec<_>>());
    // A snapshot of another replica, after the end of this log: nothing is between them.
    write_snapshot(log.log(), 20, b"170");
    log.purge(id(1, 20)).await.unwrap();
    assert_eq!(log.get_log_state().await.unwrap().last_purged_log_id, Some(id(1, 20)));
}

/// The whole of the older snapshot was read while openraft waited, and a failure of that ended the
/// node, though it can do without the purge.
#[tokio::test]
async fn a_purge_reads_no_snapshot_and_keeps_the_entries_if_it_cannot_list_them() {
    let disk = SimDisk::new(1);
    with_snapshots(&disk).await;
    let (mut log, _machine) = stores(log_on(&disk).unwrap());
    let purged = async |log: &mut LogStore<Strings>| {
        log.purge(id(1, 8)).await.unwrap();
        log.get_log_state().await.unwrap().last_purged_log_id
    };
    disk.inject(Fault::on(Op::List, Effect::Os(24)));
    assert_eq!(purged(&mut log).await, None);
    disk.clear_faults();
    disk.inject(Fault::on(Op::Open, Effect::Os(24)).path("snapshot"));
    disk.inject(Fault::on(Op::Read, Effect::Io).path("snapshot"));
    assert_eq!(purged(&mut log).await, Some(id(1, 3)));
}

/// A damaged snapshot is none to fall back to: nothing is purged because of it.
#[tokio::test]
async fn nothing_is_purged_while_the_older_snapshot_is_damaged() {
    let disk = SimDisk::new(1);
    let (mut log, mut machine) = stores(log_on(&disk).unwrap());
    append(&mut log, (0..9).map(|index| entry(1, index)).collect()).await.unwrap().await.unwrap();
    let snapshots = || {
        let names = disk.files(Path::new("/raft")).unwrap().into_iter();
        names.filter(|name| name.contains("snapshot")).collect::<Vec<_>>()
    };
    for (range, damaged) in [(0..4, true), (4..9, false)] {
        let entries = log.try_get_log_entries(range).await.unwrap();
        log.save_committed(Some(entries.last().unwrap().log_id)).await.unwrap();
        let entries = entries.into_iter().map(|entry| Ok((entry, None)));
        machine.apply(futures_util::stream::iter(entries)).await.unwrap();
        machine.get_snapshot_builder().await.build_snapshot().await.unwrap();
        if damaged {
            damage(&disk, &Path::new("/raft").join(&snapshots()[0]));
        }
    }
    log.purge(id(1, 8)).await.unwrap();
    assert_eq!(log.get_log_state().await.unwrap().last_purged_log_id, None);
    log.log().close().unwrap();
    // The log alone is the state.
    damage(&disk, &Path::new("/raft").join(snapshots().last().unwrap()));
    let (mut log, machine) = stores(log_on(&disk).unwrap());
    assert_eq!(machine.with(|machine| machine.0), 0);
    assert_eq!(log.try_get_log_entries(..).await.unwrap().len(), 9);
}

/// The entries between both snapshots are not in the log any more: the error has the file and the
/// remedy.
#[tokio::test]
async fn a_gap_after_the_older_snapshot_names_the_damaged_file() {
    let disk = SimDisk::new(1);
    with_snapshots(&disk).await;
    let log = log_on(&disk).unwrap();
    let bounds = SnapshotBounds { floor: Slot(4), frontier: Slot(8) };
    log.snapshots().install(bounds).unwrap().await.unwrap();
    let path = snapshot(&disk, 1);
    assert!(MachineStore::<Strings, _>::new(log.clone(), Lengths::default()).is_ok());
    damage(&disk, &path);
    let error = MachineStore::<Strings, _>::new(log, Lengths::default()).unwrap_err();
    let why = error.to_string();
    assert!(why.contains(path.to_str().unwrap()), "{why}");
    assert!(why.contains("backup") && why.contains("new number"), "{why}");
    assert_eq!(error.kind(), ErrorKind::InvalidData);
}

/// The log ends before the damaged snapshot, which came from another replica: this node has
/// acknowledged what it had.
#[tokio::test]
async fn a_log_that_ends_before_a_damaged_snapshot_is_refused() {
    let disk = SimDisk::new(1);
    with_snapshots(&disk).await;
    let (mut log, machine) = stores(log_on(&disk).unwrap());
    drop(machine);
    write_snapshot(log.log(), 20, b"170");
    log.log().snapshots().keep(2).unwrap();
    assert!(MachineStore::<Strings, _>::new(log.log().clone(), Lengths::default()).is_ok());
    damage(&disk, &snapshot(&disk, 1));
    let refused = MachineStore::<Strings, _>::new(log.log().clone(), Lengths::default());
    assert!(refused.unwrap_err().to_string().contains("before 9"));
    append(&mut log, (9..21).map(|index| entry(1, index)).collect()).await.unwrap().await.unwrap();
    assert!(MachineStore::<Strings, _>::new(log.log().clone(), Lengths::default()).is_ok());
}

/// The snapshot is neither taken nor stored. A snapshot that is stored already, by another version
/// of the machine, is passed over when the node starts.
#[tokio::test]
async fn a_snapshot_that_the_machine_refuses_changes_nothing() {
    let disk = SimDisk::new(1);
    let (log, mut machine) = stores(log_on(&disk).unwrap());
    let other = log_on(&SimDisk::new(2)).unwrap();
    let membership = r#"{"log_id":null,"membership":{"configs":[],"nodes":{}}}"#;
    let note = |index| {
        let id = format!(r#"{{"leader_id":1,"index":{index}}}"#);
        format!(r#"{{"last_log_id":{id},"last_membership":{membership}}}"#)
    };
    for (index, state, is_valid) in [(5, "17", true), (6, "not a number", false)] {
        let mut writer = other.snapshots().applied_writer(Slot(index)).unwrap();
        writer.copy_from(state.as_bytes()).unwrap();
        writer.finish(note(index).as_bytes()).unwrap();
        let snapshot = other.snapshots().latest().unwrap();
        let meta = SnapshotMeta {
            last_log_id: Some(id(1, index)),
            last_membership: StoredMembership::default(),
        };
        let installed = machine.install_snapshot(&meta, snapshot).await;
        assert_eq!(installed.is_ok(), is_valid, "{installed:?}");
        assert_eq!(machine.with(|machine| machine.0), 17);
        assert_eq!(machine.applied_state().await.unwrap().0, Some(id(1, 5)));
        assert_eq!(
            machine.get_current_snapshot().await.unwrap().unwrap().meta.last_log_id,
            Some(id(1, 5))
        );
    }
    // The log has the entries of both.
    append(&mut log.clone(), vec![entry(1, 6), entry(1, 7)]).await.unwrap().await.unwrap();
    for state in ["no number either", "18"] {
        let mut writer = log.log().snapshots().applied_writer(Slot(7)).unwrap();
        writer.copy_from(state.as_bytes()).unwrap();
        writer.finish(note(if state == "18" { 8 } else { 7 }).as_bytes()).unwrap();
        let machine = MachineStore::<Strings, _>::new(log.log().clone(), Lengths::default());
        let mut machine = machine.unwrap();
        assert_eq!(machine.with(|machine| machine.0), 17, "{state}");
        // openraft would install the refused one, and stop.
        let current = machine.get_current_snapshot().await.unwrap().unwrap();
        assert_eq!(current.meta.last_log_id, Some(id(1, 5)), "{state}");
    }
}
