//! When a commit starts.
//!
//! [`schedule`] decides it, and nothing else does: callers report an [`Event`], and the driver
//! carries out the [`Action`]. This is the whole table. The book has the same one, and a test
//! compares both with the code.
//!
//! | event | `Always` | `Batch(n)` | `Periodic(t)` | `OsBuffered` | run by |
//! |---|---|---|---|---|---|
//! | a record is accepted | timer 10 ms | - | timer t | timer 10 ms | engine |
//! | the unit has n appends | timer 10 ms | sync | timer t | timer 10 ms | engine |
//! | the timer elapses | sync | none | sync | write | caller |
//! | a ticket is polled | sync | sync | sync | sync | engine |
//! | a ticket is waited for | sync | sync | sync | sync | caller |
//! | a ticket is dropped unresolved | sync | none | none | write | engine |
//! | the unit is full | sync | sync | sync | write | next |
//! | an append finds no room | sync | sync | sync | write | next |
//! | an append polls for room | - | - | - | - | engine |
//! | an append waits for room | - | - | - | - | caller |
//! | a sink polls for room | sync | sync | sync | write | engine |
//! | two earlier segments are unsynced | none | none | none | sync | next |
//! | the committer is free again | - | - | - | - | engine |
//! | close | sync | sync | sync | sync | caller |
//!
//! - *sync*: requests that units are written and made durable; *write*: that they are handed to the
//!   operating system. An event that names a unit requests it and all before it, the others
//!   everything accepted. A request is a unit's number, so a later one covers the earlier ones.
//! - *timer*: arms the timer, unless it runs already.
//! - *-*: requests nothing, but a commit that was requested before may start. *none*: no effect.
//! - *run by*: who runs what is requested. *caller*: the thread that reports the event (for the
//!   timer, an engine thread); *engine*: an engine thread that is woken; *next*: it is left to the
//!   next event. *Polled* includes waiting with a deadline: a write cannot be interrupted, so the
//!   engine runs it.
//! - *append*: a record, or an atomic batch as a whole. Each record of a batch that is not atomic
//!   is an append, because a crash may keep a part of such a batch.
//! - *no room*: in the staging memory; under `Batch` also with 2n - 1 appends at risk.
//!
//! **A requested commit starts at once**, with three exceptions ([`Core::has_job`],
//! [`Core::begin_delay`]). As many commits are in flight as may be. One is in flight, and a second
//! one beside it would gain nothing. Or the commit delay waits for callers; an accepted record ends
//! the delay once enough are back. How full units that no caller waits for share a sync is in
//! [`grouping`](super::grouping).

use std::time::Duration;

use esker_disk::planted::{Bug, is_planted};

use super::Core;
use super::units::InFlightCommit;
use crate::base::options::Policy;

/// Commits up to this size may be in flight concurrently.
const SMALL_COMMIT_BYTES: u32 = 64 << 10;
/// Under `Always` and `OsBuffered`, records whose commit no caller requested are committed
/// (`OsBuffered`: written) after this time. A caller may keep a ticket and never poll it.
const UNREQUESTED_DELAY: Duration = Duration::from_millis(10);
/// Requests everything accepted so far.
const EVERY_RECORD: u64 = u64::MAX;

/// Something that may start a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// A record or an atomic batch was accepted. The open unit now has this many appends.
    Accepted { open_appends: u32 },
    /// The timer that an [`Action`] armed elapsed.
    TimerElapsed,
    /// A future waits for this unit, or a caller with a deadline does.
    TicketPolled { unit: u64 },
    /// A caller waits for this unit, and can run commits.
    TicketAwaited { unit: u64 },
    /// A ticket for this unit was dropped before it resolved.
    TicketDropped { unit: u64 },
    /// A record did not fit in the open unit. The unit is sealed.
    UnitFull { unit: u64 },
    /// An append was refused until a commit ends.
    NoRoom,
    /// An append waits for room as a future or with a deadline.
    RoomPolled,
    /// An append waits for room, and can run commits.
    RoomAwaited,
    /// A sink waits for room.
    SinkPolled,
    /// Two segments before that of this unit have unsynced writes.
    SegmentsUnsynced { unit: u64 },
    /// A thread no longer needs the committer: its commit is submitted, or has ended.
    CommitterFree,
    /// The log accepts no more records.
    Closed,
}

/// The action for an [`Event`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Action {
    pub(super) request: Option<Request>,
    /// The timer to arm, unless one is armed.
    pub(crate) timer: Option<Duration>,
    /// `None` leaves requested commits to the next event.
    pub(crate) run_by: Option<Runner>,
}

/// A request for a commit, up to and including a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    /// Hand the units to the operating system.
    Write(u64),
    /// Make the units durable.
    Sync(u64),
}

/// Who runs the commits that are due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runner {
    /// The thread that reports the event.
    Caller,
    /// A thread of the engine, if there is a job and no thread is preparing one.
    Engine,
}

impl Action {
    pub(crate) const NOTHING: Self = Self { request: None, timer: None, run_by: None };

    const fn timer(after: Duration) -> Self {
        Self { timer: Some(after), ..Self::NOTHING }
    }

    const fn write(unit: u64) -> Self {
        Self { request: Some(Request::Write(unit)), ..Self::NOTHING }
    }

    const fn sync(unit: u64) -> Self {
        Self { request: Some(Request::Sync(unit)), ..Self::NOTHING }
    }

    const fn run_by(self, runner: Runner) -> Self {
        Self { run_by: Some(runner), ..self }
    }
}

/// Returns the action for an event: the table above.
///
/// It is always inlined, and so is what reports an event: each place knows its event, and only the
/// policy is left to decide at run time. Every append passes here under the state lock.
#[inline(always)]
pub(crate) fn schedule(policy: Policy, event: Event) -> Action {
    match event {
        Event::Accepted { open_appends } => match policy {
            Policy::Always | Policy::OsBuffered => Action::timer(UNREQUESTED_DELAY),
            Policy::Periodic(period) => Action::timer(times(Bug::PeriodTooLong) * period),
            Policy::Batch(n)
                if u64::from(open_appends)
                    >= n.get().saturating_mul(times(Bug::BatchWindowTooWide).into()) =>
            {
                Action::sync(EVERY_RECORD)
            }
            Policy::Batch(_) => Action::NOTHING,
        }
        .run_by(Runner::Engine),
        Event::TimerElapsed => match policy {
            Policy::Always | Policy::Periodic(_) => {
                Action::sync(EVERY_RECORD).run_by(Runner::Caller)
            }
            Policy::OsBuffered => Action::write(EVERY_RECORD).run_by(Runner::Caller),
            Policy::Batch(_) => Action::NOTHING,
        },
        Event::TicketPolled { unit } => Action::sync(unit).run_by(Runner::Engine),
        Event::TicketAwaited { unit } => Action::sync(unit).run_by(Runner::Caller),
        Event::TicketDropped { unit } => match policy {
            Policy::Always => Action::sync(unit).run_by(Runner::Engine),
            Policy::OsBuffered => Action::write(unit).run_by(Runner::Engine),
            // The accepted record already requested everything that is guaranteed.
            Policy::Batch(_) | Policy::Periodic(_) => Action::NOTHING,
        },
        Event::UnitFull { unit } => guaranteed(policy, unit),
        Event::NoRoom => guaranteed(policy, EVERY_RECORD),
        Event::SinkPolled => guaranteed(policy, EVERY_RECORD).run_by(Runner::Engine),
        Event::RoomPolled | Event::CommitterFree => Action::NOTHING.run_by(Runner::Engine),
        Event::RoomAwaited => Action::NOTHING.run_by(Runner::Caller),
        Event::SegmentsUnsynced { unit } => match policy {
            Policy::OsBuffered => Action::sync(unit),
            // Each commit is durable before the next segment's first one ends.
            Policy::Always | Policy::Batch(_) | Policy::Periodic(_) => Action::NOTHING,
        },
        Event::Closed => Action::sync(EVERY_RECORD).run_by(Runner::Caller),
    }
}

/// 2 where this bug is planted.
#[inline(always)]
fn times(bug: Bug) -> u32 {
    1 + u32::from(is_planted(bug))
}

/// A commit as the policy guarantees it to callers that do not wait.
const fn guaranteed(policy: Policy, unit: u64) -> Action {
    match policy {
        Policy::OsBuffered => Action::write(unit),
        Policy::Always | Policy::Batch(_) | Policy::Periodic(_) => Action::sync(unit),
    }
}

impl Core {
    /// Takes the request that the schedule makes for an event. The rest of the action is the
    /// caller's.
    #[inline(always)]
    pub(crate) fn on(&mut self, event: Event) -> Action {
        let action = schedule(self.policy, event);
        match event {
            Event::TicketPolled { unit } | Event::TicketAwaited { unit } => {
                self.requests.await_unit(unit);
            }
            Event::Closed => self.requests.await_unit(EVERY_RECORD),
            _ => {}
        }
        match action.request {
            Some(Request::Write(unit)) => self.request_write(unit),
            Some(Request::Sync(unit)) => self.request_sync(unit),
            None => {}
        }
        action
    }

    fn request_write(&mut self, unit: u64) {
        self.requests.request_write(unit.min(self.last_unit()));
        self.check_invariants();
    }

    fn request_sync(&mut self, unit: u64) {
        self.requests.request_sync(unit.min(self.last_unit()));
        self.check_invariants();
    }

    /// Whether there is a job, and room for it in flight.
    pub(crate) fn has_job(&self) -> bool {
        if self.has_failed() {
            return false;
        }
        if self.sync_is_due() {
            // It covers only what is complete, and nothing joins what it is to cover.
            return self.units.in_flight().is_empty();
        }
        self.units.has_slot() && (self.sealed_is_due() || self.open_is_due())
    }

    /// Whether the next job helps to make this unit durable.
    pub(crate) fn next_job_helps(&self, unit: u64) -> bool {
        self.sync_is_due() || self.handed_out().unit < unit
    }

    /// A write that no further unit can join gains nothing from waiting and does not wait. Before
    /// that, a commit in flight is waited for, as by [`Core::open_is_due`].
    fn sealed_is_due(&self) -> bool {
        self.units.first_sealed().is_some_and(|unit| {
            unit.number <= self.requests.write_through()
                && (self.is_whole(unit) || self.units.in_flight().is_empty())
        })
    }

    pub(super) fn open_is_due(&self) -> bool {
        let Some(open) = self.units.open().filter(|open| open.records > 0) else {
            return false;
        };
        // Large commits gain nothing from a second one in flight: the device is no faster, and
        // waiting lets more records join. A second commit also does not pay off where it would
        // split callers that come back together, or where it carries fewer records than the one in
        // flight: the callers would keep taking turns.
        let small = |commit: &InFlightCommit| {
            commit.bytes <= SMALL_COMMIT_BYTES && commit.records <= open.records
        };
        let in_flight = self.units.in_flight();
        let beside = || {
            open.used <= SMALL_COMMIT_BYTES
                && !self.commit_delay.is_regrouping()
                && in_flight.iter().all(small)
        };
        open.number <= self.requests.write_through() && (in_flight.is_empty() || beside())
    }

    pub(super) fn sync_is_due(&self) -> bool {
        let requested = self.requests.sync_through().min(self.handed_out().unit);
        self.marks.covered().unit < requested && !self.next_write_is_grouped()
    }

    /// A commit completed after `took` and woke this many callers.
    pub(crate) fn commit_completed(&mut self, callers: usize, took: Duration) {
        self.commit_delay.completed(self.open_records(), callers, took);
    }

    /// Returns the longest commit delay for the calling thread; `None` for no delay. The thread
    /// then waits, until [`Core::end_delay`].
    pub(crate) fn begin_delay(&mut self) -> Option<Duration> {
        let is_idle = self.units.in_flight().is_empty() && self.units.first_sealed().is_none();
        if !is_idle || self.sync_is_due() {
            return None;
        }
        self.commit_delay.begin(self.open_records())
    }

    /// Whether a thread is in the commit delay.
    pub(crate) fn is_delaying(&self) -> bool {
        self.commit_delay.is_waiting()
    }

    /// Whether a thread is in the commit delay and may stop: enough callers are back, or the unit
    /// is full.
    pub(crate) fn delay_is_met(&self) -> bool {
        let full = self.commit_delay.is_waiting() && self.units.first_sealed().is_some();
        full || self.commit_delay.is_met(self.open_records())
    }

    pub(crate) fn end_delay(&mut self) {
        self.commit_delay.end(self.open_records());
    }

    /// Records in the open unit.
    pub(crate) fn open_records(&self) -> u32 {
        self.units.open().map_or(0, |open| open.records)
    }

    /// Appends in the open unit; an atomic batch is one.
    pub(crate) fn open_appends(&self) -> u32 {
        self.units.open().map_or(0, |open| open.appends)
    }

    /// The unit that holds the last accepted record.
    pub(crate) fn last_unit(&self) -> u64 {
        self.units.last()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: u32 = 7;
    const PERIOD: Duration = Duration::from_millis(70);
    const UNIT: u64 = 3;

    const EVENTS: [Event; 14] = [
        Event::Accepted { open_appends: N - 1 },
        Event::Accepted { open_appends: N },
        Event::TimerElapsed,
        Event::TicketPolled { unit: UNIT },
        Event::TicketAwaited { unit: UNIT },
        Event::TicketDropped { unit: UNIT },
        Event::UnitFull { unit: UNIT },
        Event::NoRoom,
        Event::RoomPolled,
        Event::RoomAwaited,
        Event::SinkPolled,
        Event::SegmentsUnsynced { unit: UNIT },
        Event::CommitterFree,
        Event::Closed,
    ];

    fn policies() -> [Policy; 4] {
        let n = u64::from(N).try_into().unwrap();
        [Policy::Always, Policy::Batch(n), Policy::Periodic(PERIOD), Policy::OsBuffered]
    }

    /// The event's row in the table, and the unit up to which it requests a commit.
    fn row(event: Event) -> (&'static str, u64) {
        match event {
            Event::Accepted { open_appends } if open_appends < N => {
                ("a record is accepted", EVERY_RECORD)
            }
            Event::Accepted { .. } => ("the unit has n appends", EVERY_RECORD),
            Event::TimerElapsed => ("the timer elapses", EVERY_RECORD),
            Event::TicketPolled { unit } => ("a ticket is polled", unit),
            Event::TicketAwaited { unit } => ("a ticket is waited for", unit),
            Event::TicketDropped { unit } => ("a ticket is dropped unresolved", unit),
            Event::UnitFull { unit } => ("the unit is full", unit),
            Event::NoRoom => ("an append finds no room", EVERY_RECORD),
            Event::RoomPolled => ("an append polls for room", EVERY_RECORD),
            Event::RoomAwaited => ("an append waits for room", EVERY_RECORD),
            Event::SinkPolled => ("a sink polls for room", EVERY_RECORD),
            Event::SegmentsUnsynced { unit } => ("two earlier segments are unsynced", unit),
            Event::CommitterFree => ("the committer is free again", EVERY_RECORD),
            Event::Closed => ("close", EVERY_RECORD),
        }
    }

    /// The cell that says what an action is.
    fn cell(action: Action, through: u64) -> &'static str {
        match action {
            Action::NOTHING => "none",
            Action { request: Some(Request::Sync(unit)), timer: None, .. } if unit == through => {
                "sync"
            }
            Action { request: Some(Request::Write(unit)), timer: None, .. } if unit == through => {
                "write"
            }
            Action { request: None, timer: Some(PERIOD), .. } => "timer t",
            Action { request: None, timer: Some(UNREQUESTED_DELAY), .. } => "timer 10 ms",
            Action { request: None, timer: None, .. } => "-",
            other => panic!("no cell says {other:?}"),
        }
    }

    fn run_by(action: Action) -> &'static str {
        match action.run_by {
            Some(Runner::Caller) => "caller",
            Some(Runner::Engine) => "engine",
            None => "next",
        }
    }

    /// The table of every event under every policy, as the code decides it.
    fn table_of_the_code() -> Vec<String> {
        let mut table = vec![
            "| event | `Always` | `Batch(n)` | `Periodic(t)` | `OsBuffered` | run by |".into(),
            "|---|---|---|---|---|---|".into(),
        ];
        for event in EVENTS {
            let (label, through) = row(event);
            let actions = policies().map(|policy| schedule(policy, event));
            let mut runners: Vec<_> =
                actions.iter().filter(|a| **a != Action::NOTHING).map(|a| run_by(*a)).collect();
            runners.dedup();
            assert_eq!(runners.len(), 1, "{event:?} is run by one, under each policy");
            let cells = actions.map(|action| cell(action, through)).join(" | ");
            table.push(format!("| {label} | {cells} | {} |", runners[0]));
        }
        table
    }

    #[test]
    fn the_table_above_is_that_of_the_code() {
        let lines = include_str!("schedule.rs").lines();
        let table: Vec<_> = lines
            .filter_map(|line| line.strip_prefix("//! "))
            .filter(|line| line.starts_with('|'))
            .collect();
        assert_eq!(table, table_of_the_code());
    }

    #[test]
    fn the_table_in_the_book_is_that_of_the_code() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/guarantees.md");
        let book = std::fs::read_to_string(path).unwrap();
        let (_, section) = book.split_once("### When a commit starts\n").unwrap();
        let lines = section.lines().skip_while(|line| !line.starts_with('|'));
        let table: Vec<_> = lines.take_while(|line| line.starts_with('|')).collect();
        assert_eq!(table, table_of_the_code());
    }

    #[test]
    fn a_batch_is_requested_from_its_nth_append_on() {
        for (open_appends, request) in [
            (1, None),
            (N - 1, None),
            (N, Some(Request::Sync(EVERY_RECORD))),
            (N + 9, Some(Request::Sync(EVERY_RECORD))),
        ] {
            let action = schedule(policies()[1], Event::Accepted { open_appends });
            assert_eq!(action.request, request, "{open_appends} appends");
        }
    }
}
