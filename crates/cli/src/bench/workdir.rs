//! The directory that a benchmark works in: made, and removed at the end.

use std::path::{Path, PathBuf};
use std::process;

use crate::exit::{Failure, Outcome};
use crate::signals::Stop;

/// A directory. Dropping it removes what the benchmark put there, unless it is to be kept.
#[derive(Debug)]
pub struct Workdir {
    dir: PathBuf,
    /// It was not there before.
    made: bool,
    keep: bool,
}

/// What a benchmark puts into its directory.
const PARTS: [&str; 2] = ["log", "floor"];

impl Workdir {
    /// Makes the directory; without a name, one in the current directory. A signal removes it, too.
    pub fn make(dir: Option<&Path>, keep: bool) -> Outcome<Self> {
        let dir = match dir {
            Some(dir) => dir.to_path_buf(),
            None => PathBuf::from(format!("esker-bench-{}", process::id())),
        };
        let made = !dir.exists();
        if dir.is_file() {
            return Err(Failure::failed(format!(
                "{} is a file, and a benchmark works in a directory: choose another --dir",
                dir.display()
            )));
        }
        for part in PARTS {
            if dir.join(part).exists() {
                return Err(Failure::failed(format!(
                    "{} is there already, from an earlier run; remove it or choose another --dir",
                    dir.join(part).display()
                )));
            }
        }
        std::fs::create_dir_all(&dir)
            .map_err(|error| Failure::of_io(format_args!("create {}", dir.display()), &error))?;
        let workdir = Self { dir, made, keep };
        workdir.remove_on_signals()?;
        Ok(workdir)
    }

    /// Where the log goes.
    pub fn log(&self) -> PathBuf {
        self.dir.join(PARTS[0])
    }

    /// Where the floor is measured.
    pub fn floor(&self) -> PathBuf {
        self.dir.join(PARTS[1])
    }

    fn remove_on_signals(&self) -> Outcome {
        let stop = Stop::on_signals().map_err(|e| Failure::of_io("catch signals", &e))?;
        let like_me = Self { dir: self.dir.clone(), ..*self };
        std::thread::spawn(move || {
            if stop.wait().is_ok() {
                drop(like_me);
                process::exit(130);
            }
            std::mem::forget(like_me);
        });
        Ok(())
    }
}

impl Drop for Workdir {
    fn drop(&mut self) {
        // The floor's files are of no use to anybody. What cannot be removed stays.
        let _ = std::fs::remove_dir_all(self.floor());
        if !self.keep {
            let _ = std::fs::remove_dir_all(self.log());
            if self.made {
                let _ = std::fs::remove_dir(&self.dir);
            }
        }
    }
}
