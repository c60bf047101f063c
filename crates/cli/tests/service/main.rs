//! The timestamp service as processes.

#[path = "../../../server/tests/kit/client.rs"]
mod client;
#[path = "../kit/esker.rs"]
mod esker;
#[cfg(feature = "http3")]
#[path = "../../../server/tests/kit/http3_client.rs"]
mod http3_client;
#[path = "../../../server/tests/kit/seen.rs"]
mod seen;

mod client_crate;
mod documented;
mod lines;
mod local;
mod nodes;
mod output;
mod profile;
mod settings;
mod signals;
mod spans;
mod timestamps;
mod waiting;
