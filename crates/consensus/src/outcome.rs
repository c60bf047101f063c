//! The result of an operation: its ticket, or an error.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use esker_disk::process;
use esker_log::Seq;

use crate::base::ballot::Ballot;
use crate::base::slot::Slot;
use crate::memory::entry::Entry;
use crate::read_only::ReadOnlyReason;

/// The result of an operation on a consensus log.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation on a consensus log failed.
///
/// The message says what failed and what to do about it. It does not repeat the cause, which is in
/// [`source`](std::error::Error::source).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// This log never accepted a value in this slot, as far as it knows. Ask another replica.
    SlotNotFound {
        /// The slot.
        slot: Slot,
    },
    /// The slot is accepted, but not durably committed. Wait, or skip it.
    NotCommitted {
        /// The slot.
        slot: Slot,
    },
    /// A higher ballot was promised, or accepted in this slot. Request promises again, with a
    /// ballot above this one.
    StaleBallot {
        /// The ballot to exceed.
        promised: Ballot,
    },
    /// The slot is committed with another value. Adopt that value.
    AlreadyCommitted {
        /// The committed entry.
        entry: Box<Entry<'static>>,
    },
    /// This ballot already proposed another value for this slot: two proposers share a ballot, or
    /// one forgot what it proposed. Nothing was accepted.
    AnotherValue {
        /// The slot.
        slot: Slot,
        /// The ballot.
        ballot: Ballot,
    },
    /// The slot is accepted under another ballot than the one named. Nothing was committed.
    BallotMismatch {
        /// The slot.
        slot: Slot,
        /// The ballot under which it is accepted.
        accepted: Ballot,
    },
    /// A slot below the one requested is missing or not committed. Nothing was changed.
    Gap {
        /// The first such slot.
        slot: Slot,
    },
    /// The slot was truncated; read it from a snapshot.
    Truncated {
        /// Slots up to and including this one were truncated.
        floor: Slot,
    },
    /// The call would have dropped a committed slot. Nothing was dropped.
    BelowFrontier {
        /// The highest committed slot that the call would have dropped.
        committed: Slot,
    },
    /// The slot is too far above the floor: the index is dense and spans 2^32 slots.
    SlotOutOfRange {
        /// The slot.
        slot: Slot,
        /// The first slot that is out of range.
        limit: Slot,
    },
    /// There is no room for another uncommitted value. Commit, choose a larger
    /// [`Options::mutable_size`](crate::Options::mutable_size), or wait with a deadline.
    BufferFull {
        /// The bytes in use.
        used: u64,
        /// The capacity in bytes.
        size: u64,
    },
    /// The value exceeds this log's limit.
    EntryTooLarge {
        /// The value's size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The value of a slot cannot be read: its bytes are corrupt or quarantined. Other slots are
    /// not affected.
    CorruptedEntry {
        /// The slot.
        slot: Slot,
        /// The log's error, with file and offset.
        cause: esker_log::Error,
    },
    /// A record of the log has a valid checksum, but its content is invalid. The log was not
    /// opened.
    CorruptedRecord {
        /// The record's sequence number.
        seq: Seq,
        /// The rule that it breaks.
        what: &'static str,
    },
    /// A batch of accepts stopped at a value that was refused. The values before it are accepted.
    BatchFailed {
        /// The number of accepted values: the first ones of the batch. At least one.
        accepted: usize,
        /// The acknowledgement of all accepted values. Answer for them when it has resolved.
        ticket: Ticket,
        /// Why the next value was refused.
        source: Box<Error>,
    },
    /// There is no snapshot, or none at the slot. Restore from the entries, or from another
    /// replica.
    NoSnapshot,
    /// A snapshot is not whole. An older one may be; see also
    /// [`Snapshots::latest`](crate::Snapshots::latest).
    CorruptedSnapshot {
        /// The slot of the snapshot.
        slot: Slot,
        /// The log's error, with file and offset.
        cause: esker_log::Error,
    },
    /// A stream of the caller failed: the state of a snapshot, or the connection to a replica.
    Stream(Arc<std::io::Error>),
    /// Another replica sent what does not belong to a snapshot, or stopped.
    Transfer {
        /// The rule that it breaks.
        what: &'static str,
    },
    /// No entry is stored at this offset.
    InvalidOffset {
        /// The requested offset.
        offset: Seq,
    },
    /// This log may lack what its node promised, so it is read-only. The reason says what to do.
    ReadOnly {
        /// Why it is read-only.
        reason: ReadOnlyReason,
    },
    /// The log was created with another label than the one it is opened with: it is another log.
    /// It was not opened.
    WrongLabel {
        /// The label that is stored with the log.
        found: Vec<u8>,
        /// The label in the options.
        expected: Vec<u8>,
    },
    /// The directory of a log that was created is gone, or holds no log any more. What its node
    /// promised is lost with it, so no empty log takes its place. Put the directory back; or call
    /// [`LogManager::remove`](crate::LogManager::remove), and let the node join its group as a new
    /// member.
    MissingLog {
        /// The key of the log.
        key: Vec<u8>,
        /// Its directory.
        dir: PathBuf,
    },
    /// The registry of keys cannot be read. Move it out of the directory of the manager: opening
    /// makes it again from the labels of the logs.
    CorruptedRegistry {
        /// The directory of the registry.
        dir: PathBuf,
        /// Why it cannot be read.
        cause: Box<Error>,
    },
    /// A backup that was interrupted. Delete the directory, and back up again.
    UnfinishedBackup {
        /// The directory.
        dir: PathBuf,
    },
    /// An option is out of its range. Nothing was opened.
    InvalidOption {
        /// The option's name.
        option: &'static str,
        /// The rule that the option must follow.
        rule: &'static str,
    },
    /// The log was closed, or its manager. Stop using it.
    Closed,
    /// `fork` made this process of one that used Esker, and nothing was done: see
    /// [`esker_log::Error::Forked`].
    Forked,
    /// The manager was closed, and its registry of keys with it.
    RegistryClosed,
    /// There are references to the log. Release them first.
    InUse {
        /// The number of references.
        references: usize,
    },
    /// The manager was closed while there were references to some logs. These logs stay open until
    /// the last of their guards is dropped.
    LeakedReferences {
        /// The keys of these logs, and the references to each.
        logs: BTreeMap<Vec<u8>, usize>,
    },
    /// The directory for a backup holds something. Nothing was changed.
    NotEmpty {
        /// The directory.
        dir: PathBuf,
    },
    /// The state of the open log contradicts itself: a bug of this crate. The log accepts nothing
    /// until it is reopened, which replays its records.
    Internal {
        /// The invariant that does not hold.
        invariant: &'static str,
    },
    /// The underlying log failed. After [`esker_log::Error::Poisoned`] it accepts nothing until it
    /// is reopened.
    Log(esker_log::Error),
}

/// The most logs that a message names.
const LEAKS_NAMED_MAX: usize = 10;

/// Refuses a call in a child that `fork` made.
#[inline]
pub(crate) fn refuse_if_forked() -> Result<()> {
    if process::is_forked() { Err(Error::Forked) } else { Ok(()) }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::SlotNotFound { .. }
            | Error::NotCommitted { .. }
            | Error::StaleBallot { .. }
            | Error::AlreadyCommitted { .. }
            | Error::AnotherValue { .. }
            | Error::BallotMismatch { .. }
            | Error::Gap { .. }
            | Error::Truncated { .. }
            | Error::BelowFrontier { .. }
            | Error::SlotOutOfRange { .. }
            | Error::BufferFull { .. }
            | Error::EntryTooLarge { .. } => self.fmt_refusal(f),
            Error::CorruptedEntry { slot, .. } => write!(f, "slot {slot} cannot be read"),
            Error::CorruptedRecord { seq, what } => {
                write!(f, "record {seq} is not a valid record of a consensus log: {what}")
            }
            Error::BatchFailed { accepted, .. } => {
                write!(f, "only the first {accepted} values of the batch were accepted")
            }
            Error::NoSnapshot => f.write_str("there is no such snapshot"),
            Error::CorruptedSnapshot { slot, .. } => {
                write!(
                    f,
                    "the snapshot at slot {slot} is not whole; use an older one, or fetch one from \
                     another replica"
                )
            }
            Error::Stream(_) => f.write_str("failed to read or write a stream of the caller"),
            Error::Transfer { what } => write!(f, "failed to transfer a snapshot: {what}"),
            Error::InvalidOffset { offset } => {
                write!(f, "record {offset} is not a durable entry of the log")
            }
            Error::ReadOnly { reason } => write!(f, "the log is read-only: {}", reason.advice()),
            Error::InvalidOption { option, rule } => write!(f, "option {option} must be {rule}"),
            Error::Closed => f.write_str("the log is closed"),
            Error::Forked => esker_log::Error::Forked.fmt(f),
            Error::Internal { invariant } => write!(
                f,
                "the open log contradicts itself: it does not hold that {invariant}; reopen it, \
                 and report this bug"
            ),
            Error::WrongLabel { .. }
            | Error::MissingLog { .. }
            | Error::CorruptedRegistry { .. }
            | Error::UnfinishedBackup { .. }
            | Error::RegistryClosed
            | Error::InUse { .. }
            | Error::LeakedReferences { .. }
            | Error::NotEmpty { .. } => self.fmt_of_manager(f),
            Error::Log(cause) => cause.fmt(f),
        }
    }
}

impl Error {
    /// Formats an error about the slot, the ballot or the value of a call.
    fn fmt_refusal(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::SlotNotFound { slot } => {
                write!(f, "slot {slot} was never accepted here; ask another replica")
            }
            Error::NotCommitted { slot } => {
                write!(f, "slot {slot} is not durably committed; wait for its commit, or skip it")
            }
            Error::StaleBallot { promised } => {
                write!(f, "ballot is stale: ballot {promised} was promised; use a higher one")
            }
            Error::AlreadyCommitted { entry } => write!(
                f,
                "slot {} is already committed, under ballot {}; adopt its value",
                entry.slot(),
                entry.ballot()
            ),
            Error::AnotherValue { slot, ballot } => write!(
                f,
                "ballot {ballot} already proposed another value for slot {slot}; no two proposers \
                 may share a ballot"
            ),
            Error::BallotMismatch { slot, accepted } => write!(
                f,
                "slot {slot} is accepted under ballot {accepted}, not under the one to commit"
            ),
            Error::Gap { slot } => {
                write!(f, "slot {slot} is missing or not committed; learn its value first")
            }
            Error::Truncated { floor } => {
                write!(f, "slots up to {floor} were truncated; read them from a snapshot")
            }
            Error::BelowFrontier { committed } => {
                write!(f, "slot {committed} is committed and cannot be dropped")
            }
            Error::SlotOutOfRange { slot, limit } => {
                write!(f, "slot {slot} is too far above the floor; the first refused is {limit}")
            }
            Error::BufferFull { used, size } => write!(
                f,
                "uncommitted values use {used} of {size} bytes; commit, or choose a larger \
                 mutable_size"
            ),
            Error::EntryTooLarge { size, limit } => {
                write!(f, "a value of {size} bytes exceeds the limit of {limit} bytes")
            }
            other => fmt::Debug::fmt(other, f),
        }
    }

    /// Formats an error about one of many logs, their registry or a backup.
    fn fmt_of_manager(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::WrongLabel { found, expected } => write!(
                f,
                "the log has the label \"{}\", not \"{}\"",
                found.escape_ascii(),
                expected.escape_ascii()
            ),
            Error::MissingLog { key, dir } => write!(
                f,
                "the log of \"{}\" is missing: it was created in {}; put the directory back, or \
                 remove the key",
                key.escape_ascii(),
                dir.display()
            ),
            Error::CorruptedRegistry { dir, .. } => write!(
                f,
                "the registry of keys cannot be read; move {} to another directory, and opening \
                 makes it again from the logs",
                dir.display()
            ),
            Error::UnfinishedBackup { dir } => {
                write!(f, "{} is an unfinished backup; delete it and back up again", dir.display())
            }
            Error::RegistryClosed => f.write_str("the registry of keys is closed"),
            Error::InUse { references } => {
                write!(f, "the log is in use: {references} references; release them first")
            }
            Error::LeakedReferences { logs } => write_leaks(f, logs),
            Error::NotEmpty { dir } => {
                write!(f, "{} is not empty; name a directory that is, or none", dir.display())
            }
            other => fmt::Debug::fmt(other, f),
        }
    }
}

fn write_leaks(f: &mut fmt::Formatter<'_>, logs: &BTreeMap<Vec<u8>, usize>) -> fmt::Result {
    f.write_str("timeout waiting for references:")?;
    for (number, (key, references)) in logs.iter().enumerate() {
        if number == LEAKS_NAMED_MAX {
            return write!(f, " and {} more logs", logs.len() - number);
        }
        let comma = if number == 0 { "" } else { "," };
        write!(f, "{comma} {references} to \"{}\"", key.escape_ascii())?;
    }
    Ok(())
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            // This one displays as its cause does, so its source is the one below.
            Error::Log(cause) => cause.source(),
            Error::CorruptedEntry { cause, .. } | Error::CorruptedSnapshot { cause, .. } => {
                Some(cause)
            }
            Error::Stream(cause) => Some(&**cause),
            Error::BatchFailed { source, .. } => Some(&**source),
            Error::CorruptedRegistry { cause, .. } => Some(&**cause),
            _ => None,
        }
    }
}

impl From<esker_log::Error> for Error {
    fn from(cause: esker_log::Error) -> Self {
        match cause {
            esker_log::Error::Closed => Error::Closed,
            esker_log::Error::Forked => Error::Forked,
            cause => Error::Log(cause),
        }
    }
}

impl Error {
    /// The error of a stream that may have passed through a snapshot.
    pub(crate) fn from_stream(error: std::io::Error) -> Self {
        match error.downcast::<esker_log::Error>() {
            Ok(cause) => cause.into(),
            Err(error) => Error::Stream(Arc::new(error)),
        }
    }
}

/// The log that issued a ticket. A ticket reports its failure here.
pub(crate) trait FailureSink: fmt::Debug + Send + Sync {
    fn fail(&self, error: esker_log::Error) -> Error;
}

/// The acknowledgement of an operation whose position in the order is assigned.
///
/// Await it, or block on it with [`Ticket::blocking_wait`]. Answer an accept or a promise to its
/// proposer only after it resolves with `Ok`. After an error, reopening decides the outcome.
/// Dropping a ticket does not undo the operation. Clones resolve together.
#[derive(Debug, Clone)]
#[must_use = "an acceptor answers only when the ticket has resolved"]
pub struct Ticket {
    waits: Option<(esker_log::Ticket, Arc<dyn FailureSink>)>,
}

impl Ticket {
    /// A ticket that is already resolved.
    pub(crate) const READY: Ticket = Ticket { waits: None };

    pub(crate) fn new(ticket: esker_log::Ticket, log: Arc<dyn FailureSink>) -> Self {
        Self { waits: Some((ticket, log)) }
    }

    /// Whether the ticket would resolve at once.
    pub fn is_ready(&self) -> bool {
        self.waits.as_ref().is_none_or(|(ticket, _)| ticket.is_durable())
    }

    /// Calls `done` once, when the operation is acknowledged or failed. If that is decided already,
    /// calls it at once, on this thread; otherwise on a thread of the engine, after the tasks and
    /// threads that wait for the same commit were woken: see [`esker_log::Ticket::on_durable`].
    ///
    /// Callbacks of a log run one at a time, in the order of their records. They must not block:
    /// commits wait for that thread. A panic in one is caught and logged.
    ///
    /// # Examples
    /// ```
    /// # use esker_consensus::{Ballot, ConsensusLog, Error, Slot};
    /// # fn main() -> Result<(), Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = ConsensusLog::open(dir.path().join("node-1"))?;
    /// # let ballot = Ballot { number: 1, node: 7 };
    /// let (sender, receiver) = std::sync::mpsc::channel();
    /// let accepted = log.accept(Slot(0), ballot, b"layer on layer")?;
    /// accepted.on_resolved(move |outcome| drop(sender.send(outcome)));
    /// receiver.recv().unwrap()?; // durable: answer the proposer
    /// # log.close()
    /// # }
    /// ```
    pub fn on_resolved(self, done: impl FnOnce(Result<()>) + Send + 'static) {
        match self.waits {
            None => done(Ok(())),
            Some((ticket, log)) => ticket.on_durable(move |outcome| {
                done(outcome.map(drop).map_err(|error| log.fail(error)));
            }),
        }
    }

    /// Gives the ticket up, and requests no sync, whereas dropping it requests one. The operation
    /// is durable with the next one that is, and after 10 ms and one commit at the latest: for the
    /// commit markers of Raft, which a majority has anyway.
    ///
    /// # Examples
    /// ```
    /// # use esker_consensus::{Ballot, ConsensusLog, Error, Slot};
    /// # fn main() -> Result<(), Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = ConsensusLog::open(dir.path().join("node-1"))?;
    /// # let ballot = Ballot { number: 1, node: 7 };
    /// # log.accept(Slot(0), ballot, b"layer on layer")?.blocking_wait()?;
    /// log.commit_through(Slot(0))?.detach();
    /// # log.close()
    /// # }
    /// ```
    pub fn detach(self) {
        if let Some((ticket, _)) = self.waits {
            ticket.detach();
        }
    }

    /// Blocks until the operation is acknowledged.
    ///
    /// # Errors
    /// [`Error::Log`](crate::Error::Log) when the write or sync failed.
    pub fn blocking_wait(self) -> Result<()> {
        let Some((ticket, log)) = self.waits else { return Ok(()) };
        ticket.blocking_wait().map(drop).map_err(|error| log.fail(error))
    }

    /// As [`Ticket::blocking_wait`], for at most `timeout`.
    ///
    /// # Errors
    /// As [`Ticket::blocking_wait`], and [`esker_log::Error::Timeout`]; the operation may become
    /// durable later.
    pub fn blocking_wait_timeout(self, timeout: Duration) -> Result<()> {
        let Some((ticket, log)) = self.waits else { return Ok(()) };
        ticket.blocking_wait_timeout(timeout).map(drop).map_err(|error| log.fail(error))
    }
}

impl Future for Ticket {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let Some((ticket, log)) = &mut self.waits else { return Poll::Ready(Ok(())) };
        let outcome = std::task::ready!(Pin::new(ticket).poll(cx));
        Poll::Ready(outcome.map(drop).map_err(|error| log.fail(error)))
    }
}
