//! The end of a run: the answer against the baseline, its output and the exit status.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use clap::builder::NonEmptyStringValueParser;

use crate::record::recording::Recording;
use crate::report::answer::{Answer, ComparedCase};
use crate::report::baseline::{AcceptedAnswer, Baseline, Comparison};
use crate::report::page::ReportedRun;
use crate::report::verdict::Verdict;

/// The arguments for the answer.
#[derive(Debug, Args)]
pub struct OutcomeArguments {
    /// Print the answer as one JSON object
    #[arg(long)]
    pub json: bool,
    /// Compare the answer with that of the file: exit status 1 if it is worse, 0 if not
    #[arg(long, value_name = "FILE")]
    pub baseline: Option<PathBuf>,
    /// The name of this answer in the baseline [default: the program and its arguments]
    #[arg(
        long,
        value_name = "NAME",
        requires = "baseline",
        value_parser = NonEmptyStringValueParser::new()
    )]
    pub case: Option<String>,
    /// Write the answer to the baseline; refused where the environment has CI
    #[arg(long, requires = "baseline")]
    pub write_baseline: bool,
    /// Write the answer to a page of HTML, with the operations and the failing state
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

/// A run that has an answer.
pub struct AnsweredRun<'a> {
    pub recording: &'a Recording,
    pub answer: Answer,
    /// The program and its arguments, or the file of the recording.
    pub subject: &'a str,
    /// The file of the recording, if it was kept.
    pub file: Option<&'a Path>,
    pub check: Option<&'a str>,
}

impl OutcomeArguments {
    /// Refuses a baseline that CI would write, before anything runs.
    pub fn validate(&self) -> Result<()> {
        if self.write_baseline && std::env::var_os("CI").is_some() {
            bail!("--write-baseline is refused where the environment has CI");
        }
        Ok(())
    }

    /// Prints the answer and writes the report; returns the exit status.
    pub fn conclude(&self, run: AnsweredRun<'_>) -> Result<ExitCode> {
        let AnsweredRun { recording, mut answer, subject, file, check } = run;
        let mut code = answer.verdict.exit_code();
        if let Some(path) = &self.baseline {
            let case = self.case.as_deref().unwrap_or(subject);
            let mut baseline = Baseline::load(path)?;
            let compared = match AcceptedAnswer::new(&answer) {
                // The exit status says that nothing was measured.
                None => ComparedCase::new(case, "not compared"),
                Some(accepted) if self.write_baseline => {
                    code = ExitCode::SUCCESS;
                    baseline.insert(case, accepted);
                    baseline.save(path)?;
                    ComparedCase::new(case, "written")
                }
                Some(accepted) => {
                    let comparison = baseline.compare(case, &accepted);
                    code = match comparison {
                        Comparison::Same | Comparison::Better => ExitCode::SUCCESS,
                        Comparison::Worse(_) | Comparison::Missing => Verdict::Lost.exit_code(),
                    };
                    compared(case, comparison)
                }
            };
            answer.baseline = Some(compared);
        }
        answer.print(self.json)?;
        if let Some(path) = &self.report {
            ReportedRun { recording, answer: &answer, subject, file, check }.write(path)?;
        }
        Ok(code)
    }
}

fn compared(case: &str, comparison: Comparison) -> ComparedCase {
    match comparison {
        Comparison::Same => ComparedCase::new(case, "same"),
        Comparison::Better => ComparedCase::new(case, "better")
            .with("accept it with --write-baseline, so that it stays so".to_owned()),
        Comparison::Worse(differences) => {
            ComparedCase { differences, ..ComparedCase::new(case, "worse") }
        }
        Comparison::Missing => ComparedCase::new(case, "missing")
            .with("the file has no such case; add it with --write-baseline".to_owned()),
    }
}

/// Reports the cases of a baseline that have no answer; returns the exit status.
pub fn report_vanished(file: &Path, answers: &[PathBuf]) -> Result<ExitCode> {
    use std::io::Write;
    let baseline = Baseline::load(file)?;
    let vanished = baseline.vanished(answers)?;
    let mut out = std::io::stdout().lock();
    vanished.iter().try_for_each(|case| writeln!(out, "vanished: {case}"))?;
    Ok(if vanished.is_empty() { ExitCode::SUCCESS } else { Verdict::Lost.exit_code() })
}
