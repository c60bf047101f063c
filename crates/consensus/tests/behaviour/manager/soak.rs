//! Many keys, sixteen open logs and 64 threads on a real disk. Each thread remembers what was
//! acknowledged to it, and at the end every log is opened again and compared.
//!
//! A usual run has 100 keys and takes a second. `ESKER_SOAK_SECONDS=n` runs n seconds with 1,000.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use esker_consensus::{AcceptError, Ballot, Entry, LogGuard, LogManager, PromiseError, Slot};
use esker_testkit::{SplitMix64, number_from_env};

use crate::manager::{key, on_real_disk};

const KEYS: u64 = 100;
const SOAK_KEYS: u64 = 1000;
const MAX_OPEN: usize = 16;
const THREADS: u64 = 64;
/// The most guards that a thread holds beside the one that it uses.
const HELD: usize = 3;

/// The acknowledged operations on a slot.
#[derive(Debug, Clone, Copy)]
struct Vote {
    ballot: Ballot,
    committed: bool,
}

/// The acknowledged operations on a key.
#[derive(Debug, Default)]
struct KeyVotes {
    promised: Ballot,
    votes: BTreeMap<u64, Vote>,
}

/// A thread with slots of its own in every log.
struct Caller<'a> {
    number: u64,
    manager: &'a LogManager,
    keys: u64,
    rng: SplitMix64,
    known: BTreeMap<u64, KeyVotes>,
    held: Vec<LogGuard>,
    done: OperationCounts,
}

/// The operations of the threads, counted.
#[derive(Debug, Default, Clone, Copy)]
struct OperationCounts {
    turns: u64,
    /// Turns whose log was not open when they began.
    openings: u64,
}

fn value(key: u64, slot: u64, ballot: Ballot) -> Vec<u8> {
    let text = format!("key {key} slot {slot} ballot {ballot} ");
    text.bytes().cycle().take(text.len() + (slot * 37 % 100) as usize).collect()
}

fn is_as_known(entry: &Entry<'_>, key: u64, vote: Vote) -> bool {
    entry.ballot() == vote.ballot
        && entry.is_committed() == vote.committed
        && entry.value() == value(key, entry.slot().0, vote.ballot)
}

impl KeyVotes {
    /// A slot of this thread that is accepted and not committed.
    fn any_uncommitted(&self, rng: &mut SplitMix64) -> Option<(u64, Ballot)> {
        let open: Vec<_> = self.votes.iter().filter(|(_, vote)| !vote.committed).collect();
        let at = rng.below(open.len().max(1) as u64) as usize;
        open.get(at).map(|(slot, vote)| (**slot, vote.ballot))
    }
}

impl Caller<'_> {
    fn run(&mut self, until: Instant) {
        while Instant::now() < until {
            self.turn();
        }
        self.held.clear();
    }

    fn turn(&mut self) {
        let key_number = self.rng.below(self.keys);
        self.done.turns += 1;
        self.done.openings += u64::from(self.manager.get_if_open(key(key_number)).is_none());
        let log = self.manager.get(key(key_number)).unwrap();
        let mut known = self.known.remove(&key_number).unwrap_or_default();
        // Before anything else: this may be another opening of the log.
        for (slot, vote) in known.votes.iter().rev().take(2) {
            let guard = log.pin();
            let entry = log.read(Slot(*slot), &guard).unwrap();
            assert!(is_as_known(&entry, key_number, *vote), "{entry:?} {vote:?}");
        }
        match self.rng.below(100) {
            0..45 => {
                let slot = self.number + THREADS * known.votes.len() as u64;
                self.accept(&log, key_number, slot, &mut known);
            }
            45..60 => self.promise(&log, key_number, &mut known),
            60..75 => {
                if let Some((slot, _)) = known.any_uncommitted(&mut self.rng) {
                    self.accept(&log, key_number, slot, &mut known);
                }
            }
            _ => {
                if let Some((slot, ballot)) = known.any_uncommitted(&mut self.rng) {
                    log.commit(Slot(slot), ballot).unwrap().blocking_wait().unwrap();
                    known.votes.insert(slot, Vote { ballot, committed: true });
                    assert!(log.read_committed(Slot(slot), &log.pin()).is_ok());
                }
            }
        }
        self.known.insert(key_number, known);
        if self.rng.percent(10) {
            self.held.push(log);
        }
        if self.held.len() > HELD {
            self.held.clear();
        }
    }

    /// A ballot of this thread above all that the log promised.
    fn above(&self, log: &LogGuard) -> Ballot {
        let promised = log.promised().unwrap_or(Ballot::ZERO);
        Ballot { number: promised.number + 1, node: self.number }
    }

    fn accept(&self, log: &LogGuard, key: u64, slot: u64, known: &mut KeyVotes) {
        loop {
            let ballot = self.above(log);
            match log.accept(Slot(slot), ballot, &value(key, slot, ballot)) {
                Ok(ticket) => {
                    ticket.blocking_wait().unwrap();
                    known.promised = known.promised.max(ballot);
                    known.votes.insert(slot, Vote { ballot, committed: false });
                    return;
                }
                // Another thread was first.
                Err(AcceptError::StaleBallot { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn promise(&self, log: &LogGuard, key: u64, known: &mut KeyVotes) {
        let ballot = self.above(log);
        let promised = match log.promise(ballot, Slot(0)) {
            Ok(promise) => promise.blocking_wait().unwrap(),
            Err(PromiseError::StaleBallot { .. }) => return,
            Err(error) => panic!("{error}"),
        };
        known.promised = known.promised.max(ballot);
        // The answer has every vote.
        let answered: BTreeMap<_, _> =
            promised.uncommitted().iter().map(|entry| (entry.slot().0, entry)).collect();
        for (slot, vote) in known.votes.iter().filter(|(_, vote)| !vote.committed) {
            assert!(is_as_known(answered[slot], key, *vote), "slot {slot}: {vote:?}");
        }
    }
}

/// All that is known of each key, by all threads.
fn merged(callers: Vec<BTreeMap<u64, KeyVotes>>) -> BTreeMap<u64, KeyVotes> {
    let mut all: BTreeMap<u64, KeyVotes> = BTreeMap::new();
    for (key, mut known) in callers.into_iter().flatten() {
        let key = all.entry(key).or_default();
        key.promised = key.promised.max(known.promised);
        key.votes.append(&mut known.votes);
    }
    all
}

/// Compares a log that was opened again with what was acknowledged.
fn compare(log: &LogGuard, key: u64, known: &KeyVotes) {
    assert!(log.promised().unwrap_or(Ballot::ZERO) >= known.promised, "key {key}");
    let guard = log.pin();
    for (slot, vote) in &known.votes {
        let entry = log.read(Slot(*slot), &guard).unwrap();
        assert!(is_as_known(&entry, key, *vote), "key {key}: {entry:?} {vote:?}");
    }
    let committed = known.votes.values().filter(|vote| vote.committed).count();
    assert_eq!(log.stats().committed.map_or(0, |range| range.count), committed as u64);
    assert_eq!(log.stats().uncommitted, (known.votes.len() - committed) as u64);
}

fn use_for(dir: &Path, time: Duration, keys: u64) -> BTreeMap<u64, KeyVotes> {
    let manager = on_real_disk(dir, MAX_OPEN);
    let until = Instant::now() + time;
    let callers: Vec<_> = std::thread::scope(|scope| {
        let caller = |number| Caller {
            number,
            manager: &manager,
            keys,
            rng: SplitMix64::new(number),
            known: BTreeMap::new(),
            held: Vec::new(),
            done: OperationCounts::default(),
        };
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                scope.spawn(move || {
                    let mut caller = caller(number);
                    caller.run(until);
                    (caller.known, caller.done)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let turns: u64 = callers.iter().map(|(_, done)| done.turns).sum();
    let openings: u64 = callers.iter().map(|(_, done)| done.openings).sum();
    let known = merged(callers.into_iter().map(|(known, _)| known).collect());
    let stats = manager.stats().unwrap();
    assert_eq!((stats.active_references, stats.total_logs), (0, known.len()));
    // The limit gave way to the threads; the next opening makes it hold again.
    drop(manager.get("another").unwrap());
    assert!(manager.stats().unwrap().open_logs <= MAX_OPEN);
    manager.remove("another").unwrap();
    manager.close_all().unwrap();
    let votes: usize = known.values().map(|known| known.votes.len()).sum();
    eprintln!("{turns} turns, {openings} openings, {} keys, {votes} slots", known.len());
    known
}

#[test]
fn many_keys_in_sixteen_open_logs_lose_no_vote() {
    let soak = number_from_env("ESKER_SOAK_SECONDS", 0);
    let (seconds, keys) = if soak > 0 { (soak, SOAK_KEYS) } else { (1, KEYS) };
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("logs");
    let known = use_for(&dir, Duration::from_secs(seconds), keys);
    let manager = on_real_disk(&dir, MAX_OPEN);
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let one_more = || known.iter().nth(next.fetch_add(1, Relaxed));
                while let Some((number, known)) = one_more() {
                    compare(&manager.get(key(*number)).unwrap(), *number, known);
                }
            });
        }
    });
    assert_eq!(manager.stats().unwrap().active_references, 0);
    manager.close_all().unwrap();
}
