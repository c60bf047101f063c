//! Timestamps are unique and in order, whatever happens to three nodes: processes that are
//! killed, stopped, cut off, given wrong clocks and bad disks.
//!
//! Two rounds of each fault; `ESKER_SOAK=n` makes it n of each. `ESKER_SOAK_TLS=1` has nodes and
//! clients use TLS.

mod child;
#[path = "../kit/client.rs"]
mod client;
mod clients;
mod faults;
#[cfg(feature = "http3")]
#[path = "../kit/http3_client.rs"]
mod http3_client;
#[path = "../kit/http_answer.rs"]
mod http_answer;
mod namespaces;
mod network;
mod nodes;
mod proxies;
#[path = "../kit/tls_client.rs"]
mod tls_client;
