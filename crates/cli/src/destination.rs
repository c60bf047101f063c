//! The destination of a backup.

use std::io;
use std::path::{Component, Path, PathBuf};

use crate::exit::{Failure, Outcome};

/// Refuses a destination that is the directory to copy, or inside it, by whatever name.
pub fn refuse_inside(dir: &Path, dest: &Path) -> Outcome {
    let failure = |path: &Path| {
        let name = path.display().to_string();
        move |error: io::Error| Failure::of_io(name, &error)
    };
    let source = dir.canonicalize().map_err(failure(dir))?;
    if resolved(dest).map_err(failure(dest))?.starts_with(source) {
        return Err(Failure::usage(format!(
            "{} is in the directory to copy, {}; a backup goes to a directory outside it",
            dest.display(),
            dir.display()
        )));
    }
    Ok(())
}

/// The path without symbolic links and `..`. What does not exist yet is appended to what does.
fn resolved(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    let mut resolved = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                resolved.pop();
            }
            part => {
                resolved.push(part);
                if let Ok(found) = resolved.canonicalize() {
                    resolved = found;
                }
            }
        }
    }
    Ok(resolved)
}
