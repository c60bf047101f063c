//! The file system that the kernel talks to. It answers one request after the other.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use fuser::{
    FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, KernelConfig, LockOwner,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::{FallocateFlags, OFlags, XattrFlags};
use rustix::io::Errno;

use super::attributes::{BLOCK_BYTES, WantedAttributes, attributes, file_type};
use super::content::Content;
use super::recorder::Recorder;
use super::tree::{Access, NAME_BYTES_MAX, Object, OnExisting};
use crate::fault::FaultInjector;
use crate::record::operation::{Ino, SyncCall};

/// How long the kernel may cache names and attributes: only its own calls change them.
const CACHE_TIME: Duration = Duration::from_secs(3600);
/// The largest write that the kernel sends in one request.
const WRITE_BYTES_MAX: u32 = 1024 * 1024;
/// The blocks and inodes that `statfs` reports: enough for any program.
const STATFS_BLOCKS: u64 = 1 << 28;
const STATFS_INODES: u64 = 1 << 30;

type Result<T> = std::result::Result<T, Errno>;

pub struct RecordedFs {
    recorder: Arc<Mutex<Recorder>>,
    faults: Arc<Mutex<FaultInjector>>,
    /// The names in each open directory when it was opened: names that change meanwhile move none
    /// of the others.
    listings: Mutex<Listings>,
}

#[derive(Default)]
struct Listings {
    open: HashMap<u64, Vec<(Ino, FileType, OsString)>>,
    last: u64,
}

impl RecordedFs {
    pub fn new(recorder: Arc<Mutex<Recorder>>, faults: Arc<Mutex<FaultInjector>>) -> Self {
        Self { recorder, faults, listings: Mutex::default() }
    }

    fn faults(&self) -> MutexGuard<'_, FaultInjector> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn listings(&self) -> MutexGuard<'_, Listings> {
        self.listings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn recorder(&self) -> MutexGuard<'_, Recorder> {
        self.recorder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks up the inode, counts the reference that the kernel gets, and answers with both.
    fn entry(&self, found: Result<Ino>, reply: ReplyEntry) {
        let mut recorder = self.recorder();
        let answer = found.and_then(|ino| Ok((ino, attributes(ino, recorder.tree().inode(ino)?))));
        match answer {
            Ok((ino, attributes)) => {
                recorder.tree_mut().refer(ino);
                reply.entry(&CACHE_TIME, &attributes, Generation(0));
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    /// Refuses a write where the disk is full, and records that.
    fn take_space(&self, recorder: &mut Recorder, ino: Ino, offset: u64, bytes: u64) -> Result<()> {
        let taken = self.faults().write(bytes);
        taken.inspect_err(|_| refused_for_space(recorder, "write", ino, (offset, bytes)))
    }

    fn sync(&self, ino: Ino, call: SyncCall) -> Result<()> {
        let fate = self.faults().sync();
        // Without the lock: the program may print meanwhile, and no other request comes.
        std::thread::sleep(fate.time);
        let mut recorder = self.recorder();
        if fate.fails {
            recorder.sync_failed(ino, call);
            return Err(Errno::IO);
        }
        recorder.sync(ino, call);
        Ok(())
    }

    fn allocate(&self, ino: Ino, offset: u64, length: u64, mode: i32) -> Result<()> {
        let mode = FallocateFlags::from_bits_retain(mode.cast_unsigned());
        let known =
            FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE;
        if !known.contains(mode) {
            return Err(Errno::OPNOTSUPP);
        }
        let end = offset.checked_add(length).ok_or(Errno::FBIG)?;
        let mut recorder = self.recorder();
        if !mode.intersects(FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE) {
            let size = recorder.tree().content(ino)?.size();
            let taken = self.faults().allocate(end.saturating_sub(size));
            let range = (offset, length);
            taken.inspect_err(|_| refused_for_space(&mut recorder, "fallocate", ino, range))?;
        }
        if mode.intersects(FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE) {
            recorder.zero(ino, offset, length)?;
        }
        let grows = recorder.tree().content(ino)?.size() < end;
        if grows && !mode.contains(FallocateFlags::KEEP_SIZE) {
            recorder.resize(ino, end)?;
        }
        Ok(())
    }
}

impl Filesystem for RecordedFs {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Either answer leaves a size that works.
        let _ = config.set_max_write(WRITE_BYTES_MAX);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.recorder().tree().lookup(Ino(parent.0), name);
        self.entry(found, reply);
    }

    fn forget(&self, _request: &Request, ino: INodeNo, count: u64) {
        self.recorder().tree_mut().forget(Ino(ino.0), count);
    }

    fn getattr(&self, _request: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.recorder().tree().inode(Ino(ino.0)) {
            Ok(inode) => reply.attr(&CACHE_TIME, &attributes(Ino(ino.0), inode)),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn setattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _changed: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _created: Option<SystemTime>,
        _status_changed: Option<SystemTime>,
        _backed_up: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let wanted = WantedAttributes { mode, uid, gid, size, modified };
        match wanted.apply(&mut self.recorder(), Ino(ino.0)) {
            Ok(attributes) => reply.attr(&CACHE_TIME, &attributes),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn readlink(&self, _request: &Request, ino: INodeNo, reply: ReplyData) {
        match self.recorder().tree().inode(Ino(ino.0)).map(|inode| &inode.object) {
            Ok(Object::Symlink(target)) => reply.data(target.as_os_str().as_encoded_bytes()),
            Ok(_) => reply.error(errno(Errno::INVAL)),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _device: u32,
        reply: ReplyEntry,
    ) {
        let is_file = rustix::fs::FileType::from_raw_mode(mode).is_file();
        let found = if is_file {
            let object = Object::File(Content::default());
            let at = (Ino(parent.0), name);
            self.recorder().create(at, object, access(request, mode, umask))
        } else {
            // A socket or pipe of a program lives in memory only: it belongs elsewhere.
            Err(Errno::OPNOTSUPP)
        };
        self.entry(found, reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let parent = Ino(parent.0);
        let object = Object::Directory { parent, names: Default::default() };
        let access = access(request, mode, umask);
        let found = self.recorder().create((parent, name), object, access);
        self.entry(found, reply);
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        finish(self.recorder().unlink((Ino(parent.0), name)), reply);
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        finish(self.recorder().rmdir((Ino(parent.0), name)), reply);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let object = Object::Symlink(target.to_owned());
        let at = (Ino(parent.0), name);
        let found = self.recorder().create(at, object, access(request, 0o777, 0));
        self.entry(found, reply);
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let on_existing = if flags == RenameFlags::empty() {
            OnExisting::Replace
        } else if flags == RenameFlags::RENAME_NOREPLACE {
            OnExisting::Refuse
        } else if flags == RenameFlags::RENAME_EXCHANGE {
            OnExisting::Exchange
        } else {
            return reply.error(errno(Errno::INVAL));
        };
        let (from, to) = ((Ino(parent.0), name), (Ino(new_parent.0), new_name));
        finish(self.recorder().rename(from, to, on_existing), reply);
    }

    fn link(
        &self,
        _request: &Request,
        ino: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        let ino = Ino(ino.0);
        let linked = self.recorder().link(ino, (Ino(new_parent.0), new_name));
        self.entry(linked.map(|()| ino), reply);
    }

    fn open(&self, _request: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let mut recorder = self.recorder();
        let object = Object::File(Content::default());
        let at = (Ino(parent.0), name);
        let created = recorder.create(at, object, access(request, mode, umask));
        let created =
            created.and_then(|ino| Ok((ino, attributes(ino, recorder.tree().inode(ino)?))));
        match created {
            Ok((ino, attributes)) => {
                recorder.tree_mut().refer(ino);
                let flags = FopenFlags::FOPEN_KEEP_CACHE;
                reply.created(&CACHE_TIME, &attributes, Generation(0), FileHandle(0), flags);
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    fn read(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let recorder = self.recorder();
        match recorder.tree().content(Ino(ino.0)) {
            Ok(content) => reply.data(&content.read(offset, size.into())),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn write(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let flags = OFlags::from_bits_retain(flags.0.cast_unsigned());
        let durable = flags.intersects(OFlags::DSYNC | OFlags::SYNC);
        let mapped = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let ino = Ino(ino.0);
        let mut recorder = self.recorder();
        let fits = self.take_space(&mut recorder, ino, offset, data.len() as u64);
        let written = fits.and_then(|()| match mapped {
            true => recorder.write_mapped(ino, offset, data),
            false => recorder.write(ino, offset, data, durable),
        });
        match written {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        let call = if data_only { SyncCall::Fdatasync } else { SyncCall::Fsync };
        finish(self.sync(Ino(ino.0), call), reply);
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        finish(self.sync(Ino(ino.0), SyncCall::FsyncDir), reply);
    }

    fn opendir(&self, _request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match list(&self.recorder(), Ino(ino.0)) {
            Ok(names) => {
                let mut listings = self.listings();
                listings.last += 1;
                let handle = listings.last;
                listings.open.insert(handle, names);
                reply.opened(FileHandle(handle), FopenFlags::empty());
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    fn readdir(
        &self,
        _request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listings = self.listings();
        let Some(names) = listings.open.get(&handle.0) else {
            return reply.error(errno(Errno::BADF));
        };
        for (number, (ino, file_type, name)) in names.iter().enumerate().skip(offset as usize) {
            if reply.add(INodeNo(ino.0), number as u64 + 1, *file_type, name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.listings().open.remove(&handle.0);
        reply.ok();
    }

    fn statfs(&self, _request: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let (blocks, inodes) = (STATFS_BLOCKS, STATFS_INODES);
        let names = NAME_BYTES_MAX as u32;
        reply.statfs(blocks, blocks, blocks, inodes, inodes, BLOCK_BYTES, names, BLOCK_BYTES);
    }

    fn setxattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let flags = XattrFlags::from_bits_retain(flags.cast_unsigned());
        // An access control list would be kept, and not enforced.
        if name.as_encoded_bytes().starts_with(b"system.") {
            return reply.error(errno(Errno::OPNOTSUPP));
        }
        let mut recorder = self.recorder();
        let set = recorder.tree_mut().inode_mut(Ino(ino.0)).and_then(|inode| {
            let exists = inode.xattrs.contains_key(name);
            match exists {
                true if flags.contains(XattrFlags::CREATE) => return Err(Errno::EXIST),
                false if flags.contains(XattrFlags::REPLACE) => return Err(Errno::NODATA),
                _ => inode.xattrs.insert(name.to_owned(), value.to_owned()),
            };
            inode.changed = SystemTime::now();
            Ok(())
        });
        finish(set, reply);
    }

    fn getxattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        let recorder = self.recorder();
        let value = recorder
            .tree()
            .inode(Ino(ino.0))
            .and_then(|inode| inode.xattrs.get(name).map(Vec::as_slice).ok_or(Errno::NODATA));
        sized(value, size, reply);
    }

    fn listxattr(&self, _request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let recorder = self.recorder();
        let names = recorder.tree().inode(Ino(ino.0)).map(|inode| {
            let ends = inode.xattrs.keys().map(|name| [name.as_encoded_bytes(), b"\0"].concat());
            ends.collect::<Vec<_>>().concat()
        });
        sized(names.as_deref().map_err(|error| *error), size, reply);
    }

    fn removexattr(&self, _request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let mut recorder = self.recorder();
        let removed = recorder.tree_mut().inode_mut(Ino(ino.0)).and_then(|inode| {
            inode.xattrs.remove(name).ok_or(Errno::NODATA)?;
            inode.changed = SystemTime::now();
            Ok(())
        });
        finish(removed, reply);
    }

    fn fallocate(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        finish(self.allocate(Ino(ino.0), offset, length, mode), reply);
    }
}

/// Records a call that a full disk refused.
fn refused_for_space(recorder: &mut Recorder, call: &str, ino: Ino, (offset, bytes): (u64, u64)) {
    let path = recorder.path(ino);
    let path = path.display();
    recorder.record_fault(format!("{call}({path}, {bytes} bytes at {offset}) fails with ENOSPC"));
}

/// The names in a directory, with those of itself and its parent.
fn list(recorder: &Recorder, dir: Ino) -> Result<Vec<(Ino, FileType, OsString)>> {
    let tree = recorder.tree();
    let dots = [(dir, OsStr::new(".")), (tree.parent(dir)?, OsStr::new(".."))];
    let names = tree.names(dir)?.iter().map(|(name, ino)| (*ino, name.as_os_str()));
    let entry = |(ino, name): (Ino, &OsStr)| {
        Ok((ino, file_type(&tree.inode(ino)?.object), name.to_owned()))
    };
    dots.into_iter().chain(names).map(entry).collect()
}

/// Answers a call for an extended attribute: with its size when `size` is 0.
fn sized(value: Result<&[u8]>, size: u32, reply: ReplyXattr) {
    match value {
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() > size as usize => reply.error(errno(Errno::RANGE)),
        Ok(value) => reply.data(value),
        Err(error) => reply.error(errno(error)),
    }
}

fn finish(result: Result<()>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(error)),
    }
}

fn access(request: &Request, mode: u32, umask: u32) -> Access {
    Access { mode: mode & !umask & 0o7777, uid: request.uid(), gid: request.gid() }
}

fn errno(error: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(error.raw_os_error())
}
