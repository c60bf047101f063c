//! A client and scripted nodes in one process, over real connections.

mod answers;
mod authority;
mod build;
mod cancel;
mod deadlines;
mod fake;
mod leaders;
mod node_caller;
mod order;
mod queue;
mod runtimes;
mod sequences;
mod sharing;
mod tls;
mod widths;
