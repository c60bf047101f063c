//! Recordings in files, and the failing states that stay.

use std::fs;
use std::path::Path;

use crate::support::{answer, answer_of, unplug};

/// A recording of random calls is read again: reading checks each event.
#[test]
fn recording_of_random_calls_is_valid() {
    let folder = tempfile::tempdir().expect("a folder");
    let recording = folder.path().join("recording");
    let recording = recording.to_str().expect("is text");
    let test = "file_operations::random_calls_in_the_recorded_directory";
    let this = std::env::current_exe().expect("a path");
    let mut command = unplug(&["--record", recording, "--"]);
    command
        .arg(this)
        .args(["--exact", test, "--nocapture"])
        .envs([("UNPLUG_TEST_STEPS", "1000"), ("UNPLUG_TEST_THREADS", "1")]);
    if answer_of(&command.output().expect("unplug starts")).is_none() {
        return;
    }
    let (code, timeline) = answer(&["explain", recording]).expect("needs no mount");
    assert_eq!(code, 0, "{timeline}");
    assert!(timeline.lines().count() > 200, "{timeline}");
}

#[test]
fn check_does_not_change_the_failing_state_that_stays() {
    let folder = tempfile::tempdir().expect("a folder");
    let recording = folder.path().join("recording");
    let recording = recording.to_str().expect("is text");
    let check = "ls; rm -f db; touch trace; exit 1";
    let program = "printf AAAA > db; sync db .; printf BBBB > db; echo saved";
    let lost = format!("[ \"$(cat db)\" != AAAA ] || {{ {check}; }}");
    let arguments = ["--record", recording, "--json", "--check", &lost, "--", "sh", "-c", program];
    let Some((code, answer)) = answer(&arguments) else { return };
    assert_eq!(code, 1, "{answer}");
    let json: serde_json::Value = serde_json::from_str(&answer).expect("JSON");
    let folder = Path::new(json["failing"]["folder"].as_str().expect("a folder"));
    let kept = |folder: &Path| {
        assert_eq!(fs::read(folder.join("state/db")).expect("is kept"), b"AAAA");
        assert!(!folder.join("state/trace").exists());
        assert_eq!(fs::read(folder.join("check.log")).expect("is kept"), b"db\n");
    };
    kept(folder);
    let state = json["failing"]["state"].as_str().expect("a name");
    let replay = ["replay", recording, "--state", state, "--check", &lost];
    let (code, replayed) = self::answer(&replay).expect("ran just now");
    assert_eq!(code, 1, "{replayed}");
    let dir = replayed.lines().find_map(|line| line.strip_prefix("the directory: "));
    kept(Path::new(dir.expect("a directory")).parent().expect("a folder"));
}
