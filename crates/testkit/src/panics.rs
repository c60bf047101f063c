//! Panics of a case, as an answer of it.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// What the panic of the case on this thread said; `None` outside of cases.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

fn keep_panics_of_cases() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = take_hook();
        set_hook(Box::new(move |panic| {
            let inside = PANIC.with_borrow_mut(|told| match told {
                Some(told) => {
                    *told = panic.to_string();
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

/// Runs something that may panic.
pub(crate) fn caught<T>(case: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    keep_panics_of_cases();
    PANIC.set(Some(String::new()));
    let outcome = catch_unwind(AssertUnwindSafe(case));
    let panic = PANIC.take().unwrap_or_default();
    outcome.unwrap_or_else(|_| Err(format!("PANIC: {panic}")))
}
