//! What a log left behind that says how far it was durable.
//!
//! The contract: a commit unit, the watermark page, and the manifest that an opening or a clean close
//! wrote, each carry a durable lower bound. So a unit vouches for the records of the steps before its own,
//! and the page and the manifest for those of their own step, too. Where every such trace is damaged, or
//! was taken by the crash, nobody can know that the records were durable; where one holds, they must not
//! be missing in silence.

use crate::changes::{BLOCK, Changes, Lasting, Written};
use crate::files::Files;

/// What files are called.
#[derive(Debug, Clone, Copy)]
pub struct Names {
    /// The watermark page.
    pub page: &'static str,
    /// The manifest.
    pub manifest: &'static str,
    /// Ends the name of a segment.
    pub segment: &'static str,
}

/// The kinds of steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Records were acknowledged.
    Acknowledged {
        /// The page was made durable before: no power cut takes it.
        page_is_synced: bool,
    },
    /// The log was opened. What it found without a durable lower bound became durable by this step.
    Opened,
    /// The log was closed cleanly.
    Closed,
    /// Something else, or one that the power ended.
    Other,
}

#[derive(Debug, Clone, Default)]
struct Step {
    /// What was durable before the step is known by these.
    before: Vec<Written>,
    /// What was durable with the step is known by these.
    with: Vec<Written>,
    page_is_synced: bool,
}

/// The traces of all steps.
#[derive(Debug, Clone)]
pub struct Traces {
    names: Names,
    steps: Vec<Step>,
    lasting: Lasting,
}

impl Traces {
    /// No step was done.
    pub fn new(names: Names) -> Self {
        Self { names, steps: Vec::new(), lasting: Lasting::default() }
    }

    /// The number of the next step.
    pub fn next(&self) -> usize {
        self.steps.len()
    }

    /// A step is over, and left these files. `is_of_step` says whether bytes hold a record of it: then
    /// they are a commit unit, and not a header, a footer, or something moved.
    pub fn step(&mut self, kind: Kind, files: &Files, is_of_step: impl Fn(&[u8]) -> bool) {
        let mut step = Step::default();
        for written in self.lasting.step(files) {
            let bytes = files.get(&written.file).map(|bytes| &bytes[..]).unwrap_or_default();
            let end = (written.blocks.end * BLOCK).min(bytes.len());
            let bytes = &bytes[(written.blocks.start * BLOCK).min(end)..end];
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

    /// The files changed, and nothing of that is a trace.
    pub fn pass_over(&mut self, files: &Files) {
        self.lasting.step(files);
    }

    /// Records of steps below this one are known to have been durable.
    pub fn bound(&self, files: &Files, changes: &Changes) -> usize {
        self.highest(files, changes).map_or(0, |(bound, _)| bound)
    }

    /// What says so.
    pub fn told(&self, files: &Files, changes: &Changes) -> String {
        self.highest(files, changes).map_or_else(|| "nothing".into(), |(_, told)| told)
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
