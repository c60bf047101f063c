//! The timestamp service as processes.

#[path = "../../../server/tests/kit/client.rs"]
mod client;
use esker_testkit::commands as esker;
#[cfg(feature = "http3")]
#[path = "../../../server/tests/kit/http3_client.rs"]
mod http3_client;
#[path = "../../../server/tests/kit/http_answer.rs"]
mod http_answer;

mod client_crate;
mod documented;
mod hostile_texts;
mod lines;
mod local;
mod nodes;
mod output;
mod packaged;
#[cfg(feature = "profile")]
mod profile;
mod scripted_node;
mod sequence_commands;
mod sequences;
mod settings;
mod signals;
#[cfg(feature = "otlp")]
mod spans;
mod timestamps;
mod tls_flags;
mod up;
mod waiting;
