//! `esker kv backup`: where it goes.
#![allow(clippy::unwrap_used)]

use std::os::unix::fs::symlink;
use std::path::Path;

use crate::esker::{self, kv};

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
        refused.says(&["is in the directory of the store", "a directory outside it"]);
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
