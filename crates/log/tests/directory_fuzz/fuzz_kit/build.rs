//! Building a log that is worth damaging, and keeping its history.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use esker_disk::sim::{CutPoint, SimDisk};
use esker_log::{
    Append, Engine, Error, Log, OpenCheck, Options, Policy, Retention, Seq, Start, Ticket, repair,
};
use esker_testkit::{BLOCK_BYTES, Changes, Files, Kind, Rng, Source, read_files};

use super::history::{History, Lost, MANIFEST, PAGE, brief};
use super::program::{Config, End, Op, Session, config, sessions};
use super::reading::{self, Item};
use super::{DIR, files};

/// A log at rest.
#[derive(Debug)]
pub struct Sample {
    pub disk: SimDisk,
    pub source: Source,
    pub history: History,
    pub config: Config,
    /// It was ended while records may have been in the middle of being dropped.
    pub dropping: bool,
    /// The blocks that hold each step's records.
    pub places: HashMap<usize, Vec<(String, Range<usize>)>>,
}

/// The log of a seed.
pub fn sample(seed: u64) -> Result<Sample, String> {
    let mut built = Builder::new(seed);
    built.build()?;
    let mut other = Builder::new(seed ^ 0xFFFF_0000);
    other.session_of(Op::Together(vec![100, 5000, 40, 9000, 20]))?;
    let files = files(&built.disk);
    let places = built.history.places(&files);
    let mut names: Vec<String> = (1..9).map(|n| format!("{n:020}.seg")).collect();
    names.extend(["1.spare", "9.spare", MANIFEST, PAGE, "lock"].map(String::from));
    let Builder { disk, history, config, older, dropping, .. } = built;
    let other = super::files(&other.disk);
    let source = Source { files, older, other, names };
    Ok(Sample { disk, source, history, config, dropping, places })
}

struct Builder {
    seed: u64,
    rng: Rng,
    config: Config,
    disk: SimDisk,
    history: History,
    older: Vec<Files>,
    clean: bool,
    dropping: bool,
}

/// Why a session did not continue.
enum Stop {
    /// The machine or the process ended.
    Ended,
    Broken(String),
}

impl From<String> for Stop {
    fn from(what: String) -> Self {
        Self::Broken(what)
    }
}

impl Builder {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed, 3);
        let config = config(&mut rng);
        let disk = SimDisk::new(seed);
        let history = History::new(seed);
        Self { seed, rng, config, disk, history, older: Vec::new(), clean: true, dropping: false }
    }

    fn build(&mut self) -> Result<(), String> {
        let sessions = sessions(&mut self.rng);
        if std::env::var_os("ESKER_TRACE").is_some() {
            println!("{sessions:?}");
        }
        for (n, session) in sessions.iter().enumerate() {
            let reported = |what: String| format!("session {n}: {what}");
            self.session(session).map_err(reported)?;
            if session.repair {
                self.harm_and_repair().map_err(reported)?;
            }
            if n + 1 < sessions.len() {
                self.older.push(files(&self.disk));
            }
        }
        self.history.cut_before = self.history.dead.len();
        // The log without any corruption is what it should be.
        let fork = self.disk.fork(self.seed);
        let engine = Engine::manual();
        // Retention has its turn at each opening, and this one is not part of the sample.
        let mut options = self.options(&fork, &engine);
        options.retention = Retention::NONE;
        let log = Log::builder(DIR)
            .options(options)
            .open()
            .map_err(|error| format!("reopening: {error:?}"))?;
        let read = reading::of_log(&log, Start::Oldest)?;
        self.recovered(&read.items, read.error.as_ref())?;
        engine.stop();
        Ok(())
    }

    fn session_of(&mut self, op: Op) -> Result<(), String> {
        self.session(&Session { ops: vec![op, Op::Run], end: End::Close, repair: false })
    }

    pub fn options(&self, disk: &SimDisk, engine: &Engine) -> Options {
        let mut options = Options::on(Arc::new(disk.process()));
        self.config.apply(&mut options);
        options.engine = Some(engine.clone());
        options.check = OpenCheck::Full;
        options
    }

    fn session(&mut self, session: &Session) -> Result<(), String> {
        let engine = Engine::manual();
        let before = read_files(&self.disk, Path::new(DIR)).unwrap_or_default();
        let log = match Log::builder(DIR).options(self.options(&self.disk, &engine)).open() {
            Ok(log) => log,
            Err(error) => return Err(format!("opening: {error:?}")),
        };
        self.history.moved(&before, &files(&self.disk));
        self.opened(&log)?;
        let mut stopped = Ok(());
        for (n, op) in session.ops.iter().enumerate() {
            let at = self.disk.operations();
            match session.end {
                End::Midway(step, later, how) if step == n as u64 => {
                    self.disk.cut_power_at(CutPoint::During(at + later), how);
                }
                End::KillMidway(step, later) if step == n as u64 => {
                    self.disk.kill_at(CutPoint::Before(at + later));
                }
                _ => {}
            }
            stopped = self.op(&log, &engine, op);
            if stopped.is_ok() && !self.disk.is_on() {
                stopped = Err(Stop::Ended);
            }
            if stopped.is_err() {
                break;
            }
            if self.rng.percent(12) && self.older.len() < 6 {
                self.older.push(files(&self.disk));
            }
        }
        match stopped {
            Err(Stop::Broken(what)) => return Err(what),
            Err(Stop::Ended) => {
                self.clean = false;
                self.dropping = self.config.retention != Retention::NONE
                    || self.history.trimming > self.history.trimmed;
            }
            Ok(()) => self.end(&log, &engine, session.end)?,
        }
        drop(log);
        engine.stop();
        self.disk.cancel_cut();
        self.disk.power_on();
        Ok(())
    }

    fn end(&mut self, log: &Log, engine: &Engine, end: End) -> Result<(), String> {
        self.clean = end == End::Close;
        self.dropping = false;
        match end {
            End::Close => {
                engine.run();
                log.close().map_err(|error| format!("closing: {error:?}"))?;
                let last = self.history.last();
                self.history.acknowledged(last);
                self.stepped(Kind::Closed);
            }
            End::Power(how) | End::Midway(_, _, how) => self.disk.power_cut(how),
            End::Kill | End::KillMidway(..) => self.disk.kill(),
        }
        Ok(())
    }

    /// A step is over.
    fn stepped(&mut self, kind: Kind) {
        let files = files(&self.disk);
        let history = &mut self.history;
        let step = history.traces.next();
        // What the power left is no trace of what the step wrote.
        let kind = if self.disk.is_on() { kind } else { Kind::Other };
        let mut traces = history.traces.clone();
        traces.step(kind, &files, |bytes| history.holds(step, bytes));
        history.traces = traces;
    }

    /// Holds what an opening found against the history.
    fn opened(&mut self, log: &Log) -> Result<(), String> {
        let read = reading::of_log(log, Start::Oldest)?;
        if !self.clean {
            // What nothing says was durable became durable by this opening.
            let files = files(&self.disk);
            let bound = self.history.traces.bound(&files, &Changes::default());
            let step = self.history.traces.next();
            for record in self.history.live.values_mut() {
                if record.step.is_some_and(|before| before >= bound) {
                    record.step = Some(step);
                }
            }
        }
        self.recovered(&read.items, read.error.as_ref())?;
        let last = self.history.last();
        self.history.acknowledged(last);
        self.stepped(Kind::Opened);
        Ok(())
    }

    /// durable ⊆ recovered ⊆ accepted, value by value.
    fn recovered(&mut self, items: &[Item], error: Option<&Error>) -> Result<(), String> {
        if let Some(error) = error {
            return Err(format!("an undamaged log is read with {error:?}"));
        }
        if std::env::var_os("ESKER_TRACE").is_some() {
            let items: Vec<_> = items.iter().map(brief).collect();
            println!("recovered {items:?}, trimmed {}", self.history.trimmed);
        }
        self.history.check_items(items, Lost::default())?;
        let first =
            items.first().map_or(self.history.trimmed.max(self.history.trimming), Item::prev);
        let may_drop = self.config.retention != Retention::NONE;
        let known = self.history.trimmed.max(self.history.trimming);
        let unknown = self.history.live.range(known + 1..).next().filter(|(seq, _)| **seq <= first);
        if let Some((seq, _)) = unknown.filter(|_| !may_drop) {
            return Err(format!("{seq} was dropped without a truncation"));
        }
        self.history.trimmed = self.history.trimmed.max(first);
        self.history.trimming = self.history.trimmed;
        let there: HashMap<u64, &Item> = items.iter().map(|item| (item.last(), item)).collect();
        let mut lost = Vec::new();
        for (seq, record) in self.history.live.range(self.history.trimmed + 1..) {
            let gap = items
                .iter()
                .any(|item| matches!(item, Item::Gap(from, to) if from < seq && seq <= to));
            if !there.contains_key(seq) && !gap {
                if record.step.is_some() {
                    return Err(format!(
                        "DURABLE {seq} is gone after a crash: {:?}, read to {:?}",
                        self.config,
                        items.last().map(brief)
                    ));
                }
                lost.push(*seq);
            }
        }
        for seq in lost {
            if let Some(record) = self.history.live.remove(&seq) {
                self.history.dead.push((seq, record.payload));
            }
        }
        Ok(())
    }

    fn op(&mut self, log: &Log, engine: &Engine, op: &Op) -> Result<(), Stop> {
        match op {
            Op::Each(lens) => {
                for len in lens {
                    let ticket = self.append(log, *len)?;
                    self.wait(ticket)?;
                }
            }
            Op::Together(lens) => {
                for len in lens {
                    drop(self.append(log, *len)?);
                }
                let ticket = self.going(log.barrier().map_err(Into::into))?;
                self.wait(ticket)?;
            }
            Op::Unwaited(lens) => {
                for len in lens {
                    drop(self.append(log, *len)?);
                }
            }
            Op::Atomic(lens) | Op::Batch(lens) => {
                let prev = self.history.last();
                let payloads: Vec<_> =
                    lens.iter().map(|len| self.history.payloads.next(*len)).collect();
                let records: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
                let ticket = match op {
                    Op::Atomic(_) => log.write(Append::records(&records).atomic()),
                    _ => log.write(Append::records(&records)),
                };
                // Part of a plain batch may have its place when power fails.
                if ticket.is_ok() || !self.disk.is_on() {
                    for (n, payload) in payloads.iter().enumerate() {
                        let prev = prev + n as u64;
                        self.history.accepted(prev + 1, prev, payload.clone());
                    }
                }
                let ticket = self.going(ticket.map_err(Error::from))?;
                self.wait(ticket)?;
            }
            Op::Truncate(part) => {
                let durable = self.history.durable();
                let trimmed = self.history.trimmed;
                let seq = trimmed + (durable - trimmed.min(durable)) * part / 90 + 1;
                if seq > durable + 1 {
                    return Ok(());
                }
                self.history.trimming = seq - 1;
                let done = log.retention().truncate_before(seq);
                self.going(done.map_err(Into::into))?;
                self.history.trimmed = self.history.trimmed.max(seq - 1);
                self.stepped(Kind::Other);
            }
            Op::Run => engine.run(),
            Op::Advance(by) => engine.advance(*by),
        }
        Ok(())
    }

    fn append(&mut self, log: &Log, len: usize) -> Result<Ticket, Stop> {
        let prev = self.history.last();
        let left_out = if self.config.sparse { self.rng.below(3) * self.rng.below(50) } else { 0 };
        let seq = prev + 1 + left_out;
        let payload = self.history.payloads.next(len);
        let ticket = if self.config.sparse {
            log.write(Append::numbered(Seq(prev), &[(Seq(seq), &payload)])).map_err(Error::from)
        } else {
            log.append(&payload).map_err(Into::into)
        };
        if ticket.is_ok() || !self.disk.is_on() {
            self.history.accepted(seq, prev, payload);
        }
        let ticket = self.going(ticket)?;
        if ticket.seq().0 != seq {
            return Err(Stop::Broken(format!("{seq} was expected, and it is {}", ticket.seq())));
        }
        Ok(ticket)
    }

    fn wait(&mut self, ticket: Ticket) -> Result<(), Stop> {
        let last = self.going(ticket.blocking_wait().map_err(Into::into))?.seq.0;
        self.history.acknowledged(last);
        let page_is_synced = self.config.policy == Policy::OsBuffered;
        self.stepped(Kind::Acknowledged { page_is_synced });
        Ok(())
    }

    fn going<T>(&self, outcome: Result<T, Error>) -> Result<T, Stop> {
        outcome.map_err(|error| {
            if self.disk.is_on() { Stop::Broken(format!("{error:?}")) } else { Stop::Ended }
        })
    }

    /// One record of a closed log is corrupted, and given up.
    fn harm_and_repair(&mut self) -> Result<(), String> {
        let before = files(&self.disk);
        let places = self.history.places(&before);
        let mut steps: Vec<_> = places.keys().copied().collect();
        steps.sort_unstable();
        let Some(step) = self.rng.pick(&steps) else { return Ok(()) };
        let Some((file, blocks)) = places.get(step).and_then(|places| places.first()) else {
            return Ok(());
        };
        let middle = (blocks.start + blocks.end) / 2 * BLOCK_BYTES + 100;
        let disk = self.disk.process();
        disk.flip_bit(&Path::new(DIR).join(file), middle as u64 * 8).map_err(|e| e.to_string())?;
        let engine = Engine::manual();
        repair(DIR, self.options(&self.disk, &engine)).map_err(|error| format!("{error:?}"))?;
        let fork = self.disk.fork(1);
        let log = Log::builder(DIR).options(self.options(&fork, &engine)).open();
        let log = log.map_err(|error| format!("after a repair: {error:?}"))?;
        let read = reading::of_log(&log, Start::Oldest)?;
        engine.stop();
        for item in &read.items {
            let Item::Gap(from, to) = item else { continue };
            if self.history.gaps.iter().any(|(f, t)| f <= from && to <= t) {
                continue;
            }
            let lost: Vec<u64> =
                self.history.live.range(from + 1..=*to).map(|(seq, _)| *seq).collect();
            for seq in lost {
                let Some(record) = self.history.live.remove(&seq) else { continue };
                let step_of = record.written();
                self.history.given_up.insert(seq, record);
                let shares = step_of.is_some_and(|of| {
                    places.get(&of).is_none_or(|places| {
                        places
                            .iter()
                            .any(|(f, b)| f == file && b.start < blocks.end && blocks.start < b.end)
                    })
                });
                if !shares {
                    return Err(format!("{seq} was given up for another, {}", brief(item)));
                }
            }
            self.history.gaps.push((*from, *to));
            self.history.gaps.sort_unstable();
        }
        self.history.traces.pass_over(&files(&self.disk));
        self.clean = false;
        Ok(())
    }
}
