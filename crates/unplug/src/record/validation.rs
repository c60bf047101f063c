//! Checks that a recording is one that a mount could have made: a file may hold anything.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fmt;

use super::operation::{Ino, NameCall, NameChange, Operation, Request, SyncCall};
use super::recording::{Event, NodeType, Recording};

/// The largest file, as the kernel has it.
const FILE_BYTES_MAX: u64 = i64::MAX as u64;
/// The deepest directory: a longer path cannot be written.
const DIRECTORY_DEPTH_MAX: usize = 2048;
const NAME_BYTES_MAX: usize = 255;

/// The event that contradicts those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidEvent {
    /// Its number, from 1, as `unplug explain` prints it.
    pub event: usize,
    pub reason: InvalidReason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidReason {
    RequestNumber,
    SecondSetupEnd,
    SecondSuccess,
    UnknownInode,
    NotAFile,
    NotADirectory,
    FileTooLarge,
    Name,
    NameBefore,
    DirectoryCall,
    SecondDirectoryName,
    DirectoryWithoutPath,
}

impl fmt::Display for InvalidEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "event {}: ", self.event)?;
        f.write_str(match self.reason {
            InvalidReason::RequestNumber => "its number does not follow the one before",
            InvalidReason::SecondSetupEnd => "the setup ends twice",
            InvalidReason::SecondSuccess => "the program ends twice",
            InvalidReason::UnknownInode => "it names an inode that the recording does not have",
            InvalidReason::NotAFile => "its inode is no file",
            InvalidReason::NotADirectory => "its inode is no directory",
            InvalidReason::FileTooLarge => "the file is larger than a file can be",
            InvalidReason::Name => "it has a name that no entry of a directory can have",
            InvalidReason::NameBefore => "a name is not that of the inode that it changes",
            InvalidReason::DirectoryCall => "a directory that no mkdir made, or a mkdir of another",
            InvalidReason::SecondDirectoryName => "a directory has two names",
            InvalidReason::DirectoryWithoutPath => {
                "a directory cannot be reached, or is nested too deep"
            }
        })
    }
}

impl std::error::Error for InvalidEvent {}

/// Checks all events in their order.
///
/// # Errors
/// The first event that no mount records after those before it.
pub fn validate(recording: &Recording) -> Result<(), InvalidEvent> {
    let mut validator = Validator::new(recording);
    for (index, event) in recording.events.iter().enumerate() {
        let checked = validator.check(event);
        checked.map_err(|reason| InvalidEvent { event: index + 1, reason })?;
    }
    if validator.requests == recording.requests() {
        Ok(())
    } else {
        let (event, reason) = (recording.events.len(), InvalidReason::RequestNumber);
        Err(InvalidEvent { event, reason })
    }
}

struct Validator<'a> {
    recording: &'a Recording,
    requests: u64,
    setup_ended: bool,
    succeeded: bool,
    names: HashMap<(Ino, OsString), Ino>,
    made: HashSet<Ino>,
    /// The directory that each directory is in.
    parents: HashMap<Ino, Ino>,
}

type Checked = Result<(), InvalidReason>;

impl<'a> Validator<'a> {
    fn new(recording: &'a Recording) -> Self {
        let (names, made, parents) = Default::default();
        let (setup_ended, succeeded) = (false, false);
        Self { recording, requests: 0, setup_ended, succeeded, names, made, parents }
    }

    fn check(&mut self, event: &Event) -> Checked {
        match event {
            Event::SetupEnd if std::mem::replace(&mut self.setup_ended, true) => {
                Err(InvalidReason::SecondSetupEnd)
            }
            Event::Success if std::mem::replace(&mut self.succeeded, true) => {
                Err(InvalidReason::SecondSuccess)
            }
            Event::Request(Request { number, operation, .. }) => {
                self.requests += 1;
                ensure(*number == self.requests, InvalidReason::RequestNumber)?;
                self.check_operation(operation)
            }
            _ => Ok(()),
        }
    }

    fn check_operation(&mut self, operation: &Operation) -> Checked {
        match operation {
            Operation::Write { file, offset, data }
            | Operation::MappedWrite { file, offset, data } => {
                self.check_range(*file, *offset, data.len() as u64)
            }
            Operation::WriteReturned { file, offset, bytes }
            | Operation::Zero { file, offset, bytes } => self.check_range(*file, *offset, *bytes),
            Operation::Resize { file, size } => self.check_range(*file, *size, 0),
            Operation::Rename { call, changes } => self.check_names(*call, changes),
            Operation::Sync { inode, call } | Operation::SyncFailed { inode, call, .. } => {
                match call {
                    SyncCall::FsyncDir => self.check_directory(*inode),
                    SyncCall::Fsync | SyncCall::Fdatasync => self.check_range(*inode, 0, 0),
                }
            }
        }
    }

    fn node_type(&self, ino: Ino) -> Result<&'a NodeType, InvalidReason> {
        let node = self.recording.nodes.get(&ino);
        node.map(|node| &node.node_type).ok_or(InvalidReason::UnknownInode)
    }

    fn check_directory(&self, ino: Ino) -> Checked {
        ensure(*self.node_type(ino)? == NodeType::Directory, InvalidReason::NotADirectory)
    }

    /// Checks that the inode is a file that can have bytes there.
    fn check_range(&self, file: Ino, offset: u64, bytes: u64) -> Checked {
        ensure(*self.node_type(file)? == NodeType::File, InvalidReason::NotAFile)?;
        let end = offset.checked_add(bytes).filter(|end| *end <= FILE_BYTES_MAX);
        ensure(end.is_some(), InvalidReason::FileTooLarge)
    }

    fn check_names(&mut self, call: NameCall, changes: &[NameChange]) -> Checked {
        for NameChange { dir, name, before, after } in changes {
            ensure(is_plain(name), InvalidReason::Name)?;
            self.check_directory(*dir)?;
            let at = (*dir, name.clone());
            let found = match after {
                Some(ino) => self.names.insert(at, *ino),
                None => self.names.remove(&at),
            };
            ensure(found == *before, InvalidReason::NameBefore)?;
            if let Some(ino) = before {
                self.parents.remove(ino);
            }
        }
        for NameChange { dir, after, .. } in changes {
            if let Some(ino) = after {
                self.check_new_name(call, *ino, *dir)?;
            }
        }
        changes.iter().try_for_each(|change| self.check_path(change.dir))
    }

    fn check_new_name(&mut self, call: NameCall, ino: Ino, dir: Ino) -> Checked {
        let is_directory = *self.node_type(ino)? == NodeType::Directory;
        let is_made = call == NameCall::Mkdir;
        let is_new = is_made && ino != Ino::ROOT && self.made.insert(ino);
        let is_known = !is_made && self.made.contains(&ino);
        ensure(is_directory == (is_new || is_known), InvalidReason::DirectoryCall)?;
        ensure(is_directory || !is_made, InvalidReason::DirectoryCall)?;
        let other = if is_directory { self.parents.insert(ino, dir) } else { None };
        ensure(other.is_none(), InvalidReason::SecondDirectoryName)
    }

    /// Checks that a directory is below the recorded one.
    fn check_path(&self, mut dir: Ino) -> Checked {
        for _ in 0..DIRECTORY_DEPTH_MAX {
            if dir == Ino::ROOT {
                return Ok(());
            }
            dir = *self.parents.get(&dir).ok_or(InvalidReason::DirectoryWithoutPath)?;
        }
        Err(InvalidReason::DirectoryWithoutPath)
    }
}

fn ensure(holds: bool, reason: InvalidReason) -> Checked {
    if holds { Ok(()) } else { Err(reason) }
}

/// Whether a name is that of an entry of a directory, as the kernel sends it.
fn is_plain(name: &OsStr) -> bool {
    let bytes = name.as_encoded_bytes();
    let is_special = bytes.is_empty() || name == "." || name == "..";
    !is_special && bytes.len() <= NAME_BYTES_MAX && !bytes.iter().any(|byte| b"/\0".contains(byte))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::record::recording::Node;

    const FILE: Ino = Ino(2);
    const A: Ino = Ino(3);
    const B: Ino = Ino(4);

    fn change(dir: Ino, name: &str, before: Option<Ino>, after: Option<Ino>) -> NameChange {
        NameChange { dir, name: name.into(), before, after }
    }

    fn names(call: NameCall, changes: Vec<NameChange>) -> Operation {
        Operation::Rename { call, changes }
    }

    /// A recording with a file and two directories, and then `operations`.
    fn checked(operations: Vec<Operation>) -> Result<(), InvalidReason> {
        let mut recording = Recording::default();
        let node = |node_type| Node { node_type, mode: 0o700 };
        recording.nodes.insert(FILE, node(NodeType::File));
        for dir in [Ino::ROOT, A, B] {
            recording.nodes.insert(dir, node(NodeType::Directory));
        }
        let root = Ino::ROOT;
        let made = [
            names(NameCall::Create, vec![change(root, "file", None, Some(FILE))]),
            names(NameCall::Mkdir, vec![change(root, "a", None, Some(A))]),
            names(NameCall::Mkdir, vec![change(root, "b", None, Some(B))]),
        ];
        for operation in made.into_iter().chain(operations) {
            recording.add(String::new(), operation).unwrap();
        }
        validate(&recording).map_err(|invalid| invalid.reason)
    }

    #[test]
    fn data_is_that_of_a_file_and_has_its_limits() {
        let zero = |file, offset, bytes| checked(vec![Operation::Zero { file, offset, bytes }]);
        assert_eq!(zero(FILE, FILE_BYTES_MAX - 1, 1), Ok(()));
        assert_eq!(zero(FILE, FILE_BYTES_MAX, 1), Err(InvalidReason::FileTooLarge));
        assert_eq!(zero(FILE, u64::MAX, 1), Err(InvalidReason::FileTooLarge));
        assert_eq!(zero(A, 0, 1), Err(InvalidReason::NotAFile));
        assert_eq!(zero(Ino(99), 0, 1), Err(InvalidReason::UnknownInode));
        let resize = |size| checked(vec![Operation::Resize { file: FILE, size }]);
        assert_eq!(resize(u64::MAX), Err(InvalidReason::FileTooLarge));
        let sync = |inode, call| checked(vec![Operation::Sync { inode, call }]);
        assert_eq!(sync(FILE, SyncCall::FsyncDir), Err(InvalidReason::NotADirectory));
        assert_eq!(sync(A, SyncCall::Fsync), Err(InvalidReason::NotAFile));
    }

    #[test]
    fn names_are_those_of_a_tree() {
        let rename = |changes| checked(vec![names(NameCall::Rename, changes)]);
        let root = Ino::ROOT;
        let into_b = vec![change(root, "a", Some(A), None), change(B, "a", None, Some(A))];
        assert_eq!(rename(into_b.clone()), Ok(()));
        let into_a = vec![change(root, "b", Some(B), None), change(A, "b", None, Some(B))];
        let cycle = vec![names(NameCall::Rename, into_b), names(NameCall::Rename, into_a.clone())];
        assert_eq!(checked(cycle), Err(InvalidReason::DirectoryWithoutPath));
        let into_itself = vec![change(root, "a", Some(A), None), change(A, "a", None, Some(A))];
        assert_eq!(rename(into_itself), Err(InvalidReason::DirectoryWithoutPath));
        let second = vec![change(B, "a", None, Some(A))];
        assert_eq!(rename(second.clone()), Err(InvalidReason::SecondDirectoryName));
        assert_eq!(
            rename(vec![change(B, "r", None, Some(root))]),
            Err(InvalidReason::DirectoryCall)
        );
        assert_eq!(
            checked(vec![names(NameCall::Mkdir, second)]),
            Err(InvalidReason::DirectoryCall)
        );
        let exchanged =
            vec![change(root, "a", Some(A), Some(B)), change(root, "b", Some(B), Some(A))];
        assert_eq!(checked(vec![names(NameCall::Exchange, exchanged)]), Ok(()));
    }

    #[test]
    fn name_is_changed_from_what_it_was() {
        let create = |dir, name: &str, before, after| {
            checked(vec![names(NameCall::Create, vec![change(dir, name, before, after)])])
        };
        assert_eq!(create(A, "x", None, Some(FILE)), Ok(()));
        assert_eq!(create(A, "x", Some(FILE), None), Err(InvalidReason::NameBefore));
        assert_eq!(create(Ino::ROOT, "file", None, None), Err(InvalidReason::NameBefore));
        assert_eq!(create(FILE, "x", None, Some(FILE)), Err(InvalidReason::NotADirectory));
        assert_eq!(create(A, "x", None, Some(Ino(99))), Err(InvalidReason::UnknownInode));
        for name in ["", ".", "..", "a/b", "a\0b", &"n".repeat(256)] {
            assert_eq!(create(A, name, None, Some(FILE)), Err(InvalidReason::Name), "{name}");
        }
    }

    #[test]
    fn directory_is_not_nested_without_end() {
        let mut recording = Recording::default();
        let node = || Node { node_type: NodeType::Directory, mode: 0o700 };
        recording.nodes.insert(Ino::ROOT, node());
        for depth in 1..=DIRECTORY_DEPTH_MAX as u64 {
            recording.nodes.insert(Ino(depth + 1), node());
            let made = vec![change(Ino(depth), "d", None, Some(Ino(depth + 1)))];
            recording.add(String::new(), names(NameCall::Mkdir, made)).unwrap();
        }
        assert_eq!(validate(&recording), Ok(()));
        let deepest = Ino(DIRECTORY_DEPTH_MAX as u64 + 1);
        recording.nodes.insert(FILE, node());
        let made = vec![change(deepest, "d", None, Some(Ino(deepest.0 + 1)))];
        recording.nodes.insert(Ino(deepest.0 + 1), node());
        recording.add(String::new(), names(NameCall::Mkdir, made)).unwrap();
        let reason = InvalidReason::DirectoryWithoutPath;
        assert_eq!(validate(&recording).map_err(|invalid| invalid.reason), Err(reason));
    }

    #[test]
    fn events_have_one_order() {
        let mut recording = Recording::default();
        recording.events.extend([Event::SetupEnd, Event::Success, Event::SetupEnd]);
        let invalid = InvalidEvent { event: 3, reason: InvalidReason::SecondSetupEnd };
        assert_eq!(validate(&recording), Err(invalid));
        recording.events.truncate(1);
        let operation = Operation::Sync { inode: FILE, call: SyncCall::Fsync };
        let request = Request { number: 7, path: String::new(), operation };
        recording.events.push(Event::Request(request));
        let invalid = InvalidEvent { event: 2, reason: InvalidReason::RequestNumber };
        assert_eq!(validate(&recording), Err(invalid));
    }
}
