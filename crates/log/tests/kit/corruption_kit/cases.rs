//! Running many cases, and telling all kinds of failure and not only the first.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

/// How many kinds of failure are reported.
const TOLD: usize = 40;

thread_local! {
    /// Where the panic of the case that runs on this thread came from; `None` outside of cases.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Panics inside of cases are reported with the case, and not by themselves.
fn keep_panics_quiet() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = take_hook();
        set_hook(Box::new(move |panic| {
            let inside = PANIC.with_borrow_mut(|reported| match reported {
                Some(reported) => {
                    *reported = panic.to_string();
                    true
                }
                None => false,
            });
            if !inside {
                usual(panic);
            }
        }));
    });
}

/// Runs something that may panic, and gives what it said.
fn caught(case: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    keep_panics_quiet();
    PANIC.set(Some(String::new()));
    let outcome = catch_unwind(AssertUnwindSafe(case));
    let panic = PANIC.take().unwrap_or_default();
    outcome.unwrap_or_else(|_| Err(format!("PANIC: {panic}")))
}

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
        for (count, first) in failed.values().take(TOLD) {
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
