//! An operation of the recorded program, as the mount received it.

use std::ffi::OsString;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::payload::Payload;

/// The number of a file, directory or link. Never used twice in a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ino(pub u64);

impl Ino {
    /// The directory that is recorded.
    pub const ROOT: Self = Self(1);
}

/// The number of a request: from 1, in the order of arrival.
pub type RequestNumber = u64;

/// A request that changes something or makes it durable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    pub number: RequestNumber,
    /// The path when the request arrived, relative to the recorded directory, for messages.
    pub path: String,
    pub operation: Operation,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    Write {
        file: Ino,
        offset: u64,
        data: Payload,
    },
    /// A write of the kernel from its page cache: the program changed a shared mapping of the file,
    /// at some time before.
    MappedWrite {
        file: Ino,
        offset: u64,
        data: Payload,
    },
    /// A write to a file that is open with O_DSYNC or O_SYNC returns: its bytes are durable.
    WriteReturned {
        file: Ino,
        offset: u64,
        bytes: u64,
    },
    /// A hole, or a range of zeros: nothing grows.
    Zero {
        file: Ino,
        offset: u64,
        bytes: u64,
    },
    Resize {
        file: Ino,
        size: u64,
    },
    /// A change of names: it survives as a whole or not at all.
    Rename {
        call: NameCall,
        changes: Vec<NameChange>,
    },
    /// fsync or fdatasync of a file, or fsync of a directory.
    Sync {
        inode: Ino,
        call: SyncCall,
    },
    /// A sync that returned an error. The data that it covered in the range stays losable until it
    /// is written again and synced; the range is the whole file but for an O_DSYNC write.
    SyncFailed {
        inode: Ino,
        call: SyncCall,
        offset: u64,
        bytes: u64,
    },
}

/// The system call that changed names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NameCall {
    Create,
    Mkdir,
    Symlink,
    Link,
    Unlink,
    Rmdir,
    Rename,
    Exchange,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SyncCall {
    Fsync,
    Fdatasync,
    FsyncDir,
}

/// A name in a directory before and after.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameChange {
    pub dir: Ino,
    pub name: OsString,
    pub before: Option<Ino>,
    pub after: Option<Ino>,
}

/// Displays as the call with its path: `rename(db.tmp, db)`, `write(log, 4096 bytes at 0)`.
impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = &self.path;
        match &self.operation {
            Operation::Write { offset, data, .. } => {
                write!(f, "write({path}, {} bytes at {offset})", data.len())
            }
            Operation::MappedWrite { offset, data, .. } => {
                write!(f, "write of a mapping({path}, {} bytes at {offset})", data.len())
            }
            Operation::WriteReturned { offset, bytes, .. } => {
                write!(f, "return of the O_DSYNC write({path}, {bytes} bytes at {offset})")
            }
            Operation::Zero { offset, bytes, .. } => {
                write!(f, "fallocate({path}, {bytes} zero bytes at {offset})")
            }
            Operation::Resize { size, .. } => write!(f, "truncate({path}, {size})"),
            Operation::Rename { call, changes } => match (call, changes.first()) {
                (NameCall::Rename | NameCall::Exchange, Some(old)) => {
                    write!(f, "{}({}, {path})", call.name(), old.name.display())
                }
                _ => write!(f, "{}({path})", call.name()),
            },
            Operation::Sync { call, .. } => write!(f, "{}({path})", call.name()),
            Operation::SyncFailed { call, .. } => write!(f, "failed {}({path})", call.name()),
        }
    }
}

impl NameCall {
    fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Mkdir => "mkdir",
            Self::Symlink => "symlink",
            Self::Link => "link",
            Self::Unlink => "unlink",
            Self::Rmdir => "rmdir",
            Self::Rename => "rename",
            Self::Exchange => "exchange",
        }
    }
}

impl SyncCall {
    fn name(self) -> &'static str {
        match self {
            Self::Fsync => "fsync",
            Self::Fdatasync => "fdatasync",
            Self::FsyncDir => "fsync",
        }
    }
}
