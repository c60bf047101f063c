//! A node whose newest snapshot is damaged starts with the one before, and the entries after that.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::time::Instant;

use esker_consensus::Slot;
use esker_disk::sim::SimDisk;
use esker_raft::{Member, Node, Replica};
use futures_util::future::join_all;

use crate::group::{ROUND_TRIP, TEST_TIMEOUT, Words, command, start_with};

/// Commands that are proposed at a time.
const BATCH_ENTRIES: usize = 2000;

/// The snapshots on the disk, the oldest first.
fn snapshots(disk: &SimDisk) -> Vec<String> {
    let names = disk.files(Path::new("/raft")).unwrap();
    names.into_iter().filter(|name| name.contains("snapshot")).collect()
}

fn flip_a_bit(disk: &SimDisk, snapshot: &str) {
    let path = Path::new("/raft").join(snapshot);
    disk.flip_bit(&path, disk.contents(&path).unwrap().len() as u64 * 4).unwrap();
}

/// A node alone, with so many snapshots. With two, its log is purged.
async fn with_snapshots(disk: &SimDisk, count: usize) -> (Node, Replica<Words>) {
    let words = Replica::new(Words::default());
    let (node, address) = start_with(disk, 1, ROUND_TRIP, &words);
    let member = Member { raft: address.to_string(), ..Member::default() };
    node.bootstrap(member).await.unwrap();
    node.wait_for(TEST_TIMEOUT, |status| status.leads()).await.unwrap();
    let is_purged = || count == 1 || node.log().floor().is_some();
    write_until(&node, &words, || snapshots(disk).len() >= count && is_purged()).await;
    (node, words)
}

async fn write_until(node: &Node, words: &Replica<Words>, is_done: impl Fn() -> bool) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !is_done() {
        assert!(Instant::now() < deadline, "no snapshot, or nothing is purged: {node:?}");
        let first = words.with(|words| words.0.len());
        let proposals = (first..first + BATCH_ENTRIES)
            .map(|n| node.propose(command(n.to_string()), TEST_TIMEOUT));
        for proposed in join_all(proposals).await {
            proposed.unwrap();
        }
    }
}

/// Damages the newest of so many snapshots. The node starts, and lacks nothing.
async fn starts_without_the_newest_of(count: usize) {
    let disk = SimDisk::new(1);
    let (node, words) = with_snapshots(&disk, count).await;
    let before = words.with(|words| words.0.clone());
    node.stop().unwrap();
    flip_a_bit(&disk, snapshots(&disk).last().unwrap());
    let words = Replica::new(Words::default());
    let (node, _) = start_with(&disk, 1, ROUND_TRIP, &words);
    node.wait_for(TEST_TIMEOUT, |status| status.leads()).await.unwrap();
    node.propose(command("after"), TEST_TIMEOUT).await.unwrap();
    let after = words.with(|words| words.0.clone());
    assert!(after[..before.len()] == before && after[before.len()..] == ["after"]);
    node.stop().unwrap();
}

/// The node kept two snapshots, and purged its log up to the newer one: one flipped bit in that,
/// and it did not start ("need logs from index 10000, but purged up to 1.18999").
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_starts_without_its_newest_snapshot() {
    starts_without_the_newest_of(2).await;
}

/// Stores a snapshot of the state as it is, whole, which no machine of this version takes.
async fn refused_snapshot(node: &Node) -> Slot {
    let applied =
        node.wait_for(TEST_TIMEOUT, |status| status.applied == status.last).await.unwrap();
    let slot = Slot(applied.applied.unwrap());
    let newest = node.log().snapshots().latest().unwrap();
    let note = String::from_utf8(newest.info().note.clone()).unwrap();
    let [before, now] = [newest.slot(), slot].map(|slot| format!("\"index\":{}", slot.0));
    assert!(slot > newest.slot() && note.contains(&before), "{note}");
    let mut writer = node.log().snapshots().applied_writer(slot).unwrap();
    writer.copy_from(&b"\xff"[..]).unwrap();
    writer.finish(note.replace(&before, &now).as_bytes()).unwrap();
    slot
}

/// A snapshot of another version of the state machine was whole. openraft got it when the node
/// started, installed it, and stopped. And it counted as the one to fall back to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_starts_without_a_snapshot_that_its_machine_refuses() {
    let disk = SimDisk::new(1);
    let (node, words) = with_snapshots(&disk, 1).await;
    node.propose(command("between"), TEST_TIMEOUT).await.unwrap();
    let (taken, refused) = (node.log().snapshots().list().unwrap(), refused_snapshot(&node).await);
    let before = words.with(|words| words.0.clone());
    node.stop().unwrap();
    let words = Replica::new(Words::default());
    let (node, _) = start_with(&disk, 1, ROUND_TRIP, &words);
    node.wait_for(TEST_TIMEOUT, |status| status.leads()).await.unwrap();
    node.propose(command("after"), TEST_TIMEOUT).await.unwrap();
    let after = words.with(|words| words.0.clone());
    assert!(after[..before.len()] == before && after[before.len()..] == ["after"]);
    write_until(&node, &words, || node.log().snapshots().list().unwrap().pop() > Some(refused))
        .await;
    write_until(&node, &words, || node.log().floor().is_some()).await;
    let kept = node.log().snapshots().list().unwrap();
    assert_eq!((&kept[..2], node.log().floor()), (&[taken[0], refused][..], Some(taken[0])));
    node.stop().unwrap();
}

/// The log was whole, and the node did not start: its only snapshot is corrupt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_starts_without_its_only_snapshot() {
    starts_without_the_newest_of(1).await;
}
