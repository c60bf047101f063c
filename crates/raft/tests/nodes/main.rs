//! Nodes over TCP: three of them through proxies that cut them off, and callers that are no nodes.

mod elections;
mod group;
mod membership;
mod proofs;
mod proxy;
mod wire;
