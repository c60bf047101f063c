//! The destination of a backup.

use std::path::Path;

use crate::exit::{Failure, Outcome};

/// Refuses a destination that is the directory to copy, or inside it, by whatever name.
pub fn refuse_inside(dir: &Path, dest: &Path) -> Outcome {
    let unknown = |error: std::io::Error| Failure::of_io(dest.display().to_string(), &error);
    if esker_log::is_inside(dest, dir).map_err(unknown)? {
        return Err(Failure::usage(format!(
            "{} is in the directory to copy, {}; a copy goes to a directory outside it",
            dest.display(),
            dir.display()
        )));
    }
    Ok(())
}
