//! A folder for temporary files.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use esker_command::exit::{Failure, Outcome};
use esker_command::signals::Stop;

/// How often the removal is repeated, and the time between: a child may still create files.
const REMOVALS_MAX: u32 = 10;
const REMOVAL_PAUSE: Duration = Duration::from_millis(10);

/// A folder in `TMPDIR`, which is removed when this is dropped.
#[derive(Debug)]
pub struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    /// Creates a folder. At a signal it is removed and the process exits.
    pub fn create(prefix: &str) -> Outcome<Self> {
        let no_signals = |error| Failure::from_io("catch signals", &error);
        let stop = Stop::on_signals().map_err(no_signals)?;
        let parent = std::env::temp_dir();
        let created = tempfile::Builder::new().prefix(prefix).tempdir().map_err(|error| {
            Failure::from_io(format_args!("create a folder in {}", parent.display()), &error)
                .or_else("set TMPDIR to a folder where this user may write")
        })?;
        let folder = Self(created.keep());
        let at_signal = folder.0.clone();
        stop.exit_after(move || remove(&at_signal)).map_err(no_signals)?;
        Ok(folder)
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

fn remove(folder: &Path) {
    for _ in 0..REMOVALS_MAX {
        // It may be removed already.
        let _ = std::fs::remove_dir_all(folder);
        thread::sleep(REMOVAL_PAUSE);
    }
}
