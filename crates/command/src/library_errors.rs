//! Errors of the libraries as failures of a command: the library says what failed, and this adds
//! the status and the command that helps.

use std::path::Path;

use esker_consensus::StorageError;
use esker_log::{Component, Error, InvalidOption, Trimmed};

use crate::exit::{Failure, Status};
use crate::option_flags;
use crate::remedies::{component, io_advice, is_permission, on_corruption, permission_advice};

impl Failure {
    /// Creates a failure from an error of the log in `dir`.
    pub fn from_log(error: &Error, dir: &Path) -> Self {
        if let Error::WrongComponent { found, expected, .. } = error {
            return Self::failed(foreign(*found, *expected, dir));
        }
        let (status, advice) = match error {
            Error::InvalidConsumer { .. } => (Status::Usage, String::new()),
            Error::Corrupted(corruption) => {
                // One of many logs in the directory.
                let below = corruption.file.parent().filter(|below| below.starts_with(dir));
                (Status::Corrupt, on_corruption(corruption, below.unwrap_or(dir)))
            }
            Error::Quarantined(_) => (Status::Corrupt, String::new()),
            Error::Locked { .. } => (
                Status::Locked,
                "; wait until the other process ends, or read with `esker log cat`".into(),
            ),
            Error::InvalidOption(InvalidOption { option, rule }) => {
                return Self::usage(option_flags::wrong(option, rule));
            }
            // Then the path is right.
            Error::NotALog { dir, .. }
                if component(dir) == Some(esker_log::component::UNFINISHED_BACKUP) =>
            {
                (Status::Failed, String::new())
            }
            Error::NotALog { .. } => (Status::Failed, "; is that the right path?".into()),
            Error::Io(cause) | Error::Poisoned(cause) => (Status::Failed, io_advice(cause, dir)),
            Error::NoSpace { durable, .. } => {
                (Status::Failed, format!("; records through {durable} are durable"))
            }
            _ => (Status::Failed, String::new()),
        };
        Self { status, message: format!("{}{advice}", with_causes(error)) }
    }

    /// As [`Failure::from_consensus`], for the log of a node: repaired, it opens, and may lack
    /// votes that the node has given.
    pub fn from_node(error: &esker_consensus::Error, dir: &Path) -> Self {
        let failure = Self::from_consensus(error.clone(), dir);
        let advice = match error {
            _ if failure.status == Status::Corrupt => {
                "do not repair the log of a node, which may lose its votes: remove the node from \
                 its cluster, and let one join under a new number"
            }
            esker_consensus::Error::Storage(StorageError::Log(Error::Io(cause)))
                if is_permission(cause) =>
            {
                "a node needs a folder that this user may read and write: give another one with \
                 --data, or this one to this user"
            }
            _ => return failure,
        };
        Self { message: format!("{}; {advice}", with_causes(error)), ..failure }
    }

    /// Creates a failure from an error of the consensus log in `dir`.
    pub fn from_consensus(error: impl Into<esker_consensus::Error>, dir: &Path) -> Self {
        use esker_consensus::{Error, ReadOnlyReason};
        let error = &error.into();
        match error {
            Error::Storage(StorageError::Log(esker_log::Error::Locked { pid, .. })) => Self {
                status: Status::Locked,
                message: locked(
                    dir,
                    *pid,
                    "`esker stat`, `esker verify`, `esker consensus dump` and `esker snapshot list`, \
                     `restore` and `verify` read it meanwhile",
                ),
            },
            Error::Storage(StorageError::Log(cause)) => Failure::from_component(cause, dir),
            Error::MissingLog { .. } | Error::CorruptedRegistry { .. } => {
                Self { status: Status::Corrupt, message: with_causes(error) }
            }
            Error::WrongLabel { .. } => Self {
                status: Status::Corrupt,
                message: format!("{}: {error}; put it back to its place", dir.display()),
            },
            Error::UnfinishedBackup { .. } => Failure::failed(error.to_string()),
            Error::Storage(StorageError::ReadOnly { reason: ReadOnlyReason::Copied }) => {
                Failure::failed(format!(
                    "{}: {}, or run `esker consensus renumber`",
                    dir.display(),
                    with_causes(error)
                ))
            }
            Error::Storage(StorageError::CorruptedEntry { cause, .. }) => {
                let Self { status, message } = Failure::from_log(cause, dir);
                Self { status, message: format!("{error}: {message}") }
            }
            Error::CorruptedSnapshot { cause, .. } => {
                let message = format!("{}: {error}: {}", dir.display(), with_causes(cause));
                Self { status: Status::Corrupt, message }
            }
            // The checksums of the log layer are valid: the log belongs to another component.
            Error::Storage(StorageError::CorruptedRecord { .. }) => {
                Failure::failed(format!("{} is no consensus log: {error}", dir.display()))
            }
            _ => Failure::failed(format!("{}: {}", dir.display(), with_causes(error))),
        }
    }

    /// Returns a function that creates a failure from an error of the consensus log in `dir`.
    pub fn in_consensus_log<E: Into<esker_consensus::Error>>(dir: &Path) -> impl Fn(E) -> Self {
        move |error| Self::from_consensus(error, dir)
    }

    /// Creates a failure from an error of the store in `dir`.
    pub fn from_kv(error: impl Into<esker_kv::Error>, dir: &Path) -> Self {
        use esker_kv::{Error, StoreError};
        let error: &Error = &error.into();
        if let Error::Store(cause) = error
            && let Some(cause) = cause.to_log_error()
        {
            return Failure::from_log_of_store(&cause, dir);
        }
        match error {
            Error::Store(StoreError::CorruptedRecord(_)) => {
                Self { status: Status::Corrupt, message: error.to_string() }
            }
            Error::Store(StoreError::Quarantined(_)) => {
                let command = "`esker kv export --all-keyspaces --skip-corrupt`";
                let message = format!("{}: {error} with {command}", dir.display());
                Self { status: Status::Corrupt, message }
            }
            Error::InvalidOption(InvalidOption { option, rule }) => {
                Failure::usage(option_flags::wrong(option, rule))
            }
            Error::InvalidName { .. } => Failure::usage(error.to_string()),
            _ => Failure::failed(format!("{}: {}", dir.display(), with_causes(error))),
        }
    }

    /// Creates a failure from an error of the log of the store in `dir`, in the words of a store.
    fn from_log_of_store(error: &Error, dir: &Path) -> Self {
        match error {
            Error::Locked { dir, pid } => Self {
                status: Status::Locked,
                message: locked(
                    dir,
                    *pid,
                    "`esker kv get`, `esker kv scan` and `esker kv export` read it meanwhile",
                ),
            },
            Error::NotALog { dir, found } => Self::failed(format!(
                "{} is not a key-value store: {found}; is that the right path?",
                dir.display()
            )),
            Error::NoSpace { durable, .. } => Self::failed(format!(
                "{}; at least the writes through position {durable} are durable",
                with_causes(error)
            )),
            _ => Failure::from_component(error, dir),
        }
    }

    /// Creates a failure from an error of the log of a component, which no command creates for
    /// other readers.
    fn from_component(error: &Error, dir: &Path) -> Self {
        match error {
            Error::Io(cause) | Error::Poisoned(cause) if is_permission(cause) => {
                let advice = permission_advice(cause);
                Self::failed(format!("{}{advice}", with_causes(error)))
            }
            _ => Failure::from_log(error, dir),
        }
    }

    /// Creates a failure from an error of a log that is read. Where it was dropped meanwhile, a
    /// flag begins after that.
    pub fn from_read(error: &Error, dir: &Path) -> Self {
        let failure = Self::from_log(error, dir);
        match error {
            Error::Trimmed(Trimmed { oldest }) => {
                failure.or_else(&format!("use --from {oldest} or higher"))
            }
            _ => failure,
        }
    }
}

/// Message for a directory that another process has open for writing.
fn locked(dir: &Path, pid: Option<u32>, readers: &str) -> String {
    let by = match pid {
        Some(pid) => format!(" by process {pid}"),
        None => " by a process whose number is unknown".into(),
    };
    format!("{} is open for writing{by}; wait until it is closed; {readers}", dir.display())
}

/// Message for a log in `dir` that belongs to another component. The log was not changed.
fn foreign(found: Option<Component>, expected: Option<Component>, dir: &Path) -> String {
    let dir = dir.display();
    let name = component_name;
    match (found, expected) {
        (Some(esker_kv::UNFINISHED_BACKUP), Some(esker_kv::COMPONENT)) => format!(
            "{dir} is an unfinished backup of a key-value store; delete it and back up again"
        ),
        (found, Some(expected)) => format!(
            "{dir} is no {}; it is {}",
            name(expected).trim_start_matches("a "),
            found.map_or("a plain log".into(), name)
        ),
        (Some(found), None) => format!(
            "{dir} belongs to {}: `esker log` does not append to it or truncate it, and keeps no \
             offsets in it",
            name(found)
        ),
        (None, None) => format!("{dir} is a log of another component"),
    }
}

/// The log of a component in words, with its article.
pub fn component_name(component: Component) -> String {
    match component {
        esker_consensus::COMPONENT => "a consensus log".to_owned(),
        esker_kv::COMPONENT => "a key-value store".to_owned(),
        esker_consensus::COPY_COMPONENT => "a copy of a consensus log".to_owned(),
        esker_consensus::REGISTRY_COPY_COMPONENT => {
            "the registry of a copy of many consensus logs".to_owned()
        }
        esker_consensus::UNFINISHED_BACKUP => "an unfinished backup of consensus logs".to_owned(),
        esker_consensus::REGISTRY_COMPONENT => "the registry of many consensus logs".to_owned(),
        esker_kv::UNFINISHED_BACKUP => "an unfinished backup of a key-value store".to_owned(),
        esker_log::component::UNFINISHED_BACKUP => {
            "an unfinished backup; run `esker backup` or `esker restore` again".to_owned()
        }
        other => format!("a log of the component {other}"),
    }
}

/// Returns the message of an error and those of its causes. An error of the library does not repeat
/// its cause.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use std::io;

    use esker_log::SeqRange;

    use super::*;

    #[test]
    fn unreadable_slot_is_named_with_its_cause() {
        let cause = Error::Quarantined(SeqRange { from: 1.into(), to: 2.into() });
        let error = StorageError::CorruptedEntry { slot: 3.into(), cause };
        let failure = Failure::from_consensus(error, Path::new("d"));
        assert_eq!(failure.status, Status::Corrupt);
        assert!(failure.message.starts_with("slot 3 cannot be read: "), "{}", failure.message);
        assert_eq!(failure.message.matches("quarantined").count(), 1, "{}", failure.message);
    }

    /// The library names its call, and the command its own.
    #[test]
    fn a_copy_gets_the_advice_of_the_command() {
        let reason = esker_consensus::ReadOnlyReason::Copied;
        let error = StorageError::ReadOnly { reason };
        assert!(!error.to_string().contains("esker consensus"), "{error}");
        let message = Failure::from_consensus(error, Path::new("d")).message;
        let advice = "open it once with `renumber`, or run `esker consensus renumber`";
        assert!(message.starts_with("d: ") && message.ends_with(advice), "{message}");
    }

    #[test]
    fn causes_follow_the_message() {
        let full = io::Error::from(io::ErrorKind::StorageFull);
        let error = esker_disk::Error::new(esker_disk::Op::Write, Path::new("f"), None, full);
        let message = Failure::from_log(&Error::Io(error), Path::new("d")).message;
        assert!(message.contains(": no storage space; durable records are safe"), "{message}");
    }

    /// It was advised to create another log, with `--readable-by`.
    #[test]
    fn a_node_that_may_not_write_gets_the_advice_of_a_node() {
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        let error = esker_disk::Error::new(esker_disk::Op::Open, Path::new("f"), None, denied);
        let error = StorageError::Log(Error::Io(error)).into();
        let message = Failure::from_node(&error, Path::new("d")).message;
        assert!(message.contains("--data") && !message.contains("--readable-by"), "{message}");
    }

    /// No command creates a store or a consensus log with `--readable-by`.
    #[test]
    fn a_component_that_may_not_be_read_gets_advice_that_its_commands_take() {
        let denied = || {
            let denied = io::Error::from(io::ErrorKind::PermissionDenied);
            let error = esker_disk::Error::new(esker_disk::Op::Open, Path::new("f"), None, denied);
            Error::Io(error)
        };
        let dir = Path::new("d");
        for failure in [
            Failure::from_kv(esker_kv::StoreError::Log(denied()), dir),
            Failure::from_consensus(StorageError::Log(denied()), dir),
        ] {
            let message = failure.message;
            assert!(message.contains("chmod") && !message.contains("--readable-by"), "{message}");
        }
        let message = Failure::from_log(&denied(), dir).message;
        assert!(message.contains("chmod") && message.contains("--readable-by"), "{message}");
    }

    /// The library names no command.
    #[test]
    fn quarantined_records_of_a_store_are_followed_by_the_command_that_saves_the_rest() {
        let range = SeqRange { from: 1.into(), to: 2.into() };
        let error = esker_kv::StoreError::Quarantined(range);
        let failure = Failure::from_kv(error.clone(), Path::new("d"));
        let command = "export what is left with `esker kv export --all-keyspaces --skip-corrupt`";
        assert!(failure.message.ends_with(command), "{}", failure.message);
        assert!(!error.to_string().contains("esker"), "{error}");
        assert_eq!(failure.status, Status::Corrupt);
    }

    /// Only what takes `--from` advises it.
    #[test]
    fn a_record_that_was_dropped_is_followed_by_a_flag_where_there_is_one() {
        let (error, dir) = (Error::Trimmed(Trimmed { oldest: 7.into() }), Path::new("d"));
        assert!(!Failure::from_log(&error, dir).message.contains("--from"));
        assert!(Failure::from_read(&error, dir).message.ends_with("; use --from 7 or higher"));
    }

    #[test]
    fn corruption_names_the_command_that_helps() {
        let error = Error::Quarantined(SeqRange { from: 1.into(), to: 2.into() });
        assert_eq!(Failure::from_log(&error, Path::new("d")).status, Status::Corrupt);
    }
}
