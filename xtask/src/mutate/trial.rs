//! Runs one mutation: baseline, mutate, compile, run, classify.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::bounded::{self, Finished, Interrupt};
use super::scratch::Scratch;
use crate::counts::Counts;
use crate::mutations::Mutation;
use crate::workspace;

const BUILD_LIMIT: Duration = Duration::from_secs(20 * 60);

/// What came of a mutation.
pub enum Ending {
    /// By these tests, or by the sentence that replaces them.
    Caught {
        by: Vec<String>,
    },
    Escaped {
        why: String,
    },
    Untried(Doubt),
}

/// Why a trial says nothing about the test, with the output that shows it.
#[derive(Clone)]
pub struct Doubt {
    pub why: String,
    pub output: String,
}

/// All that decides how a run without a mutation ends: the test, and its environment.
type Setting = (String, BTreeMap<String, String>);

pub struct Trial {
    pub ending: Ending,
    pub seconds: f64,
}

/// Runs trials, and remembers which tests pass without a mutation.
pub struct Trials<'a> {
    scratch: &'a Scratch,
    interrupt: &'a Interrupt,
    /// What speaks against each test; `None` where the tests are not run without the mutation.
    baselines: Option<BTreeMap<Setting, Option<Doubt>>>,
}

impl<'a> Trials<'a> {
    pub fn new(scratch: &'a Scratch, interrupt: &'a Interrupt, baseline: bool) -> Self {
        Self { scratch, interrupt, baselines: baseline.then(BTreeMap::new) }
    }

    pub fn run(&mut self, mutation: &Mutation) -> Result<Trial> {
        let start = Instant::now();
        let ending = match self.baseline(mutation)? {
            Some(doubt) => Ending::Untried(doubt),
            None => self.with_mutation(mutation)?,
        };
        Ok(Trial { ending, seconds: start.elapsed().as_secs_f64() })
    }

    /// What speaks against the test, if it does not pass without the mutation.
    fn baseline(&mut self, mutation: &Mutation) -> Result<Option<Doubt>> {
        let Some(known) = &self.baselines else { return Ok(None) };
        let setting = (mutation.test.clone(), mutation.env.clone());
        if let Some(doubt) = known.get(&setting) {
            return Ok(doubt.clone());
        }
        let doubt = self.without_mutation(mutation)?;
        if let Some(known) = &mut self.baselines {
            known.insert(setting, doubt.clone());
        }
        Ok(doubt)
    }

    fn without_mutation(&self, mutation: &Mutation) -> Result<Option<Doubt>> {
        let build = self.build(mutation)?;
        if !build.status.is_some_and(|status| status.success()) {
            let why = "the tree does not compile without the mutation".into();
            return Ok(Some(Doubt { why, output: build.output }));
        }
        let run = self.test(mutation)?;
        let why = match run.status {
            None => "the test runs into its time limit without the mutation",
            Some(status) if !status.success() => "the test fails without the mutation",
            Some(_) if Counts::of(&run.output).passed == 0 => "no test runs: look at `test`",
            Some(_) => return Ok(None),
        };
        Ok(Some(Doubt { why: why.into(), output: run.output }))
    }

    fn with_mutation(&self, mutation: &Mutation) -> Result<Ending> {
        let _applied = match self.scratch.mutate(mutation) {
            Ok(applied) => applied,
            Err(error) => {
                let doubt = Doubt { why: format!("{error:#}"), output: String::new() };
                return Ok(Ending::Untried(doubt));
            }
        };
        let build = self.build(mutation)?;
        if !build.status.is_some_and(|status| status.success()) {
            let why = "the tree does not compile with the mutation".into();
            return Ok(Ending::Untried(Doubt { why, output: build.output }));
        }
        Ok(judge(mutation, &self.test(mutation)?))
    }

    fn build(&self, mutation: &Mutation) -> Result<Finished> {
        let (ours, _) = arguments(&mutation.test);
        let mut command = self.cargo_test(mutation);
        command.args(ours).arg("--no-run");
        bounded::run(command, BUILD_LIMIT, self.interrupt)
    }

    fn test(&self, mutation: &Mutation) -> Result<Finished> {
        let (ours, theirs) = arguments(&mutation.test);
        let mut command = self.cargo_test(mutation);
        command.args(ours).arg("--").args(theirs);
        bounded::run(command, Duration::from_secs(mutation.limit_s), self.interrupt)
    }

    fn cargo_test(&self, mutation: &Mutation) -> Command {
        let mut command = workspace::cargo();
        command.arg("test").current_dir(self.scratch.source());
        command.envs(&mutation.env).env("CARGO_TARGET_DIR", self.scratch.target());
        command
    }
}

/// The arguments of cargo and those of the test binary, without a leading `cargo test`.
fn arguments(test: &str) -> (Vec<&str>, Vec<&str>) {
    let mut words: Vec<&str> = test.split_whitespace().collect();
    if words.starts_with(&["cargo", "test"]) {
        words.drain(..2);
    }
    match words.iter().position(|word| *word == "--") {
        Some(at) => {
            let theirs = words.split_off(at + 1);
            words.pop();
            (words, theirs)
        }
        None => (words, Vec::new()),
    }
}

fn judge(mutation: &Mutation, run: &Finished) -> Ending {
    let by = match run.status {
        None if mutation.hang => vec!["(ran into its time limit)".to_owned()],
        None => {
            let why =
                format!("ran into the limit of {} s, and `hang` is not set", mutation.limit_s);
            return Ending::Escaped { why };
        }
        Some(status) if status.success() => return Ending::Escaped { why: "passed".into() },
        Some(_) => match failed(&run.output) {
            names if names.is_empty() => vec!["(the test process died)".to_owned()],
            names => names,
        },
    };
    match &mutation.expect {
        Some(expected) if !run.output.contains(expected) => {
            let by = by.join(", ");
            Ending::Escaped { why: format!("{by} failed, but without saying {expected:?}") }
        }
        _ => Ending::Caught { by },
    }
}

/// The names in the lines `test NAME ... FAILED`.
fn failed(output: &str) -> Vec<String> {
    let mut names: Vec<String> = output
        .lines()
        .filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"))
        .map(|name| name.trim_end_matches(" - should panic").to_owned())
        .collect();
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    fn mutation(more: &str) -> Mutation {
        let text = "[[mutation]]\nid='a'\nfile='x.rs'\nfind='b'\nreplace='c'\ntest='-p x'\n";
        crate::mutations::parse(&format!("{text}{more}")).unwrap().remove(0)
    }

    fn ended(code: i32, output: &str) -> Finished {
        Finished { status: Some(ExitStatus::from_raw(code << 8)), output: output.into() }
    }

    #[test]
    fn a_passing_test_lets_the_mutation_escape() {
        let run = ended(0, "test result: ok. 3 passed; 0 failed; 0 ignored;");
        assert!(matches!(judge(&mutation(""), &run), Ending::Escaped { .. }));
    }

    #[test]
    fn a_failing_test_is_named() {
        let run = ended(101, "test b::fine ... ok\ntest b::lost ... FAILED\ntest c ... FAILED\n");
        let Ending::Caught { by } = judge(&mutation(""), &run) else { panic!("not caught") };
        assert_eq!(by, ["b::lost", "c"]);
    }

    #[test]
    fn a_hang_counts_only_where_it_may() {
        let run = Finished { status: None, output: String::new() };
        assert!(matches!(judge(&mutation(""), &run), Ending::Escaped { .. }));
        assert!(matches!(judge(&mutation("hang = true\n"), &run), Ending::Caught { .. }));
    }

    #[test]
    fn the_failure_has_to_be_the_expected_one() {
        let strict = mutation("expect = 'lost record'\n");
        let other = ended(101, "test c ... FAILED\nno such file");
        assert!(matches!(judge(&strict, &other), Ending::Escaped { .. }));
        let right = ended(101, "test c ... FAILED\nlost record 7");
        assert!(matches!(judge(&strict, &right), Ending::Caught { .. }));
    }

    #[test]
    fn arguments_are_cut_at_the_dashes() {
        assert_eq!(
            arguments("cargo test -p x --test y -- one --exact"),
            (vec!["-p", "x", "--test", "y"], vec!["one", "--exact"])
        );
        assert_eq!(arguments("-p x"), (vec!["-p", "x"], vec![]));
    }
}
