//! Any byte of the files of a log changes, or a file ends early: whatever opening says then, it
//! says it of a file and a place, or everything is there.
//!
//! Guards: a panic on corrupted bytes; an opening that passes over a corrupted checkpoint, page or
//! note and comes up with a lower promise, or without a committed value; a value taken from a
//! corrupted record.
//!
//! `ESKER_SOAK=1` takes every byte, those of the padding among them.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use esker_consensus::{
    Ballot, ConsensusLog, Error, IterateOptions, Mode, Options, ReadError, Slot, StorageError,
};
use esker_disk::sim::SimDisk;
use esker_log::Engine;

use crate::fixture::{self, DIR, HIGH, HIGHER, LOW, driven, log_with, value};

/// Slots of four pages of the index, one of them with nothing but committed slots.
const COMMITTED: [u64; 10] = [0, 1, 2, 4, 5, 6, 4096, 4097, 4099, 8192];
const OPEN: [(u64, Ballot); 3] = [(3, HIGH), (12288, LOW), (12290, LOW)];
const PROMISED: Ballot = HIGHER;

/// The end of the log's last session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastSession {
    Closed,
    /// The last records follow the last checkpoint.
    Killed,
    /// So does most of it, in a segment that is sealed.
    KilledLate,
}

const WAYS: [LastSession; 3] = [LastSession::Closed, LastSession::Killed, LastSession::KilledLate];

fn accept(s: &fixture::Setting, ballot: Ballot, slots: &[u64]) {
    let values: Vec<_> = slots.iter().map(|slot| value(*slot)).collect();
    let pairs: Vec<_> =
        slots.iter().copied().map(Slot).zip(values.iter().map(Vec::as_slice)).collect();
    s.log.accept_batch(ballot, &pairs).unwrap().blocking_wait().unwrap();
}

fn commit(s: &fixture::Setting, slots: &[u64]) {
    let marks: Vec<_> = slots.iter().map(|slot| (Slot(*slot), LOW)).collect();
    s.log.commit_batch(&marks).unwrap().ticket.blocking_wait().unwrap();
}

fn learn(s: &fixture::Setting, slot: u64) {
    s.log.learn(Slot(slot), LOW, &value(slot)).unwrap().blocking_wait().unwrap();
}

/// Two segments: the first is sealed, and holds pages of slots that did not change since.
fn written(left: LastSession) -> SimDisk {
    let s = log_with(Mode::Durable, |_| {});
    accept(&s, LOW, &[4096, 4097, 4099]);
    commit(&s, &[4096, 4097, 4099]);
    s.log.maintenance().checkpoint().unwrap();
    accept(&s, LOW, &[12288, 12290]);
    s.log.maintenance().checkpoint().unwrap();
    let fill = || s.log.learn(Slot(8192), LOW, &filler()).unwrap().blocking_wait().unwrap();
    if left != LastSession::KilledLate {
        fill();
    }
    accept(&s, LOW, &[0, 1, 2, 3, 4]);
    accept(&s, HIGH, &[3]);
    commit(&s, &[0, 2, 4]);
    s.log.promise(PROMISED, Slot(0)).unwrap().blocking_wait().unwrap();
    match left {
        LastSession::KilledLate => fill(),
        _ => s.log.maintenance().checkpoint().unwrap(),
    }
    [1, 5, 6].into_iter().for_each(|slot| learn(&s, slot));
    match left {
        LastSession::Closed => s.log.close().unwrap(),
        LastSession::Killed | LastSession::KilledLate => s.disk.kill(),
    }
    let disk = s.disk.clone();
    drop(s);
    disk.power_on();
    disk
}

/// It takes the room of a segment, and is of no interest.
fn filler() -> Vec<u8> {
    vec![0xEE; 40_000]
}

fn expected(slot: u64) -> Vec<u8> {
    if slot == 8192 { filler() } else { value(slot) }
}

/// The file that an error names, if it names one.
fn reported(error: &Error) -> Option<PathBuf> {
    use esker_log::Error as Below;
    match error {
        Error::Storage(StorageError::Log(cause) | StorageError::CorruptedEntry { cause, .. }) => {
            match cause {
                Below::Corrupted(damage) => Some(damage.file.clone()),
                Below::UnsupportedVersion { file, .. } | Below::ForeignFile { file } => {
                    Some(file.clone())
                }
                Below::NotALog { dir, .. } => Some(dir.clone()),
                _ => None,
            }
        }
        _ => None,
    }
}

/// The outcome of opening a log with corruption in it.
#[derive(Debug, Default)]
struct Tally {
    whole: u64,
    /// It opened, and some slots say that they cannot be read.
    partly: u64,
    refused: u64,
}

/// The log returns every slot as it was, or an error that says why not. `lost` may be missing
/// where no claim of durability vouched for it.
fn look(log: &ConsensusLog, left: LastSession) -> Result<bool, String> {
    let lost: &[u64] = if left == LastSession::Closed { &[] } else { &[5, 6] };
    if log.promised() != Some(PROMISED) {
        return Err(format!("{:?} is promised", log.promised()));
    }
    let guard = log.pin();
    let (mut whole, mut there) = (true, 0);
    for slot in COMMITTED {
        match log.read_committed(Slot(slot), &guard) {
            Ok(entry) if entry.value() == expected(slot) && entry.ballot() == LOW => there += 1,
            Err(ReadError::SlotNotFound { .. }) if lost.contains(&slot) => {}
            Err(error) if reported(&error.clone().into()).is_some() => {
                whole = false;
                there += 1;
            }
            other => return Err(format!("slot {slot}: {other:?}")),
        }
    }
    let open = log.maintenance().scan_uncommitted(&guard).map_err(|error| format!("{error:?}"))?;
    let open: Vec<_> = open.iter().map(|e| (e.slot().0, e.ballot(), e.value().to_vec())).collect();
    let expected: Vec<_> =
        OPEN.iter().map(|(slot, ballot)| (*slot, *ballot, value(*slot))).collect();
    if open != expected {
        return Err(format!("uncommitted are {open:?}"));
    }
    let range = log.stats().committed.map(|range| (range.lowest, range.highest, range.count));
    if range != Some((Slot(0), Slot(8192), there)) || log.frontier() != Some(Slot(2)) {
        return Err(format!(
            "committed are {range:?} of {there}, without a gap {:?}",
            log.frontier()
        ));
    }
    let mut options = IterateOptions::default();
    options.skip_errors = true;
    let gone = log
        .iterate(.., options, |_| ControlFlow::Continue(()))
        .map_err(|error| format!("iterating: {error:?}"))?;
    if gone.skipped.len() as u64 != gone.unreadable
        || gone.skipped.is_empty() != whole
        || (whole && gone.visited != there)
    {
        return Err(format!("iterating is {gone:?}"));
    }
    Ok(whole)
}

fn open(disk: &SimDisk) -> (Result<ConsensusLog, Error>, Engine) {
    let (options, engine): (Options, _) = driven(disk, Mode::Durable);
    let log = ConsensusLog::builder(DIR).options(options).open();
    (log.map_err(Error::from), engine)
}

/// The messages of an error and its causes.
fn messages(error: &dyn std::error::Error) -> String {
    let all = std::iter::successors(Some(error), |error| error.source());
    all.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Opens, looks, continues, and opens again.
fn judge(disk: &SimDisk, left: LastSession, tally: &mut Tally) -> Result<(), String> {
    for opening in 0..2 {
        let (opened, engine) = open(disk);
        let log = match opened {
            Ok(log) => log,
            Err(error) => {
                engine.stop();
                tally.refused += 1;
                let file = reported(&error);
                let named =
                    file.is_some_and(|file| messages(&error).contains(file.to_str().unwrap()));
                return if named { Ok(()) } else { Err(format!("opening {opening}: {error:?}")) };
            }
        };
        let whole = look(&log, left);
        // Whatever this comes to, it must not make things worse.
        let _ = log.promise(PROMISED, Slot(0)).map(|ticket| ticket.blocking_wait());
        let _ = log.maintenance().checkpoint();
        let closed = log.close();
        drop(log);
        engine.stop();
        match whole.map_err(|what| format!("opening {opening}: {what}"))? {
            true if closed.is_err() => return Err(format!("closing: {closed:?}")),
            true => tally.whole += 1,
            false => tally.partly += 1,
        }
    }
    Ok(())
}

/// Every file of the log, and how many bytes of it mean anything.
fn files(disk: &SimDisk) -> Vec<(PathBuf, u64)> {
    let names: BTreeSet<_> = disk.files(Path::new(DIR)).unwrap().into_iter().collect();
    let path = |name: &String| Path::new(DIR).join(name);
    let len = |path: &Path| {
        let bytes = disk.contents(path).unwrap();
        bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1)
    };
    names.iter().map(|name| (path(name), len(&path(name)))).collect()
}

/// Does harm at every byte that is taken.
fn each(
    left: LastSession,
    taken: impl Fn(&[u8], u64) -> bool,
    edit: impl Fn(&SimDisk, &Path, u64),
) -> Tally {
    let all = std::env::var_os("ESKER_SOAK").is_some();
    let disk = written(left);
    let mut tally = Tally::default();
    judge(&disk.fork(1), left, &mut tally).unwrap();
    assert_eq!(tally.whole, 2, "it is whole as it was written");
    for (file, len) in files(&disk) {
        let bytes = disk.contents(&file).unwrap();
        for at in (0..len).filter(|at| all || taken(&bytes, *at)) {
            let disk = disk.fork(1);
            edit(&disk, &file, at);
            if let Err(what) = judge(&disk, left, &mut tally) {
                panic!("{left:?}, {} at byte {at}: {what}", file.display());
            }
        }
    }
    tally
}

/// Selects the bytes to corrupt: a part of those that repeat, and all others.
fn of_interest(bytes: &[u8], at: u64) -> bool {
    let byte = bytes[at as usize];
    let run = bytes.get(at as usize + 1) == Some(&byte) && at > 0 && bytes[at as usize - 1] == byte;
    !run || at.is_multiple_of(251)
}

#[test]
fn flipped_bit_is_reported_or_harmless() {
    for left in WAYS {
        let flip = |disk: &SimDisk, file: &Path, at| disk.flip_bit(file, at * 8 + at % 8).unwrap();
        let tally = each(left, of_interest, flip);
        // Otherwise nothing was tried.
        assert!(tally.whole > 2 && tally.partly > 0 && tally.refused > 0, "{left:?} {tally:?}");
    }
}

#[test]
fn truncated_file_is_reported_or_harmless() {
    for left in WAYS {
        let taken = |bytes: &[u8], at| bytes.len() < 4096 || at % 509 < 2;
        let tally = each(left, taken, |disk, file, at| disk.truncate(file, at).unwrap());
        assert!(tally.whole > 2 && tally.refused > 0, "{left:?} {tally:?}");
    }
}
