//! The recorded directory in memory: inodes and names. A pure state machine; the mount feeds it.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::SystemTime;

use rustix::io::Errno;

use super::content::Content;
use crate::record::operation::Ino;

/// The longest name in bytes, as on ext4.
pub const NAME_BYTES_MAX: usize = 255;

type Result<T> = std::result::Result<T, Errno>;

#[derive(Debug)]
pub struct Inode {
    pub object: Object,
    /// Permission bits.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub links: u32,
    pub modified: SystemTime,
    pub changed: SystemTime,
    pub xattrs: BTreeMap<OsString, Vec<u8>>,
    /// The references of the kernel. An inode without names stays while there are any.
    references: u64,
}

#[derive(Debug)]
pub enum Object {
    File(Content),
    Directory { parent: Ino, names: BTreeMap<OsString, Ino> },
    Symlink(PathBuf),
}

/// The effect of a rename on a name that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnExisting {
    Replace,
    Refuse,
    Exchange,
}

/// The owner and permissions of a new inode.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
}

#[derive(Debug)]
pub struct Tree {
    inodes: HashMap<Ino, Inode>,
    last: Ino,
}

impl Tree {
    pub fn new(access: Access) -> Self {
        let names = BTreeMap::new();
        let root = Inode::new(Object::Directory { parent: Ino::ROOT, names }, access, 2);
        Self { inodes: HashMap::from([(Ino::ROOT, root)]), last: Ino::ROOT }
    }

    pub fn inode(&self, ino: Ino) -> Result<&Inode> {
        self.inodes.get(&ino).ok_or(Errno::STALE)
    }

    pub fn inode_mut(&mut self, ino: Ino) -> Result<&mut Inode> {
        self.inodes.get_mut(&ino).ok_or(Errno::STALE)
    }

    pub fn lookup(&self, dir: Ino, name: &OsStr) -> Result<Ino> {
        self.names(dir)?.get(name).copied().ok_or(Errno::NOENT)
    }

    pub fn names(&self, dir: Ino) -> Result<&BTreeMap<OsString, Ino>> {
        match &self.inode(dir)?.object {
            Object::Directory { names, .. } => Ok(names),
            _ => Err(Errno::NOTDIR),
        }
    }

    pub fn content(&self, file: Ino) -> Result<&Content> {
        match &self.inode(file)?.object {
            Object::File(content) => Ok(content),
            Object::Directory { .. } => Err(Errno::ISDIR),
            Object::Symlink(_) => Err(Errno::INVAL),
        }
    }

    /// The content of a file that is about to change.
    pub fn content_mut(&mut self, file: Ino) -> Result<&mut Content> {
        let inode = self.inode_mut(file)?;
        let now = SystemTime::now();
        (inode.modified, inode.changed) = (now, now);
        match &mut inode.object {
            Object::File(content) => Ok(content),
            Object::Directory { .. } => Err(Errno::ISDIR),
            Object::Symlink(_) => Err(Errno::INVAL),
        }
    }

    /// Adds an inode under a new name. An empty file, directory or symbolic link.
    pub fn create(
        &mut self,
        dir: Ino,
        name: &OsStr,
        object: Object,
        access: Access,
    ) -> Result<Ino> {
        self.check_new_name(dir, name)?;
        self.last = Ino(self.last.0 + 1);
        let ino = self.last;
        let is_directory = matches!(object, Object::Directory { .. });
        let links = if is_directory { 2 } else { 1 };
        self.inodes.insert(ino, Inode::new(object, access, links));
        self.set_name(dir, name, Some(ino))?;
        if is_directory {
            self.inode_mut(dir)?.links += 1;
        }
        Ok(ino)
    }

    pub fn link(&mut self, ino: Ino, dir: Ino, name: &OsStr) -> Result<()> {
        self.check_new_name(dir, name)?;
        let inode = self.inode_mut(ino)?;
        if matches!(inode.object, Object::Directory { .. }) {
            return Err(Errno::PERM);
        }
        // Like a link of O_TMPFILE or /proc/self/fd to a removed file.
        if inode.links == 0 {
            return Err(Errno::NOENT);
        }
        inode.links += 1;
        inode.changed = SystemTime::now();
        self.set_name(dir, name, Some(ino))
    }

    /// Removes the name of a file or symbolic link; returns its inode.
    pub fn unlink(&mut self, dir: Ino, name: &OsStr) -> Result<Ino> {
        let ino = self.lookup(dir, name)?;
        if self.is_directory(ino) {
            return Err(Errno::ISDIR);
        }
        self.set_name(dir, name, None)?;
        self.lose_link(ino);
        Ok(ino)
    }

    pub fn rmdir(&mut self, dir: Ino, name: &OsStr) -> Result<Ino> {
        let ino = self.lookup(dir, name)?;
        if !self.names(ino)?.is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        self.set_name(dir, name, None)?;
        self.lose_directory(dir, ino);
        Ok(ino)
    }

    /// Moves a name; returns the inode that has it, and the one that had the new name.
    pub fn rename(
        &mut self,
        (dir, name): (Ino, &OsStr),
        (new_dir, new_name): (Ino, &OsStr),
        on_existing: OnExisting,
    ) -> Result<(Ino, Option<Ino>)> {
        let ino = self.lookup(dir, name)?;
        check_name(new_name)?;
        let existing = self.names(new_dir)?.get(new_name).copied();
        self.check_rename(ino, new_dir, existing, on_existing)?;
        if existing == Some(ino) {
            return Ok((ino, existing));
        }
        if on_existing == OnExisting::Exchange {
            self.set_name(dir, name, existing)?;
            self.set_name(new_dir, new_name, Some(ino))?;
            if let Some(existing) = existing {
                self.move_directory(existing, new_dir, dir);
            }
            self.move_directory(ino, dir, new_dir);
            return Ok((ino, existing));
        }
        self.set_name(dir, name, None)?;
        self.set_name(new_dir, new_name, Some(ino))?;
        self.move_directory(ino, dir, new_dir);
        if let Some(replaced) = existing {
            if self.is_directory(replaced) {
                self.lose_directory(new_dir, replaced);
            } else {
                self.lose_link(replaced);
            }
        }
        Ok((ino, existing))
    }

    fn check_rename(
        &self,
        ino: Ino,
        new_dir: Ino,
        existing: Option<Ino>,
        on_existing: OnExisting,
    ) -> Result<()> {
        let is_directory = self.is_directory(ino);
        if is_directory && self.is_inside(new_dir, ino) {
            return Err(Errno::INVAL);
        }
        let Some(existing) = existing else {
            let exchanges = on_existing == OnExisting::Exchange;
            return if exchanges { Err(Errno::NOENT) } else { Ok(()) };
        };
        match on_existing {
            OnExisting::Refuse => Err(Errno::EXIST),
            OnExisting::Exchange => Ok(()),
            OnExisting::Replace if existing == ino => Ok(()),
            OnExisting::Replace => match (is_directory, self.is_directory(existing)) {
                (true, false) => Err(Errno::NOTDIR),
                (false, true) => Err(Errno::ISDIR),
                (true, true) if !self.names(existing)?.is_empty() => Err(Errno::NOTEMPTY),
                _ => Ok(()),
            },
        }
    }

    /// Counts a reference that the kernel was given.
    pub fn refer(&mut self, ino: Ino) {
        if let Some(inode) = self.inodes.get_mut(&ino) {
            inode.references += 1;
        }
    }

    /// The kernel forgot `count` references.
    pub fn forget(&mut self, ino: Ino, count: u64) {
        if let Some(inode) = self.inodes.get_mut(&ino) {
            inode.references = inode.references.saturating_sub(count);
            self.drop_if_unused(ino);
        }
    }

    pub fn is_directory(&self, ino: Ino) -> bool {
        self.inode(ino).is_ok_and(|inode| matches!(inode.object, Object::Directory { .. }))
    }

    /// The parent of a directory.
    pub fn parent(&self, dir: Ino) -> Result<Ino> {
        match &self.inode(dir)?.object {
            Object::Directory { parent, .. } => Ok(*parent),
            _ => Err(Errno::NOTDIR),
        }
    }

    pub fn inodes(&self) -> impl Iterator<Item = (Ino, &Inode)> {
        self.inodes.iter().map(|(ino, inode)| (*ino, inode))
    }

    /// Whether `dir` is `ancestor` or below it.
    fn is_inside(&self, mut dir: Ino, ancestor: Ino) -> bool {
        while dir != ancestor {
            match self.parent(dir) {
                Ok(parent) if dir != Ino::ROOT => dir = parent,
                _ => return false,
            }
        }
        true
    }

    fn check_new_name(&self, dir: Ino, name: &OsStr) -> Result<()> {
        check_name(name)?;
        if self.inode(dir)?.links == 0 {
            return Err(Errno::NOENT);
        }
        if self.names(dir)?.contains_key(name) { Err(Errno::EXIST) } else { Ok(()) }
    }

    fn set_name(&mut self, dir: Ino, name: &OsStr, ino: Option<Ino>) -> Result<()> {
        let now = SystemTime::now();
        let inode = self.inode_mut(dir)?;
        (inode.modified, inode.changed) = (now, now);
        let Object::Directory { names, .. } = &mut inode.object else {
            return Err(Errno::NOTDIR);
        };
        match ino {
            Some(ino) => names.insert(name.to_owned(), ino),
            None => names.remove(name),
        };
        Ok(())
    }

    fn move_directory(&mut self, ino: Ino, from: Ino, to: Ino) {
        if let Some(Object::Directory { parent, .. }) =
            self.inodes.get_mut(&ino).map(|inode| &mut inode.object)
        {
            *parent = to;
            self.add_links(from, -1);
            self.add_links(to, 1);
        }
    }

    fn lose_directory(&mut self, parent: Ino, ino: Ino) {
        self.add_links(parent, -1);
        self.add_links(ino, -2);
        self.drop_if_unused(ino);
    }

    fn lose_link(&mut self, ino: Ino) {
        self.add_links(ino, -1);
        self.drop_if_unused(ino);
    }

    fn add_links(&mut self, ino: Ino, links: i32) {
        if let Some(inode) = self.inodes.get_mut(&ino) {
            inode.links = inode.links.saturating_add_signed(links);
            inode.changed = SystemTime::now();
        }
    }

    fn drop_if_unused(&mut self, ino: Ino) {
        if self.inodes.get(&ino).is_some_and(|inode| inode.links == 0 && inode.references == 0) {
            self.inodes.remove(&ino);
        }
    }
}

impl Inode {
    fn new(object: Object, access: Access, links: u32) -> Self {
        let now = SystemTime::now();
        let Access { mode, uid, gid } = access;
        let xattrs = BTreeMap::new();
        Self { object, mode, uid, gid, links, modified: now, changed: now, xattrs, references: 0 }
    }
}

fn check_name(name: &OsStr) -> Result<()> {
    if name.len() > NAME_BYTES_MAX { Err(Errno::NAMETOOLONG) } else { Ok(()) }
}
