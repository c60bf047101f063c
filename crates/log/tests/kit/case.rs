//! Cases have names, and a case that fails prints the command that runs it alone.

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
