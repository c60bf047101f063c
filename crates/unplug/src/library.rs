//! The library: recordings that a Rust test checks.

use std::error::Error as StdError;
use std::ffi::OsStr;
use std::fmt::{self, Display};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;
use indicatif::ProgressBar;

use crate::check::closure::ClosureCheck;
use crate::examination::{self, Examination};
use crate::record::{file, recording};
use crate::report::answer::Answer;
use crate::states::Search;

/// A file system in memory on most systems. Where it is absent, the folder of temporary files
/// serves.
const MEMORY_FOLDER: &str = "/dev/shm";
/// The exit status of the command when the system refuses a mount, or the program cannot start.
const REFUSED_STATUS: i32 = 2;

/// The operations of a program on its directory and its output, in one order.
#[derive(Debug)]
pub struct Recording(recording::Recording);

/// The failure of an operation of this library.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The command `unplug` cannot be started.
    NotStarted(io::Error),
    /// The command `unplug` recorded nothing, and printed this message.
    Refused(String),
    /// The file is no recording of this version.
    Recording(Box<dyn StdError + Send + Sync>),
    /// A directory cannot be built.
    State(Box<dyn StdError + Send + Sync>),
}

impl Recording {
    /// Runs a program in an empty directory that records it, through the command `unplug`, a name
    /// in `PATH` or a path.
    ///
    /// The arguments and the environment of `program` are used. Its working directory is the
    /// recorded one, and its standard output is recorded.
    ///
    /// # Errors
    /// When the command cannot be started, the system refuses it a mount, or the program cannot be
    /// started.
    pub fn run(unplug: impl AsRef<OsStr>, program: &Command) -> Result<Self, Error> {
        let folder = tempfile::tempdir().context("failed to make a temporary folder");
        let folder = folder.map_err(|error| Error::State(error.into()))?;
        let path = folder.path().join("recording");
        let mut command = Command::new(unplug);
        command.arg("--record").arg(&path).arg("--").arg(program.get_program());
        command.args(program.get_args());
        for (name, value) in program.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let ran = command.stdin(Stdio::null()).output().map_err(Error::NotStarted)?;
        if ran.status.code().is_none_or(|code| code == REFUSED_STATUS) {
            let message = String::from_utf8_lossy(&ran.stderr).trim().to_owned();
            return Err(Error::Refused(message));
        }
        Self::load(&path)
    }

    /// Reads a recording that `unplug --record` wrote.
    ///
    /// # Errors
    /// When the file cannot be read, or is no recording of this version.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, Error> {
        let recording = file::load(path.as_ref());
        recording.map(Self).map_err(|error| Error::Recording(error.into()))
    }

    /// Lists the requests that could still be lost when the program printed a line or ended, as the
    /// command does without a check. The answer has no failing state.
    #[must_use]
    pub fn losable(&self) -> Answer {
        examination::losable_answer(&self.0)
    }

    /// Checks the states of all cuts: `check` gets a directory and the output before the cut, and
    /// fails with an error or a panic where something acknowledged is lost.
    ///
    /// # Errors
    /// When a directory cannot be built. A check that fails is in the answer.
    pub fn check<E: Display>(
        &self,
        check: impl Fn(&Path, &[u8]) -> Result<(), E> + Sync,
    ) -> Result<Answer, Error> {
        self.check_with(Search::default(), check)
    }

    /// Checks as [`check`](Self::check) does, with other limits.
    ///
    /// # Errors
    /// When a directory cannot be built.
    pub fn check_with<E: Display>(
        &self,
        search: Search,
        check: impl Fn(&Path, &[u8]) -> Result<(), E> + Sync,
    ) -> Result<Answer, Error> {
        let examine = || {
            let states = states_folder().context("failed to make a folder for the states")?;
            let examination = Examination {
                recording: &self.0,
                check: &ClosureCheck(check),
                search,
                states: states.path(),
                kept: &kept_folder,
                progress: ProgressBar::hidden(),
            };
            examination.answer()
        };
        examine().map_err(|error| Error::State(error.into()))
    }
}

fn states_folder() -> io::Result<tempfile::TempDir> {
    let builder = || tempfile::Builder::new().prefix("unplug-").to_owned();
    builder().tempdir_in(MEMORY_FOLDER).or_else(|_| builder().tempdir())
}

fn kept_folder() -> anyhow::Result<PathBuf> {
    let folder = tempfile::Builder::new().prefix("unplug-failing-").tempdir();
    Ok(folder.context("failed to make a folder for the failing state")?.keep())
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarted(_) => f.write_str("failed to start unplug; is it in PATH?"),
            Self::Refused(message) => write!(f, "unplug recorded nothing: {message}"),
            Self::Recording(_) => f.write_str("failed to load the recording"),
            Self::State(_) => f.write_str("failed to build a state"),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::NotStarted(error) => Some(error),
            Self::Refused(_) => None,
            Self::Recording(error) | Self::State(error) => Some(error.as_ref()),
        }
    }
}
