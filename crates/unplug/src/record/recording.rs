//! The requests of a program to its directory, and its output, in one order.

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::ffi::OsString;
use std::{fmt, io};

use serde::{Deserialize, Serialize};

use super::operation::{Ino, Operation, Request, RequestNumber};
use super::payload::{Payload, PayloadStore};

/// The most requests of a recording.
const REQUESTS_MAX: RequestNumber = 4_000_000;
/// The most written bytes of a recording that are in memory. The others are in a temporary file.
const PAYLOAD_MEMORY_BYTES: u64 = 256 << 20;

/// One event of a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// Everything before this is durable: the end of the setup.
    SetupEnd,
    Request(Request),
    /// Bytes of the program's standard output. Every later cut has them.
    Output(Vec<u8>),
    /// The program, or the client that drives it, ended with success.
    Success,
    /// A fault of the whole run, or one that a call met.
    Fault(String),
    /// A cut that a test asked for, by its name: that after the last event before this one.
    Mark(String),
    /// Everything before this is durable, as a line of the output says.
    AllDurable,
}

/// The type of an inode, which never changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeType {
    File,
    Directory,
    Symlink(OsString),
}

/// An inode as the recording knows it: its type, and its permissions at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    pub node_type: NodeType,
    pub mode: u32,
}

/// The promises of a file system, which a state has to keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum FileSystemModel {
    #[default]
    Posix,
    Ext4,
}

#[derive(Debug)]
pub struct Recording {
    pub events: Vec<Event>,
    pub nodes: BTreeMap<Ino, Node>,
    requests: RequestNumber,
    requests_max: RequestNumber,
    payloads: PayloadStore,
    /// The promises of the file system for which states are built; not a part of the file.
    pub model: FileSystemModel,
}

/// The reason why a recording cannot go on.
#[derive(Debug)]
pub enum RecordingError {
    /// It has this number of requests, the most there may be.
    TooManyRequests(RequestNumber),
    /// Written bytes could not be put into the temporary file.
    Spill(io::Error),
}

impl Recording {
    fn new(requests_max: RequestNumber, payloads: PayloadStore) -> Self {
        let (events, nodes, model) = Default::default();
        Self { events, nodes, requests: 0, requests_max, payloads, model }
    }

    /// Keeps the bytes of a write that is to be added.
    pub fn keep(&mut self, bytes: &[u8]) -> Result<Payload, RecordingError> {
        self.payloads.keep(bytes).map_err(RecordingError::Spill)
    }

    pub fn add(&mut self, path: String, operation: Operation) -> Result<(), RecordingError> {
        let number = self.next_number()?;
        self.events.push(Event::Request(Request { number, path, operation }));
        Ok(())
    }

    /// Adds an event of a file, whose requests have numbers.
    pub fn add_loaded(&mut self, mut event: Event) -> Result<(), RecordingError> {
        if let Event::Request(request) = &mut event {
            self.next_number()?;
            if let Operation::Write { data, .. } | Operation::MappedWrite { data, .. } =
                &mut request.operation
            {
                let kept = self.keep(&data.bytes())?;
                *data = kept;
            }
        }
        self.events.push(event);
        Ok(())
    }

    pub fn requests(&self) -> RequestNumber {
        self.requests
    }

    /// The sentence for written bytes that could not be read again. States that were built have
    /// zeros in their place.
    pub fn unreadable(&self) -> Option<String> {
        let failure = self.payloads.failure()?;
        Some(format!("written bytes cannot be read again from the temporary file: {failure}"))
    }

    fn next_number(&mut self) -> Result<RequestNumber, RecordingError> {
        if self.requests >= self.requests_max {
            return Err(RecordingError::TooManyRequests(self.requests_max));
        }
        self.requests += 1;
        Ok(self.requests)
    }
}

/// Recordings with the limits that a test needs.
#[cfg(test)]
impl Recording {
    pub fn with_payloads(payloads: PayloadStore) -> Self {
        Self::new(REQUESTS_MAX, payloads)
    }

    pub fn with_requests_max(requests_max: RequestNumber) -> Self {
        Self::new(requests_max, PayloadStore::new(PAYLOAD_MEMORY_BYTES))
    }

    pub fn payloads(&self) -> &PayloadStore {
        &self.payloads
    }
}

impl Default for Recording {
    fn default() -> Self {
        Self::new(REQUESTS_MAX, PayloadStore::new(PAYLOAD_MEMORY_BYTES))
    }
}

impl fmt::Display for RecordingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyRequests(max) => write!(f, "a recording has at most {max} requests"),
            Self::Spill(_) => write!(
                f,
                "failed to write recorded bytes to a temporary file in {}; make space there, or \
                 set TMPDIR to another folder",
                std::env::temp_dir().display()
            ),
        }
    }
}

impl StdError for RecordingError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::TooManyRequests(_) => None,
            Self::Spill(error) => Some(error),
        }
    }
}
