//! The answer of a run, for people and as JSON.

use std::io::{self, Write};
use std::path::PathBuf;

use serde_json::json;

use super::verdict::Verdict;
use crate::record::recording::Recording;
use crate::search::candidates;

/// The most requests that the answer names.
const LOSABLE_SHOWN_MAX: usize = 20;

#[derive(Debug)]
pub struct Answer {
    pub verdict: Verdict,
    pub requests: u64,
    pub cuts: usize,
    /// The number of states that were checked.
    pub states: usize,
    /// The requests that were not durable when the program acknowledged, a sentence each.
    pub losable: Vec<String>,
    pub failing: Option<FailingState>,
    pub notes: Vec<String>,
}

/// The smallest state that the check refuses.
#[derive(Debug)]
pub struct FailingState {
    /// The name of the state, for `unplug replay --state`.
    pub id: String,
    pub sentence: String,
    pub timed_out: bool,
    /// Holds the directory (`state`), the output, and the log of the check.
    pub folder: PathBuf,
}

impl Answer {
    pub fn new(recording: &Recording) -> Self {
        Self {
            verdict: Verdict::NotMeasured,
            requests: recording.requests(),
            cuts: candidates::cuts(recording).count(),
            states: 0,
            losable: Vec::new(),
            failing: None,
            notes: Vec::new(),
        }
    }

    /// Adds a sentence for the user.
    pub fn note(&mut self, note: &str) {
        self.notes.push(note.to_owned());
    }

    pub fn print(&self, as_json: bool) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if as_json {
            return writeln!(out, "{}", self.json());
        }
        let (requests, cuts, states) = (self.requests, self.cuts, self.states);
        writeln!(
            out,
            "{}: {requests} requests, {cuts} cuts, {states} states",
            self.verdict.name()
        )?;
        if let Some(failing) = &self.failing {
            writeln!(out, "{}", failing.sentence)?;
            if failing.timed_out {
                writeln!(out, "the check did not end in time")?;
            }
            writeln!(out, "the directory: {}", failing.folder.join("state").display())?;
            writeln!(out, "the state, for unplug replay --state: {}", failing.id)?;
        }
        for line in self.losable.iter().take(LOSABLE_SHOWN_MAX) {
            writeln!(out, "  {line}")?;
        }
        let more = self.losable.len().saturating_sub(LOSABLE_SHOWN_MAX);
        if more > 0 {
            writeln!(out, "  and {more} more")?;
        }
        self.notes.iter().try_for_each(|note| writeln!(out, "note: {note}"))
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
        json!({
            "verdict": self.verdict.name(),
            "requests": self.requests,
            "cuts": self.cuts,
            "states": self.states,
            "losable": self.losable,
            "failing": failing,
            "notes": self.notes,
        })
    }
}
