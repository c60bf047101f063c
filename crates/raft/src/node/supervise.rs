//! The tasks of a node beside those of openraft: one that panics stops the node.
//!
//! It would go on without what that task does otherwise: never hear of the other nodes, or never
//! campaign. Tasks that end without a panic end with openraft, or are done.

use tokio::task::JoinHandle;

use crate::log_store::LogStore;
use crate::node::commands::Commands;
use crate::node::replica::Core;

/// Stops a node when one of its tasks panics.
pub(crate) struct Supervisor {
    pub(crate) raft: Core,
    pub(crate) entries: LogStore<Commands>,
}

impl Supervisor {
    /// Watches this task, on the runtime that this is called from.
    pub(crate) fn watch(&self, name: &'static str, task: JoinHandle<()>) {
        let (raft, entries) = (self.raft.clone(), self.entries.clone());
        tokio::spawn(async move {
            if task.await.is_err_and(|error| error.is_panic()) {
                tracing::error!(task = name, "a task of the node panicked; the node stops");
                // The first is the reason.
                let _ = entries.failure().set(format!("its task \"{name}\" panicked"));
                // Fails if openraft has panicked: then it has stopped.
                let _ = raft.shutdown().await;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use std::io::{self, Read};
    use std::net::IpAddr;
    use std::sync::Arc;
    use std::time::Duration;

    use bytes::Bytes;
    use esker_consensus::ConsensusLog;
    use esker_disk::sim::SimDisk;
    use futures_util::future::BoxFuture;

    use crate::base::clock::WallClock;
    use crate::machine::Machine;
    use crate::network::handshake::ClusterId;
    use crate::network::transport::{Connection, Listener, Tcp};
    use crate::node::commands::{Command, Commands};
    use crate::node::replica::Replica;
    use crate::node::start::{Parts, ticks};
    use crate::settings::config;

    struct Nothing;

    impl Machine<Commands> for Nothing {
        fn apply(&mut self, _: Command) -> Bytes {
            Bytes::new()
        }

        fn answer(&self) -> Bytes {
            Bytes::new()
        }

        fn state(&self) -> io::Result<Box<dyn Read + Send>> {
            Ok(Box::new(io::empty()))
        }

        fn restore(&mut self, _: &mut dyn Read) -> io::Result<()> {
            Ok(())
        }
    }

    #[derive(Debug)]
    struct Panics;

    impl Listener for Panics {
        fn accept(&mut self) -> BoxFuture<'_, io::Result<(Connection, Option<IpAddr>)>> {
            panic!("as a bug would")
        }
    }

    /// The node went on, and no other one reached it any more.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_node_whose_task_panics_stops() {
        let log = ConsensusLog::builder("/raft").disk(Arc::new(SimDisk::new(1))).open().unwrap();
        let round_trip = Duration::from_millis(10);
        let parts = Parts {
            node: 1,
            cluster: ClusterId([1; 16]),
            log,
            transport: Arc::new(Tcp),
            config: config(round_trip),
            ticks: ticks(round_trip),
            clock: WallClock::default(),
            machine: Replica::new(Nothing).erased(),
        };
        let node = parts.assemble(Panics).await.unwrap();
        let why = tokio::time::timeout(Duration::from_secs(60), node.stopped()).await.unwrap();
        assert_eq!(why, "its task \"take connections\" panicked");
    }
}
