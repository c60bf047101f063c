//! Remedies: the steps that a failure advises, for a directory as its files show it.

use std::io;
use std::path::Path;

use esker_disk::Op;
use esker_log::{Component, Corruption, LiveCopySign};

use crate::exit::Failure;

/// The component of the log in `dir`, if its app metadata can be read.
pub(crate) fn component(dir: &Path) -> Option<Component> {
    esker_log::component::identify(dir, esker_log::ReadOptions::default()).ok().flatten()
}

/// Whether a file has the offsets of consumers, which no repair changes.
fn is_of_consumers(file: &Path) -> bool {
    file.parent().is_some_and(|dir| dir.ends_with("consumers"))
}

/// Whether a file is a snapshot of the application.
fn is_snapshot(file: &Path) -> bool {
    let name = file.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with("snapshot-"))
}

/// The remedy for a corruption of the log in `dir`: one advice for each thing that the directory
/// may be, judged by its files.
pub fn on_corruption(corruption: &Corruption, dir: &Path) -> String {
    let shown = dir.display();
    let component = component(dir);
    let is_copy = component == Some(esker_consensus::COPY_COMPONENT);
    // A writer makes the file `lock`.
    let may_be_backup = !dir.join("lock").exists();
    let file = &corruption.file;
    let is_segment = file.extension().is_some_and(|end| end == "seg");
    let is_missing = is_segment && !file.exists();
    let again = if may_be_backup { "if this is a backup, back up again; otherwise " } else { "" };
    if is_of_consumers(file) {
        return format!(
            "; {again}remove the file, which no repair changes, and set the offsets again"
        );
    }
    // A consensus log may have no records below its snapshot.
    if is_snapshot(file) && component.is_none() {
        let remove = "remove the file, which no repair changes";
        return match may_be_backup {
            true => format!("; {remove}, and if this is a backup, back up again"),
            false => format!("; {remove}: the application begins with an earlier snapshot, if any"),
        };
    }
    if file.ends_with("note") {
        return format!(
            "; if this is a backup, remove {shown} and back up again; otherwise restore a backup"
        );
    }
    if is_copy {
        return repair_advice(dir);
    }
    let mut advice = Vec::new();
    if corruption.live_copy != LiveCopySign::Absent {
        advice.push(
            "if the files were copied beside a writer, copy the original with `esker backup`, to \
             another directory"
                .to_owned(),
        );
    }
    // Of a component it is no backup that can be continued.
    if may_be_backup && component.is_none() {
        advice.push(match is_segment {
            true if is_missing => "if this is a backup, back up again".to_owned(),
            true => "if this is a backup and the original is there, remove the file and back up \
                     again"
                .to_owned(),
            false => format!(
                "if this is a backup and the original is there, remove {shown} and back up again"
            ),
        });
    } else if is_missing && corruption.live_copy == LiveCopySign::Absent {
        advice.push(format!(
            "if {shown} was copied by other tools, copy the original with `esker backup`, to another \
             directory"
        ));
    }
    // A repair of what was copied by hand would drop records that the original has.
    let is_evident =
        matches!(corruption.live_copy, LiveCopySign::Certain | LiveCopySign::OldManifest);
    if corruption.live_copy == LiveCopySign::OldManifest {
        let repair = repair_advice(dir);
        advice.push(format!("if it is the original, {}", repair.trim_start_matches("; ")));
    }
    if is_missing || !is_evident {
        let gives_up = is_missing && component != Some(esker_consensus::COMPONENT);
        advice.push(advice_on_original(dir, is_missing, gives_up, advice.is_empty()));
    }
    advice.iter().map(|one| format!("; {one}")).collect()
}

/// The remedy if the log in `dir` is no copy. `gives_up`: a repair gives up a segment. `is_only`:
/// there is no other advice before this one.
fn advice_on_original(dir: &Path, is_missing: bool, gives_up: bool, is_only: bool) -> String {
    if gives_up {
        return format!(
            "if it is the original, restore a backup, or run `esker repair {}`, which gives up \
             the records of the missing segment",
            dir.display()
        );
    }
    let repair = repair_advice(dir);
    let repair = repair.trim_start_matches("; ");
    match (is_only, is_missing) {
        (true, _) => repair.to_owned(),
        (false, true) => format!("if it is the original, {repair}"),
        (false, false) => format!("otherwise {repair}"),
    }
}

/// Advice on repairing the log in `dir`.
fn repair_advice(dir: &Path) -> String {
    let component = component(dir);
    let dir = dir.display();
    match component {
        Some(esker_consensus::COPY_COMPONENT) => format!(
            "; it is a backup: delete the whole copy and back up again with `esker backup`; \
             without the original, `esker repair {dir}` keeps what can be read, \
             read-only"
        ),
        Some(esker_consensus::COMPONENT) => format!(
            "; a repair of a consensus log may lose promises and votes that were given, so let \
             another acceptor or node take its place under a new number; \
             `esker repair {dir}` keeps what can be read, read-only"
        ),
        _ => format!("; run `esker repair {dir}` to quarantine the corruption"),
    }
}

pub(crate) fn is_permission(cause: &esker_disk::Error) -> bool {
    matches!(cause.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

pub(crate) fn io_advice(cause: &esker_disk::Error, dir: &Path) -> String {
    if cause.is_no_space() {
        return format!("; durable records are safe: {} and run the command again", remedy(cause));
    }
    if is_permission(cause) {
        let mut advice = permission_advice(cause).to_owned();
        if cause.kind() != io::ErrorKind::ReadOnlyFilesystem {
            advice += ", or creates it with `--readable-by group`";
        }
        return advice;
    }
    match cause.kind() {
        io::ErrorKind::NotADirectory if cause.path() == dir => "; it is a file, not a directory",
        _ if matches!(cause.op(), Op::OpenDir | Op::CreateDir) => "",
        _ => "; durable records are safe",
    }
    .into()
}

/// The remedy where space lacks.
fn remedy(cause: &esker_disk::Error) -> &'static str {
    if cause.is_out_of_inodes() { "remove files from this file system" } else { "make room" }
}

pub(crate) fn permission_advice(cause: &esker_disk::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::ReadOnlyFilesystem => {
            "; the file system is mounted read-only: reading works, writing needs it mounted \
             read-write"
        }
        _ => {
            "; writing needs a directory that this user may write to, reading one that it may \
             read: the owner lets the group read a log, also what is added later, with \
             `chmod -R g+rX DIR; chmod g+s DIR`"
        }
    }
}

/// The message for a copy that was removed because space lacks for it.
pub fn no_space_for_copy(cause: &esker_disk::Error, dest: &Path) -> Failure {
    let what = if cause.is_out_of_inodes() { "inode for a file" } else { "space for the copy" };
    Failure::failed(format!(
        "no {what} in {}; the copy was removed, {} and run the command again",
        dest.display(),
        remedy(cause)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corruption_names_the_command_that_helps() {
        assert!(repair_advice(Path::new("d")).contains("`esker repair d`"));
    }
}
