//! The journal of a file system: what a sync of one inode makes durable of the others.

use std::collections::BTreeMap;

use super::names::PendingRename;
use crate::record::operation::{Ino, NameCall, Operation, Request, RequestNumber, SyncCall};

/// The last requests that changed each inode, up to which its sync commits the journal.
#[derive(Clone, Debug, Default)]
pub struct LastChanges {
    any: BTreeMap<Ino, RequestNumber>,
    /// The creation, or a change of the size.
    size: BTreeMap<Ino, RequestNumber>,
}

impl LastChanges {
    /// Notes a request that was applied; `grew` is whether it made its file larger.
    pub fn note(&mut self, request: &Request, grew: bool) {
        let number = request.number;
        match &request.operation {
            Operation::Write { file, .. }
            | Operation::MappedWrite { file, .. }
            | Operation::Zero { file, .. } => {
                self.any.insert(*file, number);
                if grew {
                    self.size.insert(*file, number);
                }
            }
            Operation::Resize { file, .. } => {
                self.any.insert(*file, number);
                self.size.insert(*file, number);
            }
            Operation::Rename { call, changes } => {
                let makes = matches!(call, NameCall::Create | NameCall::Mkdir | NameCall::Symlink);
                for change in changes {
                    self.any.insert(change.dir, number);
                    for ino in change.before.iter().chain(&change.after) {
                        self.any.insert(*ino, number);
                    }
                    self.size.extend(change.after.filter(|_| makes).map(|ino| (ino, number)));
                }
            }
            Operation::WriteReturned { .. }
            | Operation::Sync { .. }
            | Operation::SyncFailed { .. } => {}
        }
    }

    /// The last request that a sync of the inode commits.
    pub fn committed_by(&self, inode: Ino, call: SyncCall) -> RequestNumber {
        let changes = if call == SyncCall::Fdatasync { &self.size } else { &self.any };
        changes.get(&inode).copied().unwrap_or(0)
    }
}

/// The file that a rename puts in the place of another, and the request.
pub fn replacement(pending: &PendingRename) -> Option<(Ino, RequestNumber)> {
    let changes = &pending.changes;
    // An exchange removes no name.
    let moves = changes.iter().any(|change| change.after.is_none());
    let replaced = changes.iter().find(|change| change.before.is_some() && change.after.is_some());
    let ino = replaced.filter(|_| moves)?.after?;
    Some((ino, pending.request))
}
