//! The membership test: whether a power cut may leave a directory, found without building states.

use std::collections::BTreeMap;

use crate::model::disk::Disk;
use crate::model::names::DirectoryNames;
use crate::model::sector::{Cause, FileVersions, SECTOR_BYTES, Version};
use crate::record::operation::{Ino, RequestNumber};

/// A directory by the paths in it: `None` is a directory, a file has its bytes.
pub type Tree = BTreeMap<String, Option<Vec<u8>>>;

/// The most changes of names, and sizes of a file, whose subsets are tried.
const SUBSET_BITS_MAX: usize = 12;

/// Whether a power cut may leave this directory, with no torn sector.
pub fn allows(disk: &Disk, is_directory: &dyn Fn(Ino) -> bool, tree: &Tree) -> bool {
    let pending = disk.names.pending().iter().map(|pending| pending.request).collect();
    subsets(pending).any(|lost| {
        let surviving = disk.names.surviving(&|request| lost.contains(&request));
        let paths = paths(&disk.names.names(&surviving), is_directory);
        paths.keys().eq(tree.keys()) && has_files(disk, &paths, tree)
    })
}

/// The inode of each path; `None` is a directory.
pub fn paths(
    names: &DirectoryNames,
    is_directory: &dyn Fn(Ino) -> bool,
) -> BTreeMap<String, Option<Ino>> {
    let mut paths = BTreeMap::new();
    let mut directories = vec![(Ino::ROOT, String::new())];
    while let Some((dir, above)) = directories.pop() {
        for (name, named) in names.get(&dir).into_iter().flatten() {
            let path = format!("{above}/{}", name.display());
            let file = Some(named.ino).filter(|ino| !is_directory(*ino));
            if file.is_none() {
                directories.push((named.ino, path.clone()));
            }
            paths.insert(path, file);
        }
    }
    paths
}

/// Whether each path may have the bytes of the tree. The names of a file have the same.
fn has_files(disk: &Disk, paths: &BTreeMap<String, Option<Ino>>, tree: &Tree) -> bool {
    let none = FileVersions::default();
    let mut found = BTreeMap::new();
    paths.values().zip(tree.values()).all(|(ino, bytes)| match (ino, bytes) {
        (None, None) => true,
        (Some(ino), Some(bytes)) => {
            let file = disk.files.get(ino).unwrap_or(&none);
            *found.entry(*ino).or_insert(bytes) == bytes && may_have(file, bytes)
        }
        _ => false,
    })
}

fn may_have(file: &FileVersions, bytes: &[u8]) -> bool {
    let sizes = file.undecided_sizes.iter().map(|size| size.request).collect();
    subsets(sizes).any(|kept| {
        let keeps = |request| kept.contains(&request);
        let last = file.undecided_sizes.iter().rev().find(|size| keeps(size.request));
        let size = last.map_or(file.durable_size, |size| size.bytes);
        let mut sectors = bytes.chunks(SECTOR_BYTES as usize).zip(0..);
        size == bytes.len() as u64
            && sectors.all(|(bytes, number)| may_have_sector(file, number, &keeps, bytes))
    })
}

/// Whether a version of the sector begins with these bytes and may survive, with the sizes that
/// `keeps` has.
fn may_have_sector(
    file: &FileVersions,
    number: u64,
    keeps: &dyn Fn(RequestNumber) -> bool,
    bytes: &[u8],
) -> bool {
    let is = |version: &Version| version.bytes()[..bytes.len()] == *bytes;
    for version in file.undecided.get(&number).into_iter().flatten().rev() {
        match version.cause {
            Cause::Data if is(version) => return true,
            Cause::Size if keeps(version.request) => return is(version),
            Cause::Data | Cause::Size => {}
        }
    }
    file.durable.get(&number).map_or(bytes.iter().all(|byte| *byte == 0), is)
}

fn subsets(requests: Vec<RequestNumber>) -> impl Iterator<Item = Vec<RequestNumber>> {
    assert!(requests.len() <= SUBSET_BITS_MAX, "too many subsets of {requests:?}");
    (0..1_u32 << requests.len()).map(move |subset| {
        let is_in = |(bit, _): &(usize, &RequestNumber)| subset >> bit & 1 == 1;
        requests.iter().enumerate().filter(is_in).map(|(_, request)| *request).collect()
    })
}
