//! `esker snapshot create-from`: writes a snapshot from a file or standard input.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::Args;
use esker_consensus::{
    ConsensusLog, CreateSnapshotError, Error, LogGuard, LogManager, OpenError, SNAPSHOT_NOTE_LIMIT,
    Slot, SnapshotInfo,
};

use super::snapshot_text::{as_json, as_text};
use crate::consensus_dir;
use esker_command::exit::{Failure, Outcome, complain};
use esker_command::output;

const EXAMPLES: &str = "\
Examples:
  esker snapshot create-from ./node-1 --slot 4999 ./state.bin
  my-state-machine --export | esker snapshot create-from ./node-1 --slot 4999
  esker snapshot create-from ./tables --key users --slot 4999 \\
    --keep 2 ./users.bin

The state must be that after every slot up to this one: all of them have to be committed. The snapshot is durable when \
the command ends.";

/// Arguments of `esker snapshot create-from`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CreateFromArguments {
    /// The log's directory, or that of many logs
    dir: PathBuf,
    /// The state [default: standard input]
    file: Option<PathBuf>,
    /// The one of many logs
    #[arg(long)]
    key: Option<String>,
    /// The last slot that the state has
    #[arg(long, value_name = "N")]
    slot: u64,
    /// Some text that is stored with the snapshot, up to 1024 bytes
    #[arg(long, default_value = "", value_name = "TEXT")]
    note: String,
    /// Afterwards keep this many snapshots that are whole, and remove older ones
    #[arg(long, value_name = "N")]
    keep: Option<usize>,
    /// Replace a whole snapshot at this slot, and take an empty state
    #[arg(long)]
    force: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Writes the snapshot.
pub fn run(arguments: &CreateFromArguments) -> Outcome {
    let CreateFromArguments { dir, file, key, note, keep, json, .. } = arguments;
    if *keep == Some(0) {
        return Err(Failure::usage("--keep must be at least 1".to_owned()));
    }
    if note.len() > SNAPSHOT_NOTE_LIMIT {
        let len = note.len();
        return Err(Failure::usage(format!(
            "--note has {len} bytes; at most {SNAPSHOT_NOTE_LIMIT} are stored"
        )));
    }
    let mut state: Box<dyn Read> = match file {
        Some(path) => Box::new(
            File::open(path)
                .map_err(|error| Failure::from_io(format!("open {}", path.display()), &error))?,
        ),
        None => Box::new(io::stdin().lock()),
    };
    let log = SnapshotTarget::open(dir, key.as_deref())?;
    let written = write(log.log(), arguments, &mut state);
    let closed = log.close().map_err(|error| Failure::from_consensus(error, dir));
    let info = written?;
    closed?;
    if *json { output::print_json(&as_json(&info)) } else { output::print(&as_text(&info)) }
}

fn write(
    log: &ConsensusLog,
    arguments: &CreateFromArguments,
    state: &mut dyn Read,
) -> Outcome<SnapshotInfo> {
    let CreateFromArguments { dir, file, slot, note, keep, force, .. } = arguments;
    let (slot, snapshots) = (Slot(*slot), log.snapshots());
    if !force && snapshots.verify(slot).is_ok() {
        return Err(Failure::failed(format!(
            "{} has a whole snapshot at slot {slot}; --force replaces it",
            dir.display()
        )));
    }
    if let Some(keep) = keep {
        let newer = snapshots.list().map_err(|error| Failure::from_consensus(error, dir))?;
        let newer = newer.into_iter().filter(|at| *at > slot);
        let newer = newer.filter(|at| snapshots.verify(*at).is_ok()).count();
        if newer >= *keep {
            return Err(Failure::failed(format!(
                "--keep {keep} would remove the snapshot at slot {slot} at once: {newer} newer ones are whole"
            )));
        }
    }
    let mut writer =
        log.snapshots().writer(slot).map_err(|error| refused(error, log, slot, dir))?;
    let name = file.as_ref().map_or("standard input".into(), |path| path.display().to_string());
    let copied = writer
        .copy_from(state)
        .map_err(|error| Failure::from_io(format!("copy {name} to a snapshot"), &error))?;
    if copied == 0 && !force {
        return Err(Failure::failed(format!(
            "{name} is empty: no snapshot was written; --force takes an empty state"
        )));
    }
    let info = writer.finish(note.as_bytes());
    let info = info.map_err(|error| Failure::from_consensus(error, dir))?;
    if let Some(count) = keep {
        let removed = log.snapshots().keep(*count);
        for removed in removed.map_err(|error| Failure::from_consensus(error, dir))? {
            complain(&format!("note: removed the snapshot at slot {removed}"));
        }
    }
    Ok(info)
}

/// The failure to begin a snapshot at a slot.
fn refused(error: CreateSnapshotError, log: &ConsensusLog, slot: Slot, dir: &Path) -> Failure {
    let (dir_shown, frontier) = (dir.display(), log.frontier());
    match error {
        CreateSnapshotError::SlotNotFound { .. }
        | CreateSnapshotError::NotCommitted { .. }
        | CreateSnapshotError::Gap { .. } => Failure::failed(match frontier {
            Some(last) => format!(
                "{dir_shown}: not every slot up to {slot} is committed; the last snapshot possible is at slot {last}"
            ),
            None => format!("{dir_shown}: slot 0 is not committed, so there is no state yet"),
        }),
        CreateSnapshotError::Truncated { floor } => Failure::failed(format!(
            "{dir_shown}: slots up to {floor} were dropped, so no state machine could continue after slot {slot}"
        )),
        error => Failure::from_consensus(error, dir),
    }
}

/// A log that is open for writing, with the manager that it belongs to.
#[derive(Debug)]
enum SnapshotTarget {
    Single(ConsensusLog),
    Managed(LogManager, LogGuard),
}

impl SnapshotTarget {
    fn open(dir: &Path, key: Option<&str>) -> Outcome<Self> {
        let failed = |error: OpenError| Failure::from_consensus(error, dir);
        let target = consensus_dir::target(dir, key)?;
        let Some(key) = target.key() else {
            let log = ConsensusLog::builder(dir).must_exist(true).open();
            return Ok(Self::Single(log.map_err(failed)?));
        };
        // Its manager has the lock of all logs.
        let manager = LogManager::builder(dir).must_exist(true).open().map_err(failed)?;
        let log = manager.get(key).map_err(failed)?;
        Ok(Self::Managed(manager, log))
    }

    fn log(&self) -> &ConsensusLog {
        match self {
            Self::Single(log) => log,
            Self::Managed(_, log) => log,
        }
    }

    fn close(self) -> Result<(), Error> {
        match self {
            Self::Single(log) => log.close()?,
            Self::Managed(manager, log) => {
                drop(log);
                manager.close_all()?;
            }
        }
        Ok(())
    }
}
