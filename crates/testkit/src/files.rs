//! A directory as names and bytes, with transfer from and to a disk.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use esker_disk::Result;
use esker_disk::sim::SimDisk;

/// The files of a directory and its subdirectories, by relative path. Equal bytes are shared.
pub type Files = BTreeMap<String, Arc<Vec<u8>>>;

/// Reads a directory of a simulated disk, as ordinary reads see it.
///
/// # Errors
/// `NotFound` and similar errors.
pub fn read_files(disk: &SimDisk, dir: &Path) -> Result<Files> {
    let mut files = Files::new();
    let mut todo = vec![String::new()];
    while let Some(prefix) = todo.pop() {
        for name in disk.files(&dir.join(&prefix))? {
            let path = format!("{prefix}{name}");
            match disk.contents(&dir.join(&path)) {
                Ok(bytes) => drop(files.insert(path, Arc::new(bytes))),
                Err(_) => todo.push(format!("{path}/")),
            }
        }
    }
    Ok(files)
}

/// Changes a directory from the state `before` to `after`, durably.
///
/// # Errors
/// `NotFound` and similar errors.
pub fn store(disk: &SimDisk, dir: &Path, before: &Files, after: &Files) -> Result<()> {
    for name in before.keys().filter(|name| !after.contains_key(*name)) {
        disk.remove(&dir.join(name))?;
    }
    for (name, bytes) in after {
        if before.get(name).is_none_or(|old| !Arc::ptr_eq(old, bytes) && old != bytes) {
            disk.put(&dir.join(name), bytes)?;
        }
    }
    Ok(())
}

/// Writes the files to a real directory.
///
/// # Errors
/// The errors of the file system.
pub fn export(files: &Files, dir: &Path) -> std::io::Result<()> {
    for (name, bytes) in files {
        let path = dir.join(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(path, &**bytes)?;
    }
    Ok(())
}

/// Reads the files of a real directory: the inverse of [`export`].
///
/// # Errors
/// The errors of the file system.
pub fn import(dir: &Path) -> std::io::Result<Files> {
    let mut files = Files::new();
    let mut todo = vec![dir.to_path_buf()];
    while let Some(below) = todo.pop() {
        for entry in std::fs::read_dir(&below)? {
            let path = entry?.path();
            if path.is_dir() {
                todo.push(path);
            } else {
                let name = path.strip_prefix(dir).unwrap_or(&path).to_string_lossy().into_owned();
                files.insert(name, Arc::new(std::fs::read(&path)?));
            }
        }
    }
    Ok(files)
}
