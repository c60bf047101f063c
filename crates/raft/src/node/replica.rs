//! The state machine of a node, and its type within the node.

use std::fmt;
use std::io::{self, Read};
use std::sync::Arc;

use bytes::Bytes;
use openraft::Raft;
use parking_lot::Mutex;

use crate::machine_store::{Machine, MachineStore};
use crate::node::commands::{Command, Commands};

/// A state machine that a [`Node`](crate::Node) replicates, and that other code can read. Clones
/// are handles of one.
pub struct Replica<M>(Arc<Mutex<M>>);

impl<M: Machine<Commands>> Replica<M> {
    /// Creates the state machine of one node.
    pub fn new(machine: M) -> Self {
        Self(Arc::new(Mutex::new(machine)))
    }

    /// Calls `read` with the state machine, between two commands.
    pub fn with<T>(&self, read: impl FnOnce(&M) -> T) -> T {
        read(&self.0.lock())
    }

    pub(crate) fn to_any(&self) -> AnyMachine {
        AnyMachine(Box::new(self.clone()))
    }
}

impl<M> Clone for Replica<M> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<M> fmt::Debug for Replica<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replica").finish_non_exhaustive()
    }
}

impl<M: Machine<Commands>> Machine<Commands> for Replica<M> {
    fn apply(&mut self, command: Command) -> io::Result<Bytes> {
        self.0.lock().apply(command)
    }

    fn answer(&self) -> Bytes {
        self.0.lock().answer()
    }

    fn state(&self) -> io::Result<Box<dyn Read + Send>> {
        self.0.lock().state()
    }

    fn restore(&mut self, state: &mut dyn Read) -> io::Result<()> {
        self.0.lock().restore(state)
    }
}

/// The openraft of a node.
pub(crate) type NodeRaft = Raft<Commands, MachineStore<Commands, AnyMachine>>;

/// Any state machine: a node has one type, so that openraft is compiled once, in this crate, and
/// not in each that has a state machine.
pub(crate) struct AnyMachine(Box<dyn Machine<Commands>>);

impl Machine<Commands> for AnyMachine {
    fn apply(&mut self, command: Command) -> io::Result<Bytes> {
        self.0.apply(command)
    }

    fn answer(&self) -> Bytes {
        self.0.answer()
    }

    fn state(&self) -> io::Result<Box<dyn Read + Send>> {
        self.0.state()
    }

    fn restore(&mut self, state: &mut dyn Read) -> io::Result<()> {
        self.0.restore(state)
    }
}
