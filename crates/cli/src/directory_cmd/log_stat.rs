//! The summary of a log, without taking its lock and without reading all of it.

use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, SystemTime};

use esker_log::{Corruption, Error, Metadata, ReadOnlyLog, Seq, SeqRange, Start, Stored, Trimmed};
use serde_json::json;

use super::component::Component;
use super::log_verify::{corruption_json, ranges_json};
use super::shutdown::Shutdown;
use esker_command::exit::{Failure, Outcome};
use esker_command::output;

/// Prints the summary.
pub fn run(dir: &Path, as_json: bool) -> Outcome {
    let reader = ReadOnlyLog::open(dir).map_err(|e| Failure::from_log(&e.into(), dir))?;
    let log_failure = |e| Failure::from_log(&e, dir);
    let metadata = reader.storage().metadata();
    let stored = reader.storage().stored().map_err(|e| log_failure(e.into()))?;
    let (oldest, unreadable) = oldest_time(&reader).map_err(log_failure)?;
    let corruption = reader.storage().corruption().or(unreadable);
    let newest = time_at(&reader, Start::From(reader.durable())).unwrap_or_default();
    let shutdown = Shutdown::from_reader(dir, &reader);
    let summary = Summary { dir, reader: &reader, metadata, stored, oldest, newest, shutdown };
    if as_json {
        summary.print_json(corruption.as_ref())?;
    } else {
        summary.print_text(corruption.is_some())?;
    }
    match corruption {
        Some(corruption) => Err(Failure::from_log(&esker_log::Error::Corrupted(corruption), dir)),
        None => Ok(()),
    }
}

/// The summary of a log.
struct Summary<'a> {
    dir: &'a Path,
    reader: &'a ReadOnlyLog,
    metadata: Metadata,
    stored: Stored,
    oldest: Option<SystemTime>,
    newest: Option<SystemTime>,
    shutdown: Shutdown,
}

impl Summary<'_> {
    fn print_json(&self, corruption: Option<&Corruption>) -> Outcome {
        let Stored { records, payload_bytes, bytes, quarantined, skipped, .. } = &self.stored;
        let (reader, metadata) = (self.reader, &self.metadata);
        let mut summary = json!({
            "component": Component::Log,
            "dir": self.dir.to_string_lossy(),
            "id": metadata.id.to_string(),
            "session": metadata.session,
            "oldest": reader.oldest().0,
            "durable": reader.durable().0,
            "position": reader.position().0,
            "records": records,
            "segments": metadata.segments,
            "payload_bytes": payload_bytes,
            "bytes": bytes,
            "gaps": quarantined.len(),
            "quarantined": ranges_json(quarantined),
            "skipped": skipped,
            "oldest_time": self.oldest.map(output::time),
            "newest_time": self.newest.map(output::time),
            "damage": corruption.map(corruption_json),
        });
        self.shutdown.add_to(&mut summary);
        output::print_json(&summary)
    }

    fn print_text(&self, is_corrupt: bool) -> Outcome {
        let Stored { records, payload_bytes, bytes, quarantined, skipped, .. } = &self.stored;
        let (reader, metadata) = (self.reader, &self.metadata);
        let mut text = String::new();
        let mut row = |name: &str, value: &dyn std::fmt::Display| {
            let _ = writeln!(text, "{name:<12} {value}");
        };
        row("directory", &self.dir.display());
        row("log", &metadata.id);
        row("session", &metadata.session);
        row("records", records);
        row("oldest", &reader.oldest());
        match is_corrupt {
            false => row("durable", &reader.durable()),
            true => row(
                "durable",
                &format_args!("{} or more: reading stopped at the corruption", reader.durable()),
            ),
        }
        row("position", &reader.position());
        row("segments", &metadata.segments);
        match payload_bytes {
            Some(payload_bytes) => row("payload", &in_units(*payload_bytes)),
            None => row("payload", &"not known: a segment was sealed by an earlier version"),
        }
        row("bytes", &in_units(*bytes));
        row("gaps", &quarantined.len());
        for range in quarantined {
            row("quarantined", range);
        }
        if *skipped > 0 {
            row("skipped", &format_args!("{skipped} numbers that no record was given"));
        }
        for (name, time) in [("oldest from", self.oldest), ("newest from", self.newest)] {
            if let Some(time) = time {
                row(name, &format_args!("{}, {}", output::time(time), age(time)));
            }
        }
        if let Some(pid) = self.shutdown.writer {
            row("writer", &format_args!("process {pid}"));
        }
        row("shutdown", &self.shutdown);
        output::print(&text)
    }
}

/// Bytes as a number, and in a unit.
fn in_units(bytes: u64) -> String {
    format!("{bytes} ({})", indicatif::BinaryBytes(bytes))
}

/// The time of the oldest record that can be read, or the corruption that it is in.
fn oldest_time(reader: &ReadOnlyLog) -> Result<(Option<SystemTime>, Option<Corruption>), Error> {
    let mut start = Start::Oldest;
    let mut after = Seq::ZERO;
    loop {
        match time_at(reader, start) {
            Ok(time) => return Ok((time, None)),
            Err(Error::Corrupted(corruption)) => return Ok((None, Some(corruption))),
            Err(Error::Quarantined(SeqRange { to, .. })) if to > after => after = to,
            Err(Error::Trimmed(Trimmed { oldest })) if oldest > after => after = Seq(oldest.0 - 1),
            Err(error) => return Err(error),
        }
        start = Start::After(after);
    }
}

/// The time of the first record from a start on; `None` if there is none.
fn time_at(reader: &ReadOnlyLog, start: Start) -> Result<Option<SystemTime>, Error> {
    let batch = reader.stream(start)?.try_next()?;
    Ok(batch.and_then(|batch| batch.iter().next()?.time()))
}

/// How long ago this was, in whole seconds.
fn age(time: SystemTime) -> String {
    let in_seconds =
        |time: Duration| humantime::format_duration(Duration::from_secs(time.as_secs()));
    match SystemTime::now().duration_since(time) {
        Ok(age) => format!("{} ago", in_seconds(age)),
        Err(ahead) => format!("{} ahead of the clock", in_seconds(ahead.duration())),
    }
}
