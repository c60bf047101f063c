//! The records that are there after corruption was repaired, and after it was cut off.

use std::ops::Range;
use std::path::Path;

use esker_disk::sim::SimDisk;
use esker_log::{
    Engine, Log, OnCorruption, OpenCheck, ReadError, ReadOnlyLog, Seq, SeqRange, Start, repair,
    verify,
};

use super::DIR;
use super::map::{FilePart, Map, in_dir, segment_path};
use super::outcomes::begins;
use super::reading::{self, Item};
use super::sample::{Building, Sample, options};

type Checked<T = ()> = Result<T, String>;

/// Who repairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repairing {
    /// The function [`repair`].
    Function,
    /// Opening with [`OnCorruption::Quarantine`].
    Opening,
}

/// A part of a segment file that is corrupted, and the records that are lost by it: those above the
/// first number, up to the second.
#[derive(Debug, Clone)]
pub struct Loss {
    pub segment: u64,
    pub bytes: Range<usize>,
    pub records: (u64, u64),
}

impl Sample {
    /// The records that are lost when this byte is corrupted; `None` where it belongs to none.
    pub fn loss(&self, file: &Path, at: u64) -> Option<Loss> {
        match self.map.file_part(file, at) {
            FilePart::Unit(segment, unit) => Some(Loss {
                segment: segment.number,
                bytes: unit.at.clone(),
                records: (unit.prev_seq, unit.last_seq),
            }),
            _ => None,
        }
    }
}

/// The items, with a gap in the place of those that are lost. Gaps that touch are one.
pub fn without(items: &[Item], lost: &[(u64, u64)]) -> Vec<Item> {
    let mut left = Vec::new();
    for item in items {
        let gap = lost.iter().find(|(from, to)| *from <= item.prev() && item.last() <= *to);
        left.push(match gap {
            Some((from, to)) => Item::Gap(*from, *to),
            None => item.clone(),
        });
    }
    join_gaps(left)
}

fn join_gaps(items: Vec<Item>) -> Vec<Item> {
    let mut joined: Vec<Item> = Vec::new();
    for item in items {
        match (joined.last_mut(), &item) {
            (Some(Item::Gap(_, end)), Item::Gap(from, to)) if from <= end => *end = *to.max(end),
            _ => joined.push(item),
        }
    }
    joined
}

/// Repairs a harmed copy of the sample, and demands that all is there but what was lost, that the
/// corrupted bytes are kept, and that the log continues.
pub fn quarantine(
    sample: &Sample,
    corrupted: &SimDisk,
    lost: &[Loss],
    repairing: Repairing,
) -> Checked {
    let disk = corrupted.fork(11);
    let records: Vec<_> = lost.iter().map(|loss| loss.records).collect();
    let items = without(&sample.items, &records);
    match repairing {
        Repairing::Function => {
            let engine = Engine::manual();
            let repaired = repair(DIR, options(&disk, &engine));
            let repaired = repaired.map_err(|error| format!("repair: {error:?}"))?;
            let reported: Vec<_> =
                repaired.quarantined.iter().map(|aside| (aside.from.0, aside.to.0)).collect();
            for gap in &records {
                if gap.0 < gap.1
                    && !reported.iter().any(|(from, to)| *from <= gap.0 && gap.1 <= *to)
                {
                    return Err(format!("{gap:?} is lost, and repair reports {reported:?}"));
                }
            }
            check_reader(&disk, &items)?;
        }
        Repairing::Opening => {
            let log = open(&disk, OnCorruption::Quarantine)?;
            check_log(&log, &items)?;
        }
    }
    quarantined_bytes(corrupted, &disk, lost)?;
    verifies(&disk, &items)?;
    check_log(&open(&disk, OnCorruption::Fail)?, &items)?;
    continues(sample, disk, items)
}

/// Cuts a harmed copy at the first corruption, and demands that all before it is there, that the
/// rest is quarantined, and that what is appended then takes its place.
pub fn truncate(sample: &Sample, corrupted: &SimDisk, last: u64, lost: &[Loss]) -> Checked {
    let disk = corrupted.fork(13);
    let items: Vec<_> = sample.items.iter().filter(|item| item.last() <= last).cloned().collect();
    let log = open(&disk, OnCorruption::Truncate)?;
    check_log(&log, &items)?;
    if let Some(gone) = sample.items.iter().find(|item| item.last() > last)
        && !matches!(log.read(gone.last()), Err(ReadError::NotFound { .. }))
    {
        return Err(format!("{} was cut off, and read says otherwise", gone.last()));
    }
    drop(log);
    quarantined_bytes(corrupted, &disk, lost)?;
    verifies(&disk, &items)?;
    continues(sample, disk, items)
}

pub fn open(disk: &SimDisk, on_corruption: OnCorruption) -> Checked<Log> {
    let engine = Engine::manual();
    let mut options = options(disk, &engine);
    options.check = OpenCheck::Full;
    options.on_corruption = on_corruption;
    Log::builder(DIR)
        .options(options)
        .open()
        .map_err(|error| format!("open with {on_corruption:?}: {error:?}"))
}

/// Reads in every way.
pub fn check_log(log: &Log, items: &[Item]) -> Checked {
    check_whole(reading::of_log(log, Start::Oldest)?, items)?;
    for (n, item) in items.iter().enumerate() {
        let seq = item.last();
        match (item, log.read(seq)) {
            (Item::Record { payload, prev, .. }, Ok(view))
                if *payload == *view && *prev == view.record().prev.0 =>
            {
                let at = view.record().position;
                let same = log.read_at(at).map(|again| again.record().seq.0);
                if !matches!(same, Ok(again) if again == seq) {
                    return Err(format!("read_at({at}), where {seq} is stored, returns {same:?}"));
                }
            }
            (Item::Gap(from, to), Err(ReadError::Quarantined(SeqRange { from: f, to: t })))
                if *from <= f.0 && t.0 <= *to => {}
            (_, other) => return Err(format!("read({seq}) says {other:?}")),
        }
        let rest = reading::of_log(log, Start::After(Seq(seq)))?;
        check_whole(rest, &items[n + 1..]).map_err(|error| format!("after {seq}: {error}"))?;
    }
    Ok(())
}

fn check_whole(read: reading::Read, items: &[Item]) -> Checked {
    let read = reading::Read { items: join_gaps(read.items), ..read };
    begins(items, &read)?;
    if let Some(error) = read.error {
        return Err(format!("a stream ends with {error:?}"));
    }
    if read.items.len() < items.len() {
        return Err(format!("{} of {} items are there", read.items.len(), items.len()));
    }
    Ok(())
}

fn check_reader(disk: &SimDisk, items: &[Item]) -> Checked {
    let engine = Engine::manual();
    let reader = ReadOnlyLog::builder(DIR)
        .options(options(disk, &engine))
        .open()
        .map_err(|error| format!("{error:?}"))?;
    if let Some(damage) = reader.storage().corruption() {
        return Err(format!("a reader finds {damage}"));
    }
    let read = reading::of_reader(&reader, 0)?;
    let read = reading::Read { items: join_gaps(read.items), ..read };
    begins(items, &read)?;
    if let Some(error) = read.error {
        return Err(format!("a reader ends with {error:?}"));
    }
    let last = items.last().map_or(0, Item::last);
    if read.last() + reader.storage().unrecovered_bytes() < last {
        return Err(format!("a reader ends at {} of {last}", read.last()));
    }
    Ok(())
}

/// `verify` finds no corruption, and the gaps.
pub fn verifies(disk: &SimDisk, items: &[Item]) -> Checked {
    let engine = Engine::manual();
    let report = verify(DIR, options(disk, &engine)).map_err(|error| format!("{error:?}"))?;
    if let Some(damage) = report.corruption.first() {
        return Err(format!("verify finds {damage}"));
    }
    let reported = report.quarantined.iter().map(|gap| Item::Gap(gap.from.0, gap.to.0)).collect();
    let is_gap = |item: &&Item| matches!(item, Item::Gap(..));
    let gaps: Vec<_> = items.iter().filter(is_gap).cloned().collect();
    if join_gaps(reported) != gaps {
        return Err(format!("verify reports the gaps {:?}, not {gaps:?}", report.quarantined));
    }
    Ok(())
}

/// Every corrupted byte is under `quarantine/`, in a file that names its segment and offset.
pub fn quarantined_bytes(corrupted: &SimDisk, disk: &SimDisk, lost: &[Loss]) -> Checked {
    let room = in_dir("quarantine");
    for loss in lost {
        let path = segment_path(loss.segment);
        let Ok(content) = corrupted.contents(&path) else { continue };
        // Zeros before and after carry no information.
        let (start, end) = (loss.bytes.start, loss.bytes.end.min(content.len()));
        let says = |n: &usize| content[*n] != 0;
        let Some(mut covered) = (start..end).find(says) else { continue };
        let end = (start..end).rfind(says).map_or(end, |last| last + 1);
        let mut kept: Vec<(usize, Vec<u8>)> = Vec::new();
        let earlier = corrupted.files(&room).unwrap_or_default();
        for name in disk.files(&room).unwrap_or_default() {
            // `<segment>-<offset>.bytes`, or with one more number where that name was taken.
            let parts: Vec<_> = name.split(['-', '.']).collect();
            let done = name.ends_with(".bytes") && !earlier.contains(&name);
            if done && parts[0].parse() == Ok(loss.segment) {
                kept.push((parts[1].parse().unwrap(), disk.contents(&room.join(&name)).unwrap()));
            }
        }
        kept.sort();
        for (offset, kept) in kept {
            let upto = (offset + kept.len()).min(content.len());
            if content.get(offset..upto) != Some(&kept[..upto.saturating_sub(offset)]) {
                return Err(format!("what is kept of byte {offset} is not what was stored there"));
            }
            if offset <= covered {
                covered = covered.max(upto);
            }
        }
        if covered < end {
            return Err(format!("bytes {covered}..{end} were not kept aside"));
        }
    }
    Ok(())
}

/// The log takes more, through a clean close, a kill and a power cut, and nothing dead comes back.
pub fn continues(sample: &Sample, disk: SimDisk, items: Vec<Item>) -> Checked {
    let last = items.last().map_or(0, Item::last);
    let mut log = Building::on("afterwards", disk, items);
    log.reopen(100).map_err(|error| format!("continuing: {error}"))?;
    log.one(50).several(&[3000, 0, 2000]).close();
    log.reopen(100).map_err(|error| format!("after a clean close: {error}"))?;
    log.one(70).kill();
    log.reopen(100).map_err(|error| format!("after a kill: {error}"))?;
    log.one(5000).cut_power_during(3000);
    log.reopen(2).map_err(|error| format!("after a power cut: {error}"))?;
    log.one(1).one(2).one(3).close();
    log.reopen(100).map_err(|error| format!("at the end: {error}"))?;
    log.close();
    let first = log.items.iter().find(|item| item.last() > last).map(Item::last);
    if first != Some(last + 1) {
        return Err(format!("after {last} came {first:?}, in {}", sample.name));
    }
    verifies(&log.disk, &log.items)?;
    Map::read(&log.disk);
    Ok(())
}
