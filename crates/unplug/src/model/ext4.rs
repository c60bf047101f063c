//! The promises of ext4 beyond those of POSIX, as its documentation has them for `data=ordered` and
//! its other default options: names and sizes that calls set are in one journal, the data of new
//! blocks is written before the size that shows it, and a rename over another file waits for the
//! data of the new one.

use std::collections::{BTreeMap, BTreeSet};

use super::disk::Disk;
use super::journal::replacement;
use super::loss::{Loss, LostParts, LostSectors};
use super::sector::{Cause, FileVersions};
use crate::record::operation::{Ino, RequestNumber};
use crate::record::recording::FileSystemModel;

/// The loss that the file system of a disk allows and that is nearest to `loss`.
pub fn allowed(disk: &Disk, loss: Loss) -> Loss {
    match disk.model() {
        FileSystemModel::Posix => loss,
        FileSystemModel::Ext4 => allowed_by_ext4(disk, &loss),
    }
}

/// The nearest loss that ext4 allows: more of the journal is lost, and less data.
fn allowed_by_ext4(disk: &Disk, loss: &Loss) -> Loss {
    let lost_from = first_lost(disk, loss);
    let kept = KeptData::new(disk, loss, lost_from);
    let mut requests = BTreeMap::new();
    for undecided in disk.undecided() {
        let number = undecided.request;
        let before = loss.lost_parts(number).cloned().unwrap_or_default();
        let keeps = |sector: &u64| {
            undecided.inodes.iter().any(|file| kept.keeps_sector(disk, *file, number, *sector))
        };
        let lost = undecided.sectors.iter().filter(|sector| before.sectors.contains(**sector));
        let sectors = if lost.clone().any(keeps) {
            let left: BTreeSet<u64> = lost.copied().filter(|sector| !keeps(sector)).collect();
            if left.is_empty() { LostSectors::None } else { LostSectors::Some(left) }
        } else {
            before.sectors
        };
        let parts = LostParts {
            sectors,
            size: undecided.size && kept.loses_size(disk, loss, &undecided.inodes, number),
            names: undecided.names && number >= lost_from,
            torn: before.torn.filter(|torn| !keeps(&torn.sector)),
        };
        if !parts.is_empty() {
            requests.insert(number, parts);
        }
    }
    Loss { requests }
}

/// The first request of the journal that is lost: no later one survives.
fn first_lost(disk: &Disk, loss: &Loss) -> RequestNumber {
    let names = disk.names.pending().iter().map(|pending| pending.request);
    let lost_names = names.filter(|request| loss.loses_names(*request));
    let sizes = disk.files.values().flat_map(|file| &file.undecided_sizes);
    let lost_sizes = sizes.filter(|size| !size.is_append && loss.loses_size(size.request));
    lost_names.chain(lost_sizes.map(|size| size.request)).min().unwrap_or(RequestNumber::MAX)
}

/// The request up to which the data of each file survives in new blocks, and its sizes.
struct KeptData {
    lost_from: RequestNumber,
    /// By a size that survives.
    by_size: BTreeMap<Ino, RequestNumber>,
    /// By a rename over another file that survives.
    by_rename: BTreeMap<Ino, RequestNumber>,
}

impl KeptData {
    fn new(disk: &Disk, loss: &Loss, lost_from: RequestNumber) -> Self {
        let mut by_rename = disk.replacements().clone();
        let surviving = disk.names.pending().iter().filter(|it| it.request < lost_from);
        by_rename.extend(surviving.filter_map(replacement));
        let mut kept = Self { lost_from, by_size: BTreeMap::new(), by_rename };
        for (ino, file) in &disk.files {
            let appends = file.undecided_sizes.iter().filter(|size| size.is_append);
            let surviving = appends
                .filter(|size| !kept.loses_size(disk, loss, &[*ino], size.request))
                .map(|size| size.request)
                .max();
            kept.by_size.extend(surviving.map(|request| (*ino, request)));
        }
        kept
    }

    fn loses_size(&self, disk: &Disk, loss: &Loss, inodes: &[Ino], request: RequestNumber) -> bool {
        let is_append = inodes.iter().filter_map(|ino| disk.files.get(ino)).any(|file| {
            let sizes = &file.undecided_sizes;
            let found = sizes.binary_search_by_key(&request, |size| size.request);
            found.is_ok_and(|index| sizes[index].is_append)
        });
        if !is_append {
            return request >= self.lost_from;
        }
        let is_renamed = inodes.iter().any(|ino| self.by_rename.get(ino) > Some(&request));
        !is_renamed && (request > self.lost_from || loss.loses_size(request))
    }

    /// Whether a version must survive unless a newer one does.
    fn keeps_sector(&self, disk: &Disk, file: Ino, request: RequestNumber, sector: u64) -> bool {
        let last = self.by_size.get(&file).max(self.by_rename.get(&file));
        let is_covered = last.is_some_and(|last| request <= *last);
        is_covered && disk.files.get(&file).is_some_and(|it| is_new_block(it, request, sector))
    }
}

/// Whether a request wrote a sector of a block that had not been written before.
fn is_new_block(file: &FileVersions, request: RequestNumber, sector: u64) -> bool {
    let versions = file.undecided.get(&sector).into_iter().flatten();
    let mut of_request = versions.filter(|version| version.request == request);
    of_request.any(|it| it.cause == Cause::Data && it.is_new_block && !it.sync_failed)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::record::operation::{NameCall, NameChange, Operation, Request, SyncCall};
    use crate::record::recording::Event;

    const FILE: Ino = Ino(2);
    const OTHER: Ino = Ino(3);

    fn disk(operations: Vec<Operation>) -> Disk {
        let mut disk = Disk::new(FileSystemModel::Ext4);
        for (index, operation) in operations.into_iter().enumerate() {
            let request = Request { number: index as u64 + 1, path: String::new(), operation };
            disk.apply(&Event::Request(request));
        }
        disk
    }

    fn create(name: &str, ino: Ino) -> Operation {
        names(NameCall::Create, vec![(name, None, Some(ino))])
    }

    fn names(call: NameCall, changes: Vec<(&str, Option<Ino>, Option<Ino>)>) -> Operation {
        let dir = Ino::ROOT;
        let change = |(name, before, after): (&str, _, _)| {
            let name = name.into();
            NameChange { dir, name, before, after }
        };
        Operation::Rename { call, changes: changes.into_iter().map(change).collect() }
    }

    fn write(file: Ino, offset: u64, bytes: usize) -> Operation {
        Operation::Write { file, offset, data: vec![1; bytes].as_slice().into() }
    }

    fn sync(inode: Ino, call: SyncCall) -> Operation {
        Operation::Sync { inode, call }
    }

    /// The requests that are lost in part, when these lose `parts`.
    fn lost(disk: &Disk, requests: &[u64], parts: &LostParts) -> Loss {
        let requests = requests.iter().map(|request| (*request, parts.clone())).collect();
        allowed_by_ext4(disk, &Loss { requests })
    }

    #[test]
    fn names_and_sizes_of_calls_are_lost_from_one_on() {
        let resize = Operation::Resize { file: FILE, size: 100 };
        let disk = disk(vec![
            create("a", FILE),
            create("b", OTHER),
            resize,
            write(FILE, 100, 9),
            create("c", Ino(4)),
        ]);
        let loss = lost(&disk, &[2], &LostParts::all());
        assert_eq!(loss.requests.keys().copied().collect::<Vec<_>>(), [2, 3, 4, 5]);
        assert!(loss.loses_names(2) && loss.loses_names(5));
        assert!(loss.loses_size(3) && loss.loses_size(4));
        assert!(!loss.loses_sector(4, 0));
    }

    #[test]
    fn sync_of_a_file_commits_what_was_before_its_last_change() {
        let operations = vec![
            create("a", FILE),
            create("b", OTHER),
            write(FILE, 0, 9),
            create("c", Ino(4)),
            sync(FILE, SyncCall::Fsync),
        ];
        let left = disk(operations).undecided();
        assert_eq!(left.iter().map(|it| it.request).collect::<Vec<_>>(), [4]);
        let in_place = vec![
            create("a", FILE),
            write(FILE, 0, 9),
            sync(FILE, SyncCall::Fsync),
            create("b", OTHER),
            write(FILE, 0, 9),
            sync(FILE, SyncCall::Fdatasync),
        ];
        let left = disk(in_place).undecided();
        assert_eq!(left.iter().map(|it| it.request).collect::<Vec<_>>(), [4]);
    }

    #[test]
    fn size_survives_with_the_data_of_its_new_blocks() {
        let disk = disk(vec![create("a", FILE), write(FILE, 0, 5000), write(FILE, 5000, 9000)]);
        let data = LostParts { sectors: LostSectors::All, ..LostParts::default() };
        let loss = lost(&disk, &[2, 3], &data);
        // The end of the block in which the file ended is no new block.
        assert_eq!(loss.lost_parts(2), None);
        let in_block: BTreeSet<u64> = (9..16).collect();
        assert_eq!(loss.lost_parts(3).unwrap().sectors, LostSectors::Some(in_block));
        assert_eq!(lost(&disk, &[2, 3], &LostParts::all()).requests.len(), 2);
    }

    #[test]
    fn rename_over_a_file_survives_with_the_data() {
        let replace = |before| {
            let changes = vec![("t", Some(OTHER), None), ("a", before, Some(OTHER))];
            names(NameCall::Rename, changes)
        };
        let data = LostParts { names: false, ..LostParts::all() };
        let before = [create("a", FILE), create("t", OTHER), write(OTHER, 0, 600)];
        let over = disk([before.to_vec(), vec![replace(Some(FILE))]].concat());
        assert_eq!(lost(&over, &[3], &data), Loss::default());
        let mut unnamed = before.to_vec();
        unnamed[0] = create("z", FILE);
        let to_new = disk([unnamed, vec![replace(None)]].concat());
        assert_eq!(lost(&to_new, &[3], &data).requests.len(), 1);
    }

    #[test]
    fn bytes_written_in_place_are_lost_by_themselves() {
        let operations = vec![
            create("a", FILE),
            write(FILE, 0, 5000),
            sync(FILE, SyncCall::Fsync),
            write(FILE, 0, 1024),
        ];
        let disk = disk(operations);
        let data = LostParts { sectors: LostSectors::From(1), ..LostParts::default() };
        let loss = Loss { requests: [(4, data.clone())].into() };
        assert_eq!(allowed_by_ext4(&disk, &loss), loss);
    }
}
