//! How a log was closed last, and who has it open, for `esker stat` of every component.

use std::fmt;
use std::path::Path;

use esker_log::{ReadOnlyLog, Result};
use serde_json::{Value, json};

use crate::writer_process;

/// How a log was closed last.
#[derive(Debug, Clone, Copy)]
pub struct Shutdown {
    is_clean: bool,
    /// Bytes after the durable watermark, which recovery has still to classify.
    unrecovered_bytes: u64,
    /// The process that has the log open for writing.
    pub writer: Option<i32>,
}

impl Shutdown {
    /// Reads how the log in a directory was closed.
    pub fn find(dir: &Path) -> Result<Self> {
        Ok(Self::from_reader(dir, &ReadOnlyLog::open(dir)?))
    }

    /// As [`Shutdown::find`], for a log that is open for reading.
    pub fn from_reader(dir: &Path, reader: &ReadOnlyLog) -> Self {
        let storage = reader.storage();
        let is_clean = storage.is_closed_cleanly();
        let writer = writer_process::find(dir).filter(|_| !is_clean);
        Self { is_clean, unrecovered_bytes: storage.unrecovered_bytes(), writer }
    }

    /// Adds it to the JSON object of a log.
    pub fn add_to(&self, object: &mut Value) {
        object["closed_cleanly"] = self.is_clean.into();
        object["unrecovered_bytes"] = self.unrecovered_bytes.into();
        object["writer_pid"] = json!(self.writer);
    }
}

impl fmt::Display for Shutdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.is_clean, self.writer, self.unrecovered_bytes) {
            (true, ..) => f.write_str("closed cleanly"),
            (false, Some(_), 0) => f.write_str("open"),
            (false, Some(_), more) => {
                write!(f, "open; {more} bytes after the durable watermark are being written")
            }
            (false, None, 0) => f.write_str("not closed"),
            (false, None, more) => {
                write!(f, "not closed; {more} bytes after the durable watermark, not yet recovered")
            }
        }
    }
}
