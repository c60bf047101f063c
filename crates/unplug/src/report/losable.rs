//! The requests that a program had acknowledged and could still lose: found without a check.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::directory::DirectoryState;
use crate::model::disk::{Disk, UndecidedRequest};
use crate::model::loss::Loss;
use crate::record::operation::{Operation, Request, RequestNumber};
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
}

/// Each request that was not durable at an acknowledgement, with the first such.
pub fn losable(recording: &Recording) -> Vec<Losable<'_>> {
    let mut disk = Disk::default();
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
        let state = DirectoryState::new(&disk, &Loss::default());
        let visible = |request: &UndecidedRequest| {
            request.names || request.inodes.iter().any(|ino| state.has_inode(*ino))
        };
        let fresh: BTreeMap<RequestNumber, UndecidedRequest> = disk
            .undecided()
            .into_iter()
            .filter(|request| visible(request) && known.insert(request.request))
            .map(|request| (request.request, request))
            .collect();
        found.extend(recording.events[..index].iter().filter_map(|event| {
            let Event::Request(request) = event else { return None };
            let sync_failed = fresh.get(&request.number)?.sync_failed;
            Some(Losable { request, acknowledgement, sync_failed })
        }));
    }
    found
}

impl std::fmt::Display for Losable<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let synced = match self.request.operation {
            Operation::Rename { .. } => "directory",
            _ => "file",
        };
        match self.sync_failed {
            true => write!(f, "{}: its fsync failed, and no write and fsync follow", self.request)?,
            false => write!(f, "{}: no fsync of the {synced} follows", self.request)?,
        }
        f.write_str(" before ")?;
        match self.acknowledgement {
            Acknowledgement::OutputLine(line) => write!(f, "line {line} of the output"),
            Acknowledgement::Exit => f.write_str("the end with success"),
        }
    }
}
