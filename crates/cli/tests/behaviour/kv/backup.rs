//! `esker backup`: where it goes, and what an interrupted one leaves.
#![allow(clippy::unwrap_used)]

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;

use esker_kv::Store;

use crate::esker::{self, command, kv, spawn};

fn names(dir: &Path) -> Vec<std::ffi::OsString> {
    let mut names: Vec<_> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

/// Bug: a backup inside the directory of its store was written, and lost with the store.
#[test]
fn a_backup_in_its_own_store_is_refused() {
    let (guard, dir) = esker::workdir();
    let root = guard.path();
    kv(&dir, &["put", "a", "1"], b"").ok();
    std::fs::create_dir(root.join("other")).unwrap();
    symlink(&dir, root.join("link")).unwrap();
    std::fs::create_dir(dir.join("empty")).unwrap();
    symlink(dir.join("empty"), root.join("link-to-empty")).unwrap();
    let before = names(&dir);
    for dest in [
        dir.clone(),
        dir.join("copy"),
        dir.join("new/copy"),
        dir.join("empty"),
        root.join("other/../log/copy"),
        root.join("link"),
        root.join("link/copy"),
        root.join("link-to-empty"),
        root.join("link-to-empty/../copy"),
    ] {
        let refused = kv(&dir, &["backup", dest.to_str().unwrap()], b"").exits(2);
        refused.says(&["is in the directory to copy", "a directory outside it"]);
        // The store may be named through a link, too.
        kv(&root.join("link"), &["backup", dest.to_str().unwrap()], b"").exits(2);
        assert_eq!(names(&dir), before, "{}", dest.display());
        assert!(names(&dir.join("empty")).is_empty(), "{}", dest.display());
    }
    // A name that begins as that of the store, and a way through the store.
    for dest in [root.join("log-copy"), dir.join("../copy"), root.join("link-to-empty/../../third")]
    {
        kv(&dir, &["backup", dest.to_str().unwrap()], b"").ok();
        assert_eq!(kv(&dest, &["get", "a"], b"").ok().text(), "1\n");
    }
}

/// Bug: an interrupted backup left a directory that had to be deleted by hand.
#[test]
fn an_interrupted_backup_leaves_an_empty_directory() {
    let (_guard, dir) = esker::workdir();
    let store = Store::open(&dir).unwrap();
    for key in 0..12u8 {
        drop(store.keyspace().put([key], vec![key; esker_kv::VALUE_LIMIT]).unwrap());
    }
    store.sync().unwrap();
    store.close().unwrap();
    let copy = dir.with_file_name("copy");
    for (name, status) in [("INT", 130), ("TERM", 1), ("HUP", 1)] {
        let mut backup = command(&["backup"]);
        let backup = spawn(backup.arg(&dir).arg(&copy), Stdio::null());
        esker::until("it has begun", || copy.join("note").exists());
        // So that it cannot end before the signal arrives.
        esker::signal(&backup, "STOP");
        esker::signal(&backup, name);
        esker::signal(&backup, "CONT");
        let ended = esker::end(backup).exits(status);
        assert_eq!(ended.out, b"");
        ended.says(&["the backup is not complete, and its files were removed"]);
        assert!(names(&copy).is_empty(), "{name}: {:?}", names(&copy));
    }
    kv(&dir, &["backup", copy.to_str().unwrap()], b"").ok();
    assert_eq!(kv(&copy, &["stat", "--json"], b"").ok().json()["keys"], 12);
}
