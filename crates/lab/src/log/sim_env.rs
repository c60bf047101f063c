//! A log that lives on a simulated disk, dies and is opened again, beside the model of it.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use esker_disk::Disk;
use esker_disk::sim::SimDisk;
use esker_log::{
    Append, AppendError, Engine, Error, Log, Policy, PriorShutdown, ReadError, Seq, Start, Ticket,
};
use esker_testkit::{SplitMix64, mix};

use super::config::Config;
use super::history::History;
use super::model::{Entry, Model, ReadRecord, SegmentUse, appends};
use super::workload::{Step, Then};
use super::{BATCH_RECORDS, DIR, SYNC_PERIOD};
use crate::plan::{self, How, Plan};
use crate::survival::Survival;

/// Why a life did not continue.
#[derive(Debug)]
pub enum Stop {
    /// The power is off, or the process dead.
    Ended,
    /// An error while the power was on.
    Failed(Error),
    /// The contract is broken.
    Broken(String),
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stop::Ended => f.write_str("the power is off"),
            Stop::Failed(error) => write!(f, "{error:?}"),
            Stop::Broken(what) => f.write_str(what),
        }
    }
}

impl From<Stop> for plan::Stop {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Ended => plan::Stop::Ended,
            stop => plan::Stop::Broken(format!("{stop}")),
        }
    }
}

pub type LifeResult<T = ()> = Result<T, Stop>;

impl From<String> for Stop {
    fn from(what: String) -> Self {
        Stop::Broken(what)
    }
}

fn broken<T>(what: impl Into<String>) -> LifeResult<T> {
    Err(Stop::Broken(what.into()))
}

/// A disk, a log on it, and what must be in it.
#[derive(Debug, Clone)]
pub struct SimEnv {
    pub disk: SimDisk,
    pub config: Config,
    pub model: Model,
    /// Makes every payload another.
    nonce: u64,
    /// Watches the calls of each life from here on.
    pub history: Option<History>,
    /// The clock of the current life, or of the last one.
    clock: Duration,
    /// Whether the last life ended with a crash that no opening has looked at.
    crashed: bool,
    /// The session of the last opening.
    session: u64,
    /// The records that survived each crash.
    pub survivals: Vec<Survival>,
}

/// A log that is open.
#[derive(Debug)]
pub struct Life {
    pub log: Log,
    pub engine: Engine,
    pub kept: Vec<Ticket>,
    pub clock: Duration,
    /// The records that the crash before it lost.
    pub lost: Vec<Entry>,
    /// The last record at opening.
    pub opened_at: u64,
}

impl Drop for Life {
    fn drop(&mut self) {
        self.kept.clear();
        // The queue of a manual engine keeps its logs alive.
        self.engine.stop();
    }
}

impl SimEnv {
    pub fn new(config: Config, seed: u64) -> Self {
        Self {
            disk: config.disk(seed),
            config,
            model: Model::default(),
            nonce: mix(seed, 1),
            history: None,
            clock: Duration::ZERO,
            crashed: false,
            session: 0,
            survivals: Vec::new(),
        }
    }

    /// The same state on a disk of its own.
    pub fn fork(&self, seed: u64) -> Self {
        Self { disk: self.disk.fork(seed), nonce: mix(self.nonce, seed), ..self.clone() }
    }

    fn payload(&mut self, len: usize) -> Vec<u8> {
        self.nonce += 1;
        let mut rng = SplitMix64::new(mix(self.nonce, len as u64));
        let mut payload = vec![0; len];
        let (words, rest) = payload.as_chunks_mut();
        for word in words {
            *word = rng.next().to_le_bytes();
        }
        rest.copy_from_slice(&rng.next().to_le_bytes()[..rest.len()]);
        payload
    }

    // ---- living and dying ----------------------------------------------------------------------

    /// Switches the power on and opens the log, without a look at what is in it.
    pub fn open_unseen(&mut self) -> LifeResult<Life> {
        let engine = Engine::manual();
        let process = Arc::new(self.disk.process());
        let disk: Arc<dyn Disk> = match &self.history {
            Some(history) => Arc::new(history.watch(process)),
            None => process,
        };
        self.model.opening(self.config);
        let opened = Log::builder(DIR).options(self.config.options(disk, &engine)).open();
        match opened {
            Ok(log) => {
                let opened_at = log.durable().0;
                let (kept, clock, lost) = (Vec::new(), Duration::ZERO, Vec::new());
                Ok(Life { log, engine, kept, clock, lost, opened_at })
            }
            Err(error) => {
                engine.stop();
                self.stop(error.into())
            }
        }
    }

    /// Opens the log and holds what is in it against the model.
    pub fn open(&mut self) -> LifeResult<Life> {
        let mut life = self.open_unseen()?;
        // Opening has resolved what the cut left undecided.
        let last = life.log.storage().recovery().last.0;
        if life.log.durable().0 != last || life.log.accepted().0 != last {
            return broken(format!(
                "recovery ends with {last}, the log with {} durable and {} accepted",
                life.log.durable(),
                life.log.accepted()
            ));
        }
        trace(|| format!("opened: {:?}", life.log.storage().recovery()));
        // It is open: what it reports now holds, even if power fails before the next call.
        let after = life.log.storage().metadata().after.0;
        let (accepted, durable) = self.model.counts();
        let metadata = life.log.storage().metadata();
        if metadata.session <= self.session {
            let (session, before) = (metadata.session, self.session);
            return broken(format!("session {session} follows session {before}"));
        }
        self.session = metadata.session;
        let left = SegmentUse { segments: metadata.segments as u64, bytes: metadata.disk_bytes };
        let opened = self.model.open(last, after, left);
        if std::mem::take(&mut self.crashed) {
            let survival = Survival { accepted, durable, ..Survival::default() };
            self.survivals.push(match &opened {
                Ok(lost) => Survival {
                    recovered: self.model.counts().0,
                    lost_calls: appends(lost) as u64,
                    lost_age: lost.first().map_or(Duration::ZERO, |oldest| self.clock - oldest.at),
                    ..survival
                },
                // What recovery found cannot be counted, and is none of what should be there. There
                // are no more records than numbers.
                Err(_) => {
                    let recovered = last.min(durable.saturating_sub(1));
                    Survival { recovered, lost_calls: accepted - recovered, ..survival }
                }
            });
        }
        life.lost = opened?;
        self.clock = Duration::ZERO;
        let seen = self.read_all(&life.log, Start::Oldest)?;
        self.model.recover(&seen)?;
        if self.disk.is_on() {
            self.check_files(&life)?;
        }
        Ok(life)
    }

    /// Opens the log and goes through the steps. The power may go anywhere.
    pub fn live(&mut self, steps: &[Step]) -> LifeResult<Life> {
        let mut life = self.open()?;
        self.go(&mut life, steps)?;
        Ok(life)
    }

    /// Goes through steps.
    pub fn go(&mut self, life: &mut Life, steps: &[Step]) -> LifeResult {
        for step in steps {
            trace(|| format!("operation {}: {step:?}", self.disk.operations()));
            let done = self.step(life, step);
            self.observe(life)?;
            trace(|| format!("{} accepted, {} durable", self.model.last(), self.model.durable()));
            done?;
            if !self.disk.is_on() {
                return Err(Stop::Ended);
            }
            self.check_window(life, step)?;
        }
        Ok(())
    }

    /// Runs one whole life under a plan: it ends there or, when the plan does not come to it, after
    /// the last step.
    pub fn live_and_die(&mut self, steps: &[Step], plan: Plan) -> Result<(), String> {
        trace(|| format!("life until {plan}: {:?}", self.disk.files(Path::new(DIR))));
        let disk = self.disk.clone();
        plan.end(&disk, || self.live(steps).map_err(plan::Stop::from))?;
        self.after(plan.how)
    }

    /// Ends a life that continues.
    pub fn die(&mut self, life: Life, how: How) -> Result<(), String> {
        how.strike(&self.disk);
        drop(life);
        self.after(how)
    }

    fn after(&mut self, how: How) -> Result<(), String> {
        if self.disk.is_on() {
            return Err("the life ended, and the power is on".into());
        }
        if how != How::Kill {
            self.model.lose_cache();
        }
        self.disk.power_on();
        self.crashed = true;
        Ok(())
    }

    /// Ends a life under a fault, if it still lives.
    pub fn die_after_fault(&mut self, life: Option<Life>, how: How) -> Result<(), String> {
        how.strike(&self.disk);
        drop(life);
        // After a fault the page cache may hold anything.
        self.model.lose_cache();
        self.after(how)
    }

    /// The last life of a test: goes through the steps, closes, and finds everything again.
    pub fn live_and_close(&mut self, steps: &[Step]) -> Result<(), String> {
        let reported = |stop: Stop| format!("{stop}");
        let mut life = self.live(steps).map_err(reported)?;
        self.go(&mut life, &[Step::Read, Step::Reopen, Step::Read]).map_err(reported)
    }

    // ---- steps ---------------------------------------------------------------------------------

    fn step(&mut self, life: &mut Life, step: &Step) -> LifeResult {
        match step {
            Step::Append { len, then } => {
                let payload = self.payload(*len);
                let seq = self.model.last() + 1;
                let ticket = life.log.append(&payload);
                self.accepted(life, ticket.map_err(Into::into), &[(seq, payload)], 0, *then)
            }
            Step::Numbered { gap, len, then } => {
                let payload = self.payload(*len);
                let prev = self.model.last();
                let seq = prev + 1 + gap;
                let numbered = [(Seq(seq), &payload)];
                let ticket = life.log.write(Append::numbered(Seq(prev), &numbered));
                let ticket = ticket.map_err(Error::from);
                self.accepted(life, ticket, &[(seq, payload)], 0, *then)
            }
            Step::Batch { lens, atomic, gap, then } => {
                let first = self.model.last();
                let apart = gap.map_or(1, |gap| gap + 1);
                let records: Vec<_> = (1u64..)
                    .zip(lens)
                    .map(|(n, len)| (first + n * apart, self.payload(*len)))
                    .collect();
                let ticket = append_batch(&life.log, &records, first, *atomic, gap.is_some());
                let group = if *atomic { self.model.new_group() } else { 0 };
                self.accepted(life, ticket, &records, group, *then)
            }
            Step::Misnumbered => self.misnumbered(life),
            Step::Flush { then } => match life.log.barrier() {
                Ok(ticket) => self.then(life, ticket, *then),
                Err(error) => self.stop(error.into()),
            },
            Step::WaitForTickets => {
                for ticket in std::mem::take(&mut life.kept) {
                    self.then(life, ticket, Then::Wait)?;
                }
                Ok(())
            }
            Step::Truncate { percent } => self.truncate(life, *percent),
            Step::Run => {
                life.engine.run();
                Ok(())
            }
            Step::Advance(by) => {
                life.clock += *by;
                life.engine.advance(*by);
                Ok(())
            }
            Step::Read => self.read(life),
            Step::Reopen => self.reopen(life),
        }
    }

    /// An append came back. An error says that nothing was accepted, but for a batch that is not
    /// atomic: of that, a prefix.
    fn accepted(
        &mut self,
        life: &mut Life,
        ticket: Result<Ticket, Error>,
        records: &[(u64, Vec<u8>)],
        group: u64,
        then: Then,
    ) -> LifeResult {
        let through = match &ticket {
            Ok(ticket) => ticket.seq().0,
            Err(_) if group == 0 && records.len() > 1 => life.log.accepted().0,
            Err(_) => self.model.last(),
        };
        for (seq, payload) in records.iter().take_while(|(seq, _)| *seq <= through) {
            let (prev, at) = (self.model.last(), life.clock);
            let payload = Arc::from(&**payload);
            self.model.accept(Entry { seq: *seq, prev, payload, group, at });
        }
        if life.log.accepted().0 != self.model.last() {
            let (log, model) = (life.log.accepted(), self.model.last());
            return broken(format!("{log} is the last accepted, and should be {model}"));
        }
        match ticket {
            Ok(ticket) => self.then(life, ticket, then),
            Err(error) => self.stop(error),
        }
    }

    fn then(&mut self, life: &mut Life, ticket: Ticket, then: Then) -> LifeResult {
        match then {
            Then::Keep => life.kept.push(ticket),
            Then::Drop => drop(ticket),
            Then::Wait => {
                let seq = ticket.seq();
                match ticket.blocking_wait() {
                    Ok(appended) if appended.seq != seq || life.log.durable() < seq => {
                        let durable = life.log.durable();
                        return broken(format!("{seq} is {appended:?}, and {durable} durable"));
                    }
                    Ok(_) => {}
                    Err(error) => return self.stop(error.into()),
                }
            }
        }
        Ok(())
    }

    fn misnumbered(&mut self, life: &Life) -> LifeResult {
        let last = self.model.last();
        if last == 0 {
            return Ok(());
        }
        let late = [(Seq(last + 9), b"never")];
        match life.log.write(Append::numbered(Seq(last - 1), &late)).map_err(Error::from) {
            Err(Error::Sequence { .. } | Error::Conflict { .. }) => Ok(()),
            Err(error) => self.stop(error),
            Ok(ticket) => broken(format!("{} was accepted out of order", ticket.seq())),
        }
    }

    fn truncate(&mut self, life: &Life, percent: u64) -> LifeResult {
        let readable = self.model.readable();
        let index = (readable.len() as u64 * percent / 100) as usize;
        let seq = match readable.get(index) {
            Some(entry) => entry.seq,
            None => self.model.durable() + 1,
        };
        self.model.may_drop(seq - 1);
        match life.log.retention().truncate_before(seq) {
            Ok(()) => {
                self.model.drop_through(seq - 1);
                Ok(())
            }
            Err(error) => self.stop(error.into()),
        }
    }

    fn reopen(&mut self, life: &mut Life) -> LifeResult {
        if let Err(error) = life.log.close() {
            return self.stop(error.into());
        }
        self.model.mark_durable(self.model.last())?;
        self.observe(life)?;
        for ticket in std::mem::take(&mut life.kept) {
            self.then(life, ticket, Then::Wait)?;
        }
        *life = self.open()?;
        let recovery = life.log.storage().recovery();
        if recovery.prior_shutdown != PriorShutdown::Clean
            || recovery.truncated_tail.is_some()
            || !life.lost.is_empty()
        {
            return broken(format!("closed cleanly, and found {recovery:?}"));
        }
        Ok(())
    }

    /// A record that a test appended by itself, and that is durable.
    pub fn accepted_unseen(&mut self, payload: &[u8]) {
        let prev = self.model.last();
        let (seq, payload, at) = (prev + 1, Arc::from(payload), Duration::ZERO);
        self.model.accept(Entry { seq, prev, payload, group: 0, at });
    }

    // ---- looking -------------------------------------------------------------------------------

    /// Reads all records through a stream, and some of them one by one.
    fn read(&mut self, life: &Life) -> LifeResult {
        let seen = self.read_all(&life.log, Start::Oldest)?;
        self.model.matches(&seen)?;
        let readable = self.model.readable();
        let Some(middle) = readable.get(readable.len() / 2) else {
            return Ok(());
        };
        let later = self.read_all(&life.log, Start::From(Seq(middle.seq)))?;
        if later != seen[seen.len() - (readable.len() - readable.len() / 2)..] {
            return broken(format!("a stream from {} gives something else", middle.seq));
        }
        for entry in readable.iter().step_by(3) {
            match life.log.read(entry.seq) {
                Ok(view) if *view == *entry.payload => {}
                Ok(_) => return broken(format!("{} reads as something else", entry.seq)),
                Err(error) => return self.stop(error.into()),
            }
        }
        let unwritten = self.model.last() + 1;
        match life.log.read(unwritten) {
            Err(ReadError::NotFound { .. }) => {}
            other => return broken(format!("{unwritten} was never accepted, and is {other:?}")),
        }
        match (self.model.dropped(), life.log.read(self.model.dropped())) {
            (0, _) | (_, Err(ReadError::Trimmed(_))) => Ok(()),
            (seq, other) => broken(format!("{seq} was dropped, and is {other:?}")),
        }
    }

    pub fn read_all(&self, log: &Log, start: Start) -> LifeResult<Vec<ReadRecord>> {
        let read = || {
            let mut stream = log.stream(start)?;
            let mut all = Vec::new();
            while let Some(batch) = stream.try_next()? {
                all.extend(batch.iter().map(|record| ReadRecord {
                    seq: record.seq.0,
                    prev: record.prev.0,
                    payload: record.payload.to_vec(),
                }));
            }
            Ok(all)
        };
        read().or_else(|error| self.stop(error))
    }

    /// Checks that no file is left that no later opening needs: a segment may be made ahead, and
    /// two may wait to be used again.
    fn check_files(&self, life: &Life) -> LifeResult {
        let names = self.disk.files(Path::new(DIR)).unwrap_or_default();
        let count = |ending: &str| names.iter().filter(|name| name.ends_with(ending)).count();
        let segments = life.log.storage().metadata().segments;
        let verifies = (segments..=segments + 1).contains(&count(".seg"));
        if verifies && count(".spare") <= 2 && count(".new") == 0 {
            return Ok(());
        }
        broken(format!("{segments} segments are open, and these files are there: {names:?}"))
    }

    /// Compares the log's own numbers with the model, and binds the model to them.
    pub fn observe(&mut self, life: &Life) -> LifeResult {
        self.clock = life.clock;
        self.model.mark_durable(life.log.durable().0)?;
        let (metadata, stats) = (life.log.storage().metadata(), life.log.stats());
        self.model.drop_through(metadata.after.0);
        self.model.handed_over(life.opened_at, stats.records);
        let pending = self.model.pending().len() as u64;
        if stats.pending != pending {
            return broken(format!("{pending} records are pending, not {}", stats.pending));
        }
        Ok(())
    }

    /// Checks that no more is at risk after a step than the policy allows.
    fn check_window(&self, life: &Life, step: &Step) -> LifeResult {
        let pending = self.model.pending();
        let at_risk = appends(pending) as u64;
        let over = match self.config.policy {
            Policy::Batch(_) if *step == Step::Run => at_risk > BATCH_RECORDS - 1,
            Policy::Batch(_) => at_risk > 2 * BATCH_RECORDS - 1,
            Policy::Periodic(_) => match (step, pending.first()) {
                (Step::Advance(_), Some(oldest)) => oldest.at + SYNC_PERIOD <= life.clock,
                _ => false,
            },
            _ => false,
        };
        // A log that failed commits nothing more, and says so.
        let fails =
            || !matches!(life.log.try_append(vec![0; 2 << 20]), Err(AppendError::TooLarge { .. }));
        if over && !fails() {
            let many = pending.len();
            return broken(format!("{many} records of {at_risk} appends at risk after {step:?}"));
        }
        Ok(())
    }

    fn stop<T>(&self, error: Error) -> LifeResult<T> {
        Err(if self.disk.is_on() { Stop::Failed(error) } else { Stop::Ended })
    }
}

fn append_batch(
    log: &Log,
    records: &[(u64, Vec<u8>)],
    first: u64,
    atomic: bool,
    numbered: bool,
) -> Result<Ticket, Error> {
    if numbered {
        let records: Vec<_> = records.iter().map(|(seq, payload)| (Seq(*seq), payload)).collect();
        return write(log, Append::numbered(Seq(first), &records), atomic);
    }
    let payloads: Vec<_> = records.iter().map(|(_, payload)| payload).collect();
    write(log, Append::records(&payloads), atomic)
}

fn write(log: &Log, append: Append<'_, impl AsRef<[u8]>>, atomic: bool) -> Result<Ticket, Error> {
    Ok(log.write(if atomic { append.atomic() } else { append })?)
}

/// Prints `what`, where `ESKER_TRACE` is set.
#[allow(clippy::print_stdout)]
fn trace(what: impl FnOnce() -> String) {
    if std::env::var_os("ESKER_TRACE").is_some() {
        println!("{}", what());
    }
}
