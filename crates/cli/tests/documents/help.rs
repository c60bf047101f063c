//! `--help` of every command ends with examples that name the command itself.

use crate::esker::{command, run};

#[test]
fn every_command_has_examples() {
    for words in [
        &["log", "append"][..],
        &["log", "cat"],
        &["log", "stat"],
        &["log", "verify"],
        &["log", "repair"],
        &["log", "truncate"],
        &["log", "bench"],
        &["kv", "put"],
        &["kv", "get"],
        &["kv", "del"],
        &["kv", "scan"],
        &["kv", "import"],
        &["kv", "export"],
        &["kv", "compact"],
        &["kv", "stat"],
        &["kv", "verify"],
        &["kv", "keyspaces"],
        &["kv", "bench"],
        &["bench", "floor"],
        &["serve"],
        &["ts"],
        &["ts", "decode"],
        &["ts", "bench"],
        &["cluster", "status"],
        &["cluster", "transfer"],
        &["completions"],
        &["man"],
        &["log", "offsets"],
        &["log", "salvage"],
        &["log", "backup"],
        &["log", "restore"],
    ] {
        let mut help = command(words);
        help.arg("--help");
        let help = run(help, b"").ok();
        let examples = help.text().split("Examples:").nth(1).unwrap_or_default();
        assert!(examples.contains(&format!("esker {}", words.join(" "))), "{words:?}");
    }
    // They fit a terminal as they are, so that no command is broken up.
    for words in [
        &["serve"][..],
        &["ts"],
        &["ts", "decode"],
        &["ts", "bench"],
        &["cluster", "status"],
        &["cluster", "transfer"],
        &["cluster", "add"],
        &["cluster", "remove"],
        &["cluster", "local"],
    ] {
        let mut help = command(words);
        help.arg("--help").env("COLUMNS", "1000");
        let help = run(help, b"").ok();
        let examples = help.text().split("\nExample").nth(1).unwrap();
        let wide = examples.lines().find(|line| line.chars().count() > 80);
        assert_eq!(wide, None, "{words:?}");
    }
    let help = run(command(&["--help"]), b"").ok();
    assert!(help.text().contains("Exit status: 0 done, 1 failed, 2 wrong usage"));
}

/// One page for each command, and completions that a shell takes.
#[test]
fn shells_and_man_know_the_commands() {
    let dir = tempfile::tempdir().unwrap();
    let pages = dir.path().join("man1");
    let mut man = command(&["man"]);
    man.arg(&pages);
    run(man, b"").ok();
    let page = std::fs::read_to_string(pages.join("esker-log-append.1")).unwrap();
    assert!(page.contains("keep\\-seq"), "{page}");
    assert!(pages.join("esker-cluster-status.1").exists());
    for shell in ["bash", "zsh", "fish"] {
        let completions = run(command(&["completions", shell]), b"").ok();
        assert!(completions.text().contains("keep-seq"), "{shell}");
    }
    let completions = run(command(&["completions", "bash"]), b"").ok();
    let mut check = std::process::Command::new("bash");
    check.arg("-n");
    run(check, completions.text().as_bytes()).ok();
    run(command(&["completions", "dos"]), b"").exits(2);
}
