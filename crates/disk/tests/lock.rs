//! A lock has one holder, in this process or another, until it is dropped.

#[path = "kit/by_path.rs"]
mod by_path;
#[path = "kit/on_each.rs"]
mod on_each;

use std::io::ErrorKind;

use esker_disk::{Disk, Op, StdDisk};
use on_each::ByPath;

#[test]
fn refused_while_held_and_free_when_dropped() {
    on_each::disk(|disk, dir| {
        let path = dir;
        let held = disk.lock(path).unwrap();
        for _ in 0..2 {
            let error = disk.lock(path).unwrap_err();
            assert_eq!((error.op(), error.kind()), (Op::Lock, ErrorKind::WouldBlock));
            assert_eq!(error.path(), path);
        }
        let _other = disk.create_dir(&dir.join("other")).unwrap().lock().unwrap();
        drop(held);
        let _again = disk.lock(path).unwrap();
    });
}

const CHILD: &str = "ESKER_TEST_LOCK_CHILD";

#[test]
fn refused_to_another_process_and_free_when_that_dies() {
    if let Some(path) = std::env::var_os(CHILD) {
        let _held = StdDisk::new().lock(path.as_ref()).unwrap();
        std::fs::write(std::path::Path::new(&path).with_extension("held"), "").unwrap();
        loop {
            std::thread::park();
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    StdDisk::new().create_dir(&path).unwrap();
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["refused_to_another_process_and_free_when_that_dies", "--exact"])
        .env(CHILD, &path)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    while !path.with_extension("held").exists() {
        assert!(child.try_wait().unwrap().is_none(), "the child ended without the lock");
        std::thread::yield_now();
    }
    let error = StdDisk::new().lock(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    child.kill().unwrap();
    child.wait().unwrap();
    StdDisk::new().lock(&path).unwrap();
}
