//! Cuts at a moment that the program names.

use crate::support::{answer, unplug};

/// Two moments lose something; the check refuses both, and gets that with the mark first.
#[test]
fn states_of_a_marked_cut_are_checked_first() {
    let unplug = env!("CARGO_BIN_EXE_unplug");
    let folder = tempfile::tempdir().expect("a folder");
    let recording = folder.path().join("recording");
    let recording = recording.to_str().expect("is text");
    let check = "[ \"$(cat a)\" != 1 ] && [ \"$(cat a)\" != 2 ]";
    let script = |mark: &str| {
        let step = "echo 0 > a; sync a .;";
        format!("echo 1 > a; {step} echo 2 > a; {mark} {step} :")
    };
    let run = |mark: &str| {
        let script = script(mark);
        let options = ["--jobs", "1", "--record", recording, "--check", check];
        answer(&[&options[..], &["--", "sh", "-c", &script]].concat())
    };
    let Some((code, first)) = run("") else { return };
    assert_eq!(code, 1, "{first}");
    let (code, marked) = run(&format!("{unplug} cut 'the second' || exit 9;")).expect("ran");
    assert_eq!(code, 1, "{marked}");
    assert!(first.contains("power cut after operation 2: nothing is lost"), "{first}");
    assert!(marked.contains("power cut after operation 8: nothing is lost"), "{marked}");
    let (_, timeline) = answer(&["explain", recording]).expect("needs no mount");
    assert!(timeline.contains("cut here: the second"), "{timeline}");
}

#[test]
fn cut_outside_of_a_run_is_refused() {
    let output = unplug(&["cut"]).env_remove("UNPLUG_SOCKET").output().expect("unplug starts");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("UNPLUG_SOCKET is not set"));
}
