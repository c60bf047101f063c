//! The directory that a power cut leaves: the disk without what is lost.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt, symlink};
use std::path::Path;
use std::sync::Arc;

use super::disk::Disk;
use super::loss::Loss;
use super::names::DirectoryNames;
use super::sector::{Cause, FileVersions, SECTOR_BYTES, SectorContent, Version};
use crate::record::operation::Ino;
use crate::record::recording::{Node, NodeType};

#[derive(Clone, Debug)]
pub struct DirectoryState {
    names: DirectoryNames,
    files: BTreeMap<Ino, FileState>,
}

/// The bytes of a file: sectors that are absent are zeros.
#[derive(Clone, Debug, Default)]
struct FileState {
    size: u64,
    sectors: BTreeMap<u64, SectorContent>,
}

impl DirectoryState {
    pub fn new(disk: &Disk, loss: &Loss) -> Self {
        let surviving = disk.names.surviving(&|request| loss.loses_names(request));
        let names = disk.names.names(&surviving);
        let mut files = BTreeMap::new();
        for ino in names.values().flat_map(|directory| directory.values()) {
            if let Some(file) = disk.files.get(ino) {
                files.entry(*ino).or_insert_with(|| FileState::new(file, loss));
            }
        }
        Self { names, files }
    }

    /// Whether a directory has a name for an inode.
    pub fn has_inode(&self, ino: Ino) -> bool {
        ino == Ino::ROOT || self.names.values().any(|names| names.values().any(|it| *it == ino))
    }

    /// A number that is equal for equal states. Those that differ have another one, but for chance.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash_directory(Ino::ROOT, &mut hasher);
        hasher.finish()
    }

    /// Writes the state into an empty directory.
    pub fn write(&self, nodes: &BTreeMap<Ino, Node>, to: &Path) -> io::Result<()> {
        let mut links = BTreeMap::new();
        self.write_directory(Ino::ROOT, nodes, to, &mut links)
    }

    fn hash_directory(&self, dir: Ino, hasher: &mut DefaultHasher) {
        let Some(names) = self.names.get(&dir) else { return };
        names.len().hash(hasher);
        for (name, ino) in names {
            name.hash(hasher);
            // Two names of one file differ from two files.
            ino.hash(hasher);
            if let Some(file) = self.files.get(ino) {
                file.size.hash(hasher);
                for (number, content) in &file.sectors {
                    number.hash(hasher);
                    content.hash(hasher);
                }
            }
            self.hash_directory(*ino, hasher);
        }
    }

    fn write_directory(
        &self,
        dir: Ino,
        nodes: &BTreeMap<Ino, Node>,
        to: &Path,
        links: &mut BTreeMap<Ino, std::path::PathBuf>,
    ) -> io::Result<()> {
        let empty = BTreeMap::<OsString, Ino>::new();
        for (name, ino) in self.names.get(&dir).unwrap_or(&empty) {
            let path = to.join(name);
            let Some(node) = nodes.get(ino) else { continue };
            match &node.node_type {
                NodeType::Directory => {
                    std::fs::create_dir(&path)?;
                    self.write_directory(*ino, nodes, &path, links)?;
                }
                NodeType::Symlink(target) => symlink(target, &path)?,
                NodeType::File => match links.get(ino) {
                    Some(first) => std::fs::hard_link(first, &path)?,
                    None => {
                        let default = FileState::default();
                        let file = self.files.get(ino).unwrap_or(&default);
                        file.write(node.mode, &path)?;
                        links.insert(*ino, path);
                    }
                },
            }
        }
        Ok(())
    }
}

impl FileState {
    fn new(file: &FileVersions, loss: &Loss) -> Self {
        let survives = |request| !loss.loses_size(request);
        let sizes = file.undecided_sizes.iter().rev();
        let last = sizes.copied().find(|size| survives(size.request));
        let size = last.map_or(file.durable_size, |size| size.bytes);
        let mut sectors: BTreeMap<u64, SectorContent> = BTreeMap::new();
        let past_end = size.div_ceil(SECTOR_BYTES);
        for (number, version) in file.durable.range(..past_end) {
            if let Some(content) = &version.content {
                sectors.insert(*number, Arc::clone(content));
            }
        }
        for (number, versions) in file.undecided.range(..past_end) {
            match surviving_content(*number, versions, file.durable.get(number), loss) {
                Some(content) => sectors.insert(*number, content),
                None => sectors.remove(number),
            };
        }
        Self { size, sectors }
    }

    fn write(&self, mode: u32, path: &Path) -> io::Result<()> {
        let mut options = std::fs::OpenOptions::new();
        let file = options.write(true).create_new(true).mode(mode | 0o600).open(path)?;
        file.set_len(self.size)?;
        let mut run: Vec<u8> = Vec::new();
        let mut start = 0;
        for (number, content) in &self.sectors {
            let offset = number * SECTOR_BYTES;
            if offset != start + run.len() as u64 {
                file.write_all_at(&run, start)?;
                run.clear();
                start = offset;
            }
            let bytes = (self.size - offset).min(SECTOR_BYTES) as usize;
            run.extend_from_slice(&content[..bytes]);
        }
        file.write_all_at(&run, start)
    }
}

/// The newest version that is not lost; a torn one is mixed with the one before it.
fn surviving_content(
    number: u64,
    versions: &[Version],
    durable: Option<&Version>,
    loss: &Loss,
) -> Option<SectorContent> {
    let is_lost = |version: &Version| match version.cause {
        Cause::Data => loss.loses_sector(version.request, number),
        Cause::Size => loss.loses_size(version.request),
    };
    let before = |index: usize| {
        let earlier = versions[..index].iter().rev().find(|version| !is_lost(version));
        earlier.or(durable).and_then(|version| version.content.as_ref())
    };
    for (index, version) in versions.iter().enumerate().rev() {
        if version.cause == Cause::Data
            && let Some(torn) = loss.torn(version.request, number)
        {
            let zeros = [0; SECTOR_BYTES as usize];
            let old = before(index).map_or(&zeros, |content| content);
            let new = version.content.as_ref().map_or(&zeros, |content| content);
            return Some(Arc::new(torn.mix(old, new)));
        }
        if !is_lost(version) {
            return version.content.clone();
        }
    }
    durable.and_then(|version| version.content.clone())
}
