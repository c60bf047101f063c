//! Command outcomes: an exit status, and one line on standard error that says what failed, where,
//! and what to do.

use std::fmt::{self, Display};
use std::io::{self, Write};
use std::process::ExitCode;

/// The exit statuses of every `esker` command. 0 is success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// The command failed.
    Failed = 1,
    /// The command line is wrong.
    Usage = 2,
    /// Durable data is corrupt.
    Corrupt = 3,
    /// Another process has the log open for writing.
    Locked = 4,
    /// SIGINT arrived before the end of the input.
    Interrupted = 130,
}

/// The failure of a command: exit status and message.
#[derive(Debug)]
pub struct Failure {
    pub(crate) status: Status,
    pub(crate) message: String,
}

/// The outcome of a command, or of a part of it.
pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// Creates a failure of the command.
    pub fn failed(message: impl Into<String>) -> Self {
        Self { status: Status::Failed, message: message.into() }
    }

    /// The failure, with one more thing to do.
    pub fn or_else(self, advice: &str) -> Self {
        Self { message: format!("{}; {advice}", self.message), ..self }
    }

    /// The failure, in other words.
    pub fn instead(self, message: String) -> Self {
        Self { message, ..self }
    }

    /// Creates a failure for a wrong command line.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { status: Status::Usage, message: message.into() }
    }

    /// Creates a failure for SIGINT before the end of the input.
    pub fn interrupted(message: impl Into<String>) -> Self {
        Self { status: Status::Interrupted, message: message.into() }
    }

    /// Creates a failure for corrupt durable data.
    pub fn corrupt(message: impl Into<String>) -> Self {
        Self { status: Status::Corrupt, message: message.into() }
    }

    /// The line that is printed.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Creates a failure that says nothing: the exit status is the answer.
    pub fn silent() -> Self {
        Self::failed("")
    }

    /// Creates a failure from a file I/O error.
    pub fn from_io(what: impl Display, error: &io::Error) -> Self {
        Self::failed(format!("{what}: {error}"))
    }

    /// Returns whether another process has the log.
    pub fn is_locked(&self) -> bool {
        self.status == Status::Locked
    }

    /// Returns whether it was created by [`Failure::interrupted`].
    pub fn is_interrupt(&self) -> bool {
        self.status == Status::Interrupted
    }

    /// Appends more text to the message.
    #[must_use]
    pub fn and(mut self, more: impl Display) -> Self {
        self.message = format!("{}; {more}", self.message);
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// Prints the failure to standard error, and returns the exit status.
pub fn report(outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.message.is_empty() {
                complain(&failure.message);
            }
            ExitCode::from(failure.status as u8)
        }
    }
}

/// Writes one line to standard error. Errors are ignored: standard error may be closed.
pub fn complain(message: &str) {
    let _ = writeln!(io::stderr().lock(), "esker: {}", one_line(message));
}

/// Writes advice to standard error, beside what a command prints. Errors are ignored.
pub fn advise(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Returns a message on one line. Control characters are escaped, since a message may have text of
/// other hosts, or names of files, which must not control the terminal.
fn one_line(message: &str) -> String {
    let mut line = String::with_capacity(message.len());
    for c in message.chars() {
        match c {
            '\n' => line.push(' '),
            c if c.is_control() => line.extend(c.escape_default()),
            c => line.push(c),
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text from the network reached the terminal as it was.
    #[test]
    fn message_controls_no_terminal() {
        let message = "10.0.0.1:80: \u{1b}[2J\u{9b}31m\rno\u{7}\nroom \u{fc}ber \"C:\\\"";
        let line = r#"10.0.0.1:80: \u{1b}[2J\u{9b}31m\rno\u{7} room über "C:\""#;
        assert_eq!(one_line(message), line);
    }
}
