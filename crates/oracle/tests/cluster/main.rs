//! Oracles of one cluster, with clients that ask all the time: what they get is unique and in
//! order, through restarts, transfers and clocks that step.

mod clients;
mod clock;
mod deadline;
mod faults;
mod leases;
#[path = "../../../raft/tests/nodes/proxy.rs"]
mod proxy;
mod queue;
mod requests;
mod sequences;
