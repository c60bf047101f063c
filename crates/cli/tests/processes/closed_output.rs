//! `esker log cat | head -1` ends quietly: a reader that has seen enough is no failure.

use std::io::Read;
use std::process::Command;

use crate::esker::{self, end, follow, log, run, workdir};

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
