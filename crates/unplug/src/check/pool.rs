//! Checks of many states at once: one thread builds the states, the others check them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use indicatif::ProgressBar;

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
    /// Counts the states that were checked.
    pub progress: &'a ProgressBar,
}

/// The first refused state in the order in which they were sent, and the number of states checked.
#[derive(Debug, Default)]
pub struct PoolResult {
    pub refused: Option<Refused>,
    pub checked: usize,
}

impl CheckPool<'_> {
    /// Checks one state.
    pub fn check_one(&self, state: &DirectoryState, output_bytes: usize) -> Result<CheckResult> {
        self.run(state, output_bytes, &self.one())
    }

    /// Checks the states that `produce` sends, until one is refused. `produce` ends when its
    /// argument returns `false`.
    pub fn check_all(
        &self,
        produce: impl FnOnce(&mut dyn FnMut(StateToCheck) -> bool),
    ) -> Result<PoolResult> {
        let (sender, receiver) = sync_channel::<(usize, StateToCheck)>(self.jobs * 2);
        let receiver = Mutex::new(receiver);
        // The number of the first refused state so far. Those before it are still checked, so that
        // one recording always has the same answer.
        let end = AtomicUsize::new(usize::MAX);
        let checked = AtomicUsize::new(0);
        let refused = Mutex::new(BTreeMap::new());
        let worker = |number: usize| -> Result<()> {
            let folder = self.folder.join(number.to_string());
            let mut worked = Ok(());
            while let Some((order, to_check)) = receive(&receiver) {
                // What was sent before the end is taken too, so that no sender waits for ever.
                if order > end.load(Ordering::Relaxed) {
                    continue;
                }
                match self.run(&to_check.state, to_check.output_bytes, &folder) {
                    Ok(CheckResult::Passed) => {}
                    Ok(result) => {
                        end.fetch_min(order, Ordering::Relaxed);
                        let found = Refused { candidate: to_check.candidate, result };
                        let mut refused = refused.lock().unwrap_or_else(PoisonError::into_inner);
                        refused.insert(order, found);
                    }
                    Err(error) => {
                        end.store(0, Ordering::Relaxed);
                        worked = Err(error);
                    }
                }
                checked.fetch_add(1, Ordering::Relaxed);
                self.progress.inc(1);
            }
            worked
        };
        std::thread::scope(|scope| -> Result<()> {
            let worker = &worker;
            let workers: Vec<_> =
                (0..self.jobs).map(|number| scope.spawn(move || worker(number))).collect();
            let mut order = 0..;
            produce(&mut |state| {
                let goes_on = end.load(Ordering::Relaxed) == usize::MAX;
                goes_on && order.next().is_some_and(|order| sender.send((order, state)).is_ok())
            });
            drop(sender);
            for worker in workers {
                worker.join().map_err(|_| anyhow::anyhow!("a thread of the checks panicked"))??;
            }
            Ok(())
        })?;
        let mut refused = refused.into_inner().unwrap_or_else(PoisonError::into_inner);
        let refused = refused.pop_first().map(|(_, refused)| refused);
        Ok(PoolResult { refused, checked: checked.into_inner() })
    }

    /// Checks a state, and builds it in `kept` as it was before the check, with the check's log.
    pub fn check_and_keep(
        &self,
        state: &DirectoryState,
        output_bytes: usize,
        kept: &Path,
    ) -> Result<CheckResult> {
        let result = self.check_one(state, output_bytes)?;
        self.write(state, output_bytes, kept)?;
        let (log, kept_log) = (CheckFiles::new(&self.one()).log, CheckFiles::new(kept).log);
        fs::copy(log, kept_log).context("failed to keep the log of the check")?;
        Ok(result)
    }

    /// The folder of the states that are checked one at a time.
    fn one(&self) -> PathBuf {
        self.folder.join("one")
    }

    /// Builds a state in a folder and checks it there.
    fn run(
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

fn receive(receiver: &Mutex<Receiver<(usize, StateToCheck)>>) -> Option<(usize, StateToCheck)> {
    receiver.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

fn remove(dir: &PathBuf) -> std::io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Condvar;
    use std::time::Duration;

    use super::*;
    use crate::model::disk::Disk;
    use crate::model::loss::{Loss, LostParts};

    /// Refuses all states; the first one is slow, and ends after the second.
    #[derive(Default)]
    struct SlowFirst {
        second_ended: Mutex<bool>,
        changed: Condvar,
    }

    impl StateCheck for SlowFirst {
        fn run(&self, files: &CheckFiles) -> Result<CheckResult> {
            let mut second_ended = self.second_ended.lock().unwrap();
            if fs::metadata(&files.output)?.len() == 0 {
                second_ended = self.changed.wait_while(second_ended, |ended| !*ended).unwrap();
                drop(second_ended);
                // The pool learns of the second one.
                std::thread::sleep(Duration::from_millis(50));
            } else {
                *second_ended = true;
                self.changed.notify_all();
            }
            Ok(CheckResult::Failed)
        }
    }

    #[test]
    fn first_refused_state_is_the_answer_when_a_later_one_ends_before_it() {
        let folder = tempfile::tempdir().unwrap();
        let progress = ProgressBar::hidden();
        let pool = CheckPool {
            check: &SlowFirst::default(),
            nodes: &BTreeMap::new(),
            output: b"x",
            folder: folder.path(),
            jobs: 2,
            progress: &progress,
        };
        let state = DirectoryState::new(&Disk::default(), &Loss::default());
        let candidate = |request| {
            let loss = Loss { requests: [(request, LostParts::all())].into() };
            Candidate { cut: 7, loss }
        };
        let to_check = |number: u64| StateToCheck {
            candidate: candidate(number),
            state: state.clone(),
            output_bytes: number as usize,
        };
        let result = pool.check_all(|send| {
            let _ = send(to_check(0)) && send(to_check(1));
        });
        assert_eq!(result.unwrap().refused.unwrap().candidate, candidate(0));
    }
}
