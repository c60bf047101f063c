//! The machine shared by all handles: power, clock, operation counters and faults.
//!
//! Every call of a handle passes through [`SharedMachine::begin`]. It takes the lock, counts the
//! call, and decides whether the power is cut now or a fault strikes. The call ends in
//! [`SharedMachine::finish`], where the power may be cut while the call is in flight.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;

use super::blocking_gate::Gate;
use super::fault::{Effect, Faults};
use super::namespace::{Namespace, NodeId};
use super::options::SimOptions;
use super::power::{CutPoint, End};
use super::rng::Rng;
use super::stats::SimStats;
use crate::error::{Error, Op, Result};

#[derive(Debug)]
pub(super) struct Machine {
    pub(super) options: SimOptions,
    pub(super) rng: Rng,
    pub(super) names: Namespace,
    pub(super) locks: BTreeSet<NodeId>,
    pub(super) faults: Faults,
    pub(super) stats: SimStats,
    pub(super) clock: Duration,
    pub(super) operations: u64,
    pub(super) reads: u64,
    pub(super) plan: Option<(CutPoint, End)>,
    pub(super) on: bool,
    /// The number of the current process life. A handle is valid only in the life that opened it.
    pub(super) life: u64,
}

/// The result of a call, before the error names the call.
pub(super) type Outcome<T> = std::result::Result<T, Errno>;

/// The machine, shared by its handles.
#[derive(Debug)]
pub(super) struct SharedMachine(Mutex<Machine>);

/// How a call is numbered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Count {
    /// As an operation, which changes something.
    Operation,
    /// As a read.
    Read,
    /// Not numbered.
    Nothing,
}

/// The properties of a call, for numbering and faults.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) op: Op,
    pub(super) path: &'a Path,
    pub(super) offset: Option<u64>,
    pub(super) count: Count,
    pub(super) takes_space: bool,
    /// The process life of the handle; `None` for a handle that is valid in every life.
    pub(super) life: Option<u64>,
}

/// The planned fault or end of a call.
#[derive(Debug, Default)]
pub(super) struct Fate {
    pub(super) effect: Option<Effect>,
    ends: Option<End>,
    held: Option<Gate>,
}

impl Fate {
    /// Returns the error that strikes the call.
    pub(super) fn error(&self) -> Option<Errno> {
        match self.effect {
            Some(Effect::Io) => Some(Errno::IO),
            Some(Effect::NoSpace) => Some(Errno::NOSPC),
            Some(Effect::Os(code)) => Some(Errno::from_raw_os_error(code)),
            _ => None,
        }
    }

    /// Returns whether the power is cut, or the process dies, while the call is in flight.
    pub(super) fn is_last(&self) -> bool {
        self.ends.is_some()
    }
}

impl Call<'_> {
    pub(super) fn failed(&self, errno: Errno) -> Error {
        Error::new(self.op, self.path, self.offset, io::Error::from(errno))
    }

    fn dead(&self, machine: &Machine) -> Error {
        let why = if machine.on {
            "this handle is of a life before the power went or the process died"
        } else {
            "the power is off"
        };
        let source = io::Error::new(io::ErrorKind::BrokenPipe, why);
        Error::new(self.op, self.path, self.offset, source)
    }
}

impl Machine {
    pub(super) fn new(options: SimOptions) -> Self {
        Self {
            options,
            rng: Rng::new(options.seed),
            names: Namespace::new(),
            locks: BTreeSet::new(),
            faults: Faults::default(),
            stats: SimStats::default(),
            clock: Duration::ZERO,
            operations: 0,
            reads: 0,
            plan: None,
            on: true,
            life: 0,
        }
    }

    fn is_alive(&self, life: Option<u64>) -> bool {
        self.on && life.is_none_or(|life| life == self.life)
    }

    /// Returns how many bytes of new space are available.
    pub(super) fn free(&self) -> u64 {
        match self.options.capacity {
            Some(capacity) => capacity.saturating_sub(self.names.used()),
            None => u64::MAX,
        }
    }

    fn number(&mut self, count: Count) -> (Option<End>, Option<End>) {
        let (before, during) = match count {
            Count::Operation => {
                let number = self.operations;
                self.operations += 1;
                (CutPoint::Before(number), Some(CutPoint::During(number)))
            }
            Count::Read => {
                let number = self.reads;
                self.reads += 1;
                (CutPoint::BeforeRead(number), None)
            }
            Count::Nothing => return (None, None),
        };
        let at = |point| self.plan.filter(|plan| Some(plan.0) == point).map(|plan| plan.1);
        (at(Some(before)), during.and_then(|during| at(Some(during))))
    }
}

impl SharedMachine {
    pub(super) fn new(machine: Machine) -> Self {
        Self(Mutex::new(machine))
    }

    pub(super) fn machine(&self) -> MutexGuard<'_, Machine> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the machine; fails when it is off or the handle is dead.
    pub(super) fn alive(&self, call: &Call<'_>) -> Result<MutexGuard<'_, Machine>> {
        let machine = self.machine();
        if machine.is_alive(call.life) { Ok(machine) } else { Err(call.dead(&machine)) }
    }

    /// Runs an operation that takes effect completely or not at all.
    pub(super) fn operate<T>(
        &self,
        call: Call<'_>,
        run: impl FnOnce(&mut Machine) -> Outcome<T>,
    ) -> Result<T> {
        let (mut machine, call, fate) = self.begin(call, |_, _| {})?;
        let outcome = fate.error().map_or_else(|| run(&mut machine), Err);
        let outcome = outcome.map_err(|errno| call.failed(errno));
        self.finish(machine, &call, fate, outcome)
    }

    /// Begins a call. `describe` updates its properties from the current state.
    pub(super) fn begin<'a>(
        &self,
        mut call: Call<'a>,
        describe: impl FnOnce(&Machine, &mut Call<'a>),
    ) -> Result<(MutexGuard<'_, Machine>, Call<'a>, Fate)> {
        let mut machine = self.alive(&call)?;
        describe(&machine, &mut call);
        let (before, during) = machine.number(call.count);
        if let Some(end) = before {
            machine.end(end);
            return Err(call.dead(&machine));
        }
        let mut fate = Fate { ends: during, ..Fate::default() };
        let Machine { faults, rng, .. } = &mut *machine;
        fate.effect = faults.strike(call.op, call.path, call.takes_space, rng);
        machine.stats.faults += u64::from(fate.effect.is_some());
        match fate.effect.take() {
            Some(Effect::Slow(time)) => machine.clock += time,
            Some(Effect::Block(gate)) => {
                drop(machine);
                gate.pass(|| self.machine().is_alive(call.life));
                machine = self.alive(&call)?;
            }
            Some(Effect::BlockReturn(gate)) => fate.held = Some(gate),
            other => fate.effect = other,
        }
        Ok((machine, call, fate))
    }

    /// Ends a call with its outcome. The caller does not get the outcome when the power is cut.
    pub(super) fn finish<T>(
        &self,
        mut machine: MutexGuard<'_, Machine>,
        call: &Call<'_>,
        fate: Fate,
        outcome: Result<T>,
    ) -> Result<T> {
        if let Some(end) = fate.ends {
            machine.end(end);
            return Err(call.dead(&machine));
        }
        if let Some(gate) = fate.held {
            drop(machine);
            gate.pass(|| self.machine().is_alive(call.life));
            drop(self.alive(call)?);
        }
        outcome
    }
}
