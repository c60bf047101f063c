//! Several logs that keep one reserve together, on a full disk.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;

use esker_disk::sim::SimDisk;
use esker_log::component::{Purpose, SharedReserve};
use esker_log::{Engine, Error, Log, OnCorruption, Options, Policy, ReadError, SeqRange, Start};

use crate::fixture::driven;

const MIB: u64 = 1 << 20;
const LEN: usize = 10_000;
const RECORDS: usize = 60;
const OWNER: &str = "/owner";

/// The log that has the reserve, and others that use it.
struct Logs {
    disk: SimDisk,
    owner: Log,
    others: Vec<Log>,
    engine: Engine,
}

fn options(disk: &SimDisk) -> (Options, Engine) {
    let (mut options, engine) = driven(disk);
    options.segment_size = 256 << 10;
    options.reserve = Some(0);
    (options, engine)
}

fn other(options: &Options, shared: Option<SharedReserve>, number: usize) -> Result<Log, Error> {
    let mut options = options.clone();
    options.shared_reserve = shared;
    Log::builder(format!("/other-{number}")).options(options).open().map_err(Into::into)
}

fn open(disk: &SimDisk, count: usize) -> Result<Logs, Error> {
    open_with(disk, count, Policy::Always)
}

fn open_with(disk: &SimDisk, count: usize, policy: Policy) -> Result<Logs, Error> {
    let (mut options, engine) = options(disk);
    options.policy = policy;
    let mut own = options.clone();
    own.reserve = Some(4 * MIB);
    let owner = Log::builder(OWNER).options(own).open()?;
    let others = (0..count).map(|n| other(&options, Some(owner.component().shared_reserve()), n));
    let others = others.collect::<Result<_, _>>()?;
    Ok(Logs { disk: disk.clone(), owner, others, engine })
}

fn is_full(outcome: Result<esker_log::Ticket, impl Into<Error>>) -> bool {
    match outcome.map_err(Into::into).and_then(|ticket| Ok(ticket.blocking_wait()?)) {
        Ok(_) => false,
        Err(error) if error.is_no_space() => true,
        Err(error) => panic!("{error:?}"),
    }
}

impl Logs {
    fn reserve(&self) -> u64 {
        let size = |name: &str| {
            self.disk.contents(&Path::new(name).join("reserve")).map_or(0, |file| file.len() as u64)
        };
        assert!((0..self.others.len()).all(|n| size(&format!("/other-{n}")) == 0));
        size(OWNER)
    }

    /// Ordinary appends to all logs, in turn, until each is refused.
    fn fill(&self) {
        let mut open: Vec<&Log> = self.others.iter().collect();
        while !open.is_empty() {
            open.retain(|log| !is_full(log.append([7; LEN])));
        }
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        self.engine.stop();
    }
}

/// Ordinary appends to any of the logs leave the reserve alone. Records that free space get it, in
/// each of them, but for the part that openings need.
#[test]
fn each_log_frees_space_in_what_they_share() {
    let disk = SimDisk::new(1);
    disk.set_capacity(Some(20 * MIB));
    let logs = open(&disk, 3).unwrap();
    assert_eq!(logs.reserve(), 4 * MIB);
    logs.fill();
    assert_eq!(logs.reserve(), 4 * MIB);
    // The log that has the reserve takes a part, too.
    while logs.reserve() == 4 * MIB {
        assert!(!is_full(logs.owner.component().append(Purpose::Internal, [8; LEN])));
    }
    assert!(logs.reserve() > 3 * MIB, "{}", logs.reserve());
    // What ordinary appends had been given is used first.
    let mut taken = vec![0u64; 3];
    for round in 0..60 {
        for (log, taken) in logs.others.iter().zip(&mut taken) {
            if round < 30 || *taken > 0 {
                assert!(
                    !is_full(log.component().append(Purpose::Internal, [8; LEN])),
                    "round {round}: {taken:?}"
                );
                *taken += LEN as u64;
            }
        }
        if logs.reserve() < 3 * MIB {
            break;
        }
    }
    assert!(logs.reserve() < 3 * MIB && taken.iter().all(|bytes| *bytes > 0), "{taken:?}");
    for log in &logs.others {
        assert!(is_full(log.append([7; LEN])), "the reserve is low");
    }
    // One log frees space: the reserve takes it first.
    let first = &logs.others[0];
    first.retention().truncate_before(first.durable()).unwrap();
    logs.engine.run();
    assert!(logs.reserve() >= 15 * 4 * MIB / 16, "{}", logs.reserve());
    for log in &logs.others {
        assert!(!is_full(log.append([9; LEN])));
    }
    // Internal appends end before they take what openings need.
    logs.fill();
    while !is_full(logs.others[1].component().append(Purpose::Internal, [8; LEN])) {}
    assert!(logs.reserve() >= 2 * MIB, "{}", logs.reserve());
    for log in &logs.others {
        log.close().unwrap();
    }
    logs.owner.close().unwrap();
}

/// After a crash, what may only be in the page cache is copied. On a full disk each log gets the
/// room for that from what they share.
#[test]
fn a_crash_on_a_full_disk_is_recovered_in_the_shared_reserve() {
    let disk = SimDisk::new(1);
    let logs = open_with(&disk, 3, Policy::OsBuffered).unwrap();
    for log in &logs.others {
        for _ in 0..RECORDS {
            log.append([7; LEN]).unwrap().detach();
        }
    }
    logs.engine.run();
    disk.set_capacity(Some(disk.used()));
    disk.kill();
    drop(logs);
    disk.power_on();
    let alone = disk.fork(2);
    let (mut options, engine) = options(&alone);
    options.policy = Policy::OsBuffered;
    for number in 0..3 {
        let refused = other(&options, None, number);
        assert!(matches!(refused, Err(Error::NoSpace { .. })), "{refused:?}");
    }
    engine.stop();
    let logs = open_with(&disk, 3, Policy::OsBuffered).unwrap();
    for log in &logs.others {
        let mut stream = log.stream(Start::Oldest).unwrap();
        let mut records = 0;
        while let Some(batch) = stream.try_next().unwrap() {
            records += batch.iter().count();
        }
        // The last one was in memory alone.
        assert!((RECORDS - 1..=RECORDS).contains(&records), "{records}");
        assert!(!is_full(log.component().append(Purpose::Internal, [9; LEN])));
    }
    // It took what it could get again.
    assert!(logs.reserve() > 2 * MIB, "{}", logs.reserve());
}

/// Bug: an opening that repaired a log and found the disk full did not use the shared reserve, or
/// used it with what the manifest had said before the repair.
#[test]
fn a_repaired_log_is_recovered_in_the_shared_reserve() {
    let disk = SimDisk::new(1);
    let logs = open_with(&disk, 1, Policy::OsBuffered).unwrap();
    for _ in 0..RECORDS {
        logs.others[0].append([7; LEN]).unwrap().detach();
    }
    logs.engine.run();
    logs.others[0].barrier().unwrap().blocking_wait().unwrap();
    for _ in 0..5 {
        logs.others[0].append([7; LEN]).unwrap().detach();
    }
    logs.engine.run();
    disk.kill();
    drop(logs);
    disk.power_on();
    let newest = Path::new("/other-0").join("00000000000000000003.seg");
    disk.overwrite(&newest, 20_000, &[0xaa; 9000]).unwrap();
    let mut in_shared = 0;
    for less in (0..100).step_by(3) {
        let disk = disk.fork(less);
        let (mut options, engine) = options(&disk);
        options.policy = Policy::OsBuffered;
        let mut own = options.clone();
        own.reserve = Some(4 * MIB);
        let owner = Log::builder(OWNER).options(own).open().unwrap();
        disk.set_capacity(Some(disk.used() + 4096 * (100 - less)));
        options.on_corruption = OnCorruption::Quarantine;
        let log = match other(&options, None, 0) {
            Ok(log) => log,
            Err(error) => {
                assert!(matches!(error, Error::NoSpace { .. }), "{less}: {error:?}");
                in_shared += 1;
                other(&options, Some(owner.component().shared_reserve()), 0).unwrap()
            }
        };
        let mut stream = log.stream(Start::Oldest).unwrap();
        let (mut records, mut lost) = (0, 0);
        loop {
            match stream.try_next() {
                Ok(Some(batch)) => records += batch.iter().count(),
                Ok(None) => break,
                Err(ReadError::Quarantined(SeqRange { from, to })) => lost += to.0 - from.0,
                Err(error) => panic!("{less}: {error:?}"),
            }
        }
        assert!((RECORDS..=RECORDS + 5).contains(&(records + lost as usize)), "{less}: {records}");
        assert!((1..5).contains(&lost), "{less}: {lost}");
        log.close().unwrap();
        owner.close().unwrap();
        engine.stop();
    }
    assert!(in_shared > 5, "{in_shared}");
}

/// Once the log that has the reserve is closed, its directory is not touched.
#[test]
fn a_closed_log_shares_nothing() {
    let disk = SimDisk::new(1);
    disk.set_capacity(Some(20 * MIB));
    let logs = open(&disk, 2).unwrap();
    logs.fill();
    logs.owner.close().unwrap();
    let before = disk.contents(&Path::new(OWNER).join("reserve")).unwrap().len();
    while !is_full(logs.others[0].component().append(Purpose::Internal, [8; LEN])) {}
    let first = &logs.others[0];
    first.retention().truncate_before(first.durable()).unwrap();
    logs.engine.run();
    assert!(!is_full(first.append([9; LEN])));
    assert_eq!(disk.contents(&Path::new(OWNER).join("reserve")).unwrap().len(), before);
}
