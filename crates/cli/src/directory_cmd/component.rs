//! The component that a directory belongs to, by the app metadata of its log.

use std::path::{Path, PathBuf};

use clap::Args;
use esker_consensus::{
    COMPONENT, COPY_COMPONENT, OpenError, StorageError, UNFINISHED_BACKUP, inspect, label_in,
    logs_in,
};
use esker_log::{ReadOnlyLog, ReadOptions};
use esker_server::{ServerOptions, is_node_label};
use serde::Serialize;

use crate::kv_cmd::open;
use esker_command::exit::{Failure, Outcome, complain};
use esker_command::library_errors::component_name;

/// The directory of a command, and the part of it that the command is for.
#[derive(Debug, Args)]
pub struct DirectoryArguments {
    /// The directory of a log, a key-value store, a consensus log, many of them, or a node
    pub dir: PathBuf,
    /// The key of one of many consensus logs; without it, all of them, but `repair` needs it
    #[arg(long)]
    pub key: Option<String>,
    /// The keyspace of a key-value store, for `stat`; the other commands work on all keyspaces
    #[arg(long, value_name = "NAME")]
    pub keyspace: Option<String>,
}

impl DirectoryArguments {
    /// Finds out what the directory is, and refuses flags that its component does not have.
    pub fn find(&self) -> Outcome<Directory> {
        let found = Directory::find(&self.dir)?;
        let wrong = match (&self.key, &self.keyspace) {
            (Some(_), _) if found.component != Component::Manager => {
                "--key selects one of many consensus logs"
            }
            (_, Some(_)) if found.component != Component::Kv => {
                "--keyspace selects a keyspace of a key-value store"
            }
            _ => return Ok(found),
        };
        if found.component == Component::Log {
            // A directory that cannot be read is reported as such: its flags are not the fault.
            ReadOnlyLog::open(&found.path)
                .map_err(|error| Failure::from_log(&error.into(), &self.dir))?;
        }
        let is = match esker_log::component::identify(&found.path, ReadOptions::default()) {
            Ok(Some(other)) if found.component == Component::Log => component_name(other),
            _ => found.component.described().to_owned(),
        };
        Err(Failure::usage(format!("{wrong}, and {} is {is}", self.dir.display())))
    }

    /// As [`find`](Self::find), for a command that works on all keyspaces. Prints a note if the
    /// command line names one.
    pub fn find_whole(&self, command: &str) -> Outcome<Directory> {
        let found = self.find()?;
        open::note_all_keyspaces(command, self.keyspace.as_deref())?;
        Ok(found)
    }
}

/// The components with directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Component {
    /// A log by itself, or of a component that no command knows.
    Log,
    /// A key-value store.
    Kv,
    /// A consensus log.
    Consensus,
    /// Many consensus logs, by key.
    Manager,
    /// A node of the timestamp service.
    Node,
}

impl Component {
    /// The component in words, with its article.
    fn described(self) -> &'static str {
        match self {
            Self::Log => "a plain log",
            Self::Kv => "a key-value store",
            Self::Consensus => "the directory of one consensus log, not of many",
            Self::Manager => "a directory of many consensus logs",
            Self::Node => "the data of a node",
        }
    }
}

/// A directory and its component.
#[derive(Debug)]
pub struct Directory {
    /// The directory of the log; in the data folder of a node, the one below it.
    pub path: PathBuf,
    pub component: Component,
}

impl Directory {
    /// Finds out what a directory is. One that is not there, or cannot be read, counts as a log,
    /// whose opening reports that.
    pub fn find(dir: &Path) -> Outcome<Self> {
        let path = dir.to_owned();
        let component = match esker_log::component::identify(dir, ReadOptions::default()) {
            Ok(Some(esker_kv::COMPONENT | esker_kv::UNFINISHED_BACKUP)) => Component::Kv,
            Ok(Some(COMPONENT | COPY_COMPONENT | UNFINISHED_BACKUP)) => match label_in(dir) {
                Ok(Some(label)) if is_node_label(&label) => Component::Node,
                _ => Component::Consensus,
            },
            Ok(Some(_)) | Err(_) => Component::Log,
            Ok(None) => return Self::find_many(path),
        };
        Ok(Self { path, component })
    }

    /// Finds out what a directory without app metadata is.
    fn find_many(path: PathBuf) -> Outcome<Self> {
        match logs_in(&path) {
            Ok(Some(_)) => return Ok(Self { path, component: Component::Manager }),
            Ok(None) | Err(OpenError::Storage(StorageError::Log(esker_log::Error::Io(_)))) => {}
            Err(error) => return Err(Failure::from_consensus(error, &path)),
        }
        // The records show whose log it is, as when it is opened.
        if inspect(&path).is_ok_and(|found| found.invalid_records.is_empty()) {
            let note = "note: the app metadata of the consensus log is missing";
            complain(&format!("{note} in {}", path.display()));
            return Ok(Self { path, component: Component::Consensus });
        }
        let of_node = ServerOptions::new(&path).log_dir();
        match label_in(&of_node) {
            Ok(Some(label)) if is_node_label(&label) => {
                Ok(Self { path: of_node, component: Component::Node })
            }
            _ => Ok(Self { path, component: Component::Log }),
        }
    }
}
