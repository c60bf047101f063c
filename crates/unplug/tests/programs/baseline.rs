//! The baseline of CI.

use std::fs;

use crate::support::{answer, answer_of, unplug};

/// Runs the command outside CI.
fn run(arguments: &[&str]) -> Option<(i32, String)> {
    answer_of(&unplug(arguments).env_remove("CI").output().expect("unplug starts"))
}

#[test]
fn case_is_written_on_request_then_kept_and_a_worse_one_fails() {
    let folder = tempfile::tempdir().expect("a folder");
    let baseline = folder.path().join("baseline.json");
    let baseline = baseline.to_str().expect("is text");
    let case = |script: &str, more: &[&str]| {
        let arguments = [&["--baseline", baseline, "--case", "save"], more].concat();
        run(&[&arguments[..], &["--", "sh", "-c", script]].concat())
    };
    let durable = "echo a > db; sync db .; echo saved";
    let unnamed = "echo a > db; sync db; echo saved";
    let unsynced = "echo a > db; echo saved";

    let Some((code, answer)) = case(unnamed, &[]) else { return };
    assert!(code == 1 && answer.contains("baseline: missing: save"), "{code}, {answer}");
    assert!(!fs::exists(baseline).expect("is asked"));
    let (code, answer) = case(unnamed, &["--write-baseline"]).expect("ran just now");
    assert!(code == 0 && answer.contains("baseline: written: save"), "{code}, {answer}");
    let written = fs::read_to_string(baseline).expect("is there");
    assert!(written.contains("create(db): no fsync of the directory"), "{written}");

    let (code, answer) = case(unnamed, &[]).expect("ran just now");
    assert!(code == 0 && answer.contains("baseline: same: save"), "{code}, {answer}");
    let (code, answer) = case(durable, &[]).expect("ran just now");
    assert!(code == 0 && answer.contains("baseline: better: save"), "{code}, {answer}");
    let (code, answer) = case(unsynced, &[]).expect("ran just now");
    assert!(code == 1 && answer.contains("newly losable: write(db"), "{code}, {answer}");
    // A case that measures nothing has its own status, whatever the file has.
    let (code, answer) = case("true", &[]).expect("ran just now");
    assert!(code == 3 && answer.contains("baseline: not compared: save"), "{code}, {answer}");
    assert_eq!(fs::read_to_string(baseline).expect("is there"), written);
}

#[test]
fn baseline_is_not_written_in_ci() {
    let folder = tempfile::tempdir().expect("a folder");
    let baseline = folder.path().join("baseline.json");
    let baseline = baseline.to_str().expect("is text");
    let arguments = ["--baseline", baseline, "--write-baseline", "--", "touch", "a"];
    let output = unplug(&arguments).env("CI", "true").output().expect("unplug starts");
    assert_eq!(output.status.code(), Some(2));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("--write-baseline is refused"), "{errors}");
    assert!(!fs::exists(baseline).expect("is asked"));
}

#[test]
fn case_without_an_answer_has_vanished() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("is text").to_owned();
    let (baseline, answers) = (path("baseline.json"), path("answers"));
    let json = ["--json", "--baseline", &baseline, "--write-baseline"];
    let mut lines = String::new();
    for program in ["a", "b"] {
        let Some((_, line)) = run(&[&json[..], &["--", "touch", program]].concat()) else { return };
        lines.push_str(&line);
    }
    fs::write(&answers, &lines).expect("is written");
    assert_eq!(answer(&["baseline", &baseline, &answers]), Some((0, String::new())));
    let first = lines.lines().next().expect("an answer");
    fs::write(&answers, first).expect("is written");
    let vanished = (1, "vanished: touch b\n".to_owned());
    assert_eq!(answer(&["baseline", &baseline, &answers]), Some(vanished));
}
