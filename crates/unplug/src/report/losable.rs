//! The requests that a program had acknowledged and could still lose: found without a check.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::model::disk::{Disk, UndecidedRequest};
use crate::model::names::ReachableInodes;
use crate::record::operation::{Request, RequestNumber};
use crate::record::recording::{Event, Recording};

/// The moment at which a program said that its work is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledgement {
    /// A line of its output, by its number.
    OutputLine(usize),
    /// Its end with success.
    Exit,
}

/// A request that was not durable when the program acknowledged.
#[derive(Clone, Debug)]
pub struct Losable<'a> {
    pub request: &'a Request,
    pub acknowledgement: Acknowledgement,
    /// A sync that covered some of its data failed.
    pub sync_failed: bool,
    /// The directories whose sync is missing, relative to the recorded one.
    directories: Vec<PathBuf>,
}

/// Each request that was not durable at an acknowledgement, with the first such.
pub fn losable(recording: &Recording) -> Vec<Losable<'_>> {
    let mut disk = Disk::new(recording.model);
    let mut lines = 0;
    let mut known: BTreeSet<RequestNumber> = BTreeSet::new();
    let mut found = Vec::new();
    for (index, event) in recording.events.iter().enumerate() {
        disk.apply(event);
        let acknowledgement = match event {
            Event::Output(bytes) => {
                let ended = bytes.iter().filter(|byte| **byte == b'\n').count();
                lines += ended;
                // A line that is not complete says nothing yet.
                if ended == 0 {
                    continue;
                }
                Acknowledgement::OutputLine(lines)
            }
            Event::Success => Acknowledgement::Exit,
            Event::SetupEnd
            | Event::AllDurable
            | Event::Request(_)
            | Event::Fault(_)
            | Event::Mark(_) => continue,
        };
        let live = disk.names.live();
        let reachable = ReachableInodes::new(&live);
        let mut fresh = BTreeMap::new();
        for request in disk.undecided() {
            // Changes of names are examined once: those that add to a loss later are named then.
            if request.names && !known.insert(request.request) {
                continue;
            }
            let directories = missed_in(&disk, &request, &reachable);
            let has_data = request.has_data() || request.size;
            let is_visible = has_data && request.inodes.iter().any(|ino| reachable.contains(*ino));
            if !directories.is_empty() || is_visible && known.insert(request.request) {
                fresh.insert(request.request, (request.sync_failed, directories));
            }
        }
        found.extend(recording.events[..index].iter().filter_map(|event| {
            let Event::Request(request) = event else { return None };
            let (sync_failed, directories) = fresh.remove(&request.number)?;
            Some(Losable { request, acknowledgement, sync_failed, directories })
        }));
    }
    found
}

/// The directories in which a name is missed when the request is lost.
fn missed_in(
    disk: &Disk,
    request: &UndecidedRequest,
    reachable: &ReachableInodes<'_>,
) -> Vec<PathBuf> {
    if !request.names {
        return Vec::new();
    }
    let differing = disk.names.differing_without(request.request);
    let reached = differing.into_iter().filter(|dir| reachable.contains(*dir));
    reached.map(|dir| reachable.path(dir)).collect()
}

impl std::fmt::Display for Losable<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: ", self.request)?;
        let in_root = |path: &PathBuf| path.as_os_str().is_empty();
        match self.directories.as_slice() {
            _ if self.sync_failed => {
                f.write_str("its fsync failed, and no write and fsync follow")?;
            }
            [] => f.write_str("no fsync of the file follows")?,
            [dir] if in_root(dir) => f.write_str("no fsync of the directory follows")?,
            [dir] => write!(f, "no fsync of the directory {} follows", dir.display())?,
            several => {
                let names = several.iter().map(|dir| match in_root(dir) {
                    true => ".".to_owned(),
                    false => dir.display().to_string(),
                });
                let names = names.collect::<Vec<_>>().join(" and ");
                write!(f, "no fsync of the directories {names} follows")?;
            }
        }
        f.write_str(" before ")?;
        match self.acknowledgement {
            Acknowledgement::OutputLine(line) => write!(f, "line {line} of the output"),
            Acknowledgement::Exit => f.write_str("the end with success"),
        }
    }
}
