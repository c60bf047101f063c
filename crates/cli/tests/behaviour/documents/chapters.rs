//! The commands of chapters are followed, in order, and print what these show.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;

use crate::esker::{command, run};

const OPERATIONS: &str = include_str!("../../../../../docs/src/operations.md");
const TOUR: &str = include_str!("../../../../../docs/src/tour.md");

/// The commands of a chapter, each with what it prints.
fn commands(chapter: &'static str) -> Vec<(&'static str, String)> {
    let mut commands: Vec<(&str, String)> = Vec::new();
    for block in chapter.split("\n```console\n").skip(1) {
        for line in block.split("\n```").next().unwrap().lines() {
            match line.strip_prefix("$ ") {
                Some(words) => commands.push((words, String::new())),
                None => *commands.last_mut().map(|(_, out)| out).unwrap() += &format!("{line}\n"),
            }
        }
    }
    commands
}

/// The text without what depends on the machine and on time: durations, rates and times, sizes, and
/// how many commits the input became.
fn comparable(text: &str) -> String {
    let words: Vec<&str> = text.split_inclusive([' ', '\n', ',']).collect();
    let is_of_the_run = |at: usize| {
        let unit =
            words.get(at + 1).map_or("", |unit| unit.trim_end_matches([' ', ',', ';', '\n']));
        let is_number = words[at].contains(|c: char| c.is_ascii_digit());
        words[at].starts_with("\"position\":")
            || words[at].starts_with("\"time\":")
            || is_number && matches!(unit, "s" | "MB/s)" | "bytes" | "commit")
    };
    let kept = |(at, word): (usize, &&str)| match is_of_the_run(at) {
        true => "# ".to_owned(),
        // One commit, or several.
        false => word.replace("units", "unit"),
    };
    words.iter().enumerate().map(kept).collect()
}

#[test]
fn chapter_on_operating_a_log_is_followed_command_by_command() {
    follow(OPERATIONS);
}

#[test]
fn tour_is_followed_command_by_command() {
    follow(TOUR);
}

fn follow(chapter: &'static str) {
    let dir = tempfile::tempdir().unwrap();
    let esker = command(&["log"]);
    let programs = Path::new(esker.get_program()).parent().unwrap().to_owned();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let commands = commands(chapter);
    assert!(commands.len() > 12, "{commands:?}");
    for (words, expected) in commands {
        let mut shell = Command::new("sh");
        shell.args(["-c", words]).current_dir(dir.path()).env("PATH", &path);
        let ended = run(shell, b"").ok();
        assert_eq!(comparable(ended.text()), comparable(&expected), "{words}");
    }
}
