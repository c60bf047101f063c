//! Writes of shared mappings: recorded when the kernel writes them, not when the program does.

use std::collections::BTreeMap;

use super::answer::Answer;
use super::verdict::Verdict;
use crate::model::disk::Disk;
use crate::model::names::ReachableInodes;
use crate::record::operation::{Ino, Operation, Request, RequestNumber};
use crate::record::recording::{Event, Recording};

/// Turns *kept* into *not measured* when a write of a mapping was not durable at an acknowledgement
/// or at the end: the program may have made it before any earlier one.
pub fn doubt(answer: &mut Answer, recording: &Recording) {
    if answer.verdict != Verdict::Kept {
        return;
    }
    if let Some(request) = undecided_write(recording) {
        answer.verdict = Verdict::NotMeasured;
        answer.note(&format!(
            "{request} was not durable at an acknowledgement or at the end: when the program \
             changed the mapping is not visible. Call msync before the acknowledgement"
        ));
    }
}

/// The first write of a mapping that is not durable at an acknowledgement or at the end, to a file
/// that has a name then.
fn undecided_write(recording: &Recording) -> Option<&Request> {
    let mut mapped = BTreeMap::<RequestNumber, (&Request, Ino)>::new();
    let mut disk = Disk::new(recording.model);
    for (index, event) in recording.events.iter().enumerate() {
        disk.apply(event);
        let is_acknowledgement = match event {
            Event::Output(bytes) => bytes.contains(&b'\n'),
            Event::Success => true,
            Event::Request(request) => {
                if let Operation::MappedWrite { file, .. } = request.operation {
                    mapped.insert(request.number, (request, file));
                }
                false
            }
            _ => false,
        };
        let is_last = index + 1 == recording.events.len();
        if mapped.is_empty() || !(is_acknowledgement || is_last) {
            continue;
        }
        let live = disk.names.live();
        let reachable = ReachableInodes::new(&live);
        let undecided = disk.undecided();
        let mut in_doubt = undecided.iter().filter_map(|it| mapped.get(&it.request));
        let named = in_doubt.find(|(_, file)| reachable.contains(*file));
        if let Some((request, _)) = named {
            return Some(request);
        }
    }
    None
}
