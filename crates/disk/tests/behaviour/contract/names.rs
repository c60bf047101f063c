//! Rename replaces, unlink removes, list is sorted, directories come with those above them.
#![allow(clippy::unwrap_used)]

use std::io::ErrorKind;

use esker_disk::{Disk, OpenMode, read_full_at, write_all_at};
use std::path::Path;

use crate::on_each::{self, ByPath};

fn put(disk: &dyn Disk, path: &Path, bytes: &[u8]) {
    let file = disk.open(path, OpenMode::create_new()).unwrap();
    write_all_at(&*file, bytes, 0).unwrap();
}

fn get(disk: &dyn Disk, path: &Path) -> Vec<u8> {
    let file = disk.open(path, OpenMode::read()).unwrap();
    let mut buf = vec![0; file.len().unwrap() as usize];
    read_full_at(&*file, &mut buf, 0).unwrap();
    buf
}

#[test]
fn rename_replaces_the_target() {
    on_each::disk(|disk, dir| {
        put(disk, &dir.join("new"), b"new");
        put(disk, &dir.join("old"), b"old");
        disk.rename(&dir.join("new"), &dir.join("old")).unwrap();
        assert_eq!(get(disk, &dir.join("old")), b"new");
        assert_eq!(disk.list(dir).unwrap(), ["old"]);
    });
}

#[test]
fn rename_moves_directories() {
    on_each::disk(|disk, dir| {
        disk.create_dir(&dir.join("x")).unwrap();
        put(disk, &dir.join("x/b"), b"a");
        disk.rename(&dir.join("x"), &dir.join("y")).unwrap();
        assert_eq!(get(disk, &dir.join("y/b")), b"a");
        assert_eq!(disk.list(dir).unwrap(), ["y"]);
    });
}

#[test]
fn list_is_sorted_and_has_files_and_directories() {
    on_each::disk(|disk, dir| {
        for name in ["b", "10", "a", "9", "B"] {
            put(disk, &dir.join(name), b"");
        }
        disk.create_dir(&dir.join("0")).unwrap();
        assert_eq!(disk.list(dir).unwrap(), ["0", "10", "9", "B", "a", "b"]);
        disk.unlink(&dir.join("9")).unwrap();
        assert_eq!(disk.list(dir).unwrap(), ["0", "10", "B", "a", "b"]);
    });
}

#[test]
fn directories_come_with_those_above_and_twice_is_no_error() {
    on_each::disk(|disk, dir| {
        let deep = dir.join("x/y/z");
        disk.create_dir(&deep).unwrap();
        disk.create_dir(&deep).unwrap();
        put(disk, &deep.join("a"), b"a");
        disk.sync_dir(&deep).unwrap();
        let error = disk.create_dir(&deep.join("a")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotADirectory);
    });
}

#[cfg(unix)]
#[test]
fn files_and_directories_are_for_their_owner_only() {
    use esker_disk::StdDisk;
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let (sub, file) = (dir.path().join("sub"), dir.path().join("sub/a"));
    StdDisk::new().create_dir(&sub).unwrap();
    put(&StdDisk::new(), &file, b"");
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode(&sub), mode(&file)), (0o700, 0o600));
}
