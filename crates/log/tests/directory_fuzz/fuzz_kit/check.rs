//! The answers that every way to ask must give, whatever the corruption is.

use std::collections::BTreeSet;

use esker_log::{
    Engine, Error, Log, OpenCheck, ReadError, ReadOnlyLog, Seq, Start, VerifyReport, verify,
};
use esker_testkit::{Changes, Files, Rng};

use super::build::Sample;
use super::history::{History, Lost, MANIFEST, PAGE};
use super::location::Location;
use super::reading::{self, Item, Read};
use super::repaired;

pub type Checked<T = ()> = Result<T, String>;

/// The corruption, and what follows from it.
pub struct Corruption<'a> {
    pub sample: &'a Sample,
    pub changes: &'a Changes,
    /// Durable records of which something valid says so.
    pub claimed: BTreeSet<u64>,
    /// The source of these values, for messages.
    trace: String,
    /// Durable records of which no byte is another, nor one of their step.
    pub intact: BTreeSet<u64>,
    is_rolled_back: bool,
}

impl<'a> Corruption<'a> {
    fn new(sample: &'a Sample, damaged: &Files, changes: &'a Changes) -> Self {
        let bound = sample.history.traces.bound(&sample.source.files, changes);
        let kept = || sample.history.live.range(sample.history.trimmed + 1..);
        let claimed = kept().filter(|(_, record)| record.step.is_some_and(|step| step < bound));
        let untouched = |step: &usize| {
            sample.places.get(step).is_some_and(|places| {
                places.iter().all(|(file, blocks)| !changes.touches(file, blocks))
            })
        };
        let intact = kept().filter(|(_, record)| {
            !record.payload.is_empty()
                && record.step.is_some()
                && record.written().as_ref().is_some_and(untouched)
        });
        let claimed = claimed.map(|(seq, _)| *seq).collect();
        let trace = sample.history.traces.reported(&sample.source.files, changes);
        let intact = intact.map(|(seq, _)| *seq).collect();
        let is_rolled_back = is_rolled_back(sample, damaged, changes);
        Self { sample, changes, claimed, trace, intact, is_rolled_back }
    }

    pub fn history(&self) -> &History {
        &self.sample.history
    }

    /// The file that knows what was trimmed is not what it was.
    pub fn trim_is_lost(&self) -> bool {
        self.changes.touches_file(MANIFEST)
    }

    /// The facts that no file proves any more.
    pub fn lost(&self) -> Lost {
        Lost { trim: self.trim_is_lost(), cut: self.is_rolled_back }
    }

    /// An error that refuses to continue, and has to be one that reports this corruption.
    pub fn refusal(&self, error: &Error) -> Checked {
        let touched = |file: &std::path::Path| {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            self.changes.touches_file(&name) || self.changes.touches_file(MANIFEST)
        };
        match error {
            Error::Corrupted(_) => Ok(()),
            Error::UnsupportedVersion { file, .. } | Error::ForeignFile { file }
                if touched(file) =>
            {
                Ok(())
            }
            Error::WrongComponent { .. } if self.changes.touches_file("note") => Ok(()),
            Error::NotALog { .. } if self.changes.touches_file(MANIFEST) => Ok(()),
            // A power cut may leave a sector that the device does not give.
            Error::Io(cause) if cause.op() == esker_disk::Op::Read => Ok(()),
            other => Err(format!("an undue refusal: {other:?}")),
        }
    }

    /// Every durable record that something says was durable is there, or its absence was reported.
    ///
    /// `begins_again`: the manifest was lost, and a repair said that it made another. What was
    /// dropped on purpose is not known any more: the log begins where its oldest segment does,
    /// which is after this number where no record is left.
    pub fn nothing_is_silent(&self, read: &Read, begins_again: Option<u64>) -> Checked {
        let there: BTreeSet<u64> = read.items.iter().map(Item::last).collect();
        let in_gap = |seq: u64| {
            read.items.iter().any(|item| matches!(item, Item::Gap(f, t) if *f < seq && seq <= *t))
        };
        let begin = begins_again.map(|empty| read.items.first().map_or(empty, Item::prev));
        for seq in self.claimed.iter().filter(|seq| begin.is_none_or(|begin| **seq > begin)) {
            let reported = match &read.error {
                Some(_) => *seq > read.last(),
                None => false,
            };
            if !there.contains(seq) && !in_gap(*seq) && !reported {
                let (ends, error) = (read.last(), &read.error);
                return Err(format!(
                    "SILENT LOSS of {seq}: read to {ends}, {error:?}{}",
                    self.why()
                ));
            }
        }
        Ok(())
    }

    /// The records that were durable, and how that is known.
    pub fn why(&self) -> String {
        let last = self.claimed.last().unwrap_or(&0);
        let policy = self.sample.config.policy;
        format!("\n  up to {last} was durable under {policy:?}, says {}", self.trace)
    }

    /// Gaps are those of an earlier repair.
    fn known_gaps(&self, items: &[Item]) -> Checked {
        for item in items {
            if let Item::Gap(from, to) = item
                && !self.history().gaps.iter().any(|(f, t)| f <= from && to <= t)
            {
                return Err(format!("a gap {from}..{to} that no repair made"));
            }
        }
        Ok(())
    }
}

pub fn check(
    sample: &Sample,
    damaged: &Files,
    changes: &Changes,
    rng: &mut Rng,
) -> Checked<&'static str> {
    let damage = Corruption::new(sample, damaged, changes);
    if std::env::var_os("ESKER_TRACE").is_some() {
        print(&damage, damaged);
    }
    if changes.are_of_another(damaged, &sample.source.other, MANIFEST, &[PAGE, "manifest.next"]) {
        return Ok("another log");
    }
    if is_the_next(sample, damaged) {
        return Ok("the next");
    }
    let real = rng.percent(2);
    let (quick, reader) = (rng.percent(50), rng.percent(6));
    let location = || Location::new(sample, damaged, real);
    let verifies = by_verify(&damage, &location()?).map_err(|what| format!("verify: {what}"))?;
    let full = by_opening(&damage, &location()?, OpenCheck::Full)
        .map_err(|what| format!("full opening: {what}"))?;
    // Where nothing of a log is left, opening makes a new one.
    let gone = !damaged.keys().any(|name| layout(name));
    if full.is_loud() == verifies && !gone {
        return Err(format!("verify says sound: {verifies}, and opening says {full:?}"));
    }
    if gone {
        return Ok("gone");
    }
    if let (Opened::Met, true) = (&full, verifies) {
        return Err("a full check at opening passed over damage".into());
    }
    if quick {
        let quick = by_opening(&damage, &location()?, OpenCheck::Quick)
            .map_err(|what| format!("quick opening: {what}"))?;
        if verifies && quick.is_loud() {
            return Err(format!("verify says sound, and a quick opening says {quick:?}"));
        }
    }
    if reader {
        let whole = by_reader(&damage, &location()?).map_err(|what| format!("reader: {what}"))?;
        if verifies && !whole {
            return Err("verify says sound, and a reader says otherwise".into());
        }
    }
    let repaired = repaired::check(&damage, &location()?, verifies, rng)?;
    Ok(match (full, repaired) {
        (Opened::Whole | Opened::Cut, _) => "whole",
        (_, true) => "repaired",
        (_, false) => "reported",
    })
}

/// Whether a segment is what it was before, and a later one lost its header.
fn is_rolled_back(sample: &Sample, damaged: &Files, changes: &Changes) -> bool {
    let is_segment = |name: &str| name.ends_with(".seg");
    let lost = |name: &&String| is_segment(name) && changes.touches(name, &(0..1));
    let last_lost = sample.source.files.keys().rev().find(lost);
    damaged.iter().any(|(name, bytes)| {
        let is_older = || sample.source.older.iter().any(|older| older.get(name) == Some(bytes));
        is_segment(name)
            && changes.touches_file(name)
            && last_lost.is_some_and(|lost| lost > name)
            && is_older()
    })
}

/// Whether the manifest is the one that the log was about to publish when it was ended: records
/// that were being dropped then are dropped now, and the history does not know which.
fn is_the_next(sample: &Sample, damaged: &Files) -> bool {
    let next = sample.source.files.get("manifest.next").filter(|_| sample.dropping);
    next.is_some_and(|next| damaged.get(MANIFEST) == Some(next))
}

/// Prints what a failure is examined with.
fn print(damage: &Corruption<'_>, damaged: &Files) {
    let sample = damage.sample;
    println!("{:?}\ntrimmed {}", sample.config, damage.history().trimmed);
    for (seq, record) in &damage.history().live {
        println!("{}->{seq} {} B, step {:?}", record.prev, record.payload.len(), record.step);
    }
    for (name, bytes) in damaged {
        let old = sample.source.files.get(name).map(|bytes| bytes.len());
        println!("{name} {} B, was {old:?}", bytes.len());
    }
    println!("claimed {:?}\nintact {:?}", damage.claimed, damage.intact);
}

/// Whether a file says that there is a log.
fn layout(name: &str) -> bool {
    [MANIFEST, PAGE].contains(&name) || name.ends_with(".seg") && !name.contains('/')
}

/// Whether `verify` calls the log valid.
fn by_verify(damage: &Corruption<'_>, location: &Location) -> Checked<bool> {
    let engine = Engine::manual();
    let before = location.files();
    let report = match verify(&location.dir, location.options(&engine)) {
        Ok(report) => report,
        Err(error) => return damage.refusal(&error.into()).map(|()| false),
    };
    if std::env::var_os("ESKER_TRACE").is_some() {
        println!("{report:?}");
    }
    if before != location.files() {
        return Err("it changed something".into());
    }
    if !report.corruption.is_empty() {
        return Ok(false);
    }
    reports_all(damage, &report).map(|()| true)
}

/// Checks what a report without corruption has to contain.
fn reports_all(damage: &Corruption<'_>, report: &VerifyReport) -> Checked {
    let last = damage.claimed.last().copied().unwrap_or(0);
    let gap = report.quarantined.last().map_or(0, |gap| gap.to.0);
    if report.last.0.max(gap) < last {
        return Err(format!(
            "SILENT LOSS: {last} was durable, and it ends at {}{}",
            report.last,
            damage.why()
        ));
    }
    if damage.claimed.first().is_some_and(|first| report.after.0 >= *first) {
        return Err(format!("SILENT LOSS: it begins after {}{}", report.after, damage.why()));
    }
    Ok(())
}

/// The outcome of an opening for writing.
#[derive(Debug)]
pub enum Opened {
    Whole,
    /// Something was cut off as a torn tail.
    Cut,
    /// A reader came to corruption.
    Met,
    Refused,
}

impl Opened {
    pub fn is_loud(&self) -> bool {
        matches!(self, Opened::Met | Opened::Refused)
    }
}

fn by_opening(
    damage: &Corruption<'_>,
    location: &Location,
    validate: OpenCheck,
) -> Checked<Opened> {
    let engine = Engine::manual();
    let mut options = location.options(&engine);
    options.check = validate;
    let before = location.files();
    let log = match Log::builder(&location.dir).options(options).open() {
        Ok(log) => log,
        Err(error) => {
            damage.refusal(&error.clone().into())?;
            let without_lock = |files: Option<Files>| {
                files.map(|mut files| {
                    files.remove("lock");
                    files
                })
            };
            if without_lock(before) != without_lock(location.files()) {
                return Err(format!("it refused and changed the files: {error:?}"));
            }
            return Ok(Opened::Refused);
        }
    };
    let opened = read_of(damage, &log);
    let cut = log.storage().recovery().truncated_tail.is_some();
    drop(log);
    engine.stop();
    Ok(match opened? {
        Opened::Whole if cut => Opened::Cut,
        opened => opened,
    })
}

/// Everything that an open log returns.
fn read_of(damage: &Corruption<'_>, log: &Log) -> Checked<Opened> {
    let read = reading::of_log(log, Start::Oldest)?;
    damage.history().check_items(&read.items, damage.lost())?;
    damage.known_gaps(&read.items)?;
    damage.nothing_is_silent(&read, None)?;
    if let Some(error) = &read.error {
        damage.refusal(error)?;
    }
    for seq in &damage.claimed {
        let record = &damage.history().live[seq];
        match log.read(*seq) {
            Ok(view) if *view == *record.payload => {}
            Err(ReadError::Quarantined(_)) => {}
            Err(ReadError::Corrupted(_)) if read.error.is_some() => {}
            other => {
                let other = other.map(|view| view.len());
                return Err(format!("SILENT LOSS: read({seq}) says {other:?}{}", damage.why()));
            }
        }
    }
    if read.error.is_none() {
        return Ok(Opened::Whole);
    }
    // It continues after the corruption.
    if let Some(next) = damage.claimed.iter().find(|seq| **seq > read.last() + 1) {
        let rest = reading::of_log(log, Start::After(Seq(*next)))?;
        damage.history().check_items(&rest.items, damage.lost())?;
    }
    Ok(Opened::Met)
}

/// Whether a reader reads the log whole.
fn by_reader(damage: &Corruption<'_>, location: &Location) -> Checked<bool> {
    let engine = Engine::manual();
    let reader = match ReadOnlyLog::builder(&location.dir).options(location.options(&engine)).open()
    {
        Ok(reader) => reader,
        Err(error) => return damage.refusal(&error.into()).map(|()| false),
    };
    let read = reading::of_reader(&reader, 0)?;
    damage.history().check_items(&read.items, damage.lost())?;
    damage.known_gaps(&read.items)?;
    match &read.error {
        None if reader.storage().corruption().is_some() => {
            return Err("the damage is not met".into());
        }
        Some(Error::Trimmed(_)) if reader.storage().corruption().is_some() => return Ok(false),
        Some(error) => damage.refusal(error)?,
        None => {}
    }
    damage.nothing_is_silent(&read, None)?;
    Ok(read.error.is_none())
}
