//! Running the built commands, as a user does.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "a part of tests")]

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, Once};
use std::time::{Duration, Instant};

/// The outcome of a command: its status, and what it wrote.
#[derive(Debug)]
pub struct CommandOutput {
    pub status: i32,
    pub out: Vec<u8>,
    pub err: String,
}

impl CommandOutput {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.out).unwrap()
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.out).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    #[track_caller]
    pub fn ok(self) -> Self {
        self.exits(0)
    }

    #[track_caller]
    pub fn exits(self, status: i32) -> Self {
        assert_eq!(self.status, status, "{:?}\n{}", String::from_utf8_lossy(&self.out), self.err);
        self
    }

    /// Asserts that nothing was written to standard error.
    #[track_caller]
    pub fn says_nothing(self) -> Self {
        assert_eq!(self.err, "");
        self
    }

    /// Asserts that standard error is one line with all of these words.
    #[track_caller]
    pub fn says(self, words: &[&str]) -> Self {
        assert_eq!(self.err.lines().count(), 1, "{}", self.err);
        for word in words {
            assert!(self.err.contains(word), "{word:?} is not in: {}", self.err);
        }
        self
    }
}

/// A program of this build, with arguments.
pub fn program<S: AsRef<OsStr>>(name: &str, arguments: &[S]) -> Command {
    // A test is in `deps`, below the programs.
    let test = std::env::current_exe().unwrap();
    let path = test.parent().and_then(Path::parent).unwrap().join(name);
    assert!(path.exists(), "{} is not built: run `cargo build --workspace`", path.display());
    let mut command = Command::new(path);
    command.args(arguments);
    command
}

/// `esker` with arguments.
pub fn command<S: AsRef<OsStr>>(arguments: &[S]) -> Command {
    program("esker", arguments)
}

/// The words of a command: those for the directory of any component have no word before the verb.
pub fn words<'a>(component: &'a str, verb: &'a str) -> Vec<&'a str> {
    match verb {
        "stat" | "verify" | "repair" | "backup" | "restore" => vec![verb],
        _ => vec![component, verb],
    }
}

/// Runs a command for a log on a directory.
pub fn log(verb: &str, dir: &Path, flags: &[&str], input: &[u8]) -> CommandOutput {
    let mut command = command(&words("log", verb));
    command.arg(dir).args(flags);
    run(command, input)
}

/// Runs a command for a key-value store on a directory.
pub fn kv(dir: &Path, verb_and_flags: &[&str], input: &[u8]) -> CommandOutput {
    let mut all = command(&words("kv", verb_and_flags[0]));
    all.arg(dir).args(&verb_and_flags[1..]);
    run(all, input)
}

/// Starts a command whose output and errors can be read.
pub fn spawn(command: &mut Command, input: Stdio) -> Child {
    command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Starts `esker log cat --follow`.
pub fn follow(dir: &Path) -> Child {
    spawn(command(&["log", "cat", "--follow"]).arg(dir), Stdio::null())
}

/// Runs to the end.
pub fn run(mut command: Command, input: &[u8]) -> CommandOutput {
    let mut child = spawn(&mut command, Stdio::piped());
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // It may end before it has read everything.
    let feeder = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let ended = end(child);
    feeder.join().unwrap();
    ended
}

/// Waits for the end.
pub fn end(child: Child) -> CommandOutput {
    let output = child.wait_with_output().unwrap();
    CommandOutput {
        status: output.status.code().unwrap_or(-1),
        out: output.stdout,
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The tests end this long after the last one began, and with them the commands they started: their
/// pipes close.
const HANG_TIMEOUT: Duration = Duration::from_secs(300);

/// A directory for a log that is not there yet, and its guard.
pub fn workdir() -> (tempfile::TempDir, PathBuf) {
    static WATCHDOG: Once = Once::new();
    static LAST: Mutex<Option<Instant>> = Mutex::new(None);
    *LAST.lock().unwrap() = Some(Instant::now());
    WATCHDOG.call_once(|| {
        std::thread::spawn(|| {
            while LAST.lock().unwrap().is_some_and(|last| last.elapsed() < HANG_TIMEOUT) {
                std::thread::sleep(Duration::from_secs(1));
            }
            println!("a test hangs");
            std::process::exit(101);
        });
    });
    let guard = tempfile::tempdir().unwrap();
    let dir = guard.path().join("log");
    (guard, dir)
}

/// The segment files, in order.
pub fn segments(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<_> = entries.filter(|p| p.extension().is_some_and(|e| e == "seg")).collect();
    all.sort();
    all
}

/// Numbered lines.
pub fn lines(from: u64, to: u64) -> String {
    (from..=to).map(|n| format!("line {n}\n")).collect()
}

pub fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").arg(format!("-{name}")).arg(child.id().to_string()).status();
    assert!(sent.unwrap().success());
}

/// Tries until it holds; fails after twenty seconds.
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(20), "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Reads until `count` lines came.
pub fn read_lines(out: &mut impl Read, count: usize) -> String {
    let mut text = Vec::new();
    let mut byte = [0];
    while text.iter().filter(|b| **b == b'\n').count() < count && out.read(&mut byte).unwrap() > 0 {
        text.push(byte[0]);
    }
    String::from_utf8(text).unwrap()
}
