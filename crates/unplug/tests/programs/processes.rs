//! Processes, mounts and folders of the command end with it.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::{answer, answer_of, unplug};

/// How long a test waits for what happens soon on an idle machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// Whether a process has exactly these arguments, which no other test uses.
fn runs(arguments: &str) -> bool {
    let processes = fs::read_dir("/proc").expect("is listed").flatten();
    let mut lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    lines.any(|line| String::from_utf8_lossy(&line).replace('\0', " ").trim() == arguments)
}

fn wait_until(condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "it does not happen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("is listed").flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn processes_in_other_sessions_end_with_the_program_and_the_check() {
    let program = "setsid sleep 611.1 & echo a > b; sync b .";
    let check = "setsid sleep 611.2 > /dev/null & true";
    let Some((code, answer)) =
        answer(&["--states", "5", "--check", check, "--", "sh", "-c", program])
    else {
        return;
    };
    assert_eq!(code, 0, "{answer}");
    assert!(!runs("sleep 611.1") && !runs("sleep 611.2"), "{answer}");
}

#[test]
fn processes_have_numbers_of_their_own() {
    let program =
        "[ -d /proc/$$ ] && grep -q ^sh /proc/$$/comm && echo a > b; echo done; kill -9 $$";
    let Some((_, answer)) = answer(&["--", "sh", "-c", program]) else { return };
    assert!(answer.contains("the program failed: exit status: 137"), "{answer}");
    assert!(answer.contains("create(b)"), "{answer}");
}

#[test]
fn program_has_the_name_of_a_symbolic_link() {
    let folder = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::symlink("/bin/sh", folder.path().join("named")).expect("is made");
    let mut command = unplug(&["--", "./named", "-c", "echo \"${0##*/}\" > \"${0##*/}\""]);
    let output = command.current_dir(folder.path()).output().expect("unplug starts");
    let Some((_, answer)) = answer_of(&output) else { return };
    assert!(answer.contains("create(named)"), "{answer}");
}

#[test]
fn killed_tool_leaves_no_mount_and_its_folder_to_the_next_run() {
    let temporary = tempfile::tempdir().expect("a folder");
    let in_temporary = |arguments: &[&str]| {
        let mut command = unplug(arguments);
        command.env("TMPDIR", temporary.path());
        command
    };
    let output = in_temporary(&["--", "sh", "-c", "echo a > b"]).output().expect("unplug starts");
    if answer_of(&output).is_none() {
        return;
    }
    assert!(names(temporary.path()).is_empty());

    let mut child = in_temporary(&["--", "sleep", "611.3"]).spawn().expect("unplug starts");
    wait_until(|| runs("sleep 611.3"));
    child.kill().expect("is killed");
    child.wait().expect("ends");
    let mounts = fs::read_to_string("/proc/self/mounts").expect("is read");
    assert!(!mounts.contains("unplug"), "{mounts}");
    wait_until(|| !runs("sleep 611.3"));
    let abandoned = names(temporary.path());
    assert_eq!(abandoned.len(), 1);

    // A run that lives keeps its folder; a failing state stays.
    let mut child = in_temporary(&["--", "sleep", "611.4"]).spawn().expect("unplug starts");
    wait_until(|| runs("sleep 611.4"));
    assert_eq!(names(temporary.path()).len(), 1);
    let arguments = ["--check", "[ -e b ]", "--", "sh", "-c", "echo a > b"];
    let lost = in_temporary(&arguments).output().expect("unplug starts");
    assert_eq!(lost.status.code(), Some(1), "{lost:?}");
    assert_eq!(names(temporary.path()).len(), 2);

    // A signal that can be handled leaves nothing.
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("is sent");
    child.wait().expect("ends");
    assert!(!names(temporary.path()).contains(&abandoned[0]));
    assert_eq!(names(temporary.path()).len(), 1);
}
