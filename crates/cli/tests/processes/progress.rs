//! Progress is shown on a terminal, and nowhere else.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::path::Path;
use std::process::Command;

use esker_consensus::{Ballot, ConsensusLog, Slot};

use crate::esker::{CommandOutput, command, kv, log, run, workdir};

/// Runs a command with a terminal as its standard error. What it shows there is the output, and its
/// own output goes to a file.
fn on_a_terminal(words: &[&str], out: &Path) -> (String, String) {
    let quoted = |word: &str| format!("'{word}'");
    let words = [env!("CARGO_BIN_EXE_esker")].into_iter().chain(words.iter().copied());
    let words: Vec<_> = words.map(quoted).collect();
    let line = format!("{} > {}", words.join(" "), quoted(out.to_str().unwrap()));
    let mut terminal = Command::new("script");
    terminal.args(["-qec", &line, "/dev/null"]);
    let shown = run(terminal, b"").ok().text().to_owned();
    (shown, std::fs::read_to_string(out).unwrap())
}

fn piped(words: &[&str]) -> CommandOutput {
    run(command(words), b"").ok()
}

#[test]
fn progress_is_shown_on_a_terminal_only() {
    if let Err(error) = Command::new("script").arg("--version").output() {
        eprintln!("SKIPPED: no terminal without the program script: {error}");
        return;
    }
    let (guard, dir) = workdir();
    let lines: String = (0..2000).map(|n| format!("line {n}\n")).collect();
    log("append", &dir, &[], lines.as_bytes()).ok();
    let node = guard.path().join("node");
    let consensus = ConsensusLog::open(&node).unwrap();
    let ballot = Ballot { number: 1, node: 1 };
    consensus.learn(Slot(0), ballot, b"value").unwrap().blocking_wait().unwrap();
    consensus.close().unwrap();
    let store = guard.path().join("store");
    kv(&store, &["put", "a", "1"], b"").ok();
    let (dir, node) = (dir.to_str().unwrap(), node.to_str().unwrap());
    let store = store.to_str().unwrap();
    let out = guard.path().join("out");
    let (copy, restored) = (guard.path().join("copy"), guard.path().join("restored"));
    let (copy, restored) = (copy.to_str().unwrap(), restored.to_str().unwrap());
    let commands: [(&[&str], &str, &str); 5] = [
        (&["backup", dir, copy], "copying ", "backed up through record 2000"),
        (&["verify", dir], "checking ", "checked 2000 records"),
        (&["repair", dir], "checking ", "has no corruption"),
        (&["verify", node], "checking ", "sound: 1 slot"),
        (&["verify", store], "checking ", "sound"),
    ];
    for (words, progress, result) in commands {
        let (shown, printed) = on_a_terminal(words, &out);
        assert!(shown.contains(progress), "{words:?} shows {shown:?}");
        assert!(printed.contains(result) && !printed.contains(progress), "{printed}");
        let ended = piped(words);
        assert!(ended.text().contains(result) && ended.err.is_empty(), "{ended:?}");
        let words = [words, &["--json"]].concat();
        let (shown, printed) = on_a_terminal(&words, &out);
        assert_eq!(shown, "", "{words:?}");
        assert!(printed.lines().all(|line| line.starts_with('{')), "{printed}");
    }
    // Only to a directory of its own.
    let (shown, printed) = on_a_terminal(&["restore", copy, restored], &out);
    assert!(shown.contains("copying ") && printed.starts_with("restored"), "{shown:?} {printed}");
}

/// `kv import` waited, and said nothing.
#[test]
fn input_from_a_terminal_is_said_to_end_with_ctrl_d() {
    if Command::new("script").arg("--version").output().is_err() {
        eprintln!("SKIPPED: no terminal without the program script");
        return;
    }
    let (_guard, dir) = workdir();
    for words in ["kv import", "log append"] {
        let dir = dir.with_extension(&words[..2]);
        let line = format!("'{}' {words} '{}'", env!("CARGO_BIN_EXE_esker"), dir.display());
        let mut terminal = Command::new("script");
        terminal.args(["-qec", &line, "/dev/null"]);
        let ended = run(terminal, b"\x04").ok();
        assert!(ended.text().contains("Ctrl-D ends the input"), "{words}: {}", ended.text());
    }
}
