//! `esker log stat`: a summary of a log, without taking its lock and without reading all of it.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::Args;
use esker_log::{Corruption, Error, Metadata, ReadOnlyLog, Seq, Start, Stored};
use serde_json::json;

use super::verify::range_json;
use super::writer;
use esker_command::exit::{Failure, Outcome};
use esker_command::output;

const EXAMPLES: &str = "\
Examples:
  esker log stat ./esker-data
  esker log stat ./esker-data --json | jq .durable

It runs beside a writer. It reads the header and footer of every segment, not every record: for that, \
use `esker log verify`. Of a repaired log it shows the ranges that were quarantined. A writer in another \
container may not be shown: the system lists the locks of its own processes. Exit status 3 when it \
found corruption.";

/// Arguments of `esker log stat`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct StatArguments {
    /// The log's directory
    dir: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Prints the summary.
pub fn run(arguments: &StatArguments) -> Outcome {
    let dir = &arguments.dir;
    let reader = ReadOnlyLog::open(dir).map_err(|e| Failure::of_log(&e, dir))?;
    let of_log = |e| Failure::of_log(&e, dir);
    let metadata = reader.storage().metadata();
    let stored = reader.storage().stored().map_err(of_log)?;
    let (oldest, unreadable) = oldest_time(&reader).map_err(of_log)?;
    let corruption = reader.storage().corruption().or(unreadable);
    let newest = time_at(&reader, Start::From(reader.durable())).unwrap_or_default();
    let writer = writer::of(dir).filter(|_| !reader.storage().is_closed_cleanly());
    let facts = Facts { dir, reader: &reader, metadata, stored, oldest, newest, writer };
    if arguments.json {
        facts.print_json(corruption.as_ref())?;
    } else {
        facts.print_text(corruption.is_some())?;
    }
    match corruption {
        Some(corruption) => Err(Failure::of_log(&esker_log::Error::Corrupted(corruption), dir)),
        None => Ok(()),
    }
}

/// What is printed of a log.
struct Facts<'a> {
    dir: &'a Path,
    reader: &'a ReadOnlyLog,
    metadata: Metadata,
    stored: Stored,
    oldest: Option<SystemTime>,
    newest: Option<SystemTime>,
    /// The process that has the log open for writing.
    writer: Option<i32>,
}

impl Facts<'_> {
    fn print_json(&self, corruption: Option<&Corruption>) -> Outcome {
        let Stored { records, payload_bytes, bytes, quarantined, skipped, .. } = &self.stored;
        let (reader, metadata) = (self.reader, &self.metadata);
        output::print_json(&json!({
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
            "quarantined": quarantined.iter().map(range_json).collect::<Vec<_>>(),
            "skipped": skipped,
            "closed_cleanly": reader.storage().is_closed_cleanly(),
            "unrecovered_bytes": reader.storage().unrecovered_bytes(),
            "oldest_time": self.oldest.map(output::time),
            "newest_time": self.newest.map(output::time),
            "writer_pid": self.writer,
            "damage": corruption.map(super::verify::corruption_json),
        }))
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
        if let Some(pid) = self.writer {
            row("writer", &format_args!("process {pid}"));
        }
        row("shutdown", &self.shutdown());
        output::print(&text)
    }

    fn shutdown(&self) -> String {
        match (self.reader.storage().is_closed_cleanly(), self.reader.storage().unrecovered_bytes())
        {
            (true, _) => "closed cleanly".to_owned(),
            (false, 0) if self.writer.is_some() => "open".to_owned(),
            (false, more) if self.writer.is_some() => {
                format!("open; {more} bytes after the durable watermark are being written")
            }
            (false, 0) => "not closed".to_owned(),
            (false, more) => {
                format!("not closed; {more} bytes after the durable watermark, not yet recovered")
            }
        }
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
            Err(Error::Quarantined { to, .. }) if to > after => after = to,
            Err(Error::Trimmed { oldest }) if oldest > after => after = Seq(oldest.0 - 1),
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
