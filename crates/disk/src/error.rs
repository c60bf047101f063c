//! Disk errors: operation, path, offset and cause.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The result of a disk operation.
pub type Result<T> = std::result::Result<T, Error>;

/// The operation that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Op {
    /// Opening or creating a file.
    Open,
    /// Opening a directory.
    OpenDir,
    /// Creating a directory.
    CreateDir,
    /// Reading bytes.
    Read,
    /// Writing bytes.
    Write,
    /// Making bytes durable.
    Sync,
    /// Querying or changing the size of a file, including reserving space.
    Size,
    /// Renaming.
    Rename,
    /// Exchanging the names of two files.
    Exchange,
    /// Removing a name.
    Unlink,
    /// Making names durable.
    SyncDir,
    /// Listing a directory.
    List,
    /// Taking a lock.
    Lock,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Op::Open => "open",
            Op::OpenDir => "open directory",
            Op::CreateDir => "create directory",
            Op::Read => "read",
            Op::Write => "write",
            Op::Sync => "sync",
            Op::Size => "resize",
            Op::Rename => "rename",
            Op::Exchange => "exchange",
            Op::Unlink => "unlink",
            Op::SyncDir => "sync directory",
            Op::List => "list",
            Op::Lock => "lock",
        })
    }
}

/// A request that the disk layer rejects itself, where the system has no suitable error number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// A name is not one component of a path.
    Name,
    /// The name does not refer to a regular file.
    NotAFile {
        /// The kind of file that was found, with its article: "a FIFO".
        found: &'static str,
    },
    /// The path ends in a symbolic link to something that does not exist.
    DanglingLink,
    /// The file system cannot exchange two names.
    Exchange,
    /// `fork` made this process of one that used Esker: see [`process`](crate::process).
    Forked,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Name => f.write_str("the name is not one component of a path"),
            Refusal::NotAFile { found } => write!(f, "this is {found}, not a regular file"),
            Refusal::DanglingLink => {
                f.write_str("this is a symbolic link to something that does not exist")
            }
            Refusal::Exchange => f.write_str("the file system cannot exchange two names"),
            Refusal::Forked => f.write_str(
                "fork made this process of one that used Esker; call exec in it, or fork before \
                 the first log is opened",
            ),
        }
    }
}

impl std::error::Error for Refusal {}

/// A failed disk operation: the operation, the file and the offset. The error of the operating
/// system is its [`source`](std::error::Error::source).
///
/// Cheap to clone: a terminal failure is returned to many callers.
#[derive(Debug, Clone)]
pub struct Error {
    op: Op,
    path: Arc<Path>,
    offset: Option<u64>,
    source: Arc<io::Error>,
    out_of_inodes: bool,
}

impl Error {
    /// Wraps an error of the operating system.
    pub fn new(op: Op, path: &Path, offset: Option<u64>, source: io::Error) -> Self {
        let (path, source) = (path.into(), Arc::new(source));
        Self { op, path, offset, source, out_of_inodes: false }
    }

    /// Returns the error, with this as the reason for the lack of space: the file system has blocks
    /// or not, and no inode for another file.
    #[must_use]
    pub fn out_of_inodes(self) -> Self {
        Self { out_of_inodes: true, ..self }
    }

    /// Returns the operation that failed.
    pub fn op(&self) -> Op {
        self.op
    }

    /// Returns the path of the file or directory.
    pub fn path(&self) -> PathBuf {
        self.path.to_path_buf()
    }

    /// Returns the file offset at which the operation began, where it has one.
    pub fn offset(&self) -> Option<u64> {
        self.offset
    }

    /// Returns the error kind of the operating system: `StorageFull`, `PermissionDenied`, ...
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }

    /// Returns why the disk layer rejected the request; `None` for an error of the operating
    /// system.
    pub fn refusal(&self) -> Option<Refusal> {
        self.source.get_ref()?.downcast_ref().copied()
    }

    /// Returns whether the operation failed for lack of space: the disk is full (ENOSPC), a quota
    /// is exhausted (EDQUOT), or the file would exceed a size limit (EFBIG).
    pub fn is_no_space(&self) -> bool {
        matches!(
            self.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
        )
    }

    /// Returns whether space lacks because every inode of the file system is in use. Removing files
    /// helps, and blocks do not.
    pub fn is_out_of_inodes(&self) -> bool {
        self.out_of_inodes
    }

    /// Returns the operating system's error number, where there is one.
    pub fn os_code(&self) -> Option<i32> {
        self.source.raw_os_error()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "failed to {} {}", self.op, self.path.display())?;
        if let (Some(offset), Op::Read | Op::Write) = (self.offset, self.op) {
            write!(f, " at byte {offset}")?;
        }
        if self.out_of_inodes {
            f.write_str(": every inode of the file system is in use")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.source)
    }
}
