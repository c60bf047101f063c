//! `--help` of every command ends with examples that name the command itself.

use crate::esker::{command, run};

#[test]
fn every_command_has_examples() {
    for words in [
        &["log", "append"][..],
        &["log", "cat"],
        &["stat"],
        &["verify"],
        &["repair"],
        &["log", "truncate"],
        &["kv", "put"],
        &["kv", "get"],
        &["kv", "del"],
        &["kv", "scan"],
        &["kv", "import"],
        &["kv", "export"],
        &["kv", "compact"],
        &["kv", "keyspaces"],
        &["bench", "floor"],
        &["serve"],
        &["ts"],
        &["ts", "decode"],
        &["sequence", "next"],
        &["sequence", "create"],
        &["sequence", "list"],
        &["cluster", "status"],
        &["cluster", "transfer"],
        &["tour"],
        &["completions"],
        &["man"],
        &["log", "offsets"],
        &["log", "salvage"],
        &["backup"],
        &["restore"],
    ] {
        let mut help = command(words);
        help.arg("--help");
        let help = run(help, b"").ok();
        let examples = help.text().split("Examples:").nth(1).unwrap_or_default();
        assert!(examples.contains(&format!("esker {}", words.join(" "))), "{words:?}");
    }
    let help = run(command(&["--help"]), b"").ok();
    assert!(help.text().contains("Exit status: 0 done, 1 failed, 2 wrong usage"));
}

/// The names of the commands in a help text.
fn subcommands(help: &str) -> Vec<String> {
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed = listed.take_while(|line| !line.is_empty());
    // A description may take more than one line.
    let listed = listed.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = listed.filter_map(|line| line.split_whitespace().next()).map(str::to_owned);
    names.filter(|name| name != "help").collect()
}

#[test]
fn every_help_fits_a_terminal() {
    let mut commands = vec![Vec::new()];
    let mut seen = 0;
    while let Some(words) = commands.pop() {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        for columns in ["80", "1000"] {
            let mut help = command(&words);
            help.arg("--help").env("COLUMNS", columns);
            let help = run(help, b"").ok();
            let wide = help.text().lines().find(|line| line.chars().count() > 80);
            assert_eq!(wide, None, "{words:?}");
            if columns == "80" {
                let with =
                    |name| words.iter().map(|word| (*word).to_owned()).chain([name]).collect();
                commands.extend(subcommands(help.text()).into_iter().map(with));
                seen += 1;
            }
        }
    }
    assert!(seen > 50, "{seen}");
}

/// Its options are in groups.
#[test]
fn the_help_of_append_has_groups() {
    let help = run(command(&["log", "append", "--help"]), b"").ok();
    let at = |text: &str| help.text().find(text).unwrap_or_else(|| panic!("no {text}"));
    let json = at("\n      --json ");
    assert!(at("\nOptions:") < json && json < at("\nStorage:"));
    assert!(at("\nStorage:") < at("  --dsync"));
    assert!(at("\nRetention:") < at("  --retain-age"));
    assert!(at("--dsync[=<on|off|auto>]") > 0);
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
