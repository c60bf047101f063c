//! The directory that a power cut leaves: the disk without what is lost.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::disk::Disk;
use super::loss::Loss;
use super::names::{DirectoryNames, NamedInode};
use super::sector::{Cause, FileVersions, SECTOR_BYTES, SectorContent, Version, ZERO_SECTOR};
use crate::record::operation::Ino;
use crate::record::recording::{Node, NodeType};

/// The most bytes of a file that are written in one call.
const RUN_BYTES_MAX: usize = 1 << 20;

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
        for NamedInode { ino, .. } in names.values().flat_map(|directory| directory.values()) {
            if let Some(file) = disk.files.get(ino) {
                files.entry(*ino).or_insert_with(|| FileState::new(file, loss));
            }
        }
        Self { names, files }
    }

    /// A number that is equal for equal states. Those that differ have another one, but for chance.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        let mut directories = vec![Ino::ROOT];
        while let Some(dir) = directories.pop() {
            let Some(names) = self.names.get(&dir) else { continue };
            (dir, names.len()).hash(&mut hasher);
            for (name, NamedInode { ino, .. }) in names {
                // Two names of one file differ from two files.
                (name, ino).hash(&mut hasher);
                match self.files.get(ino) {
                    Some(file) => (file.size, &file.sectors).hash(&mut hasher),
                    None => directories.push(*ino),
                }
            }
        }
        hasher.finish()
    }

    /// Writes the state into a new directory, and the output before the cut into a file.
    pub fn write_with_output(
        &self,
        nodes: &BTreeMap<Ino, Node>,
        output: &[u8],
        dir: &Path,
        output_file: &Path,
    ) -> anyhow::Result<()> {
        std::fs::create_dir_all(dir)
            .and_then(|()| self.write(nodes, dir))
            .with_context(|| format!("failed to build a state in {}", dir.display()))?;
        std::fs::write(output_file, output)
            .with_context(|| format!("failed to write {}", output_file.display()))
    }

    /// Writes the state into an empty directory.
    fn write(&self, nodes: &BTreeMap<Ino, Node>, to: &Path) -> io::Result<()> {
        let mut links = BTreeMap::<Ino, PathBuf>::new();
        let mut directories = vec![(Ino::ROOT, to.to_owned())];
        while let Some((dir, to)) = directories.pop() {
            for (name, NamedInode { ino, .. }) in self.names.get(&dir).into_iter().flatten() {
                let path = to.join(name);
                let Some(node) = nodes.get(ino) else { continue };
                match &node.node_type {
                    NodeType::Directory => {
                        std::fs::create_dir(&path)?;
                        // Without these bits it could not be removed after the check.
                        let permissions = Permissions::from_mode(node.mode | 0o700);
                        std::fs::set_permissions(&path, permissions)?;
                        directories.push((*ino, path));
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
        }
        Ok(())
    }
}

/// The parts of a state, for tests.
#[cfg(test)]
impl DirectoryState {
    pub fn names(&self) -> &DirectoryNames {
        &self.names
    }

    /// The bytes of a file.
    pub fn content(&self, file: Ino) -> Vec<u8> {
        let default = FileState::default();
        let file = self.files.get(&file).unwrap_or(&default);
        let mut bytes = vec![0; file.size as usize];
        for (number, content) in &file.sectors {
            let start = (number * SECTOR_BYTES) as usize;
            let end = bytes.len().min(start + SECTOR_BYTES as usize);
            bytes[start..end].copy_from_slice(&content.bytes()[..end - start]);
        }
        bytes
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
                sectors.insert(*number, content.clone());
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
        let file = options.write(true).create_new(true).open(path)?;
        file.set_permissions(Permissions::from_mode(mode))?;
        file.set_len(self.size)?;
        let mut run: Vec<u8> = Vec::new();
        let mut start = 0;
        for (number, content) in &self.sectors {
            let offset = number * SECTOR_BYTES;
            if offset != start + run.len() as u64 || run.len() >= RUN_BYTES_MAX {
                file.write_all_at(&run, start)?;
                run.clear();
                start = offset;
            }
            let bytes = (self.size - offset).min(SECTOR_BYTES) as usize;
            run.extend_from_slice(&content.bytes()[..bytes]);
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
        earlier.or(durable).map_or(ZERO_SECTOR, Version::bytes)
    };
    for (index, version) in versions.iter().enumerate().rev() {
        if version.cause == Cause::Data
            && let Some(torn) = loss.torn(version.request, number)
        {
            return Some(SectorContent::new(torn.mix(&before(index), &version.bytes())));
        }
        if !is_lost(version) {
            return version.content.clone();
        }
    }
    durable.and_then(|version| version.content.clone())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;
    use crate::model::disk::UndecidedRequest;
    use crate::model::loss::{LostParts, LostSectors, TornSector};
    use crate::record::operation::{NameCall, NameChange, Operation, Request, SyncCall};
    use crate::record::recording::Event;
    use crate::rng::Rng;

    const FILE: Ino = Ino(2);
    const A: Ino = Ino(3);
    const B: Ino = Ino(4);

    fn request(number: u64, operation: Operation) -> Event {
        let path = "file".to_owned();
        Event::Request(Request { number, path, operation })
    }

    fn name(name: &str, before: Option<Ino>, after: Option<Ino>) -> NameChange {
        name_in(Ino::ROOT, name, before, after)
    }

    fn name_in(dir: Ino, name: &str, before: Option<Ino>, after: Option<Ino>) -> NameChange {
        NameChange { dir, name: name.into(), before, after }
    }

    fn rename(number: u64, changes: Vec<NameChange>) -> Event {
        request(number, Operation::Rename { call: NameCall::Rename, changes })
    }

    fn mkdir(number: u64, dir: Ino) -> Event {
        let changes = vec![name(&format!("d{}", dir.0), None, Some(dir))];
        request(number, Operation::Rename { call: NameCall::Mkdir, changes })
    }

    fn write(number: u64, offset: u64, bytes: &[u8]) -> Event {
        let data = bytes.into();
        request(number, Operation::Write { file: FILE, offset, data })
    }

    fn sync(number: u64, inode: Ino) -> Event {
        let call = if inode == FILE { SyncCall::Fsync } else { SyncCall::FsyncDir };
        request(number, Operation::Sync { inode, call })
    }

    /// A disk with a durable, empty file.
    fn disk_with_file() -> Disk {
        let mut disk = Disk::default();
        disk.apply(&rename(1, vec![name("file", None, Some(FILE))]));
        disk.apply(&sync(2, Ino::ROOT));
        disk
    }

    fn all_lost(undecided: &[UndecidedRequest]) -> Loss {
        let lost = undecided.iter().map(|request| (request.request, LostParts::all()));
        Loss { requests: lost.collect() }
    }

    fn bytes(disk: &Disk, loss: &Loss) -> Vec<u8> {
        DirectoryState::new(disk, loss).content(FILE)
    }

    /// The paths of the state, in order.
    fn names(disk: &Disk, loss: &Loss) -> Vec<String> {
        let state = DirectoryState::new(disk, loss);
        let mut directories = vec![(Ino::ROOT, String::new())];
        let mut paths = Vec::new();
        while let Some((dir, path)) = directories.pop() {
            for (name, NamedInode { ino, .. }) in state.names.get(&dir).into_iter().flatten() {
                let path = format!("{path}{}", name.display());
                directories.push((*ino, format!("{path}/")));
                paths.push(path);
            }
        }
        paths.sort();
        paths
    }

    /// A disk with the durable directories `d3` and `d4`.
    fn disk_with_directories() -> Disk {
        let mut disk = Disk::default();
        disk.apply(&mkdir(1, A));
        disk.apply(&mkdir(2, B));
        disk.apply(&sync(3, Ino::ROOT));
        disk
    }

    fn moved(number: u64, from: (Ino, &str), to: (Ino, &str), ino: Ino) -> Event {
        let old = name_in(from.0, from.1, Some(ino), None);
        rename(number, vec![old, name_in(to.0, to.1, None, Some(ino))])
    }

    /// Random programs: without a loss the bytes are those of a plain vector, and when all is lost
    /// those that it had at the last sync.
    #[test]
    fn nothing_lost_is_what_the_program_sees_and_all_lost_is_the_last_sync() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let (mut disk, mut live) = (disk_with_file(), Vec::new());
            let mut synced = live.clone();
            for number in 3..40 {
                let (offset, length) = (rng.below(6_000), rng.below(3_000));
                let event = match rng.below(5) {
                    0 | 1 if length > 0 => {
                        let end = (offset + length) as usize;
                        live.resize(live.len().max(end), 0);
                        live[offset as usize..end].fill(number as u8);
                        write(number, offset, &vec![number as u8; length as usize])
                    }
                    2 => {
                        let end = live.len().min((offset + length) as usize);
                        let start = end.min(offset as usize);
                        live[start..end].fill(0);
                        let (offset, bytes) = (start as u64, (end - start) as u64);
                        request(number, Operation::Zero { file: FILE, offset, bytes })
                    }
                    3 => {
                        live.resize(offset as usize, 0);
                        request(number, Operation::Resize { file: FILE, size: offset })
                    }
                    _ => {
                        synced.clone_from(&live);
                        sync(number, FILE)
                    }
                };
                disk.apply(&event);
                assert!(bytes(&disk, &Loss::default()) == live, "seed {seed}, {event:?}");
                let lost = all_lost(&disk.undecided());
                assert!(bytes(&disk, &lost) == synced, "seed {seed}, {event:?}");
            }
        }
    }

    #[test]
    fn returned_write_is_durable_and_what_was_written_before_it_is_not() {
        let mut disk = disk_with_file();
        disk.apply(&write(3, 512, &[1; 512]));
        disk.apply(&write(4, 1024, &[2; 512]));
        let returned = Operation::WriteReturned { file: FILE, offset: 1024, bytes: 512 };
        disk.apply(&request(5, returned));
        let lost = all_lost(&disk.undecided());
        assert_eq!(bytes(&disk, &lost), [[0; 512], [0; 512], [2; 512]].concat());
    }

    #[test]
    fn each_sector_has_one_of_its_versions() {
        let mut disk = disk_with_file();
        disk.apply(&write(3, 0, &[1; 1024]));
        disk.apply(&sync(4, FILE));
        disk.apply(&write(5, 0, &[2; 1024]));
        disk.apply(&write(6, 512, &[3; 512]));
        let lose = |request, sectors| {
            let parts = LostParts { sectors, ..LostParts::default() };
            bytes(&disk, &Loss { requests: [(request, parts)].into() })
        };
        assert_eq!(lose(6, LostSectors::All), [2; 1024]);
        assert_eq!(lose(5, LostSectors::All), [[1; 512], [3; 512]].concat());
        assert_eq!(lose(5, LostSectors::From(1)), [[2; 512], [3; 512]].concat());
    }

    #[test]
    fn size_without_its_data_shows_zeros() {
        let mut disk = disk_with_file();
        disk.apply(&write(3, 0, &[7; 700]));
        let parts = LostParts { sectors: LostSectors::All, ..LostParts::default() };
        assert_eq!(bytes(&disk, &Loss { requests: [(3, parts)].into() }), [0; 700]);
    }

    #[test]
    fn data_of_a_failed_sync_is_losable_until_it_is_written_again() {
        let mut disk = disk_with_file();
        disk.apply(&write(3, 0, &[1; 1024]));
        let (call, offset, bytes_synced) = (SyncCall::Fsync, 0, u64::MAX);
        let inode = FILE;
        let failed = Operation::SyncFailed { inode, call, offset, bytes: bytes_synced };
        disk.apply(&request(4, failed));
        disk.apply(&write(5, 512, &[2; 512]));
        disk.apply(&sync(6, FILE));
        let undecided = disk.undecided();
        assert!(undecided[0].sync_failed, "{undecided:?}");
        assert_eq!(bytes(&disk, &all_lost(&undecided)), [[0; 512], [2; 512]].concat());
        disk.apply(&write(7, 0, &[3; 512]));
        disk.apply(&sync(8, FILE));
        assert_eq!(disk.undecided(), []);
        assert_eq!(bytes(&disk, &Loss::default()), [[3; 512], [2; 512]].concat());
    }

    #[test]
    fn returned_write_makes_the_size_durable_with_what_a_shorter_size_removed() {
        let mut disk = disk_with_file();
        disk.apply(&write(3, 0, &[1; 1024]));
        disk.apply(&sync(4, FILE));
        disk.apply(&request(5, Operation::Resize { file: FILE, size: 512 }));
        disk.apply(&write(6, 1024, &[2; 512]));
        let returned = Operation::WriteReturned { file: FILE, offset: 1024, bytes: 512 };
        disk.apply(&request(7, returned));
        let lost = all_lost(&disk.undecided());
        assert_eq!(bytes(&disk, &lost), [[1; 512], [0; 512], [2; 512]].concat());
    }

    #[test]
    fn torn_sector_has_old_bytes_and_new_ones() {
        let mut disk = disk_with_file();
        disk.apply(&write(3, 0, &[1; 512]));
        disk.apply(&sync(4, FILE));
        disk.apply(&write(5, 0, &[2; 512]));
        let torn = |new_first| {
            let torn = Some(TornSector { sector: 0, position: 100, new_first });
            let parts = LostParts { torn, ..LostParts::default() };
            bytes(&disk, &Loss { requests: [(5, parts)].into() })
        };
        assert_eq!(torn(true), [[2; 100].as_slice(), &[1; 412]].concat());
        assert_eq!(torn(false), [[1; 100].as_slice(), &[2; 412]].concat());
    }

    #[test]
    fn later_name_of_a_file_needs_the_earlier_one() {
        let mut disk = Disk::default();
        disk.apply(&rename(1, vec![name("new", None, Some(FILE))]));
        let to_old = vec![name("new", Some(FILE), None), name("old", None, Some(FILE))];
        disk.apply(&rename(2, to_old));
        disk.apply(&rename(3, vec![name("other", None, Some(Ino(3)))]));
        let lose = |request| Loss { requests: [(request, LostParts::all())].into() };
        assert_eq!(names(&disk, &Loss::default()), ["old", "other"]);
        assert_eq!(names(&disk, &lose(1)), ["other"]);
        assert_eq!(names(&disk, &lose(2)), ["new", "other"]);
        assert_eq!(names(&disk, &lose(3)), ["old"]);
    }

    #[test]
    fn sync_of_a_directory_makes_no_name_in_another_durable() {
        let mut disk = disk_with_directories();
        disk.apply(&rename(4, vec![name_in(A, "x", None, Some(FILE))]));
        disk.apply(&rename(5, vec![name_in(B, "y", None, Some(FILE))]));
        disk.apply(&sync(6, B));
        let undecided = disk.undecided();
        assert_eq!(names(&disk, &Loss::default()), ["d3", "d3/x", "d4", "d4/y"]);
        assert_eq!(names(&disk, &all_lost(&undecided)), ["d3", "d4", "d4/y"]);
    }

    #[test]
    fn rename_is_durable_in_the_directory_that_was_synced() {
        let mut disk = disk_with_directories();
        disk.apply(&rename(4, vec![name_in(A, "tmp", None, Some(FILE))]));
        disk.apply(&moved(5, (A, "tmp"), (B, "new"), FILE));
        disk.apply(&sync(6, B));
        let lose = |requests: &[u64]| {
            let lost = requests.iter().map(|request| (*request, LostParts::all()));
            names(&disk, &Loss { requests: lost.collect() })
        };
        assert_eq!(lose(&[4, 5]), ["d3", "d4", "d4/new"]);
        assert_eq!(lose(&[5]), ["d3", "d3/tmp", "d4", "d4/new"]);
        disk.apply(&sync(7, A));
        assert_eq!(disk.undecided(), []);
        assert_eq!(names(&disk, &Loss::default()), ["d3", "d4", "d4/new"]);
    }

    #[test]
    fn undecided_rename_between_directories_survives_whole_or_not() {
        let mut disk = disk_with_directories();
        disk.apply(&rename(4, vec![name_in(A, "x", None, Some(FILE))]));
        disk.apply(&sync(5, A));
        disk.apply(&moved(6, (A, "x"), (B, "y"), FILE));
        let lost = all_lost(&disk.undecided());
        assert_eq!(names(&disk, &Loss::default()), ["d3", "d4", "d4/y"]);
        assert_eq!(names(&disk, &lost), ["d3", "d3/x", "d4"]);
    }

    #[test]
    fn directory_has_one_name_also_when_its_rename_is_durable_in_part() {
        let mut disk = disk_with_directories();
        disk.apply(&moved(4, (Ino::ROOT, "d4"), (A, "b"), B));
        disk.apply(&sync(5, A));
        assert_eq!(names(&disk, &all_lost(&disk.undecided())), ["d3", "d3/b"]);
        // The other way round: each would be in the other, and neither could be reached.
        disk.apply(&moved(6, (A, "b"), (Ino::ROOT, "b"), B));
        disk.apply(&moved(7, (Ino::ROOT, "d3"), (B, "a"), A));
        disk.apply(&sync(8, B));
        assert_eq!(names(&disk, &Loss::default()), ["b", "b/a"]);
        assert_eq!(names(&disk, &all_lost(&disk.undecided())), ["d4", "d4/a"]);
    }

    #[test]
    fn sync_of_a_file_does_not_make_its_name_durable() {
        let mut disk = Disk::default();
        disk.apply(&rename(1, vec![name("file", None, Some(FILE))]));
        disk.apply(&write(2, 0, b"data"));
        disk.apply(&sync(3, FILE));
        let lost = all_lost(&disk.undecided());
        assert_eq!(names(&disk, &lost), [""; 0]);
        disk.apply(&sync(4, Ino::ROOT));
        assert!(disk.undecided().is_empty());
        assert_eq!(bytes(&disk, &Loss::default()), b"data");
    }
}
