//! Standard output: buffering, closed pipes, and text encodings of bytes.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::prelude::BASE64_STANDARD as STANDARD;

use crate::exit::{Failure, Outcome};
use crate::stdout_at_start;

/// Returns standard output with a buffer that is written by [`Write::flush`] or when full, not at
/// each line.
pub fn buffered() -> io::Result<BufWriter<File>> {
    Ok(BufWriter::with_capacity(64 << 10, file()?))
}

/// Returns standard output without a buffer.
pub fn file() -> io::Result<File> {
    stdout_at_start::check()?;
    Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?))
}

/// A number of things, by the name of one of them.
pub fn counted(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// The message of an error in one line of JSON. It names the column, and not the line: that is
/// always 1.
pub fn json_error(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    match message.strip_suffix(&place) {
        Some(what) => format!("{what} at column {}", error.column()),
        None => message,
    }
}

/// Writes text to standard output. A pipe that its reader closed, as `head` does, is not an error.
pub fn print(text: &str) -> Outcome {
    print_while_open(text).map(drop)
}

/// As [`print`], and returns whether standard output is still open for reading.
pub fn print_while_open(text: &str) -> Outcome<bool> {
    write_while_open(|| io::stdout().write_all(text.as_bytes()))
}

/// As [`print_while_open`], with what writes to standard output.
pub fn write_while_open(write: impl FnOnce() -> io::Result<()>) -> Outcome<bool> {
    let written = stdout_at_start::check().and_then(|()| write());
    unless_closed(written.and_then(|()| io::stdout().flush()))
}

/// Writes one JSON object and a newline to standard output.
pub fn print_json(value: &impl serde::Serialize) -> Outcome {
    let text = serde_json::to_string(value).map_err(|e| Failure::failed(e.to_string()))?;
    print(&(text + "\n"))
}

/// Returns whether standard output is still open for reading; any other write error is a failure.
pub fn unless_closed(written: io::Result<()>) -> Outcome<bool> {
    match written {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::of_io("write standard output", &error)),
    }
}

/// Escapes what would change the line or the terminal, and backslashes.
pub fn escaped(text: &str) -> String {
    let escape = |c: char| match c {
        '"' | '\'' => c.to_string(),
        c => c.escape_debug().to_string(),
    };
    text.chars().map(escape).collect()
}

/// Returns a time as in RFC 3339, in UTC, with milliseconds. That ends with the year 9999, and what
/// formats it begins with 1970: what is beyond becomes the first or the last such time.
pub fn time(time: SystemTime) -> String {
    let last = SystemTime::UNIX_EPOCH + Duration::from_millis(253_402_300_799_999);
    humantime::format_rfc3339_millis(time.clamp(SystemTime::UNIX_EPOCH, last)).to_string()
}

/// Encodes bytes as base 64, with padding.
pub fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Decodes what [`base64`] returns.
pub fn from_base64(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bug: it panicked before 1970 and after 9999, which a record's time may be.
    #[test]
    fn every_time_is_shown() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(time(at(1_000_000_000)), "2001-09-09T01:46:40.000Z");
        assert_eq!(time(at(0) - Duration::from_secs(1)), "1970-01-01T00:00:00.000Z");
        assert_eq!(time(at(u64::MAX / 1000)), "9999-12-31T23:59:59.999Z");
    }

    #[test]
    fn base64_matches_rfc_4648() {
        let pairs =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")];
        for (bytes, text) in pairs {
            assert_eq!(base64(bytes.as_bytes()), text);
            assert_eq!(from_base64(text).as_deref(), Some(bytes.as_bytes()));
        }
        assert_eq!(base64(&[0xfb, 0xff, 0xfe]), "+//+");
    }
}
