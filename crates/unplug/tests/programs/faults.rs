//! Faults that are injected while the program runs.

use std::time::{Duration, Instant};

use crate::support::answer;

/// Runs a shell script with a fault; the answer, and what `unplug explain` prints.
fn run(fault: &str, check: &str, script: &str) -> Option<(i32, String, String)> {
    let folder = tempfile::tempdir().expect("a folder");
    let recording = folder.path().join("recording");
    let recording = recording.to_str().expect("is text");
    let options = ["--states", "60", "--fault", fault, "--record", recording, "--check", check];
    let (code, text) = answer(&[&options[..], &["--", "sh", "-c", script]].concat())?;
    let (_, timeline) = answer(&["explain", recording]).expect("needs no mount");
    Some((code, text, timeline))
}

/// The second call of fsync succeeds, and writes nothing.
#[test]
fn data_of_a_failed_fsync_is_lost_though_the_next_one_succeeds() {
    let script = "echo a > b; sync .; sync b 2> /dev/null || sync b && echo saved";
    let check = "[ ! -s \"$UNPLUG_OUTPUT\" ] || [ \"$(cat b)\" = a ]";
    let Some((code, answer, timeline)) = run("eio-on-fsync=2", check, script) else { return };
    assert_eq!(code, 1, "{answer}");
    assert!(timeline.contains("fault: fsync 2 fails with EIO"), "{timeline}");
    assert!(timeline.contains("failed fsync(b)"), "{timeline}");
    let (code, answer, _) = run("slow", check, script).expect("ran just now");
    assert_eq!(code, 0, "{answer}");
}

#[test]
fn fault_that_the_program_never_meets_is_not_measured() {
    let Some((code, answer, _)) = run("eio-on-fsync=9", "true", "echo a > b; sync b .") else {
        return;
    };
    assert_eq!(code, 3, "{answer}");
    assert!(answer.contains("note: fsync 9 did not fail: there were 2"), "{answer}");
    let (code, answer, _) = run("enospc=99", "true", "echo a > b; sync b .").expect("ran");
    assert_eq!(code, 3, "{answer}");
}

#[test]
fn writes_past_the_end_of_the_disk_fail() {
    let script = "echo 12345 > a; echo 12345 > b; echo 1 > c; fallocate -l 100 d; sync a .
                  [ $(stat -c %s a b c d | tr '\\n' ,) = 6,0,0,0, ]";
    let Some((code, answer, timeline)) = run("enospc=11", "true", script) else { return };
    assert_eq!(code, 0, "{answer}");
    assert!(timeline.contains("fault: write(b, 6 bytes at 0) fails with ENOSPC"), "{timeline}");
    assert!(timeline.contains("fault: write(c, 2 bytes at 0) fails with ENOSPC"), "{timeline}");
}

#[test]
fn slow_fsync_takes_its_time() {
    let start = Instant::now();
    let script = "echo a > b; for number in 1 2 3 4 5 6 7 8 9; do sync b; done; sync .";
    let Some((code, answer, timeline)) = run("slow", "true", script) else { return };
    assert_eq!(code, 0, "{answer}");
    assert!(start.elapsed() >= Duration::from_secs(1));
    assert!(timeline.contains("fault: each fsync takes 100 ms"), "{timeline}");
}
