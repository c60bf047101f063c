//! The systems, and the works in which each takes part.

use crate::job::{Set, Shape};
use crate::work::Workload;

/// The origin of a system.
#[derive(Debug, Clone, Copy)]
pub enum Home {
    /// A child process of this program.
    Here,
    /// A command of the Go module.
    Go(&'static str),
    /// Nowhere, for this reason.
    Missing(&'static str),
}

/// A system under test.
#[derive(Debug)]
pub struct System {
    pub set: Set,
    pub name: &'static str,
    pub home: Home,
    /// The callers that it is asked to serve.
    callers: Callers,
    /// The log can be followed at the tip while it is written.
    tail: bool,
    /// The system takes entries.
    entries: bool,
    /// The system takes slots.
    slots: bool,
    /// The system takes batches that are atomic, where the work has some.
    batches: bool,
    /// The system does the works that load keys and read them.
    loads: bool,
}

/// Callers that are of use for a system.
#[derive(Debug, Clone, Copy)]
enum Callers {
    Any,
    /// The appends of several callers are not batched.
    One,
    /// A group committer batches their appends.
    Several,
}

const fn system(name: &'static str, home: Home) -> System {
    System {
        set: Set::Log,
        name,
        home,
        callers: Callers::Any,
        tail: false,
        entries: true,
        slots: false,
        batches: true,
        loads: false,
    }
}

const fn with_tail(name: &'static str, home: Home) -> System {
    System { tail: true, ..system(name, home) }
}

const fn batched(name: &'static str, home: Home) -> System {
    System { callers: Callers::Several, ..system(name, home) }
}

const fn entries(name: &'static str, home: Home, callers: Callers) -> System {
    System { set: Set::Consensus, callers, ..system(name, home) }
}

const fn store(name: &'static str) -> System {
    System { set: Set::Kv, loads: true, ..system(name, Home::Here) }
}

/// A group committer in front of a store: of use for single puts of several callers.
const fn batched_store(name: &'static str) -> System {
    System { loads: false, batches: false, callers: Callers::Several, ..store(name) }
}

const NO_WALDO: Home = Home::Missing(
    "not to be had from a registry: the crate of this name on crates.io, 0.1.0, calls itself a \
     placeholder for another project and has no log in it",
);

/// All of them, Esker first.
pub const SYSTEMS: [System; 34] = [
    with_tail("esker", Home::Here),
    system("esker-threads", Home::Here),
    with_tail("plain", Home::Here),
    system("raft-engine", Home::Here),
    system("okaywal", Home::Here),
    with_tail("waldo", NO_WALDO),
    with_tail("tidwall", Home::Go("tidwall")),
    batched("tidwall-batched", Home::Go("tidwall")),
    with_tail("raft-wal", Home::Go("raftwal")),
    batched("raft-wal-batched", Home::Go("raftwal")),
    system("etcd-wal", Home::Go("etcdwal")),
    batched("etcd-wal-batched", Home::Go("etcdwal")),
    system("pebble-record", Home::Go("pebblerecord")),
    System { slots: true, ..entries("esker", Home::Here, Callers::Any) },
    entries("esker-threads", Home::Here, Callers::Any),
    entries("esker-commit", Home::Here, Callers::Any),
    entries("esker-commit-threads", Home::Here, Callers::Any),
    entries("raft-engine", Home::Here, Callers::Any),
    entries("etcd-wal", Home::Go("etcdwal"), Callers::One),
    entries("etcd-wal-batched", Home::Go("etcdwal"), Callers::Several),
    entries("raft-wal", Home::Go("raftwal"), Callers::One),
    entries("raft-wal-batched", Home::Go("raftwal"), Callers::Several),
    System {
        entries: false,
        batches: false,
        slots: true,
        ..entries("badger", Home::Go("badger"), Callers::Any)
    },
    store("esker"),
    System { loads: false, ..store("esker-threads") },
    store("rocksdb"),
    store("fjall"),
    batched_store("fjall-batched"),
    store("redb"),
    batched_store("redb-batched"),
    store("sled"),
    batched_store("sled-batched"),
    store("surrealkv"),
    batched_store("surrealkv-batched"),
];

impl System {
    /// Whether this system runs this work. The batched variants run where several writers append.
    pub fn takes_part(&self, work: &Workload) -> bool {
        let callers = match self.callers {
            Callers::Any => true,
            Callers::One => work.writers == 1,
            Callers::Several => work.writers > 1,
        };
        let shape = match work.shape {
            Shape::Stream => return self.set == work.set && self.tail,
            _ if matches!(self.home, Home::Missing(_)) => false,
            shape if shape.is_on_slots() => self.slots,
            Shape::Batches => self.batches,
            Shape::Load | Shape::Reads => self.loads,
            _ => self.entries,
        };
        self.set == work.set && callers && shape
    }
}

/// The systems of a set.
pub fn systems(set: Set) -> impl Iterator<Item = &'static System> {
    SYSTEMS.iter().filter(move |system| system.set == set)
}
