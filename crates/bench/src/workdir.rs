//! The working directory of a benchmark: created, and removed at the end.

use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::process;

use esker_command::exit::{Failure, Outcome};
use esker_command::signals::Stop;

/// A working directory. Dropping it removes the files of the benchmark, unless `keep` is set.
#[derive(Debug)]
pub struct Workdir {
    dir: PathBuf,
    /// Whether it was created by this benchmark.
    created: bool,
    keep: bool,
}

/// The folders of a benchmark in its directory.
const PARTS: [&str; 2] = ["log", "floor"];

impl Workdir {
    /// Creates the directory; without a name, in the current directory. A signal removes it as
    /// well.
    pub fn make(dir: Option<&Path>, keep: bool) -> Outcome<Self> {
        let dir = match dir {
            Some(dir) => dir.to_path_buf(),
            None => PathBuf::from(format!("esker-bench-{}", process::id())),
        };
        let created = !dir.exists();
        if dir.is_file() {
            return Err(Failure::failed(format!(
                "{} is a file, but a benchmark needs a directory: choose another --dir",
                dir.display()
            )));
        }
        for part in PARTS {
            if dir.join(part).exists() {
                return Err(Failure::failed(format!(
                    "{} exists already; remove it or choose another --dir",
                    dir.join(part).display()
                )));
            }
        }
        let no_signals = |error| Failure::from_io("catch signals", &error);
        let stop = Stop::on_signals().map_err(no_signals)?;
        std::fs::create_dir_all(&dir)
            .map_err(|error| Failure::from_io(format_args!("create {}", dir.display()), &error))?;
        let at_signal = ManuallyDrop::new(Self { dir: dir.clone(), created, keep });
        stop.exit_after(|| drop(ManuallyDrop::into_inner(at_signal))).map_err(no_signals)?;
        Ok(Self { dir, created, keep })
    }

    /// Returns the directory of the log.
    pub fn log(&self) -> PathBuf {
        self.dir.join(PARTS[0])
    }

    /// Returns the directory of the floor's files.
    pub fn floor(&self) -> PathBuf {
        self.dir.join(PARTS[1])
    }
}

impl Drop for Workdir {
    fn drop(&mut self) {
        // The floor's files are never kept. Errors are ignored: what cannot be removed stays.
        let _ = std::fs::remove_dir_all(self.floor());
        if !self.keep {
            let _ = std::fs::remove_dir_all(self.log());
            if self.created {
                let _ = std::fs::remove_dir(&self.dir);
            }
        }
    }
}
