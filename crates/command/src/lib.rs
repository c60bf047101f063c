//! The code that the commands `esker`, `esker-bench` and `esker-lab` share: the command line,
//! quantities, exit statuses, signals, input and output.

#[cfg(feature = "service")]
pub mod changed_cluster;
pub mod choices;
mod command_line;
#[cfg(feature = "service")]
pub mod endpoints;
pub mod exit;
pub mod framing;
pub mod input;
pub mod json_line;
pub mod library_errors;
#[cfg(feature = "service")]
pub mod local_nodes;
pub mod log_options;
pub mod option_flags;
pub mod output;
pub mod progress;
pub mod quantity;
pub mod record_text;
pub mod remedies;
#[cfg(feature = "service")]
pub mod sequences;
pub mod signals;
mod stdout_at_start;
#[cfg(feature = "service")]
pub mod task_runtime;
#[cfg(feature = "service")]
pub mod tls_flags;
#[cfg(feature = "service")]
pub mod token_file;
mod variables;

pub use command_line::{MAY_BE_EMPTY, parse_from, run};
