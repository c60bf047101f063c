//! Nodes of the service in one process, over real connections.

mod authority;
mod bad_input;
mod browser;
mod callers;
#[cfg(feature = "http3")]
mod certificates;
#[path = "../kit/client.rs"]
mod client;
mod clock;
mod connections;
mod disk_stall;
mod duplicate_node;
mod endpoints;
mod followers;
mod founding;
#[cfg(feature = "http3")]
mod http3;
#[cfg(feature = "http3")]
#[path = "../kit/http3_client.rs"]
mod http3_client;
#[path = "../kit/http_answer.rs"]
mod http_answer;
mod idle;
mod load;
mod members;
mod metrics;
mod nodes;
mod page;
mod peers;
mod refused_data;
mod roles;
mod sequences;
mod tasks;
mod tls;
#[path = "../kit/tls_client.rs"]
mod tls_client;
