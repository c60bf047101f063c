//! The library, on recordings of small programs.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use unplug::{Answer, Error, Recording, Search, Verdict};

/// Writes a file that is synced before its rename, but not named durably.
const SAVE: &str = "printf AAAA > db.tmp; sync db.tmp; mv db.tmp db; echo saved";

/// Records a shell command; `None`, with a line that says so, where a mount is refused.
fn record(script: &str) -> Option<Recording> {
    let mut program = Command::new("sh");
    program.args(["-c", script]).env("TEXT", "a text");
    match Recording::run(env!("CARGO_BIN_EXE_unplug"), &program) {
        Ok(recording) => Some(recording),
        Err(Error::Refused(message))
            if message.contains("/dev/fuse") || message.contains("mount namespace") =>
        {
            println!("SKIPPED: {message}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn saved_is_there(directory: &Path, output: &[u8]) -> Result<(), String> {
    let text = std::fs::read_to_string(directory.join("db")).unwrap_or_default();
    match output == b"saved\n" && text != "AAAA" {
        true => Err(format!("saved, but the file has {text:?}")),
        false => Ok(()),
    }
}

fn remove_failing(answer: &Answer) {
    let failing = answer.failing.as_ref().expect("a failing state");
    std::fs::remove_dir_all(&failing.folder).expect("is removed");
}

#[test]
fn closure_refuses_a_state_without_the_saved_file() {
    let Some(recording) = record(SAVE) else { return };
    let answer = recording.check(saved_is_there).expect("states are built");
    assert_eq!(answer.verdict, Verdict::Lost, "{answer}");
    let failing = answer.failing.as_ref().expect("a failing state");
    assert!(failing.sentence.contains("rename(db.tmp, db)"), "{answer}");
    let log = std::fs::read_to_string(failing.folder.join("check.log")).expect("a log");
    assert_eq!(log, "saved, but the file has \"\"\n");
    assert!(!failing.folder.join("state/db").exists());
    remove_failing(&answer);
    let losable = recording.losable();
    assert_eq!((losable.verdict, losable.losable.len()), (Verdict::Lost, 2), "{losable}");
}

#[test]
fn closure_passes_on_all_states_of_a_durable_save() {
    let save = SAVE.replace("echo", "sync .; echo");
    let Some(recording) = record(&save) else { return };
    let states = AtomicUsize::new(0);
    let answer = recording.check(|directory, output| {
        states.fetch_add(1, Ordering::Relaxed);
        saved_is_there(directory, output)
    });
    let answer = answer.expect("states are built");
    assert_eq!(answer.verdict, Verdict::Kept, "{answer}");
    // The directory without a cut is checked first.
    assert_eq!(states.into_inner(), answer.states + 1);
}

#[test]
fn panic_of_the_closure_is_a_failed_check() {
    let Some(recording) = record(SAVE) else { return };
    let check = |directory: &Path, output: &[u8]| -> Result<(), String> {
        assert!(output.is_empty() || directory.join("db").exists(), "there is no db");
        Ok(())
    };
    let answer = recording.check(check).expect("states are built");
    assert_eq!(answer.verdict, Verdict::Lost, "{answer}");
    let failing = answer.failing.as_ref().expect("a failing state");
    let log = std::fs::read_to_string(failing.folder.join("check.log")).expect("a log");
    assert_eq!(log, "there is no db\n");
    remove_failing(&answer);
}

#[test]
fn failed_program_is_not_measured() {
    let Some(recording) = record("printf \"$TEXT\" > db; sync db .; exit 1") else { return };
    let search = Search { states: 50, ..Search::default() };
    let answer = recording.check_with(search, |_, _| Ok::<(), String>(()));
    let answer = answer.expect("states are built");
    assert_eq!(answer.verdict, Verdict::NotMeasured, "{answer}");
}

#[test]
fn missing_command_and_file_are_errors() {
    let program = Command::new("true");
    let error = Recording::run("./no-such-command", &program).expect_err("is missing");
    assert!(matches!(error, Error::NotStarted(_)), "{error:?}");
    let error = Recording::load("no-such-file").expect_err("is missing");
    assert!(matches!(error, Error::Recording(_)), "{error:?}");
    let program = Command::new("./no-such-program");
    let error = Recording::run(env!("CARGO_BIN_EXE_unplug"), &program).expect_err("is missing");
    assert!(matches!(error, Error::Refused(_)), "{error:?}");
}
