//! The promises of file systems beyond those of POSIX.

use crate::support::answer;

/// Replaces a durable file by a rename, without any sync.
const REPLACE: &str = "printf BBBB > db.tmp; mv db.tmp db; echo saved";
/// Accepts the old text and the new one.
const CHECK: &str = "grep -qx AAAA db || grep -qx BBBB db";

fn replace(model: &str) -> Option<(i32, String)> {
    let setup = "echo AAAA > db";
    let check = ["--setup", setup, "--model", model, "--check", CHECK];
    answer(&[check.as_slice(), &["--", "sh", "-c", REPLACE]].concat())
}

#[test]
fn replacement_without_a_sync_is_lost_on_posix_and_whole_on_ext4() {
    let Some((code, answer)) = replace("posix") else { return };
    assert_eq!(code, 1, "{answer}");
    assert!(answer.contains("note: ext4 with its default options does not leave"), "{answer}");
    let (code, answer) = replace("ext4").expect("ran just now");
    assert_eq!(code, 0, "{answer}");
}

#[test]
fn new_file_without_a_sync_is_lost_on_ext4_too() {
    let check = "! grep -q saved \"$UNPLUG_OUTPUT\" || grep -q AAAA db";
    let program = "printf AAAA > db; echo saved";
    let arguments = ["--model", "ext4", "--check", check, "--", "sh", "-c", program];
    let Some((code, answer)) = answer(&arguments) else { return };
    assert_eq!(code, 1, "{answer}");
    assert!(!answer.contains("note: ext4"), "{answer}");
}
