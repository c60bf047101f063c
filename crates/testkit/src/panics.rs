//! Conversion of panics inside a case to errors.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// The panic message of the case on this thread; `None` outside of cases.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

fn keep_panics_of_cases() {
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

/// Runs a case, and returns its panic as an error. The panic is not printed.
///
/// # Errors
/// The error of the case, or the message and place of its panic.
pub fn caught<T>(case: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    keep_panics_of_cases();
    PANIC.set(Some(String::new()));
    let outcome = catch_unwind(AssertUnwindSafe(case));
    let panic = PANIC.take().unwrap_or_default();
    outcome.unwrap_or_else(|_| Err(format!("PANIC: {panic}")))
}
