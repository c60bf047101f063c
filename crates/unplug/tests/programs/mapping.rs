//! Writes of a shared mapping.

use std::fs::OpenOptions;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};

use crate::support::{answer_of, unplug};

const CALLS: &str = "UNPLUG_TEST_MAPPING_CALLS";
const PAGE_BYTES: usize = 4096;

/// The answer for a program that writes into a mapping of `db`, as `calls` says.
fn mapping(calls: &str, check: &[&str]) -> Option<(i32, String)> {
    let this = std::env::current_exe().expect("a path");
    let mut command = unplug(&["--setup", "head -c 4096 /dev/zero > db"]);
    let test = "mapping::write_into_a_mapping_in_the_recorded_directory";
    command.args(check).arg("--").arg(this).args(["--exact", test, "--nocapture"]);
    answer_of(&command.env(CALLS, calls).output().expect("unplug starts"))
}

const CHECK: [&str; 2] = ["--check", "! grep -q saved \"$UNPLUG_OUTPUT\" || grep -q AAAA db"];

#[test]
fn mapping_that_is_synced_before_the_acknowledgement_is_kept() {
    let Some((code, answer)) = mapping("write msync print", &CHECK) else { return };
    assert_eq!(code, 0, "{answer}");
    let (code, answer) = mapping("write msync print", &[]).expect("ran just now");
    assert_eq!(code, 0, "{answer}");
}

#[test]
fn mapping_that_is_synced_after_the_acknowledgement_is_lost() {
    let Some((code, answer)) = mapping("write print msync", &CHECK) else { return };
    assert_eq!(code, 1, "{answer}");
}

#[test]
fn mapping_that_is_never_synced_is_not_measured_where_the_check_passes() {
    let Some((code, answer)) = mapping("write print", &["--check", "true"]) else { return };
    assert_eq!(code, 3, "{answer}");
    assert!(answer.contains("write of a mapping(db, 4096 bytes at 0) was not durable"), "{answer}");
}

/// The program of the tests above: does nothing when it runs as a test.
#[test]
#[allow(unsafe_code)]
fn write_into_a_mapping_in_the_recorded_directory() {
    let Ok(calls) = std::env::var(CALLS) else { return };
    let db = Path::new(&std::env::var_os("UNPLUG_DIR").expect("set by unplug")).join("db");
    let file = OpenOptions::new().read(true).write(true).open(db).expect("is opened");
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    // SAFETY: the mapping is new, of a file that stays as long, and is unmapped at the end.
    let map = unsafe { mmap(std::ptr::null_mut(), PAGE_BYTES, protection, flags, file.as_fd(), 0) };
    let map = map.expect("is mapped");
    for call in calls.split(' ') {
        match call {
            // SAFETY: the bytes are in the mapping, and no reference to them exists.
            "write" => unsafe { map.cast::<[u8; 4]>().write(*b"AAAA") },
            // SAFETY: the mapping is mapped.
            "msync" => unsafe { msync(map, PAGE_BYTES, MsyncFlags::SYNC) }.expect("is synced"),
            _ => println!("saved"),
        }
    }
    // SAFETY: nothing refers to the mapping any more.
    unsafe { munmap(map, PAGE_BYTES) }.expect("is unmapped");
}
