//! Applies each request to the tree and records it, after the output that the program wrote before.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::io::Errno;

use super::durable_lines::DurableLines;
use super::tree::{Access, Inode, Object, OnExisting, Tree};
use crate::record::operation::{Ino, NameCall, NameChange, Operation, SyncCall};
use crate::record::payload::Payload;
use crate::record::recording::{Event, Node, NodeType, Recording, RecordingError};

type Result<T> = std::result::Result<T, Errno>;

/// The most that one read takes from the program's output.
const OUTPUT_READ_BYTES: usize = 64 * 1024;
/// Output is recorded in pieces that are little longer.
const OUTPUT_EVENT_BYTES: usize = 1024 * 1024;

#[derive(Debug)]
pub struct Recorder {
    tree: Tree,
    recording: Recording,
    /// The reason why the recording ended before the program.
    failure: Option<RecordingError>,
    /// The reading end of the program's standard output; does not block.
    output: Option<OwnedFd>,
    durable_lines: Option<DurableLines>,
    /// Writes of one call with O_DSYNC or O_SYNC that has not returned. The kernel sends a sync
    /// after the last of them, before the call returns, which is no call of the program.
    returning: Vec<(Ino, Operation)>,
    /// The last name that each inode was given, for messages.
    names: HashMap<Ino, (Ino, OsString)>,
}

impl Recorder {
    pub fn new(access: Access) -> Self {
        let recording = Recording::default();
        let names = HashMap::new();
        let (output, durable_lines, returning, failure) = (None, None, Vec::new(), None);
        let tree = Tree::new(access);
        Self { tree, recording, failure, output, durable_lines, returning, names }
    }

    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    pub fn tree_mut(&mut self) -> &mut Tree {
        &mut self.tree
    }

    pub fn end_setup(&mut self) {
        self.recording.events.push(Event::SetupEnd);
    }

    /// Records `output`. At each line of it that begins with `durable_at` all before is durable.
    pub fn attach_output(&mut self, output: OwnedFd, durable_at: Option<&str>) {
        self.output = Some(output);
        self.durable_lines = durable_at.map(|text| DurableLines::new(text.into()));
    }

    /// Records that a test wants a cut here.
    pub fn record_mark(&mut self, name: String) {
        self.drain_output();
        self.recording.events.push(Event::Mark(name));
    }

    pub fn record_fault(&mut self, fault: String) {
        self.drain_output();
        self.recording.events.push(Event::Fault(fault));
    }

    /// Records that all is well before the recording ends.
    pub fn record_success(&mut self) {
        self.drain_output();
        self.recording.events.push(Event::Success);
    }

    /// Ends the recording; `success` is whether the program said that all is well.
    ///
    /// # Errors
    /// When the recording had to end before.
    pub fn finish(&mut self, success: bool) -> std::result::Result<Recording, RecordingError> {
        self.record_returns();
        self.drain_output();
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        if success {
            self.recording.events.push(Event::Success);
        }
        let nodes = self.tree.inodes().map(|(ino, inode)| (ino, node(inode)));
        self.recording.nodes.extend(nodes);
        Ok(std::mem::take(&mut self.recording))
    }

    /// Records what the program wrote so far. Returns `false` at the end of its output.
    pub fn drain_output(&mut self) -> bool {
        let Some(output) = &self.output else { return false };
        let mut bytes = Vec::new();
        let mut chunk = vec![0; OUTPUT_READ_BYTES];
        let open = loop {
            match rustix::io::read(output, &mut chunk[..]) {
                Ok(0) => break false,
                Ok(read) => {
                    bytes.extend_from_slice(&chunk[..read]);
                    if bytes.len() >= OUTPUT_EVENT_BYTES {
                        let bytes = std::mem::take(&mut bytes);
                        record_output(&mut self.recording, &mut self.durable_lines, bytes);
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break true,
                Err(_) => break false,
            }
        };
        record_output(&mut self.recording, &mut self.durable_lines, bytes);
        if !open {
            self.output = None;
        }
        open
    }

    pub fn create(&mut self, at: (Ino, &OsStr), object: Object, access: Access) -> Result<Ino> {
        let call = match object {
            Object::File(_) => NameCall::Create,
            Object::Directory { .. } => NameCall::Mkdir,
            Object::Symlink(_) => NameCall::Symlink,
        };
        let ino = self.tree.create(at.0, at.1, object, access)?;
        self.recording.nodes.insert(ino, node(self.tree.inode(ino)?));
        self.named(ino, at);
        self.record_names(ino, call, vec![change(at, None, Some(ino))]);
        Ok(ino)
    }

    pub fn link(&mut self, ino: Ino, at: (Ino, &OsStr)) -> Result<()> {
        self.tree.link(ino, at.0, at.1)?;
        self.named(ino, at);
        self.record_names(ino, NameCall::Link, vec![change(at, None, Some(ino))]);
        Ok(())
    }

    pub fn unlink(&mut self, at: (Ino, &OsStr)) -> Result<()> {
        let ino = self.tree.unlink(at.0, at.1)?;
        self.record_names(ino, NameCall::Unlink, vec![change(at, Some(ino), None)]);
        Ok(())
    }

    pub fn rmdir(&mut self, at: (Ino, &OsStr)) -> Result<()> {
        let ino = self.tree.rmdir(at.0, at.1)?;
        self.record_names(ino, NameCall::Rmdir, vec![change(at, Some(ino), None)]);
        Ok(())
    }

    pub fn rename(
        &mut self,
        from: (Ino, &OsStr),
        to: (Ino, &OsStr),
        on_existing: OnExisting,
    ) -> Result<()> {
        let (ino, existing) = self.tree.rename(from, to, on_existing)?;
        if existing == Some(ino) {
            return Ok(());
        }
        let exchanges = on_existing == OnExisting::Exchange;
        let call = if exchanges { NameCall::Exchange } else { NameCall::Rename };
        let left = if exchanges { existing } else { None };
        let changes = vec![change(from, Some(ino), left), change(to, existing, Some(ino))];
        self.named(ino, to);
        if let Some(left) = left {
            self.named(left, from);
        }
        self.record_names(ino, call, changes);
        Ok(())
    }

    pub fn write(&mut self, file: Ino, offset: u64, data: &[u8], durable: bool) -> Result<()> {
        let kept = self.keep(data)?;
        self.tree.content_mut(file)?.write(offset, data);
        self.record(file, Operation::Write { file, offset, data: kept });
        if durable {
            let bytes = data.len() as u64;
            self.returning.push((file, Operation::WriteReturned { file, offset, bytes }));
        }
        Ok(())
    }

    /// Writes what the kernel sends from its page cache: a changed part of a shared mapping.
    pub fn write_mapped(&mut self, file: Ino, offset: u64, data: &[u8]) -> Result<()> {
        let kept = self.keep(data)?;
        self.tree.content_mut(file)?.write(offset, data);
        self.record(file, Operation::MappedWrite { file, offset, data: kept });
        Ok(())
    }

    pub fn resize(&mut self, file: Ino, size: u64) -> Result<()> {
        let content = self.tree.content_mut(file)?;
        if content.size() != size {
            content.resize(size);
            self.record(file, Operation::Resize { file, size });
        }
        Ok(())
    }

    /// Writes zeros over the part of the range that is in the file.
    pub fn zero(&mut self, file: Ino, offset: u64, bytes: u64) -> Result<()> {
        let content = self.tree.content_mut(file)?;
        let end = offset.saturating_add(bytes).min(content.size());
        if offset < end {
            content.zero(offset, end - offset);
            self.record(file, Operation::Zero { file, offset, bytes: end - offset });
        }
        Ok(())
    }

    pub fn sync(&mut self, inode: Ino, call: SyncCall) {
        if self.returns_of(inode) {
            self.record_returns();
        } else {
            self.record(inode, Operation::Sync { inode, call });
        }
    }

    /// Records a sync that returns an error, of a call of the program or at the end of its writes
    /// with O_DSYNC or O_SYNC.
    pub fn sync_failed(&mut self, inode: Ino, call: SyncCall) {
        if !self.returns_of(inode) {
            self.record(inode, Operation::SyncFailed { inode, call, offset: 0, bytes: u64::MAX });
            return;
        }
        for (inode, operation) in std::mem::take(&mut self.returning) {
            if let Operation::WriteReturned { offset, bytes, .. } = operation {
                self.record(inode, Operation::SyncFailed { inode, call, offset, bytes });
            }
        }
    }

    fn named(&mut self, ino: Ino, (dir, name): (Ino, &OsStr)) {
        self.names.insert(ino, (dir, name.to_owned()));
    }

    fn record_names(&mut self, ino: Ino, call: NameCall, changes: Vec<NameChange>) {
        self.record(ino, Operation::Rename { call, changes });
    }

    fn returns_of(&self, inode: Ino) -> bool {
        self.returning.first().is_some_and(|(file, _)| *file == inode)
    }

    fn record_returns(&mut self) {
        for (file, operation) in std::mem::take(&mut self.returning) {
            self.add(file, operation);
        }
    }

    fn record(&mut self, ino: Ino, operation: Operation) {
        // A kernel that sends no sync for them; else the next write of the same call, or changed
        // pages of a mapping, which the kernel writes before its sync.
        let is_write = matches!(operation, Operation::Write { .. } | Operation::MappedWrite { .. });
        if !(is_write && self.returns_of(ino)) {
            self.record_returns();
        }
        self.drain_output();
        self.add(ino, operation);
    }

    fn add(&mut self, ino: Ino, operation: Operation) {
        if self.failure.is_none() {
            let path = self.path(ino).to_string_lossy().into_owned();
            self.failure = self.recording.add(path, operation).err();
        }
    }

    /// Keeps the bytes of a write for the recording. Once that has ended writes fail, so that the
    /// program ends, too.
    fn keep(&mut self, data: &[u8]) -> Result<Payload> {
        if self.failure.is_some() {
            return Err(Errno::IO);
        }
        self.recording.keep(data).map_err(|failure| {
            self.failure = Some(failure);
            Errno::IO
        })
    }

    /// The path that an inode was given last.
    pub fn path(&self, mut ino: Ino) -> PathBuf {
        let mut names = Vec::new();
        while let Some((dir, name)) = self.names.get(&ino) {
            names.push(name);
            ino = *dir;
        }
        if names.is_empty() { PathBuf::from(".") } else { names.into_iter().rev().collect() }
    }
}

fn record_output(recording: &mut Recording, lines: &mut Option<DurableLines>, bytes: Vec<u8>) {
    match lines {
        Some(lines) => recording.events.extend(lines.events(&bytes)),
        None if bytes.is_empty() => {}
        None => recording.events.push(Event::Output(bytes)),
    }
}

fn change((dir, name): (Ino, &OsStr), before: Option<Ino>, after: Option<Ino>) -> NameChange {
    NameChange { dir, name: name.to_owned(), before, after }
}

fn node(inode: &Inode) -> Node {
    let node_type = match &inode.object {
        Object::File(_) => NodeType::File,
        Object::Directory { .. } => NodeType::Directory,
        Object::Symlink(target) => NodeType::Symlink(target.clone().into_os_string()),
    };
    Node { node_type, mode: inode.mode }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use std::fs::File;

    use super::super::content::Content;
    use super::*;
    use crate::record::payload::PayloadStore;

    fn recorder(recording: Recording) -> Recorder {
        let access = Access { mode: 0o755, uid: 0, gid: 0 };
        Recorder { recording, ..Recorder::new(access) }
    }

    fn create(recorder: &mut Recorder, name: &str) -> Result<Ino> {
        let access = Access { mode: 0o644, uid: 0, gid: 0 };
        recorder.create((Ino::ROOT, name.as_ref()), Object::File(Content::default()), access)
    }

    #[test]
    fn full_disk_under_the_temporary_file_ends_the_recording() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut recorder = recorder(Recording::with_payloads(PayloadStore::spilling_to(full)));
        let file = create(&mut recorder, "a").unwrap();
        assert_eq!(recorder.write(file, 0, b"lost", false), Err(Errno::IO));
        assert_eq!(recorder.write_mapped(file, 0, b"lost"), Err(Errno::IO));
        assert_eq!(recorder.tree().content(file).unwrap().size(), 0);
        let failure = recorder.finish(true).unwrap_err();
        let RecordingError::Spill(error) = &failure else { panic!("{failure}") };
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    }

    #[test]
    fn recording_ends_at_its_most_requests() {
        let mut recorder = recorder(Recording::with_requests_max(3));
        let file = create(&mut recorder, "a").unwrap();
        recorder.write(file, 0, b"data", false).unwrap();
        recorder.sync(file, SyncCall::Fsync);
        // The program continues until its next write.
        create(&mut recorder, "b").unwrap();
        assert_eq!(recorder.write(file, 0, b"data", false), Err(Errno::IO));
        let failure = recorder.finish(true).unwrap_err();
        assert!(matches!(failure, RecordingError::TooManyRequests(3)), "{failure}");
    }
}
