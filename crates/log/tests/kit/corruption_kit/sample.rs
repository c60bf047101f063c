//! The logs that are harmed: small, with a bit of everything in them, and every record known.

use std::path::Path;
use std::sync::Arc;

use esker_disk::sim::{CutPoint, Persist, SimDisk};
use esker_disk::{Disk, OpenMode, read_full_at};
use esker_log::{Append, Engine, Log, OpenCheck, Options, Seq, repair};

use super::DIR;
use super::edits::put;
use super::map::{Map, in_dir, segment_path};
use super::reading::Item;
use super::repairs::{check_log, without};

/// A log at rest.
#[derive(Debug, Clone)]
pub struct Sample {
    pub name: &'static str,
    pub disk: SimDisk,
    /// The items that a reader must get.
    pub items: Vec<Item>,
    /// It was closed, so that any missing byte is corruption.
    pub clean: bool,
    pub map: Map,
}

/// Options for these logs. `index_records` is left at its default, so that an entry of the index
/// leads to a place far before the record.
pub fn options(disk: &SimDisk, engine: &Engine) -> Options {
    let mut options = Options::on(Arc::new(disk.clone()));
    options.engine = Some(engine.clone());
    options.segment_size = 64 << 10;
    options.buffer_size = 8 << 10;
    options.buffers = 3;
    options.tail_cache = 8 << 10;
    options
}

/// Bytes that belong to this record of this log alone.
pub fn payload(name: &str, seq: u64, len: usize) -> Vec<u8> {
    let mut state = name
        .bytes()
        .fold(seq + 1, |state, byte| (state ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3));
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// A log under construction, and what is in it.
#[derive(Debug)]
pub struct Building {
    pub name: &'static str,
    pub disk: SimDisk,
    pub items: Vec<Item>,
    engine: Engine,
    pub log: Option<Log>,
    /// Accepted, and on its way when the power went.
    in_flight: Option<Item>,
    /// The power was cut since the last opening: what was not synced may be gone.
    cut: bool,
}

impl Building {
    pub fn new(name: &'static str) -> Self {
        Self::seeded(name, 7)
    }

    fn seeded(name: &'static str, seed: u64) -> Self {
        let disk = SimDisk::new(seed);
        Self {
            name,
            disk,
            items: Vec::new(),
            engine: Engine::manual(),
            log: None,
            in_flight: None,
            cut: false,
        }
    }

    /// Continues a log whose items are known.
    pub fn on(name: &'static str, disk: SimDisk, items: Vec<Item>) -> Self {
        Self { disk, items, ..Self::new(name) }
    }

    /// Opens the log, with so many records to a segment.
    pub fn open(&mut self, segment_records: u64) -> &mut Self {
        self.reopen(segment_records).unwrap();
        self
    }

    /// Opens the log, and holds what is in it against what is known.
    pub fn reopen(&mut self, segment_records: u64) -> Result<(), String> {
        self.engine = Engine::manual();
        self.cut = false;
        let mut options = options(&self.disk.process(), &self.engine);
        options.segment_records = Some(segment_records);
        options.check = OpenCheck::Full;
        let log =
            Log::builder(DIR).options(options).open().map_err(|error| format!("{error:?}"))?;
        let arrived = self.in_flight.take().filter(|item| item.last() == log.durable().0);
        self.items.extend(arrived);
        check_log(&log, &self.items)?;
        self.log = Some(log);
        Ok(())
    }

    fn log(&self) -> &Log {
        self.log.as_ref().unwrap()
    }

    fn last(&self) -> u64 {
        self.items.last().map_or(0, Item::last)
    }

    fn next(&mut self, seq: u64, len: usize) -> Vec<u8> {
        let (prev, payload) = (self.last(), payload(self.name, seq, len));
        self.items.push(Item::Record { seq, prev, payload: payload.clone() });
        payload
    }

    /// A unit of one record.
    pub fn one(&mut self, len: usize) -> &mut Self {
        let payload = self.next(self.last() + 1, len);
        self.log().append(&payload).unwrap().blocking_wait().unwrap();
        self
    }

    /// A unit of one record that leaves out numbers.
    pub fn far(&mut self, gap: u64, len: usize) -> &mut Self {
        let prev = Seq(self.last());
        let seq = Seq(prev.0 + 1 + gap);
        let payload = self.next(seq.0, len);
        self.log()
            .write(Append::numbered(prev, &[(seq, &payload)]))
            .unwrap()
            .blocking_wait()
            .unwrap();
        self
    }

    /// A unit of several records.
    pub fn several(&mut self, lens: &[usize]) -> &mut Self {
        let payloads: Vec<_> = lens.iter().map(|len| self.next(self.last() + 1, *len)).collect();
        let payloads: Vec<_> = payloads.iter().collect();
        self.log().write(Append::records(&payloads).atomic()).unwrap().blocking_wait().unwrap();
        self
    }

    pub fn run(&mut self) -> &mut Self {
        self.engine.run();
        self
    }

    pub fn close(&mut self) -> &mut Self {
        self.engine.run();
        self.log.take().unwrap().close().unwrap();
        self.engine.stop();
        self
    }

    /// Ends the process. What was written stays.
    pub fn kill(&mut self) -> &mut Self {
        self.disk.kill();
        self.log = None;
        self.engine.stop();
        self.disk.power_on();
        self
    }

    /// Cuts the power while a commit of one record of this length is on its way.
    pub fn cut_power_during(&mut self, len: usize) -> &mut Self {
        let payload = self.next(self.last() + 1, len);
        self.in_flight = self.items.pop();
        let ticket = self.log().append(&payload).unwrap();
        self.disk.cut_power_at(CutPoint::During(self.disk.operations()), Persist::Torn);
        assert!(ticket.blocking_wait().is_err() && !self.disk.is_on());
        self.cut = true;
        self.log = None;
        self.engine.stop();
        self.disk.power_on();
        self
    }

    /// Whether the cut left a part of the last unit, all that it left can be read, and the mark
    /// still says that the record before is durable.
    fn is_torn(&self) -> bool {
        let map = Map::read(&self.disk);
        let path = segment_path(map.newest().number);
        let end = map.newest().units.last().map_or(0, |unit| unit.at.end);
        let bytes = self.disk.contents(&path).unwrap();
        let file = self.disk.open_dir(Path::new(DIR)).unwrap();
        let file =
            file.open(path.file_name().unwrap().to_str().unwrap(), OpenMode::read()).unwrap();
        let marks = map.durable_bounds.iter().filter(|claim| claim.file == in_dir("mark"));
        self.last_unit() == Some(self.last())
            && marks.map(|claim| claim.seq).max() == Some(self.last())
            && bytes[end..].iter().any(|byte| *byte != 0)
            && read_full_at(&*file, &mut vec![0; bytes.len()], 0).is_ok()
    }

    /// The last record of the last valid unit on the disk.
    fn last_unit(&self) -> Option<u64> {
        let map = Map::read(&self.disk);
        map.segments.iter().flat_map(|s| &s.units).map(|u| u.last_seq).next_back()
    }

    pub fn done(&mut self, clean: bool) -> Sample {
        let (name, disk, items) = (self.name, self.disk.clone(), self.items.clone());
        // A cut may take the process number from the lock file, which is not synced. With it,
        // opening has nothing to write there before it knows of corruption.
        put(&disk, &in_dir("lock"), format!("{:<10}\n", std::process::id()).as_bytes());
        let map = Map::read(&disk);
        let marked = map.durable_bounds.iter().filter(|claim| claim.file == in_dir("mark"));
        let marked = marked.map(|claim| claim.seq).max();
        assert!(self.cut || marked == Some(self.last()), "{name}: the mark says {marked:?}");
        assert_eq!(self.last_unit(), items.last().map(Item::last), "{name}");
        Sample { name, disk, items, clean, map }
    }
}

/// Four segments, three with footers; all shapes of units; two sessions; closed.
pub fn closed() -> Sample {
    let mut log = Building::new("closed");
    log.open(6);
    log.one(40).several(&[30, 0, 7]).one(9000).one(4096 - 72 - 16).run();
    log.several(&[16, 496, 48, 1]).far(10, 100).several(&[20, 21]).run();
    log.one(0).one(48).several(&[5000, 11, 3000]).one(33).run();
    // The third record begins on the border of a block, in the middle of its unit.
    log.several(&[16, 4096 - 72 - 32 - 16, 20]).run();
    log.one(12).several(&[0, 60]).close();
    log.open(6).one(200).several(&[700, 5000]).close();
    log.done(true)
}

/// A recovered segment and later ones, the last without a footer before it; then killed. The mark
/// page knows the last record.
pub fn killed() -> Sample {
    let mut log = Building::new("killed");
    log.open(4);
    log.several(&[100, 0, 16]).one(5000).run().one(8).kill();
    log.open(3);
    log.one(24).several(&[48, 900]).run().several(&[0, 5000]).one(70).run();
    log.one(9).several(&[4096 - 72 - 16 - 16, 0]).several(&[15, 5000]).kill();
    log.done(false)
}

/// As `killed`, but the power went while the last commit was written: its unit is torn, and the
/// mark page is what the cut left of it.
pub fn torn() -> Sample {
    // The cut tears one of all the sectors that were not synced. With some seeds it is one of the
    // unit's, and one that can still be read.
    let mut built = (7..107).map(torn_by);
    built.find(Building::is_torn).unwrap().done(false)
}

fn torn_by(seed: u64) -> Building {
    let mut log = Building::seeded("torn", seed);
    log.open(4);
    log.several(&[100, 0, 16]).one(5000).run().one(8).kill();
    log.open(3);
    log.one(24).several(&[48, 900]).run().several(&[0, 5000]).one(70).run();
    log.one(9).several(&[30, 31]).one(3000).cut_power_during(9000);
    log
}

/// Everything in one segment, killed: the only other file with a record number is the watermark
/// page.
pub fn lonely() -> Sample {
    let mut log = Building::new("lonely");
    log.open(100).one(40).several(&[30, 0, 7]).one(5000).several(&[16, 0]).kill();
    log.done(false)
}

/// As `closed`, with units of the first and of the newest segment that were corrupted and repaired.
pub fn quarantined() -> Sample {
    let before = closed();
    let mut lost = Vec::new();
    for (segment, unit) in [(0, 1), (0, 2), (2, 1), (3, 1)] {
        let (segment, unit) = {
            let segment = &before.map.segments[segment];
            (segment.number, &segment.units[unit])
        };
        before.disk.flip_bit(&segment_path(segment), unit.at.start as u64 * 8 + 800).unwrap();
        lost.push((unit.prev_seq, unit.last_seq));
    }
    let engine = Engine::manual();
    repair(DIR, options(&before.disk, &engine)).unwrap();
    let mut log = Building::on("quarantined", before.disk.clone(), without(&before.items, &lost));
    log.open(3).one(300).several(&[20, 5000]).one(7).close();
    log.done(true)
}

/// The samples that most tests go through.
pub fn all() -> Vec<Sample> {
    vec![closed(), killed(), torn(), lonely()]
}

impl Sample {
    pub fn last(&self) -> u64 {
        self.items.last().map_or(0, Item::last)
    }

    pub fn newest_path(&self) -> std::path::PathBuf {
        segment_path(self.map.newest().number)
    }
}
