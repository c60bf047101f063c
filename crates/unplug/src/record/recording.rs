//! The requests of a program to its directory, and its output, in one order.

use std::collections::BTreeMap;
use std::ffi::OsString;

use serde::{Deserialize, Serialize};

use super::operation::{Ino, Operation, Request, RequestNumber};

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

#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recording {
    pub events: Vec<Event>,
    pub nodes: BTreeMap<Ino, Node>,
    requests: RequestNumber,
    /// The promises of the file system for which states are built; not a part of the file.
    #[serde(skip)]
    pub model: FileSystemModel,
}

impl Recording {
    pub fn add(&mut self, path: String, operation: Operation) {
        self.requests += 1;
        let request = Request { number: self.requests, path, operation };
        self.events.push(Event::Request(request));
    }

    pub fn requests(&self) -> RequestNumber {
        self.requests
    }
}
