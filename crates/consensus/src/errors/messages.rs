//! The messages of errors.

use std::collections::BTreeMap;
use std::fmt;

use crate::errors::Error;

/// The most logs that a message names.
const LEAKS_NAMED_MAX: usize = 10;

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
            Error::InvalidOption(cause) => cause.fmt(f),
            Error::Storage(error) => error.fmt(f),
            Error::WrongLabel { .. }
            | Error::MissingLog { .. }
            | Error::CorruptedRegistry { .. }
            | Error::UnfinishedBackup { .. }
            | Error::InUse { .. }
            | Error::LeakedReferences { .. }
            | Error::NotEmpty { .. } => self.fmt_of_manager(f),
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
                write!(f, "slot {slot} is not durably committed; wait for its commit")
            }
            Error::StaleBallot { promised } => {
                write!(
                    f,
                    "ballot is stale: ballot {promised} was promised or accepted; use a higher one"
                )
            }
            Error::AlreadyCommitted { entry } => write!(
                f,
                "slot {} is committed with another value, under ballot {}: a proposer adopts that \
                 one, and no other can be learned",
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
                write!(f, "slots up to {floor} were truncated, and only a snapshot above has them")
            }
            Error::BelowFrontier { committed } => {
                write!(f, "slot {committed} is committed and cannot be dropped")
            }
            Error::SlotOutOfRange { slot, limit } => {
                write!(f, "slot {slot} is out of range; the first slot that is refused is {limit}")
            }
            Error::BufferFull { used, size } => write!(
                f,
                "uncommitted values use {used} of {size} bytes; commit, or choose a larger \
                 mutable_size"
            ),
            Error::EntryTooLarge { size, limit } => {
                write!(f, "{size} bytes exceed the limit of {limit} bytes")
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
            // This one displays as the nested one does, so its source is the one below.
            Error::Storage(error) => error.source(),
            Error::CorruptedSnapshot { cause, .. } => Some(cause),
            Error::Stream(cause) => Some(&**cause),
            Error::BatchFailed { source, .. } => Some(&**source),
            Error::CorruptedRegistry { cause, .. } => Some(&**cause),
            _ => None,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use esker_disk::sim::SimDisk;

    use crate::base::ballot::Ballot;
    use crate::base::slot::Slot;
    use crate::errors::manager_errors::OpenError;
    use crate::errors::protocol_errors::{AcceptError, ReadError, TruncateError};
    use crate::errors::snapshot_errors::{CreateSnapshotError, SnapshotError};
    use crate::state::inner::ConsensusLog;

    /// The messages of one call were those of all: a disagreement on a chosen value advised to
    /// adopt it, and a key that is too long was called a value.
    #[test]
    fn a_message_advises_nothing_that_is_wrong_in_another_call() {
        let disk = Arc::new(SimDisk::new(1));
        let log = ConsensusLog::builder("/log").disk(disk).open().unwrap();
        let ballot = Ballot { number: 2, node: 1 };
        log.learn(Slot(3), ballot, b"value").unwrap().blocking_wait().unwrap();
        let learned = log.learn(Slot(3), ballot, b"another").unwrap_err().to_string();
        assert!(learned.contains("no other can be learned"), "{learned}");
        assert_eq!(learned, log.accept(Slot(3), ballot, b"another").unwrap_err().to_string());
        log.close().unwrap();
        let (size, limit) = (9, 8);
        for message in [
            OpenError::EntryTooLarge { size, limit }.to_string(),
            TruncateError::EntryTooLarge { size, limit }.to_string(),
            CreateSnapshotError::EntryTooLarge { size, limit }.to_string(),
            AcceptError::EntryTooLarge { size, limit }.to_string(),
        ] {
            assert_eq!(message, "9 bytes exceed the limit of 8 bytes");
        }
        // No snapshot covers the entries that a restore misses.
        let truncated = SnapshotError::Truncated { floor: Slot(7) }.to_string();
        assert!(!truncated.contains("read them"), "{truncated}");
        let (slot, limit) = (Slot(u64::MAX), Slot(u64::MAX - 1));
        let last = CreateSnapshotError::SlotOutOfRange { slot, limit }.to_string();
        assert!(!last.contains("floor"), "{last}");
        let waits = [
            ReadError::NotCommitted { slot }.to_string(),
            CreateSnapshotError::NotCommitted { slot }.to_string(),
        ];
        assert!(waits.iter().all(|message| !message.contains("skip")), "{waits:?}");
    }
}
