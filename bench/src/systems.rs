//! Who takes part in what.

use crate::job::Shape;
use crate::work::Work;

/// Where a system comes from.
#[derive(Debug, Clone, Copy)]
pub enum Home {
    /// This program, as a child.
    Here,
    /// A command of the Go module.
    Go(&'static str),
    /// Nowhere, for this reason.
    Missing(&'static str),
}

/// A system under test.
#[derive(Debug)]
pub struct System {
    pub name: &'static str,
    pub home: Home,
    /// A group committer stands in front of it; it is of use for concurrent callers only.
    batched: bool,
    /// It can be followed at the tip while it is written.
    tail: bool,
}

const fn system(name: &'static str, home: Home) -> System {
    System { name, home, batched: false, tail: false }
}

const fn with_tail(name: &'static str, home: Home) -> System {
    System { tail: true, ..system(name, home) }
}

const fn batched(name: &'static str, home: Home) -> System {
    System { batched: true, ..system(name, home) }
}

const NO_WALDO: Home = Home::Missing(
    "not to be had from a registry: the crate of this name on crates.io, 0.1.0, calls itself a \
     placeholder for another project and has no log in it",
);

/// All of them, Esker first.
pub const SYSTEMS: [System; 13] = [
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
];

impl System {
    /// Whether it can do this work, and nobody else does it in its place.
    pub fn takes_part(&self, work: &Work) -> bool {
        match (work.shape, self.home) {
            (Shape::Stream, _) => self.tail,
            (_, Home::Missing(_)) => false,
            (Shape::Callers, _) => !self.batched || work.writers > 1,
            (Shape::Pipelined, _) => !self.batched,
        }
    }
}
