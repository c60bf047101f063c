//! Nodes of the service in one process, over real connections.

mod bad_input;
mod client;
mod endpoints;
mod idle;
mod load;
mod members;
mod metrics;
mod nodes;
mod stall;
mod standing;
