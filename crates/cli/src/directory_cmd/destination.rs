//! The destination of a backup, and of what is restored from one.

use std::io;
use std::path::Path;

use esker_log::{Component, ReadOptions};

use esker_command::exit::{Failure, Outcome};

/// The commands that copy a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyCommand {
    Backup,
    Restore,
}

impl CopyCommand {
    /// The word for what the command did.
    pub fn done(self) -> &'static str {
        match self {
            Self::Backup => "copied",
            Self::Restore => "restored",
        }
    }

    /// The remedy for a destination that an earlier run left unfinished.
    pub fn unfinished(self, dest: &Path, what: &str) -> Failure {
        let (left, again) = match self {
            Self::Backup => ("backup", "back up again"),
            Self::Restore => ("restored copy", "restore again"),
        };
        let dest = dest.display();
        Failure::failed(format!("{dest} is an unfinished {left}{what}; delete it and {again}"))
    }

    /// The failure of a command that a signal ended.
    pub fn ended_by_signal(self, is_interrupt: bool) -> Failure {
        let what = if self == Self::Backup { "backup" } else { "restored copy" };
        let left = format!("the {what} is not complete, and its files were removed");
        match is_interrupt {
            true => Failure::interrupted(format!("interrupted: {left}")),
            false => Failure::failed(format!("a signal ended the command: {left}")),
        }
    }
}

/// Whether an earlier copy to this directory did not end; `component` is that of such a copy. A
/// copy of many consensus logs has it in its registry.
pub fn is_unfinished(dest: &Path, component: Component) -> bool {
    [dest.to_owned(), dest.join("registry")].into_iter().any(|dir| {
        let found = esker_log::component::identify(dir, ReadOptions::default());
        found.is_ok_and(|found| found == Some(component))
    })
}

/// Refuses a destination that is the directory to copy, or inside it, by whatever name.
pub fn refuse_inside(dir: &Path, dest: &Path) -> Outcome {
    // Opening a directory that is not there reports that.
    if !dir.exists() {
        return Ok(());
    }
    let failed = |error: io::Error| Failure::from_io(dest.display(), &error);
    if esker_log::path_is_within(dest, dir).map_err(failed)? {
        return Err(Failure::usage(format!(
            "{} is in the directory to copy, {}; a copy goes to a directory outside it",
            dest.display(),
            dir.display()
        )));
    }
    Ok(())
}
