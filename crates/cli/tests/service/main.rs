//! The timestamp service as processes.

#[path = "../../../server/tests/service/client.rs"]
mod client;
#[path = "../kit/esker.rs"]
mod esker;

mod client_crate;
mod lines;
mod local;
mod nodes;
mod output;
mod settings;
mod signals;
mod timestamps;
