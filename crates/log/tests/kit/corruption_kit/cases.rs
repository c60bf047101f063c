//! Running many cases, and telling all kinds of failure and not only the first.

use std::collections::BTreeMap;
use std::fmt::Display;

use esker_testkit::caught;

/// The most kinds of failure that are printed.
const REPORTED_MAX: usize = 40;

/// Cases of one test.
#[derive(Debug, Default)]
pub struct Cases {
    ran: usize,
    /// By kind: how many, and the first.
    failed: BTreeMap<String, (usize, String)>,
}

impl Cases {
    /// Runs a case. A panic inside is a failure of it.
    pub fn run(&mut self, name: impl Display, case: impl FnOnce() -> Result<(), String>) {
        self.ran += 1;
        let Err(failure) = caught(case) else { return };
        let kind = self.failed.entry(kind(&failure)).or_default();
        kind.0 += 1;
        if kind.1.is_empty() {
            kind.1 = format!("{name}: {failure}");
        }
    }

    /// Whether the next case is one of those, one in so many, that are looked at more closely.
    pub fn is_one_in(&self, many: usize) -> bool {
        self.ran.is_multiple_of(many)
    }

    /// Demands that there were so many cases at least, and that none failed.
    #[track_caller]
    pub fn finish(self, at_least: usize) {
        let Self { ran, failed } = self;
        for (count, first) in failed.values().take(REPORTED_MAX) {
            println!("{count} x {first}");
        }
        let failures: usize = failed.values().map(|(count, _)| count).sum();
        assert!(failures == 0, "{failures} of {ran} cases failed");
        assert!(ran >= at_least, "only {ran} cases ran");
    }
}

/// A failure without its numbers.
fn kind(failure: &str) -> String {
    let mut kind: String =
        failure.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    while kind.contains("00") {
        kind = kind.replace("00", "0");
    }
    kind
}
