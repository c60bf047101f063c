//! Durable entries and votes survive power cuts, value by value, and nothing else appears.
//!
//! Guards the contract and the durability of votes: durable <= recovered <= accepted, through crash
//! after crash.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::io;

use esker_disk::sim::{CutPoint, Persist, SimDisk, seed_from_env};
use esker_raft::openraft::storage::{RaftLogStorage, RaftSnapshotBuilder, RaftStateMachine};
use esker_raft::openraft::{EntryPayload, LogId, RaftLogReader};
use esker_testkit::SplitMix64;

use super::strings::{Entry, Id, Stores, append, entry, log_on, stores, vote};

/// A model of the log of a node.
#[derive(Default)]
struct Model {
    /// The vote that was saved, and the one whose saving was interrupted.
    vote: (u64, Option<u64>),
    /// The entries that were appended and not truncated.
    accepted: BTreeMap<u64, Entry>,
    /// The next index that is not known to be durable.
    durable: u64,
    /// The next index that was not committed, durably or not.
    committed: u64,
    /// The last purged entry, and those that an interrupted purge may have come to.
    purged: (Option<Id>, Vec<Option<Id>>),
    /// Entries that an interrupted truncation may have left.
    cut: BTreeMap<u64, Entry>,
    /// The entries that the newest durable snapshot has, and those of an interrupted one.
    snapshot: (u64, Option<u64>),
    /// The entries that the snapshot before it has.
    older: u64,
    /// The entries of snapshots that an interrupted one may have left: it would have removed them.
    left: Vec<u64>,
}

impl Model {
    fn next(&self) -> u64 {
        self.accepted.keys().next_back().map_or(self.first(), |last| last + 1)
    }

    fn first(&self) -> u64 {
        self.purged.0.map_or(0, |id: Id| id.index + 1)
    }

    /// A snapshot of so many entries is durable.
    fn built(&mut self, entries: u64) {
        if entries > self.snapshot.0 {
            self.older = self.snapshot.0;
        }
        self.snapshot = (entries, None);
    }

    fn lengths(&self, history: &BTreeMap<u64, Entry>, end: u64) -> usize {
        history.range(..end).map(|(_, entry)| length(entry)).sum()
    }
}

fn length(entry: &Entry) -> usize {
    match &entry.payload {
        EntryPayload::Normal(text) => text.len(),
        _ => 0,
    }
}

/// Steps until the disk fails.
async fn run(
    disk: &SimDisk,
    (log, machine): &mut Stores,
    model: &mut Model,
    history: &mut BTreeMap<u64, Entry>,
    rng: &mut SplitMix64,
) -> io::Result<()> {
    for _ in 0..rng.below(60) {
        match rng.below(20) {
            0..3 => {
                let term = model.vote.0 + 1 + rng.below(2);
                model.vote.1 = Some(term);
                log.save_vote(&vote(term, term % 3)).await?;
                model.vote = (term, None);
            }
            3..12 => {
                let (term, next) = (model.vote.0.max(1), model.next());
                let entries: Vec<_> =
                    (next..next + 1 + rng.below(5)).map(|index| entry(term, index)).collect();
                let end = next + entries.len() as u64;
                model.accepted.extend(entries.iter().map(|e| (e.log_id.index, e.clone())));
                let durable = append(log, entries).await?;
                if rng.percent(60) {
                    durable.await?;
                    model.durable = end;
                }
            }
            12..14 if model.durable > model.committed => {
                model.committed += 1 + rng.below(model.durable - model.committed);
                let last = model.accepted[&(model.committed - 1)].clone();
                history
                    .extend(model.accepted.range(..model.committed).map(|(n, e)| (*n, e.clone())));
                log.save_committed(Some(last.log_id)).await?;
            }
            14..16 if model.next() > model.committed.max(model.first()) => {
                let from = model.committed.max(model.first());
                let from = from + rng.below(model.next() - from);
                model.cut = model.accepted.split_off(&from);
                let last = from.checked_sub(1).map(|last| {
                    model.accepted.get(&last).map_or_else(|| model.purged.0.unwrap(), |e| e.log_id)
                });
                model.durable = model.durable.min(from);
                log.truncate_after(last).await?;
                model.cut.clear();
            }
            16..18 => {
                let applied = machine.applied_state().await?.0.map_or(0, |last| last.index + 1);
                if applied < model.committed {
                    let entries = log.try_get_log_entries(applied..model.committed).await?;
                    assert_eq!(entries.len() as u64, model.committed - applied);
                    let entries = entries.into_iter().map(|entry| Ok((entry, None)));
                    machine.apply(futures_util::stream::iter(entries)).await?;
                }
                model.snapshot.1 = Some(model.committed);
                if model.committed > 0 {
                    let mut builder = machine.get_snapshot_builder().await;
                    let built = builder.build_snapshot().await?;
                    assert_eq!(built.meta.last_log_id.unwrap().index + 1, model.committed);
                    model.left.clear();
                }
                model.built(model.committed);
            }
            18 if model.snapshot.0 > model.first() => {
                let index = model.first() + rng.below(model.snapshot.0 - model.first());
                let wanted = model.accepted[&index].log_id;
                // The oldest snapshot needs what is after it.
                let oldest = model.left.iter().chain([&model.older]);
                let ends = oldest.map(|oldest| (index + 1).min(*oldest));
                let last = |end| match end > model.first() {
                    true => Some(model.accepted[&(end - 1)].log_id),
                    false => model.purged.0,
                };
                model.purged.1 = ends.map(last).collect();
                log.purge(wanted).await?;
                let wanted = &model.purged.1;
                let purged = log.get_log_state().await?.last_purged_log_id;
                // Where the disk does not say which snapshots there are, all entries are kept.
                assert!(wanted.contains(&purged) || !disk.is_on(), "{purged:?}, {wanted:?}");
                model.purged = (purged, Vec::new());
                model.accepted = model.accepted.split_off(&model.first());
            }
            _ => {
                let range = model.first()..model.next();
                let entries = log.try_get_log_entries(range).await?;
                assert_eq!(entries, model.accepted.values().cloned().collect::<Vec<_>>());
            }
        }
    }
    Ok(())
}

/// Compares what was recovered with what is known, and continues from it.
async fn check(
    (log, machine): &mut Stores,
    model: &mut Model,
    history: &BTreeMap<u64, Entry>,
    seed: u64,
) {
    let saved = log.read_vote().await.unwrap().map_or(0, |vote| vote.leader_id.term);
    assert!(saved == model.vote.0 || Some(saved) == model.vote.1, "vote {saved}, seed {seed}");
    model.vote = (saved, None);

    let state = log.get_log_state().await.unwrap();
    let purged = state.last_purged_log_id;
    let may_be_purged = purged == model.purged.0 || model.purged.1.contains(&purged);
    assert!(may_be_purged, "purged {purged:?}, seed {seed}");
    model.purged = (purged, Vec::new());
    let first = model.first();
    model.accepted = model.accepted.split_off(&first);

    let entries = log.try_get_log_entries(first..).await.unwrap();
    let next = first + entries.len() as u64;
    assert!(
        model.durable <= next.max(first),
        "{} durable, {next} there, seed {seed}",
        model.durable
    );
    model.accepted.append(&mut model.cut);
    model.cut.clear();
    for (index, entry) in (first..).zip(&entries) {
        assert_eq!(Some(entry), model.accepted.get(&index), "seed {seed}");
    }
    assert_eq!(state.last_log_id, entries.last().map(|last| last.log_id).or(purged), "seed {seed}");
    model.accepted.retain(|index, _| *index < next);
    model.durable = next.max(first);

    let committed =
        log.read_committed().await.unwrap().map_or(first, |last: LogId<_>| last.index + 1);
    assert!(committed <= model.committed.max(first), "{committed} committed, seed {seed}");
    assert!(committed <= next.max(first));

    let applied = machine.applied_state().await.unwrap().0.map_or(0, |last| last.index + 1);
    let may_be_applied = applied == model.snapshot.0 || Some(applied) == model.snapshot.1;
    assert!(may_be_applied && applied >= first, "applied {applied}, seed {seed}");
    assert_eq!(machine.with(|machine| machine.0), model.lengths(history, applied), "seed {seed}");
    if model.snapshot.1.is_some() {
        model.left.push(model.older);
    }
    model.built(applied);
    assert!(first <= model.older, "the older snapshot lacks entries, seed {seed}");
    // What a crash took of the markers is committed all the same.
    model.committed = model.committed.max(applied);
}

async fn crashes(seed: u64) {
    let mut rng = SplitMix64::new(seed);
    let (disk, mut model, mut history) = (SimDisk::new(seed), Model::default(), BTreeMap::new());
    let mut opened = stores(log_on(&disk).unwrap());
    for _ in 0..4 {
        let persist =
            rng.pick(&[Persist::Nothing, Persist::Everything, Persist::Random, Persist::Torn]);
        if rng.percent(70) {
            let at = disk.operations() + rng.below(120);
            let point = if rng.percent(50) { CutPoint::Before(at) } else { CutPoint::During(at) };
            disk.cut_power_at(point, persist);
        }
        let stopped = run(&disk, &mut opened, &mut model, &mut history, &mut rng).await;
        assert!(stopped.is_ok() || !disk.is_on(), "{stopped:?}, seed {seed}");
        disk.cancel_cut();
        if disk.is_on() {
            disk.power_cut(persist);
        }
        drop(opened);
        disk.power_on();
        // A second cut, in recovery.
        if rng.percent(30) {
            disk.cut_power_at(CutPoint::During(disk.operations() + rng.below(20)), persist);
            drop(log_on(&disk));
            disk.cancel_cut();
            if disk.is_on() {
                disk.power_cut(persist);
            }
            disk.power_on();
        }
        opened = stores(log_on(&disk).unwrap());
        check(&mut opened, &mut model, &history, seed).await;
    }
}

#[tokio::test]
async fn what_is_durable_survives_power_cuts() {
    let first = seed_from_env("ESKER_SEED", 0);
    for seed in first..first + 150 {
        crashes(seed).await;
    }
}
