//! Cases have names, and a case that fails says how to run it alone. `ESKER_TRACE=1` prints its
//! steps.

use std::fmt::Display;

/// The variable that runs one case alone.
const ONLY: &str = "ESKER_CASE";

/// A case under test: keep it alive while the case runs.
#[derive(Debug)]
pub struct Case {
    test: &'static str,
    name: String,
}

/// Whether one case was asked for, so that there is nothing to be counted.
pub fn is_alone() -> bool {
    std::env::var_os(ONLY).is_some()
}

/// Begins a case, unless another was asked for. `test` is the file and the function.
pub fn case(test: &'static str, name: impl Display) -> Option<Case> {
    let name = name.to_string();
    match std::env::var(ONLY) {
        Ok(only) if only != name => None,
        _ => Some(Case { test, name }),
    }
}

impl Drop for Case {
    #[allow(clippy::print_stderr)]
    fn drop(&mut self) {
        if std::thread::panicking() {
            let (file, function) = self.test.split_once("::").unwrap_or((self.test, ""));
            let name = &self.name;
            eprintln!("case {name:?}; again with:");
            eprintln!("{ONLY}='{name}' cargo test -p esker-log --test {file} {function}");
        }
    }
}

/// Prints `what`, where `ESKER_TRACE` is set.
#[allow(clippy::print_stdout)]
pub fn trace(what: impl FnOnce() -> String) {
    if std::env::var_os("ESKER_TRACE").is_some() {
        println!("{}", what());
    }
}

/// A number from the environment: how many seeds, for instance.
#[allow(clippy::panic)]
pub fn number_from_env(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => match text.parse() {
            Ok(number) => number,
            Err(error) => panic!("{variable}={text:?} is not a number: {error}"),
        },
        Err(_) => default,
    }
}
