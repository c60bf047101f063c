//! A directory that may not be written: status 1 and the reason. Readers continue.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::esker::{log, run, workdir};

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
        println!("SKIPPED: this user may write to a directory of mode 555");
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
        println!("SKIPPED: this user may not mount");
        return;
    }
    let read_only = mount(&["-o", "remount,ro,bind"]);
    let refused = log("append", &dir, &[], b"x\n");
    let read: Vec<_> = ["cat", "stat", "verify"].map(|verb| log(verb, &dir, &[], b"")).into();
    assert!(Command::new("umount").arg(&dir).status().unwrap().success());
    if !read_only {
        println!("SKIPPED: the mount could not be made read-only");
        return;
    }
    let refused = refused.exits(1).says(&["ead-only file system", "is mounted read-only"]);
    assert!(!refused.err.contains("chmod"), "{}", refused.err);
    assert_eq!(read[0].out, b"kept\n");
    assert!(read.iter().all(|ended| ended.status == 0), "{read:?}");
}

/// Everything below a directory, and it: whether it is a directory, and its mode.
fn modes(path: &Path, all: &mut Vec<(bool, u32)>) {
    let metadata = path.metadata().unwrap();
    all.push((metadata.is_dir(), metadata.permissions().mode() & 0o7777));
    if metadata.is_dir() {
        for entry in path.read_dir().unwrap() {
            modes(&entry.unwrap().path(), all);
        }
    }
}

/// Whatever the umask says; and the owner alone by default.
#[test]
fn what_is_created_has_the_mode_that_was_asked_for() {
    let (guard, _) = workdir();
    set_mode(guard.path(), 0o755);
    let dirs = [(None, 0o600, 0o700), (Some("group"), 0o640, 0o750), (Some("all"), 0o644, 0o755)];
    for (by, of_files, of_dirs) in dirs {
        for umask in ["000", "077"] {
            let dir = guard.path().join(format!("{}-{umask}", by.unwrap_or("default")));
            let input = (1..30_000).map(|n| format!("{n}\n")).collect::<String>();
            let flag = by.map(|by| format!("--readable-by={by}"));
            let mut sh = Command::new("sh");
            sh.arg("-c").arg(format!("umask {umask}; exec \"$@\"")).arg("sh");
            sh.arg(env!("CARGO_BIN_EXE_esker")).args(["log", "append", "--segment-size=64K"]);
            sh.arg("--retain-segments=3").args(flag).arg(&dir);
            run(sh, input.as_bytes()).ok();
            let mut all = Vec::new();
            modes(&dir, &mut all);
            assert!(all.len() > 5, "{all:?}");
            // A log that is there keeps its readers, and says so.
            let again =
                log("append", &dir, &["--readable-by=all", "--retain-segments=3"], b"").ok();
            match by {
                Some("all") => drop(again.says_nothing()),
                _ => drop(again.says(&["keeps its readers", "chmod -R a+rX"])),
            }
            for (is_dir, mode) in all {
                let wanted = if is_dir { of_dirs } else { of_files };
                // With a umask the owner's rights may only be fewer, and are not.
                assert_eq!(mode, wanted, "{dir:?}: {mode:o}");
            }
            let mut other = Command::new("setpriv");
            other.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
            if !other.arg("true").status().is_ok_and(|status| status.success()) {
                println!("SKIPPED: this user may not become another");
                continue;
            }
            let mut other = Command::new("setpriv");
            other.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
            other.arg(env!("CARGO_BIN_EXE_esker")).args(["log", "cat"]).arg(&dir);
            let read = run(other, b"");
            match by {
                Some("all") => assert!(read.ok().text().ends_with("29999\n")),
                _ => drop(read.exits(1).says(&["ermission denied", "--readable-by"])),
            }
        }
    }
}
