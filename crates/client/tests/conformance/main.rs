//! Runs the conformance suite for clients, `clients/conformance`, against this crate and against
//! the clients in other languages. Each case counts as a test.
//!
//! Arguments choose drivers by their names, and `mistakes` the clients with mistakes that the suite
//! has to find; options of other tests are ignored. With `--driver` the program is the driver of
//! this crate.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod driver;

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread;

use serde_json::Value;

/// The cases that the Rust client may skip: it asks for ranges alone.
const SKIPPED_BY_RUST: &[&str] = &["list_format_is_read_and_checked"];

/// The cases that the Python client may skip: it speaks HTTP/1.1.
const SKIPPED_BY_PYTHON: &[&str] = &["silent_connection_is_probed"];

/// The cases that the Go client may skip: it makes no changes, and has no token.
const SKIPPED_BY_GO: &[&str] = &[
    "token_is_sent_with_changes_alone",
    "change_that_is_denied_is_not_repeated",
    "change_that_may_have_been_made_is_not_repeated",
    "change_that_was_not_made_is_sent_again",
    "closed_client_fails_its_changes",
    "token_goes_to_no_host_that_is_no_host_and_port",
    "unusable_tokens_are_refused",
];

/// The cases for the Python client of threads: it wraps that of asyncio.
const OF_THREADS: &[&str] = &["cancel", "change", "closed", "deadline_of", "queue", "share"];

/// The driver of a client.
struct Driver {
    name: &'static str,
    command: String,
    /// The cases that it may skip.
    skips: &'static [&'static str],
    /// The cases whose names contain one of these; all without any.
    only: &'static [&'static str],
}

#[derive(Default)]
struct Counts {
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

fn main() -> ExitCode {
    if env::args().nth(1).is_some_and(|word| word == "--driver") {
        driver::run();
        return ExitCode::SUCCESS;
    }
    let words: Vec<_> = env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients").canonicalize();
    let clients = clients.unwrap();
    let mut counts = Counts::default();
    if has("python3") {
        let is_chosen = |name: &str| words.is_empty() || words.iter().any(|word| word == name);
        let mut found = drivers(&clients);
        found.retain(|driver| is_chosen(driver.name));
        // Beside each other: most of a case is waiting.
        thread::scope(|scope| {
            let clients = &*clients;
            let suites = found.iter().map(|driver| scope.spawn(|| run_suite(clients, driver)));
            let mut suites: Vec<_> = suites.collect();
            // Not by default: a machine that is busy hides mistakes in the waits of a client.
            if words.iter().any(|word| word == "mistakes") {
                suites.push(scope.spawn(|| find_mistakes(clients, "python")));
                if has("go") {
                    suites.push(scope.spawn(|| find_mistakes(clients, "go")));
                }
            }
            for suite in suites {
                counts.add(&suite.join().unwrap());
            }
        });
    } else {
        println!("skipped: no python3: the conformance of clients");
        counts.skipped += 1;
    }
    let Counts { passed, failed, skipped } = counts;
    let result = if failed == 0 { "ok" } else { "FAILED" };
    println!("\ntest result: {result}. {passed} passed; {failed} failed; {skipped} ignored;");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn has(program: &str) -> bool {
    let version = if program == "go" { "version" } else { "--version" };
    let mut command = Command::new(program);
    let status = command.arg(version).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// The drivers of the clients whose languages this machine has.
fn drivers(clients: &Path) -> Vec<Driver> {
    let driver = |name, skips, command| Driver { name, command, skips, only: &[] };
    let own = quote(&env::current_exe().unwrap());
    let python = quote(&clients.join("python/conformance_driver.py"));
    let threads = driver("threads", SKIPPED_BY_PYTHON, format!("python3 {python} --threads"));
    let mut found = vec![
        driver("rust", SKIPPED_BY_RUST, format!("{own} --driver")),
        driver("python", SKIPPED_BY_PYTHON, format!("python3 {python}")),
        Driver { only: OF_THREADS, ..threads },
    ];
    let path = clients.join("typescript/conformance/driver.js");
    if path.exists() && has("node") {
        found.push(driver("typescript", &[], format!("node {}", quote(&path))));
    } else {
        println!("skipped: no node: the conformance of the TypeScript client");
    }
    if clients.join("go").exists() && has("go") {
        found.push(driver("go", SKIPPED_BY_GO, quote(&build_go_driver(clients))));
    } else {
        println!("skipped: no go: the conformance of the Go client");
    }
    found
}

/// Quotes a path as a word of a shell.
fn quote(path: &Path) -> String {
    format!("'{}'", path.to_str().unwrap().replace('\'', "'\\''"))
}

fn build_go_driver(clients: &Path) -> PathBuf {
    let path = env::current_exe().unwrap().with_file_name("conformance-driver-go");
    let mut build = Command::new("go");
    build.current_dir(clients.join("go")).arg("build").arg("-o").arg(&path).arg("./conformance");
    assert!(build.status().unwrap().success(), "go build failed");
    path
}

fn run_suite(clients: &Path, driver: &Driver) -> Counts {
    let mut counts = Counts::default();
    let mut suite = Command::new("python3");
    suite.current_dir(clients).args(["-m", "conformance", "--json", "--driver", &driver.command]);
    suite.args(driver.only.iter().flat_map(|text| ["--only", text]));
    let output = suite.stderr(Stdio::inherit()).output().unwrap();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let done: Value = serde_json::from_str(line).unwrap();
        let text = |key: &str| done[key].as_str().unwrap().to_owned();
        let (case, why) = (text("case"), text("why"));
        let name = format!("{}::{case}", driver.name);
        match text("result").as_str() {
            "passed" => {
                counts.passed += 1;
                println!("test {name} ... ok");
            }
            "skipped" if driver.skips.contains(&case.as_str()) || why == "no command openssl" => {
                counts.skipped += 1;
                println!("test {name} ... ignored\nskipped: {name}: {why}");
            }
            _ => {
                counts.failed += 1;
                println!("test {name} ... FAILED\n{}: {why}", text("requirement"));
            }
        }
    }
    let ran = counts.passed + counts.failed + counts.skipped;
    if ran == 0 || (!output.status.success() && counts.failed == 0) {
        counts.failed += 1;
        println!("test {}::suite ... FAILED\nthe suite ended with {}", driver.name, output.status);
    }
    counts
}

/// The suite has to find each of the mistakes that are planted in this client.
fn find_mistakes(clients: &Path, client: &str) -> Counts {
    let mut counts = Counts::default();
    let mut suite = Command::new("python3");
    suite.current_dir(clients).args(["-m", "conformance.mistakes", "--client", client]);
    let output = suite.output().unwrap();
    if output.status.success() {
        counts.passed += 1;
        println!("test mistakes::{client} ... ok");
    } else {
        counts.failed += 1;
        let said = [output.stdout, output.stderr].concat();
        println!("test mistakes::{client} ... FAILED\n{}", String::from_utf8_lossy(&said));
    }
    counts
}
