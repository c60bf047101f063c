//! The steps of `verify`. None of them changes a file.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::counts::Counts;
use crate::workspace::{self, PACKAGED};
use crate::{packages, public_api, tidy};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Fmt,
    Clippy,
    Test,
    Selftest,
    Features,
    Doc,
    Tidy,
    Deny,
    Book,
    Packages,
}

/// How a step ended.
pub enum Verdict {
    Ok,
    Failed,
    /// The reason for which the step did not run.
    Skipped(&'static str),
}

pub struct Outcome {
    pub verdict: Verdict,
    /// The counts of the test step.
    pub counts: Option<Counts>,
}

/// Lints that tests may break, and shipped code may not: the helpers of a test panic as it does,
/// and a test of many steps is one story.
const IN_TESTS: [&str; 8] = [
    "-Aclippy::panic",
    "-Aclippy::unwrap_used",
    "-Aclippy::expect_used",
    "-Aclippy::print_stdout",
    "-Aclippy::print_stderr",
    "-Aclippy::too_many_lines",
    "-Aclippy::type_complexity",
    "-Amissing_docs",
];

impl Step {
    pub const ALL: [Self; 10] = [
        Self::Fmt,
        Self::Clippy,
        Self::Test,
        Self::Selftest,
        Self::Features,
        Self::Doc,
        Self::Tidy,
        Self::Deny,
        Self::Book,
        Self::Packages,
    ];
    pub const WITHOUT_TESTS: [Self; 9] = [
        Self::Fmt,
        Self::Clippy,
        Self::Selftest,
        Self::Features,
        Self::Doc,
        Self::Tidy,
        Self::Deny,
        Self::Book,
        Self::Packages,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Fmt => "fmt",
            Self::Clippy => "clippy",
            Self::Test => "test",
            Self::Selftest => "selftest",
            Self::Features => "features",
            Self::Doc => "doc",
            Self::Tidy => "tidy",
            Self::Deny => "deny",
            Self::Book => "book",
            Self::Packages => "packages",
        }
    }

    pub fn run(self, root: &Path) -> Result<Outcome> {
        let cargo = |arguments: &[&str]| {
            let mut command = workspace::cargo();
            command.args(arguments).current_dir(root);
            command
        };
        match self {
            Self::Fmt => ended(cargo(&["fmt", "--all", "--check"])),
            Self::Clippy => {
                let strict = ["--", "-D", "warnings"];
                let shipped = ["clippy", "--workspace", "--features", PACKAGED];
                let shipped = ended(cargo(&[&shipped[..], &strict].concat()))?;
                if !matches!(shipped.verdict, Verdict::Ok) {
                    return Ok(shipped);
                }
                let all = format!("{PACKAGED},esker-lab/planted-bugs");
                let tests = ["clippy", "--workspace", "--features", &all, "--all-targets"];
                ended(cargo(&[&tests[..], &strict, &IN_TESTS].concat()))
            }
            Self::Test => counted(cargo(&["test", "--workspace"])),
            // Of the whole workspace, so that its dependencies are those that the tests have built.
            Self::Selftest => ended(cargo(&[
                "test",
                "--workspace",
                "--features",
                "esker-lab/planted-bugs",
                "--test",
                "selftest",
                "--",
                "--nocapture",
            ])),
            // What packages have and the default build has not.
            Self::Features => ended(cargo(&[
                "test",
                "--workspace",
                "--features",
                PACKAGED,
                "--test",
                "service",
                "--",
                "spans",
                "profile",
                "settings",
            ])),
            Self::Doc => {
                let documented = ended(public_api::rustdoc(root))?;
                if !matches!(documented.verdict, Verdict::Ok) {
                    return Ok(documented);
                }
                compared(root)
            }
            Self::Tidy => tidy::run(root).map(verdict),
            Self::Packages => packages::run(root).map(verdict),
            Self::Deny if !answers(cargo(&["deny", "--version"])) => {
                Ok(skipped("cargo-deny is not installed"))
            }
            Self::Deny => ended(cargo(&["deny", "check"])),
            Self::Book if !answers(version_of("mdbook")) => Ok(skipped("mdbook is not installed")),
            Self::Book => {
                let mut command = Command::new("mdbook");
                command.arg("build").arg(root.join("docs"));
                command.arg("--dest-dir").arg(root.join("target/book"));
                ended(command)
            }
        }
    }
}

/// Whether the lists of the public API are those of the code.
fn compared(root: &Path) -> Result<Outcome> {
    let Some(stale) = public_api::compare(root)? else {
        return Ok(skipped("public-api does not read the JSON of this compiler's rustdoc"));
    };
    for file in &stale {
        println!("{} differs from the code; write it with: cargo xtask api", file.display());
    }
    Ok(verdict(stale.is_empty()))
}

fn verdict(passed: bool) -> Outcome {
    let verdict = if passed { Verdict::Ok } else { Verdict::Failed };
    Outcome { verdict, counts: None }
}

fn skipped(why: &'static str) -> Outcome {
    Outcome { verdict: Verdict::Skipped(why), counts: None }
}

fn ended(mut command: Command) -> Result<Outcome> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    Ok(verdict(status.success()))
}

/// Runs `command`, passes its output on line by line, and adds up the counts in it.
fn counted(mut command: Command) -> Result<Outcome> {
    command.stdout(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
    let mut output = BufReader::new(child.stdout.take().context("no standard output")?);
    let mut counts = Counts::default();
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line)? > 0 {
        let mut ours = std::io::stdout().lock();
        ours.write_all(&line)?;
        ours.flush()?;
        counts.add_line(&String::from_utf8_lossy(&line));
        line.clear();
    }
    let passed = child.wait()?.success();
    if !passed && counts.failed == 0 {
        // Nothing compiled, or a test took its process down before it could be counted.
        counts.failed = 1;
    }
    Ok(Outcome { counts: Some(counts), ..verdict(passed) })
}

fn version_of(program: &str) -> Command {
    let mut command = Command::new(program);
    command.arg("--version");
    command
}

fn answers(mut command: Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
