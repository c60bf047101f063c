//! Nodes of the service in one process, over real connections.

mod bad_input;
mod client;
mod endpoints;
mod load;
mod members;
mod nodes;
mod stall;
