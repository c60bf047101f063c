//! Checks whether a path is within a directory.

use std::io;
use std::path::{Component, Path, PathBuf};

/// Whether `path` is the directory `dir` or inside of it, by whatever name: symbolic links and `..`
/// are followed, and what does not exist yet counts by its name. A bind mount is not seen.
///
/// # Errors
/// The current directory is not known, and a path is relative.
///
/// # Examples
/// ```
/// let dir = tempfile::tempdir()?;
/// let log = dir.path().join("log");
/// std::fs::create_dir(&log)?;
/// assert!(esker_log::path_is_within(&log.join("../log/copy"), &log)?);
/// assert!(!esker_log::path_is_within(&log.join("../copy"), &log)?);
/// # std::io::Result::Ok(())
/// ```
pub fn path_is_within(path: &Path, dir: &Path) -> io::Result<bool> {
    Ok(resolved(path)?.starts_with(resolved(dir)?))
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
