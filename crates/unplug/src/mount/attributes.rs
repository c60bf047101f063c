//! The attributes of inodes, as the kernel asks for them and changes them.

use std::time::SystemTime;

use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use rustix::io::Errno;

use super::recorder::Recorder;
use super::tree::{Inode, Object};
use crate::record::operation::Ino;

/// The best size of a write, as `stat` reports it.
pub const BLOCK_BYTES: u32 = 4096;

/// The attributes that a call changes.
pub struct WantedAttributes {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub modified: Option<TimeOrNow>,
}

impl WantedAttributes {
    /// Changes the attributes of an inode, and returns all of them.
    pub fn apply(&self, recorder: &mut Recorder, ino: Ino) -> Result<FileAttr, Errno> {
        if let Some(size) = self.size {
            recorder.resize(ino, size)?;
        }
        let inode = recorder.tree_mut().inode_mut(ino)?;
        inode.mode = self.mode.map_or(inode.mode, |mode| mode & 0o7777);
        inode.uid = self.uid.unwrap_or(inode.uid);
        inode.gid = self.gid.unwrap_or(inode.gid);
        inode.modified = match self.modified {
            Some(TimeOrNow::SpecificTime(time)) => time,
            Some(TimeOrNow::Now) => SystemTime::now(),
            None => inode.modified,
        };
        inode.changed = SystemTime::now();
        Ok(attributes(ino, inode))
    }
}

/// Returns the attributes of an inode.
pub fn attributes(ino: Ino, inode: &Inode) -> FileAttr {
    let (size, allocated) = match &inode.object {
        Object::File(content) => (content.size(), content.allocated()),
        Object::Directory { .. } => (0, 0),
        Object::Symlink(target) => (target.as_os_str().len() as u64, 0),
    };
    FileAttr {
        ino: INodeNo(ino.0),
        size,
        blocks: allocated / 512,
        atime: inode.modified,
        mtime: inode.modified,
        ctime: inode.changed,
        crtime: inode.modified,
        kind: file_type(&inode.object),
        perm: inode.mode as u16,
        nlink: inode.links,
        uid: inode.uid,
        gid: inode.gid,
        rdev: 0,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

/// Returns the type of an object.
pub fn file_type(object: &Object) -> FileType {
    match object {
        Object::File(_) => FileType::RegularFile,
        Object::Directory { .. } => FileType::Directory,
        Object::Symlink(_) => FileType::Symlink,
    }
}
