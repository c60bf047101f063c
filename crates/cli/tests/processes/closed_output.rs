//! `esker log cat | head -1` ends quietly: a reader that has seen enough is no failure. Output that
//! cannot be written is one.

use std::io::Read;
use std::process::Command;

use crate::esker::{self, CommandOutput, end, follow, kv, log, run, workdir};

#[test]
fn cat_ends_quietly_when_head_closes_its_output() {
    let (_guard, dir) = workdir();
    log("append", &dir, &[], esker::lines(1, 200_000).as_bytes()).ok();
    for flags in ["", "--json", "--follow"] {
        let mut shell = Command::new("bash");
        let script = format!("set -o pipefail; \"$0\" log cat \"$1\" {flags} | head -n 1");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_esker")]).arg(&dir);
        let ended = run(shell, b"").ok();
        assert_eq!((ended.text().lines().count(), ended.err.as_str()), (1, ""));
    }
}

#[test]
fn idle_follower_ends_when_its_output_closes() {
    let (_guard, dir) = workdir();
    log("append", &dir, &[], b"only\n").ok();
    let mut follower = follow(&dir);
    let mut out = follower.stdout.take().unwrap();
    let mut line = [0; 5];
    out.read_exact(&mut line).unwrap();
    assert_eq!(&line, b"only\n");
    drop(out);
    assert_eq!(end(follower).ok().err, "");
}

#[test]
fn append_succeeds_when_its_summary_is_not_read() {
    let (_guard, dir) = workdir();
    let mut shell = Command::new("bash");
    shell.args([
        "-c",
        "set -o pipefail; \"$0\" log append \"$1\" | true",
        env!("CARGO_BIN_EXE_esker"),
    ]);
    shell.arg(&dir);
    assert_eq!(run(shell, b"kept\n").ok().err, "");
    assert_eq!(log("cat", &dir, &[], b"").ok().out, b"kept\n");
}

/// Runs a command with standard output as the shell opens it.
fn with_output(words: &[&str], redirection: &str) -> CommandOutput {
    let mut shell = Command::new("bash");
    let script = format!("exec \"$0\" \"$@\" {redirection}");
    shell.args(["-c", &script, env!("CARGO_BIN_EXE_esker")]).args(words);
    run(shell, b"")
}

/// Bug: `cat >&-` exited 0. The runtime opens `/dev/null` in the place of a closed descriptor.
#[test]
fn output_that_is_closed_or_full_is_a_failure() {
    let (guard, dir) = workdir();
    log("append", &dir, &[], b"only\n").ok();
    let store = guard.path().join("store");
    kv(&store, &["put", "colour", "blue"], b"").ok();
    let consensus = guard.path().join("consensus");
    esker_consensus::ConsensusLog::open(&consensus).unwrap().close().unwrap();
    let [dir, store, consensus] = [&dir, &store, &consensus].map(|dir| dir.to_str().unwrap());
    for words in [
        &["log", "cat", dir][..],
        &["log", "cat", dir, "--json"],
        &["log", "cat", dir, "--follow"],
        &["log", "cat", dir, "--skip-corrupt"],
        &["stat", dir],
        &["verify", dir],
        &["log", "append", dir],
        &["kv", "get", store, "colour"],
        &["kv", "scan", store],
        &["kv", "export", store],
        &["stat", store],
        &["verify", store],
        &["kv", "keyspaces", store, "list"],
        &["stat", consensus],
        &["verify", consensus],
        &["ts", "decode", "00000000000000070000000000000001"],
        &["completions", "bash"],
        &["--version"],
        &["log", "--help"],
        &["kv", "get", "--help"],
    ] {
        for redirection in [">&-", "> /dev/full"] {
            let ended = with_output(words, redirection);
            assert_eq!(ended.status, 1, "{words:?} {redirection}: {ended:?}");
            assert!(ended.err.contains("standard output"), "{words:?}: {}", ended.err);
        }
        if words != ["log", "cat", dir, "--follow"] {
            // Opened for reading, too, as the runtime does.
            with_output(words, "1<> /dev/null").ok();
        }
    }
    // What prints nothing succeeds.
    with_output(&["kv", "put", store, "shape", "round"], ">&-").ok();
}
