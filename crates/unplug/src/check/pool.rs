//! Checks of many states at once: one thread builds the states, the others check them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};

use super::command::{CheckFiles, CheckResult, StateCheck};
use crate::model::directory::DirectoryState;
use crate::record::operation::Ino;
use crate::record::recording::Node;
use crate::search::candidates::Candidate;

/// A state that waits for its check.
pub struct StateToCheck {
    pub candidate: Candidate,
    pub state: DirectoryState,
    /// The output of the program before the cut, in bytes.
    pub output_bytes: usize,
}

/// A state that the check refused.
#[derive(Clone, Debug)]
pub struct Refused {
    pub candidate: Candidate,
    pub result: CheckResult,
}

/// The inputs that all states share.
pub struct CheckPool<'a> {
    pub check: &'a dyn StateCheck,
    pub nodes: &'a BTreeMap<Ino, Node>,
    /// The whole output of the program.
    pub output: &'a [u8],
    /// A folder for the states, on a file system in memory.
    pub folder: &'a Path,
    pub jobs: usize,
}

/// The refused state with the earliest cut, and the number of states checked.
#[derive(Debug, Default)]
pub struct PoolResult {
    pub refused: Option<Refused>,
    pub checked: usize,
}

impl CheckPool<'_> {
    /// Checks one state.
    pub fn check_one(&self, state: &DirectoryState, output_bytes: usize) -> Result<CheckResult> {
        self.run(state, output_bytes, &self.folder.join("one"))
    }

    /// Checks the states that `produce` sends, until one is refused. `produce` ends when its
    /// argument returns `false`.
    pub fn check_all(
        &self,
        produce: impl FnOnce(&mut dyn FnMut(StateToCheck) -> bool),
    ) -> Result<PoolResult> {
        let (sender, receiver) = sync_channel::<StateToCheck>(self.jobs * 2);
        let receiver = Mutex::new(receiver);
        let stop = AtomicBool::new(false);
        let checked = AtomicUsize::new(0);
        let refused = Mutex::new(None::<Refused>);
        let worker = |number: usize| -> Result<()> {
            let folder = self.folder.join(number.to_string());
            let mut worked = Ok(());
            while let Some(to_check) = receive(&receiver) {
                // What was sent before the stop is taken too, so that no sender waits for ever.
                if stop.load(Ordering::Relaxed) {
                    continue;
                }
                match self.run(&to_check.state, to_check.output_bytes, &folder) {
                    Ok(CheckResult::Passed) => {}
                    Ok(result) => {
                        stop.store(true, Ordering::Relaxed);
                        keep_earliest(&refused, Refused { candidate: to_check.candidate, result });
                    }
                    Err(error) => {
                        stop.store(true, Ordering::Relaxed);
                        worked = Err(error);
                    }
                }
                checked.fetch_add(1, Ordering::Relaxed);
            }
            worked
        };
        std::thread::scope(|scope| -> Result<()> {
            let worker = &worker;
            let workers: Vec<_> =
                (0..self.jobs).map(|number| scope.spawn(move || worker(number))).collect();
            produce(&mut |state| !stop.load(Ordering::Relaxed) && sender.send(state).is_ok());
            drop(sender);
            for worker in workers {
                worker.join().map_err(|_| anyhow::anyhow!("a thread of the checks panicked"))??;
            }
            Ok(())
        })?;
        let refused = refused.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(PoolResult { refused, checked: checked.into_inner() })
    }

    /// Builds a state in a folder and checks it there.
    pub fn run(
        &self,
        state: &DirectoryState,
        output_bytes: usize,
        folder: &Path,
    ) -> Result<CheckResult> {
        self.write(state, output_bytes, folder)?;
        self.check.run(&CheckFiles::new(folder))
    }

    /// Writes a state into a folder, in place of what was there.
    fn write(&self, state: &DirectoryState, output_bytes: usize, folder: &Path) -> Result<()> {
        let files = CheckFiles::new(folder);
        remove(&files.dir).with_context(|| format!("failed to clear {}", files.dir.display()))?;
        let output = &self.output[..output_bytes];
        state.write_with_output(self.nodes, output, &files.dir, &files.output)
    }
}

fn receive(receiver: &Mutex<Receiver<StateToCheck>>) -> Option<StateToCheck> {
    receiver.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

fn keep_earliest(refused: &Mutex<Option<Refused>>, found: Refused) {
    let mut earliest = refused.lock().unwrap_or_else(PoisonError::into_inner);
    if earliest.as_ref().is_none_or(|earliest| found.candidate.cut < earliest.candidate.cut) {
        *earliest = Some(found);
    }
}

fn remove(dir: &PathBuf) -> std::io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
