//! Runs the cited tests of a list without a mutation, and then each mutation with its test.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::bounded::{self, Interrupt, ProcessEnd};
use super::scratch::Scratch;
use crate::mutations::{Mutation, Mutations, Target, TestPath};
use crate::workspace;

const BUILD_LIMIT: Duration = Duration::from_secs(20 * 60);
const BASELINE_LIMIT: Duration = Duration::from_secs(10 * 60);
/// How long a test may take with a mutation. A test that takes longer has to pass within it
/// without the mutation.
const TEST_LIMIT: Duration = Duration::from_secs(60);

/// The outcome of a mutation.
pub enum Ending {
    Caught { how: &'static str },
    Escaped,
    Untried(Doubt),
}

/// Why a trial says nothing about the test, with the output that shows it.
pub struct Doubt {
    pub why: String,
    pub output: String,
}

pub struct Trial {
    pub ending: Ending,
    pub seconds: f64,
}

/// A test binary: the folder of its package, and its target.
type Binary<'a> = (&'a str, &'a Target);

pub struct Trials<'a> {
    scratch: &'a Scratch,
    interrupt: &'a Interrupt,
    /// The folder of the crate that lists the mutations, from the root.
    folder: &'a str,
    /// The run of each binary's cited tests without a mutation.
    baselines: BTreeMap<Binary<'a>, ProcessEnd>,
}

impl<'a> Trials<'a> {
    /// Builds and runs the cited tests without a mutation: all of a binary at once.
    pub fn begin(
        scratch: &'a Scratch,
        interrupt: &'a Interrupt,
        folder: &'a str,
        mutations: &'a Mutations,
    ) -> Result<Self> {
        let mut binaries = BTreeMap::<Binary<'a>, BTreeSet<&'a TestPath>>::new();
        for Mutation { test, .. } in mutations.values() {
            binaries.entry((&test.package, &test.target)).or_default().insert(test);
        }
        let mut trials = Self { scratch, interrupt, folder, baselines: BTreeMap::new() };
        for (binary, tests) in binaries {
            let build = trials.build(binary)?;
            let output = &build.output;
            ensure!(succeeded(&build), "{output}\nthe tree does not compile without a mutation");
            let baseline = trials.test(binary, tests, BASELINE_LIMIT)?;
            trials.baselines.insert(binary, baseline);
        }
        Ok(trials)
    }

    pub fn run(&self, mutation: &Mutation) -> Result<Trial> {
        let start = Instant::now();
        let ending = self.ending(mutation)?;
        Ok(Trial { ending, seconds: start.elapsed().as_secs_f64() })
    }

    fn ending(&self, mutation: &Mutation) -> Result<Ending> {
        let test = &mutation.test;
        let binary = (test.package.as_str(), &test.target);
        let doubt = |why: &str, output: &str| {
            Ok(Ending::Untried(Doubt { why: why.to_owned(), output: output.to_owned() }))
        };
        let Some(baseline) = self.baselines.get(&binary) else {
            return doubt("its test was not run without the mutation", "");
        };
        if !passed(&baseline.output, test) {
            return doubt("its test does not pass without the mutation", &baseline.output);
        }
        let applied = match self.scratch.mutate(self.folder, mutation) {
            Ok(applied) => applied,
            Err(error) => return doubt(&format!("{error:#}"), ""),
        };
        let build = self.build(binary)?;
        if !succeeded(&build) {
            return doubt("the tree does not compile with the mutation", &build.output);
        }
        let run = self.test(binary, [test], TEST_LIMIT)?;
        if run.status.is_some() {
            return Ok(judge(test, &run));
        }
        drop(applied);
        self.build(binary)?;
        let without = self.test(binary, [test], TEST_LIMIT)?;
        if !passed(&without.output, test) {
            return doubt("its test is too slow without the mutation", &without.output);
        }
        Ok(Ending::Caught { how: "its test hangs" })
    }

    fn build(&self, binary: Binary<'_>) -> Result<ProcessEnd> {
        let mut command = self.cargo_test(binary);
        command.arg("--no-run");
        bounded::run(command, BUILD_LIMIT, self.interrupt)
    }

    fn test<'t>(
        &self,
        binary: Binary<'_>,
        tests: impl IntoIterator<Item = &'t TestPath>,
        limit: Duration,
    ) -> Result<ProcessEnd> {
        let mut command = self.cargo_test(binary);
        command.args(["--", "--exact"]).args(tests.into_iter().flat_map(TestPath::candidates));
        bounded::run(command, limit, self.interrupt)
    }

    fn cargo_test(&self, (package, target): Binary<'_>) -> Command {
        let folder = self.scratch.source().join(self.folder).join(package);
        let mut command = workspace::cargo();
        command.arg("test").current_dir(folder).env("CARGO_TARGET_DIR", self.scratch.target());
        match target {
            Target::Lib => command.arg("--lib"),
            Target::Test(binary) => command.args(["--test", binary]),
        };
        // A mutation changes one function: build no more than that again.
        command.env("CARGO_INCREMENTAL", "1").env("CARGO_PROFILE_DEV_CODEGEN_UNITS", "256");
        command.env("CARGO_PROFILE_DEV_DEBUG", "none");
        command
    }
}

fn succeeded(run: &ProcessEnd) -> bool {
    run.status.is_some_and(|status| status.success())
}

fn judge(test: &TestPath, run: &ProcessEnd) -> Ending {
    if !succeeded(run) {
        return Ending::Caught { how: "" };
    }
    if passed(&run.output, test) {
        return Ending::Escaped;
    }
    Ending::Untried(Doubt { why: "its test does not run".to_owned(), output: run.output.clone() })
}

/// Whether the output has the line `test NAME ... ok`.
fn passed(output: &str, test: &TestPath) -> bool {
    output.lines().any(|line| {
        let name = line.strip_prefix("test ").and_then(|line| line.strip_suffix(" ... ok"));
        name.is_some_and(|name| {
            let name = name.trim_end_matches(" - should panic");
            test.candidates().iter().any(|candidate| candidate == name)
        })
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    fn judged(code: i32, output: &str) -> Ending {
        let test = TestPath::try_from("tests/b.rs::lost".to_owned()).unwrap();
        let status = Some(ExitStatus::from_raw(code << 8));
        judge(&test, &ProcessEnd { status, output: output.into() })
    }

    #[test]
    fn a_passing_test_lets_the_mutation_escape() {
        assert!(matches!(judged(0, "test lost ... ok\n"), Ending::Escaped));
        assert!(matches!(judged(0, "test lost - should panic ... ok\n"), Ending::Escaped));
    }

    #[test]
    fn a_test_that_fails_catches_it() {
        assert!(matches!(judged(101, "test lost ... FAILED\n"), Ending::Caught { .. }));
    }

    #[test]
    fn a_test_that_did_not_run_proves_nothing() {
        assert!(matches!(judged(0, "test elsewhere::lost ... ok\n"), Ending::Untried(_)));
    }
}
