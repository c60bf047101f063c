//! Nodes over TCP: three of them through proxies that cut them off, and callers that are no nodes.
//! And the stores of a node without it.

mod changes;
mod damaged_snapshot;
mod elections;
mod group;
mod membership;
mod proofs;
mod proxy;
mod stores;
mod strangers;
mod wire;
