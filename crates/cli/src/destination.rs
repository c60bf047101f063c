//! The destination of a backup.

use std::io;
use std::path::Path;

use esker_command::exit::{Failure, Outcome};

/// Refuses a destination that is the directory to copy, or inside it, by whatever name.
pub fn refuse_inside(dir: &Path, dest: &Path) -> Outcome {
    let failed = |path: &Path| {
        let name = path.display().to_string();
        move |error: io::Error| Failure::of_io(name, &error)
    };
    // Of the two, the source has to be there.
    std::fs::metadata(dir).map_err(failed(dir))?;
    if esker_log::path_is_within(dest, dir).map_err(failed(dest))? {
        return Err(Failure::usage(format!(
            "{} is in the directory to copy, {}; a copy goes to a directory outside it",
            dest.display(),
            dir.display()
        )));
    }
    Ok(())
}
