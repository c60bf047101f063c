//! The protocol: phases, iteration, truncation, and answers that are whole or refused.

mod for_raft;
mod iteration;
mod phases;
mod truncation;
mod whole_or_refused;
