//! The finding of a rule, and its place.

use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub rule: &'static str,
    pub path: String,
    /// The line from 1; 0 means the whole file.
    pub line: usize,
    pub message: String,
    /// A warning is printed, and fails nothing.
    pub fails: bool,
}

impl Finding {
    pub fn error(rule: &'static str, path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { rule, path: path.to_owned(), line, message: message.into(), fails: true }
    }

    pub fn warning(
        rule: &'static str,
        path: &str,
        line: usize,
        message: impl Into<String>,
    ) -> Self {
        Self { fails: false, ..Self::error(rule, path, line, message) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.fails { "error" } else { "warning" })?;
        write!(f, "[{}] {}", self.rule, self.path)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": {}", self.message)
    }
}
