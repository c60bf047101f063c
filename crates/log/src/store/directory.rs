//! Opening and locking a log's directory.
//!
//! The path that a user gives is resolved once. Everything after that is relative to the directory
//! that was opened, and the lock is on that directory itself. Renaming the directory takes the log,
//! its writer and its lock along. A directory that replaces it at the old path is another log.
//! Removing the file `lock` changes nothing but a message.
//!
//! # Two writers
//!
//! *No file of a log is changed by two writers.* A writer changes files only through the handle
//! that it locked ([`lock`] and everything after it take the same [`Dir`]). The lock belongs to the
//! directory, not to a name: two handles to one directory, opened by any paths, contend for the
//! same lock.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use esker_disk::{
    AlignedBuf, Dir, Disk, File, Lock, OpenMode, Refusal, process, read_full_at, write_all_at,
};

use crate::base::component::UNFINISHED_BACKUP;
use crate::base::error::{Error, Result, with_causes};
use crate::base::options::Options;
use crate::format::BLOCK_BYTES;
use crate::store::app_metadata;
use crate::store::manifest::Manifest;
use crate::store::paths::{self, LOCK, Name, QUARANTINE};

/// The length of the file `lock`: a process id, spaces, and a newline. It is constant, so that a
/// shorter id leaves nothing of a longer one.
const PID_LINE_BYTES: usize = 11;

pub(crate) fn not_a_log(dir: &Path, found: &str) -> Error {
    Error::NotALog { dir: dir.into(), found: found.into() }
}

/// Opens the directory of a log that must exist.
pub(crate) fn open(path: &Path, disk: &dyn Disk) -> Result<Arc<dyn Dir>> {
    let dir = disk.open_dir(path).map_err(|cause| no_directory(path, cause))?;
    // Its first segments may be there without a manifest, which a repair would make.
    match app_metadata::read(&*dir) {
        Ok(Some((UNFINISHED_BACKUP, _))) => {
            Err(not_a_log(path, "it is an unfinished backup; back up or restore to it again"))
        }
        // It may be that of an unfinished backup. A component whose file it is writes it again.
        Err(error @ Error::Corrupted(_)) if is_backup(&*dir)? => Err(error),
        _ => {
            dir.readable_as(paths::MANIFEST)?;
            Ok(dir)
        }
    }
}

/// Whether it is a copy of a log, in which no writer made the file `lock`.
pub(crate) fn is_backup(dir: &dyn Dir) -> Result<bool> {
    let is_copy = matches!(Manifest::read(dir), Ok(Some(manifest)) if manifest.is_copy);
    Ok(is_copy && !dir.list()?.iter().any(|name| name == LOCK))
}

fn no_directory(path: &Path, cause: esker_disk::Error) -> Error {
    match cause.kind() {
        _ if cause.refusal() == Some(Refusal::DanglingLink) => {
            not_a_log(path, "it is a symbolic link to something that does not exist")
        }
        ErrorKind::NotFound => not_a_log(path, "there is no such directory"),
        ErrorKind::NotADirectory => not_a_log(path, "it is a file, not a directory"),
        _ => cause.into(),
    }
}

/// Opens a directory that is, or can become, a log's, and creates it where it is missing.
pub(crate) fn enter(path: &Path, options: &Options) -> Result<Arc<dyn Dir>> {
    let dir = match options.disk.open_dir(path) {
        Err(cause) if cause.kind() == ErrorKind::NotFound && !options.must_exist => {
            return Ok(options.disk.create_dir(path)?);
        }
        opened => opened.map_err(|cause| no_directory(path, cause))?,
    };
    if is_a_log(&*dir, options)? {
        dir.readable_as(paths::MANIFEST)?;
        return Ok(dir);
    }
    if options.must_exist {
        return Err(not_a_log(path, "it is empty"));
    }
    // The process that created the directory may have died before its name was durable.
    Ok(options.disk.create_dir(path)?)
}

/// Whether the directory is a log's that these options open. Refuses the log of another component,
/// and a directory that holds other files.
fn is_a_log(dir: &dyn Dir, options: &Options) -> Result<bool> {
    let names = dir.list()?;
    app_metadata::check(dir, &names, options)?;
    let is_a_log = paths::is_a_log(&names);
    if !is_a_log && names.iter().any(|name| paths::classify(name) == paths::Name::Unknown) {
        return Err(not_a_log(dir.path(), "it holds other files"));
    }
    Ok(is_a_log)
}

/// Takes the exclusive lock of a directory that was entered with these options: see [`lock`].
/// Another process may have created something there since.
pub(crate) fn lock_entered(dir: &dyn Dir, options: &Options) -> Result<Box<dyn Lock>> {
    let held = hold(dir)?;
    is_a_log(dir, options)?;
    write_pid(dir)?;
    Ok(held)
}

/// Takes the exclusive lock of the directory, and writes the process id to the file `lock`.
///
/// The file is for messages only. It is not synced, and a failure to write it (on a full disk, for
/// instance) does not fail the log. Another kind of file under its name does.
pub(crate) fn lock(dir: &dyn Dir) -> Result<Box<dyn Lock>> {
    let held = hold(dir)?;
    write_pid(dir)?;
    Ok(held)
}

/// Takes the exclusive lock of the directory, and writes nothing.
pub(crate) fn hold(dir: &dyn Dir) -> Result<Box<dyn Lock>> {
    dir.lock().map_err(|cause| match cause.kind() {
        ErrorKind::WouldBlock => Error::Locked { dir: dir.path().into(), pid: holder(dir) },
        _ => cause.into(),
    })
}

fn write_pid(dir: &dyn Dir) -> Result<()> {
    let file = match dir.open(LOCK, OpenMode::create()) {
        Err(cause) if cause.kind() == ErrorKind::StorageFull => return Ok(()),
        opened => opened?,
    };
    let line = format!("{:<width$}\n", std::process::id(), width = PID_LINE_BYTES - 1);
    if line_of(&*file).is_none_or(|stored| stored != line)
        && let Err(error) = write_all_at(&*file, line.as_bytes(), 0)
    {
        tracing::warn!(
            error = with_causes(&error),
            "failed to write the process id to the lock file"
        );
    }
    Ok(())
}

/// The process that the file `lock` names, if it names one that runs. Otherwise the lock is held by
/// a child of that process, by one in another PID namespace, or by one that has not written the
/// file yet.
fn holder(dir: &dyn Dir) -> Option<u32> {
    let pid = line_of(&*dir.open(LOCK, OpenMode::read()).ok()?)?.trim_end().parse().ok()?;
    process::is_running(pid).then_some(pid)
}

/// Removes the temporary files of a directory that is locked.
pub(crate) fn unlink_temporary(dir: &dyn Dir) -> Result<()> {
    let names = dir.list()?;
    for name in names.iter().filter(|name| paths::classify(name) == Name::Temporary) {
        dir.unlink(name)?;
    }
    Ok(())
}

/// Whether corrupt units of the log in this directory were ever quarantined.
pub(crate) fn was_repaired(dir: &dyn Dir) -> Result<bool> {
    Ok(dir.list()?.iter().any(|name| name == QUARANTINE))
}

fn line_of(file: &dyn File) -> Option<String> {
    let mut line = [0; PID_LINE_BYTES];
    let got = read_full_at(file, &mut line, 0).ok()?;
    String::from_utf8(line[..got].to_vec()).ok()
}

/// Whether files of the log can be read with direct I/O, found by trying. Writes nothing: readers
/// have no lock.
pub(crate) fn reads_directly(dir: &dyn Dir) -> bool {
    let direct = dir.open(paths::MANIFEST, OpenMode::read().direct(true));
    direct.is_ok_and(|file| {
        let mut block = AlignedBuf::new(BLOCK_BYTES as usize);
        file.read_at(&mut block, 0).is_ok()
    })
}
