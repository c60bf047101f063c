//! The answer of a run, for people and as JSON.

use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;

use serde_json::json;

use super::verdict::Verdict;
use crate::record::recording::Recording;
use crate::search::candidates;

/// The most requests that the answer names.
const LOSABLE_SHOWN_MAX: usize = 20;

/// The answer for a recording. Displays as the command prints it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Answer {
    /// Whether everything survives.
    pub verdict: Verdict,
    /// The number of requests that changed something or made it durable.
    pub requests: u64,
    /// The number of places for a power cut.
    pub cuts: usize,
    /// The number of states that were checked.
    pub states: usize,
    /// The requests that were not durable when the program acknowledged, a sentence each.
    pub losable: Vec<String>,
    /// The smallest state that the check refuses.
    pub failing: Option<FailingState>,
    /// Sentences for the user, such as why nothing was measured.
    pub notes: Vec<String>,
    /// The answer against a baseline.
    pub(crate) baseline: Option<ComparedCase>,
}

/// A case of a baseline, and its answer now.
#[derive(Debug)]
pub(crate) struct ComparedCase {
    pub case: String,
    /// `same`, `better`, `worse`, `missing`, `written` or `not compared`.
    pub result: &'static str,
    pub differences: Vec<String>,
}

/// The smallest state that the check refuses.
#[derive(Debug)]
#[non_exhaustive]
pub struct FailingState {
    /// The name of the state, for `unplug replay --state`.
    pub id: String,
    /// The lost requests, and those that survived without being durable.
    pub sentence: String,
    /// Whether the check did not end in time.
    pub timed_out: bool,
    /// Holds the directory (`state`), the output, and the log of the check.
    pub folder: PathBuf,
}

impl Answer {
    pub(crate) fn new(recording: &Recording) -> Self {
        Self {
            verdict: Verdict::NotMeasured,
            requests: recording.requests(),
            cuts: candidates::cuts(recording).count(),
            states: 0,
            losable: Vec::new(),
            failing: None,
            notes: Vec::new(),
            baseline: None,
        }
    }

    /// Adds a sentence for the user.
    pub(crate) fn note(&mut self, note: &str) {
        self.notes.push(note.to_owned());
    }

    /// Prints the answer as text or as one JSON object.
    pub(crate) fn print(&self, as_json: bool) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if as_json { writeln!(out, "{}", self.json()) } else { write!(out, "{self}") }
    }

    fn json(&self) -> serde_json::Value {
        let failing = self.failing.as_ref().map(|failing| {
            json!({
                "state": failing.id,
                "sentence": failing.sentence,
                "timed_out": failing.timed_out,
                "folder": failing.folder,
            })
        });
        let baseline = self.baseline.as_ref().map(|compared| {
            json!({
                "case": compared.case,
                "result": compared.result,
                "differences": compared.differences,
            })
        });
        json!({
            "verdict": self.verdict.name(),
            "requests": self.requests,
            "cuts": self.cuts,
            "states": self.states,
            "losable": self.losable,
            "failing": failing,
            "notes": self.notes,
            "baseline": baseline,
        })
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (requests, cuts, states) = (self.requests, self.cuts, self.states);
        let verdict = self.verdict.name();
        writeln!(f, "{verdict}: {requests} requests, {cuts} cuts, {states} states")?;
        if let Some(failing) = &self.failing {
            writeln!(f, "{}", failing.sentence)?;
            if failing.timed_out {
                writeln!(f, "the check did not end in time")?;
            }
            writeln!(f, "the directory: {}", failing.folder.join("state").display())?;
            writeln!(f, "the state, for unplug replay --state: {}", failing.id)?;
        }
        for line in self.losable.iter().take(LOSABLE_SHOWN_MAX) {
            writeln!(f, "  {line}")?;
        }
        let more = self.losable.len().saturating_sub(LOSABLE_SHOWN_MAX);
        if more > 0 {
            writeln!(f, "  and {more} more")?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "note: {note}"))?;
        if let Some(ComparedCase { case, result, differences }) = &self.baseline {
            writeln!(f, "baseline: {result}: {case}")?;
            differences.iter().try_for_each(|difference| writeln!(f, "  {difference}"))?;
        }
        Ok(())
    }
}

impl ComparedCase {
    pub fn new(case: &str, result: &'static str) -> Self {
        Self { case: case.to_owned(), result, differences: Vec::new() }
    }

    pub fn with(mut self, difference: String) -> Self {
        self.differences.push(difference);
        self
    }
}
