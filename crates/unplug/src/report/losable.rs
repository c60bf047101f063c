//! The requests that a program had acknowledged and could still lose: found without a check.

use std::collections::BTreeSet;

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
            Event::SetupEnd | Event::Request(_) => continue,
        };
        let state = DirectoryState::new(&disk, &Loss::default());
        let visible = |request: &UndecidedRequest| {
            request.names || request.inodes.iter().any(|ino| state.has_inode(*ino))
        };
        let fresh: BTreeSet<RequestNumber> = disk
            .undecided()
            .iter()
            .filter(|request| visible(request))
            .map(|request| request.request)
            .filter(|number| known.insert(*number))
            .collect();
        found.extend(recording.events[..index].iter().filter_map(|event| match event {
            Event::Request(request) if fresh.contains(&request.number) => {
                Some(Losable { request, acknowledgement })
            }
            _ => None,
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
        write!(f, "{}: no fsync of the {synced} follows before ", self.request)?;
        match self.acknowledgement {
            Acknowledgement::OutputLine(line) => write!(f, "line {line} of the output"),
            Acknowledgement::Exit => f.write_str("the program ended with success"),
        }
    }
}
