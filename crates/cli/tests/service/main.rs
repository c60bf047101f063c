//! The timestamp service as processes.

#[path = "../../../server/tests/service/client.rs"]
mod client;
#[path = "../kit/esker.rs"]
mod esker;
#[cfg(feature = "http3")]
#[allow(dead_code, reason = "a part of the client")]
#[path = "../../../server/tests/service/http3_client.rs"]
mod http3_client;

mod client_crate;
mod documented;
mod lines;
mod local;
mod nodes;
mod output;
mod settings;
mod signals;
mod timestamps;
