//! The three answers, and that every way to ask gives one of them.

use esker_disk::sim::SimDisk;
use esker_log::{
    Corruption, Engine, Error, Log, OpenCheck, OpenError, ReadError, ReadOnlyLog, RepairError, Seq,
    SeqRange, Start, verify,
};

use super::DIR;
use super::edits::Edit;
use super::map::FilePart;
use super::reading::{self, Item, Read};
use super::sample::{Sample, options};

type Checked<T = ()> = Result<T, String>;

/// The outcome of an opening for writing.
#[derive(Debug)]
pub enum Opened {
    Whole,
    /// The records after this number were never claimed, and are gone.
    Cut(u64),
    /// A reader came to corruption.
    Met(Corruption),
    /// Opening refused.
    Refused(Corruption),
}

impl Opened {
    pub fn corruption(&self) -> Option<&Corruption> {
        match self {
            Opened::Met(damage) | Opened::Refused(damage) => Some(damage),
            Opened::Whole | Opened::Cut(_) => None,
        }
    }
}

/// How much is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Openers {
    /// The usual opening for writing: with the quick check.
    QuickOnly,
    /// Opening for writing, with both ways to validate, and `verify`.
    WriterOnly,
    /// Also a reader without the lock, which takes its time over corruption because a writer may be
    /// at work; and that no file changed.
    All,
}

/// Asks, and demands one of the three answers. What a claim that is left says was durable must be
/// there, or missed loudly.
pub fn open_with(
    sample: &Sample,
    disk: &SimDisk,
    edit: &Edit,
    openers: Openers,
) -> Checked<Opened> {
    let guarantee = sample.map.durable_bound_without(&edit.file, &edit.at);
    if openers != Openers::QuickOnly {
        full_checks_agree(sample, disk, edit, guarantee, openers)?;
    }
    let quick = outcome_of_open(sample, disk, edit, guarantee, OpenCheck::Quick);
    quick.map_err(in_("quick open"))
}

/// Asks all that check every byte, and demands that they agree.
fn full_checks_agree(
    sample: &Sample,
    disk: &SimDisk,
    edit: &Edit,
    guarantee: u64,
    openers: Openers,
) -> Checked {
    let before = (openers == Openers::All).then(|| disk.fork(0));
    let verifies = outcome_of_verify(sample, disk, edit, guarantee).map_err(in_("verify"))?;
    if let Some(before) = before {
        outcome_of_reader(sample, disk, guarantee).map_err(in_("reader"))?;
        if is_changed(&before, disk) {
            return Err("reading changed the files".into());
        }
    }
    let full = outcome_of_open(sample, disk, edit, guarantee, OpenCheck::Full);
    let full = full.map_err(in_("full open"))?;
    if matches!(full, Opened::Met(_)) {
        return Err("opening with a full check passed over damage".into());
    }
    if verifies != full.corruption().is_none() {
        return Err(format!("verify says sound: {verifies}, and opening says {full:?}"));
    }
    Ok(())
}

/// Whether a disk differs from the one that it was forked from. One that counted no operation since
/// was not written to.
fn is_changed(before: &SimDisk, after: &SimDisk) -> bool {
    before.operations() != after.operations() && before.fingerprint() != after.fingerprint()
}

fn in_(what: &'static str) -> impl Fn(String) -> String {
    move |error| format!("{what}: {error}")
}

/// Whether `verify` calls the log valid.
fn outcome_of_verify(
    sample: &Sample,
    disk: &SimDisk,
    edit: &Edit,
    guarantee: u64,
) -> Checked<bool> {
    let engine = Engine::manual();
    let report = match verify(DIR, options(disk, &engine)) {
        Ok(report) => report,
        Err(RepairError::Corrupted(damage)) => {
            names_the_harm(sample, edit, &damage)?;
            return Ok(false);
        }
        Err(other) => return Err(format!("{other:?}")),
    };
    if let Some(first) = report.corruption.first() {
        names_the_harm(sample, edit, first)?;
        return Ok(false);
    }
    if report.last.0 < guarantee {
        return Err(format!("up to {guarantee} must be there, and it ends at {}", report.last));
    }
    let is_there =
        |item: &&Item| matches!(item, Item::Record { .. }) && item.last() <= report.last.0;
    let records = sample.items.iter().filter(is_there).count();
    if report.records != records as u64 {
        return Err(format!("{records} records, and it counts {}", report.records));
    }
    Ok(true)
}

fn outcome_of_reader(sample: &Sample, disk: &SimDisk, guarantee: u64) -> Checked {
    let engine = Engine::manual();
    let reader = match ReadOnlyLog::builder(DIR).options(options(disk, &engine)).open() {
        Ok(reader) => reader,
        Err(OpenError::Corrupted(_)) => return Ok(()),
        Err(other) => return Err(format!("{other:?}")),
    };
    let read = reading::of_reader(&reader, 0)?;
    begins(&sample.items, &read)?;
    match &read.error {
        None if reader.storage().corruption().is_some() => {
            Err("the stream ended before the damage".into())
        }
        None if read.last() < guarantee => {
            Err(format!("up to {guarantee} must be there, and it ends at {}", read.last()))
        }
        None | Some(Error::Corrupted(_)) => Ok(()),
        Some(Error::Trimmed(_)) if reader.storage().corruption().is_some() => Ok(()),
        Some(other) => Err(format!("{other:?}")),
    }
}

fn outcome_of_open(
    sample: &Sample,
    disk: &SimDisk,
    edit: &Edit,
    guarantee: u64,
    validate: OpenCheck,
) -> Checked<Opened> {
    let (before, disk) = (disk, disk.fork(3));
    let engine = Engine::manual();
    let mut options = options(&disk, &engine);
    options.check = validate;
    let log = match Log::builder(DIR).options(options).open() {
        Ok(log) => log,
        Err(OpenError::Corrupted(damage)) => {
            names_the_harm(sample, edit, &damage)?;
            if is_changed(before, &disk) {
                return Err("opening refused and changed the files".into());
            }
            return Ok(Opened::Refused(damage));
        }
        Err(other) => return Err(format!("{other:?}")),
    };
    let read = reading::of_log(&log, Start::Oldest)?;
    begins(&sample.items, &read)?;
    match read.error {
        None => {
            single_reads(sample, &log, None)?;
            ended(sample, &log, read.last(), guarantee)
        }
        Some(Error::Corrupted(damage)) => {
            names_the_harm(sample, edit, &damage)?;
            delivered_up_to(sample, &read.items, &damage)?;
            resumes(sample, &log, edit)?;
            single_reads(sample, &log, Some(&damage))?;
            Ok(Opened::Met(damage))
        }
        Some(other) => Err(format!("{other:?}")),
    }
}

fn ended(sample: &Sample, log: &Log, last: u64, guarantee: u64) -> Checked<Opened> {
    let recovery = log.storage().recovery();
    if log.durable().0 != last || recovery.last.0 != last {
        return Err(format!("it ends at {last} and says {recovery:?}"));
    }
    if last == sample.last() {
        return Ok(Opened::Whole);
    }
    if last < guarantee {
        return Err(format!("SILENT LOSS: up to {guarantee} was durable, and it ends at {last}"));
    }
    Ok(Opened::Cut(last))
}

/// Checks that the records read are the first of those written.
pub fn begins(items: &[Item], read: &Read) -> Checked {
    for (n, item) in read.items.iter().enumerate() {
        if items.get(n) != Some(item) {
            let want = items.get(n).map(brief);
            return Err(format!("item {n} is {}, not {want:?}", brief(item)));
        }
    }
    Ok(())
}

fn brief(item: &Item) -> String {
    match item {
        Item::Record { seq, prev, payload } => format!("{prev}->{seq} ({} B)", payload.len()),
        Item::Gap(from, to) => format!("a gap {from}..{to}"),
    }
}

/// The error has to name the file that was harmed, and a byte of the part that is lost by that.
fn names_the_harm(sample: &Sample, edit: &Edit, damage: &Corruption) -> Checked {
    let (start, after) = match sample.map.file_part(&edit.file, edit.at.start) {
        FilePart::Unit(_, unit) => (unit.at.start as u64, unit.prev_seq),
        FilePart::Header(segment) => (0, segment.prev_seq),
        FilePart::Manifest => (0, 0),
        _ => return Err(format!("nothing of the log was harmed, and it says {damage}")),
    };
    if damage.file != edit.file {
        return Err(format!("the wrong file is blamed: {damage}"));
    }
    if damage.offset < start || damage.offset > edit.at.start {
        return Err(format!("byte {start} begins what is harmed, and it says {damage}"));
    }
    if damage.after.0 != after {
        return Err(format!("the last sound record before it is {after}, and it says {damage}"));
    }
    Ok(())
}

/// Everything before the corruption was delivered.
fn delivered_up_to(sample: &Sample, items: &[Item], damage: &Corruption) -> Checked {
    let last = items.last().map_or(0, Item::last);
    let want = sample.items.iter().map(Item::last).filter(|last| *last <= damage.after.0).max();
    if last != want.unwrap_or(0) {
        return Err(format!("delivered up to {last} only before {damage}"));
    }
    Ok(())
}

/// A reader that asks for what follows the harmed units gets it.
fn resumes(sample: &Sample, log: &Log, edit: &Edit) -> Checked {
    let Some(last) = sample.map.last_corrupted(&edit.file, &edit.at) else {
        return Err(format!("a reader met damage, and no unit was harmed by {edit}"));
    };
    let rest = reading::of_log(log, Start::After(Seq(last)))?;
    let want: Vec<_> = sample.items.iter().filter(|item| item.last() > last).collect();
    let same = rest.items.iter().eq(want.iter().copied());
    if rest.error.is_some() || !same {
        let (got, want) = (rest.items.len(), want.len());
        return Err(format!("after the corruption: {got} of {want} items, {:?}", rest.error));
    }
    Ok(())
}

/// Each record alone: right, or corruption where a stream met it too. Never "there is no such
/// record".
fn single_reads(sample: &Sample, log: &Log, met: Option<&Corruption>) -> Checked {
    let last = log.durable().0;
    for item in sample.items.iter().filter(|item| item.last() <= last) {
        let seq = item.last();
        match (item, log.read(seq)) {
            (Item::Record { payload, .. }, Ok(view)) if *payload == *view => {}
            (Item::Gap(from, to), Err(ReadError::Quarantined(SeqRange { from: f, to: t })))
                if (*from, *to) == (f.0, t.0) => {}
            (_, Err(ReadError::Corrupted(damage)))
                if met.is_some_and(|met| met.file == damage.file) => {}
            (_, other) => return Err(format!("SILENT LOSS: read({seq}) says {other:?}")),
        }
        if item.last() > item.prev() + 1
            && matches!(item, Item::Record { .. })
            && let Ok(view) = log.read(seq - 1)
        {
            return Err(format!("read({}) invents {view:?}", seq - 1));
        }
    }
    Ok(())
}
