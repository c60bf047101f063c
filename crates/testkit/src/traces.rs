//! Evidence, in the files of a log, of how far the log was durable.
//!
//! The contract: a commit unit, the watermark page, and the manifest written by an open or a clean
//! close each carry a durable lower bound. A unit is therefore evidence for the records of the
//! steps before its own. The page and the manifest are evidence for those of their own step too.
//! Where all such evidence is corrupt or lost in the crash, it is undecidable whether the records
//! were durable. Where some of it is intact, those records must not be missing silently.

use crate::changes::{BLOCK_BYTES, Changes, Lasting, Written};
use crate::files::Files;

/// File names of the log.
#[derive(Debug, Clone, Copy)]
pub struct Names {
    /// The watermark page.
    pub page: &'static str,
    /// The manifest.
    pub manifest: &'static str,
    /// The suffix of segment file names.
    pub segment: &'static str,
}

/// The kinds of steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Records were acknowledged.
    Acknowledged {
        /// The page is already durable: no power cut loses it.
        page_is_synced: bool,
    },
    /// The log was opened. Records found without a durable lower bound became durable in this step.
    Opened,
    /// The log was closed cleanly.
    Closed,
    /// Another step, or one that a power cut ended.
    Other,
}

#[derive(Debug, Clone, Default)]
struct Step {
    /// Evidence for what was durable before the step.
    before: Vec<Written>,
    /// Evidence for what was durable with the step.
    with: Vec<Written>,
    page_is_synced: bool,
}

/// The evidence of all steps.
#[derive(Debug, Clone)]
pub struct Traces {
    names: Names,
    steps: Vec<Step>,
    lasting: Lasting,
}

impl Traces {
    /// Creates an empty history of steps.
    pub fn new(names: Names) -> Self {
        Self { names, steps: Vec::new(), lasting: Lasting::default() }
    }

    /// Returns the number of the next step.
    pub fn next(&self) -> usize {
        self.steps.len()
    }

    /// Records the end of a step that left these files. `is_of_step` returns whether bytes hold a
    /// record of the step. If so, they are a commit unit, and not a header, a footer, or moved
    /// data.
    pub fn step(&mut self, kind: Kind, files: &Files, is_of_step: impl Fn(&[u8]) -> bool) {
        let mut step = Step::default();
        for written in self.lasting.step(files) {
            let bytes = files.get(&written.file).map(|bytes| &bytes[..]).unwrap_or_default();
            let end = (written.blocks.end * BLOCK_BYTES).min(bytes.len());
            let bytes = &bytes[(written.blocks.start * BLOCK_BYTES).min(end)..end];
            match kind {
                Kind::Other => {}
                Kind::Acknowledged { .. } if written.file == self.names.page => {
                    step.with.push(written);
                }
                Kind::Acknowledged { .. } => {
                    if written.file.ends_with(self.names.segment) && is_of_step(bytes) {
                        step.before.push(written);
                    }
                }
                Kind::Opened | Kind::Closed if written.file != self.names.manifest => {}
                Kind::Opened | Kind::Closed => step.with.push(written),
            }
        }
        step.page_is_synced = kind == Kind::Acknowledged { page_is_synced: true };
        self.steps.push(step);
    }

    /// Records changes of the files that are no evidence.
    pub fn pass_over(&mut self, files: &Files) {
        self.lasting.step(files);
    }

    /// Returns a bound: records of steps below it are known to have been durable.
    pub fn bound(&self, files: &Files, changes: &Changes) -> usize {
        self.highest(files, changes).map_or(0, |(bound, _)| bound)
    }

    /// Describes the evidence for the bound.
    pub fn reported(&self, files: &Files, changes: &Changes) -> String {
        self.highest(files, changes).map_or_else(|| "nothing".into(), |(_, reported)| reported)
    }

    fn highest(&self, files: &Files, changes: &Changes) -> Option<(usize, String)> {
        let holds = |written: &&Written| {
            written.is_in(files) && !changes.touches(&written.file, &written.blocks)
        };
        let page_is_whole = !changes.touches_file(self.names.page);
        self.steps.iter().enumerate().rev().find_map(|(n, step)| {
            if step.page_is_synced && page_is_whole {
                return Some((n + 1, format!("the synced page of step {n}")));
            }
            if let Some(with) = step.with.iter().find(holds) {
                return Some((n + 1, format!("{with} of step {n}")));
            }
            step.before.iter().find(holds).map(|before| (n, format!("{before} of step {n}")))
        })
    }
}
