//! Standard output: buffering, closed pipes, and text encodings of bytes.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::time::SystemTime;

use base64::Engine;
use base64::prelude::BASE64_STANDARD as STANDARD;
use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use serde_json::Value;

use crate::exit::{Failure, Outcome};
use crate::stdout_at_start;

/// Returns standard output with a buffer that is written by [`Write::flush`] or when full, not at
/// each line.
pub fn buffered() -> Outcome<BufWriter<File>> {
    Ok(BufWriter::with_capacity(64 << 10, file()?))
}

/// Returns standard output without a buffer.
pub fn file() -> Outcome<File> {
    let file = stdout_at_start::check().and_then(|()| io::stdout().as_fd().try_clone_to_owned());
    file.map(File::from).map_err(|error| not_written(&error))
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

/// As [`print()`], and returns whether standard output is still open for reading.
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
        Err(error) => Err(not_written(&error)),
    }
}

fn not_written(error: &io::Error) -> Failure {
    Failure::from_io("write standard output", error)
}

/// Escapes what would change the line or the terminal, and backslashes.
pub fn escaped(text: &str) -> String {
    let escape = |c: char| match c {
        '"' | '\'' => c.to_string(),
        c => c.escape_debug().to_string(),
    };
    text.chars().map(escape).collect()
}

/// Returns the text as one word of a shell.
pub fn shell_word(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_./:,@%+=-".contains(&byte);
    match !text.is_empty() && text.bytes().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// Returns a time as in RFC 3339, in UTC, with milliseconds. Never fails: see [`time_in_nanos`].
pub fn time(time: SystemTime) -> String {
    in_utc(time).to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// As [`time`], with nanoseconds. A year before 0 or after 9999, for which RFC 3339 has no text,
/// has a sign as in ISO 8601: a clock may show any time, and logs have what it showed.
pub fn time_in_nanos(time: SystemTime) -> String {
    in_utc(time).to_rfc3339_opts(SecondsFormat::Nanos, true)
}

/// The same time; beyond some 262,000 years, the first or the last that there is.
fn in_utc(time: SystemTime) -> DateTime<Utc> {
    let (since, limit) = match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => (TimeDelta::from_std(since), DateTime::<Utc>::MAX_UTC),
        Err(before) => {
            (TimeDelta::from_std(before.duration()).map(|it| -it), DateTime::<Utc>::MIN_UTC)
        }
    };
    let time = since.ok().and_then(|since| DateTime::UNIX_EPOCH.checked_add_signed(since));
    time.unwrap_or(limit)
}

/// Adds bytes to a JSON object: as text under `name`, or as base 64 under `name` and `_b64`.
pub fn add_bytes(object: &mut Value, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object[name] = text.into(),
        Err(_) => object[format!("{name}_b64")] = base64(bytes).into(),
    }
}

/// Encodes bytes as base 64, with padding.
pub fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Decodes what [`base64()`] returns.
pub fn from_base64(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_time_is_as_rfc_3339_has_it() {
        // Each 11 days and some, from 1970 to 9999.
        for step in 0..253_402 {
            let since = Duration::new(step * 1_000_000, (step % 997) as u32 * 1_001_001);
            let then = SystemTime::UNIX_EPOCH + since;
            assert_eq!(time(then), humantime::format_rfc3339_millis(then).to_string());
            assert_eq!(time_in_nanos(then), humantime::format_rfc3339_nanos(then).to_string());
        }
    }

    /// A clock before 1970, or after the year 9999, panicked in each log line.
    #[test]
    fn every_time_has_a_text() {
        let (epoch, nano) = (SystemTime::UNIX_EPOCH, Duration::from_nanos(1));
        let seconds = Duration::from_secs;
        for (then, text) in [
            (epoch - nano, "1969-12-31T23:59:59.999999999Z"),
            (epoch - seconds(315_619_200), "1960-01-01T00:00:00.000000000Z"),
            (epoch - seconds(62_167_219_200), "0000-01-01T00:00:00.000000000Z"),
            (epoch - seconds(62_167_219_201), "-0001-12-31T23:59:59.000000000Z"),
            (epoch + seconds(19_880_899_200), "2600-01-01T00:00:00.000000000Z"),
            (epoch + seconds(253_402_300_800), "+10000-01-01T00:00:00.000000000Z"),
        ] {
            assert_eq!(time_in_nanos(then), text);
        }
        let most = seconds(i64::MAX as u64);
        for then in [epoch + most, epoch - most, epoch + Duration::from_millis(u64::MAX)] {
            assert!(time(then).ends_with('Z') && time_in_nanos(then).len() > 30);
        }
    }

    #[test]
    fn a_word_of_a_shell_is_quoted_where_that_is_needed() {
        for (text, word) in [
            ("--key=0f", "--key=0f"),
            ("http://[::1]:80", "'http://[::1]:80'"),
            ("", "''"),
            ("a b", "'a b'"),
            ("it's", r"'it'\''s'"),
            ("$(rm)", "'$(rm)'"),
        ] {
            assert_eq!(shell_word(text), word);
        }
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
