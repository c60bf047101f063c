//! The disk under the recorded directory: what is durable after some events, and what is undecided.
//!
//! The model is that of POSIX, no file system's. fsync and fdatasync of a file make its data and
//! size durable, fsync of a directory the names in it; a sync that has not returned makes nothing
//! durable, and that of a file does not make its name durable. Nor does one that failed: the data
//! that it covered stays losable until it is written again and synced. What a file system promises
//! beyond that is in `ext4`.

use std::collections::BTreeMap;

use super::journal::{LastChanges, replacement};
use super::names::NameVersions;
use super::sector::{Cause, FileVersions};
use crate::record::operation::{Ino, Operation, Request, RequestNumber, SyncCall};
use crate::record::recording::{Event, FileSystemModel};

#[derive(Clone, Debug, Default)]
pub struct Disk {
    pub files: BTreeMap<Ino, FileVersions>,
    pub names: NameVersions,
    /// The bytes that the program wrote to its standard output.
    pub output: Vec<u8>,
    model: FileSystemModel,
    last_changes: LastChanges,
    /// Durable renames over another file, by the file that has the name now.
    replacements: BTreeMap<Ino, RequestNumber>,
}

/// The parts of a request that may survive apart from one another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndecidedRequest {
    pub request: RequestNumber,
    /// The file with the data or size; for a change of names the inodes that it names.
    pub inodes: Vec<Ino>,
    /// The sectors that it wrote and no sync made durable, in order.
    pub sectors: Vec<u64>,
    pub size: bool,
    pub names: bool,
    /// A sync that covered some of the data failed.
    pub sync_failed: bool,
}

impl Disk {
    /// Creates an empty disk with a file system that keeps the promises of `model`.
    pub fn new(model: FileSystemModel) -> Self {
        Self { model, ..Self::default() }
    }

    pub fn model(&self) -> FileSystemModel {
        self.model
    }

    pub fn replacements(&self) -> &BTreeMap<Ino, RequestNumber> {
        &self.replacements
    }

    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::SetupEnd | Event::AllDurable => {
                self.files.values_mut().for_each(FileVersions::make_all_durable);
                self.names.make_all_durable();
            }
            Event::Request(request) => self.apply_request(request),
            Event::Output(bytes) => self.output.extend_from_slice(bytes),
            Event::Success | Event::Fault(_) | Event::Mark(_) => {}
        }
    }

    /// The requests of which something is undecided, in order.
    pub fn undecided(&self) -> Vec<UndecidedRequest> {
        let mut requests = Requests::default();
        for (ino, file) in &self.files {
            for (number, versions) in &file.undecided {
                for version in versions {
                    let request = requests.get(version.request);
                    request.add_inode(*ino);
                    request.sync_failed |= version.sync_failed;
                    match version.cause {
                        Cause::Data => request.sectors.push(*number),
                        Cause::Size => request.size = true,
                    }
                }
            }
            for size in &file.undecided_sizes {
                let request = requests.get(size.request);
                request.add_inode(*ino);
                request.size = true;
            }
        }
        for pending in self.names.pending() {
            let request = requests.get(pending.request);
            request.names = true;
            for change in &pending.changes {
                change.before.iter().chain(&change.after).for_each(|ino| request.add_inode(*ino));
            }
        }
        requests.0.into_values().collect()
    }

    fn apply_request(&mut self, request: &Request) {
        let number = request.number;
        let mut grew = false;
        match &request.operation {
            Operation::Write { file, offset, data }
            | Operation::MappedWrite { file, offset, data } => {
                let file = self.files.entry(*file).or_default();
                let before = file.size();
                file.write(number, *offset, data);
                grew = file.size() > before;
            }
            Operation::WriteReturned { file: inode, offset, bytes } => {
                self.commit_journal(*inode, SyncCall::Fdatasync);
                if let Some(file) = self.files.get_mut(inode) {
                    file.make_range_durable(*offset, *offset + *bytes);
                }
            }
            Operation::Zero { file, offset, bytes } => {
                let file = self.files.entry(*file).or_default();
                file.zero(number, *offset, *offset + *bytes, Cause::Data);
            }
            Operation::Resize { file, size } => {
                self.files.entry(*file).or_default().resize(number, *size);
            }
            Operation::Rename { call, changes } => {
                self.names.rename(number, *call, changes.clone());
            }
            Operation::Sync { inode, call } => {
                self.commit_journal(*inode, *call);
                if *call == SyncCall::FsyncDir {
                    self.names.sync(*inode);
                } else if let Some(file) = self.files.get_mut(inode) {
                    file.make_durable();
                }
            }
            Operation::SyncFailed { inode, offset, bytes, .. } => {
                if let Some(file) = self.files.get_mut(inode) {
                    file.fail_sync(*offset, offset.saturating_add(*bytes));
                }
            }
        }
        if self.model == FileSystemModel::Ext4 {
            self.last_changes.note(request, grew);
        }
    }

    /// A sync of an inode commits the journal up to its last change, where there is one.
    fn commit_journal(&mut self, inode: Ino, call: SyncCall) {
        if self.model == FileSystemModel::Posix {
            return;
        }
        let last = self.last_changes.committed_by(inode, call);
        let committed = self.names.pending().iter().filter(|pending| pending.request <= last);
        self.replacements.extend(committed.filter_map(replacement));
        self.names.make_durable_up_to(last);
        self.files.values_mut().for_each(|file| file.make_set_sizes_durable(last));
    }
}

/// The requests that were found so far.
#[derive(Default)]
struct Requests(BTreeMap<RequestNumber, UndecidedRequest>);

impl Requests {
    fn get(&mut self, number: RequestNumber) -> &mut UndecidedRequest {
        self.0.entry(number).or_insert_with(|| UndecidedRequest::new(number))
    }
}

impl UndecidedRequest {
    fn new(request: RequestNumber) -> Self {
        let (inodes, sectors) = (Vec::new(), Vec::new());
        Self { request, inodes, sectors, size: false, names: false, sync_failed: false }
    }

    fn add_inode(&mut self, ino: Ino) {
        if !self.inodes.contains(&ino) {
            self.inodes.push(ino);
        }
    }

    pub fn has_data(&self) -> bool {
        !self.sectors.is_empty()
    }
}
