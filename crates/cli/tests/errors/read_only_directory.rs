//! A directory that may not be written: status 1 and the reason. Readers continue.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::esker::{log, workdir};

/// Whether this process can still write there: root can, whatever the mode says.
fn is_writable(dir: &Path) -> bool {
    let probe = dir.join("probe");
    let written = std::fs::write(&probe, "").is_ok();
    let _ = std::fs::remove_file(probe);
    written
}

fn set_mode(dir: &Path, mode: u32) {
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_log_cannot_be_made_there() {
    let (guard, dir) = workdir();
    set_mode(guard.path(), 0o555);
    if is_writable(guard.path()) {
        println!("skipped: this user may write to a directory of mode 555");
    } else {
        log("append", &dir, &[], b"x\n").exits(1).says(&["ermission denied"]);
    }
    set_mode(guard.path(), 0o755);
}

#[test]
fn a_log_on_a_read_only_file_system_can_be_read() {
    let (_guard, dir) = workdir();
    log("append", &dir, &[], b"kept\n").ok();
    let mount = |arguments: &[&str]| {
        let mut mount = Command::new("mount");
        mount.args(arguments).arg(&dir).stderr(std::process::Stdio::null());
        mount.status().is_ok_and(|status| status.success())
    };
    let Some(name) = dir.to_str() else { return };
    if !mount(&["--bind", name]) {
        println!("skipped: this user may not mount");
        return;
    }
    let read_only = mount(&["-o", "remount,ro,bind"]);
    let refused = log("append", &dir, &[], b"x\n");
    let read: Vec<_> = ["cat", "stat", "verify"].map(|verb| log(verb, &dir, &[], b"")).into();
    assert!(Command::new("umount").arg(&dir).status().unwrap().success());
    if !read_only {
        println!("skipped: the mount could not be made read-only");
        return;
    }
    refused.exits(1).says(&["ead-only file system", "may write to"]);
    assert_eq!(read[0].out, b"kept\n");
    assert!(read.iter().all(|ended| ended.status == 0), "{read:?}");
}
